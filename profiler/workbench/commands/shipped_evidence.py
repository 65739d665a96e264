"""What is known of a variant that is shipped: refused where it is not kept, else what travels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import structs

from workbench.derive.intervals import LEVEL
from workbench.derive.speedup import cards_of, ratio_of, session_times, time_of
from workbench.errors import GateFailed
from workbench.evidence.recorded import Evidence, TimingFile
from workbench.evidence.records import Checks, Record, ShippedTime, Timing
from workbench.judge.rows import Row
from workbench.render.document.phrases import what_it_is
from workbench.words import HEADLINE, CheckResult, GateState, Status, Verdict

MEASURE = "`workbench ablate` measures it where there is a GPU with ncu"


@dataclass(frozen=True)
class Shapes:
    """Shapes of a study by what a variant is on record for there."""

    checked: tuple[str, ...]
    refused: tuple[str, ...]


def require_kept(row: Row, evidence: Evidence) -> None:
    """Raises GateFailed for a variant that is no kept step by evidence of the sources as they are,
    at every shape that it was checked or timed at.
    """
    name = row.variant
    if row.step is None or row.step.parent is None:
        what = "a reference" if row.step is None else "the baseline"
        raise GateFailed(
            f"'{name}' is {what}, and not a step that was kept",
            hint="ship a step of the ladder: `workbench ablate` shows the verdicts",
        )
    if row.status == Status.FAILED:
        raise GateFailed(
            f"'{name}' is not kept: {row.problem or 'it failed'}", hint=f"mend it, then {MEASURE}"
        )
    stale = [kind for kind, state in row.state.items() if state == Status.STALE]
    missing = [kind for kind, state in row.state.items() if state == Status.MISSING]
    stale += [f"check at {shape}" for shape in _stale_checks(evidence, name)]
    if stale or row.status == Status.STALE:
        raise GateFailed(
            f"the evidence of '{name}' is stale: {', '.join(stale) or row.problem} of other "
            "sources than there are now",
            hint=MEASURE,
        )
    if row.verdict != Verdict.KEPT:
        failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
        gates = failed or [gate for gate in row.gates if gate.state == GateState.OPEN]
        why = "; ".join(f"{gate.name}: {gate.why}" for gate in gates) or row.problem
        raise GateFailed(
            f"'{name}' is {row.verdict or 'not judged'}, and not kept"
            + (f": {why}" if why else f": {', '.join(missing)} missing" if missing else ""),
            hint="only steps that are kept are shipped" if failed else MEASURE,
        )


def _stale_checks(evidence: Evidence, variant: str) -> Iterator[str]:
    for shape in evidence.study.shapes:
        if evidence.check(variant, shape).state == Status.STALE:
            yield shape


def shapes_of(evidence: Evidence, variant: str) -> Shapes:
    """In the order of the study. Raises GateFailed where it was found correct at none."""
    checks = {s: evidence.check(variant, s).current for s in evidence.study.shapes}
    by_status = {
        status: tuple(s for s, c in checks.items() if c is not None and c.status == status)
        for status in (CheckResult.CORRECT, CheckResult.UNSUPPORTED)
    }
    if not by_status[CheckResult.CORRECT]:
        raise GateFailed(f"'{variant}' is on record as correct at no shape", hint=MEASURE)
    return Shapes(by_status[CheckResult.CORRECT], by_status[CheckResult.UNSUPPORTED])


def times_of(evidence: Evidence, variant: str, reference: str) -> tuple[ShippedTime, ...]:
    """At every shape where it was timed as it is, beside the reference where that was, too."""
    return tuple(
        found
        for shape in evidence.study.shapes
        if (found := _time_at(evidence.at(shape), variant, reference)) is not None
    )


def _time_at(evidence: Evidence, variant: str, reference: str) -> ShippedTime | None:
    file = evidence.timing([variant, reference] if reference else [variant])
    if file is None or variant not in evidence.chained(file.timing):
        return None
    beside = reference if reference and reference in evidence.chained(file.timing) else ""
    check = evidence.check(variant).current
    return timed(
        file.timing,
        variant,
        beside,
        file=f"{evidence.shape}/timings/{file.name}",
        times_reference=check.times_reference if check else None,
    )


def timed(
    timing: Timing,
    variant: str,
    reference: str,
    *,
    file: str = "",
    times_reference: float | None = None,
) -> ShippedTime | None:
    """None where a call adds nothing."""
    every = session_times(timing.together)
    mine = every.get((variant, HEADLINE, False), {})
    its = every.get((reference, HEADLINE, False), {})
    time = time_of(mine, HEADLINE)
    if time is None:
        return None
    ratio = ratio_of(its, mine, timing.first_planned) if its else None
    return ShippedTime(
        shape=timing.shape,
        microseconds=time.value,
        sessions=time.sessions,
        file=file,
        reference=reference if ratio else "",
        ratio=ratio.ratio if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        level=ratio.level if ratio else LEVEL,
        cards=len(set(cards_of(mine))),
        times_reference=times_reference,
    )


def records_of(evidence: Evidence, variant: str, reference: str) -> Mapping[str, Record]:
    """The records behind it, by their path in the evidence folder. Of timings, which hold all that
    was timed together, the series of the two.
    """
    folder = evidence.folder
    found: dict[str, Record | None] = {}
    for name in filter(None, (variant, reference)):
        found[f"builds/{name}.json"] = evidence.build(name).current
        path = folder.check(name)
        if any(evidence.check(name, shape).current for shape in evidence.study.shapes):
            found[f"checks/{name}.json"] = evidence.files.record(path, Checks)
    for shape in evidence.study.shapes:
        here = evidence.at(shape)
        found[f"{shape}/captures/{variant}.json"] = here.capture_index(variant).current
        file = here.timing([variant, reference] if reference else [variant])
        if file is not None and variant in here.chained(file.timing):
            found[f"{shape}/timings/{file.name}"] = _of_two(file, (variant, reference))
    return {path: record for path, record in found.items() if record is not None}


def _of_two(file: TimingFile, names: tuple[str, ...]) -> Timing:
    timing = file.timing
    sessions = []
    for session in timing.sessions:
        series = tuple(one for one in session.series if one.variant in names)
        audits = tuple(one for one in session.audits if one.variant in names)
        if series:
            sessions.append(structs.replace(session, series=series, audits=audits))
    return structs.replace(
        timing,
        fingerprints={n: f for n, f in timing.fingerprints.items() if n in names},
        nodes={n: each for n, each in timing.nodes.items() if n in names},
        sessions=tuple(sessions),
        planned=timing.first_planned,
    )


def role_words(row: Row) -> str:
    """The verdict as the ladder has it."""
    where = f" at {row.judged_at}" if row.judged_at else ""
    return f"{row.verdict}{where}{what_it_is(row)}"
