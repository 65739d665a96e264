"""What is kept of the report that one ncu has written."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from workbench.errors import BadCapture
from workbench.evidence.records import CapturedKernel
from workbench.ncu.ranges import range_name
from workbench.ncu.reader import launches_by_range
from workbench.ncu.resources import resources_of
from workbench.run import machine
from workbench.run.protocol import Captured
from workbench.run.recording import Recorder
from workbench.study.config import Profiler
from workbench.study.front_ends import is_compiling
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.words import ABSENT


class Reports:
    """Those of one measurement, written by ncu with the options of ``profiler``."""

    def __init__(self, study: Study, shape: str, profiler: Profiler, recorder: Recorder) -> None:
        self.study, self.shape = study, shape
        self.profiler, self.recorder = profiler, recorder

    def store(self, report: Path, captured: Iterable[Captured]) -> list[str]:
        """Keep the report with the variants that it really holds; these."""
        if not report.exists():
            return []
        counts = launches_by_range(report)
        held = {
            event.variant: count
            for event in captured
            if (count := counts.get(self.range_of(event.variant)))
        }
        if held:
            version = machine.ncu_version(machine.find_ncu() or "ncu") or ABSENT
            resources = self.resources(report, held)
            self.recorder.captures(report, held, self.profiler, version, resources)
        return list(held)

    def resources(self, report: Path, held: Iterable[str]) -> dict[str, tuple[CapturedKernel, ...]]:
        """Of the kernels of those that others compile: what is compiled here is known better."""
        study = self.study
        others = [n for n in held if is_compiling(source_files(study, study.variants[n]))]
        with suppress(BadCapture):  # what has to be read of it later says what is wrong
            return {name: resources_of(report, self.range_of(name)) for name in others}
        return {}

    def range_of(self, variant: str) -> str:
        """The NVTX range of a variant's launches."""
        return range_name(self.study.name, variant, self.shape)
