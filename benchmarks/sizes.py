"""The charts and tables of docs/sizes.md: attention over the length of the sequences, made from
what is on record at these shapes and nothing else.

python -m benchmarks.sizes        writes them anew
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from workbench.commands.sizes import Measured
from workbench.commands.target import target_at
from workbench.errors import EnvironmentLacks
from workbench.judge.sizes import OverSizes
from workbench.render import markdown
from workbench.render.chart import svg
from workbench.render.chart.size_lines import size_lines
from workbench.render.document.sizes import sizes_section
from workbench.study.shapes import pick_shapes
from workbench.study.workspace import Workspace, find_workspace

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sizes.md"
STUDY, VARIANT = "attention", "fix15"
BASE, LENGTHS = "b4h16s2048d64", "S=128..16384*2"
CASES = {
    "d64": "D=64,causal=0",
    "d64-causal": "D=64,causal=1",
    "d128": "D=128,causal=0",
    "d128-causal": "D=128,causal=1",
}
MEASURES = f"workbench sweep {VARIANT} --shape '{BASE},{LENGTHS},D=64|128,causal=0|1'"
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

    return {PAGE.name: PART.sub(part, page), **charts}


def main() -> int:
    for name, text in files(PAGE.read_text("utf-8"), find_workspace(ROOT)).items():
        path = PAGE.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
