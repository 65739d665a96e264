"""The charts and tables of docs/sizes.md, attention over the length of the sequences and in bf16 at
the study's shapes, and of docs/experts.md, the mixture of experts over the tokens: made from what
is on record at these shapes and nothing else.

python -m benchmarks.sizes        writes them anew
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median

from benchmarks import multiplying, reading
from benchmarks.card_steps import last_step

from workbench.commands.sizes import Measured
from workbench.commands.target import target_at
from workbench.errors import EnvironmentLacks
from workbench.evidence.ceilings import CeilingRecord
from workbench.evidence.recorded import Evidence, derived_shapes
from workbench.judge.shapes import geometric_mean
from workbench.judge.sizes import AtSize, OverSizes, SizeLine, over_sizes
from workbench.judge.snapshot import at_one_shape
from workbench.render import markdown
from workbench.render.chart import svg
from workbench.render.chart.size_lines import size_lines
from workbench.render.document.sizes import sizes_section
from workbench.render.numbers import factor, interval, microseconds, percent
from workbench.study.shapes import pick_shapes, with_derived
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Regime

ROOT = Path(__file__).resolve().parents[1]
BASE, LENGTHS = "b4h16s2048d64", "S=128..16384*2"
TOKENS = "T=1|16|128|1024|8192"


@dataclass(frozen=True)
class Page:
    """A page of ``docs`` about the last step of a study, or about an earlier ``step``; ``cases``
    are ranges of shapes by name. Where the step was not timed, the times of one that it ``calls``
    stand for it: of the first that has some.
    """

    name: str
    study: str
    cases: Mapping[str, str]
    calls: tuple[str, ...] = ()
    step: str = ""

    @property
    def path(self) -> Path:
        return ROOT / "docs" / self.name

    @cached_property
    def variant(self) -> str:
        return self.step or last_step(ROOT, self.study)

    @property
    def versions(self) -> tuple[str, ...]:
        return (self.variant, *self.calls)


ATTENTION = Page(
    "sizes.md",
    "attention",
    {
        "d64": f"{BASE},{LENGTHS},D=64,causal=0",
        "d64-causal": f"{BASE},{LENGTHS},D=64,causal=1",
        "d128": f"{BASE},{LENGTHS},D=128,causal=0",
        "d128-causal": f"{BASE},{LENGTHS},D=128,causal=1",
    },
    calls=("fix27", "fix25", "fix21"),
)
EXPERTS = Page(
    "experts.md",
    "moe",
    {name: f"{name}-t1024,{TOKENS}" for name in reading.MODELS},
    calls=("fix25", "fix21", "fix20", "fix18", "fix15"),
)
Cases = Mapping[str, OverSizes | None]  # by name; None where a size is not on record
NOT_COLLECTED = ("not collected", "—", "—", "—")
COMMAND = re.compile(r"workbench sweep \S+ ")
BFLOAT16 = re.compile(r"(<!-- bfloat16 -->\n).*?(<!-- /bfloat16 -->)", re.DOTALL)
MULTIPLYING = re.compile(r"(<!-- multiplying -->\n).*?(<!-- /multiplying -->)", re.DOTALL)
READING = re.compile(r"(<!-- reading -->\n).*?(<!-- /reading -->)", re.DOTALL)
TARGETS = re.compile(r"(<!-- targets -->\n).*?(<!-- /targets -->)", re.DOTALL)
PART = re.compile(r"(<!-- sizes: (?P<case>[\w-]+) -->\n).*?(<!-- /sizes -->)", re.DOTALL)
LEAST_SHARE = "at least 75 %"  # of a measured ceiling, where the study asks for it


def over(workspace: Workspace, page: Page, case: str) -> OverSizes | None:
    """None where a size is not on record of the sources as they are."""
    study = workspace.study(page.study)
    picked, _ = pick_shapes(study, page.cases[case])
    try:
        targets = [target_at(workspace, each) for each in picked]
    except EnvironmentLacks:
        return None
    (found,) = Measured(tuple(targets), page.versions).over()
    found = as_one(found, page.versions)
    (ours,) = (line for line in found.lines if line.variant == page.variant)
    return found if len(ours.points) == len(picked) else None


def as_one(found: OverSizes, versions: Sequence[str]) -> OverSizes:
    """With one line for ``versions``: at each size of the first that was timed there."""
    lines = {line.variant: line for line in found.lines}
    own = [lines.pop(version) for version in versions]
    at_size = (filter(None, (line.at(shape) for line in own)) for shape in found.sizes)
    points = (next(points, None) for points in at_size)
    filled = replace(own[0], points=tuple(point for point in points if point))
    return replace(found, lines=(filled, *lines.values()))


def against_targets(every: Cases) -> str:
    """Of the mixture of experts: what was asked for and what was measured, as Markdown."""
    rows: list[tuple[str, str, Callable[[OverSizes], str]]] = [
        ("over the fastest reference, geometric mean", "at least 1.3x", _mean),
        ("over it at worst", "at least 0.95x", _worst),
        *(
            (f"share at T={tokens}", LEAST_SHARE, partial(_share, tokens))
            for tokens in (1, 16, 8192)
        ),
    ]
    lines = [
        f"| | asked for | {' | '.join(every)} |",
        f"| --- | --- |{' --: |' * len(every)}",
    ]
    for what, wanted, cell in rows:
        cells = [cell(found) if found else NOT_COLLECTED[0] for found in every.values()]
        lines.append(f"| {what} | {wanted} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ours(found: OverSizes) -> SizeLine:
    (ours,) = (line for line in found.lines if line.variant == EXPERTS.variant)
    return ours


def _mean(found: OverSizes) -> str:
    mean = _ours(found).mean
    return factor(mean) if mean is not None else NOT_COLLECTED[0]


def _worst(found: OverSizes) -> str:
    worst = _ours(found).worst
    return interval(worst.over_fastest) if worst is not None else NOT_COLLECTED[0]


def _share(tokens: int, found: OverSizes) -> str:
    (point,) = (p for p in _ours(found).points if p.size == tokens)
    return f"{percent(point.share)} of {point.of}" if point.share is not None else NOT_COLLECTED[0]


def against_reading(workspace: Workspace, every: Cases) -> str:
    """Of the mixture of experts: what reading the weights alone would take, and what the means
    over the tokens would be at most, as Markdown.
    """
    rows = [
        f"| | bytes | read alone | `{EXPERTS.variant}` | of it | fastest reference | over it |",
        "| --- | --: | --: | --: | --: | --- | --: |",
    ]
    readings, most = reading.recorded(), []
    for case, found in every.items():
        if found is None:
            return NOT_COLLECTED[0]
        for point in _ours(found).points:
            alone, fastest = readings.get(point.shape), _fastest(found, point)
            if alone:
                cells = (
                    point.shape,
                    f"{alone.bytes_read / 1e6:,.0f} MB",
                    f"{microseconds(alone.time)}, {alone.rate / 1e12:.2f} TB/s",
                    microseconds(point.time.value),
                    percent(alone.time / point.time.value),
                    f"`{point.fastest}`, {microseconds(fastest)}",
                    factor(fastest / alone.time),
                )
                rows.append(f"| {' | '.join(cells)} |")
        most.append(f"{_most(workspace, found, case)} ({case})")
    rows += [
        "",
        "Were every size at the least of these times, or at that of its products at the measured "
        "rate where it is longer, the means would be " + ", ".join(most) + ": the second figure "
        "with the rate at 8192 tokens that the clock leaves which the time there was taken at.",
    ]
    return "\n".join(rows)


def _fastest(found: OverSizes, point: AtSize) -> float:
    """Microseconds of the fastest reference at the size."""
    known = found.fastest_at(point.shape, references=True)
    assert known is not None
    return known[1].time.value


def _most(workspace: Workspace, found: OverSizes, case: str) -> str:
    """The geometric mean over the fastest reference, were everything at its measured limit."""
    study, readings = workspace.study(EXPERTS.study), reading.recorded()
    largest = f"{case}-t8192"
    evidence = target_at(workspace, pick_shapes(study, largest)[0][0]).evidence()
    ceiling = _ceiling(evidence)
    means = []
    for held in (1.0, median(_clocks(evidence)) / (ceiling.sm_clock_mhz or 0.0)):
        over_limit = []
        for point in _ours(found).points:
            rate = ceiling.value * (held if point.shape == largest else 1.0)
            least = study.work(point.shape).flops / rate * 1e6
            if point.shape in readings:
                least = max(least, readings[point.shape].time)
            over_limit.append(_fastest(found, point) / least)
        means.append(f"{geometric_mean(over_limit):.3f}x")
    return " and ".join(means)


def _clocks(evidence: Evidence) -> Sequence[float]:
    """MHz of the rounds of the version whose time stands in the row."""
    clocks: dict[str, list[float]] = defaultdict(list)
    for timing in evidence.timings:
        for session in timing.timing.together:
            for series in session.series:
                if series.regime == Regime.CHAINED:
                    clocks[series.variant] += series.mhz
    return next(clocks[version] for version in EXPERTS.versions if version in clocks)


def _ceiling(evidence: Evidence) -> CeilingRecord:
    """Of the products, as measured on the card of the evidence."""
    assert evidence.calibration is not None
    return evidence.calibration.ceilings["tensor bf16"]


def against_multiplying(workspace: Workspace, every: Cases) -> str:
    """Of the mixture of experts: what the products alone take by the vendor's library, as Markdown.
    Empty where that is not on record.
    """
    products, study = multiplying.recorded(), workspace.study(EXPERTS.study)
    if not products:
        return ""
    rows = [
        "The products alone, by cuBLAS with as many rows for every expert and nothing around them, "
        "as `python -m benchmarks.multiplying` measures them:",
        "",
        f"| | products alone | of the ceiling | SM clock | time | `{EXPERTS.variant}` | of it |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    most, readings = [], reading.recorded()
    for case, found in every.items():
        if found is None:
            return NOT_COLLECTED[0]
        over_limit = []
        for point in _ours(found).points:
            limits = [one.time for one in (readings.get(point.shape),) if one]
            if alone := products.get(point.shape):
                limits += [alone.time] if alone.time < point.time.value else []
                target = target_at(workspace, pick_shapes(study, point.shape)[0][0])
                cells = (
                    point.shape,
                    f"{alone.rate / 1e12:.0f} TFLOP/s",
                    percent(alone.rate / _ceiling(target.evidence()).value),
                    f"{alone.clock / 1e3:.2f} GHz",
                    microseconds(alone.time),
                    microseconds(point.time.value),
                    percent(alone.time / point.time.value),
                )
                rows.append(f"| {' | '.join(cells)} |")
            over_limit.append(_fastest(found, point) / max(limits, default=point.time.value))
        most.append(f"{geometric_mean(over_limit):.3f}x ({case})")
    rows += [
        "",
        "Were every size at what reading takes alone, or at these times where they are longer and "
        f"`{EXPERTS.variant}` does not undercut them, the means would be {', '.join(most)}.",
    ]
    return "\n".join(rows)


def in_bfloat16(workspace: Workspace) -> str:
    """The study's shapes in bf16, of the last step that was timed there, as Markdown."""
    study = workspace.study(ATTENTION.study)
    on_record: dict[str, Evidence] = {}
    with suppress(EnvironmentLacks):
        folder = target_at(workspace, pick_shapes(study, study.default_shape)[0][0]).folder
        derived = derived_shapes(folder)
        every = with_derived(study, {n: p for n, p in derived.items() if n not in study.shapes})
        on_record = {name: Evidence(every, name, folder) for name in derived}
    rows = [
        "| shape | step | time, chained | TFLOP/s | fastest reference | over it [95 %] |",
        "| --- | --- | --: | --: | --- | --: |",
    ]
    for name, shape in study.shapes.items():
        if shape.profiled:
            wanted = {**shape.parameters, "dtype": "bfloat16"}
            own = [e for n, e in on_record.items() if e.study.shapes[n].parameters == wanted]
            steps = (step.variant for step in reversed(study.ladder.steps))
            known = (_cells(evidence, step) for step in steps for evidence in own)
            cells = next(filter(None, known), ("—", *NOT_COLLECTED))
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def point_at(evidence: Evidence, variant: str) -> AtSize | None:
    """At the shape of the evidence, beside all references; None where it was not timed."""
    ladder = evidence.study.ladder
    references = [reference.name for reference in ladder.references if not reference.captured]
    parameters = evidence.study.shapes[evidence.shape].parameters
    any_number = next(name for name, value in parameters.items() if not isinstance(value, str))
    over = over_sizes(  # of one shape, whatever its size is called
        [at_one_shape(evidence, [variant, *references], captures=False)],
        any_number,
        [variant],
        references,
        study=evidence.study.name,
        gpu=evidence.folder.gpu,
        primary=ladder.primary_reference,
    )
    ours = next((line for line in over.lines if line.variant == variant), None)
    return ours.at(evidence.shape) if ours else None


