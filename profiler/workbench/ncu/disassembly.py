"""The instructions of a launch with what was counted at each; those of a CUDA binary, for which
NVIDIA's ``nvdisasm`` needs no GPU.
"""

from __future__ import annotations

import re
import shutil
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from workbench.children import temporary_folder
from workbench.cuda.compiler import TOOLKIT, ran
from workbench.cuda.cubin import MAGIC, TEXT
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError
from workbench.ncu.catalog import STALL_PREFIX
from workbench.ncu.places import LineTable, Place, Places
from workbench.ncu.reader import metric_names

INSTRUCTIONS = "instructions"
LINE_COUNTERS = {
    INSTRUCTIONS: "inst_executed",
    "excess_global_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "excess_shared_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}


@dataclass(frozen=True)
class Counted:
    """Counter to address and value, without the zeros; ``places`` says where each belongs."""

    by_pc: Mapping[str, Sequence[tuple[int, float]]]
    places: Places


def counted(action: Any, tables: Sequence[LineTable] = ()) -> Counted:
    """The counters of ``LINE_COUNTERS`` and the stall reasons that a launch has by instruction."""
    by_pc = {}
    for counter, name in {**stall_metrics(action), **LINE_COUNTERS}.items():
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids() or not metric.value():
            continue
        ids = metric.correlation_ids()
        values = enumerate(map(metric.as_double, range(metric.num_instances())))
        by_pc[counter] = [(ids.as_uint64(i), value) for i, value in values if value]
    # All instructions if their executions were counted, else those with a count.
    every = action.metric_by_name(LINE_COUNTERS[INSTRUCTIONS])
    if every is None or not every.has_correlation_ids():
        pcs = {pc for counts in by_pc.values() for pc, _ in counts}
    else:
        ids = every.correlation_ids()
        pcs = {ids.as_uint64(i) for i in range(every.num_instances())}
    return Counted(by_pc, Places(action, pcs, tables))


@cache  # of over a thousand metrics
def stall_metrics(action: Any) -> dict[str, str]:
    """Stall reason to the metric that counts its samples."""
    return {
        name.removeprefix(STALL_PREFIX): name
        for name in metric_names(action)
        if name.startswith(STALL_PREFIX) and not name.endswith("_not_issued")
    }


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


@dataclass(frozen=True)
class Code:
    """One launch, column by column, in the order of the addresses.

    ``addresses`` are bytes from the first, which is at ``first`` in the report, and so are the
    targets of branches. ``places`` are file and line that an instruction is charged to, as
    ``Places`` has it. ``executed`` counts warps; None is not collected. ``samples`` is stall reason
    to index in these columns to its samples, each at the instruction that waits: by line they add
    up to those of ``Capture.lines``.
    """

    first: int
    addresses: tuple[int, ...]
    sass: tuple[str, ...]
    places: tuple[Place, ...]
    executed: tuple[float, ...] | None
    samples: Mapping[str, Mapping[int, float]]


def read_code(counters: Counted) -> Code | None:
    """None where the report has no disassembly of the launch."""
    places, code = counters.places, counters.places.code
    if not any(instruction.opcode for instruction in code):
        return None
    pcs = [instruction.pc for instruction in code]
    executed = dict(counters.by_pc.get(INSTRUCTIONS, ()))
    samples: dict[str, dict[int, float]] = {}
    for reason, counts in counters.by_pc.items():
        if reason in LINE_COUNTERS:
            continue
        mine: dict[int, float] = defaultdict(float)
        for pc, count in counts:
            # One behind the last EXIT is where a warp waits for its stores: it is the EXIT's.
            mine[max(0, bisect_right(pcs, places.waiting(pc, reason)) - 1)] += count
        samples[reason] = dict(sorted(mine.items()))

    def moved(match: re.Match[str]) -> str:
        """An address in the function, which differs by process, as bytes from the first."""
        address = int(match[0], 16)
        return f"{address - pcs[0]:#x}" if pcs[0] <= address <= pcs[-1] else match[0]

    charged = {n for counts in samples.values() for n in counts}
    return Code(
        first=pcs[0],
        addresses=tuple(pc - pcs[0] for pc in pcs),
        sass=tuple(_ADDRESS.sub(moved, instruction.text) for instruction in code),
        places=tuple(
            places.itself(pc) if n in charged else places.of(pc, INSTRUCTIONS)
            for n, pc in enumerate(pcs)  # where its samples belong; without any, its executions
        ),
        executed=tuple(executed.get(pc, 0.0) for pc in pcs) if executed else None,
        samples=samples,
    )


_PREDICATE = re.compile(r"@!?U?P[\dT]+\s+")


def kind_of(sass: str) -> str:
    """``HGMMA`` of ``@P0 HGMMA.64x64x16.F32 R24, gdesc[UR16], R24``."""
    return _PREDICATE.sub("", sass, count=1).partition(" ")[0].partition(".")[0]


