"""Where evidence stands in a workspace, and how it is written."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import EnvironmentLacks, UsageError
from workbench.words import SCHEMA_VERSION


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

    def capture_index(self, shape: str, variant: str) -> Path:
        return self.root / shape / "captures" / f"{variant}.json"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def tables(self, report: str) -> Path:
        """What was read of a report; see ``load.tables``."""
        return self.root / "tables" / f"{Path(report).stem}.json.zst"

    @property
    def ceilings(self) -> Path:
        return self.root / "ceilings.json"


def evidence_folders(ablations: Path, study: str) -> list[EvidenceFolder]:
    top = ablations / study / "evidence"
    return [EvidenceFolder(p) for p in sorted(top.glob("*")) if p.is_dir()]


def disk_full(path: Path, error: OSError) -> EnvironmentLacks | None:
    """The error to raise where a write failed for want of space; None for other reasons."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return EnvironmentLacks(
        f"no space left on the disk that holds {path}",
        hint="free some space and run the same command again: what was finished is kept",
    )


def write_bytes(path: Path, data: bytes) -> None:
    """Write all of it or nothing: a reader never sees half a file. Raises EnvironmentLacks."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise disk_full(path, error) or error from None


def write_json(path: Path, data: dict[str, Any]) -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1, sort_keys=True)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Raises UsageError for a file that is not JSON, or of a newer schema than this version's."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint="restore it, or delete it and measure again"
        ) from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise UsageError(
            f"{path} has no schema_version", hint="it is not evidence of the workbench"
        )
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path} is of schema {version}; this workbench reads up to {SCHEMA_VERSION}",
            hint="pip install --upgrade kernel-workbench",
        )
    assert isinstance(data, dict)
    return data
