"""``workbench ship``."""

from __future__ import annotations

from workbench.app.list import tell_passed_over
from workbench.app.ship import ship
from workbench.app.target import find_recorded, shown_path
from workbench.cli.options import ShipOptions
from workbench.cli.streams import executor, note, show


def run(options: ShipOptions) -> None:
    target = find_recorded(executor(), options.project, options.study, None, gpu=options.gpu)
    tell_passed_over(target.executor, target.workspace, [target.study.name])
    done = ship(target, options.variant, options.name, options.to, options.definition)
    show(options, done)
    if not options.json:
        note(f'hint: kernels.get_local_kernel(Path("{shown_path(done.folder)}")) loads it')
