"""What hurt who used it first stays mended: silence, doubled errors, paths that lead nowhere."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import workspaces
from answers import Capsys, Patch, both_of, error_of, text_of
from workbench.cli.main import VERBS, main
from workbench.run import machine
from workspaces import FIXTURE

MISSPELT = '[[step.prediction]]\nfigure = "tiem"\nfactor = [0.8, 0.9]\n'


@pytest.fixture(autouse=True)
def here(monkeypatch: Patch) -> None:
    monkeypatch.chdir(FIXTURE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    bodies = {"baseline": workspaces.GOOD, "fix1": "if (i < n) out[i] = 2 * y[i];"}
    return workspaces.make(tmp_path / "ws", bodies)


@pytest.mark.parametrize(
    "command",
    ["list", "build", "show fix1", "diff baseline fix1", "ablate", "check"],
)
def test_a_misspelt_figure_is_told_by_every_verb(command: str, root: Path, capsys: Capsys) -> None:
    with (root / "ablations" / "scale" / "ablation.toml").open("a") as file:
        file.write(MISSPELT)
    told = error_of(capsys, *command.split(), project=root)
    assert "predicts 'tiem', which is no figure" in told
    assert "did you mean 'time'?" in told


def test_a_compile_error_is_told_once_with_a_path_that_an_editor_opens(
    root: Path, monkeypatch: Patch, builds_here: None, capsys: Capsys
) -> None:
    monkeypatch.chdir(root)
    told = error_of(capsys, "build", code=4)
    assert told.count('identifier "y" is undefined') == 1
    assert "/workbench/kernels" not in told
    (place,) = re.findall(r'^(\S+)\(\d+\): error: identifier "y"', told, re.M)
    assert (root / place).samefile(root / "kernels" / "scale" / "fix1.cu")


def test_the_list_comes_at_once(capsys: Capsys) -> None:
    """It took 2.4 seconds: no report and no table is opened for it."""
    started = time.process_time()
    assert main(["list"]) == 0
    assert time.process_time() - started < 1.5
    baseline = next(
        li for li in capsys.readouterr().out.splitlines() if li.startswith("| baseline")
    )
    assert baseline.count("baseline") == 1


def test_an_unknown_name_has_a_hint_at_every_verb_that_takes_one(capsys: Capsys) -> None:
    for verb in ("build", "check", "profile", "ablate", "show", "watch"):
        assert verb in VERBS
        assert main([verb, "fix99"]) == 2, verb
        assert "hint: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["show fix9", "advise fix9", "diff baseline fix9", "profile fix9", "check fix9",
     "ablate fix9"],
)  # fmt: skip
def test_a_misspelt_name_is_told_where_nothing_is_on_record(
    command: str, root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """And not that there is no evidence of it, or no GPU."""
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    assert "unknown variant 'fix9'" in error_of(capsys, *command.split(), project=root)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('"scale")', '"scal")', "did you mean 'scale'?"),
        ('extern "C" ', "", 'write extern "C" before its __global__, or call it "::scale" here'),
    ],
)
def test_a_kernel_that_is_not_in_its_source_is_told_by_the_compiler(
    old: str, new: str, hint: str, tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    """And not by the first launch, on a GPU."""
    made = workspaces.make(tmp_path / "ws", {"baseline": workspaces.GOOD})
    changed = [p for p in (made / "kernels/scale").glob("baseline.*") if old in p.read_text()]
    assert len(changed) == 1
    changed[0].write_text(changed[0].read_text().replace(old, new))
    err = error_of(capsys, "build", project=made, code=4)
    assert "baseline.cu has no kernel 'scal" in err
    assert f"hint: {hint}" in err
    assert "everything else was built" not in err


def test_a_missing_package_is_what_the_machine_lacks(tmp_path: Path, capsys: Capsys) -> None:
    made = workspaces.make(tmp_path / "ws", {"baseline": workspaces.GOOD})
    (made / "kernels/scale/baseline.py").write_text("import no_such_package\n")
    out, err = both_of(capsys, "build", project=made, code=3)
    assert "hint: pip install no_such_package" in err
    assert out == ""  # no table without a row


def test_a_workspace_in_another_says_so(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "workbench.toml").touch()
    assert main(["init", str(tmp_path / "mine")]) == 0
    assert f"inside another workspace, {tmp_path}, which" in capsys.readouterr().out


def test_studies_are_listed_as_a_list(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert "with its studies attention, attention_served, " in error_of(capsys, "list", code=0)


def test_one_time_is_no_sweep(root: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    """The ladder's own record of the default is nobody's best of several."""
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    out, err = both_of(capsys, "sweep", "fix2[warps=2|8]", code=3)
    assert out == ""
    assert "no sweep of fix2[warps=2|8] is recorded" in err


def test_the_ladder_ends_with_the_next_command(capsys: Capsys) -> None:
    assert main(["ablate", "fix1", "fix2", "--study", "attention"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "next: `workbench advise fix2`"
    last = error_of(capsys, "ablate", "tiled", "--study", "transpose", code=0).splitlines()[-1]
    assert last == "next: `workbench advise tiled --study transpose`"


def test_the_help_says_every_verb_whole(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = text_of(capsys, "--help")
    listed = shown.partition("Commands:\n")[2].splitlines()[: len(VERBS)]
    assert [line.split()[0] for line in listed] == list(VERBS)
    assert all(line.endswith((".", "?")) and not line.endswith("...") for line in listed)
    assert "`workbench try FILE`" in shown
