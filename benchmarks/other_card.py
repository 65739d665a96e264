"""The last step of a study and its parent beside all references on another card than the study's:

    python -m benchmarks.other_card STUDY 'b2h*' ...  on a GPU: at shapes whose names are like these
    python -m benchmarks.other_card                   docs/other-cards.md, from what is on record

The engine checks and times as it does for a study. What it finds goes to
``benchmarks/recorded/other_card-STUDY.json``, microseconds of every instance by session, in place
of what was there of the same shape; nothing of it is evidence of the study. Exit codes: 0 done, 1 a
variant failed, 2 no such study or shape, 3 no GPU, 130 interrupted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import typer
from benchmarks.card_steps import last_step
from benchmarks.last_at import shapes_at
from benchmarks.sizes import ATTENTION, EXPERTS, ROOT, point_at

from workbench.commands.measuring import ensure_timed
from workbench.commands.progress import note
from workbench.commands.target import target_at
from workbench.derive.intervals import Ratio, ratio_interval, time_interval
from workbench.derive.speedup import SessionTimes
from workbench.errors import WorkbenchError
from workbench.evidence.recorded import Evidence
from workbench.judge.shapes import geometric_mean
from workbench.judge.snapshot import at_one_shape
from workbench.judge.times import Times, main_timing
from workbench.render.numbers import factor, interval, microseconds
from workbench.study.model import Study, Variant
from workbench.study.sources import Fingerprints
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import ABSENT

RECORDED = ROOT / "benchmarks" / "recorded"
PAGE = ROOT / "docs" / "other-cards.md"
TABLE = re.compile(r"(<!-- other card: (?P<study>\w+) -->\n).*?(<!-- /other card -->)", re.DOTALL)
CARD = "NVIDIA H200"  # the study's

Instances = list[list[float]]  # microseconds that a call adds, chained, by session


class AtShape(msgspec.Struct, frozen=True):
    """``planned`` sessions were decided before any was looked at."""

    planned: int
    times: dict[str, Instances]


class Recording(msgspec.Struct):
    """``sources`` are fingerprints of our variants, which a time holds for; ``shapes`` are by name,
    and those that are not the study's as ``--shape`` has them.
    """

    gpu: str
    driver: str
    date: str
    packages: dict[str, str]
    sources: dict[str, str]
    shapes: dict[str, AtShape]


def record_of(study: str) -> Path:
    return RECORDED / f"other_card-{study}.json"


def load(study: str) -> Recording | None:
    path = record_of(study)
    return msgspec.json.decode(path.read_bytes(), type=Recording) if path.is_file() else None


def references_of(study: Study) -> list[str]:
    return [r.name for r in study.ladder.references if not r.captured]


def instances(times: SessionTimes) -> Instances:
    return [[round(one.microseconds, 4) for one in session] for session in times.values()]


def measure(study: Study, workspace: Workspace, wanted: Sequence[str]) -> int:
    step = study.ladder.step(last_step(ROOT, study.name))
    assert step is not None
    assert step.parent is not None
    own, names = [step.variant, step.parent], references_of(study)
    fingerprints = {name: Fingerprints(study).of_sources(name) for name in own}
    known, checked, failed = load(study.name), set[str](), False
    places = {
        each.name if each.name in study.shapes else one: target_at(workspace, each)
        for one in wanted
        for each in shapes_at(study, [one])
    }
    for place, target in places.items():
        ensured = ensure_timed(target, [*own, *names], checked=checked)
        checked |= set(ensured.timed) - ensured.failures.keys()
        for name, why in ensured.failures.items():
            note(f"error: {name} at {target.shape}: {why}")
        failed = failed or bool(ensured.failures)
        evidence = at_one_shape(target.evidence(), [*own, *names], captures=False)
        table = main_timing(evidence, [*own, *names])
        if table is None:
            continue
        times = Times(evidence, table)
        by_name = {name: times.instances(name) for name in [*own, *names]}
        here = table.timing.provenance
        libraries = {"torch": here.torch, **(here.packages or {})}
        if known is None or known.gpu != here.gpu or known.sources != fingerprints:
            known = Recording(here.gpu or "", here.driver or "", "", {}, fingerprints, {})
        known.date = datetime.now(UTC).strftime("%Y-%m-%d")
        known.packages = {name: version for name, version in libraries.items() if version}
        known.shapes[place] = AtShape(
            table.first_planned,
            {name: instances(found) for name, found in by_name.items() if found},
        )
        record_of(study.name).write_bytes(msgspec.json.encode(known) + b"\n")
    return int(failed)


@dataclass(frozen=True)
class Told:
    """Of a variant at a shape: microseconds, and its ratio over the ``fastest`` reference. The
    ratio is None where that one, the fastest at other shapes, was not timed.
    """

    time: float
    fastest: str
    ratio: Ratio | None

    @property
    def words(self) -> str:
        over = f"{interval(self.ratio)} of {self.fastest}" if self.ratio else f"{ABSENT}"
        return f"{microseconds(self.time)}, {over}"


def ratio_at(known: AtShape, over: str, variant: str) -> Ratio:
    """How many times faster than ``over``; both were timed."""
    before, after = known.times[over], known.times[variant]
    again = len(after) > known.planned > 0
    found = ratio_interval(before, after, again=again)
    return Ratio(found.value, found.low, found.high, found.sessions, level=found.level)


def fastest_of(known: AtShape, names: Sequence[str]) -> str:
    """Of those that were timed; "" of none."""
    timed = [name for name in names if name in known.times]
    return min(timed, key=lambda name: time_interval(known.times[name]).value, default="")


def told(known: AtShape, variant: str, references: Sequence[str], leaders: set[str]) -> Told | None:
    """None where the variant or every reference was not timed; ``leaders`` are the references that
    are the fastest at some shape.
    """
    fastest = fastest_of(known, references)
    if variant not in known.times or not fastest:
        return None
    ratio = ratio_at(known, fastest, variant) if leaders <= known.times.keys() else None
    return Told(time_interval(known.times[variant]).value, fastest, ratio)


def current(study: Study, known: Recording) -> list[str]:
    """Our variants on record that are as they are now, the newest last; one may wait for its step
    in the ladder.
    """
    named = {
        name: study.variants.get(name) or Variant(name, study.folder / f"{name}.py")
        for name in known.sources
    }
    prints = Fingerprints(replace(study, variants={**study.variants, **named}))
    return [n for n in reversed(known.sources) if known.sources[n] == prints.of_sources(n)]


def table(study: Study, workspace: Workspace, known: Recording | None) -> str:
    """What is on record, beside the same of the study's card, as Markdown."""
    own = current(study, known) if known else []
    if known is None or not own:
        return f"{ABSENT.capitalize()}."
    references, last = references_of(study), own[-1]
    recorded = [name for name in own if name in study.variants][-1:]
    here = [*((known.gpu, name) for name in own), *((CARD, name) for name in recorded)]
    leaders = {fastest_of(at, references) for at in known.shapes.values()}
    rows = [
        f"| shape | {' | '.join(f'{card}: `{name}`' for card, name in here)} |",
        f"| --- |{' --- |' * len(here)}",
    ]
    if len(own) > 1:
        rows = [f"{rows[0]} {known.gpu}: `{last}` over `{own[0]}` |", f"{rows[1]} --- |"]
    found: dict[tuple[str, str], dict[str, Ratio]] = {each: {} for each in here}
    places = sorted(known.shapes, key=lambda name: [*study.shapes, name].index(name))
    for place, picked in zip(places, shapes_at(study, places), strict=True):
        cells = []
        evidence = target_at(workspace, picked).evidence()
        for card, name in here:
            own_card = card == known.gpu
            at = known.shapes[place]
            one = told(at, name, references, leaders) if own_card else on_record(evidence, name)
            cells.append(one.words if one else ABSENT)
            if one and one.ratio:
                found[card, name][picked.name] = one.ratio
        if len(own) > 1:
            cells.append(interval(ratio_at(known.shapes[place], own[0], last)))
        rows.append(f"| {' | '.join((picked.name, *cells))} |")
    libraries = ", ".join(f"{name} {version}" for name, version in known.packages.items())
    least = min(len(times) for at in known.shapes.values() for times in at.times.values())
    lines = [
        f"{known.gpu}, driver {known.driver}, {known.date}; {libraries}; {least} sessions.",
        "",
        *rows,
        "",
    ]
    shared = set.intersection(*(set(side) for side in found.values()))
    for (card, name), ratios in found.items():
        above = sum(ratio.low is not None and ratio.low > 1 for ratio in ratios.values())
        words = f"its interval lies above 1 at {above} of {len(ratios)} shapes"
        mean = geometric_mean([ratios[shape].ratio for shape in shared])
        if mean is not None:
            words += f"; in the geometric mean over the {len(shared)} that all have {factor(mean)}"
        lines.append(f"- {card}, `{name}` over the fastest reference: {words}.")
    if last not in study.variants:
        lines += ["", f"`{last}` is no step of the ladder yet: it waits for the study's card."]
    return "\n".join(lines)


