"""Whole verbs on the workers of a place: two cards of this machine, with a stand-in under them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commits import repository
from onplaces import Cards, card, install
from standin import StandIn
from workbench.cli import main
from workbench.evidence import journal
from workbench.evidence.layout import EvidenceFolder
from workbench.study.places import LocalPlace
from workspaces import GOOD, make, told_in

pytest.importorskip("distributed")
MODULE = "def run(x):\n    return x\n"


def workspace(root: Path) -> Path:
    return make(root, {}, {"baseline": MODULE, "fix": MODULE, "fix2": MODULE})


def evidence(root: Path) -> EvidenceFolder:
    return EvidenceFolder(root / "ablations" / "scale" / "evidence" / "nvidia-h200")


def but_for_provenance(folder: EvidenceFolder) -> dict[str, Any]:
    """All records, without where and when; a timing is called after its date."""
    found: dict[str, Any] = {}
    for path in sorted([*folder.root.rglob("*.json"), *folder.root.rglob("*.json.zst")]):
        name = path.relative_to(folder.root).as_posix()
        data = told_in(path)
        data.pop("provenance", None)
        found[f"{path.parent.name}/timing" if path.parent.name == "timings" else name] = data
    sessions = journal.load_journal(folder).sessions
    found["journal"] = [(one.shape, one.sessions, one.medians) for one in sessions]
    return found


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return install(tmp_path, monkeypatch, [card(0), card(1)])


def test_a_ladder_measured_at_a_place_is_the_one_measured_here(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there, here = workspace(tmp_path / "there"), workspace(tmp_path / "here")
    assert main(["ablate", "--on", "local", "--project", str(there)]) == 0
    told = capsys.readouterr()
    assert "measured in" in told.err
    assert "at 'local' (GPU time: NVIDIA H200" in told.err
    assert {ran[1] for ran in two.ran} <= {"GPU-0", "GPU-1"}
    with monkeypatch.context() as patched:
        StandIn(patched, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
        patched.setattr("workbench.commands.elsewhere._place_of", lambda *given: None)
        assert main(["ablate", "--project", str(here)]) == 0
    assert capsys.readouterr().out == told.out
    assert but_for_provenance(evidence(there)) == but_for_provenance(evidence(here))
    ledger = (there / "ablations" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["verb"] for line in ledger] == ["ablate"]


def test_a_range_of_shapes_is_measured_side_by_side(
    two: Cards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = workspace(tmp_path / "ws")
    two.fault("kill")
    two.fault("crash")
    command = ["ablate", "--shape", "n=1024..8192*2", "--on", "local", "--project", str(root)]
    code = main(command)
    told = capsys.readouterr().err
    assert code == 0, told
    assert {Path(tmpdir).name for _, _, tmpdir in two.ran} == {seen for _, seen, _ in two.ran}
    sessions = journal.load_journal(evidence(root)).sessions
    assert sorted(one.shape for one in sessions) == ["n1024", "n2048", "n4096", "n8192"]
    assert len(two.ran) == 6  # each fault cost a block, and no more
    assert "it goes elsewhere" in told
    assert main(command) == 0
    assert len(two.ran) == 6  # all is on record


def test_a_block_that_fails_three_times_is_named_and_the_others_are_kept(
    two: Cards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = workspace(tmp_path / "ws")
    two.fault("crash", 3)
    code = main(["check", "fix", "--on", "local", "--project", str(root)])
    told = capsys.readouterr().err
    assert code == 1, told
    assert "(3 tries)" in told
    assert len(two.ran) == 3


def test_where_there_are_several_cards_they_are_the_default(
    two: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.commands.elsewhere import _place_of

    root = workspace(tmp_path / "ws")
    assert _place_of(None, root) == LocalPlace()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert _place_of(None, root) is None


def test_without_dask_the_option_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["check", "--on", "local", "--project", str(root)]) == 3
    told = capsys.readouterr().err
    assert "[cluster]" in told
    assert main(["check", "--on", "nowhere", "--project", str(root)]) == 2


TUNED = """from workbench import cuda

params = cuda.params(warps=4)
kernel = cuda.kernel("baseline.cu", "scale", defines=params)


def run(x):
    return x
"""


def test_a_sweep_and_a_gate_measure_at_a_place(
    two: Cards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD}, {"fix": TUNED})
    on = ["--on", "local", "--project", str(root)]
    assert main(["sweep", "fix[warps=2|4|8]", "--json", *on]) == 0
    told = capsys.readouterr()
    (found,) = json.loads(told.out)["sweeps"]
    assert {c["variant"]: c["state"] for c in found["combinations"]} == {
        "fix[warps=2]": "timed",
        "fix": "timed",
        "fix[warps=8]": "timed",
    }
    made = repository(root)
    made.edit("kernels/scale/baseline.cu", "2 * x[i]", "2.5f * x[i]")
    code = main(["gate", "HEAD~1", "--json", *on])
    told = capsys.readouterr()
    assert code in (0, 1, 5), told.err
    (study,) = json.loads(told.out)["studies"]
    timed = {c["variant"]: c["time"] for c in study["changes"] if c.get("time")}
    assert set(timed) >= {"baseline"}
    assert "at 'local' (GPU time" in told.err
    begun = len(two.ran)
    assert main(["bisect", "baseline", "HEAD~1", *on]) == 0  # what is called so is slower
    assert len(two.ran) > begun
    assert "baseline became slower in" in capsys.readouterr().out
