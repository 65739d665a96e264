"""What several verbs answer with: values for a reporter."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from workbench.app.show import read
from workbench.derive.matching import LaunchGroup, Matching, groups
from workbench.derive.source_diff import SourceDiff
from workbench.derive.timeline import LaunchTimeline
from workbench.judge.findings import Finding
from workbench.judge.ladder import Ablation, Row, VariantPair
from workbench.judge.program_variants import ProgramStep
from workbench.ncu.report_file import Launch, Report
from workbench.render.document.launches import Details
from workbench.study.values import Tolerance
from workbench.words import ABSENT, CheckResult, Origin, Status


@dataclass(frozen=True)
class VariantResult:
    """Rows of a ladder that were asked for; ``damaged`` says which evidence cannot be read."""

    ladder: Ablation
    rows: tuple[Row, ...]
    damaged: tuple[Finding, ...] = ()

    @property
    def row(self) -> Row:
        return self.rows[0]


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
class ProgramResult:
    """A program that ran under ncu: the kernels that it launched, those of ``full`` with all that
    ncu collects. ``missing`` were to be there. ``failure`` is how the program ended, "" where well.
    ``sessions`` are the launches of each run that timed them, ``steps`` the study that it is of.
    """

    command: tuple[str, ...]
    listed: Sequence[LaunchGroup]
    is_cut: bool
    missing: tuple[str, ...]
    failure: str
    interrupted: bool
    full: ReportResult
    sessions: tuple[Sequence[Launch], ...] = ()
    steps: tuple[ProgramStep, ...] = ()


@dataclass(frozen=True)
class TracedProgram:
    """A program that ran under iket: when the warps of its kernels ran, in their last launches.
    ``files`` are a trace that Perfetto opens, and a chart.
    """

    program: tuple[str, ...]
    files: tuple[Path, ...]
    timeline: tuple[LaunchTimeline, ...]
    faults: tuple[Finding, ...]


@dataclass(frozen=True)
class PairResult:
    """Two variants of a ladder side by side; ``paths`` are those of the second one's files."""

    ladder: Ablation
    pair: VariantPair
    changes: SourceDiff
    paths: Mapping[str, str]


@dataclass(frozen=True)
class ReportPairResult:
    """Two reports, with what matches."""

    before: Report
    after: Report
    matching: Matching
    warnings: Sequence[Finding]


FINE = (CheckResult.CORRECT, CheckResult.UNSUPPORTED, ABSENT, Status.STALE)


@dataclass(frozen=True)
class CheckRow:
    """A variant beside the float64 reference at one shape; errors are None where not collected.

    ``bound`` is the largest that the study allows of one element at that shape.
    ``times_reference`` is the error as a multiple of the primary reference's, on inputs of which
    ``kind``; ``varies``: results differ from run to run. ``output`` is the one of several
    that decided, ``hint`` the way out of what is wrong.
    """

    variant: str
    shape: str
    status: str
    bound: float = dataclasses.field(repr=False)
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None
    times_reference: float | None = None
    rounding: bool = dataclasses.field(default=False, repr=False)
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""

    @property
    def wrong(self) -> bool:
        return self.status not in FINE

    @property
    def used(self) -> float | None:
        """The part of the bound that the error takes; of no error at all where none is allowed."""
        if self.max_abs is None or self.bound:
            return None if self.max_abs is None else self.max_abs / self.bound
        return math.inf if self.max_abs else 0.0


@dataclass(frozen=True)
class ErrorBound:
    """Errors of a result, or the largest allowed: of one element, and relative in norm."""

    max_abs: float
    relative: float

    @classmethod
    def of(cls, tolerance: Tolerance) -> ErrorBound:
        return cls(tolerance.absolute, tolerance.relative)


@dataclass(frozen=True)
class CheckedStudy:
    """``tolerance`` is what the study allows at the shape; ``lost`` is what failed without a
    record, by variant.
    """

    study: str
    gpu: str
    evidence: Origin
    tolerance: ErrorBound
    checks: tuple[CheckRow, ...]
    lost: dict[str, str] = dataclasses.field(repr=False)
    origin: str = dataclasses.field(default="", repr=False)  # where no GPU here checked them
