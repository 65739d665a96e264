"""What several verbs answer with: values for a reporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.app.show import SourceListing
from workbench.derive.matching import LaunchGroup, Matching
from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import Finding
from workbench.judge.ladder import Ablation, Row, VariantPair
from workbench.ncu.report_file import Launch, Report


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
class LinesResult:
    """The source lines of a ``variant``, or of a ``launch`` of a ``report``."""

    listing: SourceListing
    variant: str = ""
    report: Report | None = None
    launch: Launch | None = None


@dataclass(frozen=True)
class ReportResult:
    """The ``picked`` launches of a report, those that are alike in a group."""

    report: Report
    picked: Sequence[Launch]
    groups: Sequence[LaunchGroup]


@dataclass(frozen=True)
class ProgramResult:
    """A program that ran under ncu: the kernels that it launched, those of ``full`` with all that
    ncu collects. ``missing`` were to be there. ``failure`` is how the program ended, "" where well.
    """

    command: tuple[str, ...]
    listed: Sequence[LaunchGroup]
    is_cut: bool
    missing: tuple[str, ...]
    failure: str
    interrupted: bool
    full: ReportResult


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
