"""What the evidence of the attention study says of a label, such as ``fix5 ratio cold``.

    VARIANT FIGURE... [over VARIANT] [at SHAPE] [back-to-back|cold]

with (parameters) of a variant in round brackets, since Markdown has square ones for itself; or
``ladder``, ``shapes`` and ``gate`` for what is counted or configured. ``READ`` and ``WHOLE`` have
the figures that there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.figures import TIME, stall_times
from workbench.derive.speedup import Ratio
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.judge.view import View, Views
from workbench.render.document.advice import CATALOGUE
from workbench.words import HEADLINE, PredictionResult, Regime, Verdict

ROOT = Path(__file__).resolve().parents[1]
REPORT = Path("reports/attention/OPTIMIZATION_REPORT.md")
LESSONS = "lessons.md"
LAST = "fix27"  # the step that is shown at all shapes
FASTEST = ("fa4", "sdpa")  # of the references, at every shape but one and there
PLACELESS = ("error", "predicted")
CAPTURED = ("figure", "samples", "stall", "gain")
SPEED = ("ratio", "low", "high", "cycles")
HEADING = re.compile(r"^#+ (`[^`]+`: .*)$", re.MULTILINE)  # of a step, in the report
REGIMES = {"back-to-back": Regime.BACK_TO_BACK, "cold": Regime.COLD}


class Unknown(Exception):
    """A label that names nothing on record."""


@dataclass(frozen=True)
class Fact:
    """``value`` as recorded; ``told`` is it in full, ``link`` leads to where it stands."""

    value: float
    told: str
    link: str


@dataclass(frozen=True)
class Label:
    """``fix5 ratio over fix4 at b4h16s2048d64 cold``, taken apart."""

    subject: str
    words: tuple[str, ...]
    over: str = ""
    shape: str = ""
    regime: Regime = HEADLINE

    @property
    def where(self) -> str:
        """Shape and regime, for people; "" for what has neither."""
        if self.words[0] in PLACELESS:
            return ""
        return f" at {self.shape}, {'under ncu' if self.words[0] in CAPTURED else self.regime}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """The study's ladder as it is judged, and every shape of it."""

    judged: Ablation
    views: Views

    @cached_property
    def sections(self) -> Mapping[str, str]:
        """Step to the link to its section of the report, by GitHub's rule."""
        titles = HEADING.findall((ROOT / REPORT).read_text(encoding="utf-8"))
        return {title.split("`")[1]: f"../{REPORT}#{_slug(title)}" for title in reversed(titles)}

    def place(self, label: Label) -> str:
        """The link to where the number of a variant stands."""
        step, home = self.views.snapshot.ladder.step(label.subject), self.views.snapshot.shape
        if step is not None and not label.over:
            elsewhere = label.words[0] in SPEED and label.shape != (step.shape or home)
            if elsewhere and step.kind:
                return f"{LESSONS}#{_slug(CATALOGUE[step.kind].title)}"
            return self.sections.get(label.subject, f"../{REPORT}#the-ladder")
        beside = label.words[0] == "time" and label.over
        if label.shape == home and not beside:
            return f"../{REPORT}#the-ladder"
        if label.subject not in (LAST, *FASTEST):
            return f"../{REPORT}#judged-at-{label.shape}"
        return f"../{REPORT}#{LAST}-at-all-shapes"

    def read(self, label: str) -> Label:
        """Raises Unknown for a variant or shape that is none."""
        rest = label.replace("(", "[").replace(")", "]").split()
        subject, rest = rest[0], rest[1:]
        regime, over, shape = HEADLINE, "", self.views.snapshot.shape
        if rest and rest[-1] in REGIMES:
            regime = REGIMES[rest.pop()]
        if len(rest) > 2 and rest[-2] == "at":
            shape, rest = rest[-1], rest[:-2]
        if len(rest) > 2 and rest[-2] == "over":
            over, rest = rest[-1], rest[:-2]
        if shape not in self.views.snapshot.shapes:
            raise Unknown(f"no shape {shape}")
        return Label(subject, tuple(rest), over, shape, regime)

    def fact(self, text: str) -> Fact:
        """Raises Unknown."""
        label = self.read(text)
        if label.subject in WHOLE:
            return WHOLE[label.subject](self, label)
        known = READ.get(label.words[0]) if label.words else None
        if known is None or label.subject not in self.views.snapshot.names:
            raise Unknown(f"'{text}' is nothing that is known")
        value, told = known(self.views.at(label.shape), label)
        what = " ".join((label.subject, *label.words))
        whole = f"{what}{label.where}: {told}"
        return Fact(value, whole, self.place(label))


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _parent(view: View, label: Label) -> str:
    if label.over:
        return label.over
    step = view.ladder.step(label.subject)
    if step is None or step.parent is None:
        raise Unknown(f"{label.subject} has no parent")
    return step.parent


