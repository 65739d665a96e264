"""The captures that evidence names, opened once and kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import BadCapture
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import CaptureIndex
from workbench.evidence.store import EXCHANGED, report_sha256
from workbench.ncu.cache import Launches, capture_of, tables_of
from workbench.ncu.capture import Capture
from workbench.ncu.reader import Wanted

if TYPE_CHECKING:
    from workbench.ncu.capture import Table

REPORTS = "reports"


class Reports:
    """The launches of reports and captures made of them, each read when it is first asked for."""

    def __init__(self) -> None:
        self.told: dict[str, None] = {}  # what is wrong with a file and cost nothing
        self._launches: dict[Path, Launches] = {}
        self._captures: dict[tuple[Path, Wanted], Capture] = {}

    def capture(self, folder: EvidenceFolder, name: str, sha256: str, wanted: Wanted) -> Capture:
        """The wanted launches of a report with this hash; asked again, the same object. Raises
        BadCapture.
        """
        path = folder.reports / name
        if path not in self._launches:
            self._launches[path] = tables_of(path, folder.tables(name), sha256, self.tell)
        if (path, wanted) not in self._captures:
            self._captures[path, wanted] = capture_of(self._launches[path], wanted, path)
        return self._captures[path, wanted]

    def tell(self, text: str) -> None:
        """Each thing is told once."""
        self.told[text] = None


class Captures:
    """Those of one study at one shape on one GPU; what is read lives as long as the evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    @property
    def _reports(self) -> Reports:
        reports = self._evidence.files.opened.setdefault(REPORTS, Reports())
        assert isinstance(reports, Reports)
        return reports

    def of(self, variant: str) -> Capture | None:
        """The variant's launches, where a current capture of them is on record. Raises
        BadCapture.
        """
        index = self._evidence.capture_index(variant).current
        if index is None:
            return None
        return self._reports.capture(self._evidence.folder, index.report, index.sha256, index.range)

    def repeats(self, variant: str) -> list[Table]:
        """Metrics of earlier captures of the same sources under the same ncu, newest first.

        One that cannot be read costs the noise estimate alone: see ``told``.
        """
        index, folder = self._evidence.capture_index(variant).current, self._evidence.folder
        if index is None:
            return []
        there = {name: report_sha256(folder, name) for name in index.repeats or ()}
        found = [self._repeat(name, sha, index) for name, sha in there.items() if sha is not None]
        return [metrics for metrics in found if metrics is not None]

    def _repeat(self, name: str, sha256: str, index: CaptureIndex) -> Table | None:
        folder = self._evidence.folder
        try:
            if index.known_sha256.get(name, sha256) != sha256:
                raise BadCapture(f"{name} {EXCHANGED}")
            return self._reports.capture(folder, name, sha256, index.range).metrics
        except BadCapture as error:
            self._reports.tell(f"{error.message}: the noise is estimated without this repeat")
            return None

    @property
    def told(self) -> tuple[str, ...]:
        """What was found wrong with files and cost no capture."""
        return tuple(self._reports.told)

    def at(self, shape: str) -> Captures:
        """Those at another shape; what has been read is shared."""
        return Captures(self._evidence.at(shape))
