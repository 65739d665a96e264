"""Converts evidence of an older layout: ``python -m workbench.evidence.convert FOLDER``.

Until November 2026 a build, its checks and each of its captures had files of their own. Nothing is
measured again: the records are the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from workbench.evidence import store
from workbench.evidence.records import (
    Build,
    CaptureIndex,
    Captures,
    Check,
    Provenance,
    VariantRecord,
)
from workbench.evidence.store import EvidenceFolder
from workbench.study.files import alone, listed

OLD = ("builds", "checks")


def is_old(folder: EvidenceFolder) -> bool:
    """Whether a folder has evidence that only this module reads."""
    return any((folder.root / name).is_dir() for name in OLD)


def convert(folder: EvidenceFolder) -> None:
    """Raises UsageError for a file that is damaged, before any is deleted."""
    with alone(folder.root):
        _convert(folder)


def _convert(folder: EvidenceFolder) -> None:
    files = [path for name in OLD for path in listed(folder.root / name, ".json")]
    for name in dict.fromkeys(path.stem for path in files):
        build, checks = (folder.root / old / f"{name}.json" for old in OLD)
        checked = json.loads(checks.read_bytes()) if checks.exists() else {}
        record = VariantRecord(
            variant=name,
            build=store.read_record(build, Build) if build.exists() else None,
            checks=msgspec.convert(checked.get("shapes", {}), dict[str, Check]),
            checked=msgspec.convert(checked.get("provenance"), Provenance | None),
        )
        store.write(folder.variant(name), record)
    for shape in folder.shapes:
        captures = listed(shape / "captures", ".json")
        if captures:
            indexes = {path.stem: store.read_record(path, CaptureIndex) for path in captures}
            store.write(folder.captures(shape.name), Captures(captures=indexes))
            files += captures
    for path in files:
        path.unlink()
        if not listed(path.parent):
            path.parent.rmdir()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        convert(EvidenceFolder(Path(argument)))
