"""Write the tables and charts of docs/sizes.md from recorded evidence: attention at the shapes of
its study, mixture of experts over the number of tokens.

python -m tools.sizes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tools.pages import DOCS, ROOT, table, with_part, write

from workbench.app.executor import Local
from workbench.app.target import Target, of_one_gpu, target_at
from workbench.errors import EnvironmentLacks
from workbench.judge.findings import Finding
from workbench.judge.times import (
    AcrossShapes,
    AtShape,
    ShapeTimes,
    at_shape,
    geometric_mean,
    main_timing,
    timing_facts,
    timing_warnings,
)
from workbench.render import markdown
from workbench.render.chart import svg
from workbench.render.chart.charts import CHARTS, SIZES, size_rows
from workbench.render.document.blocks import Chart
from workbench.render.document.phrases import shape_words
from workbench.render.numbers import fine, interval, microseconds
from workbench.study.model import Shape
from workbench.study.params import pick_shapes
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Parameter

LENGTHS, TOKENS = "b4h16s2048d64,S=128..16384*2", "T=1|16|128|1024|8192"
NONE = "not collected"
TYPES = "float16", "bfloat16"
KEYS = {"up to 512 keys": range(513), "from 2048 keys": range(2048, 1 << 20)}
PAGE = DOCS / "sizes.md"


@dataclass(frozen=True)
class Page:
    """A part of the page, about the last dispatcher of a study; ``cases`` are shapes that differ in
    the parameter ``over``.
    Where that one was not timed, ``calls`` are earlier steps with the same kernels, newest first.
    """

    study: str
    over: str
    cases: Mapping[str, str]
    calls: tuple[str, ...] = ()

    def versions(self, workspace: Workspace) -> tuple[str, ...]:
        steps = workspace.study(self.study).ladder.steps
        return (next(s.variant for s in reversed(steps) if s.chooses), *self.calls)


ATTENTION = Page(
    "attention",
    "S",
    {
        f"d{width}{'-causal' * causal}": f"{LENGTHS},D={width},causal={causal}"
        for width in (64, 128)
        for causal in (0, 1)
    },
)
EXPERTS = Page(
    "moe",
    "T",
    {name: f"{name}-t1024,{TOKENS}" for name in ("mixtral", "deepseek", "qwen3")},
    calls=("fix25", "fix21", "fix20", "fix18", "fix15"),
)
PAGES = (EXPERTS,)  # attention is not recorded over its lengths


@dataclass(frozen=True)
class OverSizes:
    """Variants at shapes that differ in ``parameter`` alone: ``sizes`` are its values by shape."""

    study: str
    gpu: str
    parameter: str
    sizes: Mapping[str, float]
    others: Mapping[str, Parameter]
    variants: tuple[AcrossShapes, ...]
    references: tuple[str, ...]
    warnings: tuple[Finding, ...] = ()


def over_shapes(targets: Sequence[Target], names: Sequence[str], parameter: str) -> OverSizes:
    """The variants of these names and the references. Times of references are those beside the
    first of the variants, if it was timed with them.
    """
    first, ladder = targets[0], targets[0].study.ladder
    references = tuple(reference.name for reference in ladder.references)
    every = [*names, *references]
    evidence = {target.shape: target.load(every) for target in targets}
    times = {name: ShapeTimes(each, main_timing(each, every)) for name, each in evidence.items()}
    sizes = {name: float(each.parameters[parameter]) for name, each in evidence.items()}

    def across(name: str) -> AcrossShapes:
        beside = names[0] if name in references else ""
        results = (at_shape(each, references, name, beside) for each in times.values())
        return AcrossShapes(name, tuple(filter(None, results)))

    tables = {f"{parameter}={size:g}": times[name].table for name, size in sizes.items()}
    clocks = (mhz for timing in tables.values() if timing is not None for mhz in timing.clocks)
    highest, reference = max(clocks, default=None), ladder.primary_reference
    facts = {size: timing_facts(timing, reference, highest) for size, timing in tables.items()}
    shared = evidence[first.shape].parameters.items()
    return OverSizes(
        study=first.study.name,
        gpu=first.folder.gpu,
        parameter=parameter,
        sizes=sizes,
        others={name: value for name, value in shared if name != parameter},
        variants=tuple(map(across, every)),
        references=references,
        warnings=tuple(timing_warnings(facts, next(iter(facts)) if len(facts) == 1 else "")),
    )


def result_at(line: AcrossShapes, shape: str) -> AtShape | None:
    return next((result for result in line.shapes if result.shape == shape), None)


def size_lines(over: OverSizes, name: str) -> svg.Drawing:
    """Return the chart: the version timed at most sizes, and beside it the references."""
    subtitle = f"{over.study}, {shape_words(over.others)}, {over.gpu}"
    versions = [line for line in over.variants if line.variant not in over.references]
    base = max(reversed(versions), key=lambda line: len(line.shapes))
    rows = {
        f"{over.parameter}={size:g}": {
            line.variant: point.microseconds.value
            for line in reversed(over.variants)
            if (point := result_at(line, shape))
        }
        for shape, size in over.sizes.items()
    }
    fill = partial(size_rows, rows=rows, base=base.variant)
    kind, title = CHARTS[SIZES], f"Time over {over.parameter}"
    return svg.Drawing(name, kind.alt, kind.caption, title, subtitle, fill)


def targets_of(workspace: Workspace, page: Page, case: str) -> list[Target]:
    """Those of the shapes of a case that are recorded on one GPU, by rising size."""
    picked = pick_shapes(workspace.study(page.study), page.cases[case])
    targets = of_one_gpu([target_at(Local(), workspace, each) for each in picked])
    return sorted(targets, key=lambda each: each.study.shapes[each.shape].parameters[page.over])


def over(workspace: Workspace, page: Page, case: str) -> OverSizes | None:
    """One line for all ``versions``; None if a size has no current evidence."""
    try:
        targets = targets_of(workspace, page, case)
    except EnvironmentLacks:
        return None
    versions = page.versions(workspace)
    found = over_shapes(targets, versions, page.over)
    lines = {line.variant: line for line in found.variants}
    own = [lines.pop(version) for version in versions]
    at_size = (filter(None, (result_at(line, shape) for line in own)) for shape in found.sizes)
    points = tuple(point for point in (next(points, None) for points in at_size) if point)
    if len(points) < len(pick_shapes(workspace.study(page.study), page.cases[case])):
        return None
    return replace(found, variants=(replace(own[0], shapes=points), *lines.values()))


def cell(point: AtShape | None) -> str:
    if point is None or point.speedup_over_fastest is None:
        return NONE
    time = microseconds(point.microseconds.value)
    alone = f", {interval(point.alone)} alone" if point.alone else ""
    return f"{time}, {interval(point.speedup_over_fastest)} {point.fastest}{alone}"


def power_limit(found: OverSizes | None) -> str:
    """The lowest SM clock of those at the power limit, and from which size on."""
    every: tuple[Any, ...] = found.warnings if found else ()
    for values in (finding.values for finding in every if finding.code == "timing.throttled"):
        low, most = (f"{values[k] / 1e3:.2f}" for k in ("sm_clock_mhz", "most_mhz"))
        return f"{low} of {most} GHz, from {values['shapes'][0]}"
    return "not reached" if found else NONE


def section(workspace: Workspace, page: Page) -> tuple[str, Mapping[str, str]]:
    """Times over the sizes and charts as Markdown; the charts by path in docs/."""
    found = {case: over(workspace, page, case) for case in page.cases}
    known = {case: each for case, each in found.items() if each}
    if not known:
        return NONE, {}
    first = next(iter(known.values()))
    own = [each.variants[0] if each else None for each in found.values()]
    rows = [
        [f"{first.parameter}={size:g}", *(cell(o.shapes[i]) if o else NONE for o in own)]
        for i, size in enumerate(first.sizes.values())
    ]
    means = [fine_or_none(o.geometric_mean if o else None) for o in own]
    limits = map(power_limit, found.values())
    rows += [["geometric mean", *means], ["SM clock at the power limit", *limits]]
    parts = [table(["", *found], rows, left=1 + len(found))]
    charts: dict[str, str] = {}
    for case, each in known.items():
        name = f"sizes/{case}"
        charts |= size_lines(each, name=name).files()
        alt = f"Time of {page.study} over {each.parameter}, beside the references: {case}"
        parts.append(markdown.picture(Chart(name, alt, "")))
    return "\n\n".join(parts), charts


def at_shapes(workspace: Workspace) -> str:
    """The attention study's shapes in fp16 and bf16, each of the last step timed there, and what
    they come to for short and for long sequences.
    """
    shapes = workspace.study("attention").shapes
    names = [name for name, shape in shapes.items() if shape.profiled]
    found = {name: [last_step(workspace, f"{name},dtype={t}") for t in TYPES] for name in names}
    rows = [[in_words(shapes[name]), *(step_cell(*e) for e in found[name])] for name in names]
    for head, keys in KEYS.items():
        these = [found[name] for name in names if shapes[name].S in keys]
        columns = zip(*these, strict=True)
        ratios = [[at.claimed.ratio for _, at in of if at and at.claimed] for of in columns]
        ratios = [each if len(each) == len(these) else [] for each in ratios]
        rows.append([f"geometric mean, {head}", *map(fine_or_none, map(geometric_mean, ratios))])
        rows.append([f"worst, {head}", *(fine_or_none(min(each, default=None)) for each in ratios)])
    return table(("", *TYPES), rows, left=1 + len(TYPES))


def in_words(shape: Shape) -> str:
    known = {name: value for name, value in shape.parameters.items() if name != "dtype"}
    return shape_words(known)


def step_cell(step: str, at: AtShape | None) -> str:
    return f"`{step}` {cell(at)}" if at else NONE


def fine_or_none(ratio: float | None) -> str:
    return NONE if ratio is None else fine(ratio)


def last_step(workspace: Workspace, shape: str) -> tuple[str, AtShape | None]:
    """The newest step that was timed at a shape, and its times."""
    picked = pick_shapes(workspace.study("attention"), shape)[0]
    try:
        target = target_at(Local(), workspace, picked)
    except EnvironmentLacks:
        return "", None
    ladder = target.study.ladder
    steps = [step.variant for step in reversed(ladder.steps)]
    references = [reference.name for reference in ladder.references]
    names = [*steps, *references]
    evidence = target.load(names)
    times = ShapeTimes(evidence, main_timing(evidence, names))
    every = ((step, at_shape(times, references, step)) for step in steps)
    return next(((s, at) for s, at in every if at and at.speedup_over_fastest), ("", None))


def written() -> dict[Path, str]:
    """The page and its charts."""
    workspace, text, charts = find_workspace(ROOT), PAGE.read_text("utf-8"), dict[str, str]()
    for page in PAGES:
        shown, drawn = section(workspace, page)
        charts |= drawn
        text = with_part(text, f"sizes: {page.study}", f"{shown}\n")
    text = with_part(text, "shapes", at_shapes(workspace) + "\n")
    return {PAGE: text} | {DOCS / name: made for name, made in charts.items()}


if __name__ == "__main__":
    write(written())
