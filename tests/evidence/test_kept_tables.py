"""What was read of a report is kept beside it; and evidence of another GPU is told all the same."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import workbench
from answers import Capsys, Patch, both_of, error_of, text_of
from workbench.app.executor import Local
from workbench.app.target import Target, find_recorded, find_target, of_one_gpu
from workbench.cli.main import main
from workbench.cli.streams import Stderr
from workbench.derive.figures import figures
from workbench.errors import BadCapture
from workbench.evidence import journal, store
from workbench.evidence.store import EvidenceFolder, digest_of
from workbench.ncu.capture import Capture, Decoded, KeptTables, Tables, load_capture
from workbench.ncu.captures import tables_of
from workbench.ncu.catalog import FigureSpec, catalog, needed_metrics
from workbench.ncu.reader import launches
from workbench.run import machine
from workbench.run.machine import Gpu
from workbench.run.recording import remove_unused
from workbench.study.workspace import find_workspace
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
    every = [store.captures_at(FOLDER, path.parent.name) for path in FOLDER.capture_files()]
    indexes = [index for captures in every for index in captures.values()]
    named = {FOLDER.tables(index.report).name for index in indexes}
    assert {p.name for p in (EVIDENCE / "tables").iterdir()} == named


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "tables" / "small.json.zst"
    assert not isinstance(tables_of(SMALL, path)[0][0], KeptTables)
    again = tables_of(SMALL, path)[0][0]
    assert isinstance(again, KeptTables)
    assert again.calls == load_capture(SMALL).launches[0].calls != []
    return path


def test_a_new_figure_is_not_collected_in_old_tables_and_rewrites_none(
    kept: Path, monkeypatch: Patch
) -> None:
    before = kept.read_bytes()
    threads = FigureSpec("threads", "threads", ("launch__thread_count",), unit="")
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
    evidence = find_target(Local(), without, "transpose", None).load(["padded"])
    assert evidence.variants["padded"].state["capture"] == Status.DAMAGED
    assert main(["show", "padded", "--source", "--project", str(without)]) == 4


def test_tables_go_with_their_report(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path / "gpu")
    shutil.copytree(EVIDENCE / CAUSAL, folder.root / CAUSAL)
    folder.reports.mkdir()
    for report in (SMALL, OTHER):
        shutil.copy(SMALL, folder.reports / report.name)
        folder.tables(report.name).parent.mkdir(exist_ok=True)
        shutil.copy(FOLDER.tables(report.name), folder.tables(report.name))
    index = store.captures_at(folder, CAUSAL)["fix10"]
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


# ---- another GPU
HERE = ["--study", "transpose", "--project", str(FIXTURE)]
B200 = Gpu("NVIDIA B200", "580", "10.0")
TOLD = "nothing of transpose at 8192x8192 is recorded on nvidia-b200: this is of nvidia-h200"


@pytest.fixture
def other(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: B200)
    monkeypatch.setattr(machine, "can_measure", lambda: True)


@pytest.mark.parametrize("verb", ["show padded", "diff tiled padded", "advise padded"])
def test_a_verb_that_only_reads_tells_what_is_on_record(
    verb: str, request: pytest.FixtureRequest, capsys: Capsys
) -> None:
    without, err = both_of(capsys, *verb.split(), *HERE)
    assert TOLD not in err
    request.getfixturevalue("other")
    out, err = both_of(capsys, *verb.split(), *HERE)
    assert out == without
    assert TOLD in err


def test_a_report_is_not_emptied(request: pytest.FixtureRequest, capsys: Capsys) -> None:
    def report() -> tuple[str, str]:
        out, err = both_of(capsys, "report", *HERE)
        (written,) = re.findall(r"wrote (\S+\.md)", out + err)
        return Path(written).read_text(), err

    before, _ = report()
    request.getfixturevalue("other")
    after, err = report()
    assert after == before
    assert TOLD in err


def test_a_package_is_made_from_what_is_on_record(
    other: None, tmp_path: Path, trials_here: None, capsys: Capsys
) -> None:
    to = tmp_path / "package"
    assert main(["ship", "padded", "--as", "padded", "--to", str(to), *HERE]) == 0
    assert TOLD in capsys.readouterr().err
    assert "NVIDIA H200" in (to / "CARD.md").read_text()


def test_the_library_reads_it_too(other: None) -> None:
    found = workbench.study("transpose", project=FIXTURE).evidence()
    assert found.target.folder.gpu == "nvidia-h200"


def of_two(root: Path, study: str) -> Path:
    """A workspace whose study has evidence of two GPUs, of the second without captures."""
    evidence = copy_of_fixture(root, study) / "ablations" / study / "evidence"
    shutil.copytree(evidence / "nvidia-h200", evidence / "nvidia-b200")
    (evidence / "nvidia-b200" / "ceilings.json").unlink(missing_ok=True)
    for path in (evidence / "nvidia-b200").rglob("*.ncu-repz"):
        path.unlink()
    return evidence


def with_key(config: Path, key: str, value: str) -> None:
    text = re.sub(rf"^{key} = .*\n", "", config.read_text(), flags=re.MULTILINE)
    config.write_text(f'{key} = "{value}"\n{text}')


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    of_two(tmp_path / "ws", "transpose")
    return ["--project", str(tmp_path / "ws")]


def test_a_report_of_another_gpu_leaves_that_of_the_workspaces(
    two: list[str], capsys: Capsys
) -> None:
    def written(*gpu: str) -> Path:
        told = "".join(both_of(capsys, "report", "--study", "transpose", *gpu, *two))
        return Path(re.findall(r"wrote (\S+\.md)", told)[0])

    with_key(Path(two[1]) / "workbench.toml", "gpu", "NVIDIA H200")
    default, other = written(), written("--gpu", "nvidia-b200")
    assert written("--gpu", "nvidia-h200") == default
    assert other.parent == default.parent / "nvidia-b200"
    assert "NVIDIA H200" in default.read_text()


def test_of_several_gpus_one_is_named_and_its_own_comes_first(
    two: list[str], request: pytest.FixtureRequest, capsys: Capsys
) -> None:
    def gpu(named: str | None = None) -> str:
        found = find_recorded(Local(), Path(two[1]), "transpose", None, gpu=named).folder.gpu
        assert "is recorded on" not in capsys.readouterr().err
        return found

    for named in ("nvidia-b200", "NVIDIA H200"):
        assert gpu(named) == named.lower().replace(" ", "-")
    config = Path(two[1]) / "workbench.toml"
    for of_workspace in ("NVIDIA B200", "nvidia-h200"):
        with_key(config, "gpu", of_workspace)
        assert gpu() == of_workspace.lower().replace(" ", "-")
    request.getfixturevalue("other")
    assert gpu() == "nvidia-b200"
    assert gpu("nvidia-h200") == "nvidia-h200"


def test_without_a_gpu_tables_over_shapes_are_of_one(tmp_path: Path, capsys: Capsys) -> None:
    """Of that which the study's own shape is told of, the one that was measured last."""
    evidence = of_two(tmp_path, "softmax")
    only, both = "65536x1024-bf16", "32x131072-bf16"
    shutil.rmtree(evidence / "nvidia-b200" / only)
    command = ["ablate", "online", "--project", str(tmp_path)]
    (path,) = (evidence / "nvidia-b200" / "4096x8192" / "timings").glob("*")
    path.rename(path.with_name(f"2030{path.name[4:]}"))
    out, err = both_of(capsys, *command, "--all-shapes", "--json")
    shapes = [table["shape"]["name"] for table in json.loads(out)["tables"]]
    assert (only in shapes, both in shapes) == (False, True)
    assert f"{only}: left out, since nothing of it is recorded on nvidia-b200" in err
    assert both not in err


