"""Pages for tests: the recorded ladder, a long one made of its rows, and a hostile one.

found, sources = recorded()     # the repository's own evidence
found, sources = long_ladder()  # baseline, twelve steps and the references, with their sources
found, sources = hostile()      # markup in every name, message, text and source
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from synthetic import ablation, bottleneck, with_row
from workbench.commands.reporting import page_sources
from workbench.commands.target import find_target
from workbench.derive.heat import Heat, LineHeat
from workbench.judge.ablation import Ablation, judge
from workbench.judge.verdict import Gate, Outcome
from workbench.render.page import page_environment, render_page
from workbench.render.page_sources import SourceFile, Sources
from workspaces import ROOT

ENVIRONMENT = page_environment([ROOT / "templates"])
STEPS = 12
NASTY = (
    '</script><script>window.planted = 1</script><!-- <img src=x onerror="window.planted = 2"> \''
)


def render(found: Ablation, sources: Sources | None = None) -> str:
    return render_page(found, sources or Sources(), ENVIRONMENT)


@lru_cache
def recorded() -> tuple[Ablation, Sources]:
    target = find_target(ROOT, None, None)
    evidence = target.evidence()
    found = judge(evidence, target.workspace.config, target.steps([]))
    return found, page_sources(evidence, found)


@lru_cache
def recorded_page() -> str:
    return render(*recorded())


@lru_cache
def long_ladder() -> tuple[Ablation, Sources]:
    """The recorded steps over and over, each with its own copy of its sources and heat."""
    found, sources = recorded()
    first, *steps = found.rows
    rows, files, heat = [first], dict(sources.files), dict(sources.heat)
    for n in range(STEPS):
        row = steps[n % len(steps)]
        assert row.step is not None
        name = f"step{n + 1:02}"
        step = dataclasses.replace(row.step, variant=name, parent=rows[-1].variant)
        rows.append(dataclasses.replace(row, variant=name, step=step))
        files[name] = tuple(
            SourceFile(file.key.replace(row.variant, name), file.virtual, f"// {name}\n{file.text}")
            for file in sources.files[row.variant]
        )
        heat[name] = sources.heat[row.variant]
    return dataclasses.replace(found, rows=tuple(rows)), Sources(files, heat)


def hostile() -> tuple[Ablation, Sources]:
    """Every text that comes from outside is ``NASTY`` or holds it."""
    name = f'fix1"{NASTY}'
    found = ablation(1, title=NASTY, gpu=NASTY, warnings=(NASTY,), parameters={NASTY: NASTY})
    found = dataclasses.replace(found, environment={**found.environment, "ncu_flags": NASTY})
    row = found.row("fix1")
    assert row.step is not None
    step = dataclasses.replace(row.step, variant=name, key_change=NASTY, bottleneck=NASTY,
                               rationale=NASTY, lesson=NASTY)  # fmt: skip
    limit = dataclasses.replace(bottleneck(NASTY, NASTY), message=NASTY, metric=NASTY)
    found = with_row(
        found, "fix1", step=step, kernels=("<script>", NASTY), capture=NASTY, bottlenecks=(limit,),
        gates=(Gate(NASTY, False, NASTY),), stalls={**row.stalls, NASTY: 0.2},
        predictions=(Outcome(NASTY, NASTY, NASTY, NASTY, 1.0, 2.0, "refuted"),),
        title=NASTY, figures={**row.figures, NASTY: dataclasses.replace(
            row.figures["duration"], id=NASTY, label=NASTY, unit=NASTY, metric=NASTY)},
    )  # fmt: skip
    rows = [dataclasses.replace(r, variant=name) if r.variant == "fix1" else r for r in found.rows]
    text = f"// {NASTY}\n{NASTY}\n/* {NASTY}\n"
    sources = Sources(
        {"baseline": (SourceFile("baseline.cu", "baseline.cu", text),),
         name: (SourceFile(f"{NASTY}.cu", "fix1.cu", text.replace("script", "SCRIPT")),)},
        {name: Heat({"fix1.cu": {2: LineHeat({NASTY: 1.0}, {})}}, 0.0)},
    )  # fmt: skip
    return dataclasses.replace(found, rows=tuple(rows)), sources
