"""``workbench calibrate``."""

from __future__ import annotations

from contextlib import suppress

import typer

from workbench.app import executor
from workbench.app.executor import INTERRUPTED, spending
from workbench.app.target import find_study
from workbench.cli.options import CalibrateOptions
from workbench.cli.printing import tell
from workbench.cli.streams import note
from workbench.derive.roofline.ceilings import Peaks, peaks
from workbench.derive.roofline.point import measured_ceilings
from workbench.errors import BadCapture, ToolFailed
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence, load_calibration
from workbench.ncu.captures import Captures
from workbench.remote.target import Task
from workbench.render.as_json import plain_data
from workbench.render.document import rooflines
from workbench.render.document.blocks import Paragraph, words
from workbench.run import machine
from workbench.run.calibrate import CEILINGS, calibrate
from workbench.run.plan import Plan
from workbench.run.protocol import CeilingFailed, CeilingMeasured, CeilingsJob, Event
from workbench.study.config import for_study
from workbench.study.model import Study
from workbench.words import ABSENT


def capture_peaks(study: Study, folder: EvidenceFolder) -> Peaks | None:
    """Of the first capture of this GPU that has them, the default shape's before others'."""
    own = Captures(Evidence(study, study.default_shape, folder))
    for shape in dict.fromkeys([study.default_shape, *study.shapes]):
        captures = own.at(shape)
        for variant in study.variants:
            with suppress(BadCapture):  # another will have them
                capture = captures.of(variant)
                if capture is not None and (found := peaks(capture.metrics)) is not None:
                    return found
    return None


def _tell(event: Event) -> None:
    match event:
        case CeilingMeasured():
            value = rooflines.amount(event.ceiling.value, event.ceiling.unit)
            note(f"{rooflines.ceiling_name(event.id)}: {value}")
        case CeilingFailed():
            note(f"{rooflines.ceiling_name(event.id)}: {ABSENT}: {event.error.message}")


@executor.on_target
def run(options: CalibrateOptions) -> None:
    workspace, found = find_study(options.project, options.study)
    remote = executor.REMOTE.get()
    gpu = remote.gpu if remote else machine.find_gpu()
    lacks = None if remote else machine.why_not_calibrating()
    if lacks is not None or gpu is None:
        raise lacks or machine.why_not_measuring()
    folder = EvidenceFolder(workspace.evidence_base(found.name) / gpu.slug)
    try:
        if remote is not None:
            config, plan = for_study(workspace.config, found.ladder), Plan(found.default_shape)
            instead = CeilingsJob(ceilings=CEILINGS)
            executor.answer(Task(workspace, found, config, folder, plan, instead=instead), _tell)
        else:
            with spending(workspace, Evidence(found, found.default_shape, folder)):
                calibrate(folder, _tell)
    except KeyboardInterrupt:
        note("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    calibration = load_calibration(folder)
    if calibration is None:
        raise ToolFailed(f"{folder.ceilings} is gone")
    measured = measured_ceilings(calibration, capture_peaks(found, folder))
    title = f"measured ceilings: {measured.gpu}, {measured.date[:10]}; {found.name}"
    tell(
        options,
        lambda: plain_data(measured),
        lambda: [Paragraph(words(title)), rooflines.ceilings(measured)],
    )
    if not options.json and all(roof.theoretical is None for roof in measured.by_id.values()):
        note("no capture of this GPU is on record, so theoretical ceilings are not known")
    for roof in measured.wrong:
        note(
            f"warning: the measured {rooflines.ceiling_name(roof.id)} ceiling is above "
            "what the hardware can do: an error in the data"
        )
