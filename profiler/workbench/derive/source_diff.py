"""The diff of two variants, and what its lines cost before and after. Pure.

    diff = source_diff(profiled(texts, capture), profiled(texts, capture))
    diff.hunks      each with its place, its lines, and their cost before and after
    diff.files      both sources whole, side by side, row by row: what a page shows
    diff.shifts     unchanged lines whose stall time changed most

The time of a line is its share of a launch's warp state samples times the launch's duration, added
over the launches of a variant. The samples of ``selected`` (the warp issued) are part of the whole
and of no line's stall: the stall times of all lines and the issuing time add up to the duration.
The time of an instruction is its share of the samples likewise.

A hunk's cost is that of its removed, added and rewritten lines, and of waits that stay amid them.
Lines that differ in comments or blanks alone are shown as changed but count as unchanged.

``difflib`` aligns lines by their code. Braces and blank lines alone never hold two rewritten
regions together.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import PurePath
from types import MappingProxyType

from workbench.derive.figures import DURATION, ISSUING, added, summed, totals
from workbench.ncu.capture import Capture, ColumnTable
from workbench.ncu.disassembly import LINE_COUNTERS, Code, kinds_of
from workbench.ncu.places import Place
from workbench.words import LineKind, grouped, shown

INSTRUCTIONS, SECTORS, WAVEFRONTS = COUNTERS = tuple(LINE_COUNTERS)
NO_STALLS: Mapping[str, float] = MappingProxyType({})
NS_PER_US = 1e3


@dataclass(frozen=True)
class Cost:
    """The cost of some lines; None is not collected, 0 is a counter that stayed at zero.

    ``samples``: stall samples, warps that waited. ``share``: their part of all samples of the
    variant (0 to 1). ``microseconds``: that share of the duration under ncu. ``instructions``: warp
    instructions executed. ``excess_global_sectors``: 32-byte sectors beyond the ideal;
    ``excess_shared_wavefronts``: shared memory passes beyond the ideal, bank conflicts among them.
    ``stalls``: stall reason to its samples.
    """

    samples: float | None = None
    share: float | None = None
    microseconds: float | None = None
    instructions: float | None = None
    excess_global_sectors: float | None = None
    excess_shared_wavefronts: float | None = None
    stalls: Mapping[str, float] = field(default_factory=lambda: NO_STALLS)

    @property
    @shown
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return _most(self.stalls)


def _most(stalls: Mapping[str, float]) -> str:
    return min(stalls, key=lambda name: (-stalls[name], name), default="")


NUMBERS = ("samples", "share", "microseconds", *COUNTERS)


def add(costs: Iterable[Cost]) -> Cost:
    """The sum; None where no part was collected. An empty sum is not collected."""
    every = list(costs)
    sums = {name: summed(getattr(cost, name) for cost in every) for name in NUMBERS}
    stalls = totals(item for cost in every for item in cost.stalls.items())
    return Cost(**sums, stalls=MappingProxyType(stalls))


@dataclass(frozen=True)
class LineCosts:
    """Costs by (file, line); line 0 of "" is code without a known line. ``nothing`` is that of a
    line without an entry: zeros where the counter was collected.
    """

    lines: Mapping[Place, Cost]
    nothing: Cost
    duration: float | None

    def of(self, file: str, line: int) -> Cost:
        """The cost of a line; that of nothing where the capture has no entry for it."""
        return self.lines.get((file, line), self.nothing)

    def by_file(self) -> dict[str, Cost]:
        files = sorted({file for file, _ in self.lines})
        return {f: add(c for (file, _), c in self.lines.items() if file == f) for f in files}

    @property
    def total(self) -> Cost:
        return add([self.nothing, *self.lines.values()])


NO_COSTS = LineCosts({}, Cost(), None)  # of a side without source lines


def line_costs(lines: ColumnTable, metrics: ColumnTable, collected: Collection[str]) -> LineCosts:
    """From a capture's ``lines`` and ``metrics`` tables.

    ``collected`` names the counters of ``COUNTERS`` that the report holds, zero or not, and
    "samples" where it holds warp state samples.
    """
    rows = lines.rows("launch", "counter", "value")
    taken = totals((int(launch), float(n)) for launch, name, n in rows if name not in COUNTERS)
    weights, whole = sample_weights(taken, metrics)
    zeros = _zeros(collected, whole is not None)

    def cost(numbers: Mapping[str, float], stalls: Mapping[str, float]) -> Cost:
        values = {k: None if zero is None else numbers.get(k, zero) for k, zero in zeros.items()}
        if values["microseconds"] is not None and whole is not None:
            values["microseconds"] = (values["share"] or 0.0) * whole / NS_PER_US
        return Cost(**values, stalls=MappingProxyType(stalls))

    return LineCosts(
        lines={place: cost(*sums) for place, sums in _sums(lines, weights).items()},
        nothing=Cost(**zeros, stalls=NO_STALLS),
        duration=None if whole is None else whole / NS_PER_US,
    )


def sample_weights(
    samples: Mapping[int, float], metrics: ColumnTable
) -> tuple[dict[int, float], float | None]:
    """Launch to the share of all samples that one of its own is, and the duration of all launches
    in nanoseconds; None where one was not timed.
    """
    every = metrics.by_launch.items()
    durations = {launch: values[DURATION] for launch, values in every if DURATION in values}
    timed = bool(samples) and samples.keys() <= durations.keys()
    whole = added(durations.values()) if timed else added(samples.values())
    # A launch's samples weigh as much as its duration: sampling intervals may differ.
    weights = {k: (durations[k] / n if timed else 1.0) / whole for k, n in samples.items() if n}
    return weights, whole if timed else None


def _zeros(collected: Collection[str], timed: bool) -> dict[str, float | None]:
    """The numbers of a line without an entry: zero where the counter was collected, else None."""
    sampled = 0.0 if "samples" in collected else None
    return {
        **{counter: 0.0 if counter in collected else None for counter in COUNTERS},
        "samples": sampled,
        "share": sampled,
        "microseconds": sampled if timed else None,
    }


Sums = dict[Place, tuple[dict[str, float], dict[str, float]]]  # numbers and stalls of a line


def _sums(lines: ColumnTable, weights: Mapping[int, float]) -> Sums:
    sums: Sums = {}
    columns = ("launch", "file", "line", "counter", "value")
    for launch, file, line, counter, value in lines.rows(*columns):
        numbers, stalls = sums.setdefault((str(file), int(line)), ({}, {}))
        name, amount = str(counter), float(value)
        if name in COUNTERS:
            numbers[name] = numbers.get(name, 0.0) + amount
        elif name != ISSUING:
            stalls[name] = stalls.get(name, 0.0) + amount
            numbers["samples"] = numbers.get("samples", 0.0) + amount
            numbers["share"] = numbers.get("share", 0.0) + amount * weights[int(launch)]
    return sums


@dataclass(frozen=True)
class InstructionCost:
    """One instruction of one launch; ``address`` is in bytes from the first.

    ``executed`` counts warps, ``samples`` those that waited there, ``share`` is their part of all
    samples of the variant (0 to 1), and ``microseconds`` that share of the duration under ncu; None
    is not collected. ``stalls`` is stall reason to samples. ``place`` is the file and the line that
    it is charged to.
    """

    launch: int
    address: int
    sass: str
    place: Place
    executed: float | None
    samples: float | None
    share: float | None
    microseconds: float | None
    stalls: Mapping[str, float] = field(default_factory=lambda: NO_STALLS)

    @property
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return _most(self.stalls)


@dataclass(frozen=True)
class Listing:
    """A variant's launches one after the other; ``duration`` is in microseconds under ncu."""

    instructions: tuple[InstructionCost, ...]
    duration: float | None

    @cached_property
    def by_line(self) -> Mapping[Place, Sequence[InstructionCost]]:
        return grouped((instruction.place, instruction) for instruction in self.instructions)


