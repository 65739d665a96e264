"""``workbench ship``."""

from __future__ import annotations

from workbench.app.ship import ship
from workbench.app.shipped_subject import other_code
from workbench.app.target import find_recorded, shown_path
from workbench.cli.options import ShipOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor, note


def run(options: ShipOptions) -> None:
    given = (options.project, options.study, None)
    target = find_recorded(executor("ship"), *given, gpu=options.gpu)
    done = ship(target, options.variant, options.name, options.to, options.arch or ())
    folder, subject, shipped = done.folder, done.subject, done.shipped
    if options.json:
        show_json(done)
        return
    at = next((t for t in shipped.times if t.shape == shipped.judged_at), None)
    lines = [
        f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}: {shown_path(folder)}",
        f"  {len(shipped.files)} files, {len(shipped.cubins)} cubins"
        + (f" for {', '.join(subject.archs)}" if shipped.cubins else ""),
    ]
    if at is not None and at.ratio is not None:
        lines.append(f"  {at.ratio:.3g}x of {at.reference} at {at.shape}, recorded")
    if shipped.keeps:
        lines.append(
            "  one copy of its module per stream, because it may keep state from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if other := other_code(shipped):
        lines.append(f"  {other}: time the package where it will run")
    if "LICENSE" not in shipped.files:
        lines.append("  no licence was found in the workspace: nobody may use it without one")
    say(*lines)
    note(f"hint: pip install {shown_path(folder)}, and run the tests in its folder with pytest")