def on_record(evidence: Evidence, variant: str) -> Told | None:
    """Of the study's card. Where the choice that a page over sizes is of was not timed, what it
    calls stands for it, as there.
    """
    versions = next(
        (
            over.versions
            for over in (ATTENTION, EXPERTS)
            if (over.study, over.variant) == (evidence.study.name, variant)
        ),
        (variant,),
    )
    for name in versions:
        point = point_at(evidence, name)
        if point is not None and point.over_fastest is not None:
            fastest = point.fastest if name == variant else f"{point.fastest} (timed as {name})"
            return Told(point.time.value, fastest, point.over_fastest)
    return None


def page(text: str, workspace: Workspace) -> str:
    def made(match: re.Match[str]) -> str:
        study = workspace.study(match["study"])
        return f"{match[1]}{table(study, workspace, load(study.name))}\n{match[3]}"

    return TABLE.sub(made, text)


def main(wanted: Sequence[str]) -> int:
    workspace = find_workspace(ROOT)
    try:
        if wanted:
            return measure(workspace.study(wanted[0]), workspace, wanted[1:])
    except WorkbenchError as error:
        note(f"error: {error.message}\nhint: {error.hint}")
        return error.exit_code
    except typer.Exit as interrupted:  # what was finished is kept
        return interrupted.exit_code
    PAGE.write_text(page(PAGE.read_text("utf-8"), workspace), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
