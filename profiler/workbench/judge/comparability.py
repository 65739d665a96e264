"""What makes captures and reports not quite comparable, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.derive.matching import LaunchPair, Matching
from workbench.derive.roofline.measured import MeasuredCeilings
from workbench.ncu.command import counting
from workbench.ncu.report import OPTIONS, Report
from workbench.words import ABSENT, CLOCK_TOLERANCE

if TYPE_CHECKING:
    from workbench.evidence.records import CaptureIndex
    from workbench.judge.inputs import Snapshot
    from workbench.judge.rows import Row, ShapeLadder
    from workbench.judge.view import View
    from workbench.study.config import Gates

COMPARED = ("gpu", "driver", "cuda", "torch")


def ladder_warnings(rows: Sequence[Row], view: View, where: str = "") -> Iterator[str]:
    """Of the captures behind some rows at one shape; ``where`` names it where it is not the
    table's.
    """
    yield from _clocks(rows, where)
    indexes = [i for row in rows if (i := _measured_index(row, view)) is not None]
    yield from _provenance(indexes, where)
    for row in rows:
        if row.point and row.point.above_roof:
            yield f"{row.variant} stands above its roof{where}: an error in the data"


def file_warnings(snapshot: Snapshot, of: Collection[str] | None = None) -> Iterator[str]:
    """Of captures on record that do not count, one a reason; then of what cost no capture.

    ``of`` are the variants that are looked at, None is all.
    """
    hurt: dict[str, list[str]] = {}
    for name, shape in snapshot.shapes.items():
        where = "" if name == snapshot.shape else f" at {name}"
        for variant in shape.variants.values():
            if variant.damage and (of is None or variant.variant in of):
                hurt.setdefault(variant.damage, []).append(f"{variant.variant}{where}")
    for damage, names in hurt.items():
        yield f"{damage}: no capture of {', '.join(names)}; profile again, or restore the file"
    yield from snapshot.told


def ceiling_warnings(measured: MeasuredCeilings | None) -> Iterator[str]:
    """Of measured ceilings that lie above the theoretical ones."""
    for roof in measured.wrong if measured else ():
        yield (
            f"the measured {roof.id} ceiling is {100 * roof.share:.0f} % of the "
            "theoretical one: an error in the data; run `workbench calibrate` again"
        )


def _clocks(rows: Sequence[Row], where: str) -> Iterator[str]:
    clocks = {r.variant: r.figures["sm_clock"].value for r in rows if "sm_clock" in r.figures}
    if not clocks:
        return
    slow, fast = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
    if clocks[fast] > clocks[slow] * (1 + CLOCK_TOLERANCE):
        yield (
            f"captures ran at different SM clocks{where}: {slow} at {clocks[slow]:.3f} GHz, "
            f"{fast} at {clocks[fast]:.3f} GHz"
        )


def _measured_index(row: Row, view: View) -> CaptureIndex | None:
    """Of a capture made here."""
    return view.variant(row.variant).index if row.capture else None


def _provenance(indexes: Sequence[CaptureIndex], where: str) -> Iterator[str]:
    values = {key: {str(_known(i, key)) for i in indexes} for key in COMPARED}
    values["ncu"] = {index.ncu for index in indexes}
    values["ncu_flags"] = {str(list(counting(index.ncu_flags))) for index in indexes}
    for key, different in values.items():
        if len(different) > 1:
            yield f"captures differ in {key}{where}: {', '.join(sorted(different))}"


def _known(index: CaptureIndex, key: str) -> str:
    value = getattr(index.provenance, key)
    return ABSENT if value is None else str(value)


def warnings(before: Report, after: Report, matching: Matching) -> list[str]:
    """Of two reports of anyone: GPU, ncu, its options, SM clocks, names of kernels."""
    return [*_reports(before, after), *_pair_clocks(matching), *_renamed(matching)]


def _reports(before: Report, after: Report) -> Iterator[str]:
    for report in (before, after):
        if len(report.gpus) > 1:
            yield f"{report.name} holds launches of several GPUs: {', '.join(report.gpus)}"
    facts = [
        ("GPU", ", ".join(before.gpus), ", ".join(after.gpus)),
        ("ncu version", before.ncu, after.ncu),
        *((f"ncu {o}", before.options.get(o, ""), after.options.get(o, "")) for o in OPTIONS),
    ]
    for what, one, other in facts:
        if one != other:
            yield f"the reports differ in {what}: {one or ABSENT} and {other or ABSENT}"


def _pair_clocks(matching: Matching) -> Iterator[str]:
    """Of the pair that is furthest apart."""
    apart = {pair: ratio for pair in matching.pairs if (ratio := _clock_ratio(pair))}
    pair = max(apart, key=apart.__getitem__, default=None)
    if pair is not None and apart[pair] > 1 + CLOCK_TOLERANCE:
        yield (
            f"SM clocks are up to {100 * (apart[pair] - 1):.1f} % apart ({pair.before.kernel}: "
            f"{pair.before.sm_clock:.3f} and {pair.after.sm_clock:.3f} GHz): compare cycles too"
        )


def _clock_ratio(pair: LaunchPair) -> float | None:
    """The faster clock over the slower; None where one was not collected."""
    one, other = pair.before.sm_clock, pair.after.sm_clock
    return max(one, other) / min(one, other) if one and other else None


def _renamed(matching: Matching) -> Iterator[str]:
    pair = next((p for p in matching.pairs if p.before.kernel != p.after.kernel), None)
    if pair is not None:
        yield (
            f"kernels of different names are compared, since they are {pair.how}: "
            f"{pair.before.kernel} and {pair.after.kernel}"
        )


def choice_warnings(ladders: Iterable[ShapeLadder], gates: Gates, table: str) -> Iterator[str]:
    """Of choices that are slower than what they could have chosen, by as much as a step has to
    bring and at the sure end of the interval.
    """
    for ladder in ladders:
        where = "" if ladder.shape == table else f" at {ladder.shape}"
        for row in ladder.rows:
            over = row.over_chosen
            if over is None or over.low is None or over.high is None:
                continue
            if over.high * gates.min_speedup < 1:
                yield (
                    f"{row.variant} does not choose the fastest{where}: it is {over.ratio:.3f}x "
                    f"[{over.low:.3f}, {over.high:.3f}] of {row.chosen}"
                )
