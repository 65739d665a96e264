"""What a variant or anyone's report holds: metrics, source lines with what they cost; and of two of
them what belongs together: launches, and the machine code of variants, reports or CUDA binaries.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from shlex import quote

from workbench.app.target import Target
from workbench.cuda.compiler import CUBINS
from workbench.derive.code_diff import CodeDiff, machine_code_diff
from workbench.derive.figures import figures, occupancy_limiters, stall_shares
from workbench.derive.matching import BY_HAND, LaunchGroup, LaunchPair, Matching, groups, match
from workbench.derive.source_diff import (
    InstructionCost,
    LineCosts,
    Listing,
    imported,
    line_costs,
    listing,
    physical_lines,
    source_diff,
)
from workbench.errors import BadCapture, CannotTell, EnvironmentLacks, UsageError
from workbench.evidence.store import captures_at
from workbench.judge.advice_rules import advise, subject
from workbench.judge.bottlenecks import bottlenecks_of
from workbench.judge.comparison import compare as compare_captures
from workbench.judge.comparison import warnings
from workbench.judge.findings import Finding
from workbench.ncu.capture import (
    Capture,
    MetricValue,
    find_metric,
    has_lines,
    has_rules,
    load_capture,
    load_sources,
)
from workbench.ncu.disassembly import Instructions, disassembled
from workbench.ncu.reader import Wanted, actions, without_number
from workbench.ncu.report_file import Launch, Report, pick_kernel, pick_launch
from workbench.render.document.hunks import SourceLine
from workbench.render.document.launches import SIDES, Details, PairRead
from workbench.run.protocol import Built
from workbench.study.files import contents
from workbench.words import Status

PROFILE_AGAIN = "restore the file, or profile the variant again"


def current_capture(target: Target, variant: str) -> tuple[Path | None, Wanted, Capture]:
    """A variant's capture, and where its report is: None where its tables alone were kept."""
    evidence = target.load([variant], captures=True).variants[variant]
    index, capture = evidence.index, evidence.capture
    if index is None or capture is None:
        if evidence.state["capture"] == Status.DAMAGED:
            raise BadCapture(
                f"{variant} has a damaged capture at {target.shape}: {evidence.damage}",
                hint=PROFILE_AGAIN,
            )
        missing = evidence.state["capture"] == Status.MISSING
        why = "has no capture" if missing else "has only a stale capture"
        files = target.folder.capture_files() if missing else []
        shapes = [
            p.parent.name for p in files if variant in captures_at(target.folder, p.parent.name)
        ]
        raise (EnvironmentLacks if missing else CannotTell)(
            f"{variant} {why} at {target.shape} on {target.folder.gpu}",
            hint=f"it has one at other shapes: --shape {' or '.join(shapes)}"
            if shapes
            else f"`workbench profile {quote(variant)}` where there is a GPU",
        )
    return None if evidence.tables_only else capture.path, index.range, capture


@dataclass(frozen=True)
class Metric:
    """A metric of every launch, of a ``variant`` or of a report of anyone."""

    metric: str = field(repr=False)
    variant: str
    capture: str
    metrics: Sequence[MetricValue]


def report_metric(report: Report, launches: Sequence[Launch], metric: str) -> Metric:
    rows = find_metric(report.path, tuple(launch.index for launch in launches), metric)
    parts = [replace(row, launch=launches[row.launch].index) for row in rows]
    return Metric(metric, "", report.name, parts)


@dataclass(frozen=True)
class SourceListing:
    """Every file of a kernel of a ``variant``, or of a ``launch`` of a ``report``, with the
    instructions where these are asked for; ``notes`` say what a file lacks, ``paths`` where it
    stands here.
    """

    files: Mapping[str, Sequence[SourceLine]]
    code: Listing | None
    notes: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""
    report: Report | None = None
    launch: Launch | None = None


def report_lines(report: Report, launch: Launch, *, sass: bool) -> SourceListing:
    """Raises UsageError where the launch has no lines, or no instructions."""
    capture, _ = read(report, launch)
    if not (sass or has_lines(capture)):
        raise UsageError(
            f"{launch.kernel} in {report.name} has no source lines",
            hint="compile with nvcc -lineinfo and profile with --set full --import-source yes",
        )
    texts = load_sources(report.path, (launch.index,))
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    bare = sorted({file for file, _ in costs.lines if file} - texts.keys())
    files = {file: listed(costs, file, text) for file, text in texts.items()}
    for file in bare:
        last = max(line for name, line in costs.lines if name == file)
        files[file] = [line for line in listed(costs, file, "\n" * last) if line.ran]
    without = "the report has no text of this file: profile with --import-source yes"
    code = instructions_of(capture, launch.kernel) if sass else None
    notes = dict.fromkeys(bare, without)
    return SourceListing(files, code, notes, report=report, launch=launch)


