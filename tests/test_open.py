"""``workbench open`` starts the window on the right file, or says where to take it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.ncu.reader import launches_by_range
from workbench.run import machine, viewer
from workspaces import recorded_report

SHAPE = "b4h16s2048d128-causal"
REPORT = recorded_report(SHAPE, "fix10")


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "2025.3.1", code: int = 0
) -> Path:
    """An ncu with its window in a folder; the window notes what it was given."""
    given = folder / "given"
    for name, script in (
        ("ncu", f"echo Version {version}.0"),
        ("ncu-ui", f'printf %s "$1" > {given}.new && mv {given}.new {given}; exit {code}'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(machine, "find_ncu", lambda: str(folder / "ncu"))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    machine.ncu_version.cache_clear()
    return given


def read(given: Path) -> Path:
    ends = time.monotonic() + 60
    while not given.is_file() and time.monotonic() < ends:
        time.sleep(0.01)
    return Path(given.read_text())


def test_an_older_window_gets_the_report_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = install(tmp_path, monkeypatch)
    assert main(["open", "fix10", "--shape", SHAPE]) == 0
    opened = read(given)
    assert opened.suffix == ".ncu-rep"
    assert launches_by_range(opened) == launches_by_range(REPORT)
    told = capsys.readouterr().out
    assert f"opened {opened}; fix10 is result " in told
    assert " of 0 to 2 in it" in told


def test_a_newer_window_gets_the_report_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = install(tmp_path, monkeypatch, version="2026.2.0")
    assert main(["open", str(REPORT)]) == 0
    assert read(given) == REPORT


def test_without_the_window_the_hint_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "find_ncu", lambda: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["open", "fix10", "--shape", SHAPE]) == 3
    told = capsys.readouterr().err
    assert "error: ncu-ui is neither beside ncu nor on PATH" in told
    assert f"hint: copy {REPORT.resolve()} to a machine" in told


def test_without_a_screen_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = install(tmp_path, monkeypatch)
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["open", "fix10", "--shape", SHAPE]) == 3
    assert "there is no screen here" in capsys.readouterr().err
    assert not given.exists()


def test_a_window_that_dies_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch, code=7)
    monkeypatch.setattr(viewer, "DIES_WITHIN_S", 60.0)  # of a busy machine
    assert main(["open", str(REPORT)]) == 4
    assert "ncu-ui ended at once with exit code 7" in capsys.readouterr().err


def test_what_is_no_variant_or_has_no_capture_is_a_mistake(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["open", "fix99"]) == 2
    assert main(["open", "fix3"]) == 2  # wrong, and so never profiled
    assert "has no capture" in capsys.readouterr().err
