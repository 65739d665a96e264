"""Write the tables of docs/sizes.md from recorded evidence: attention at the shapes of
its study, mixture of experts over the number of tokens.

python -m tools.sizes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.pages import DOCS, ROOT, table, with_parts, write

from workbench.app.executor import Local
from workbench.app.target import of_one_gpu, target_at
from workbench.errors import EnvironmentLacks
from workbench.judge.across import AtShape, at_shape, geometric_mean
from workbench.judge.provenance import throttling_warnings
from workbench.judge.session_checks import timing_facts
from workbench.judge.times import ShapeTimes, main_timing
from workbench.render.doc import fine, interval, microseconds
from workbench.render.document.printed_ladder import shape_words
from workbench.study.params import pick_shapes
from workbench.study.workspace import Workspace, find_workspace

PAGE = DOCS / "sizes.md"
NONE = "not collected"
TYPES = "float16", "bfloat16"
KEYS = {"up to 512 keys": range(513), "from 2048 keys": range(2048, 1 << 20)}
MODELS, TOKENS = ("mixtral", "deepseek", "qwen3"), "T=1|16|128|1024|8192"
# Steps with the kernels that the last dispatcher of experts calls, newest first: they stand for it
# where it was not timed.
CALLS = ("fix25", "fix21", "fix20", "fix18", "fix15")


def dispatcher(workspace: Workspace, study: str) -> str:
    """The last one of a study."""
    steps = workspace.study(study).ladder.steps
    return next(step.variant for step in reversed(steps) if step.chooses)


class Timed(NamedTuple):
    """A shape, and the newest of several versions that was timed there with its times."""

    times: ShapeTimes
    version: str
    point: AtShape


def timed(workspace: Workspace, study: str, shapes: str, versions: Sequence[str]) -> list[Timed]:
    """At the shapes that are recorded, on one GPU."""
    references = [reference.name for reference in workspace.study(study).ladder.references]
    names, found = [*versions, *references], []
    try:
        picked = pick_shapes(workspace.study(study), shapes)
        targets = of_one_gpu([target_at(Local(), workspace, each) for each in picked])
    except EnvironmentLacks:
        return []
    for target in targets:
        evidence = target.load(names)
        times = ShapeTimes(evidence, main_timing(evidence, names))
        points = ((version, at_shape(times, references, version)) for version in versions)
        version, point = next((each for each in points if each[1]), ("", None))
        if point:
            found.append(Timed(times, version, point))
    return found


def cell(point: AtShape) -> str:
    if point.speedup_over_fastest is None:
        return NONE
    time = microseconds(point.microseconds.value)
    alone = f", {interval(point.alone)} alone" if point.alone else ""
    return f"{time}, {interval(point.speedup_over_fastest)} {point.fastest}{alone}"


def claimed(every: Sequence[Timed]) -> list[float]:
    return [each.point.claimed.ratio for each in every if each.point.claimed]


def fine_or_none(ratio: float | None) -> str:
    return NONE if ratio is None else fine(ratio)


# ---- attention
def at_shapes(workspace: Workspace) -> str:
    """The attention study's shapes in fp16 and bf16, and what they come to for short and for long
    sequences. A cell names the newest step that was timed there unless it is the last dispatcher.
    """
    study, last = workspace.study("attention"), dispatcher(workspace, "attention")
    steps = [step.variant for step in reversed(study.ladder.steps)]
    shapes = {name: shape for name, shape in study.shapes.items() if shape.profiled}
    found = {
        name: [timed(workspace, "attention", f"{name},dtype={dtype}", steps) for dtype in TYPES]
        for name in shapes
    }
    rows = []
    for name, shape in shapes.items():
        words = shape_words({key: v for key, v in shape.parameters.items() if key != "dtype"})
        cells = (
            f"{'' if of[0].version == last else f'`{of[0].version}` '}{cell(of[0].point)}"
            if of
            else NONE
            for of in found[name]
        )
        rows.append([words, *cells])
    for head, keys in KEYS.items():
        names = [name for name, shape in shapes.items() if shape.S in keys]
        columns = zip(*(found[name] for name in names), strict=True)
        every = [claimed([each for of in column for each in of]) for column in columns]
        every = [ratios if len(ratios) == len(names) else [] for ratios in every]
        rows.append([f"geometric mean, {head}", *map(fine_or_none, map(geometric_mean, every))])
        rows.append([f"worst, {head}", *(fine_or_none(min(of, default=None)) for of in every)])
    return table(("", *TYPES), rows, left=1 + len(TYPES))


# ---- experts
def over_tokens(workspace: Workspace, model: str) -> Mapping[int, Timed]:
    """The last dispatcher by number of tokens."""
    versions = dispatcher(workspace, "moe"), *CALLS
    found = timed(workspace, "moe", f"{model}-t1024,{TOKENS}", versions)
    by_tokens = {int(each.point.parameters["T"]): each for each in found}
    return dict(sorted(by_tokens.items()))


def power_limit(found: Mapping[int, Timed], reference: str) -> str:
    """The lowest SM clock of those at the power limit, and from which size on."""
    tables = {f"T={tokens}": each.times.table for tokens, each in found.items()}
    highest = max(mhz for timing in tables.values() if timing for mhz in timing.clocks)
    facts = {size: timing_facts(timing, reference, highest) for size, timing in tables.items()}
    slowed = {size: of.throttling for size, of in facts.items() if of and of.throttling}
    for finding in throttling_warnings(slowed):
        values: Mapping[str, Any] = finding.values
        low, most = (f"{values[key] / 1e3:.2f}" for key in ("sm_clock_mhz", "most_mhz"))
        return f"{low} of {most} GHz, from {values['shapes'][0]}"
    return "not reached"


def over_sizes(workspace: Workspace) -> str:
    """Times of experts over the tokens."""
    reference = workspace.study("moe").ladder.primary_reference
    found = {model: over_tokens(workspace, model) for model in MODELS}
    rows = []
    for tokens in dict.fromkeys(tokens for of in found.values() for tokens in of):
        cells = (cell(of[tokens].point) if tokens in of else NONE for of in found.values())
        rows.append([f"T={tokens}", *cells])
    means = (fine_or_none(geometric_mean(claimed([*of.values()]))) for of in found.values())
    limits = (power_limit(of, reference) for of in found.values())
    rows += [["geometric mean", *means], ["SM clock at the power limit", *limits]]
    return table(["", *found], rows, left=1 + len(found))


def written() -> dict[Path, str]:
    workspace = find_workspace(ROOT)
    made = {"sizes: moe": over_sizes(workspace), "shapes": at_shapes(workspace)}
    return {PAGE: with_parts(PAGE, {name: f"{text}\n" for name, text in made.items()})}


if __name__ == "__main__":
    write(written())
