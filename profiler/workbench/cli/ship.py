"""``ship``: a package that was written."""

from __future__ import annotations

from workbench.app.list import tell_passed_over
from workbench.app.ship import Shipment, ship
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


def lines(result: Shipment) -> list[str]:
    shipped = result.shipped
    said = [f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}"]
    time = next((t for t in shipped.times if t.shape == shipped.judged_at and t.ratio), None)
    if time is not None:
        said.append(f"  {time.ratio:.3g}x of {time.reference} at {time.shape}, recorded")
    if result.capabilities:
        capability = result.capabilities[0]
        said.append(f"  nvcc compiles it for compute capability {capability} at the first import")
    if shipped.keeps:
        said.append(
            "  one copy of its module per stream, because it may keep state from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if not result.has_licence:
        said.append("  no licence was found in the workspace: nobody may use it without one")
    return said
