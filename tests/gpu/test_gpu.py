"""On a real GPU with ncu: bad kernels are named, good ones are measured all the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tools.folders import unpacked

from answers import Capsys, Patch, json_of
from workbench.cli.main import main
from workbench.evidence import store
from workbench.evidence.records import Timing
from workbench.words import Regime
from workspaces import GOOD, make

pytestmark = pytest.mark.gpu

KERNELS = {
    "baseline": GOOD,
    "wrong": "if (i < n) out[i] = 2.01f * x[i];",
    "unwritten": "if (i < n - 1) out[i] = 2 * x[i];",
    "changes": "if (i < n) { out[i] = 2 * x[i]; x[i] = 0; }",
    "outside": "if (i < n) out[i] = 2 * x[i]; if (i == n) x[n] = 1;",
    "reads": "if (i < n) out[i] = 2 * x[i + (i == n - 1)];",
    "illegal": "if (i < n) out[i] = 2 * x[i + (1ll << 40)];",
    "hangs": "if (i < n) { out[i] = 2 * x[i]; while (*(volatile float*)(out + i) != 1e9f) {} }",
    "later": """
        static int calls;
        if (i < n) out[i] = 2 * x[i];
        if (i == 0) atomicAdd(&calls, 1);
        while (*(volatile int*)&calls > 40) {}
    """,
    "broken": "if (i < n) out[i] = 2 * y[i];",
    "pairs": "for (long long j = 2 * i; j < n && j < 2 * i + 2; ++j) out[j] = 2 * x[j];",
}
MODULES = {"raises": "def run(x):\n    raise ValueError('no such thing')\n"}
PRECISION = "torch.backends.cuda.matmul.fp32_precision"
SETTERS = {
    "precision": f"import torch\n{PRECISION} = 'tf32'\n\ndef run(x):\n    return 2 * x\n",
    "after": f"import torch\n\ndef run(x):\n    assert {PRECISION} != 'tf32'\n    return 2 * x\n",
}
CONFIG = "[limits]\nseconds_per_step = 20\n[timing]\nrounds = 20\n"
SAID = {
    "wrong": "max error",
    "unwritten": "not written",
    "changes": "changes its input 'x'",
    "outside": "writes out of bounds of 'x'",
    "reads": "read out of bounds",
    "illegal": "illegal memory access",
    "hangs": "hangs: nothing came for 20 s",
    "later": "hangs: nothing came for 20 s (time)",
    "broken": "does not compile",
    "raises": "no such thing (raises.py:2)",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("gpu") / "ws", KERNELS, MODULES, CONFIG)
    assert main(["ablate", "--project", str(root)]) == 1
    return root


def rows(root: Path, capsys: Capsys) -> dict[str, dict[str, Any]]:
    told = json_of(capsys, "ablate", "--full", project=root)
    return {row["variant"]: row for row in told["variants"]}


def test_every_bad_kernel_is_named_and_has_no_speed(measured: Path, capsys: Capsys) -> None:
    found = rows(measured, capsys)
    for name, said in SAID.items():
        assert found[name]["status"] == "failed", name
        assert said in found[name]["problem"]["message"]
        assert found[name]["verdict"] == "wrong"
        assert found[name]["microseconds"] is None


def test_the_good_ones_were_timed_and_profiled(measured: Path, capsys: Capsys) -> None:
    found = rows(measured, capsys)
    for name in ("baseline", "pairs"):
        assert found[name]["status"] == "current"
        assert found[name]["microseconds"]["value"] > 0
        assert found[name]["dram_gb_per_s"] > 0
        assert found[name]["capture"]


def test_a_precision_that_a_variant_sets_is_its_own(tmp_path: Path, capsys: Capsys) -> None:
    """It is timed and profiled, and so is the variant after it, which has torch's own."""
    root = make(tmp_path / "ws", {"baseline": KERNELS["baseline"]}, SETTERS, CONFIG)
    for name, row in rows(root, capsys).items():
        assert (row["status"], bool(row["capture"])) == ("current", True), name


def test_what_is_on_record_is_not_measured_again(measured: Path, capsys: Capsys) -> None:
    before = sorted(measured.rglob("evidence/**/*.json*"))
    stamps = [p.stat().st_mtime_ns for p in before]
    rows(measured, capsys)
    assert [p.stat().st_mtime_ns for p in before] == stamps


def test_a_round_that_takes_long_tells_who_is_at_work(monkeypatch: Patch) -> None:
    import torch

    from workbench.run.worker.timing import neighbours as cards
    from workbench.run.worker.timing.session import Rounds

    monkeypatch.setattr(cards, "REPORT_SECONDS", 0.1)
    card = cards.TimedGpu()
    card.warm()

    class Sleeper:
        calls = dict.fromkeys(Regime, 1)
        is_slow = False
        by_events = 0.0

        def __init__(self, cycles: int) -> None:
            self.cycles = cycles

        def replay(self, regime: Regime) -> None:
            card.advance()
            card.stamp(cards.START)
            card.around(lambda: torch.cuda._sleep(self.cycles))
            card.stamp(cards.END)
            card.replays += 1

        def replay_marked(self) -> None:
            raise AssertionError("in odd rounds there is one clock")

    told: list[tuple[int, int | None]] = []
    half_a_second = 1_000_000_000
    sleepers: Any = [Sleeper(1000), Sleeper(half_a_second), Sleeper(1000)]
    rounds = Rounds(card, sleepers, tell=lambda *each: told.append(each))
    for number in (1, 3):
        rounds.run(number)
    rounds.finish()
    assert told == [(1, None), (1, 1), (3, None), (3, 1)]
    assert rounds.seconds > 0.3


