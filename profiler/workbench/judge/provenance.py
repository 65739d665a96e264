"""Says where the figures of a ladder come from, and warns of what makes them doubtful. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.evidence.records import CaptureIndex, Environment, Provenance
from workbench.judge.across import AcrossShapes
from workbench.judge.findings import Finding, finding, suffix
from workbench.judge.rows import Row, ShapeLadder
from workbench.judge.session_checks import Throttling, TimingFacts
from workbench.judge.times import ShapeTimes
from workbench.load import LadderEvidence, ShapeEvidence
from workbench.ncu.command import counting
from workbench.study.config import Gates
from workbench.words import ABSENT, CLOCK_TOLERANCE, grouped


class EvidenceEnvironment(Environment, frozen=True, kw_only=True):
    """The environment of the timing session, else of the newest capture; None is not collected.

    ``date`` is in UTC, ``command`` what was typed; ``ncu`` and its flags are those of the newest
    capture.
    """

    workbench: str | None = None
    date: str | None = None
    command: str | None = None
    ncu: str = ABSENT
    ncu_flags: tuple[str, ...] = ()

    @property
    def ncu_options(self) -> Mapping[str, str]:
        """Options of ncu to their values, such as ``--cache-control`` to ``all``."""
        return dict(pairwise(self.ncu_flags))

    @property
    def day(self) -> str:
        """The date without its time; "" where not collected."""
        return (self.date or "")[:10]


@dataclass(frozen=True)
class Recordings:
    """The timing runs of a shape on a GPU: ``noted`` in the journal, and ``kept`` with their
    samples; ``unnoted`` ones are older than the journal, and how many there were is not known. The
    others were ``superseded``, or ``cut_short``: ended, or begun again without a variant.
    """

    noted: int = 0
    kept: int = 0
    unnoted: int = 0
    superseded: int = 0
    cut_short: int = 0

    @property
    def total(self) -> int:
        return self.noted + self.unnoted


def recordings(evidence: LadderEvidence, shape: str) -> Recordings:
    """Count the recordings of a shape in the journal and among the timing files."""
    entries = evidence.journal.sessions if evidence.journal else ()
    noted = [entry for entry in entries if entry.shape == shape]
    kept = {timing.name for timing in evidence.shapes[shape].timings}
    whole = [entry for entry in noted if not entry.cut_short]
    return Recordings(
        noted=len(noted),
        kept=len(kept),
        unnoted=len(kept - {entry.file for entry in whole}),
        superseded=sum(entry.file not in kept for entry in whole),
        cut_short=len(noted) - len(whole),
    )


PROVENANCE = EvidenceEnvironment.__struct_fields__[:-2]  # all but ncu and its flags


def environment_of(
    indexes: Iterable[CaptureIndex], session: Provenance | None
) -> EvidenceEnvironment:
    """``indexes`` are of the captures measured here, ``session`` is that of the table."""
    newest = max(indexes, key=lambda index: index.provenance.date, default=None)
    sources = [s for s in (session, newest.provenance if newest else None) if s is not None]
    values = {name: [getattr(source, name) for source in sources] for name in PROVENANCE}
    return EvidenceEnvironment(
        **{name: next((v for v in of if v is not None), None) for name, of in values.items()},
        ncu=newest.ncu if newest else ABSENT,
        ncu_flags=newest.ncu_flags if newest else (),
    )


def file_warnings(evidence: LadderEvidence, of: Collection[str] | None = None) -> Iterator[Finding]:
    """Warn about captures that do not count, by reason, then other damage; ``of`` some or all."""
    hurt = grouped(
        (variant.damage, variant_at(variant.variant, "" if name == evidence.shape else name))
        for name, shape in evidence.shapes.items()
        for variant in shape.variants.values()
        if variant.damage and (of is None or variant.variant in of)
    )
    for damage, variants in hurt.items():
        names = ", ".join(map(str, variants))
        message = f"{damage}: no capture of {names}; profile again, or restore the file"
        yield finding("captures.damaged", message, text=damage, variants=tuple(variants))
    for text in evidence.notes:
        yield finding("evidence.damaged", text, text=text)


def variant_at(variant: str, shape: str = "") -> Finding:
    return finding("variant", f"{variant}{suffix(shape)}", variant=variant, shape=shape)


COMPARED = ("gpu", "driver", "cuda", "torch")


def capture_warnings(
    rows: Sequence[Row], evidence: ShapeEvidence, shape: str = ""
) -> Iterator[Finding]:
    """Warn about captures behind rows at one shape; ``shape`` names it if not the table's."""
    yield from _clocks(rows, shape)
    recorded = [evidence.variants[row.variant].index for row in rows if row.capture]
    indexes = [index for index in recorded if index is not None]
    yield from _provenance(indexes, shape)
    for row in rows:
        if row.roofline and row.roofline.above_roof:
            message = f"{row.variant} stands above its roof{suffix(shape)}: an error in the data"
            yield finding("captures.above_roof", message, variant=row.variant, shape=shape)


def _clocks(rows: Sequence[Row], shape: str) -> Iterator[Finding]:
    clocks = {r.variant: r.figures["sm_clock"].value for r in rows if "sm_clock" in r.figures}
    by_clock = sorted(clocks, key=clocks.__getitem__)
    if by_clock and clocks[by_clock[-1]] > clocks[by_clock[0]] * (1 + CLOCK_TOLERANCE):
        ends = tuple(
            finding("variant", f"{v} at {clocks[v]:.3f} GHz", variant=v, sm_clock_ghz=clocks[v])
            for v in (by_clock[0], by_clock[-1])
        )
        message = f"captures ran at different SM clocks{suffix(shape)}: {', '.join(map(str, ends))}"
        yield finding("captures.clocks", message, shape=shape, variants=ends)


