"""What a diff with costs is made of: the contract between ``source_diff`` and those who show it.

A hunk's cost is that of its removed, added and rewritten lines. Lines that differ in comments or
blanks alone are shown as changed but count as unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from workbench.derive.diff.costs import Cost, LineCosts
from workbench.derive.figures import added
from workbench.words import LineKind, shown


def is_host(file: str) -> bool:
    """Whether a file is code of the CPU: no capture has costs of it."""
    return file.endswith(".py")


def base(file: str) -> str:
    """A file name without its folders, on whichever system it was compiled."""
    return PurePath(file.replace("\\", "/")).name


@dataclass(frozen=True)
class ProfiledSource:
    """One side of a diff; ``texts`` by file name in the line table. ``why`` there are no ``costs``:
    no capture, or no source lines. ``skipped`` is a function to leave out: two kernels of one file
    are compared by leaving out of each side the other's.
    """

    texts: Mapping[str, str]
    costs: LineCosts | None = None
    why: str = ""
    skipped: str = ""


@dataclass(frozen=True)
class SourceRow:
    """A line of one side, counted from 1; ``code`` is without comments and with single blanks."""

    line: int
    text: str
    cost: Cost
    code: str = field(default="", repr=False)


@dataclass(frozen=True)
class DiffRow:
    """A row of both sources: ``same``; ``cosmetic`` (only comments or blanks differ); ``changed``;
    or ``removed`` and ``added``, with one side only. ``hunk`` is its hunk's number, 0 for none.
    ``waits``: a wait that stays amid changes, for other work than before, so that the hunk has its
    cost.
    """

    kind: LineKind
    before: SourceRow | None
    after: SourceRow | None
    hunk: int = 0
    waits: bool = False

    @property
    def differs(self) -> bool:
        return self.kind in (LineKind.CHANGED, LineKind.REMOVED, LineKind.ADDED)

    @property
    def counts(self) -> bool:
        """Whether a hunk's cost includes this row."""
        return self.differs or self.waits


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changes of one file, in ``function``. ``before`` and ``after`` sum up the rows
    that count; ``comments_only``: no code changed.
    """

    number: int
    files: tuple[str, str]
    rows: tuple[DiffRow, ...]
    function: str
    comments_only: bool
    before: Cost
    after: Cost

    @property
    @shown
    def host(self) -> bool:
        """Whether it is code of the CPU, which has no cost on the GPU."""
        return is_host(self.files[1] or self.files[0])

    @property
    @shown
    def lines_before(self) -> tuple[int, int] | None:
        return self.span(0)

    @property
    @shown
    def lines_after(self) -> tuple[int, int] | None:
        return self.span(1)

    def span(self, side: int) -> tuple[int, int] | None:
        """First and last line of the rows that count on one side (0 before, 1 after)."""
        lines = [
            row.after if side else row.before
            for row in self.rows
            if self.comments_only or row.counts
        ]
        numbers = [line.line for line in lines if line]
        return (min(numbers), max(numbers)) if numbers else None


@dataclass(frozen=True)
class FileDiff:
    """One file of either side with all its rows; a file of one side has "" for the other name."""

    before: str
    after: str
    rows: tuple[DiffRow, ...]
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class Shift:
    """An unchanged line with its cost on both sides; ``change_microseconds`` is in microseconds."""

    files: tuple[str, str]
    before: SourceRow
    after: SourceRow

    @property
    @shown
    def change_microseconds(self) -> float:
        return (self.after.cost.microseconds or 0.0) - (self.before.cost.microseconds or 0.0)

    @property
    def noise(self) -> float:
        """Standard error of the change in microseconds, for samples counted as Poisson counts."""
        sides = [(x.cost.microseconds or 0.0, x.cost.samples) for x in (self.before, self.after)]
        return math.sqrt(added(time**2 / samples for time, samples in sides if samples))


@dataclass(frozen=True)
class SourceDiff:
    """Two variants, line by line.

    ``unchanged``: cost of all lines outside of the hunks, before and after. ``elsewhere``: cost of
    code that stands in none of the sources, such as CUDA's headers, by file; "" is code without a
    known line. ``totals``: cost of everything; ``durations``: microseconds under ncu. ``why`` says
    for each side why it has no costs, "" where it has.
    """

    files: tuple[FileDiff, ...]
    shifts: tuple[Shift, ...]
    unchanged: tuple[Cost, Cost]
    elsewhere: Mapping[str, tuple[Cost, Cost]]
    totals: tuple[Cost, Cost]
    durations: tuple[float | None, float | None] = (None, None)
    why: tuple[str, str] = ("", "")

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        """Those of all files, in order of their numbers."""
        return tuple(hunk for file in self.files for hunk in file.hunks)

    @property
    def is_same(self) -> bool:
        """Whether there are sources, and not a character of them differs."""
        return bool(self.files) and not self.hunks

    @property
    def has_costs(self) -> bool:
        return not any(self.why)


@dataclass(frozen=True)
class Sources:
    """A ladder's ``sides`` by variant, and ``diffs`` of each step against its parent; ``elsewhere``
    has both sides of a diff by captures at another shape, at which the step is judged.
    """

    sides: Mapping[str, ProfiledSource] = field(default_factory=dict)
    diffs: Mapping[str, SourceDiff] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[ProfiledSource, ProfiledSource]] = field(default_factory=dict)


WHY_NO_COSTS = {
    "missing": "it has no capture",
    "no_capture": "no capture",
    "no_lines": "its capture has no source lines",
    "no_text": "the report has no text of its sources",
}


def why_no_costs(why: str) -> str:
    """Why a side of a diff has no costs by line."""
    return WHY_NO_COSTS.get(why) or f"its capture is {why}"
