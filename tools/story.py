"""The numbers of docs/story.md against the recorded evidence of the attention study.

python -m tools.story      which numbers do not hold

A comment behind a number of the page names it: ``1.09x<!--fix5 ratio-->``. Names are

    VARIANT FIGURE... [over VARIANT] [at SHAPE] [back-to-back|cold]

or ``ladder``, ``shapes`` and ``gate`` with what is counted or configured. A number of another page
is a link to that page and has to stand there.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.figures import stall_times
from workbench.judge.gates import View, Views
from workbench.judge.ladder import Ablation, judge, view_of
from workbench.load import LadderEvidence, load_ladder
from workbench.ncu.catalog import TIME
from workbench.study.config import Config
from workbench.words import HEADLINE, PredictionResult, Regime, Verdict

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "story.md"
# What was measured has a unit, a decimal point, or is a factor; what was chosen is a whole number.
MEASURED = r"\d[\d,.]*x(?!\w)|\d[\d,.]* ?(?:µs|%|GHz|million|times)(?!\w)|\d[\d,]*\.\d+"
NAMED = re.compile(rf"({MEASURED}|\d[\d,]*)<!--(.*?)-->", re.DOTALL)
LINKED = re.compile(r"\[([^\[\]]*\d[^\[\]]*)\]\(([\w./]+\.md)(?:#[\w-]*)?\)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
LABEL = re.compile(
    r"(?P<subject>\S+) (?P<figure>\S+)(?: (?P<rest>(?!over |at |cold|back)[\w. ]+?))?"
    r"(?: over (?P<over>\S+))?(?: at (?P<shape>\S+))?(?: (?P<regime>back-to-back|cold))?"
)
REGIMES = {"back-to-back": Regime.BACK_TO_BACK, "cold": Regime.COLD, None: HEADLINE}


@dataclass(frozen=True, eq=False)
class Evidence:
    """The study's ladder with its verdicts, and every shape of it."""

    judged: Ablation
    loaded: LadderEvidence
    config: Config
    views: Views

    @cached_property
    def counted(self) -> Mapping[str, float]:
        rows, score = self.judged.rows[1:], self.judged.score
        verdicts = [row.verdict for row in rows]
        kept, open_ = (verdicts.count(v) for v in (Verdict.KEPT, Verdict.INCONCLUSIVE))
        times = [p for row in rows for p in row.predictions if p.figure == TIME]
        across, config = self.judged.across, self.config
        assert across is not None
        return {
            "ladder steps": len(rows),
            "ladder kept": kept,
            "ladder inconclusive": open_,
            "ladder rejected": len(rows) - kept - open_,
            "ladder confirmed": score.confirmed,
            "ladder refuted": score.refuted,
            "ladder refuted-times": sum(p.result == PredictionResult.REFUTED for p in times),
            "shapes mean": across.geometric_mean or math.nan,
            "shapes worst": min(across.ratios),
            "shapes count": len(across.shapes),
            "gate min_speedup": config.gates.min_speedup,
            "gate max_error": config.gates.max_error,
            "gate sessions": config.timing.sessions,
            "gate instances": config.timing.instances,
        }

    def value(self, label: str) -> float | None:
        """None if that is not recorded."""
        if label in self.counted:
            return self.counted[label]
        found, snap = LABEL.fullmatch(label), self.loaded
        shape = (found["shape"] or snap.shape) if found else ""
        if found is None or found["subject"] not in snap.names or shape not in snap.shapes:
            return None
        return _value(self.views[shape], found, REGIMES[found["regime"]])


def _value(view: View, label: re.Match[str], regime: Regime) -> float | None:
    """In the units of the page; None if it was not collected."""
    name, figure, rest = label["subject"], label["figure"], label["rest"] or ""
    step, variant = view.ladder.step(name), view.variant(name)
    parent = label["over"] or (step.parent if step else None)
    time = view.times.time(name, regime)
    ratio = view.times.ratio(parent, name, regime, every=True) if parent else None
    match figure:
        case "time":
            return time.value if time else None
        case "clock":
            return time.sm_clock_mhz / 1e3 if time and time.sm_clock_mhz else None
        case "ratio" | "low" | "high" | "sessions":
            return getattr(ratio, figure, None)
        case "cycles":
            return ratio.cycles.value if ratio and ratio.cycles else None
        case "figure" | "samples":
            found = view.figure(name, f"stall.{rest}" if figure == "samples" else rest)
            return found.value if found else None
        case "stall":
            return stall_times(variant.capture.metrics).get(rest) if variant.capture else None
        case "gain":
            pair = view.compare(parent, name) if parent else None
            factors = pair.decomposition.factors if pair and pair.decomposition else ()
            return next((factor.gain for factor in factors if factor.id == rest), None)
        case "predicted":
            what, _, end = rest.partition(" ")
            known = (p for p in (step.predictions if step else ()) if p.figure == what)
            bounds = next((p.factor or p.range for p in known), None)
            return bounds[end == "high"] if bounds else None
        case "error":
            errors = [c.times_reference for c in variant.checks.values()]
            return max((float(e) for e in errors if e is not None), default=None)
    return None


def holds(text: str, value: float) -> bool:
    """Whether the number in a text is the value, rounded to the digits that it has."""
    (shown,) = NUMBER.findall(text)
    decimals = len(shown.partition(".")[2])
    half = 0.5 * 0.1**decimals
    return math.isclose(float(shown.replace(",", "")), abs(value), abs_tol=half * (1 + 1e-9))


def faults(page: str, known: Evidence) -> Iterator[str]:
    """What is wrong with the numbers of a page."""
    for text, label in NAMED.findall(page):
        value = known.value(" ".join(label.split()))
        if value is None or not holds(text, value):
            yield f"{text}, {label}: it is {'not recorded' if value is None else f'{value:.6g}'}"
    for text, path in LINKED.findall(page):
        other = set(NUMBER.findall((PAGE.parent / path).read_text(encoding="utf-8")))
        yield from (
            f"{n} of '{text}' is not in {path}" for n in NUMBER.findall(text) if n not in other
        )
    for pattern in (NAMED.pattern, LINKED.pattern, r"```.*?```", r"<[^>]*>", r"`[^`]*`"):
        page = re.sub(pattern, "", page, flags=re.DOTALL)
    yield from (f"'{number}' has no name" for number in re.findall(MEASURED, page))


def evidence(root: Path = ROOT) -> Evidence:
    """Of the attention study of a workspace."""
    target = find_target(Local(), root, "attention", None)
    steps = target.study.ladder.chain([])
    known = load_ladder(target.study, target.folder, target.shape, steps, timed=steps)
    config = target.workspace.config
    views = {shape: view_of(known, config, shape, known.names) for shape in known.shapes}
    return Evidence(judge(known, config), known, config, views)


if __name__ == "__main__":
    sys.exit("\n".join(faults(PAGE.read_text(encoding="utf-8"), evidence())) or 0)
