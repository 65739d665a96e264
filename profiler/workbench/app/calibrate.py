"""The ceilings that a GPU reaches, measured, beside those of its captures."""

from __future__ import annotations

from pathlib import Path

from workbench.app.executor import Executor, Hear, Task
from workbench.app.target import find_study
from workbench.derive.rooflines import MeasuredCeilings, Peaks, measured_ceilings, peaks
from workbench.errors import Interrupted, ToolFailed
from workbench.evidence.store import EvidenceFolder, load_calibration
from workbench.load import load
from workbench.run.measurement import Plan
from workbench.run.protocol import CeilingsJob
from workbench.run.side_jobs import CEILINGS
from workbench.study.model import Study


def calibrate(
    executor: Executor, project: Path | None, study: str | None, hear: Hear
) -> tuple[Study, MeasuredCeilings]:
    """Raises EnvironmentLacks without a GPU, ToolFailed where nothing could be measured, and
    Interrupted: nothing is written then.
    """
    workspace, chosen = find_study(executor, project, study)
    folder = EvidenceFolder(workspace.evidence_base(chosen.name) / executor.require_gpu().slug)
    plan, job = Plan(chosen.default_shape), CeilingsJob(ceilings=CEILINGS)
    task = Task(workspace, chosen, workspace.config, folder, plan, instead=job)
    try:
        executor.perform([task], hear)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing was written") from None
    calibration = load_calibration(folder)
    if calibration is None:
        raise ToolFailed(f"{folder.ceilings} is gone")
    return chosen, measured_ceilings(calibration, _capture_peaks(chosen, folder))


def _capture_peaks(study: Study, folder: EvidenceFolder) -> Peaks | None:
    """Return the peaks of the first capture of this GPU that has them, the default shape's before
    others'.
    """
    for shape in dict.fromkeys([study.default_shape, *study.shapes]):
        every = load(study, folder, {shape: study.variants}, captures=[shape], samples=False)
        captures = [known.capture for known in every[shape].variants.values() if known.capture]
        for capture in captures:
            if (peak := peaks(capture.metrics)) is not None:
                return peak
    return None
