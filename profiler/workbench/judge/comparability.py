"""What makes captures and reports not quite comparable. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from workbench.derive.matching import MATCHED, LaunchPair, Matching
from workbench.derive.recordings import OverRecordings, over_recordings
from workbench.derive.roofline.point import MeasuredCeilings
from workbench.derive.speedup import Ratio
from workbench.evidence.layout import timing_name
from workbench.evidence.records import CaptureIndex, Provenance
from workbench.judge.findings import Finding, at, finding, joined, percent
from workbench.judge.rows import EvidenceEnvironment, Recordings, Row, ShapeLadder
from workbench.judge.times import ShapeTimes
from workbench.load import LadderEvidence, ShapeEvidence
from workbench.ncu.command import counting
from workbench.ncu.report_file import OPTIONS, Report
from workbench.study.config import Gates
from workbench.words import ABSENT, CLOCK_TOLERANCE, grouped

COMPARED = ("gpu", "driver", "cuda", "torch")


def ladder_warnings(
    rows: Sequence[Row], evidence: ShapeEvidence, shape: str = ""
) -> Iterator[Finding]:
    """Of the captures behind some rows at one shape; ``shape`` names it if not the table's."""
    yield from _clocks(rows, shape)
    known = [evidence.variants[row.variant].index for row in rows if row.capture]
    indexes = [index for index in known if index is not None]
    yield from _provenance(indexes, shape)
    for row in rows:
        if row.roofline and row.roofline.above_roof:
            message = f"{row.variant} stands above its roof{at(shape)}: an error in the data"
            yield finding("captures.above_roof", message, variant=row.variant, shape=shape)


def file_warnings(evidence: LadderEvidence, of: Collection[str] | None = None) -> Iterator[Finding]:
    """Recorded captures that do not count, by reason, then other damage; ``of`` some variants or
    all.
    """
    hurt = grouped(
        (
            one.damage,
            variant_at(one.variant, "" if name == evidence.shape else name),
        )
        for name, shape in evidence.shapes.items()
        for one in shape.variants.values()
        if one.damage and (of is None or one.variant in of)
    )
    for damage, variants in hurt.items():
        message = f"{damage}: no capture of {joined(variants)}; profile again, or restore the file"
        yield finding("captures.damaged", message, text=damage, variants=tuple(variants))
    for text in evidence.notes:
        yield finding("evidence.damaged", text, text=text)


def variant_at(variant: str, shape: str = "") -> Finding:
    """Names a variant, and the shape where it is not the table's."""
    return finding("variant", f"{variant}{at(shape)}", variant=variant, shape=shape)


def variant_over(variant: str, over: str) -> Finding:
    """Names the ratio of a variant over another."""
    return finding("variant", f"{variant} over {over}", variant=variant, over=over)


def ceiling_warnings(measured: MeasuredCeilings | None) -> Iterator[Finding]:
    """Of measured ceilings that lie above the theoretical ones."""
    for roof in measured.wrong if measured else ():
        share = roof.share_of_theoretical
        message = (
            f"the measured {roof.id} ceiling is {percent(share)} of the theoretical one: an error "
            "in the data; run `workbench calibrate` again"
        )
        yield finding("ceilings.above_theory", message, ceiling=roof.id, share=share)


def _clocks(rows: Sequence[Row], shape: str) -> Iterator[Finding]:
    clocks = {r.variant: r.figures["sm_clock"].value for r in rows if "sm_clock" in r.figures}
    if not clocks:
        return
    slow, fast = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
    if clocks[fast] > clocks[slow] * (1 + CLOCK_TOLERANCE):
        ends = tuple(
            finding("variant", f"{v} at {clocks[v]:.3f} GHz", variant=v, sm_clock_ghz=clocks[v])
            for v in (slow, fast)
        )
        message = f"captures ran at different SM clocks{at(shape)}: {joined(ends)}"
        yield finding("captures.clocks", message, shape=shape, variants=ends)


def _provenance(indexes: Sequence[CaptureIndex], shape: str) -> Iterator[Finding]:
    values = {key: {str(_known(i, key)) for i in indexes} for key in COMPARED}
    values["ncu"] = {index.ncu for index in indexes}
    values["ncu_flags"] = {str(list(counting(index.ncu_flags))) for index in indexes}
    for key, different in values.items():
        if len(different) > 1:
            known = tuple(sorted(different))
            message = f"captures differ in {key}{at(shape)}: {', '.join(known)}"
            yield finding("captures.differ", message, field=key, shape=shape, values=known)


def _known(index: CaptureIndex, key: str) -> str:
    value = getattr(index.provenance, key)
    return ABSENT if value is None else str(value)


def warnings(before: Report, after: Report, matching: Matching) -> list[Finding]:
    """Of two reports of anyone: GPU, ncu, its options, SM clocks, names of kernels."""
    return [*_reports(before, after), *_pair_clocks(matching), *_renamed(matching)]


def _reports(before: Report, after: Report) -> Iterator[Finding]:
    for report in (before, after):
        if len(report.gpus) > 1:
            message = f"{report.name} holds launches of several GPUs: {', '.join(report.gpus)}"
            gpus = tuple(report.gpus)
            yield finding("reports.several_gpus", message, report=report.name, gpus=gpus)
    facts = [
        ("GPU", ", ".join(before.gpus), ", ".join(after.gpus)),
        ("ncu version", before.ncu, after.ncu),
        *(
            (f"ncu {o}", before.ncu_options.get(o, ""), after.ncu_options.get(o, ""))
            for o in OPTIONS
        ),
    ]
    for what, one, other in facts:
        if one != other:
            message = f"the reports differ in {what}: {one or ABSENT} and {other or ABSENT}"
            yield finding("reports.differ", message, field=what, before=one, after=other)


