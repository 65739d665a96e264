"""`calibrate`, `try` and `watch` on the workers of a place, with a stand-in for the card."""

from __future__ import annotations

import json
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable
from pathlib import Path

import pytest

from onplaces import Cards, alive, card, install
from standin import StandIn, stand_in_for_jobs
from workbench.cli import main
from workbench.commands import watch
from workbench.errors import ToolFailed
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import CeilingsFile
from workspaces import GOOD, ROOT, make

pytest.importorskip("distributed")
Capture = pytest.CaptureFixture[str]
MODULE = "def run(x):\n    return x\n"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return install(tmp_path, monkeypatch, [card(0), card(1)])


def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on verbs measure in this process, on the same stand-in."""
    StandIn(monkeypatch, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
    stand_in_for_jobs(monkeypatch)
    monkeypatch.setattr("workbench.commands.elsewhere._place_of", lambda *given: None)


def workspace(root: Path) -> Path:
    return make(root, {}, {"baseline": MODULE, "fix": MODULE})


def evidence(root: Path) -> EvidenceFolder:
    return EvidenceFolder(root / "ablations" / "scale" / "evidence" / "nvidia-h200")


def ledger(root: Path) -> list[tuple[str, str]]:
    lines = (root / "ablations" / "ledger.jsonl").read_text().splitlines()
    entries = map(json.loads, lines)
    return [(entry["verb"], entry.get("place", "local")) for entry in entries]


def ctrl_c_when(is_time: Callable[[], object]) -> None:
    """As if it were typed then."""

    def wait() -> None:
        while not is_time():
            time.sleep(0.05)
        interrupt_main()

    threading.Thread(target=wait, daemon=True).start()


# ---- calibrate ---------------------------------------------------------------------------------
def calibrated(root: Path) -> int:
    return main(["calibrate", "--on", "local", "--project", str(root)])


def test_ceilings_of_a_place_are_those_measured_here(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    there, own = workspace(tmp_path / "there"), workspace(tmp_path / "own")
    monkeypatch.setattr(sys, "argv", ["workbench", "calibrate", "--on", "local"])
    assert calibrated(there) == 0
    told = capsys.readouterr()
    assert "10 ceilings, on GPU-" in told.err
    assert "FP64: 5.00 TFLOP/s" in told.err
    assert len(two.ran) == 1
    with monkeypatch.context() as patched:
        here(patched)
        assert main(["calibrate", "--project", str(own)]) == 0
    tables = [text.partition("\n")[2] for text in (capsys.readouterr().out, told.out)]
    assert tables[0] == tables[1] != ""
    assert [path.name for path in evidence(there).root.iterdir()] == ["ceilings.json"]
    found, mine = (store.read(evidence(root).ceilings, CeilingsFile) for root in (there, own))
    assert (found.ceilings, found.not_collected) == (mine.ceilings, mine.not_collected)
    assert found.not_collected == {"tensor fp8": "no FP8 here"}
    assert found.provenance.command == "workbench calibrate --on local"
    assert ledger(there) == [("calibrate", "local")]


def test_ceilings_of_a_lost_worker_are_measured_by_another(
    two: Cards, tmp_path: Path, capsys: Capture
) -> None:
    root = workspace(tmp_path / "ws")
    two.fault("kill")
    two.fault("crash")
    assert calibrated(root) == 0
    assert len(two.ran) == 3
    assert "it goes elsewhere" in capsys.readouterr().err
    assert len(store.read(evidence(root).ceilings, CeilingsFile).ceilings) == 9


def test_ceilings_that_could_not_be_measured_leave_those_on_record(
    two: Cards, tmp_path: Path, capsys: Capture
) -> None:
    root = workspace(tmp_path / "ws")
    assert calibrated(root) == 0
    before = evidence(root).ceilings.read_bytes()
    two.fault("crash", 3)
    assert calibrated(root) == 4
    told = capsys.readouterr()
    assert "error: at 'local': the block's process stopped: exit -9 (3 tries)" in told.err
    assert "hint: `workbench doctor" in told.err
    assert evidence(root).ceilings.read_bytes() == before
    two.fault("hang")
    ctrl_c_when(lambda: len(two.ran) == 5)
    assert calibrated(root) == 130
    assert "interrupted: nothing was written" in capsys.readouterr().err
    assert not alive(two)
    assert evidence(root).ceilings.read_bytes() == before


# ---- try ---------------------------------------------------------------------------------------
# Inputs that are always the same, so that so is what is allowed.
SCALE = """import torch

