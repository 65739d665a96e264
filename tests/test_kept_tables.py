"""What was read of a report is kept beside it, and is never taken for what it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.errors import BadCapture
from workbench.evidence.layout import EvidenceFolder
from workbench.ncu.cache import Kept, tables_of
from workbench.ncu.capture import Decoded, Tables
from workbench.ncu.catalog import needed_metrics
from workbench.ncu.reader import launches
from workbench.run.recording import remove_unused
from workspaces import EVIDENCE, recorded_report

FOLDER = EvidenceFolder(EVIDENCE)
REPORTS = sorted(FOLDER.reports.iterdir())
SMALL = recorded_report("b4h16s2048d128-causal", "fix10")
OTHER = recorded_report("b4h16s2048d128", "fix8")


def content(launch: Tables) -> list[object]:
    """All of it; the texts of floats, since an estimate that is missing is no number."""
    return [
        launch.kernel,
        sorted(map(repr, launch.metrics)),
        sorted(map(repr, launch.lines)),
        list(map(repr, launch.rules)),
        launch.collected,
    ]


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_what_is_kept_is_what_the_report_says(report: Path) -> None:
    kept = tables_of(report, FOLDER.tables(report.name))
    decoded = launches(report)
    assert len(kept) == len(decoded)
    for (launch, ranges), (action, named) in zip(kept, decoded, strict=True):
        assert isinstance(launch, Kept)
        assert list(ranges) == named
        assert content(launch) == content(Decoded(action, report))


def test_nothing_is_kept_of_a_report_that_is_gone() -> None:
    assert {p.name for p in (EVIDENCE / "tables").iterdir()} == {
        FOLDER.tables(report.name).name for report in REPORTS
    }


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "tables" / "small.json.zst"
    assert not isinstance(tables_of(SMALL, path)[0][0], Kept)
    assert isinstance(tables_of(SMALL, path)[0][0], Kept)
    return path


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "of another report"])
def test_what_does_not_fit_is_read_again(damage: str, kept: Path) -> None:
    whole = kept.read_bytes()
    kept.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "foreign": b"[]",
            "of another report": FOLDER.tables(OTHER.name).read_bytes(),
        }[damage]
    )
    assert isinstance(tables_of(SMALL, kept)[0][0], Decoded)
    assert kept.read_bytes() == whole


def test_a_metric_more_is_read_from_the_report(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [*needed_metrics(), "launch__waves_per_multiprocessor"]
    for module in ("cache", "capture"):
        monkeypatch.setattr(f"workbench.ncu.{module}.needed_metrics", lambda: more)
    found = tables_of(SMALL, kept)[0][0]
    assert isinstance(found, Decoded)
    assert more[-1] in {name for name, *_ in found.metrics}


def test_where_nothing_can_be_written_it_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("no folder")
    assert tables_of(SMALL, tmp_path / "tables" / "small.json.zst")


def test_a_damaged_report_is_no_capture_whatever_is_kept(kept: Path, tmp_path: Path) -> None:
    cut = tmp_path / SMALL.name
    cut.write_bytes(SMALL.read_bytes()[:1000])
    with pytest.raises(BadCapture):
        tables_of(cut, kept)
    cut.unlink()
    with pytest.raises(BadCapture, match="there is no capture"):
        tables_of(cut, kept)


def test_tables_go_with_their_report(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path / "gpu")
    shutil.copytree(EVIDENCE / "b4h16s2048d128-causal", folder.root / "b4h16s2048d128-causal")
    folder.reports.mkdir()
    for report in (SMALL, OTHER):
        shutil.copy(report, folder.reports)
        folder.tables(report.name).parent.mkdir(exist_ok=True)
        shutil.copy(FOLDER.tables(report.name), folder.tables(report.name))
    remove_unused(folder)
    assert folder.tables(SMALL.name).is_file()
    assert not folder.tables(OTHER.name).exists()
