"""Hints that were followed and helped; files that are no reports; errors told once."""

from __future__ import annotations

import builtins
import errno
import os
import re
import tomllib
from pathlib import Path

import pytest

from answers import Capsys, Patch, error_of, refused
from workbench.cli import list as listing
from workbench.cli.main import main, worded
from workbench.derive.figures import added
from workbench.study.front_ends import DISTRIBUTIONS, how_to_install
from workbench.words import INSTALL
from workspaces import FIXTURE, ROOT


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_no_file_is_no_report(here: Path, capsys: Capsys) -> None:
    os.mkfifo(here / "pipe.ncu-rep")
    (here / "dangling.ncu-rep").symlink_to("nowhere")
    (here / "loop.ncu-rep").symlink_to("loop.ncu-rep")
    for name in ("pipe", "dangling", "loop"):
        told = refused(capsys, "show", f"{name}.ncu-rep")
        assert f"there is no file {name}.ncu-rep" in told
        assert f"did you mean '{name}" not in told


def test_a_file_named_like_a_variant_is_none_of_its(here: Path, capsys: Capsys) -> None:
    for name in ("fix1", "fix2"):
        (here / name).write_text("notes")
    assert main(["show", "fix1", "--project", str(FIXTURE)]) == 0
    assert "cut short" not in error_of(capsys, "diff", "fix1", "fix2", project=FIXTURE, code=0)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some space and run the same command again: what was finished is kept"),
        (errno.EIO, ""),
    ],
)
def test_what_the_system_refuses_has_a_hint_that_fits_or_none(number: int, hint: str) -> None:
    lacks = worded(OSError(number, os.strerror(number), "/some/file"))
    assert "/some/file" in lacks.message
    assert (lacks.hint, lacks.exit_code) == (hint, 3)


def test_a_missing_package_is_named(monkeypatch: Patch, capsys: Capsys) -> None:
    def missing(options: object) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(listing, "run", missing)
    told = error_of(capsys, "list", code=3)
    assert "the Python package 'pandas' is missing" in told
    assert "writable" not in told


# What a `pip install` may name besides a distribution of the table: a folder or a variable.
INSTALLED = re.compile(r"pip3? install ((?:(?!pip3? install)[^\n`)\\])*)")
LOCAL = re.compile(r"(\.|\.?/\S+|\$\w+|\{\}|NAME)(\[(\w+|\{\})\])?|torch[=>]\S+")
OPTION = re.compile(r"-[eqU]|--[a-z-]+|https?://\S+")


def installed_by(text: str) -> list[str]:
    """What each `pip install` of a text is to install, up to a comma or a word of prose."""
    names = []
    for command in INSTALLED.findall(re.sub(r"\{+[^}\n]*\}+", "{}", text)):
        for word in command.split():
            name = word.strip("'\"").rstrip(",;'\"")
            if name in ("or", "and", "#", "&&", "in"):
                break
            names += [] if OPTION.fullmatch(name) else [name]
            if word != name and word.endswith((",", ";")):
                break
    return names


def test_hints_install_nobody_elses_package() -> None:
    """The workbench is on no index: what can be installed is a checkout. All else is of the table
    of distributions, each of which was looked up.
    """
    known = {DISTRIBUTIONS[name] or name for name in DISTRIBUTIONS}
    files = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")]
    for folder in ("profiler", "docs", "templates", "starters", "reports"):
        endings = (".py", ".md", ".j2", ".toml", ".yml", ".sh")
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    wanted = [(path, n) for path in files if path.is_file() for n in installed_by(path.read_text())]
    assert len(wanted) > 20
    wrong = [(path, n) for path, n in wanted if n not in known and not LOCAL.fullmatch(n)]
    assert not wrong
    assert f"pip install -e '{ROOT}[gpu]'" == INSTALL
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"gpu", "agents", "cluster", "problems"} <= extras["optional-dependencies"].keys()


def test_sums_are_those_of_one_after_the_other() -> None:
    """What ``sum`` was until Python 3.11; a compensated one gives 2.0 here."""
    assert added([1.0, 1e100, 1.0, -1e100]) == 0.0
    assert added([]) == 0
    assert added(iter([0.1] * 10)) == 0.9999999999999999


def test_floats_are_summed_in_one_place() -> None:
    """Where ``sum`` still stands in the judging rooms it counts things, or lengths."""
    counts = {"scene", "terminal", "hunks", "listing", "checks", "source_diff", "gates"}
    counts |= {"launches", "timeline"}  # whole ticks of a clock
    engine = ROOT / "profiler" / "workbench"
    for room in ("derive", "judge", "render"):
        for path in (engine / room).rglob("*.py"):
            if path.stem not in counts:
                text = path.read_text(encoding="utf-8")
                assert " sum(" not in text.replace("builtins.sum", ""), path
    assert builtins.sum([1, 2]) == 3


def test_a_module_whose_distribution_is_not_known_has_no_command() -> None:
    assert how_to_install("cuda.tile") == "pip install cuda-tile"
    assert "pip install" not in how_to_install("apex.normalization")