def _pair_clocks(matching: Matching) -> Iterator[Finding]:
    """Of the pair that is furthest apart."""
    apart = {pair: ratio for pair in matching.pairs if (ratio := _clock_ratio(pair))}
    pair = max(apart, key=apart.__getitem__, default=None)
    if pair is not None and apart[pair] > 1 + CLOCK_TOLERANCE:
        clocks = [pair.before.sm_clock_ghz or 0.0, pair.after.sm_clock_ghz or 0.0]
        yield finding(
            "reports.clocks",
            f"SM clocks are up to {100 * (apart[pair] - 1):.1f} % apart ({pair.before.kernel}: "
            f"{clocks[0]:.3f} and {clocks[1]:.3f} GHz): compare cycles too",
            ratio=apart[pair],
            kernel=pair.before.kernel,
            before_ghz=pair.before.sm_clock_ghz,
            after_ghz=pair.after.sm_clock_ghz,
        )


def _clock_ratio(pair: LaunchPair) -> float | None:
    """The faster clock over the slower; None where one was not collected."""
    one, other = pair.before.sm_clock_ghz, pair.after.sm_clock_ghz
    return max(one, other) / min(one, other) if one and other else None


def _renamed(matching: Matching) -> Iterator[Finding]:
    pair = next((p for p in matching.pairs if p.before.kernel != p.after.kernel), None)
    if pair is not None:
        one, other = pair.before.kernel, pair.after.kernel
        message = (
            f"kernels of different names are compared, since they are {MATCHED[pair.how]}: {one} "
            f"and {other}"
        )
        how = pair.how
        yield finding("reports.other_names", message, matched_by=how, before=one, after=other)


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
                    f"{row.variant} does not choose the fastest{at(shape)}: it is "
                    f"{over.ratio:.3f}x [{over.low:.3f}, {over.high:.3f}] of {row.chosen}",
                    variant=row.variant,
                    shape=shape,
                    ratio=over.ratio,
                    low=over.low,
                    high=over.high,
                    chosen=row.chosen,
                )


# Fields of a provenance by what a difference in them may be put down to.
COMPILERS = ("nvrtc",)
LIBRARIES = ("torch", "cudnn", "cuda_core", "packages")
HARDWARE = ("gpu", "gpu_uuid", "driver")
PROVENANCE = EvidenceEnvironment.__struct_fields__[:-2]  # all but ncu and its flags


def environment(indexes: Iterable[CaptureIndex], session: Provenance | None) -> EvidenceEnvironment:
    """``indexes`` are of the captures measured here, ``session`` is that of the table."""
    newest = max(indexes, key=lambda index: index.provenance.date, default=None)
    sources = [session, newest.provenance if newest else None]
    return EvidenceEnvironment(
        **{name: _first(sources, name) for name in PROVENANCE},
        ncu=newest.ncu if newest else ABSENT,
        ncu_flags=newest.ncu_flags if newest else (),
    )


def _first(sources: Iterable[Provenance | None], name: str) -> Any:
    values = (getattr(source, name) for source in sources if source is not None)
    return next((value for value in values if value is not None), None)


def claimed(evidence: LadderEvidence, times: ShapeTimes, best: Row | None) -> OverRecordings | None:
    """See ``_claimed``, with the model of GPU that the spread is of, if that is another one."""
    found = _claimed(evidence, times, best)
    elsewhere = evidence.between_of if evidence.between_of != evidence.gpu else ""
    return replace(found, between_of=elsewhere) if found else None


def _claimed(
    evidence: LadderEvidence, times: ShapeTimes, best: Row | None
) -> OverRecordings | None:
    """The best step over the fastest reference by all recordings of the same sources at the shape
    (those without samples by the journal's medians, varying as the table's), or alone if that is
    less.
    """
    over = best.over_fastest if best else None
    if best is None or over is None:
        return None
    if best.claimed is not None and best.claimed is not over:
        return over_recordings([best.claimed], evidence.between)
    names = (best.chained.fastest, best.variant)
    own = times.together(*names)
    if own is None:
        return None
    wanted = {name: own.timing.fingerprints[name] for name in names}
    ratios, gpus = [over], {own.timing.provenance.gpu_uuid}
    for entry in evidence.journal.sessions if evidence.journal else ():
        prints = {name: entry.fingerprints.get(name) for name in names}
        before, after = (float(entry.medians.get(name, 0)) for name in names)
        if entry.cut_short or entry.shape != evidence.shape or entry.file == timing_name(own.file):
            continue
        if prints == wanted and before > 0 and after > 0:
            ratios.append(_varying_as(over, before / after))
            gpus.add(entry.gpu_uuid)
    return over_recordings(ratios, evidence.between, len(gpus))


def _varying_as(over: Ratio, ratio: float) -> Ratio:
    low, high = (end and end * ratio / over.ratio for end in (over.low, over.high))
    return replace(over, ratio=ratio, low=low, high=high)


def recordings(evidence: LadderEvidence, shape: str) -> Recordings:
    """What the journal and the timing files say of a shape."""
    entries = evidence.journal.sessions if evidence.journal else ()
    noted = [entry for entry in entries if entry.shape == shape]
    kept = {timing_name(timing.file) for timing in evidence.shapes[shape].timings}
    whole = [entry for entry in noted if not entry.cut_short]
    return Recordings(
        noted=len(noted),
        kept=len(kept),
        unnoted=len(kept - {entry.file for entry in whole}),
        superseded=sum(entry.file not in kept for entry in whole),
        cut_short=len(noted) - len(whole),
    )
