"""Variants over a range of shapes: measured shape by shape, told in one table and one chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

import typer

from workbench.commands.measuring import Wanted, ensure_each
from workbench.commands.option_types import Printed
from workbench.commands.options import SweepOptions
from workbench.commands.printing import tell
from workbench.commands.report import write_document
from workbench.commands.streams import note
from workbench.commands.target import (
    Target,
    in_place,
    of_one_gpu,
    profiled_shapes,
    shown_path,
    target_at,
)
from workbench.errors import EnvironmentLacks, UsageError
from workbench.judge.sizes import OverSizes, over_sizes, ranges
from workbench.judge.snapshot import at_one_shape
from workbench.render.chart.size_lines import size_lines
from workbench.render.document import sizes as document
from workbench.study.model import Study
from workbench.study.shapes import Picked
from workbench.study.workspace import Workspace


@dataclass(frozen=True)
class Measured:
    """A target of every shape, and the variants that were asked for."""

    targets: tuple[Target, ...]
    names: tuple[str, ...]

    @property
    def references(self) -> list[str]:
        ladder = self.targets[0].study.ladder
        return [r.name for r in ladder.references]

    def over(self) -> list[OverSizes]:
        """One a parameter in which the shapes differ."""
        names, references = [n for n in self.names if n not in self.references], self.references
        shapes = {
            target.shape: at_one_shape(target.evidence(), [*names, *references], captures=False)
            for target in self.targets
        }
        study, gpu = self.targets[0].study, self.targets[0].folder.gpu
        calibration = self.targets[0].evidence().calibration
        return [
            over_sizes(
                [shapes[name] for name in found],
                parameter,
                names,
                references,
                study=study.name,
                gpu=gpu,
                primary=study.ladder.primary_reference,
                ceilings=calibration.values if calibration else None,
            )
            for parameter, found in ranges({n: s.parameters for n, s in shapes.items()})
        ]


def run(options: SweepOptions, workspace: Workspace, study: Study) -> None:
    picked = profiled_shapes(study, options.shape)
    if options.build_only or len(picked) < 2:
        what = "build once for all shapes" if options.build_only else "a single shape"
        raise UsageError(
            f"there is nothing to sweep: {', '.join(options.variants)}, {what}",
            hint="give parameters several values, 'NAME[a=1|2]', or --shape a range, 'S=1..8*2'",
        )
    targets = targets_of(workspace, picked)
    failures: dict[str, str] = {}
    wanted: list[Wanted] = []
    for target in targets:
        names = target.variants(options.variants)
        references = [r.name for r in target.study.ladder.references]
        wanted.append(Wanted(target, list(dict.fromkeys([*names, *references])), timed=True))
    every = ensure_each(wanted, fresh=options.fresh)
    for target, ensured in zip(targets, every, strict=True):
        failures |= {f"{v} at {target.shape}": why for v, why in ensured.failures.items()}
    found = Measured(tuple(targets), tuple(names))
    told(found, (f"over {options.shape}", *options.variants), failures, options)


def targets_of(workspace: Workspace, picked: Sequence[Picked]) -> list[Target]:
    """Of those shapes that can be measured or are on record; of others is told. Raises UsageError
    where they are no range of sizes, EnvironmentLacks where too few are left for one.
    """
    parameters = {each.name: each.study.shapes[each.name].parameters for each in picked}
    if not any(ranges(parameters)):
        raise UsageError(
            f"no two of these shapes differ in a number alone: {', '.join(parameters)}",
            hint="give a number several values; of other shapes --shape takes one at a time",
        )
    found: list[Target] = []
    lacks: list[EnvironmentLacks] = []
    for each in picked:
        try:
            found.append(target_at(workspace, each))
        except EnvironmentLacks as error:
            lacks.append(error)
    if lacks and len(found) < 2:
        raise lacks[0]
    for missing in lacks:
        note(missing.message)
    of_one = of_one_gpu(found)
    if len(of_one) < 2:
        raise EnvironmentLacks(
            f"no two of these shapes are recorded on the same GPU: {', '.join(parameters)}",
            hint="`workbench list` says what is on record",
        )
    return of_one


def told(found: Measured, part: Sequence[str], failures: dict[str, str], options: Printed) -> None:
    """Print the tables, write them with their charts, and say what failed. ``part`` names the
    folder: the range and the variants, as they were typed.
    """
    study, every = found.targets[0].study, found.over()
    tell(
        options,
        lambda: {"sizes": every},
        lambda: (block for over in every for block in document.sizes_view(over)),
    )
    write(found.targets[0], [over for over in every if over.timed], part)
    parts = study.ladder.chosen_among(found.names)
    if left := [part for part in parts if part not in found.names]:
        names = " ".join(map(quote, left))
        note(f"hint: name what is chosen among, too, to see where it is faster: {names}")
    for name, why in failures.items():
        note(f"error: {name}: {in_place(why, study)}")
    if failures or not any(over.timed for over in every):
        raise typer.Exit(1)


def write(target: Target, every: Sequence[OverSizes], part: Sequence[str]) -> None:
    """All ranges in one document, each with its chart. Other ranges have documents of their own."""
    if not every:
        return
    parameters = dict.fromkeys(over.parameter for over in every)
    folder = target.workspace.reports(target.study, target.study.default_shape, part)
    blocks = document.sizes_sections(every)
    scenes = [size_lines(over, name=each.key) for over, each in zip(every, blocks, strict=True)]
    title = f"Sizes: {target.study.name} over {' and '.join(parameters)}"
    path = write_document(target.workspace, folder, title, blocks, scenes)
    note(f"wrote {shown_path(path)}")
