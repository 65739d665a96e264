"""How far ratios of steps over references vary between recordings.

The journal has the medians of every recording. Those of the same sources at the same shape, on any
GPU of a model and any day, should have one ratio. It varies by more than its sessions do.

python -m benchmarks.between    writes evidence/between.toml and a table of docs/measuring.md:
                                how many later recordings lie in the interval of those before
python -m benchmarks.between STUDY...    first records the fastest step of each study over its
                                         references once more, which needs a GPU
"""

from __future__ import annotations

import math
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, variance
from typing import NamedTuple

from tools.pages import DOCS, ROOT, answer, table, timings, with_part, write

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.speedup import Ratio, over_recordings, ratio_of, variance_of
from workbench.evidence.journal import load_journal
from workbench.evidence.records import timing_name
from workbench.evidence.store import EvidenceFolder
from workbench.judge.ladder import judge
from workbench.study.workspace import find_workspace
from workbench.words import HEADLINE, grouped

PAGE = DOCS / "measuring.md"
FILE = ROOT / "profiler" / "workbench" / "evidence" / "between.toml"
HEAD = """# Between recordings on GPUs of a model: the standard deviation of the logarithm of
# a step's ratio over a reference, beside that of its sessions.
# `python -m benchmarks.between` writes this file.
"""
COLUMNS = ("recordings before", "later ones", "in their interval", "half-width, median")
MOST = 5  # recordings before, in a row of their own
FEWEST, FEWEST_STUDIES = 5, 2  # recordings of a pair and studies that have it, of a model's own
DRAWS = 10_000
FIVE_SESSIONS = 2.776  # Student's t

Pair = tuple[str, ...]  # study, shape, step and reference with their fingerprints


@dataclass(frozen=True)
class Recorded:
    """One recording of a pair: its timing file, its GPU, and the logarithm of the ratio."""

    file: str
    gpu: str
    value: float


class Later(NamedTuple):
    """A recording of a study at a shape, in a timing ``file``, with so many ``before`` it: whether
    it lies in their interval, and the half-width of that.
    """

    study: str
    shape: str
    file: str
    before: int
    inside: bool
    half_width: float


def pairs(study: str, folder: EvidenceFolder, references: set[str]) -> dict[Pair, list[Recorded]]:
    """Every recording of each step over each reference, oldest first."""
    found: dict[Pair, list[Recorded]] = defaultdict(list)
    for entry in sorted(load_journal(folder).sessions, key=lambda entry: entry.date):
        times = {name: float(value) for name, value in entry.medians.items() if value > 0}
        for step in [] if entry.cut_short else times.keys() - references:
            for over in times.keys() & references:
                prints = entry.fingerprints[step], entry.fingerprints[over]
                one = Recorded(
                    entry.file, entry.gpu_uuid or "", math.log(times[over] / times[step])
                )
                found[study, entry.shape, step, over, *prints].append(one)
    return found


def kept(
    study: str, folder: EvidenceFolder, references: set[str]
) -> Iterator[tuple[Pair, str, Ratio]]:
    """The same with the interval over the sessions, of the recordings whose samples are kept."""
    for together in timings(folder.root):
        timing, times = together.timing, together.times
        names = {name for name, regime, control in times if regime == HEADLINE and not control}
        for step in sorted(names - references):
            for over in sorted(names & references):
                before, after = (times[name, HEADLINE, False] for name in (over, step))
                ratio = ratio_of(before, after)
                if ratio and ratio.low and ratio.sessions > 1:
                    prints = timing.fingerprints[step], timing.fingerprints[over]
                    key = study, timing.shape, step, over, *prints
                    yield key, timing_name(together.file), ratio


def deviation(every: Iterable[tuple[Sequence[Recorded], float]]) -> float:
    """Between recordings: of all, less the variance that each has of its sessions."""
    squares, freedom = 0.0, 0
    for pair, own in every:
        squares += (len(pair) - 1) * (variance(one.value for one in pair) - own)
        freedom += len(pair) - 1
    return math.sqrt(max(0.0, squares / freedom))


def by_study(
    every: Mapping[Pair, Sequence[Recorded]], own: Mapping[Pair, float]
) -> dict[str, float]:
    """The deviation between recordings of each study."""
    return {
        study: deviation((pair, own[key]) for key, pair in every.items() if key[0] == study)
        for study in {key[0] for key in every}
    }


def together(deviations: Iterable[float]) -> float:
    """Of several studies, which count alike: one recording changes all pairs of its study."""
    return math.sqrt(fmean(one**2 for one in deviations))


def of_others(deviations: Mapping[str, float]) -> dict[str, float]:
    """For each study the deviation between recordings of the other studies."""
    return {
        study: together(one for other, one in deviations.items() if other != study)
        for study in deviations
    }


def later(
    every: Mapping[Pair, Sequence[Recorded]],
    own: Mapping[Pair, float],
    known: Mapping[str, float],
) -> list[Later]:
    """Of every recording with others before it. ``known`` has the deviation that a study takes."""
    found = []
    for key, pair in every.items():
        values, half = [one.value for one in pair], FIVE_SESSIONS * math.sqrt(own[key])
        ratios = [Ratio(math.exp(v), math.exp(v - half), math.exp(v + half), 5) for v in values]
        for count in range(1, len(values)):
            told = over_recordings(ratios[:count], known[key[0]])
            assert told.later_low is not None
            assert told.later_high is not None
            inside = told.later_low <= ratios[count].ratio <= told.later_high
            half_width = math.log(told.later_high / told.later_low) / 2
            file = pair[count].file
            found.append(Later(key[0], key[1], file, min(count, MOST), inside, half_width))
    return found


