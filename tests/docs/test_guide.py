"""docs/guide.md works as it is written: what needs no GPU here, all of it where one is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from answers import not_none
from docs.test_readme import tables
from guide import GUIDE, Command, File, Reader, Recorded, filled, items, write
from workbench.study.workspace import find_workspace
from workspaces import ROOT, output_of

PAGE = GUIDE.read_text(encoding="utf-8")
ITEMS = list(items(PAGE))
COMMANDS = [item for item in ITEMS if isinstance(item, Command)]
RECORDED = [item for item in ITEMS if isinstance(item, Recorded)]
ON_A_GPU = {"ablate", "diff", "show", "report", "advise"}
UNSAID = {"doctor"}  # what this machine is


def test_every_fenced_block_is_followed() -> None:
    fenced = re.findall(r"^```\w+$", PAGE, re.MULTILINE)
    files = [item for item in ITEMS if isinstance(item, File)]
    said = [item for item in RECORDED if item.text and not item.rows]
    assert len(fenced) == PAGE.count("\n```sh\n") + len(files) + len(said)
    assert len(RECORDED) == PAGE.count("<!--")
    assert {item.command for item in RECORDED} <= {command.line for command in COMMANDS}
    assert all(c.installs or c.line.startswith(("workbench ", "cd ")) for c in COMMANDS)


def test_it_leads_from_nothing_to_a_fix_that_is_kept() -> None:
    verbs = [c.line.split()[1] for c in COMMANDS if c.line.startswith("workbench ")]
    rest = iter(verbs)
    wanted = ("doctor", "init", "ablate", "show", "new", "ablate", "diff", "report")
    assert all(verb in rest for verb in wanted), verbs


def test_its_installation_is_one_of_this_repository() -> None:
    (install,) = [c.line for c in COMMANDS if c.line.startswith("pip install")]
    extra = not_none(re.fullmatch(r"pip install -e '\.\[(\w+)\]'", install))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra[1] in project["optional-dependencies"]


@pytest.mark.slow
def test_all_that_needs_no_gpu_works_as_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for item in ITEMS:
        if isinstance(item, File):
            write(item, reader.here)
        elif isinstance(item, Command) and not item.installs:
            if item.line.split()[1] in ON_A_GPU | UNSAID:
                continue
            done = reader.run(item)
            assert done.returncode == 0, f"{item.line}: {done.stderr}"
    study = find_workspace(tmp_path / "rows").study()
    steps = {step.variant: step for step in study.ladder.steps}
    assert list(steps) == ["baseline", "fix1", "fix2"]
    assert (steps["fix1"].parent, steps["fix2"].parent) == ("baseline", "baseline")
    assert all(steps[name].predictions for name in ("fix1", "fix2"))
    assert steps["fix2"].lesson
    built = reader.run(Command("workbench build"))
    assert built.returncode == 0, built.stderr
    assert all(f"{name}.cu" in built.stdout for name in steps)


def test_what_is_recorded_is_what_the_page_says() -> None:
    shown = [tables(item.text)[0] for item in RECORDED if item.rows]
    copy, both = shown
    assert list(copy) == ["baseline", "fix1"]
    assert list(both) == ["baseline", "fix1", "fix2"]
    assert not copy["fix1"]["verdict"].startswith("kept")
    assert both["fix1"]["verdict"].startswith("kept")
    assert both["fix2"]["verdict"].startswith("unseen shape")
    fix1, baseline = (float(both[name]["time (µs)"]) for name in ("fix1", "baseline"))
    assert f"{fix1 / baseline:.2f} of the parent's" in PAGE
    for item in RECORDED:
        assert "measured evidence" not in item.text


def test_outputs_are_put_where_their_marks_are(tmp_path: Path) -> None:
    """With what the same verbs print of the recorded study; done twice it changes nothing."""
    stand_ins = {
        "workbench ablate": "ablate fix1",
        "workbench show baseline": "show baseline",
        "workbench advise baseline": "advise baseline",
        "workbench ablate fix1 fix2": "ablate fix1 fix2",
        "workbench diff baseline fix1": "diff baseline fix1",
    }
    for number, item in enumerate(ITEMS):
        if isinstance(item, Command) and item.line in stand_ins:
            (tmp_path / f"{number:02}.out").write_text(output_of(stand_ins[item.line]))
    page = filled(PAGE, tmp_path)
    assert filled(page, tmp_path) == page
    first, limits, advice, second, difference = [i for i in items(page) if isinstance(i, Recorded)]
    assert list(tables(first.text)[0])[:2] == ["baseline", "fix1"]
    assert tables(second.text)[0]["fix2"]["verdict"] == "kept"
    assert list(tables(second.text)[0]["fix2"])[-2:] == ["verdict", "what changed"]
    for told in (limits, advice):
        assert [line[:3] for line in told.text.splitlines()] == ["1. ", "2. ", "3. "]
    assert difference.text.startswith("Against baseline: 3.11x = ")
    bare = [item for item in items(page) if not isinstance(item, Recorded)]
    assert bare == [item for item in ITEMS if not isinstance(item, Recorded)]


@pytest.mark.gpu
def test_on_a_gpu_it_goes_as_recorded(tmp_path: Path) -> None:
    """By shape, not by digits: the same tables, rows and verdicts, and lines of the same kinds."""
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
                assert judged(row["verdict"]) == judged(printed[name]["verdict"])
        elif isinstance(item, Recorded):
            kinds = {kind_of(line) for line in said[item.command].splitlines()}
            assert {kind_of(line) for line in item.text.splitlines()} <= kinds
    assert (reader.here / "reports" / "rmsnorm" / "OPTIMIZATION_REPORT.md").is_file()


def judged(verdict: str) -> str:
    """What a copy of its parent is besides not kept is a matter of noise."""
    word = verdict.split()[0]
    return "no" if word in ("inconclusive", "slower") else word


def kind_of(line: str) -> str:
    """The first cell of a table's row; of others what stands before the figures."""
    return line.split("|")[1].strip() if line.startswith("|") else re.split(r"[\d:]", line)[0]
