"""What README and the docs claim of hacks, honest kernels, chance, A/A controls and GPUs: tables of
docs/trust.md and docs/measuring.md, computed from the rows of docs/trust.md and the evidence.

Every timing holds second groups of instances of some variants, its A/A controls, which must come
out as equal to the first groups. A timing with added sessions has intervals of 99 %: here all are
of 95 %.

python -m benchmarks.claims
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

import pandas as pd
from tools.pages import DOCS, ROOT, table, timings, with_parts, write

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.speedup import T_975, over_sessions, quantile_of, variance_of
from workbench.evidence import store
from workbench.evidence.journal import known_between, load_journal
from workbench.evidence.records import Captures, VariantRecord
from workbench.evidence.store import EvidenceFolder, gpu_slug
from workbench.judge.ladder import Ablation, judge
from workbench.judge.session_checks import Control, TimingFacts, timing_facts
from workbench.study.config import Config
from workbench.study.workspace import Workspace, find_workspace

TRUST, MEASURING = DOCS / "trust.md", DOCS / "measuring.md"
CONFIDENCE = 0.95
SHORT_US = 10.0
TRIALS, TRUE_GAIN = 20_000, 1.025
MEANS = 100_000  # of a numeric integral


def at_most(came: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The largest share at which no more than so many come in 5 % of such samples (Clopper and
    Pearson, Biometrika 26, 1934; one-sided).
    """
    return _share_where(lambda p: _no_more_than(came, of, p) > 1 - confidence)


