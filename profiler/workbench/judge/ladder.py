"""A ladder at one shape on one GPU, judged by all evidence on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from workbench.derive.figures import Figure, figure_label, figures, occupancy_limiters, stall_shares
from workbench.derive.noise import ASSUMED_NOISE, Noise, noise_of
from workbench.derive.roofline.ceilings import Ceilings, ceilings, peaks
from workbench.derive.roofline.measured import MeasuredCeilings, measured_ceilings
from workbench.derive.roofline.point import point
from workbench.derive.speedup import Ratio, Samples, Time, paired_ratio, samples_of, time_of
from workbench.evidence.recorded import Evidence, SessionFile, timing_table
from workbench.evidence.records import CaptureIndex
from workbench.evidence.store import content
from workbench.judge.bottlenecks import Bottleneck, bottlenecks
from workbench.judge.comparison import Comparison, compare
from workbench.judge.gates import (
    Gate,
    PredictionOutcome,
    compiler_gate,
    correct_gate,
    faster_gate,
    judge_prediction,
    verdict,
)
from workbench.judge.rows import Ablation, Row, ShapeLadder
from workbench.judge.shapes import AcrossShapes, AtShape
from workbench.ncu.captures import captures_of
from workbench.study.config import Config
from workbench.study.model import Step
from workbench.words import ABSENT, CLOCK_TOLERANCE, CheckResult, Regime, Role, Status, Verdict

if TYPE_CHECKING:
    import pandas as pd

COMPARED = ("gpu", "driver", "cuda", "torch")


class _Judge:
    def __init__(self, evidence: Evidence, config: Config, variants: list[str]) -> None:
        self.evidence = evidence
        self.config = config
        self.ladder = evidence.study.ladder
        self.variants = variants
        self.elsewhere: dict[str, _Judge] = {}
        self.captures = captures_of(evidence)
        self.session = evidence.session(variants)
        self.tables: dict[str, pd.DataFrame] = {}
        self.grouped: dict[int, Mapping[tuple[str, str], Samples]] = {}
        self.known: dict[str, Mapping[str, Figure]] = {}

    @cached_property
    def noise(self) -> Noise:
        """From all repeats on record, whichever variants are asked for; else assumed."""
        groups = []
        for variant in self.evidence.study.variants:
            repeats = self.captures.repeats(variant)
            capture = self.captures.of(variant) if repeats else None
            if capture is not None:
                groups.append([self.figures(variant), *map(figures, repeats)])
        return noise_of(groups) if groups else ASSUMED_NOISE

    @property
    def timings(self) -> pd.DataFrame | None:
        return self.table(self.session) if self.session else None

    def table(self, file: SessionFile) -> pd.DataFrame:
        if file.name not in self.tables:
            self.tables[file.name] = timing_table(file.session)
        return self.tables[file.name]

    def timed_together(self, *variants: str) -> pd.DataFrame | None:
        """The session of the table where it holds them all as they are now, else the newest."""
        newest = reversed(self.evidence.sessions)
        for session in [*([self.session] if self.session else []), *newest]:
            if set(variants) <= set(self.evidence.timed(session.session)):
                return self.table(session)
        return None

    def time(self, variant: str, mode: str) -> Time | None:
        table = self.timed_together(variant)
        samples = self.samples(table).get((variant, mode)) if table is not None else None
        return time_of(samples) if samples else None

    def samples(self, table: pd.DataFrame) -> Mapping[tuple[str, str], Samples]:
        if id(table) not in self.grouped:
            self.grouped[id(table)] = samples_of(table)
        return self.grouped[id(table)]

    def ratio(self, over: str | None, variant: str) -> Ratio | None:
        """Between variants that were timed together as they are now, and are both correct."""
        if not over:
            return None
        table = self.timed_together(over, variant)
        if table is None:
            return None
        checks = [self.evidence.check(v).record for v in (over, variant)]
        if any(check is None or check.status != CheckResult.CORRECT for check in checks):
            return None
        one, other = (self.samples(table).get((v, Regime.WARM)) for v in (over, variant))
        if one is None or other is None:
            return None
        return paired_ratio(one, other, self.config.timing.bootstrap_samples)

    def checks(self, variant: str) -> dict[str, dict[str, Any]]:
        shapes = self.evidence.study.shapes
        found = {shape: self.evidence.check(variant, shape) for shape in shapes}
        return {shape: to_builtins(e.current) for shape, e in found.items() if e.current}

    def status(self, state: Mapping[str, str], checks: Mapping[str, Any]) -> tuple[str, str]:
        check = checks.get(self.evidence.shape)
        if check is not None and check["status"] != "correct":
            told = check["status"] in ("wrong", "unsupported")
            return Status.FAILED, f"{check['status']}: {check['why']}" if told else str(
                check["why"]
            )
        if Status.STALE in state.values():
            late = ", ".join(kind for kind, value in state.items() if value == Status.STALE)
            return Status.STALE, f"its sources changed since ({late}); measure it again"
        if state["timing"] == Status.MISSING and state["capture"] == Status.MISSING:
            return Status.MISSING, "not measured"
        if state["timing"] == Status.MISSING and state["capture"] == Status.ADOPTED:
            return Status.ADOPTED, "a capture made elsewhere: neither checked nor timed here"
        return Status.CURRENT, ""

    def row(self, variant: str, step: Step | None) -> Row:
        evidence = self.evidence
        state = evidence.state(variant)
        checks = self.checks(variant)
        built = evidence.build(variant)
        title = evidence.study.variants[variant].title
        build = content(built.current) if built.current else None
        status, problem = self.status(state, checks)
        if build and build.get("error"):
            status, problem = Status.FAILED, str(build["error"]).splitlines()[0]
        there = self.at(step.shape) if step and step.shape else self
        deciding = there.ratio(step.parent, variant) if step else None
        gates: list[Gate] = []
        judged = ""
        if step is not None:
            at = there.evidence.shape
            gates = [correct_gate(checks, at), compiler_gate(build, self.config.gates)]
            if step.parent is None:
                judged = Verdict.BASELINE
            else:
                gates.append(faster_gate(deciding, self.config.gates))
                judged = verdict(gates, deciding, self.config.gates)
        if status == Status.STALE:
            judged = Verdict.INCONCLUSIVE if judged and judged != Verdict.BASELINE else judged
            return Row(variant, title, step, state, status, problem, verdict=judged)
        works = status != Status.FAILED
        capture = self.captures.of(variant) if works else None
        found = self.figures(variant) if capture else {}
        index = evidence.capture_index(variant).usable if capture else None
        adopted = to_builtins(index.adopted) if index and index.adopted else None
        reached = evidence.calibration.values if evidence.calibration else None
        return Row(
            variant,
            title,
            step,
            state,
            status,
            problem,
            warm=self.time(variant, Regime.WARM) if works else None,
            cold=self.time(variant, Regime.COLD) if works else None,
            over_baseline=self.ratio(self.ladder.steps[0].variant, variant),
            over_parent=self.ratio(step.parent, variant) if step else None,
            over_reference=self.ratio(self.ladder.primary_reference, variant),
            figures=found,
            stalls=stall_shares(capture.metrics) if capture else {},
            limiters=tuple(occupancy_limiters(capture.metrics)) if capture else (),
            bottlenecks=tuple(bottlenecks(capture.rules, capture.lines, found)) if capture else (),
            point=point(capture.metrics, reached) if capture else None,
            gates=tuple(gates),
            verdict=judged,
            predictions=there.predictions(step, variant),
            kernels=capture.kernels if capture else (),
            capture=capture.path.name if capture else "",
            checks=checks,
            build=build,
            adopted=adopted,
            judged_at=there.evidence.shape if there is not self else "",
            deciding=deciding,
        )

    def compared(self, row: Row) -> tuple[Comparison | None, str]:
        """With its parent, by captures at the shape where it is judged, else by those of here."""
        parent = row.step.parent if row.step else None
        if parent is None or row.status != Status.CURRENT:
            return None, ""
        if row.judged_at:
            found = self.at(row.judged_at).compare(parent, row.variant, f" at {row.judged_at}")
            if found is not None:
                return found, row.judged_at
        return self.compare(parent, row.variant), ""

    def judged(self, variant: str, step: Step) -> Row:
        """A row of the ladder with what it is compared with: its parent, or those it chooses."""
        row = self.row(variant, step)
        found, where = self.compared(row)
        limits = self.at(where).limits(variant) if where else row.bottlenecks
        row = replace(row, against_parent=found, compared_at=where, limits=limits)
        over = {name: ratio for name in step.chooses if (ratio := self.ratio(name, variant))}
        if not step.chooses:
            return row
        chosen = min(over, key=lambda name: over[name].ratio, default="")
        return replace(row, role=Role.CHOICE, chosen=chosen, over_chosen=over.get(chosen))

    def ladder_here(self, steps: list[Step], table: str) -> ShapeLadder:
        """Of the steps judged at this shape; one without a shape of its own is at the table's."""
        shape = self.evidence.shape
        own = {s.variant for s in steps if (s.shape or table) == shape}
        starts = {s.parent for s in steps if s.variant in own and s.parent}
        shown = [s for s in steps if s.variant in own | starts]
        return ShapeLadder(
            shape=shape,
            parameters=self.evidence.study.shapes[shape].parameters,
            rows=tuple(
                self.judged(s.variant, s) if s.variant in own else as_start(self.row(s.variant, s))
                for s in shown
            ),
            references=tuple(
                replace(self.row(r.name, None), role=Role.REFERENCE) for r in self.ladder.references
            ),
        )

    def limits(self, variant: str) -> tuple[Bottleneck, ...]:
        capture = self.captures.of(variant)
        if capture is None:
            return ()
        return tuple(bottlenecks(capture.rules, capture.lines, self.figures(variant)))

    def compare(self, before: str, after: str, where: str = "") -> Comparison | None:
        """None where either variant has no capture that counts; ``where`` is added to the names."""
        was, came = self.captures.of(before), self.captures.of(after)
        if was is None or came is None:
            return None
        known = self.figures(before), self.figures(after)
        return compare(was, came, (before + where, after + where), self.noise, known)

    def across(self, variant: str) -> AcrossShapes:
        """The variant at every shape where it was timed as it is now."""
        study, reference = self.evidence.study, self.ladder.primary_reference
        results = []
        for name, shape in study.shapes.items():
            there = self.at(name)
            time = there.time(variant, Regime.WARM) if shape.profiled else None
            if time is None:
                continue
            results.append(
                AtShape(
                    name,
                    shape.parameters,
                    time,
                    there.time(reference, Regime.WARM) if reference else None,
                    there.ratio(reference, variant),
                    study.work(name).flops / (time.median * 1e-6),
                )
            )
        return AcrossShapes(variant, tuple(results))

    def at(self, shape: str) -> _Judge:
        """The same on the evidence at another shape."""
        if shape == self.evidence.shape:
            return self
        if shape not in self.elsewhere:
            there = self.evidence.at(shape)
            self.elsewhere[shape] = _Judge(there, self.config, self.variants)
        return self.elsewhere[shape]

    def figures(self, variant: str) -> Mapping[str, Figure]:
        if variant not in self.known:
            capture = self.captures.of(variant)
            self.known[variant] = figures(capture.metrics) if capture else {}
        return self.known[variant]

    def figure(self, variant: str | None, name: str) -> Figure | None:
        """``time`` comes from the timing session, everything else from a capture made here:
        predictions are about what was measured.
        """
        if variant is None:
            return None
        if name != "time":
            own = self.evidence.capture_index(variant).current
            return self.figures(variant).get(name) if own else None
        time = self.time(variant, Regime.WARM)
        return Figure("time", "Time", time.median, "µs", "", "lower") if time else None

    def predictions(self, step: Step | None, variant: str) -> tuple[PredictionOutcome, ...]:
        result = []
        for prediction in step.predictions if step else ():
            name = prediction.figure
            before, after = (
                self.figure(step.parent if step else None, name),
                self.figure(variant, name),
            )
            label, unit = figure_label(name)
            result.append(judge_prediction(prediction, before, after, label, unit))
        return tuple(result)

    def warnings(self, rows: list[Row]) -> list[str]:
        """What makes the captures of these rows not quite comparable, in words."""
        said = []
        clocks = {r.variant: r.figures["sm_clock"].value for r in rows if "sm_clock" in r.figures}
        if clocks:
            slow, fast = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
            if clocks[fast] > clocks[slow] * (1 + CLOCK_TOLERANCE):
                said.append(
                    f"captures ran at different SM clocks: {slow} at {clocks[slow]:.3f} GHz, "
                    f"{fast} at {clocks[fast]:.3f} GHz"
                )
        measured = [r.variant for r in rows if r.capture and not r.adopted]
        indexes = [i for v in measured if (i := self.evidence.capture_index(v).record)]
        for key in (*COMPARED, "ncu", "ncu_flags"):
            values = {_compared(index, key) for index in indexes}
            if len(values) > 1:
                said.append(f"captures differ in {key}: {', '.join(sorted(values))}")
        for row in rows:
            if row.adopted:
                index = self.evidence.capture_index(row.variant).record
                assert index is not None
                said.append(
                    f"{row.variant} is an adopted capture ({row.adopted['file']}, ncu "
                    f"{index.ncu}): its shape and sources are the word of whoever adopted it; "
                    "timing, correctness, driver and CUDA were not collected"
                )
        said += [
            f"{r.variant} stands above its roof: an error in the data"
            for r in rows
            if r.point and r.point.above_roof
        ]
        if self.timings is not None and self.timings["throttled"].eq(True).any():
            share = float(self.timings["throttled"].eq(True).mean())
            said.append(f"the GPU reported throttling in {share:.0%} of the timing rounds")
        return said


