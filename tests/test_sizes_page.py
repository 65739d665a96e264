"""docs/sizes.md and docs/experts.md hold what is recorded at their shapes."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from benchmarks import sizes

from standin import Run, StandIn
from workbench.app import measure as measuring
from workbench.cli.main import main
from workbench.run import machine
from workbench.study.workspace import find_workspace
from workspaces import ROOT

VARIANT = "fix30"
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
REFERENCES = ["sdpa", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "fa4"]


def made_up(run: Run) -> float:
    found = re.search(r"S(\d+)", run.shape)
    length = int(found[1]) if found else 2048
    wide = 2 if re.search("[dD]128", run.shape) else 1
    return (3 + wide * length**2 / 8000) * {VARIANT: 1.0, "fa4": 1.1}.get(run.variant, 1.25)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The attention study without its evidence."""
    shutil.copytree(ROOT / "kernels" / "attention", tmp_path / "kernels" / "attention")
    ladder = tmp_path / "ablations" / "attention" / "ablation.toml"
    ladder.parent.mkdir(parents=True)
    shutil.copy(ROOT / ladder.relative_to(tmp_path), ladder)
    (tmp_path / "workbench.toml").write_text('study = "attention"\n')
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", [sizes.ATTENTION, sizes.EXPERTS], ids=lambda page: page.study)
def test_a_page_holds_what_is_recorded(page: sizes.Page) -> None:
    text = (ROOT / "docs" / page.name).read_text()
    for name, made in sizes.files(page, text, find_workspace(ROOT)).items():
        written = (ROOT / "docs" / name).read_text()
        assert written == made, "`python -m benchmarks.sizes` writes it"


@pytest.mark.slow
def test_one_command_measures_what_the_page_shows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, text = sizes.ATTENTION, (ROOT / "docs" / "sizes.md").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(machine, "find_gpu", lambda: None)
        nothing = sizes.files(page, text, find_workspace(root))
    assert list(nothing) == ["sizes.md"]
    assert nothing["sizes.md"].count("Not collected.") == 4
    gpu = StandIn(monkeypatch, made_up, noise=0.05)
    monkeypatch.setattr(measuring, "collectable", lambda executor, study, variants: variants)
    monkeypatch.setattr(machine, "package_version", lambda name: "4")
    (line,) = re.findall("^workbench sweep .*$", nothing["sizes.md"], re.MULTILINE)
    _, *command = shlex.split(line)
    assert main([*command, "--project", str(root)]) == 0
    assert [sorted(names) for names in gpu.timed] == [sorted([VARIANT, *REFERENCES])] * 32
    made = sizes.files(page, text, find_workspace(root))
    text = made["sizes.md"]
    assert "Not collected" not in text
    assert sizes.files(page, text, find_workspace(root)) == made
    assert len(made) == 1 + 2 * 4
    for case in page.cases:
        found = sizes.over(find_workspace(root), page, case)
        assert found is not None
        assert list(found.sizes.values()) == LENGTHS
        assert {line.variant for line in found.timed} == {VARIANT, *REFERENCES}
        drawn = made[f"sizes/{case}-light.svg"]
        assert "TFLOP/s" in drawn
        assert "fa4" in drawn
        part = text.split(f"<!-- sizes: {case} -->")[1].split("<!-- /sizes -->")[0]
        assert f'src="sizes/{case}-light.svg"' in part
        assert f"D={128 if '128' in case else 64}" in part
        assert ("causal" in part) == ("causal" in case)
        told = rf"^- fastest variant at S=\d+: `{VARIANT}`"
        assert len(re.findall(told, part, re.MULTILINE)) == 8
        row = next(line for line in part.splitlines() if line.startswith("| `fa4`"))
        assert len(re.findall(r"\[[\d.,]+, [\d.,]+\]", row)) == 8
    shown = re.search(rf"fastest variant at S=16384: `{VARIANT}` ([\d,]+) µs, (\d+) TFLOP/s", text)
    assert shown is not None
    flops = 4 * 4 * 16 * 16384**2 * 64
    time = float(shown[1].replace(",", "")) * 1e-6
    assert float(shown[2]) == pytest.approx(flops / time / 1e12, rel=0.01)


@pytest.mark.slow
def test_shapes_in_bf16_are_collected_by_a_sweep(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch, made_up, noise=0.01)
    monkeypatch.setattr(measuring, "collectable", lambda executor, study, variants: variants)
    assert sizes.in_bfloat16(find_workspace(root)).count("| not collected |") == 14
    shape = "b2h8s512d64,dtype=bfloat16,causal=0|1,S=512|1024"
    main(["sweep", VARIANT, "--shape", shape, "--project", str(root)])
    text = sizes.in_bfloat16(find_workspace(root))
    assert text.count("| not collected |") == 12
    assert len(re.findall(rf"\| `{VARIANT}` \| .*\| fa4 \| 1\.\d+x \[1", text)) == 2


@pytest.mark.slow
def test_a_case_of_which_a_length_is_missing_is_not_shown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch, made_up)
    short = sizes.ATTENTION.cases["d64"].replace("16384", "8192")
    assert main(["sweep", VARIANT, "--shape", short, "--project", str(root)]) == 0
    assert sizes.over(find_workspace(root), sizes.ATTENTION, "d64") is None