def _ratio(view: View, label: Label) -> tuple[Ratio, str]:
    over = _parent(view, label)
    found = view.times.ratio(over, label.subject, label.regime)
    if found is None or found.low is None or found.high is None:
        raise Unknown(f"{label.subject} and {over} were not timed together{label.where}")
    return found, f"{found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}] over {over}"


def _time(view: View, label: Label) -> tuple[float, str]:
    """Of the sessions that the ratio over another is of, where ``over`` one is said."""
    times, name = view.times, label.subject
    found = (
        times.beside(label.over, name, label.regime)
        if label.over
        else times.time(name, label.regime)
    )
    if found is None:
        raise Unknown(f"{name} was not timed{label.where}")
    return found.value, f"{found.value:.4f} µs" + (f" beside {label.over}" if label.over else "")


def _clock(view: View, label: Label) -> tuple[float, str]:
    found = view.times.time(label.subject, label.regime)
    if found is None or found.sm_clock_mhz is None:
        raise Unknown(f"no clock of {label.subject}")
    return found.sm_clock_mhz / 1e3, f"{found.sm_clock_mhz:.1f} MHz"


def _ratio_value(view: View, label: Label) -> tuple[float, str]:
    found, told = _ratio(view, label)
    return found.ratio, told


def _end(view: View, label: Label) -> tuple[float, str]:
    found, told = _ratio(view, label)
    return (found.low if label.words[0] == "low" else found.high) or 0.0, told


def _sessions(view: View, label: Label) -> tuple[float, str]:
    found, told = _ratio(view, label)
    return found.sessions, told


def _cycles(view: View, label: Label) -> tuple[float, str]:
    found, _ = _ratio(view, label)
    if found.cycles is None:
        raise Unknown(f"no cycles of {label.subject}")
    return found.cycles.value, f"{found.cycles.value:.4f} in cycles"


def _figure(view: View, label: Label) -> tuple[float, str]:
    name = label.words[-1]
    found = view.figure(label.subject, f"stall.{name}" if label.words[0] == "samples" else name)
    if found is None:
        raise Unknown(f"{name} of {label.subject} was not collected at {label.shape}")
    return found.value, f"{found.value:.6g} {found.unit} ({found.metric})"


def _stall(view: View, label: Label) -> tuple[float, str]:
    capture = view.variant(label.subject).capture
    times = stall_times(capture.metrics) if capture else {}
    if label.words[-1] not in times:
        raise Unknown(f"no samples of {label.words[-1]} in {label.subject} at {label.shape}")
    return times[label.words[-1]], f"{times[label.words[-1]]:.4f} µs of stall time"


def _gain(view: View, label: Label) -> tuple[float, str]:
    pair = view.compare(_parent(view, label), label.subject)
    factors = (
        {f.id: f.gain for f in pair.decomposition.factors} if pair and pair.decomposition else {}
    )
    if label.words[-1] not in factors:
        raise Unknown(f"no factor {label.words[-1]} of {label.subject} at {label.shape}")
    return factors[label.words[-1]], f"{factors[label.words[-1]]:.4f} of {pair and pair.before}"