from factors import TWO


def scale(x):
    return TWO * x


def inputs(rows=8):
    return {"x": torch.linspace(-1, 1, rows * 16, device="cuda").reshape(rows, 16)}
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, one that it imports, and nothing else."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder / "factors.py").write_text("TWO = 2.0\n")
    (folder / "scale.py").write_text(SCALE)
    return folder


def tried(*given: str) -> int:
    return main(["try", "scale.py", "--no-profile", "--quick", *given])


def test_a_file_that_is_tried_at_a_place_is_told_as_if_here(
    two: Cards, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (mine / "workbench.toml").touch()
    versus = ["--vs", "torch.mul(x, 2)"]
    assert tried(*versus, "--on", "local", "--keep", "doubled", "--json") == 0
    told = capsys.readouterr()
    assert "called once, on GPU-" in told.err
    assert "at 'local' (GPU time: NVIDIA H200" in told.err
    assert (mine / "kernels" / "doubled" / "factors.py").is_file()
    kept = mine / "ablations" / "doubled" / "evidence"
    assert [path.name for path in kept.iterdir()] == ["nvidia-h200"]
    assert not list(kept.rglob(".blocks"))
    begun = len(two.ran)
    with monkeypatch.context() as patched:
        here(patched)
        patched.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        assert tried(*versus, "--json") == 0
    found, own = (json.loads(text) for text in (told.out, capsys.readouterr().out))
    for each in (found, own):
        for name in ("workspace", "study", "kept"):
            each.pop(name)
    assert found == own
    assert found["tried"]["status"] == "current"
    assert found["trial_errors"]
    assert tried(*versus, "--on", "local") == 0
    assert len(two.ran) - begun in (1, 2)  # what is on record is not measured again
    assert "scale.py, a Python function" in capsys.readouterr().out


CRASH = "import ctypes; ctypes.string_at(0)"
MISTAKES = {
    "no tensor": (SCALE.replace('"x": ', '"x": 1, "y": None and '), 2, "inputs have no tensor"),
    "nothing returned": (SCALE.replace("return TWO * x", "TWO * x"), 1, "returned None"),
    "a crash": (SCALE.replace("return TWO * x", CRASH), 4, "the worker stopped: exit -11"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_as_they_do_here(
    name: str,
    two: Cards,
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    text, code, said = MISTAKES[name]
    (mine / "scale.py").write_text(text)

    def ended(*on: str) -> tuple[int, list[str]]:
        code, told = tried(*on), capsys.readouterr().err
        return code, [s for s in told.splitlines() if s.startswith(("error:", "hint:"))]

    found, (error, hint) = ended("--on", "local")
    assert found == code
    assert said in error
    assert len(two.ran) == 1  # another card would say the same
    here(monkeypatch)
    assert ended() == (code, [error.replace("at 'local': ", ""), hint.replace(" --on local", "")])


def test_a_package_is_looked_for_where_it_is_called(
    two: Cards, mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """What is compared with need not be installed here."""
    assert tried("--vs", "nosuch.mul", "--on", "local") == 3
    assert "is not installed here" in capsys.readouterr().err
    assert two.ran == []
    monkeypatch.setattr("workbench.commands.elsewhere.is_remote", lambda: True)
    assert tried("--vs", "nosuch.mul", "--on", "local") == 3
    assert "at 'local': needs nosuch, which is not installed" in capsys.readouterr().err
    assert len(two.ran) == 1


def test_a_trial_whose_workers_die_is_given_up(two: Cards, mine: Path, capsys: Capture) -> None:
    two.fault("crash", 3)
    assert tried("--on", "local") == 4
    told = capsys.readouterr().err
    assert "error: at 'local': the block's process stopped: exit -9 (3 tries)" in told
    two.fault("hang")
    ctrl_c_when(lambda: len(two.ran) == 4)
    assert tried("--on", "local") == 130
    assert not alive(two)


# ---- watch -------------------------------------------------------------------------------------
def watched(root: Path, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> int:
    """One thing after the other while it waits, and then Ctrl-C."""
    left, rounds = iter(acts), watch.rounds

    def pause(_: float) -> None:
        act = next(left, None)
        if act is None:
            raise KeyboardInterrupt
        act()

    with monkeypatch.context() as patched:
        patched.setattr(watch, "rounds", lambda options, _: rounds(options, pause))
        return main(["watch", "fix", "--on", "local", "--project", str(root)])


def nothing() -> None:
    pass


def test_every_save_is_checked_and_timed_at_a_place(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = workspace(tmp_path / "ws")
    source = root / "kernels" / "scale" / "fix.py"
    acts = (lambda: source.write_text(MODULE + "\n"), nothing, nothing)
    two.fault("crash")
    assert watched(root, monkeypatch, *acts) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.partition(": ")[2] for line in lines if line[0] != " "] == [
        "built for sm_90a: registers 32, shared memory 1024 bytes, spills 0",
        "built for sm_90a: registers 32, shared memory 1024 bytes, spills 0",
    ]
    assert lines.count("  check: correct, max error 0") == 2
    assert sum("time, one session: " in line and "of baseline" in line for line in lines) == 2
    assert "every save is checked and timed on a NVIDIA H200 of 'local'" in told.err
    assert "stopped; `workbench ablate` makes evidence of it" in told.err
    assert len(two.ran) == 3  # one block a save, and one that broke
    assert not list(root.glob("ablations/scale/evidence/**/*.json*"))
    assert ledger(root) == [("watch", "local")] * 2


def test_a_save_that_cannot_be_measured_says_why_and_the_next_goes_on(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = workspace(tmp_path / "ws")
    source = root / "kernels" / "scale" / "fix.py"
    two.fault("crash", 3)
    acts = (lambda: source.write_text(MODULE + "\n"), nothing, nothing)
    assert watched(root, monkeypatch, *acts) == 0
    told = capsys.readouterr()
    assert "error: at 'local': the block's process stopped: exit -9 (3 tries)" in told.err
    assert "hint: `workbench doctor" in told.err
    assert len([line for line in told.out.splitlines() if line[0] != " "]) == 1
    two.fault("hang")
    ctrl_c_when(lambda: len(two.ran) == 5)
    assert watched(root, monkeypatch) == 0
    assert not alive(two)


def test_a_place_that_is_lost_ends_it(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = workspace(tmp_path / "ws")

    def gone(*given: object) -> None:
        raise ToolFailed("the scheduler of 'local' is gone")

    monkeypatch.setattr("workbench.commands.elsewhere.dispatched", gone)
    monkeypatch.setattr("workbench.commands.elsewhere.There.is_lost", True)
    assert watched(root, monkeypatch, nothing) == 4
    assert "error: the scheduler of 'local' is gone" in capsys.readouterr().err


# ---- a card ------------------------------------------------------------------------------------
@pytest.mark.gpu
def test_on_the_card_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WORKBENCH_PLACE", str(tmp_path / "own"))
    assert calibrated(root) == 0
    (file,) = root.glob("ablations/scale/evidence/*/ceilings.json")
    assert {"dram", "l2", "fp32"} <= set(store.read(file, CeilingsFile).ceilings)
    capsys.readouterr()
    source = str(ROOT / "tests" / "problems" / "row_softmax.py")
    given = ["--vs", "torch.softmax", "--quick", "--on", "local", "--json"]
    assert main(["try", source, *given]) == 0
    row = json.loads(capsys.readouterr().out)["tried"]
    assert row["status"] == "current", row["problem"]
    assert row["bottlenecks"]
