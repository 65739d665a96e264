"""``workbench ship``."""

from __future__ import annotations

from pathlib import Path

from workbench.app import ship_check
from workbench.app.ship import Shipment, ship
from workbench.app.ship_check import Compared, PackageCheck
from workbench.app.shipped_subject import other_code
from workbench.app.target import find_recorded, shown_path
from workbench.cli.options import ShipOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor, note
from workbench.derive.speedup import Ratio
from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.records import ShippedTime
from workbench.render.numbers import interval, microseconds
from workbench.words import Move


def run(options: ShipOptions) -> None:
    if options.check is not None:
        return check(options, options.check)
    if not options.variant or not options.name:
        raise UsageError(
            "ship wants a variant and a name" if not options.name else "ship wants a variant",
            hint="workbench ship VARIANT --as NAME, or workbench ship --check DIR",
        )
    given = (options.project, options.study, None)
    target = find_recorded(executor("ship"), *given, gpu=options.gpu)
    done = ship(target, options.variant, options.name, options.to, options.arch or ())
    return tell(options, done)


def tell(options: ShipOptions, done: Shipment) -> None:
    folder, subject, shipped = done.folder, done.subject, done.shipped
    if options.json:
        show_json({"folder": str(folder), **store.content(shipped)})
        return
    at = next((t for t in shipped.times if t.shape == shipped.judged_at), None)
    lines = [
        f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}: {shown_path(folder)}",
        f"  {len(shipped.files)} files, {len(shipped.cubins)} cubins"
        + (f" for {', '.join(subject.archs)}" if shipped.cubins else ""),
    ]
    if at is not None and at.ratio is not None:
        lines.append(f"  {at.ratio:.3g}x of {at.reference} at {at.shape} on record")
    if shipped.keeps:
        lines.append(
            "  a copy of its module for every stream, since it may keep something from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if other := other_code(shipped):
        lines.append(f"  {other}: `workbench ship --check` tells whether that matters")
    if "LICENSE" not in shipped.files:
        lines.append("  no licence was found in the workspace: nobody may use it without one")
    say(*lines)
    note(f"hint: pip install {shown_path(folder)}; `workbench ship --check` times it again")


def check(options: ShipOptions, folder: Path) -> None:
    done = ship_check.check(executor("ship"), folder, options.project, options.shape)
    if options.json:
        show_json(done)
    else:
        say(*lines(done))
    ship_check.require_as_shipped(done)


def lines(done: PackageCheck) -> list[str]:
    shipped, found = done.opened.shipped, done.compared
    what = f"{done.package}: {shipped.variant} of {shipped.study}"
    shown = [f"{what}, shipped {shipped.date}", f"  tests: {done.tests}"]
    if done.changed:
        shown.append(f"  not as shipped: {', '.join(done.changed)}")
    if found is not None:
        shown.append(f"  now: {words(found.now)}")
        if found.on_record is not None:
            shown.append(f"  on record: {words(found.on_record)}, {shipped.environment.gpu}")
        shown.append(f"  {verdict(found)}: {found.why}")
    return shown


def verdict(found: Compared) -> str:
    if found.move is None:
        return "not compared"
    open_but_for_one_side = found.move == Move.CANNOT_TELL and found.slower is False
    return "not slower" if open_but_for_one_side else found.move


def words(time: ShippedTime) -> str:
    text = f"{microseconds(time.microseconds)} at {time.shape}"
    if time.ratio is None:
        return text
    ratio = Ratio(time.ratio, time.low, time.high, time.sessions, level=time.level)
    told = interval(ratio) if time.low and time.high else f"{time.ratio:.3g}x"
    return f"{text}, {told} of {time.reference}"
