"""Write the charts and tables of docs/sizes.md (attention over the sequence length, and in bf16)
and of docs/experts.md (mixture of experts over the number of tokens) from recorded evidence.

python -m benchmarks.sizes
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.app.executor import Local
from workbench.app.sweep import OverShapes
from workbench.app.target import target_at
from workbench.errors import EnvironmentLacks
from workbench.evidence.recorded import Evidence, derived_shapes
from workbench.judge.sizes import OverSizes, over_sizes
from workbench.judge.snapshot import at_one_shape
from workbench.render import markdown
from workbench.render.chart import svg
from workbench.render.chart.time_charts import size_lines
from workbench.render.document.timings import sizes_section
from workbench.render.numbers import interval, microseconds
from workbench.study.params import pick_shapes, with_derived
from workbench.study.workspace import Workspace, find_workspace

ROOT = Path(__file__).resolve().parents[1]
LENGTHS, TOKENS = "b4h16s2048d64,S=128..16384*2", "T=1|16|128|1024|8192"
COMMAND = re.compile(r"workbench sweep \S+ ")
PART = re.compile(r"(<!-- sizes: (?P<case>[\w-]+) -->\n).*?(<!-- /sizes -->)", re.DOTALL)
BFLOAT16 = re.compile(r"(<!-- bfloat16 -->\n).*?(<!-- /bfloat16 -->)", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page of docs/ about the last dispatcher of a study; ``cases`` are ranges of shapes. Where
    that one was not timed, ``calls`` are earlier steps with the same kernels there, newest first.
    """

    name: str
    study: str
    cases: Mapping[str, str]
    calls: tuple[str, ...]

    def versions(self, workspace: Workspace) -> tuple[str, ...]:
        steps = workspace.study(self.study).ladder.steps
        last = next(step.variant for step in reversed(steps) if step.chooses)
        known = {step.variant for step in steps}
        return (last, *(name for name in self.calls if name in known))


ATTENTION = Page(
    "sizes.md",
    "attention",
    {
        f"d{width}{'-causal' * causal}": f"{LENGTHS},D={width},causal={causal}"
        for width in (64, 128)
        for causal in (0, 1)
    },
    calls=("fix27",),
)
EXPERTS = Page(
    "experts.md",
    "moe",
    {name: f"{name}-t1024,{TOKENS}" for name in ("mixtral", "deepseek", "qwen3")},
    calls=("fix25", "fix21", "fix20", "fix18", "fix15"),
)


def over(workspace: Workspace, page: Page, case: str) -> OverSizes | None:
    """One line for all ``versions``; None if a size has no current evidence."""
    picked, _ = pick_shapes(workspace.study(page.study), page.cases[case])
    try:
        targets = [target_at(Local(), workspace, each) for each in picked]
    except EnvironmentLacks:
        return None
    versions = page.versions(workspace)
    (found,) = OverShapes(tuple(targets), versions).over()
    lines = {line.variant: line for line in found.variants}
    own = [lines.pop(version) for version in versions]
    at_size = (filter(None, (line.at(shape) for line in own)) for shape in found.sizes)
    points = tuple(point for point in (next(points, None) for points in at_size) if point)
    if len(points) < len(picked):
        return None
    return replace(found, variants=(replace(own[0], points=points), *lines.values()))


def in_bfloat16(workspace: Workspace) -> str:
    """The attention study's shapes in bf16, each of the last step timed there, as Markdown."""
    study = workspace.study("attention")
    recorded: dict[str, Evidence] = {}
    with suppress(EnvironmentLacks):
        folder = target_at(Local(), workspace, pick_shapes(study, study.default_shape)[0][0]).folder
        derived = derived_shapes(folder)
        every = with_derived(study, {n: p for n, p in derived.items() if n not in study.shapes})
        recorded = {name: Evidence(every, name, folder) for name in derived}
    rows = [
        "| shape | step | time, chained | TFLOP/s | fastest reference | over it [95 %] |",
        "| --- | --- | --: | --: | --- | --: |",
    ]
    steps = [step.variant for step in reversed(study.ladder.steps)]
    for name, shape in study.shapes.items():
        if shape.profiled:
            wanted = {**shape.parameters, "dtype": "bfloat16"}
            own = [e for n, e in recorded.items() if e.study.shapes[n].parameters == wanted]
            known = (row_at(evidence, step) for step in steps for evidence in own)
            cells = next(filter(None, known), "— | not collected | — | — | —")
            rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def row_at(evidence: Evidence, variant: str) -> str:
    """Cells of one variant at one shape; "" if it was not timed there."""
    ladder = evidence.study.ladder
    references = [reference.name for reference in ladder.references]
    parameters = evidence.study.shapes[evidence.shape].parameters
    found = over_sizes(  # of one shape, so any number serves as its size
        [at_one_shape(evidence, [variant, *references], captures=False)],
        next(name for name, value in parameters.items() if not isinstance(value, str)),
        [variant],
        references,
        study=evidence.study.name,
        gpu=evidence.folder.gpu,
        primary=ladder.primary_reference,
    )
    points = (line.at(evidence.shape) for line in found.variants if line.variant == variant)
    point = next(points, None)
    if point is None or point.over_fastest is None:
        return ""
    time, rate = microseconds(point.microseconds.value), f"{point.rate / 1e12:.3g}"
    over = f"{point.fastest_reference} | {interval(point.over_fastest)}"
    return f"`{variant}` | {time} | {rate} | {over}"


def files(page: Page, text: str, workspace: Workspace) -> Mapping[str, str]:
    """The page and its charts, by their path in docs/."""
    charts: dict[str, str] = {}

    def part(match: re.Match[str]) -> str:
        found, name = over(workspace, page, match["case"]), f"sizes/{match['case']}"
        if found is None:
            return f"{match[1]}Not collected.\n{match[3]}"
        light, dark = svg.files(size_lines(found, name=name))
        charts.update({f"{name}-light.svg": light, f"{name}-dark.svg": dark})
        return f"{match[1]}{markdown.blocks(sizes_section(name, found).blocks)}\n\n{match[3]}"

    text = COMMAND.sub(f"workbench sweep {page.versions(workspace)[0]} ", text)
    text = BFLOAT16.sub(lambda m: f"{m[1]}{in_bfloat16(workspace)}\n{m[2]}", text)
    return {page.name: PART.sub(part, text), **charts}


def main() -> None:
    for page in (ATTENTION, EXPERTS):
        text = (ROOT / "docs" / page.name).read_text("utf-8")
        for name, made in files(page, text, find_workspace(ROOT)).items():
            (ROOT / "docs" / name).write_text(made, "utf-8")


if __name__ == "__main__":
    main()
