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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tools.pages import DOCS, ROOT, answer, table, timings, with_parts, write

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.speedup import T_975, Ratio, over_recordings, ratio_of, variance_of
from workbench.evidence.journal import load_journal
from workbench.evidence.records import timing_name
from workbench.evidence.store import EvidenceFolder
from workbench.judge.ladder import judge
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import HEADLINE

PAGE = DOCS / "measuring.md"
FILE = ROOT / "profiler" / "workbench" / "evidence" / "between.toml"
HEAD = """# Between recordings on GPUs of a model: the standard deviation of the logarithm of
# a step's ratio over a reference, beside that of its sessions.
# `python -m benchmarks.between` writes this file.
"""
COLUMNS = ("recordings before", "later ones", "in their interval", "half-width, median")
PAIR = ["study", "shape", "step", "over", "step_sources", "over_sources"]
MOST = 5  # recordings before, in a row of their own
FEWEST, FEWEST_STUDIES = 5, 2  # recordings of a pair and studies that have it, of a model's own
DRAWS = 10_000
SESSIONS = 5
T_SESSIONS = T_975[SESSIONS - 2]

Row = tuple[Any, ...]


def evidence_of(workspace: Workspace) -> Iterator[tuple[str, EvidenceFolder, set[str]]]:
    """Every study with each of its evidence folders and the names of its references."""
    for study in workspace.studies():
        references = {one.name for one in workspace.study(study).ladder.references}
        for path in sorted((workspace.ablations / study / "evidence").iterdir()):
            yield study, EvidenceFolder(path), references


def recorded(workspace: Workspace) -> pd.DataFrame:
    """Every recording of each step over each reference that was recorded more than once on a GPU
    model, oldest first: its timing file, its GPU, and the logarithm of the ratio.
    """

    def rows() -> Iterator[Row]:
        for study, folder, references in evidence_of(workspace):
            for entry in sorted(load_journal(folder).sessions, key=lambda entry: entry.date):
                times = {name: float(value) for name, value in entry.medians.items() if value > 0}
                prints, gpu = entry.fingerprints, entry.gpu_uuid or ""
                for step in [] if entry.cut_short else times.keys() - references:
                    for over in times.keys() & references:
                        pair = study, entry.shape, step, over, prints[step], prints[over]
                        value = math.log(times[over] / times[step])
                        yield folder.gpu, *pair, entry.file, gpu, value

    every = pd.DataFrame(rows(), columns=["model", *PAIR, "file", "gpu", "value"])
    return every[every.groupby(["model", *PAIR]).value.transform("size") > 1]


def sampled(workspace: Workspace) -> pd.DataFrame:
    """The ratios of the recordings whose samples are kept, with the interval over the sessions and
    the variance that it stands for.
    """

    def rows() -> Iterator[Row]:
        for study, folder, references in evidence_of(workspace):
            for together in timings(folder.root):
                timing, times = together.timing, together.times
                names = {name for name, regime, again in times if regime == HEADLINE and not again}
                prints = timing.fingerprints
                for step in sorted(names - references):
                    for over in sorted(names & references):
                        before, after = (times[name, HEADLINE, False] for name in (over, step))
                        ratio = ratio_of(before, after)
                        if ratio and ratio.low and ratio.high and ratio.sessions > 1:
                            pair = study, timing.shape, step, over, prints[step], prints[over]
                            ends = ratio.low, ratio.high, variance_of(ratio)
                            yield folder.gpu, *pair, timing_name(together.file), *ends

    columns = ["model", *PAIR, "file", "low", "high", "variance"]
    return pd.DataFrame(rows(), columns=columns)


def deviations_of(recordings: pd.DataFrame) -> pd.Series[float]:
    """The deviation between recordings of each study: of all, less the ``variance`` that each has
    of its sessions.
    """
    pairs = recordings.groupby(PAIR).agg(
        freedom=("value", lambda values: len(values) - 1),
        square=("value", "var"),
        own=("variance", "first"),
    )
    pairs["squares"] = pairs.freedom * (pairs.square - pairs.own)
    studies = pairs.groupby("study")[["squares", "freedom"]].sum()
    return (studies.squares / studies.freedom).clip(lower=0) ** 0.5


def together(deviations: pd.Series[float]) -> float:
    """Of several studies, which count alike: one recording changes all pairs of its study."""
    return math.sqrt((deviations**2).mean())


