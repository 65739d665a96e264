"""``workbench calibrate``."""

from __future__ import annotations

from workbench.app.calibrate import calibrate
from workbench.cli.options import CalibrateOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor, note
from workbench.reporters.calibrate import ceiling_words, wrong_ceiling
from workbench.run.protocol import CeilingFailed, CeilingMeasured, Event


def hear(event: Event) -> None:
    match event:
        case CeilingMeasured():
            note(ceiling_words(event.id, event.ceiling))
        case CeilingFailed():
            note(f"{ceiling_words(event.id, None)}: {event.error.message}")


def run(options: CalibrateOptions) -> None:
    here = executor("calibrate", options.on)
    _, measured = calibrate(here, options.project, options.study, hear)
    show(options, measured)
    if not options.json and all(roof.theoretical is None for roof in measured.ceilings.values()):
        note("no capture of this GPU is recorded, so theoretical ceilings are not known")
    for roof in measured.wrong:
        note(f"warning: {wrong_ceiling(roof)}")
