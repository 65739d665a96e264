"""The captures that evidence names, opened once and kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.ncu.cache import Launches, capture_of, tables_of
from workbench.ncu.capture import Capture
from workbench.ncu.reader import Wanted

if TYPE_CHECKING:
    import pandas as pd

REPORTS = ""  # no shape is called that


class Reports:
    """The launches of reports, each read when it is first asked for."""

    def __init__(self) -> None:
        self._launches: dict[Path, Launches] = {}

    def capture(self, folder: EvidenceFolder, name: str, wanted: Wanted) -> Capture:
        """The wanted launches of a report. Raises BadCapture."""
        path = folder.reports / name
        if path not in self._launches:
            self._launches[path] = tables_of(path, folder.tables(name))
        return capture_of(self._launches[path], wanted, path)


class Captures:
    """Those of one study at one shape on one GPU."""

    def __init__(self, evidence: Evidence, reports: Reports | None = None) -> None:
        self.evidence = evidence
        self._reports = reports or Reports()
        self._captures: dict[str, Capture | None] = {}

    def of(self, variant: str) -> Capture | None:
        """The variant's launches, where a current or adopted capture of them is on record."""
        if variant not in self._captures:
            self._captures[variant] = self._open(variant)
        return self._captures[variant]

    def repeats(self, variant: str) -> list[pd.DataFrame]:
        """Metrics of earlier captures of the same sources under the same ncu, newest first."""
        index, folder = self.evidence.capture_index(variant).current, self.evidence.folder
        if index is None:
            return []
        kept = [name for name in index.repeats or () if (folder.reports / name).is_file()]
        return [self._reports.capture(folder, name, index.wanted).metrics for name in kept]

    def at(self, shape: str) -> Captures:
        """Those at another shape; what has been read is shared."""
        return Captures(self.evidence.at(shape), self._reports)

    def _open(self, variant: str) -> Capture | None:
        index = self.evidence.capture_index(variant).usable
        if index is None:
            return None
        return self._reports.capture(self.evidence.folder, index.report, index.wanted)


def captures_of(evidence: Evidence) -> Captures:
    """The captures of this evidence; asked again, at this shape or another, the same ones."""
    opened = evidence.files.opened
    reports = opened.setdefault(REPORTS, Reports())
    assert isinstance(reports, Reports)
    captures = opened.setdefault(evidence.shape, Captures(evidence, reports))
    assert isinstance(captures, Captures)
    return captures
