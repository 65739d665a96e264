"""docs/sizes.md holds what is recorded at its shapes."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from benchmarks import sizes

from answers import Patch, not_none
from standin import Run, StandIn
from workbench.app import measure as measuring
from workbench.cli.main import main
from workbench.cuda import compiler
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


PAGE = (ROOT / "docs" / "sizes.md").read_text()


def part(text: str, study: str) -> list[list[str]]:
    """The cells of the table of a study."""
    lines = text.split(f"<!-- sizes: {study} -->\n")[1].split("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.mark.slow
def test_one_command_measures_what_the_page_shows(root: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(machine, "find_gpu", lambda: None)
        nothing = sizes.section(find_workspace(root), sizes.ATTENTION)
    assert nothing == ("not collected", {})
    gpu = StandIn(monkeypatch, made_up, noise=0.05)
    monkeypatch.setattr(measuring, "collectable", lambda executor, study, variants: variants)
    monkeypatch.setattr(compiler, "package_version", lambda name: "4")
    (line,) = re.findall("^ {4}workbench (sweep .*S=128.*)$", PAGE, re.MULTILINE)
    assert main([*shlex.split(line), "--project", str(root)]) == 0
    assert [sorted(names) for names in gpu.timed] == [sorted([VARIANT, *REFERENCES])] * 32
    shown, charts = sizes.section(find_workspace(root), sizes.ATTENTION)
    assert "not collected" not in shown
    assert len(charts) == 2 * 4
    for case in sizes.ATTENTION.cases:
        found = not_none(sizes.over(find_workspace(root), sizes.ATTENTION, case))
        assert list(found.sizes.values()) == LENGTHS
        assert {line.variant for line in found.timed} == {VARIANT, *REFERENCES}
        drawn = charts[f"sizes/{case}-light.svg"]
        assert "fastest reference" in drawn
        assert VARIANT in drawn
        assert f'src="sizes/{case}-light.svg"' in shown
    head, _, *rows = part(f"<!-- sizes: attention -->\n{shown}", "attention")
    assert head[-4:] == list(sizes.ATTENTION.cases)
    assert [row[0] for row in rows[:8]] == [f"S={length}" for length in LENGTHS]
    cells = [cell for row in rows[:8] for cell in row[1:]]
    assert all(re.fullmatch(r"[\d.,]+ µs, 1\.\d+x \[[\d., ]+\] fa4", cell) for cell in cells)
    (long,) = re.findall(r"\| S=16384 \| ([\d,]+) µs", shown)
    assert float(long.replace(",", "")) == pytest.approx(3 + 16384**2 / 8000, rel=0.05)


@pytest.mark.slow
def test_shapes_in_bf16_are_collected_by_a_sweep(root: Path, monkeypatch: Patch) -> None:
    StandIn(monkeypatch, made_up, noise=0.01)
    monkeypatch.setattr(measuring, "collectable", lambda executor, study, variants: variants)
    assert sizes.at_shapes(find_workspace(root)).count("| not collected") == 28
    for shape in ("b2h8s512d64", "b2h8s512d64-causal"):
        typed = f"{shape},dtype=bfloat16,S=512|1024"
        assert main(["sweep", VARIANT, "--shape", typed, "--project", str(root)]) == 0
    text = sizes.at_shapes(find_workspace(root))
    assert text.count("| not collected") == 26
    cell = rf"not collected \| `{VARIANT}` [\d.]+ µs, 1\.\d+x \[1\.[^|]* fa4 \|"
    assert len(re.findall(cell, text)) == 2


@pytest.mark.slow
def test_a_case_of_which_a_length_is_missing_is_not_shown(root: Path, monkeypatch: Patch) -> None:
    StandIn(monkeypatch, made_up)
    short = sizes.ATTENTION.cases["d64"].replace("16384", "8192")
    assert main(["sweep", VARIANT, "--shape", short, "--project", str(root)]) == 0
    assert sizes.over(find_workspace(root), sizes.ATTENTION, "d64") is None