def listed(costs: LineCosts, file: str, text: str) -> list[SourceLine]:
    """Every line of a source with what it cost."""
    parts = []
    for number, content in enumerate(physical_lines(text), start=1):
        cost = costs.of(file, number)
        parts.append(
            SourceLine(
                line=number,
                samples=None if cost.samples is None else int(cost.samples),
                share=cost.share,
                microseconds=cost.microseconds,
                top_stall=cost.top_stall,
                instructions=None if cost.instructions is None else int(cost.instructions),
                text=content,
            )
        )
    return parts


def instructions_of(capture: Capture, name: str) -> Listing:
    """Raises UsageError where the report has no disassembly of the launches."""
    code = listing(capture.code, capture.metrics)
    if not code.instructions:
        raise UsageError(
            f"the capture of {name} has no disassembly",
            hint="profile with `--set full`: the section SourceCounters has it",
        )
    return code


CORE = {"duration", "compute_pct", "dram_pct"}  # figures that nearly every report has


def chosen(report: Report, kernel: str | None, launch: int | None) -> tuple[Launch, ...]:
    if launch is not None:
        return pick_launch(report, launch)
    return pick_kernel(report, kernel) if kernel is not None else report.launches


def read(report: Report, launch: Launch) -> tuple[Capture, Details]:
    capture = load_capture(report.path, (launch.index,))
    known_figures = figures(capture.metrics)
    kernel = subject(capture, known_figures)
    is_whole = known_figures.keys() >= CORE
    nan = (0, 0) if is_whole else without_number(actions(report.path, (launch.index,))[0])
    return capture, Details(
        launch,
        known_figures,
        stall_shares(capture.metrics),
        tuple(occupancy_limiters(capture.metrics)),
        bottlenecks_of(capture, known_figures),
        has_rules(report.path, (launch.index,)),
        advise(kernel),
        kernel.hottest,
        nan,
    )


@dataclass(frozen=True)
class ReportResult:
    """The ``picked`` launches of a report, those that are alike in a group."""

    report: Report
    picked: Sequence[Launch]

    @cached_property
    def groups(self) -> list[LaunchGroup]:
        return groups(self.picked)

    def details(self, group: LaunchGroup) -> Details:
        """Figures, stalls and limits of a launch of the group."""
        return read(self.report, group.typical)[1]


@dataclass(frozen=True)
class ReportPairResult:
    """Two reports, with what matches."""

    before: Report
    after: Report
    matching: Matching
    warnings: Sequence[Finding]

    def read(self, pair: LaunchPair) -> PairRead:
        """Two launches with all that is read of them, and how they differ."""
        first, was = read(self.before, pair.before)
        other, now = read(self.after, pair.after)
        comparison = compare_captures(first, other, SIDES, computed=(was.figures, now.figures))
        sides = [
            imported(load_sources(capture.path, (launch.index,)), capture)
            for capture, launch in ((first, pair.before), (other, pair.after))
        ]
        names = pair.before.kernel, pair.after.kernel
        # Kernels of one file: each side without the other's, so that the two are aligned.
        if names[0] != names[1] and set(sides[0].texts.items()) & set(sides[1].texts.items()):
            sides = [replace(s, skipped=n) for s, n in zip(sides, reversed(names), strict=True)]
        return PairRead(was, now, comparison, source_diff(*sides))


def compared_reports(
    before: Report, after: Report, kernel: str | None = None, launch: str | None = None
) -> ReportPairResult:
    """Compare the launches that match, of one ``kernel`` or of all, or two that are chosen by hand:
    ``launch`` is ``A:B``. Raises UsageError.
    """
    if launch is None:
        matching = match(chosen(before, kernel, None), chosen(after, kernel, None))
    elif kernel is not None:
        raise UsageError("--kernel and --launch exclude each other", hint="leave one of them out")
    elif (numbers := re.fullmatch(r"(\d{1,9}):(\d{1,9})", launch, re.ASCII)) is None:
        raise UsageError(
            f"--launch '{launch}' is no pair of launches",
            hint="one of A and one of B, such as 0:3; `workbench show FILE` counts them",
        )
    else:
        (first,) = pick_launch(before, int(numbers[1]))
        (other,) = pick_launch(after, int(numbers[2]))
        matching = Matching((LaunchPair(first, other, BY_HAND),), (), ())
    return ReportPairResult(before, after, matching, warnings(before, after, matching))


def require_pairs(matching: Matching) -> None:
    """Raises UsageError without any."""
    if not matching.pairs:
        raise UsageError(
            "no kernel of one report matches one of the other",
            hint="`workbench show FILE` lists them, and --launch A:B takes two by their numbers",
        )


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
    return paired_code(before.variant, after.variant, origin, *sides)


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


def paired_code(
    before: str, after: str, origin: str, old: Mapping[str, Listing], new: Mapping[str, Listing]
) -> MachineCodeResult:
    """Compare functions of one name, or the only one of each."""
    pairs = {name: name for name in old if name in new}
    if len(old) == len(new) == 1:
        pairs = dict(zip(old, new, strict=True))
    kernels = [machine_code_diff(old[a], new[b], a, b) for a, b in pairs.items()]
    only = (
        tuple(n for n in old if n not in pairs),
        tuple(n for n in new if n not in pairs.values()),
    )
    return MachineCodeResult(before, after, origin, tuple(kernels), *only)
