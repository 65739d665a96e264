"""``workbench calibrate``."""

from __future__ import annotations

from workbench.app.calibrate import calibrate
from workbench.cli.options import CalibrateOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor, note
from workbench.render.document import limits
from workbench.render.document.blocks import paragraph
from workbench.run.protocol import CeilingFailed, CeilingMeasured, Event
from workbench.words import ABSENT


def hear(event: Event) -> None:
    match event:
        case CeilingMeasured():
            value = limits.amount(event.ceiling.value, event.ceiling.unit)
            note(f"{limits.ceiling_name(event.id)}: {value}")
        case CeilingFailed():
            note(f"{limits.ceiling_name(event.id)}: {ABSENT}: {event.error.message}")


def run(options: CalibrateOptions) -> None:
    here = executor("calibrate", options.on)
    study, measured = calibrate(here, options.project, options.study, hear)
    title = f"measured ceilings: {measured.gpu}, {measured.date[:10]}; {study.name}"
    tell(options, lambda: measured, lambda: [paragraph(title), limits.ceilings(measured)])
    if not options.json and all(roof.theoretical is None for roof in measured.ceilings.values()):
        note("no capture of this GPU is recorded, so theoretical ceilings are not known")
    for roof in measured.wrong:
        note(
            f"warning: the measured {limits.ceiling_name(roof.id)} ceiling is above "
            "what the hardware can do: an error in the data"
        )
