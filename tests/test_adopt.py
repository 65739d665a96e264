"""``workbench adopt``: foreign captures as evidence that never looks measured."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from workbench.cli import main
from workbench.commands.measuring import plan
from workbench.commands.target import find_target
from workspaces import GOOD, copy_of_repository, make, recorded_report, told_in

SHAPE = "b2h8s512d64"
PACKED = recorded_report(SHAPE)
ENTRY = '\n[[reference]]\nvariant = "theirs"\ntitle = "a colleague\'s"\ncaptured = true\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository's workspace with a reference that is only captured."""
    copy = copy_of_repository(tmp_path / "ws")
    toml = copy / "ablations" / "attention" / "ablation.toml"
    toml.write_text(toml.read_text() + ENTRY)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "someone" / "their run.ncu-repz"
    path.parent.mkdir()
    path.write_bytes(PACKED.read_bytes())
    return path


@pytest.fixture
def plain(report: Path) -> Path:
    """The same report as ncu writes it, not compressed."""
    path = report.with_suffix(".ncu-rep")
    with report.open("rb") as source, path.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    return path


def adopt(report: Path, *arguments: str) -> int:
    return main(["adopt", str(report), *arguments])


def evidence(root: Path) -> Path:
    return root / "ablations" / "attention" / "evidence" / "nvidia-h200"


def index(root: Path, name: str = "theirs") -> Any:
    return json.loads((evidence(root) / SHAPE / "captures" / f"{name}.json").read_text())