def test_sizes_are_of_the_gpu_that_has_the_most_of_them(tmp_path: Path, capsys: Capsys) -> None:
    evidence = of_two(tmp_path, "softmax")
    study = find_workspace(tmp_path).study("softmax")
    folders = [EvidenceFolder(evidence / f"nvidia-{name}") for name in ("b200", "h200")]
    here, workspace = Local(Stderr()), find_workspace(tmp_path)
    names = ["4096x8192", "32x131072-bf16", "65536x1024-bf16"]
    targets = [Target(here, workspace, study, name, folders[0], False) for name in names]
    shutil.rmtree(folders[0].root / names[1])
    found = of_one_gpu(targets)
    assert [(each.shape, each.folder.gpu) for each in found] == [(n, "nvidia-h200") for n in names]
    assert capsys.readouterr().err == ""
    live = [replace(target, live=True) for target in targets]
    assert of_one_gpu(live) == live


def test_a_gpu_of_which_nothing_is_known_is_an_error(two: list[str], capsys: Capsys) -> None:
    assert main(["show", "padded", "--gpu", "nvidia-h100", *two]) == 2
    assert "unknown GPU 'nvidia-h100'" in capsys.readouterr().err
    shutil.rmtree(Path(two[1], "ablations/transpose/evidence/nvidia-b200/8192x8192"))
    assert main(["show", "padded", "--gpu", "nvidia-b200", *two]) == 3
    assert "nothing of transpose at 8192x8192 is recorded on nvidia-b200" in capsys.readouterr().err
