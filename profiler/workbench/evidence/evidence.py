"""What is on record for a study on a GPU, and whether it still fits the sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.evidence.ceilings import Calibration, load_calibration
from workbench.evidence.layout import EvidenceFolder, read_json
from workbench.ncu.cache import Launches, capture_of, tables_of
from workbench.ncu.capture import Capture, Wanted
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.words import Status

if TYPE_CHECKING:
    import pandas as pd

TIMING_COLUMNS = [
    "variant",
    "mode",
    "round",
    "order",
    "microseconds",
    "calls",
    "how",
    "sm_clock_mhz",
    "temperature_c",
    "throttled",
]


@dataclass(frozen=True)
class Record:
    """One evidence file: its content, and whether it belongs to the sources as they are now."""

    state: Status
    data: dict[str, Any]

    @property
    def current(self) -> bool:
        return self.state == Status.CURRENT

    @property
    def usable(self) -> bool:
        """Current, or adopted and its sources unchanged since."""
        return self.state in (Status.CURRENT, Status.ADOPTED)

    @property
    def wanted(self) -> Wanted:
        """Which launches of its report an index entry stands for."""
        adopted = self.data.get("adopted")
        return tuple(adopted["launches"]) if adopted else str(self.data["range"])


NOTHING = Record(Status.MISSING, {})


class OnDisk:
    """A study's fingerprints and evidence files as they were when first asked for."""

    def __init__(self, study: Study) -> None:
        self.fingerprints = Fingerprints(study)
        self._read: dict[Path, dict[str, Any] | None] = {}
        self._reports: dict[Path, Launches] = {}

    def json(self, path: Path) -> dict[str, Any] | None:
        """None where there is no such file. Raises UsageError for what is no evidence."""
        if path not in self._read:
            self._read[path] = read_json(path) if path.is_file() else None
        return self._read[path]

    def capture(self, folder: EvidenceFolder, name: str, wanted: Wanted) -> Capture:
        """The wanted launches of a report. Raises BadCapture."""
        report = folder.reports / name
        if report not in self._reports:
            self._reports[report] = tables_of(report, folder.tables(name))
        return capture_of(self._reports[report], wanted, report)


@dataclass(frozen=True)
class Evidence:
    """All that is on record for ``study`` at ``shape`` on one GPU; what has been read is kept."""

    study: Study
    shape: str
    folder: EvidenceFolder
    known: OnDisk | None = field(default=None, repr=False, compare=False)

    def at(self, shape: str) -> Evidence:
        """The same at another shape."""
        return Evidence(self.study, shape, self.folder, self._disk)

    @cached_property
    def _disk(self) -> OnDisk:
        return self.known or OnDisk(self.study)

    @property
    def _fingerprints(self) -> Fingerprints:
        return self._disk.fingerprints

    @cached_property
    def _prints(self) -> dict[str, str]:
        return {name: self._fingerprints.of(name, self.shape) for name in self.study.variants}

    def _record(self, found: dict[str, Any] | None, wanted: str) -> Record:
        if found is None:
            return NOTHING
        return Record(Status.CURRENT if found["fingerprint"] == wanted else Status.STALE, found)

    def build(self, variant: str) -> Record:
        found = self._disk.json(self.folder.build(variant))
        return self._record(found, self._fingerprints.of_sources(variant))

    def check(self, variant: str, shape: str | None = None) -> Record:
        """The check at one shape; ``data`` holds status, why, max_abs and relative."""
        shape = shape or self.shape
        found = self._disk.json(self.folder.check(variant))
        entry = found["shapes"].get(shape) if found else None
        return self._record(entry, self._fingerprints.of(variant, shape))

    def capture_index(self, variant: str) -> Record:
        found = self._disk.json(self.folder.capture_index(self.shape, variant))
        record = self._record(found, self._prints[variant])
        if record.current and not self.report_path(record).is_file():
            return NOTHING
        if record.current and "adopted" in record.data:
            return Record(Status.ADOPTED, record.data)
        return record

    def report_path(self, index: Record) -> Path:
        return self.folder.reports / str(index.data["report"])

    def capture(self, variant: str) -> Capture | None:
        """The variant's launches, where a current capture of them is on record."""
        if variant not in self._captures:
            self._captures[variant] = self._load(variant)
        return self._captures[variant]

    def repeats(self, variant: str) -> list[pd.DataFrame]:
        """Metrics of earlier captures of the same sources under the same ncu, newest first."""
        index = self.capture_index(variant)
        names = index.data.get("repeats", []) if index.current else []
        there = [str(name) for name in names if (self.folder.reports / str(name)).is_file()]
        return [self._disk.capture(self.folder, n, index.wanted).metrics for n in there]

    @cached_property
    def _captures(self) -> dict[str, Capture | None]:
        return {}

    def _load(self, variant: str) -> Capture | None:
        index = self.capture_index(variant)
        if not index.usable:
            return None
        return self._disk.capture(self.folder, str(index.data["report"]), index.wanted)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The measured ceilings of this GPU; None where it was not calibrated."""
        return load_calibration(self.folder)

    @cached_property
    def sessions(self) -> list[tuple[Path, dict[str, Any]]]:
        """Timing sessions, oldest first."""
        paths = sorted(self.folder.timings(self.shape).glob("*.json"))
        return [(path, read_json(path)) for path in paths]

    def timed(self, session: dict[str, Any]) -> list[str]:
        """Variants of a session whose sources have not changed since."""
        prints = session["fingerprints"]
        return [name for name in prints if self._prints.get(name) == prints[name]]

    def session(self, variants: list[str]) -> tuple[Path, dict[str, Any]] | None:
        """The session that holds the most of ``variants`` as they are now; the newest of equals."""
        best, most = None, 0
        for path, session in self.sessions:
            held = len(set(self.timed(session)) & set(variants))
            if held and held >= most:
                best, most = (path, session), held
        return best

    def was_timed(self, variant: str) -> bool:
        return any(variant in session["fingerprints"] for _, session in self.sessions)

    def state(self, variant: str) -> dict[str, Status]:
        """current, stale or missing (captures: or adopted), for each kind of evidence."""
        timed = any(variant in self.timed(session) for _, session in self.sessions)
        late = Status.STALE if self.was_timed(variant) else Status.MISSING
        return {
            "build": self.build(variant).state,
            "check": self.check(variant).state,
            "timing": Status.CURRENT if timed else late,
            "capture": self.capture_index(variant).state,
        }


def timing_table(session: dict[str, Any]) -> pd.DataFrame:
    """One row per timed sample; see ``TIMING_COLUMNS``. Times in microseconds."""
    import pandas as pd

    table = pd.DataFrame(session["samples"], columns=TIMING_COLUMNS)
    return table.astype({"variant": "category", "mode": "category"})  # picked by them very often