def listing(codes: Sequence[Code | None], metrics: ColumnTable) -> Listing:
    """All instructions of launches in their order, with what each costs."""
    by_launch = {launch: code for launch, code in enumerate(codes) if code is not None}
    taken = {
        launch: added(count for counts in code.samples.values() for count in counts.values())
        for launch, code in by_launch.items()
    }
    weights, whole = sample_weights(taken, metrics)
    instructions = (
        instruction
        for launch, code in by_launch.items()
        for instruction in _costed(launch, code, weights.get(launch), whole)
    )
    return Listing(tuple(instructions), None if whole is None else whole / NS_PER_US)


def _costed(
    launch: int, code: Code, weight: float | None, whole: float | None
) -> Iterable[InstructionCost]:
    """``weight`` of a sample in all of the variant's; None where the launch has none."""
    stalls: dict[int, dict[str, float]] = {}
    for reason, counts in code.samples.items():
        if reason != ISSUING:
            for index, count in counts.items():
                stalls.setdefault(index, {})[reason] = count
    for index, (address, sass, place) in enumerate(
        zip(code.addresses, code.sass, code.places, strict=True)
    ):
        mine = stalls.get(index, {})
        samples = added(mine.values())
        share = None if weight is None else samples * weight
        yield InstructionCost(
            launch=launch,
            address=address,
            sass=sass,
            place=place,
            executed=code.executed[index] if code.executed is not None else None,
            samples=None if weight is None else samples,
            share=share,
            microseconds=None if share is None or whole is None else share * whole / NS_PER_US,
            stalls=MappingProxyType(mine),
        )