def at_least(came: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The smallest share at which at least so many do."""
    return _share_where(lambda p: 1 - _no_more_than(came - 1, of, p) < 1 - confidence)


def _no_more_than(came: int, of: int, share: float) -> float:
    return math.fsum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(came + 1))


def _share_where(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


@dataclass(frozen=True)
class Tried:
    """Kernels of a corpus, and how many of them came out wrong."""

    what: str
    came: int
    of: int

    @property
    def bound(self) -> str:
        if self.came:
            return f"at least {100 * at_least(self.came, self.of):.0f} %"
        return f"below {100 * at_most(self.came, self.of):.1f} %"


def tried() -> tuple[Tried, ...]:
    """By the tables of the page: each run is of the same kernels, so that the last one counts."""
    page = TRUST.read_text("utf-8")
    hacks = re.findall(r"^\| [^|]+ \| H\d+[^|]* \|" + r" (\d+|-) \|" * 4 + "$", page, re.MULTILINE)
    honest = re.findall(r"^\| ([-\d]+) \| H\d+ \| \w+ \| (\d+) of \d+ \| (\d+) \|", page, re.M)
    latest = [(int(of), int(came)) for day, of, came in honest if day == honest[-1][0]]
    kernel, rejected = map(sum, zip(*latest, strict=True))
    known = page.split("<!-- known hacks -->")[1].split("<!-- /known hacks -->")[0]
    verdicts = re.findall(r"\| (kept|wrong|inconclusive|slower|no gain)\b[^|]*\|$", known, re.M)
    before, kept, after, of_these = hacks[-1]
    late = (
        ()
        if after == "-"
        else (Tried("hacks written after the bounds that were kept", int(of_these), int(after)),)
    )
    return (
        Tried("hacks of the red team that were kept", int(kept), int(before)),
        *late,
        Tried("honest kernels that were rejected", rejected, kernel),
        Tried("new hacks in plain Python that were kept", verdicts.count("kept"), len(verdicts)),
    )


def bounds() -> str:
    rows = [(one.what, f"{one.came} of {one.of}", one.bound) for one in tried()]
    return table(("tried", "came", "of all such, with 95 % confidence"), rows)


def recordings() -> pd.DataFrame:
    """The GPU and the day of each recording of all studies, and of what their journals have."""
    rows: list[tuple[str, str | None, str]] = []
    folders = [path for path in (ROOT / "ablations").glob("*/evidence/*") if path.is_dir()]
    for path in sorted(folders, key=lambda path: path.name):
        files = [store.read_record(file, Captures) for file in path.rglob("captures.json")]
        kinds: dict[str, Iterable[Any]] = {
            "timings": [one.timing.provenance for one in timings(path)],
            "captures": [index.provenance for each in files for index in each.captures.values()],
            "journal medians": load_journal(EvidenceFolder(path)).sessions,
        }
        for what, every in kinds.items():
            rows += [(f"{what}, {path.name}", one.gpu_uuid, one.date[:10]) for one in every]
    return pd.DataFrame(rows, columns=["what", "gpu", "day"])


def gpus() -> pd.DataFrame:
    """By kind of recording: their number, their GPUs, and their days."""
    kinds = recordings().groupby("what", sort=False)
    return kinds.agg(
        recordings=("day", "size"),
        gpus=("gpu", lambda gpus: gpus.nunique(dropna=False)),
        days=("day", "nunique"),
        first=("day", "min"),
        last=("day", "max"),
    )


def gpu_table() -> str:
    rows = [
        (what, count, of, first if days == 1 else f"{days} days, {first} to {last}")
        for what, count, of, days, first, last in gpus().itertuples()
    ]
    return table(("what", "recordings", "GPUs", "on"), rows)


# ---- A/A controls
CONTROLS = (
    "study", "timings", "controls", "exclude 1.0", "half-width, median", "furthest from 1.0",
)  # fmt: skip


def facts_of(workspace: Workspace, study: str) -> Iterator[TimingFacts]:
    """Of all timings of a study, at any shape and on any GPU."""
    reference = workspace.study(study).ladder.primary_reference
    every = timings(workspace.ablations / study / "evidence")
    return filter(None, (timing_facts(each, reference) for each in every))


def half_width(control: Control) -> float:
    """Of the logarithm of its ratio, at 95 %."""
    ratio = control.ratio
    return quantile_of(T_975, ratio.sessions - 1) * math.sqrt(variance_of(ratio))


def excludes_one(control: Control) -> bool:
    """Whether its 95 % interval does."""
    return abs(math.log(control.ratio.ratio)) > half_width(control)


def control_table() -> str:
    workspace, rows = find_workspace(ROOT), list[tuple[object, ...]]()
    every = {study: list(facts_of(workspace, study)) for study in workspace.studies()}
    for name, timed in (*every.items(), ("all", list(chain(*every.values())))):
        if controls := [control for facts in timed for control in facts.controls]:
            off = sum(map(excludes_one, controls))
            share = f"{off} ({100 * off / len(controls):.1f} %)"
            half = median(100 * half_width(control) for control in controls)
            furthest = 100 * max(abs(control.ratio.ratio - 1) for control in controls)
            cells = share, f"±{half:.2f} %", f"{furthest:.2f} %"
            rows.append((name, len(timed), len(controls), *cells))
    return table(CONTROLS, rows)


# ---- chance
def largest_of(count: int) -> float:
    """The mean of the largest of so many numbers of a standard normal distribution."""
    normal = NormalDist()
    drawn = (((n + 0.5) / MEANS) ** (1 / count) for n in range(MEANS))
    return math.fsum(map(normal.inv_cdf, drawn)) / MEANS


def attention() -> Ablation:
    target = find_target(Local(), ROOT, "attention", None)
    return judge(target.load_ladder(), target.workspace.config)


@dataclass(frozen=True)
class Chance:
    """Logarithms: the standard error of a step's ratio over its parent, by the sessions of one
    recording, as the median over steps; the standard deviation between recordings on H100s.
    """

    steps: int
    sessions: float
    between: float

    @property
    def selected(self) -> tuple[float, float]:
        """What the best of as many equal steps gains, by sessions alone, and by recordings."""
        most = largest_of(self.steps)
        return most * self.sessions, most * math.hypot(self.sessions, self.between)


def chance() -> Chance:
    ladder = attention()
    ratios = [row.over_parent for row in ladder.rows if row.over_parent]
    errors = [math.sqrt(variance_of(ratio)) for ratio in ratios if ratio.sessions > 1]
    deviation, _ = known_between("nvidia-h100-80gb-hbm3")
    return Chance(len(ladder.rows), median(errors), deviation)


def kept_below_the_gate(of: Chance) -> float:
    """How often a recording keeps a step whose true gain is ``TRUE_GAIN``."""
    draw, config = random.Random(0), Config()
    sessions, gate = config.timing.sessions, config.gates.min_speedup
    spread, came = of.sessions * math.sqrt(sessions), 0
    for _ in range(TRIALS):
        middle = draw.gauss(math.log(TRUE_GAIN), of.between)
        interval = over_sessions([draw.gauss(middle, spread) for _ in range(sessions)])
        came += (interval.low or 0.0) >= gate
    return came / TRIALS


def errors_in_bf16() -> float:
    """The largest of the last dispatcher of attention over shapes in both types."""
    workspace = find_workspace(ROOT)
    step = next(s.variant for s in reversed(workspace.study("attention").ladder.steps) if s.chooses)
    folder = workspace.ablations / "attention" / "evidence" / gpu_slug(workspace.config.gpu)
    path = folder / "variants" / f"{step}.json"
    known = store.read_record(path, VariantRecord).checks.values()
    return max(one.times_reference or 0.0 for one in known)


def written() -> dict[Path, str]:
    of = chance()
    by_sessions, by_recordings = (100 * share for share in of.selected)
    luck = (
        f"The best of {of.steps} equal steps, as many as attention has, gains {by_sessions:.1f} % "
        f"in one recording by its sessions alone, and {by_recordings:.1f} % with the spread "
        f"between recordings. A step whose true gain is {100 * (TRUE_GAIN - 1):.1f} % is kept in "
        f"{100 * kept_below_the_gate(of):.1f} % of recordings on H100s."
    )
    trust = {"bounds": f"{bounds()}\n", "chance": f"{luck}\n"}
    measuring = {"gpus": f"{gpu_table()}\n", "controls": f"{control_table()}\n"}
    return {TRUST: with_parts(TRUST, trust), MEASURING: with_parts(MEASURING, measuring)}


if __name__ == "__main__":
    write(written())