def _provenance(indexes: Sequence[CaptureIndex], shape: str) -> Iterator[Finding]:
    values = {
        key: {ABSENT if value is None else str(value) for value in of}
        for key in COMPARED
        if (of := [getattr(index.provenance, key) for index in indexes])
    }
    values["ncu"] = {index.ncu for index in indexes}
    values["ncu_flags"] = {str(list(counting(index.ncu_flags))) for index in indexes}
    for key, different in values.items():
        if len(different) > 1:
            distinct = tuple(sorted(different))
            message = f"captures differ in {key}{suffix(shape)}: {', '.join(distinct)}"
            yield finding("captures.differ", message, field=key, shape=shape, values=distinct)


def choice_warnings(ladders: Iterable[ShapeLadder], gates: Gates, table: str) -> Iterator[Finding]:
    """Dispatchers slower than what they choose among, by the gate's speedup for certain."""
    for ladder in ladders:
        for row in ladder.rows:
            over = row.over_chosen
            if over is None or over.low is None or over.high is None:
                continue
            if over.high * gates.min_speedup < 1:
                shape = "" if ladder.shape == table else ladder.shape
                yield finding(
                    "choice.slower",
                    f"{row.variant} does not choose the fastest{suffix(shape)}: it is "
                    f"{over.words} of {row.chosen}",
                    variant=row.variant,
                    shape=shape,
                    chosen=row.chosen,
                    **over.numbers,
                )


def warnings_of_other_timings(
    times_at: Mapping[str, ShapeTimes],
    table: str,
    steps: Sequence[Row],
    ladders: Sequence[ShapeLadder],
) -> Iterator[Finding]:
    """Times and ratios of a table that are of other sessions than the rest of it; all ``steps``
    have theirs at the shape of the ``table``.
    """
    for ladder in ladders:
        times, own_shape = times_at[ladder.shape], ladder.shape == table
        others: dict[str, list[Finding]] = {}
        for row in (*(steps if own_shape else ladder.rows), *ladder.references):
            if row.time is not None and (timing := times.together(row.variant)) is not times.table:
                others.setdefault(timing.file if timing else "", []).append(variant_at(row.variant))
            parent = row.step.parent if row.step and row.over_parent else ""
            for over in filter(None, dict.fromkeys([parent, row.chained.fastest])):
                both = times.together(over, row.variant)
                if both is not None and both is not times.table:
                    text = f"{row.variant} over {over}"
                    timed = finding("variant", text, variant=row.variant, over=over)
                    others.setdefault(both.file, []).append(timed)
        shape = "" if own_shape else ladder.shape
        for file, variants in others.items():
            names = ", ".join(dict.fromkeys(str(variant.values["variant"]) for variant in variants))
            message = f"times or ratios of another run ({file or ABSENT}){suffix(shape)}: {names}"
            every = tuple(variants)
            yield finding("timing.other_file", message, file=file, shape=shape, variants=every)


def timing_warnings(
    facts: Mapping[str, TimingFacts | None], shapes: Sequence[str], across: AcrossShapes | None
) -> Iterator[Finding]:
    """Warn about the timings at the ``shapes`` of tables, the first of which is not named, and at
    others that an outcome ``across`` shapes shows, or whose outputs were wrong, so that it has no
    time to show there.
    """
    summed_up = {result.shape for result in across.shapes} if across else set[str]()
    others = [at for at, timed in facts.items() if at in summed_up or (timed and timed.wrong)]
    every = dict.fromkeys([*shapes, *(others if across else ())])
    timed = {shape: here for shape in every if (here := facts[shape])}
    for shape, here in timed.items():
        yield from _session_warnings(here, "" if shape == shapes[0] else shape)
    yield from throttling_warnings({s: t.throttling for s, t in timed.items() if t.throttling})


def _session_warnings(facts: TimingFacts, shape: str) -> Iterator[Finding]:
    if facts.wrong:
        names = ", ".join(facts.wrong)
        message = (
            f"outputs of timed calls were wrong{suffix(shape)}, so that there is no time: {names}"
        )
        yield finding("timing.wrong_outputs", message, variants=facts.wrong, shape=shape)
    for control in facts.controls:
        if control.is_off:
            ratio, low, high = control.ratio.ratio, control.ratio.low, control.ratio.high
            yield finding(
                "timing.control",
                f"the A/A control of {control.variant}, {control.regime.value}{suffix(shape)}, is "
                f"{ratio:.3f} [{low:.3f}, {high:.3f}] and not 1: differences of this size mean "
                "nothing here",
                variant=control.variant,
                regime=control.regime.value,
                shape=shape,
                **control.ratio.numbers,
            )
    if facts.interference is not None and facts.interference.is_disturbed:
        yield facts.interference.said(shape)


def throttling_warnings(by_shape: Mapping[str, Throttling]) -> Iterator[Finding]:
    """One a reason with its shapes, of the largest share and then of the lowest clock."""
    limits = grouped(
        (throttling.limits or throttling.reasons, shape) for shape, throttling in by_shape.items()
    )
    for shapes in limits.values():
        worst = max(
            (by_shape[shape] for shape in shapes),
            key=lambda throttling: (throttling.share, -(throttling.sm_clock_mhz or math.inf)),
        )
        yield worst.finding(tuple(shapes))