def test_a_reader_sums_outputs_of_every_type_as_the_host_does() -> None:
    import torch

    from workbench.run.worker.timing.neighbours import (
        SLOTS,
        SUMMED,
        SUMMED_KINDS,
        Neighbours,
        TimedGpu,
        signed_sum,
    )

    around = object.__new__(Neighbours)
    around.gpu = card = TimedGpu()
    card.warm()
    for dtype in SUMMED_KINDS:
        out = torch.randn(333, 1001, device="cuda").mul(50).abs().to(dtype).t()
        kept = torch.empty_like(out)
        for _ in range(2):  # the sums of a replay begin at zero
            card.advance()
            card.replays += 1
        card.around(lambda: None)  # whose end is the key of the signs
        around.sum_output(out, kept, 3, 8, 1)
        sums = card.sums[card.replays % SLOTS]
        wanted, norm = signed_sum(out.double(), out, int(sums[3, SUMMED]))
        assert abs(float(sums[3, 1]) - wanted) < 1e-10 * norm
        assert int((sums != 0).sum()) == 2
        assert abs(wanted) < 6 * norm


# ---- other studies
STUDIES = unpacked(Path(__file__).with_name("studies.txtar"))


def made(root: Path, study: str, settings: str) -> Path:
    modules = {path.stem: path.read_text() for path in sorted((STUDIES / study).glob("*.py"))}
    text = modules.pop("study")
    made = make(root, {}, modules, settings)
    (made / "kernels" / "scale" / "study.py").write_text(text)
    return made


def ablated(root: Path, capsys: Capsys, *options: str) -> dict[str, Any]:
    command = ["ablate", *options, "--json", "--full", "--project", str(root)]
    assert main(command) in (0, 1)
    return dict(json.loads(capsys.readouterr().out))


def test_kernels_are_timed_alone(tmp_path: Path, capsys: Capsys) -> None:
    """Two large matrix products run at the power limit of the GPU."""
    settings = "[timing]\nsessions = 2\nmax_sessions = 2\ninstances = 1\nrounds = 4\n"
    root = made(tmp_path, "squares", settings)
    found = ablated(root, capsys, "--no-profile")
    if found["timing"]["throttling"] is None:
        pytest.skip("this GPU is not at its power limit")
    for row in found["variants"]:
        alone, in_turn = row["regimes"]["alone"]["microseconds"], row["microseconds"]
        assert 0.8 < alone["value"] / in_turn["value"] < 1.3
        assert 500 < alone["sm_clock_mhz"] < 2000
    assert 0.7 < row["regimes"]["alone"]["speedup_over_parent"]["ratio"] < 1.4
    (path,) = root.rglob("timings/*.zst")
    series = [s for one in store.read_record(path, Timing).sessions for s in one.series]
    assert sum(len(s.microseconds) > 6 for s in series if s.regime == "alone") == 4


def test_weights_that_were_prepared_before_are_found_out(tmp_path: Path, capsys: Capsys) -> None:
    root = made(tmp_path, "rows", "[timing]\nrounds = 4\ninstances = 2\n")
    found = {row["variant"]: row for row in ablated(root, capsys)["variants"]}
    gate = found["kept"]["gates"]["timed outputs"]
    assert gate["passed"] is False
    assert "the output of a timed call" in gate["why"]["message"]
    for name in ("baseline", "turned"):
        assert found[name]["gates"]["timed outputs"]["passed"] is True


def test_a_sweep_finds_the_faster_ones(tmp_path: Path, capsys: Capsys) -> None:
    """Sixteen writes of the same are slower than one; blocks of 64 do not compile."""
    settings = "[timing]\nsessions = 3\nmax_sessions = 3\ninstances = 2\n"
    modules = {"fix": (STUDIES / "swept" / "fix.py").read_text()}
    root = make(tmp_path / "ws", {"baseline": GOOD}, modules, settings)
    shutil.copy(STUDIES / "swept" / "own.cu", root / "kernels" / "scale")
    space = "fix[block=64|256|512,repeat=1|16]"
    (found,) = json_of(capsys, "sweep", space, project=root)["sweeps"]
    states = {(c["values"]["block"], c["values"]["repeat"]): c for c in found["combinations"]}
    assert states[64, 1]["state"] == states[64, 16]["state"] == "not built"
    timed = [c["values"]["repeat"] for c in found["combinations"] if c["state"] == "timed"]
    assert timed == [1, 1, 16, 16]
    assert found["again"] or not found["picked"]
    assert states[256, 1]["occupancy_percent"] > 10
