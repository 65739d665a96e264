"""The machine code of two variants, reports or CUDA binaries, side by side."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from workbench.app.executor import Executor
from workbench.app.show import current_capture, instructions_of
from workbench.app.target import Target
from workbench.children import temporary_folder
from workbench.cuda.compiler import CUBINS
from workbench.derive.code_diff import CodeDiff, machine_code_diff
from workbench.derive.matching import Matching
from workbench.derive.source_diff import InstructionCost, Listing
from workbench.errors import UsageError
from workbench.ncu.capture import load_capture
from workbench.ncu.nvdisasm import Instructions, disassembled
from workbench.ncu.report_file import Launch, Report
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.files import contents
from workbench.study.model import Study
from workbench.study.workspace import Workspace, including

CUBIN = ".cubin"
ARCH = "sm_90a"


@dataclass(frozen=True)
class MachineCodeResult:
    """``before`` and ``after`` are names; ``origin`` says where the code is from. ``only_before``
    and ``only_after`` are kernels that the other side has not.
    """

    before: str
    after: str
    origin: str
    kernels: tuple[CodeDiff, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()


def code_of_captures(target: Target, before: str, after: str) -> MachineCodeResult:
    """Compare the code of the captures of two variants. Raises EnvironmentLacks or CannotTell where
    one is missing or stale, and UsageError where it has no instructions.
    """
    sides = ({n: instructions_of(current_capture(target, n)[2], n)} for n in (before, after))
    return _paired(before, after, f"captures at {target.shape} on {target.folder.gpu}", *sides)


def compiled_code(
    executor: Executor, workspace: Workspace, study: Study, names: Sequence[str], why: str
) -> MachineCodeResult:
    """Compare the code of two variants that are compiled now; ``why`` there are no captures. Raises
    UsageError where one does not compile, and as ``build_only`` and ``disassembled``.
    """
    study, names = including(study, list(names))
    with temporary_folder() as cubins, executor.reporter.progress() as hear:
        limit = workspace.config.limits.seconds_per_step
        events = build_only(study, names, ARCH, limit, hear, cubins)
        for event in events:
            if isinstance(event, Failed):
                message = f"{event.variant} cannot be compiled here: {event.error.message}"
                raise UsageError(message, hint=event.error.hint)
        before, after = (event for event in events if isinstance(event, Built))
        return code_of_builds(before, after, cubins, f"compiled for {ARCH}: {why}")


def code_of_builds(before: Built, after: Built, cubins: Path, origin: str) -> MachineCodeResult:
    """Compare the code of two builds whose binaries are kept in a folder, or below it. Raises as
    ``disassembled``.
    """
    binaries = kept_cubins(cubins)
    sides = []
    for built in (before, after):
        # Functions by kernel, with the macros that it was compiled with.
        side = {
            f"{kernel.kernel} {defines}".strip(): listing_of(
                disassembled(binaries[kernel.code], kernel.source)[kernel.kernel]
            )
            for kernel, defines in zip(built.kernels, built.defines, strict=True)
            if kernel.code in binaries
        }
        if not side:
            variant = built.variant
            raise UsageError(
                f"{variant} has no CUDA kernel of its own, and no capture with instructions",
                hint=f"`workbench profile {quote(variant)}` where there is a GPU",
            )
        sides.append(side)
    if set(sides[0]) != set(sides[1]):  # other macros: those of one kernel pair by their order
        sides = [
            {f"{name.partition(' ')[0]} #{n}": side[name] for n, name in enumerate(side, start=1)}
            for side in sides
        ]
    return _paired(before.variant, after.variant, origin, *sides)


def kept_cubins(folder: Path) -> dict[str, bytes]:
    """Digest of a kernel's machine code to the binary that has it, in or below a folder."""
    binaries = {}
    for path in sorted(folder.rglob(CUBINS)):
        kept = json.loads(contents(path))
        for kernel in kept["report"]["kernels"]:
            if kernel["code"]:
                binaries[kernel["code"]] = base64.b64decode(kept["cubin"])
    return binaries


def listing_of(code: Instructions) -> Listing:
    """Instructions that nothing was counted of."""
    nothing = ("", 0), None, None, None, None
    return Listing(tuple(InstructionCost(0, place, text, *nothing) for place, text in code), None)


def code_of_binaries(before: Path, after: Path) -> MachineCodeResult:
    """Compare the code of two cubin files: functions of one name belong together, or the only one
    of each.
    """
    codes = (disassembled(contents(path), path.name) for path in (before, after))
    sides = ({name: listing_of(code) for name, code in side.items()} for side in codes)
    return _paired(before.name, after.name, "cubin files", *sides)


def _paired(
    before: str, after: str, origin: str, old: Mapping[str, Listing], new: Mapping[str, Listing]
) -> MachineCodeResult:
    pairs = {name: name for name in old if name in new}
    if len(old) == len(new) == 1:
        pairs = dict(zip(old, new, strict=True))
    kernels = [machine_code_diff(old[a], new[b], a, b) for a, b in pairs.items()]
    only = (
        tuple(n for n in old if n not in pairs),
        tuple(n for n in new if n not in pairs.values()),
    )
    return MachineCodeResult(before, after, origin, tuple(kernels), *only)


def code_of_reports(before: Report, after: Report, matching: Matching) -> MachineCodeResult:
    """Compare the code of the launches that match; raises UsageError where a report has no
    instructions.
    """

    def listing(report: Report, launch: Launch) -> Listing:
        return instructions_of(load_capture(report.path, (launch.index,)), launch.kernel)

    launches = [(group.typical.before, group.typical.after) for group in matching.groups]
    kernels = tuple(
        machine_code_diff(listing(before, old), listing(after, new), old.kernel, new.kernel)
        for old, new in launches
    )
    return MachineCodeResult(before.name, after.name, "reports", kernels)
