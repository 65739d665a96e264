"""The charts and tables of docs/sizes.md: attention over the length of the sequences, and in bf16
at the study's shapes, made from what is on record at these shapes and nothing else.

python -m benchmarks.sizes        writes them anew
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.card_steps import last_step

from workbench.commands.sizes import Measured
from workbench.commands.target import target_at
from workbench.errors import EnvironmentLacks
from workbench.evidence.recorded import Evidence, derived_shapes
from workbench.judge.sizes import OverSizes, over_sizes
from workbench.judge.snapshot import at_one_shape
from workbench.render import markdown
from workbench.render.chart import svg
from workbench.render.chart.size_lines import size_lines
from workbench.render.document.sizes import sizes_section
from workbench.render.numbers import interval, microseconds
from workbench.study.shapes import pick_shapes, with_derived
from workbench.study.workspace import Workspace, find_workspace

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sizes.md"
STUDY = "attention"
VARIANT = last_step(ROOT, STUDY)
BASE, LENGTHS = "b4h16s2048d64", "S=128..16384*2"
CASES = {
    "d64": "D=64,causal=0",
    "d64-causal": "D=64,causal=1",
    "d128": "D=128,causal=0",
    "d128-causal": "D=128,causal=1",
}
MEASURES = f"workbench sweep {VARIANT} --shape '{BASE},{LENGTHS},D=64|128,causal=0|1'"
NOT_COLLECTED = ("not collected", "—", "—", "—")
COMMAND = re.compile(r"workbench sweep \S+ --shape '[^']*'")
BFLOAT16 = re.compile(r"(<!-- bfloat16 -->\n).*?(<!-- /bfloat16 -->)", re.DOTALL)
PART = re.compile(r"(<!-- sizes: (?P<case>[\w-]+) -->\n).*?(<!-- /sizes -->)", re.DOTALL)


def over(workspace: Workspace, case: str) -> OverSizes | None:
    """None where a length is not on record of the sources as they are."""
    study = workspace.study(STUDY)
    picked, _ = pick_shapes(study, f"{BASE},{LENGTHS},{CASES[case]}")
    try:
        targets = [target_at(workspace, each) for each in picked]
    except EnvironmentLacks:
        return None
    (found,) = Measured(tuple(targets), (VARIANT,)).over()
    (ours,) = (line for line in found.lines if line.variant == VARIANT)
    return found if len(ours.points) == len(picked) else None


def in_bfloat16(workspace: Workspace) -> str:
    """The study's shapes with inputs in bf16, as Markdown."""
    study = workspace.study(STUDY)
    on_record: dict[str, Evidence] = {}
    with suppress(EnvironmentLacks):
        folder = target_at(workspace, pick_shapes(study, study.default_shape)[0][0]).folder
        derived = derived_shapes(folder)
        every = with_derived(study, {n: p for n, p in derived.items() if n not in study.shapes})
        on_record = {name: Evidence(every, name, folder) for name in derived}
    rows = [
        "| shape | time, chained | TFLOP/s | fastest reference | over it [95 %] |",
        "| --- | --: | --: | --- | --: |",
    ]
    for name, shape in study.shapes.items():
        if shape.profiled:
            wanted = {**shape.parameters, "dtype": "bfloat16"}
            own = (e for n, e in on_record.items() if e.study.shapes[n].parameters == wanted)
            cells = next(filter(None, map(_cells, own)), NOT_COLLECTED)
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(evidence: Evidence) -> Sequence[str]:
    """Of the variant at the shape of the evidence."""
    ladder = evidence.study.ladder
    references = [reference.name for reference in ladder.references if not reference.captured]
    over = over_sizes(
        [at_one_shape(evidence, [VARIANT, *references], captures=False)],
        "S",
        [VARIANT],
        references,
        study=STUDY,
        gpu=evidence.folder.gpu,
        primary=ladder.primary_reference,
    )
    (ours,) = (line for line in over.lines if line.variant == VARIANT)
    point = ours.at(evidence.shape)
    if point is None or point.over_fastest is None:
        return ()
    rate = f"{point.rate / 1e12:.3g}"
    return microseconds(point.time.value), rate, point.fastest, interval(point.over_fastest)


def files(page: str, workspace: Workspace) -> Mapping[str, str]:
    """The page and its charts, by their path beside it."""
    charts: dict[str, str] = {}

    def part(match: re.Match[str]) -> str:
        case = match["case"]
        found = over(workspace, case)
        if found is None:
            return f"{match[1]}Not collected.\n{match[3]}"
        name = f"sizes/{case}"
        light, dark = svg.files(size_lines(found, name=name))
        charts.update({f"{name}-light.svg": light, f"{name}-dark.svg": dark})
        told = markdown.blocks(sizes_section(name, found).blocks)
        return f"{match[1]}{told}\n\n{match[3]}"

    page = COMMAND.sub(lambda m: MEASURES, page)
    page = BFLOAT16.sub(lambda m: f"{m[1]}{in_bfloat16(workspace)}\n{m[2]}", page)
    return {PAGE.name: PART.sub(part, page), **charts}


def main() -> int:
    for name, text in files(PAGE.read_text("utf-8"), find_workspace(ROOT)).items():
        path = PAGE.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