def _predicted(view: View, label: Label) -> tuple[float, str]:
    step = view.ladder.step(label.subject)
    for prediction in step.predictions if step else ():
        bounds = prediction.factor or prediction.range
        if prediction.figure == label.words[1] and bounds:
            return bounds[label.words[2] == "high"], f"{bounds[0]:g} to {bounds[1]:g} was predicted"
    raise Unknown(f"{label.subject} predicts no {label.words[1]}")


def _error(view: View, label: Label) -> tuple[float, str]:
    errors = [
        float(c.times_reference)
        for c in view.variant(label.subject).checks.values()
        if c.times_reference is not None
    ]
    if not errors:
        raise Unknown(f"no error of {label.subject}")
    return max(errors), f"{max(errors):.4f} of the reference's error, the worst of all shapes"


READ: Mapping[str, Callable[[View, Label], tuple[float, str]]] = {
    "time": _time,
    "clock": _clock,
    "ratio": _ratio_value,
    "low": _end,
    "high": _end,
    "cycles": _cycles,
    "sessions": _sessions,
    "figure": _figure,
    "samples": _figure,
    "stall": _stall,
    "gain": _gain,
    "predicted": _predicted,
    "error": _error,
}


def _ladder(evidence: Evidence, label: Label) -> Fact:
    """How many steps have a verdict, or predictions a result."""
    verdicts = [row.verdict for row in evidence.judged.rows]
    counts = {str(v): float(verdicts.count(v)) for v in Verdict}
    score = evidence.judged.score
    counts |= {"confirmed": float(score.confirmed), "refuted": float(score.refuted)}
    counts |= {"steps": float(len(verdicts) - 1), "refuted-times": float(_refuted(evidence))}
    return _counted(counts, label, "what-was-learned")


def _refuted(evidence: Evidence) -> int:
    """Predictions of a time."""
    every = (each for row in evidence.judged.rows for each in row.predictions)
    return sum(each.figure == TIME and each.result == PredictionResult.REFUTED for each in every)


def _shapes(evidence: Evidence, label: Label) -> Fact:
    """Of the last step over the fastest reference."""
    across = evidence.judged.across
    if across is None or across.geometric_mean is None:
        raise Unknown("nothing is known of all shapes")
    worst = min(across.ratios)
    known = {
        "mean": across.geometric_mean,
        "worst": worst,
        "count": float(len(across.shapes)),
    }
    return _counted(known, label, f"{across.variant}-at-all-shapes")


def _gates(evidence: Evidence, label: Label) -> Fact:
    config = evidence.views.config
    known = {
        "min_speedup": config.gates.min_speedup,
        "max_error": config.gates.max_error,
        "sessions": float(config.timing.sessions),
        "max_sessions": float(config.timing.max_sessions),
        "instances": float(config.timing.instances),
    }
    return _counted(known, label, "method")


def _counted(known: Mapping[str, float], label: Label, anchor: str) -> Fact:
    if label.words[0] not in known:
        raise Unknown(f"{label.subject} has no {label.words[0]}")
    value = known[label.words[0]]
    return Fact(value, f"{label.subject}, {label.words[0]}: {value:.6g}", f"../{REPORT}#{anchor}")


WHOLE: Mapping[str, Callable[[Evidence, Label], Fact]] = {
    "ladder": _ladder,
    "shapes": _shapes,
    "gate": _gates,
}


def evidence() -> Evidence:
    """Of the attention study, as it stands in this repository."""
    target = find_target(Local(), ROOT, "attention", None, tell=False)
    steps = target.study.ladder.chain([])
    known = snapshot(target.evidence(), steps, timed=steps)
    config = target.workspace.config
    return Evidence(judge(known, config), Views(known, config, known.names))
