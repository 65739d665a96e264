"""docs/guide.md works as it is written: what needs no GPU here, all of it where one is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from guide import GUIDE, Command, File, Reader, Recorded, items, write
from test_readme import tables
from workbench.run import machine
from workbench.study.workspace import find_workspace
from workspaces import ROOT

PAGE = GUIDE.read_text(encoding="utf-8")
ITEMS = list(items(PAGE))
COMMANDS = [item for item in ITEMS if isinstance(item, Command)]
RECORDED = [item for item in ITEMS if isinstance(item, Recorded)]
ON_A_GPU = ("workbench ablate", "workbench diff", "workbench show", "workbench report")
UNSAID = ("workbench doctor",)  # what this machine is


def test_every_fenced_block_is_followed() -> None:
    fenced = re.findall(r"^```\w+$", PAGE, re.MULTILINE)
    files = [item for item in ITEMS if isinstance(item, File)]
    texts = [item for item in RECORDED if not item.rows]
    blocks = PAGE.count("\n```sh\n")
    assert len(fenced) == blocks + len(files) + len(texts)
    lines = {command.line for command in COMMANDS}
    assert {item.command for item in RECORDED} <= lines
    assert all(c.installs or c.line.startswith(("workbench ", "cd ")) for c in COMMANDS)


def test_it_is_the_way_that_the_issue_asks_for() -> None:
    verbs = [c.line.split()[1] for c in COMMANDS if c.line.startswith("workbench ")]
    wanted = ["init", "ablate", "ablate", "diff", "new", "ablate", "report"]
    rest = iter(verbs)
    assert all(verb in rest for verb in wanted), verbs


def test_its_installation_is_one_of_this_repository() -> None:
    (install,) = [c.line for c in COMMANDS if c.line.startswith("pip install")]
    extra = re.fullmatch(r"pip install -e '\.\[(\w+)\]'", install)
    assert extra is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra[1] in project["optional-dependencies"]


def test_all_that_needs_no_gpu_works_as_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for item in ITEMS:
        if isinstance(item, File):
            write(item, reader.here)
        elif isinstance(item, Command) and not item.installs:
            if item.line.startswith((*ON_A_GPU, *UNSAID)):
                continue
            done = reader.run(item)
            assert done.returncode == 0, f"{item.line}: {done.stderr}"
    study = find_workspace(tmp_path / "rows").study()
    steps = {step.variant: step for step in study.ladder.steps}
    assert list(steps) == ["baseline", "fix1", "fix2"]
    assert (steps["fix1"].parent, steps["fix2"].parent) == ("baseline", "fix1")
    assert all(steps[name].predictions for name in ("fix1", "fix2"))
    assert steps["fix2"].lesson
    built = reader.run(Command("workbench build"))
    assert built.returncode == 0, built.stderr
    assert all(f"{name}.cu" in built.stdout for name in steps)


@pytest.mark.skipif(machine.can_measure(), reason="this machine can measure")
def test_without_a_gpu_it_says_what_is_missing(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for line in ("workbench init rows --template cuda", "cd rows"):
        assert reader.run(Command(line)).returncode == 0
    done = reader.run(Command("workbench ablate"))
    assert done.returncode == 3
    assert "hint: measure it where there is a GPU and ncu; see `workbench doctor`" in done.stderr


def test_what_is_recorded_tells_what_the_page_says() -> None:
    """The verdicts that its sentences are about, and times that fall along the way."""
    shown = [tables(item.text)[0] for item in RECORDED if item.rows]
    assert [len(table) for table in shown] == [3, 3, 4]
    copy, first, second = shown
    assert copy["fix1"]["verdict"].startswith("rejected")
    assert first["fix1"]["verdict"] == "kept"
    times = [float(table["fix1"]["time, chained (µs)"].replace(",", "")) for table in (copy, first)]
    assert times[1] < times[0] / 2
    assert second["fix2"]["verdict"] in ("kept", "rejected")
    assert second["fix2"]["verdict"] in PAGE.split("rows: workbench ablate fix2")[1]


def words_of(text: str) -> str:
    return re.sub(r"[\d.,]+", "#", text)


@pytest.mark.gpu
def test_on_a_gpu_it_goes_as_recorded(tmp_path: Path) -> None:
    """By shape, not by digits: the same tables, rows and verdicts, and lines but for numbers."""
    reader = Reader(tmp_path)
    said: dict[str, str] = {}
    for item in ITEMS:
        if isinstance(item, File):
            write(item, reader.here)
        elif isinstance(item, Command) and not item.installs:
            done = reader.run(item)
            assert done.returncode == 0, f"{item.line}: {done.stderr}"
            said[item.line] = done.stdout
        elif isinstance(item, Recorded) and item.rows:
            printed = tables(said[item.command])[0]
            for name, row in tables(item.text)[0].items():
                assert row.keys() <= printed[name].keys()
                assert row["key change"] == printed[name]["key change"]
                assert row["verdict"].split()[0] == printed[name]["verdict"].split()[0]
        elif isinstance(item, Recorded):
            kinds = {words_of(line).split(":")[0] for line in said[item.command].splitlines()}
            for line in item.text.splitlines():
                assert line == "..." or words_of(line).split(":")[0] in kinds, line
    assert (reader.here / "reports" / "rmsnorm" / "OPTIMIZATION_REPORT.md").is_file()
