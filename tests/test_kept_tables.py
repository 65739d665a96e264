"""What was read of a report is kept beside it, and is never taken for what it is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from answers import Capsys, Patch, error_of, text_of
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.cli.main import main
from workbench.derive.figures import figures
from workbench.errors import BadCapture
from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import CaptureIndex
from workbench.evidence.store import digest_of
from workbench.ncu.capture import Capture, Decoded, KeptTables, Tables, load_capture
from workbench.ncu.captures import tables_of
from workbench.ncu.catalog import FigureSpec, catalog, needed_metrics
from workbench.ncu.reader import launches
from workbench.run.recording import remove_unused
from workbench.words import Status
from workspaces import CAUSAL, EVIDENCE, FIXTURE, SHOWN, YOUNGER, copy_of_fixture, recorded_report

FOLDER = EvidenceFolder(EVIDENCE)
SMALL = recorded_report(CAUSAL, "fix10")
OTHER = recorded_report("b4h16s2048d128", "fix8")  # its tables stand without it
REPORTS = [
    SMALL,
    *(FIXTURE / "ablations").glob("transpose/evidence/*/reports/*"),
    *(FIXTURE / "ablations").glob("softmax/evidence/*/reports/32x131072-bf16-*"),
]


def content(launch: Tables) -> list[object]:
    """All of it; the texts of floats, since an estimate that is missing is no number."""
    return [
        launch.kernel,
        sorted(repr(row) for row in launch.metrics if row[0] not in YOUNGER),
        sorted(map(repr, launch.lines)),
        list(map(repr, launch.rules)),
        launch.collected,
    ]


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_what_is_kept_is_what_the_report_says(report: Path) -> None:
    kept = tables_of(report, EvidenceFolder(report.parents[1]).tables(report.name))
    decoded = launches(report)
    assert len(kept) == len(decoded)
    for (launch, ranges), (action, named) in zip(kept, decoded, strict=True):
        assert isinstance(launch, KeptTables)
        assert list(ranges) == named
        assert content(launch) == content(Decoded(action, report))


def test_no_tables_are_kept_that_no_index_names() -> None:
    indexes = [json.loads(path.read_text()) for path in EVIDENCE.glob("*/captures/*.json")]
    named = {FOLDER.tables(index["report"]).name for index in indexes}
    assert {p.name for p in (EVIDENCE / "tables").iterdir()} == named


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "tables" / "small.json.zst"
    assert not isinstance(tables_of(SMALL, path)[0][0], KeptTables)
    assert isinstance(tables_of(SMALL, path)[0][0], KeptTables)
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
    told: list[str] = []
    assert isinstance(tables_of(SMALL, kept, tell=told.append)[0][0], Decoded)
    assert kept.read_bytes() == whole
    assert [f"it was read again from {SMALL.name}" in text for text in told] == [True]


def test_a_new_figure_is_not_collected_in_old_tables_and_rewrites_none(
    kept: Path, monkeypatch: Patch
) -> None:
    before = kept.read_bytes()
    threads = FigureSpec(
        "threads", "threads", ("launch__thread_count",), "", "sum", "threads of the grid"
    )
    more = {**catalog(), threads.id: threads}
    for module in ("catalog", "capture"):
        monkeypatch.setattr(
            f"workbench.ncu.{module}.needed_metrics", lambda: [*needed_metrics(), *threads.names]
        )
    monkeypatch.setattr("workbench.derive.figures.catalog", lambda: more)
    found = Capture(SMALL, tuple(launch for launch, _ in tables_of(SMALL, kept)))
    assert threads.id not in figures(found.metrics)
    assert figures(found.metrics)["registers"].value > 0
    assert kept.read_bytes() == before
    assert threads.id in figures(load_capture(SMALL).metrics)


def test_where_nothing_can_be_written_it_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("no folder")
    assert tables_of(SMALL, tmp_path / "tables" / "small.json.zst")


def test_a_damaged_report_is_no_capture_whatever_is_kept(kept: Path, tmp_path: Path) -> None:
    cut = tmp_path / SMALL.name
    cut.write_bytes(SMALL.read_bytes()[:1000])
    with pytest.raises(BadCapture):
        tables_of(cut, kept)


def test_tables_stand_without_their_report(kept: Path, tmp_path: Path) -> None:
    whole, sha256 = kept.read_bytes(), digest_of(SMALL)
    gone = tmp_path / "gone.ncu-repz"
    found = [content(launch) for launch, _ in tables_of(gone, kept, sha256)]
    assert found == [content(launch) for launch, _ in tables_of(SMALL, kept)]
    with pytest.raises(BadCapture, match="is of another report"):
        tables_of(gone, kept, "0" * 64)
    kept.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadCapture, match="cannot be read"):
        tables_of(gone, kept, sha256)
    kept.unlink()
    with pytest.raises(BadCapture, match="is missing, and its report too"):
        tables_of(gone, kept, sha256)


def test_a_capture_stands_on_its_tables(tmp_path: Path, capsys: Capsys) -> None:
    """The same is printed without the reports; tables of another report are damage."""
    with_reports = copy_of_fixture(tmp_path / "with", "transpose")
    without = copy_of_fixture(tmp_path / "without", "transpose")
    folder = find_target(Local(), without, "transpose", None).folder
    for report in folder.reports.iterdir():
        report.unlink()
    verbs = (
        ["ablate"],
        ["profile", "padded"],
        ["show", "padded"],
        ["show", "padded", "--source", "--top", "5"],
        ["show", "padded", "--metric", "smsp__inst_executed.sum"],
        ["diff", "tiled", "padded"],
        ["advise", "padded"],
    )
    for verb in verbs:
        printed = []
        for root in (with_reports, without):
            assert main([*verb, "--project", str(root)]) == 0, verb
            out = capsys.readouterr().out.replace(" (tables without their report)", "")
            printed.append(out.replace(str(root), ""))
        assert printed[0] == printed[1], verb
    assert "LDG" in text_of(capsys, "show", "padded", "--source", "--sass", project=without)
    other = ["show", "padded", "--metric", "launch__thread_count"]
    assert "was not kept" in error_of(capsys, *other, project=without)
    (tables,) = (folder.root / "tables").iterdir()
    shutil.copy(FOLDER.tables(OTHER.name), tables)
    assert find_target(Local(), without, "transpose", None).evidence().capture_index(
        "padded"
    ).state == (Status.DAMAGED)
    assert main(["show", "padded", "--source", "--project", str(without)]) == 4


def test_tables_go_with_their_report(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path / "gpu")
    shutil.copytree(EVIDENCE / CAUSAL, folder.root / CAUSAL)
    folder.reports.mkdir()
    for report in (SMALL, OTHER):
        shutil.copy(SMALL, folder.reports / report.name)
        folder.tables(report.name).parent.mkdir(exist_ok=True)
        shutil.copy(FOLDER.tables(report.name), folder.tables(report.name))
    index = store.read(folder.capture_index(CAUSAL, "fix10"), CaptureIndex)
    journal.append(folder, journal.capture_entry(structs.replace(index, report=OTHER.name)))
    remove_unused(folder)
    assert folder.tables(SMALL.name).is_file()
    assert not folder.tables(OTHER.name).exists()


@pytest.mark.parametrize(("shape", "alone"), [(CAUSAL, False), (SHOWN, True)])
def test_tables_without_their_report_are_named(shape: str, alone: bool, capsys: Capsys) -> None:
    """Whoever changes them can write their checksum too."""
    assert main(["show", "fix10", "--shape", shape, "--project", str(FIXTURE)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.endswith("capture current (tables without their report)") == alone
