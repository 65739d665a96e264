"""Recorded reports, and what is kept of their tables, compressed as far as zstd goes, which takes
too long beside a GPU; timings, checks and builds of an earlier workbench as those of today, and
large ones of checks and builds packed; and the journal, whose lines so far become its packed part.

    python -m benchmarks.repack [STUDY...]

Their content stays as it was written. What names a report by its sha256 names the new one, and what
is kept of its tables is read again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from workbench.evidence.layout import PACKED, PACKINGS, EvidenceFolder
from workbench.evidence.records import Build, Checks, Timing
from workbench.evidence.store import digest_of, encoded, packed, read, unpacked, write_bytes
from workbench.ncu import frames
from workbench.ncu.cache import tables_of
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
LEVEL = 22  # the highest of zstd
LEAST = 0.02  # of a report: for less it is left alone
WORTH = 2000  # bytes, from which on checks and builds are packed: others are text to be read


def repacked(report: Path) -> bytes | None:
    """None where that is hardly smaller."""
    after = frames.compressed(b"".join(frames.pieces(report)), LEVEL)
    return after if len(after) < report.stat().st_size * (1 - LEAST) else None


def replace(evidence: Path, report: Path, new: bytes) -> None:
    """In the evidence on a GPU, one of its reports and its sha256."""
    before = digest_of(report)
    naming = [
        path for path in evidence.glob("*/captures/*.json") if before in path.read_text("utf-8")
    ]
    write_bytes(report, new)
    after = digest_of(report)
    for path in naming:
        write_bytes(path, path.read_text("utf-8").replace(before, after).encode())
    tables_of(report, evidence / "tables" / f"{report.stem}.json.zst")


def pack_journal(folder: EvidenceFolder) -> None:
    """All of it as its oldest lines."""
    before, last = folder.journal_before, folder.journal
    if last.exists():
        lines = unpacked(before, before.read_bytes()) if before.exists() else b""
        new = packed(before, lines + last.read_bytes())
        _tell(last, new)
        write_bytes(before, new)
        last.unlink()


def main(studies: Sequence[str]) -> int:
    workspace = find_workspace(ROOT)
    folders = [
        folder
        for name in studies or workspace.studies()
        for folder in sorted((ROOT / "ablations" / name / "evidence").glob("*/"))
    ]
    reports = [path for folder in folders for path in sorted(folder.glob("reports/*.ncu-repz"))]
    with ProcessPoolExecutor() as pool:
        for report, new in zip(reports, pool.map(repacked, reports), strict=True):
            if new is not None:
                _tell(report, new)
                replace(report.parents[1], report, new)
        tables = [path for folder in folders for path in sorted(folder.glob("tables/*.zst"))]
        for table, new in zip(tables, pool.map(repacked, tables), strict=True):
            if new is not None:
                _tell(table, new)
                write_bytes(table, new)
    for path in (path for folder in folders for path in sorted(folder.glob("*/timings/*"))):
        if path.suffix in PACKINGS and path.suffix != PACKED:
            new = encoded(read(path, Timing), path.with_suffix(PACKED))
            _tell(path, new)
            write_bytes(path.with_suffix(PACKED), new)
            path.unlink()
    for folder in map(EvidenceFolder, folders):
        pack_journal(folder)
    for name, kind in (("checks", Checks), ("builds", Build)):
        for path in (path for folder in folders for path in sorted(folder.glob(f"{name}/*.json"))):
            plain = encoded(read(path, kind), path)
            new = packed(packing := path.with_name(path.name + PACKED), plain)
            if len(plain) - len(new) >= WORTH:
                _tell(path, new)
                write_bytes(packing, new)
                path.unlink()
            elif plain != path.read_bytes():
                _tell(path, plain)
                write_bytes(path, plain)
    return 0


def _tell(path: Path, new: bytes) -> None:
    lost = path.stat().st_size - len(new)
    print(f"{path.relative_to(ROOT)}: {lost / 1e6:.2f} MB less")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