SIMILAR = 0.5  # share of common tokens from which a changed line counts as the same line rewritten
MOST_PAIRS = 40_000  # beyond this many combinations changed lines are not paired
_TOKEN = re.compile(r"\w+|[^\w\s]")
_TRIVIAL = re.compile(r"(?:[{}()\[\];,\s]|\b(?:else|do|break|continue|return)\b)*")
_C = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_PYTHON = re.compile(
    r"""\#[^\n]*|^[ \t]*(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z))[ \t]*$"""
    r"""|\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class SourceRow:
    """A line of one side, counted from 1, in ``function``; ``code`` is without comments and with
    single blanks.
    """

    line: int
    text: str
    cost: Cost
    code: str = field(default="", repr=False)
    function: str = field(default="", repr=False)

    @property
    def key(self) -> str:
        """The text that it is compared by: its code, or all of it if there is no code."""
        return self.code or self.text.strip()

    @property
    def is_trivial(self) -> bool:
        """Without code, or only braces and words like ``else``: such lines match anything."""
        return _TRIVIAL.fullmatch(self.code) is not None


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    stripped = text.lstrip()
    docstring = text != stripped or match.start() == 0 or match.string[match.start() - 1] == "\n"
    if stripped.startswith(('"""', "'''")):
        return "\n" * text.count("\n") if docstring else text
    return text if stripped[:1] in "\"'" else " " + "\n" * text.count("\n")


def physical_lines(text: str) -> list[str]:
    """Lines as compilers count them: ended by a newline alone, not by a form feed or the like."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


@lru_cache(maxsize=64)  # a step's sources are one side of its diff and of its children's
def source(text: str, *, python: bool = False) -> Sequence[SourceRow]:
    """C, C++, CUDA, or Python with its docstrings taken for comments; without costs."""
    lines = physical_lines(text)
    plain = (_PYTHON if python else _C).sub(_without_comment, "\n".join(lines)).split("\n")
    code = [" ".join(line.split()) for line in plain[: len(lines)]]
    rows = zip(lines, code, _functions(lines, code, python=python), strict=True)
    return [SourceRow(number, line, Cost(), *more) for number, (line, *more) in enumerate(rows, 1)]


def align(before: Sequence[SourceRow], after: Sequence[SourceRow]) -> list[tuple[int, int]]:
    """Find lines that are the same but for comments and blanks, as rising pairs of indices."""
    keys = [[row.key for row in side] for side in (before, after)]
    blocks = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    pairs = [
        (block.a + k, block.b + k)
        for block in blocks.get_matching_blocks()
        for k in range(block.size)
    ]
    return _without_loose(pairs, before, after)


def _without_loose(
    pairs: list[tuple[int, int]], before: Sequence[SourceRow], after: Sequence[SourceRow]
) -> list[tuple[int, int]]:
    """Drop runs of trivial lines that stand between changes on both of their ends."""
    runs: list[list[tuple[int, int]]] = []
    for i, j in pairs:
        if runs and runs[-1][-1] == (i - 1, j - 1):
            runs[-1].append((i, j))
        else:
            runs.append([(i, j)])
    ends = (0, 0), (len(before) - 1, len(after) - 1)
    kept = []
    for run in runs:
        if run[0] == ends[0] or run[-1] == ends[1] or not all(before[i].is_trivial for i, _ in run):
            kept += run
    return kept


def pair_changed(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Pair removed lines with the added ones that they became.

    It is the pairing in order with the most tokens in common, of lines with at least half of their
    tokens the same.
    """
    if not before or not after or len(before) * len(after) > MOST_PAIRS:
        return []
    tokens = [[Counter(_TOKEN.findall(line)) for line in side] for side in (before, after)]
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    alike: dict[tuple[int, int], float] = {}
    for i in range(len(before) - 1, -1, -1):
        for j in range(len(after) - 1, -1, -1):
            like = _dice(tokens[0][i], tokens[1][j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if like >= SIMILAR and like + best[i + 1][j + 1] > best[i][j]:
                best[i][j] = like + best[i + 1][j + 1]
                alike[i, j] = like
    pairs, i, j = [], 0, 0
    while i < len(before) and j < len(after):
        if (i, j) in alike and best[i][j] == alike[i, j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _dice(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0


# What a line waits by: barriers of a block or warp, mbarriers, asynchronous copies, wgmma, grids.
_WAIT = re.compile(
    r"\b__sync(?:threads|warp)\w*|\bbar(?:rier)?(?:\.cta)?\.(?:sync|red)\b|\w*(?<![a-z])wait(?![a-z])"
    r"|\btry_wait|\.sync\s*\(|\b\w*barrier\w*(?:sync|wait)\w*\s*\(",
    re.IGNORECASE,
)


def is_wait(code: str) -> bool:
    """Whether a line without its comments waits for other warps, copies or grids."""
    return _WAIT.search(code) is not None


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
    are compared by leaving out of each side the other's. ``capture`` is where the costs are
    from.
    """

    texts: Mapping[str, str]
    costs: LineCosts | None = None
    why: str = ""
    skipped: str = ""
    capture: Capture | None = field(default=None, repr=False)


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
        """Whether it is code of the CPU, which has no cost on the GPU, as Triton's has."""
        counted = any(cost.samples is not None for cost in (self.before, self.after))
        return is_host(self.files[1] or self.files[0]) and not counted

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
    captures: tuple[Capture | None, ...] = field(default=(), repr=False)

    @cached_property
    def kinds(self) -> tuple[Mapping[str, int], ...]:
        """Instructions by kind, before and after; empty where they are not known."""
        return tuple(kinds_of(capture.code) if capture else {} for capture in self.captures)

    @property
    def hunks(self) -> tuple[Hunk, ...]:
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


JOINED = 2  # hunks with so few unchanged lines between them are one


def rows_of(side: ProfiledSource, file: str, *, python: bool) -> list[SourceRow]:
    """The lines of a file without the skipped function; none where the side has no such file."""
    costs = side.costs or NO_COSTS
    if is_host(file) and not any(name == file for name, _ in costs.lines):
        costs = NO_COSTS
    return [
        SourceRow(row.line, row.text, costs.of(file, row.line), row.code, row.function)
        for row in source(side.texts.get(file, ""), python=python)
        if not row.function or row.function != side.skipped
    ]


def side_by_side(before: Sequence[SourceRow], after: Sequence[SourceRow]) -> Iterator[DiffRow]:
    """Every line of both, those that are the same in one row."""
    ends = (len(before), len(after))
    at_a = at_b = 0
    for i, j in [*align(before, after), ends]:
        yield from _between(before[at_a:i], after[at_b:j])
        if (i, j) != ends:
            same = before[i].text == after[j].text
            yield DiffRow(LineKind.SAME if same else LineKind.COSMETIC, before[i], after[j])
        at_a, at_b = i + 1, j + 1


def _between(old: Sequence[SourceRow], new: Sequence[SourceRow]) -> Iterator[DiffRow]:
    """Lines between two that are the same: rewritten ones paired, the others on their own."""
    ends = (len(old), len(new))
    at_a = at_b = 0
    for i, j in [*pair_changed([x.code for x in old], [x.code for x in new]), ends]:
        yield from (DiffRow(_kind(x, LineKind.REMOVED), x, None) for x in old[at_a:i])
        yield from (DiffRow(_kind(x, LineKind.ADDED), None, x) for x in new[at_b:j])
        if (i, j) != ends:
            yield DiffRow(LineKind.CHANGED, old[i], new[j])
        at_a, at_b = i + 1, j + 1


def _kind(line: SourceRow, kind: LineKind) -> LineKind:
    return kind if line.code else LineKind.COSMETIC


def changed_spans(rows: Sequence[DiffRow]) -> list[tuple[int, int]]:
    """Find where hunks start and stop: runs of changes, with short gaps between them closed."""
    spans: list[tuple[int, int]] = []
    start = 0
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        stop = start + len(list(group))
        if not same and spans and start - spans[-1][1] <= JOINED:
            spans[-1] = (spans[-1][0], stop)
        elif not same:
            spans.append((start, stop))
        start = stop
    return spans


def numbered(
    rows: Sequence[DiffRow], spans: Sequence[tuple[int, int]], first: int
) -> list[DiffRow]:
    result = list(rows)
    for number, (start, stop) in enumerate(spans, start=first):
        real = any(row.differs for row in rows[start:stop])
        for place in range(start, stop):
            row = rows[place]
            stays = real and not row.differs and row.after is not None
            waits = stays and is_wait(row.after.code if row.after else "")
            result[place] = replace(row, hunk=number, waits=waits)
    return result


_NAME = re.compile(r"([A-Za-z_~]\w*)\s*(?:<[^;{}]*>)?\s*\(")
_QUALIFIER = re.compile(
    r"__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__|__declspec|alignas|__align__"
    r"|requires|decltype|noexcept|if|for|while|switch"
)
_PYTHON_NAME = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


def _functions(lines: Sequence[str], codes: Sequence[str], *, python: bool) -> list[str]:
    """Name the function that each line belongs to; "" outside of any. As for git, it begins at a
    line that is not indented, and ends before the next one that is none of its own.
    """
    names, name, continued = [], "", False
    for line, code in zip(lines, codes, strict=True):
        begins = code and not line[:1].isspace() and not continued
        if python and begins and not code.startswith((")", "]", "}")):
            match = _PYTHON_NAME.match(code)
            name = match[1] if match else ""
        elif not python and begins and not code.startswith(("#", "{", "}")):
            candidates = (match[1] for match in _NAME.finditer(code) if not code.endswith(";"))
            name = next((word for word in candidates if not _QUALIFIER.fullmatch(word)), "")
        names.append(name)
        if not python and line.startswith("}"):
            name = ""
        continued = not python and line.endswith("\\")
    for number in reversed(range(0 if python else len(names) - 1)):  # a header of several lines
        line, code = lines[number], codes[number]
        is_header = code and not line[:1].isspace() and not code.endswith((";", "}"))
        if is_header and not names[number] and not code.startswith("#"):
            names[number] = names[number + 1]
    return names


CONTEXT = 3  # unchanged lines shown around a hunk


def with_context(file: FileDiff, hunk: Hunk, context: int = CONTEXT) -> list[DiffRow]:
    """The hunk's rows with unchanged ones around, never into another hunk nor shown twice."""
    start = next(i for i, row in enumerate(file.rows) if row.hunk == hunk.number)
    stop = start + len(hunk.rows)
    first = start
    while first > 0 and start - first < context and not file.rows[first - 1].hunk:
        first -= 1
    if first > 0 and hunk is not file.hunks[0]:
        above = max(i for i in range(start) if file.rows[i].hunk) + 1
        first = max(first, min(above + context, start))
    last = stop
    while last < len(file.rows) and last - stop < context and not file.rows[last].hunk:
        last += 1
    return list(file.rows[first:last])


def signed(rows: list[DiffRow]) -> Iterator[tuple[str, SourceRow]]:
    """Rows in the order of a unified diff: each run of changes with its removed lines first."""
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        run = list(group)
        if same:
            yield from ((" ", row.after) for row in run if row.after)
        else:
            yield from (("-", row.before) for row in run if row.before)
            yield from (("+", row.after) for row in run if row.after)


def pair_files(before: Iterable[str], after: Iterable[str]) -> list[tuple[str, str]]:
    """Files of both sides that belong together, in the order of ``after``; "" for no partner: by
    name, then by base name, then in order the rest of one suffix.
    """
    left, result = list(before), {}
    names = list(after)
    for same in (
        lambda a, b: a == b,
        lambda a, b: base(a) == base(b),
        lambda a, b: PurePath(a).suffix == PurePath(b).suffix,
    ):
        for name in names:
            partner = next((a for a in left if name not in result and same(a, name)), None)
            if partner is not None:
                result[name] = partner
                left.remove(partner)
    return [(result.get(name, ""), name) for name in names] + [(name, "") for name in left]


def profiled(texts: Mapping[str, str], capture: Capture | None, why: str = "") -> ProfiledSource:
    """One side from a capture; ``why``: what became of one."""
    if capture is None:
        return ProfiledSource(texts, None, why or "no_capture")
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    if not any(line > 0 for _, line in costs.lines):
        return ProfiledSource(texts, None, "no_lines")
    return ProfiledSource(texts, costs, capture=capture)


def imported(texts: Mapping[str, str], capture: Capture) -> ProfiledSource:
    """One side of a capture made elsewhere, from the sources in the report itself."""
    side = profiled(texts, capture)
    return profiled({}, None, "no_text") if side.costs is not None and not texts else side


def source_diff(before: ProfiledSource, after: ProfiledSource) -> SourceDiff:
    """Every file of both sides, and what the lines cost where both have costs."""
    files: list[FileDiff] = []
    for names in pair_files(before.texts, after.texts):
        first = 1 + sum(len(file.hunks) for file in files)
        files.append(_file_diff(before, after, names, first_hunk=first))
    unchanged = [row for file in files for row in file.rows if not row.counts]
    shifts = [
        Shift(files=(file.before, file.after), before=row.before, after=row.after)
        for file in files
        for row in file.rows
        if row.before and row.after and not row.counts and before.costs and after.costs
    ]
    changed = [shift for shift in shifts if shift.change_microseconds]
    old, new = costs = before.costs or NO_COSTS, after.costs or NO_COSTS
    apart = [
        {file: cost for file, cost in known.by_file().items() if file not in side.texts}
        for known, side in zip(costs, (before, after), strict=True)
    ]
    return SourceDiff(
        files=tuple(files),
        shifts=tuple(
            sorted(changed, key=lambda s: (-abs(s.change_microseconds), s.files, s.after.line))
        ),
        unchanged=(
            add(row.before.cost for row in unchanged if row.before),
            add(row.after.cost for row in unchanged if row.after),
        ),
        elsewhere={
            file: (apart[0].get(file, old.nothing), apart[1].get(file, new.nothing))
            for file in sorted({*apart[0], *apart[1]})
        },
        totals=(old.total, new.total),
        durations=(old.duration, new.duration),
        why=(before.why, after.why),
        captures=(before.capture, after.capture),
    )


def _file_diff(
    before: ProfiledSource, after: ProfiledSource, names: tuple[str, str], *, first_hunk: int
) -> FileDiff:
    python = is_host(names[1] or names[0])
    old, new = rows_of(before, names[0], python=python), rows_of(after, names[1], python=python)
    plain = list(side_by_side(old, new))
    spans = changed_spans(plain)
    rows = numbered(plain, spans, first_hunk)
    hunks = tuple(_hunk(names, rows[start:stop]) for start, stop in spans)
    return FileDiff(names[0], names[1], tuple(rows), hunks)


def _hunk(files: tuple[str, str], rows: Sequence[DiffRow]) -> Hunk:
    counted = [row for row in rows if row.counts]
    lines = (row.after or row.before for row in counted or rows)
    return Hunk(
        number=rows[0].hunk,
        files=files,
        rows=tuple(rows),
        function=next((line.function for line in lines if line and line.function), ""),
        comments_only=not any(row.differs for row in rows),
        before=add(row.before.cost for row in counted if row.before),
        after=add(row.after.cost for row in counted if row.after),
    )
