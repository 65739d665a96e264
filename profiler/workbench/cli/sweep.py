"""``workbench sweep``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from workbench.app.sweep import (
    over_shapes,
    space_of,
    sweep,
    targets_of,
    timed_over,
    write,
    write_sizes,
)
from workbench.app.target import Target, find_study, profiled_shapes, target_at
from workbench.cli.options import SweepOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor, note, note_failures
from workbench.errors import UsageError
from workbench.judge.sweeps import Sweep
from workbench.study.params import Picked, is_space


def run(options: SweepOptions) -> int:
    here = executor(options.on)
    workspace, study = find_study(here, options.project, options.study)
    picked = profiled_shapes(study, options.shape)
    if not any(map(is_space, options.variants)):
        if len(picked) < 2:
            raise UsageError(
                f"there is nothing to sweep: {', '.join(options.variants)}, a single shape",
                hint="give parameters several values, 'NAME[a=1|2]', or --shape a range, "
                "'S=1..8*2'",
            )
        targets = targets_of(here, workspace, picked)
        return sizes(options, targets)
    if mixed := [name for name in options.variants if not is_space(name)]:
        raise UsageError(
            f"'{mixed[0]}' is one variant, and is swept with nothing",
            hint="give parameters several values, or leave it out",
        )
    timed: list[bool] = []

    def swept() -> Iterator[Sweep]:
        for each in picked:
            for text in options.variants:
                whole, space = space_of(each.study, text)
                target = target_at(here, workspace, Picked(whole, each.name))
                result = sweep(target, space, fresh=options.fresh)
                timed.append(bool(result.timed))
                yield result
                write(target, space, result)

    show(options, swept())
    return int(not all(timed))


def sizes(options: SweepOptions, targets: Sequence[Target]) -> int:
    """Print the tables, write them with their charts, and say what failed."""
    variants, failures = timed_over(targets, options.variants, fresh=options.fresh)
    study, every = targets[0].study, over_shapes(targets, variants)
    show(options, every)
    part = (f"over {options.shape}", *options.variants)  # the folder: as they were typed
    write_sizes(targets[0], [over for over in every if over.timed], part)
    parts = study.ladder.chosen_among(variants)
    if left := [part for part in parts if part not in variants]:
        names = " ".join(map(quote, left))
        note(f"hint: name what is chosen among, too, to see where it is faster: {names}")
    note_failures(failures, study)
    return int(bool(failures) or not any(over.timed for over in every))