def as_start(row: Row) -> Row:
    """Its figures and times alone: what became of it is told at the shape where it is judged."""
    return replace(
        row,
        role=Role.START,
        over_parent=None,
        gates=(),
        verdict="",
        predictions=(),
        judged_at="",
        deciding=None,
    )


@dataclass(frozen=True)
class VariantPair:
    """Any two variants; ``speedup`` and ``comparison`` are None as for a step and its parent."""

    before: Row
    after: Row
    speedup: Ratio | None
    comparison: Comparison | None
    warnings: tuple[str, ...]


def _compared(index: CaptureIndex, key: str) -> str:
    """As the warning has it: flags as a list, what is not known as not collected."""
    known = {**to_builtins(index.provenance), "ncu": index.ncu, "ncu_flags": list(index.ncu_flags)}
    return str(known.get(key, ABSENT))


def judge_pair(evidence: Evidence, config: Config, before: Row, after: Row) -> VariantPair:
    work = _Judge(evidence, config, [before.variant, after.variant])
    return VariantPair(
        before,
        after,
        work.ratio(before.variant, after.variant),
        work.compare(before.variant, after.variant),
        tuple(work.warnings([before, after])),
    )


def chart_ceilings(rows: list[Row], evidence: Evidence) -> Ceilings | None:
    """Those of the first capture, the tensor ceiling of the data type that ran in the ladder."""
    kinds = [row.point.tensor_type for row in rows if row.point and row.point.tensor_type]
    kind = kinds[0] if kinds else "fp16"
    captures = (captures_of(evidence).of(row.variant) for row in rows if row.capture)
    return next((roof for c in captures if c and (roof := ceilings(c.metrics, kind))), None)