def later(recordings: pd.DataFrame, deviations: pd.Series[float]) -> pd.DataFrame:
    """Every recording with so many ``before`` it: whether it lies in their interval, and the
    half-width of that. The interval takes the deviation of the other studies.
    """

    def rows() -> Iterator[Row]:
        others = {study: together(deviations.drop(study)) for study in deviations.index}
        for (study, shape, *_), pair in recordings.groupby(PAIR, sort=False):
            half = T_SESSIONS * math.sqrt(pair.variance.iloc[0])
            ratios = [
                Ratio(math.exp(v), math.exp(v - half), math.exp(v + half), SESSIONS)
                for v in pair.value
            ]
            for count in range(1, len(ratios)):
                told = over_recordings(ratios[:count], others[study])
                assert told.later_low is not None
                assert told.later_high is not None
                inside = told.later_low <= ratios[count].ratio <= told.later_high
                half_width = math.log(told.later_high / told.later_low) / 2
                yield study, shape, pair.file.iloc[count], min(count, MOST), inside, half_width

    columns = ["study", "shape", "file", "before", "inside", "half_width"]
    return pd.DataFrame(rows(), columns=columns)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def shown(count: object, found: pd.DataFrame) -> tuple[str, ...]:
    name = f"{count} or more" if count == MOST else f"{count}"
    half = f"±{100 * found.half_width.median():.2f} %"
    return name, f"{len(found):,}", percent(found.inside.mean()), half


def clustered(found: pd.DataFrame) -> str:
    """How many recordings the later ones are of, and a 95 % interval of the share inside, by
    drawing shapes of studies again (bootstrap): ratios of one recording move together.
    """
    clusters = found.groupby(["study", "shape"], sort=False).inside.agg(["sum", "size"])
    draw, counts = random.Random(0), list(clusters.itertuples(index=False, name=None))
    drawn = (zip(*draw.choices(counts, k=len(counts)), strict=True) for _ in range(DRAWS))
    shares = sorted(sum(inside) / sum(sizes) for inside, sizes in drawn)
    low, high = (100 * shares[round(end * (DRAWS - 1))] for end in (0.025, 0.975))
    return (
        f"The later ones are ratios of {found.groupby(['study', 'shape', 'file']).ngroups} "
        f"recordings at {len(clusters)} shapes of the studies, so that the 95 % interval of "
        f"{percent(found.inside.mean())} is [{low:.1f}, {high:.1f}]"
    )


def often_recorded(recordings: pd.DataFrame) -> set[str]:
    """The studies whose recordings say how far they vary: two of one evening do not."""
    sizes = recordings.groupby(PAIR).value.transform("size")
    return set(recordings[sizes >= FEWEST].study)


def written() -> dict[Path, str]:
    workspace, text, page = find_workspace(ROOT), HEAD, ""
    every, samples = recorded(workspace), sampled(workspace)
    # Where no samples of a pair are kept, those of others say what the sessions' variance is.
    variances = samples.drop_duplicates(["model", *PAIR], keep="last")
    every = every.merge(variances[["model", *PAIR, "variance"]], on=["model", *PAIR], how="left")
    of_model = every.model.map(variances.groupby("model").variance.mean())
    every["variance"] = every.variance.fillna(of_model).fillna(variances.variance.mean())
    for model, recordings in every.groupby("model"):
        recordings = recordings[recordings.study.isin(often_recorded(recordings))]
        if recordings.study.nunique() < FEWEST_STUDIES:
            continue
        studies = deviations_of(recordings)
        between, gpus = together(studies), recordings.gpu.nunique()
        pairs = recordings.groupby(PAIR).ngroups
        text += f"\n[{model}]\ndeviation = {between:.5f}\n"
        text += f"pairs = {pairs}\nrecordings = {len(recordings)}\ngpus = {gpus}\n"
        found = later(recordings, studies)
        rows = [shown(count, rows) for count, rows in found.groupby("before")]
        inside = found.groupby("study").inside.mean()
        page += (
            f"\n{table(COLUMNS, [*rows, shown('all', found)])}\n\n"
            f"{model}: {pairs:,} pairs of a step "
            f"and a reference, on {gpus} GPUs. {clustered(found)}. The standard deviation between "
            f"recordings is {100 * between:.2f} %; for each study the table takes that of the "
            f"others. {inside.idxmin()} has the fewest inside: {percent(inside.min())}.\n"
        )
    others = samples.merge(every, on=["model", *PAIR]).query("file_x != file_y")
    held = np.exp(others.value).between(others.low, others.high)
    page += (
        f"\nThe interval over the sessions of one recording holds {100 * held.mean():.0f} % of "
        f"{len(held):,} others.\n"
    )
    return {FILE: text, PAGE: with_parts(PAGE, {"between": page.lstrip()})}


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