def of_sessions(
    every: Mapping[Pair, Sequence[Recorded]], samples: Sequence[tuple[Pair, str, Ratio]]
) -> list[bool]:
    """Whether other recordings lie in the interval over the sessions of one."""
    return [
        (ratio.low or 0.0) <= math.exp(other.value) <= (ratio.high or 0.0)
        for pair, file, ratio in samples
        for other in every.get(pair, ())
        if other.file != file
    ]


def row(name: str, found: Sequence[Later]) -> tuple[str, ...]:
    half = median(one.half_width for one in found)
    return name, f"{len(found):,}", percent(one.inside for one in found), f"±{100 * half:.2f} %"


def percent(inside: Iterable[bool]) -> str:
    return f"{100 * fmean(inside):.1f} %"


def clustered(found: Sequence[Later]) -> str:
    """How many recordings the later ones are of, and a 95 % interval of the share inside, by
    drawing shapes of studies again (bootstrap): ratios of one recording move together.
    """
    clusters = grouped(((one.study, one.shape), one.inside) for one in found)
    draw, names = random.Random(0), list(clusters)
    drawn = (draw.choices(names, k=len(names)) for _ in range(DRAWS))
    shares = sorted(fmean(i for name in some for i in clusters[name]) for some in drawn)
    low, high = (100 * shares[round(end * (DRAWS - 1))] for end in (0.025, 0.975))
    recordings = {(one.study, one.shape, one.file) for one in found}
    return (
        f"The later ones are ratios of {len(recordings)} recordings at {len(clusters)} shapes of "
        f"the studies, so that the 95 % interval of {percent(one.inside for one in found)} is "
        f"[{low:.1f}, {high:.1f}]"
    )


def several(every: Mapping[Pair, Sequence[Recorded]]) -> bool:
    """Whether the recordings say how far those of their model vary."""
    return len({key[0] for key, pair in every.items() if len(pair) >= FEWEST}) >= FEWEST_STUDIES


def gpus_of(every: Mapping[Pair, Sequence[Recorded]]) -> int:
    return len({one.gpu for pair in every.values() for one in pair})


def written() -> dict[Path, str]:
    workspace, text, page = find_workspace(ROOT), HEAD, ""
    every: dict[str, dict[Pair, list[Recorded]]] = defaultdict(dict)
    samples: dict[str, list[tuple[Pair, str, Ratio]]] = defaultdict(list)
    for study in workspace.studies():
        references = {one.name for one in workspace.study(study).ladder.references}
        for path in sorted((workspace.ablations / study / "evidence").iterdir()):
            given = study, EvidenceFolder(path), references
            every[path.name] |= {key: pair for key, pair in pairs(*given).items() if len(pair) > 1}
            samples[path.name] += kept(*given)
    # Where no samples of a pair are kept, those of others say what the sessions' variance is.
    sampled = {pair: variance_of(ratio) for one in samples.values() for pair, _, ratio in one}
    owns = {
        gpu: {key: sampled.get(key, fmean(sampled.values())) for key in known}
        for gpu, known in every.items()
    }
    deviations = {gpu: by_study(known, owns[gpu]) for gpu, known in every.items() if several(known)}
    for gpu, studies in deviations.items():
        known, own, between = every[gpu], owns[gpu], together(studies.values())
        gpus, count = gpus_of(known), sum(map(len, known.values()))
        text += f"\n[{gpu}]\ndeviation = {between:.5f}\n"
        text += f"pairs = {len(known)}\nrecordings = {count}\ngpus = {gpus}\n"
        found = later(known, own, of_others(studies))
        rows = [
            row(f"{count}" if count < MOST else f"{count} or more", of_count)
            for count in range(1, MOST + 1)
            if (of_count := [one for one in found if one.before == count])
        ]
        least = min(studies, key=lambda study: fmean(o.inside for o in found if o.study == study))
        page += (
            f"\n{table(COLUMNS, [*rows, row('all', found)])}\n\n"
            f"{gpu}: {len(known):,} pairs of a step "
            f"and a reference, on {gpus} GPUs. {clustered(found)}. The standard deviation between "
            f"recordings is {100 * between:.2f} %; for each study the table takes that of the "
            f"others. {least} has the fewest inside: "
            f"{percent(one.inside for one in found if one.study == least)}.\n"
        )
    inside = [one for gpu, known in every.items() for one in of_sessions(known, samples[gpu])]
    held = f"{100 * fmean(inside):.0f} % of {len(inside):,} others"
    page += f"\nThe interval over the sessions of one recording holds {held}.\n"
    return {FILE: text, PAGE: with_part(PAGE.read_text("utf-8"), "between", page.lstrip())}


def again(study: str, root: Path = ROOT) -> None:
    """Time the fastest step of a study and its references once more, in a copy of the workspace
    without timings: of that recording the lines of the journal are kept. Raises RuntimeError
    where there are none, or no times on this GPU model.
    """
    target = find_target(Local(), root, study, None)
    ladder = judge(target.load_ladder(target.steps([])), target.workspace.config)
    names = [row.variant for row in (ladder.best, *ladder.references) if row and row.time]
    if not names:
        raise RuntimeError(f"{study} has no times on this GPU model")
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "workspace"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".*", "timings"))
        before = {path: path.stat().st_size for path in copy.glob("ablations/**/*.jsonl")}
        told = answer("profile", *names, "--study", study, "--project", str(copy), "--json")
        added = b""
        for path in copy.glob("ablations/**/*.jsonl"):
            with (root / path.relative_to(copy)).open("ab") as own:
                own.write(new := path.read_bytes()[before.get(path, 0) :])
            added += new
        if not added:
            raise RuntimeError(f"{study} was not recorded: {told}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        again(name)
    write(written())
