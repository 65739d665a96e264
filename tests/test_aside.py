"""A call in a process of its own gives what a call here would."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

import pytest

from workbench.cli import main
from workbench.run.aside import Aside
from workspaces import ROOT, copy_of_repository


def where(content: dict[str, int]) -> tuple[int, MappingProxyType[str, int]]:
    print("not part of the result")
    return os.getpid(), MappingProxyType(content)


def only_here(parent: int) -> str:
    if os.getpid() != parent:
        raise MemoryError
    return "here"


def wrong(number: int) -> None:
    raise ValueError(f"no such {number}")


def test_another_process_answers() -> None:
    with Aside(where, ("json",)) as call:
        call.give({"a": 1})
        process, content = call.result()
    assert process != os.getpid()
    assert content == {"a": 1}


def test_what_fails_there_is_called_here() -> None:
    with Aside(only_here) as call:
        call.give(os.getpid())
        assert call.result() == "here"


def test_a_process_that_could_not_start_costs_nothing_but_time() -> None:
    with Aside(where, ("no.such.module",)) as call:
        call.give({})
        assert call.result()[0] == os.getpid()


def test_an_error_is_the_functions_own() -> None:
    with Aside(wrong) as call:
        call.give(3)
        with pytest.raises(ValueError, match="no such 3"):
            call.result()


def test_the_process_ends_with_the_block() -> None:
    with pytest.raises(KeyError), Aside(where) as call:
        raise KeyError
    assert call.returncode is not None


def test_modules_of_the_current_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's ``matplotlib.py`` must not become ours."""
    (tmp_path / "matplotlib.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    with Aside(where, ("matplotlib.figure",)) as call:
        call.give({})
        assert call.result()[0] != os.getpid()


def test_a_report_is_written_where_no_second_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of_repository(tmp_path)
    monkeypatch.setattr("workbench.run.aside.START", "raise SystemExit(1)")
    assert main(["report", "--project", str(root)]) == 0
    chart = Path("reports", "attention", "roofline-light.svg")
    assert (root / chart).read_bytes() == (ROOT / chart).read_bytes()
    capsys.readouterr()
