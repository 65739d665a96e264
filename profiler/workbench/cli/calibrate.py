"""``workbench calibrate``."""

from __future__ import annotations

from contextlib import suppress

from workbench.app.executor import Task
from workbench.app.target import find_study
from workbench.cli.options import CalibrateOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor, note
from workbench.derive.roofline.ceilings import Peaks, peaks
from workbench.derive.roofline.point import measured_ceilings
from workbench.errors import BadCapture, Interrupted, ToolFailed
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence, load_calibration
from workbench.ncu.captures import Captures
from workbench.render.as_json import plain_data
from workbench.render.document import rooflines
from workbench.render.document.blocks import Paragraph, words
from workbench.run.plan import Plan
from workbench.run.protocol import CeilingFailed, CeilingMeasured, CeilingsJob, Event
from workbench.run.side_jobs import CEILINGS
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


def run(options: CalibrateOptions) -> None:
    here = executor("calibrate", options.on)
    workspace, found = find_study(here, options.project, options.study)
    folder = EvidenceFolder(workspace.evidence_base(found.name) / here.require_gpu().slug)
    config, plan = for_study(workspace.config, found.ladder), Plan(found.default_shape)
    job = CeilingsJob(ceilings=CEILINGS)
    try:
        here.perform([Task(workspace, found, config, folder, plan, instead=job)], _tell)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing was written") from None
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
    if not options.json and all(roof.theoretical is None for roof in measured.ceilings.values()):
        note("no capture of this GPU is on record, so theoretical ceilings are not known")
    for roof in measured.wrong:
        note(
            f"warning: the measured {rooflines.ceiling_name(roof.id)} ceiling is above "
            "what the hardware can do: an error in the data"
        )