def measured_roofs(rows: list[Row], evidence: Evidence) -> MeasuredCeilings | None:
    """Against the theoretical ceilings of the first capture; None where nothing was calibrated."""
    if evidence.calibration is None:
        return None
    captures = (captures_of(evidence).of(row.variant) for row in rows if row.capture)
    return measured_ceilings(
        evidence.calibration, next((p for c in captures if c and (p := peaks(c.metrics))), None)
    )


def judge(
    evidence: Evidence, config: Config, steps: list[Step], *, source: str = "recorded"
) -> Ablation:
    """Judge ``steps`` and all references on the evidence on record."""
    study = evidence.study
    names = [s.variant for s in steps] + [r.name for r in study.ladder.references]
    work = _Judge(evidence, config, names)
    rows = [work.judged(step.variant, step) for step in steps]
    references = [
        replace(work.row(r.name, None), role=Role.REFERENCE) for r in study.ladder.references
    ]
    shapes = dict.fromkeys([evidence.shape, *(step.shape for step in steps if step.shape)])
    roof = chart_ceilings([*rows, *references], evidence)
    reached = measured_roofs([*rows, *references], evidence)
    warnings = work.warnings(rows + references)
    warnings += [
        f"the measured {r.measured.id} ceiling is {100 * r.share:.0f} % of the theoretical one: "
        "an error in the data; run `workbench calibrate` again"
        for r in (reached.wrong if reached else ())
    ]
    session = work.session.session.provenance if work.session else None
    measured = [r for r in rows + references if r.capture and not r.adopted]
    indexes = [i for r in measured if (i := evidence.capture_index(r.variant).record)]
    newest = max(indexes, key=lambda i: i.provenance.date, default=None)
    environment = to_builtins(newest.provenance) if newest else {}
    environment |= to_builtins(session) if session else {}
    environment["ncu"] = newest.ncu if newest else ABSENT
    environment["ncu_flags"] = " ".join(newest.ncu_flags) if newest else ""
    result = Ablation(
        study.name,
        study.ladder.title,
        study.ladder.summary,
        evidence.shape,
        study.shapes[evidence.shape].parameters,
        str(environment.get("gpu", evidence.folder.gpu)),
        source,
        str(environment.get("date", ""))[:10],
        study.ladder.primary_reference,
        tuple(rows),
        tuple(references),
        roof,
        environment,
        work.session.name if work.session else "",
        tuple(warnings),
        noise=work.noise,
        measured=reached,
        ladders=tuple(work.at(shape).ladder_here(steps, evidence.shape) for shape in shapes),
    )
    if steps and evidence.shape == study.default_shape:
        result = replace(result, across=work.across(steps[-1].variant))
    best = result.best
    if best is None or best.verdict == Verdict.BASELINE:
        return result
    return replace(result, whole=work.compare(rows[0].variant, best.variant))