def _cells(evidence: Evidence, variant: str) -> Sequence[str]:
    """Empty where the variant was not timed."""
    point = point_at(evidence, variant)
    if point is None or point.over_fastest is None:
        return ()
    rate = f"{point.rate / 1e12:.3g}"
    return (
        f"`{variant}`",
        microseconds(point.time.value),
        rate,
        point.fastest,
        interval(point.over_fastest),
    )


def files(page: Page, text: str, workspace: Workspace) -> Mapping[str, str]:
    """The page and its charts, by their path beside it."""
    charts: dict[str, str] = {}
    every = {case: over(workspace, page, case) for case in page.cases}

    def part(match: re.Match[str]) -> str:
        case = match["case"]
        found = every[case]
        if found is None:
            return f"{match[1]}Not collected.\n{match[3]}"
        name = f"sizes/{case}"
        light, dark = svg.files(size_lines(found, name=name))
        charts.update({f"{name}-light.svg": light, f"{name}-dark.svg": dark})
        told = markdown.blocks(sizes_section(name, found).blocks)
        return f"{match[1]}{told}\n\n{match[3]}"

    text = COMMAND.sub(lambda _: f"workbench sweep {page.variant} ", text)
    text = BFLOAT16.sub(lambda m: f"{m[1]}{in_bfloat16(workspace)}\n{m[2]}", text)
    text = TARGETS.sub(lambda m: f"{m[1]}{against_targets(every)}\n{m[2]}", text)
    text = READING.sub(lambda m: f"{m[1]}{against_reading(workspace, every)}\n{m[2]}", text)
    text = MULTIPLYING.sub(
        lambda m: f"{m[1]}{against_multiplying(workspace, every)}".rstrip() + f"\n{m[2]}", text
    )
    return {page.name: PART.sub(part, text), **charts}


def main() -> int:
    for page in (ATTENTION, EXPERTS):
        text = page.path.read_text("utf-8")
        for name, made in files(page, text, find_workspace(ROOT)).items():
            path = page.path.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
