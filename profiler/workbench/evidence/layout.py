"""Where evidence stands in a workspace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


def gpu_slug(name: str) -> str:
    """A card's name as its folder has it: ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True)
class EvidenceFolder:
    """``ablations/<study>/evidence/<gpu>/``; ``gpu`` is the card's name in lower case."""

    root: Path

    @property
    def gpu(self) -> str:
        return self.root.name

    def build(self, variant: str) -> Path:
        return self.root / "builds" / f"{variant}.json"

    def check(self, variant: str) -> Path:
        return self.root / "checks" / f"{variant}.json"

    def timings(self, shape: str) -> Path:
        return self.root / shape / "timings"

    def sessions(self, shape: str) -> list[Path]:
        """Timing sessions, oldest first."""
        return sorted(self.timings(shape).glob("*.json"))

    def capture_index(self, shape: str, variant: str) -> Path:
        return self.root / shape / "captures" / f"{variant}.json"

    def capture_indexes(self) -> list[Path]:
        """Those of all shapes."""
        return sorted(self.root.glob("*/captures/*.json"))

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def tables(self, report: str) -> Path:
        """What was read of a report; see ``ncu.cache``."""
        return self.root / "tables" / f"{Path(report).stem}.json.zst"

    @property
    def ceilings(self) -> Path:
        return self.root / "ceilings.json"


def evidence_folders(ablations: Path, study: str) -> list[EvidenceFolder]:
    top = ablations / study / "evidence"
    return [EvidenceFolder(p) for p in sorted(top.glob("*")) if p.is_dir()]
