"""Where evidence stands in a workspace."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import EnvironmentLacks

EVIDENCE = "evidence"
PACKED = ".zst"  # at the end of the name of a file that is compressed


def gpu_slug(name: str) -> str:
    """A GPU's name as its folder has it: ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def timing_name(file: str) -> str:
    """By which the journal knows a timing: without how it is compressed."""
    return file.removesuffix(PACKED)


def listed(folder: Path, end: str = "") -> list[Path]:
    """What is in a folder and ends so, sorted; nothing where there is no such folder, and no
    hidden files. Raises EnvironmentLacks for a folder that cannot be read: it is not empty.
    """
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from None
    return sorted(p for p in paths if p.name.endswith(end) and not p.name.startswith("."))


def is_there(path: Path) -> bool:
    """Whether there is such a file. Raises EnvironmentLacks where that cannot be known."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> EnvironmentLacks:
    why = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return EnvironmentLacks(
        f"{path} cannot be read: {why}",
        hint="`ls -ld` says who may read it; nothing was written on its account",
    )


@dataclass(frozen=True)
class EvidenceFolder:
    """``ablations/<study>/evidence/<gpu>/``; ``gpu`` is the GPU's name in lower case."""

    root: Path

    @property
    def gpu(self) -> str:
        return self.root.name

    def variant(self, variant: str) -> Path:
        """Its build and its checks."""
        return self.root / f"variants/{variant}.json"

    def timings(self, shape: str) -> Path:
        return self.root / shape / "timings"

    def timing(self, shape: str, name: str) -> Path:
        """Where a timing that the journal knows by this name is, or is to be written."""
        return self.timings(shape) / (name + PACKED)

    def timing_files(self, shape: str) -> list[Path]:
        """Oldest first."""
        return listed(self.timings(shape), ".json" + PACKED)

    def shape(self, shape: str) -> Path:
        """What a shape is that the study does not list."""
        return self.root / shape / "shape.json"

    def captures(self, shape: str) -> Path:
        """The captures of all variants."""
        return self.root / shape / "captures.json"

    def capture_files(self) -> list[Path]:
        """Those of all shapes."""
        return [path for shape in self.shapes if is_there(path := self.captures(shape.name))]

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def tables(self, report: str) -> Path:
        """What was read of a report; see ``ncu.captures``."""
        return self.root / f"tables/{Path(report).stem}.json.zst"

    @property
    def ceilings(self) -> Path:
        return self.root / "ceilings.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def shapes(self) -> list[Path]:
        """The folders of the shapes, and those of variants, tables and reports beside them."""
        return [path for path in listed(self.root) if path.is_dir()]

    @property
    def every_gpu(self) -> list[EvidenceFolder]:
        """This and its neighbours: the folders of the same study for all GPUs."""
        return [EvidenceFolder(path) for path in listed(self.root.parent) if path.is_dir()]

    @property
    def every_study(self) -> list[EvidenceFolder]:
        """This and the folders of the workspace's other studies for the same GPU."""
        if self.root.parent.name != EVIDENCE:  # what a packaged workspace measured here
            return [self]
        studies = (path / EVIDENCE / self.gpu for path in listed(self.root.parents[2]))
        return [EvidenceFolder(path) for path in studies if path.is_dir()]


def evidence_folders(ablations: Path, study: str) -> list[EvidenceFolder]:
    top = ablations / study / EVIDENCE
    return [EvidenceFolder(p) for p in listed(top) if p.is_dir()]
