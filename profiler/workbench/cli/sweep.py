"""``workbench sweep``."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.app.sweep import space_of, sweep, write
from workbench.app.target import find_study, profiled_shape, target_at
from workbench.cli.options import SweepOptions
from workbench.cli.streams import executor, show
from workbench.errors import UsageError
from workbench.judge.sweeps import Sweep
from workbench.study.params import Picked, is_space


def run(options: SweepOptions) -> int:
    here = executor(options.on)
    workspace, study = find_study(here, options.project, options.study)
    shape = profiled_shape(study, options.shape)
    if fixed := [name for name in options.variants if not is_space(name)]:
        raise UsageError(
            f"there is nothing to sweep: '{fixed[0]}' is one variant",
            hint="give parameters several values: 'NAME[a=1|2]'",
        )
    timed: list[bool] = []

    def swept() -> Iterator[Sweep]:
        for text in options.variants:
            whole, space = space_of(shape.study, text)
            target = target_at(here, workspace, Picked(whole, shape.name))
            result = sweep(target, space, fresh=options.fresh)
            timed.append(bool(result.timed))
            yield result
            write(target, space, result)

    show(options, swept())
    return int(not all(timed))
