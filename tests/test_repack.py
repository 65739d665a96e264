"""Recorded reports compressed further: content stays, and what names one names the new one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from msgspec import structs

from workbench.evidence import store
from workbench.evidence.journal import append, load_journal
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Checks, SessionEntry
from workbench.evidence.store import digest_of
from workbench.ncu import cache, frames
from workbench.words import HEADLINE
from workspaces import ROOT

sys.path.append(str(ROOT))  # where the benchmarks are imported from

from benchmarks import repack

EVIDENCE = ROOT / "ablations" / "transpose" / "evidence" / "nvidia-h200"


def test_a_report_is_smaller_and_all_that_names_it_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = tmp_path / "nvidia-h200"
    shutil.copytree(EVIDENCE, evidence)
    (report,) = (evidence / "reports").glob("*.ncu-repz")
    (table,) = (evidence / "tables").glob("*")
    content = b"".join(frames.pieces(report))
    repack.replace(evidence, report, frames.compressed(content, 3))  # about as ncu does
    before, kept = cache.tables_of(report, table), report.stat().st_size
    named = {path: json.loads(path.read_text()) for path in evidence.glob("*/captures/*.json")}
    new = repack.repacked(report)
    assert new is not None
    repack.replace(evidence, report, new)
    assert report.stat().st_size < kept * 0.9
    assert b"".join(frames.pieces(report)) == content
    for path, record in named.items():
        assert json.loads(path.read_text()) == {**record, "sha256": digest_of(report)}
    monkeypatch.setattr(cache, "launches", None)  # nothing is decoded again
    again = cache.tables_of(report, table)
    assert [(one.kernel, one.metrics) for one, _ in again] == [
        (one.kernel, one.metrics) for one, _ in before
    ]
    assert repack.repacked(report) is None


def test_what_is_kept_of_tables_is_smaller_and_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("kernels/transpose", "ablations/transpose"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "workbench.toml").write_text('study = "transpose"\n')
    monkeypatch.setattr(repack, "ROOT", tmp_path)
    (report,) = tmp_path.glob("ablations/transpose/evidence/*/reports/*.ncu-repz")
    (table,) = report.parents[1].glob("tables/*")
    before = cache.tables_of(report, table)
    table.write_bytes(frames.compressed(b"".join(frames.pieces(table)), cache.LEVEL))
    large = table.stat().st_size
    assert repack.main([]) == 0
    assert table.stat().st_size < large * 0.95
    monkeypatch.setattr(cache, "launches", None)  # nothing is decoded again
    again = cache.tables_of(report, table)
    assert [(one.kernel, one.metrics) for one, _ in again] == [
        (one.kernel, one.metrics) for one, _ in before
    ]


def test_large_checks_and_builds_are_packed_and_small_ones_stay_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("kernels/transpose", "ablations/transpose"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "workbench.toml").write_text('study = "transpose"\n')
    monkeypatch.setattr(repack, "ROOT", tmp_path)
    (root,) = tmp_path.glob("ablations/transpose/evidence/*")
    folder = EvidenceFolder(root)
    before = store.read(folder.check("chosen"), Checks)
    check = next(iter(before.shapes.values()))
    many = structs.replace(before, shapes={f"n{n}": check for n in range(20)})
    store.write(folder.check("chosen"), many)
    assert repack.main([]) == 0
    assert {path.name for path in (root / "checks").glob("chosen.*")} == {"chosen.json.bz2"}
    assert store.read(folder.check("chosen"), Checks) == many
    assert folder.check("tiled").suffix == folder.build("chosen").suffix == ".json"


def entry(file: str) -> SessionEntry:
    date = "2026-01-02T03:04:05Z"
    return SessionEntry(
        date=date,
        shape="large",
        file=file,
        sessions=1,
        regime=HEADLINE,
        fingerprints={},
        medians={},
    )


def test_lines_that_were_packed_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "ROOT", tmp_path)
    folder = EvidenceFolder(tmp_path / "nvidia-h200")
    append(folder, entry("a.json"), entry("b.json"))
    repack.pack_journal(folder)
    assert not folder.journal.exists()
    assert [found.file for found in load_journal(folder).sessions] == ["a.json", "b.json"]
    append(folder, entry("c.json"))
    repack.pack_journal(folder)
    append(folder, entry("d.json"))
    assert len(folder.journal.read_bytes().splitlines()) == 1
    assert [e.file for e in load_journal(folder).sessions] == [f"{n}.json" for n in "abcd"]
    whole = folder.journal_before.read_bytes()
    for broken in (whole[:-9], b"{}", whole[:60] + whole[70:]):
        folder.journal_before.write_bytes(broken)
        journal = load_journal(folder)
        assert [found.file for found in journal.sessions] == ["d.json"]
        assert journal.told[0].startswith("journal.jsonl.xz is passed over: it is damaged: ")