def kinds_of(codes: Iterable[Code | None]) -> dict[str, int]:
    """How many instructions of each kind the kernels of some launches have, each kernel once."""
    kernels = {code.sass for code in codes if code is not None}
    return Counter(kind_of(sass) for kernel in kernels for sass in kernel)


def packed(code: Code) -> dict[str, object]:
    """Arrange code as it is kept in a file.

    Texts are in one piece, since a piece is read much faster than many; numbers that rise are kept
    as steps, which take a third less room.
    """
    files = list(dict.fromkeys(file for file, _ in code.places))
    place = {file: number for number, file in enumerate(files)}
    return {
        "first": code.first,
        "addresses": _steps(code.addresses),
        "sass": "\n".join(code.sass),
        "files": files,
        "file": [place[file] for file, _ in code.places],
        "line": _steps([line for _, line in code.places]),
        "executed": code.executed,
        "samples": {
            reason: [_steps(list(counts)), list(counts.values())]
            for reason, counts in code.samples.items()
        },
    }


def unpacked(kept: Mapping[str, Any]) -> Code:
    """Raises LookupError, TypeError or ValueError for what ``packed`` never made."""
    files, executed = kept["files"], kept["executed"]
    lines = accumulate(kept["line"])
    places = [(str(files[f]), int(n)) for f, n in zip(kept["file"], lines, strict=True)]
    return Code(
        first=int(kept["first"]),
        addresses=tuple(accumulate(kept["addresses"])),
        sass=tuple(kept["sass"].split("\n")),
        places=tuple(places),
        executed=None if executed is None else tuple(executed),
        samples={
            reason: dict(zip(accumulate(steps), counts, strict=True))
            for reason, (steps, counts) in kept["samples"].items()
        },
    )


def _steps(rising: Sequence[int]) -> list[int]:
    """The first, and from each to the next."""
    return [*rising[:1], *(after - before for before, after in pairwise(rising))]


TOOL, DISASSEMBLY_SECONDS = "nvdisasm", 120.0
Instructions = list[tuple[int, str]]  # address in bytes from the function's beginning, and text
_FUNCTION = re.compile(rf"{re.escape(TEXT)}(?P<name>\S+):")
_LABEL = re.compile(r"(?P<name>\.L_\w+):")
_INSTRUCTION = re.compile(r"/\*(?P<address>[0-9a-f]+)\*/\s+(?P<text>.*?)\s*;")
_JUMP = re.compile(r"`\((\.L_\w+)\)")


def nvdisasm() -> str:
    """Return its path: on PATH, in the CUDA toolkit, or of the wheel nvidia-cuda-nvdisasm. Raises
    EnvironmentLacks.
    """
    wheels = (Path(entry or ".", "nvidia", "cu13", "bin", TOOL) for entry in sys.path)
    for place in (Path(shutil.which(TOOL) or TOOLKIT.with_name(TOOL)), *wheels):
        if place.is_file():
            return str(place)
    raise EnvironmentLacks(
        f"{TOOL} is not installed: it turns compiled kernels into instructions",
        hint="pip install nvidia-cuda-nvdisasm",
    )


def disassembled(cubin: bytes, name: str) -> Mapping[str, Instructions]:
    """The instructions of each function of a binary; ``name`` is what messages call it. Targets of
    branches are addresses.

    Raises UsageError for what is no CUDA binary, EnvironmentLacks and ToolFailed.
    """
    if not cubin.startswith(MAGIC):
        raise UsageError(
            f"{name} is no CUDA binary", hint="`nvcc -cubin` or `cuobjdump -xelf all` writes one"
        )
    with temporary_folder() as folder:
        (path := folder / "kernel.cubin").write_bytes(cubin)
        code, text = ran([nvdisasm(), "-c", path.name], folder, DISASSEMBLY_SECONDS)
    if code != 0:
        raise ToolFailed(
            f"{TOOL} could not read {name}", ran=text.strip()[:500], hint="is it a whole cubin?"
        )
    return parsed(text)


def parsed(text: str) -> dict[str, Instructions]:
    """Return what ``nvdisasm -c`` prints; labels become the addresses that they stand at."""
    functions: dict[str, Instructions] = {}
    labels: dict[str, int] = {}
    waiting: list[str] = []
    code: Instructions = []
    for line in map(str.strip, text.splitlines()):
        if function := _FUNCTION.fullmatch(line):
            code = functions.setdefault(function["name"], [])
        elif label := _LABEL.fullmatch(line):
            waiting.append(label["name"])
        elif instruction := _INSTRUCTION.match(line):
            address = int(instruction["address"], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            code.append((address, " ".join(instruction["text"].split())))

    def address_of(match: re.Match[str]) -> str:
        return f"{labels[match[1]]:#x}" if match[1] in labels else match[0]

    return {
        name: [(address, _JUMP.sub(address_of, text)) for address, text in code]
        for name, code in functions.items()
    }