def row(capsys: pytest.CaptureFixture[str], name: str = "theirs") -> Any:
    capsys.readouterr()
    assert main(["ablate", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (found,) = [r for r in (*data["versions"], *data["references"]) if r["variant"] == name]
    return {**found, "warnings": data["warnings"]}


def test_provenance_says_that_and_from_where_it_was_adopted(
    root: Path, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(plain, "--as", "theirs", "--launch", "4") == 0
    out, err = capsys.readouterr()
    assert "timing and correctness: not collected" in out
    assert "warning: the report carries" in err
    found = index(root)
    assert found["adopted"]["file"] == "their run.ncu-rep"
    assert found["adopted"]["sha256"] == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert found["adopted"]["launches"] == [4]
    assert found["adopted"]["timing"] == found["adopted"]["correctness"] == "not collected"
    assert (found["ncu"], found["provenance"]["gpu"]) == ("2025.3.1", "NVIDIA H200")
    assert str(plain.parent) not in json.dumps(found)
    kept = evidence(root) / "reports" / found["report"]
    assert (
        zstandard.ZstdDecompressor().decompressobj().decompress(kept.read_bytes())
        == plain.read_bytes()
    )


def test_an_adopted_capture_has_figures_and_no_speed(
    root: Path, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = row(capsys, "fix4")
    assert adopt(report, "--as", "theirs", "--launch", "4") == 0
    found = row(capsys)
    assert found["status"] == "adopted"
    for key in ("dram_gb_per_s", "stalls", "memory", "roofline", "achieved_occupancy_pct"):
        assert found[key] == before[key] is not None
    for key in (
        "microseconds",
        "speedup_over_baseline",
        "speedup_over_reference",
        "speedup_over_fastest",
        "accuracy",
        "verdict",
    ):
        assert found[key] is None
    assert found["regimes"] == {}
    assert found["adopted"]["file"] == "their run.ncu-repz"
    assert any(w.startswith("theirs is an adopted capture") for w in found["warnings"])
    assert main(["ablate"]) == 0
    out = capsys.readouterr().out
    line = next(x for x in out.splitlines() if x.startswith("| theirs"))
    assert line.rstrip(" |").endswith("adopted, not timed")
    assert "best: fix30" in out
    text = (root / "reports" / "attention" / "OPTIMIZATION_REPORT.md").read_text()
    assert "| theirs (adopted) " in text
    assert "theirs (adopted)" in (root / "reports/attention/stalls-light.svg").read_text()
    assert main(["show", "theirs"]) == 0
    assert "## `theirs (adopted)`" in capsys.readouterr().out
    assert main(["list"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("| theirs"))
    assert "1 adopted" in line


def test_everything_else_reports_as_before(
    root: Path, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ablate", "--json"])
    before = json.loads(capsys.readouterr().out)
    assert adopt(report, "--as", "theirs", "--launch", "4") == 0
    capsys.readouterr()
    main(["ablate", "--json"])
    after = json.loads(capsys.readouterr().out)
    assert after["versions"] == before["versions"]
    assert after["evidence"] == before["evidence"]
    text = (root / "reports" / "attention" / "OPTIMIZATION_REPORT.md").read_text()
    assert "580.159.04" in text  # the environment of what was measured, not of the adopted one


def test_diff_takes_the_sources_of_an_adopted_capture_from_its_report(
    root: Path, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(report, "--as", "theirs", "--launch", "4") == 0
    capsys.readouterr()
    assert main(["diff", "fix5", "theirs", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["speedup"] is None
    assert data["not_collected"] == {}
    assert data["total"]["after"]["samples"] > 0


def test_a_step_without_measurements_stays_without_a_verdict(
    root: Path, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its predictions are not judged by a capture made elsewhere either."""
    for path in evidence(root).rglob("fix5.json"):
        path.unlink()
    for path in evidence(root).glob("*/timings/*.json.bz2"):
        data = told_in(path)
        data["fingerprints"].pop("fix5", None)
        path.unlink()
        path.with_suffix("").write_text(json.dumps(data))
    assert adopt(report, "--as", "fix5", "--launch", "5") == 0
    found = row(capsys, "fix5")
    assert (found["status"], found["verdict"]) == ("adopted", "inconclusive")
    assert {p["result"] for p in found["predictions"]} == {"not measurable"}
    todo = plan(find_target(root, None, None).evidence(), ["fix4", "fix5", "theirs"], fresh=False)
    assert "fix5" in todo.captured
    assert "theirs" not in todo.variants
    source = root / "kernels" / "attention" / "fix5.cu"
    source.write_text(source.read_text() + "// changed\n")
    assert row(capsys, "fix5")["status"] == "stale"


def test_several_kernels_make_one_call_when_named(root: Path, report: Path) -> None:
    names = ["flash_fwd_splitkv_kernel", "flash_fwd_splitkv_combine_kernel"]
    flags = [word for name in names for word in ("--kernel", name)]
    assert adopt(report, "--as", "theirs", *flags) == 0
    assert index(root)["adopted"]["kernels"] == names
    assert index(root)["launches"] == 2


def test_an_adopted_capture_can_be_replaced_and_the_old_report_goes(
    root: Path, report: Path, plain: Path
) -> None:
    assert adopt(report, "--as", "theirs", "--launch", "4") == 0
    first = index(root)["report"]
    assert adopt(plain, "--as", "theirs", "--launch", "5") == 0
    assert index(root)["adopted"]["file"] == plain.name
    assert not (evidence(root) / "reports" / first).exists()


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--as", "their"], "'their' is no variant or reference", "captured = true"),
        (["--as", "fix4", "--launch", "4"], "fix4 has a measured capture", "[[reference]]"),
        (["--as", "theirs"], "holds 13 kernels or launch shapes", "--kernel or --launch"),
        (
            ["--as", "theirs", "--kernel", "attention_forward"],
            "holds 8 kernels or launch shapes",
            "launch 0",
        ),
        (["--as", "theirs", "--kernel", "nope"], "no launch of a kernel 'nope'", "known:"),
        (["--as", "theirs", "--launch", "40"], "has no launch 40", "0 to 28"),
        (["--as", "theirs", "--launch", "1", "--shape", "b2"], "unknown shape", SHAPE),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_the_way_out(
    arguments: list[str],
    message: str,
    hint: str,
    root: Path,
    report: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = sorted(p.name for p in evidence(root).rglob("*"))
    assert adopt(report, *arguments) == 2
    err = capsys.readouterr().err
    assert message in err.split("hint:")[0]
    assert hint in err.split("hint:")[1]
    assert sorted(p.name for p in evidence(root).rglob("*")) == names


def test_outside_of_a_workspace_there_is_nothing_to_adopt_into(
    report: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert adopt(report, "--as", "fix1") == 2
    assert "no workspace here" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "build"])
def test_a_reference_that_is_only_captured_is_never_run(
    verb: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "theirs"]) == 2
    assert "only captured" in capsys.readouterr().err


def test_a_captured_reference_cannot_be_the_primary_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = root / "ablations" / "attention" / "ablation.toml"
    toml.write_text(toml.read_text() + "primary = true\n")
    assert main(["list"]) == 2
    assert "cannot be primary" in capsys.readouterr().err


def test_where_nothing_was_measured_no_date_or_tool_is_claimed(
    report: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(make(tmp_path / "scale", {"baseline": GOOD}))
    assert adopt(report, "--as", "baseline", "--launch", "4") == 0
    capsys.readouterr()
    assert main(["show", "baseline"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("recorded evidence: nvidia-h200, no date, ncu not collected")
    assert out.count("| not collected |             — |") == 3  # a row a regime
    assert "vs :" not in out
