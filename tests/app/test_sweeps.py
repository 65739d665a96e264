"""Sweeps: the grammar, what is measured of a space, and that the best is told honestly."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch, error_of, json_of, not_none, text_of
from standin import Run, StandIn
from workbench.derive.speedup import InstanceTime, SessionTimes, ratio_of, time_of
from workbench.errors import UsageError
from workbench.run import compilation
from workbench.study.params import Axes, expanded, is_space, names_of, read_axes
from workbench.study.workspace import find_workspace
from workbench.words import HEADLINE, Parameter
from workspaces import GOOD, KERNEL, TUNED, make

KNOWN: dict[str, Parameter] = {"warps": 4, "Block": 64, "scale": 1.0, "fast": False, "label": "a"}


def axes(text: str) -> Axes:
    return read_axes(text, KNOWN, "fix")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("warps=4", (4,)),
        ("warps=4|8|16", (4, 8, 16)),
        ("warps=2..16*2", (2, 4, 8, 16)),
        ("warps=2..17*2", (2, 4, 8, 16)),
        ("warps=1..7+3", (1, 4, 7)),
        ("warps=-2..2+2", (-2, 0, 2)),
        ("warps= 1 | 4..8*2 |4", (1, 4, 8)),
        ("scale=0.5..2*2", (0.5, 1.0, 2.0)),
        ("scale=0.1..0.3+0.1", (0.1, 0.2, 0.30000000000000004)),
        ("warps=3..81*3", (3, 9, 27, 81)),
        ("fast=0|1", (False, True)),
        ("label=a|b..c", ("a", "b..c")),
        ("Block=64..256*2", (64, 128, 256)),
    ],
)
def test_a_parameter_has_the_values_that_were_written(text: str, values: tuple[Any, ...]) -> None:
    ((name, found),) = axes(text).items()
    assert found == values
    assert {type(v) for v in found} == {type(KNOWN[name])}


@pytest.mark.parametrize(
    ("text", "part", "told"),
    [
        ("warps=2..16", "2..16", "is no range"),
        ("warps=4,warps=8", "warps", "stands there twice"),
        ("warps=4,Block=x", "x", "parameter 'Block' is int, not 'x'"),
        ("warps=4|", "", "is int, not ''"),
        ("warps=16..2*2", "16..2*2", "does not grow"),
        ("warps=2..16*1", "2..16*1", "does not grow"),
        ("warps=0..16*2", "0..16*2", "does not grow"),
        ("warps=2..16+0", "2..16+0", "does not grow"),
        ("warps=1..x*2", "x", "is int, not 'x'"),
        ("warps=1..9*1.5", "1.5", "is int, not '1.5'"),
        ("warps=1..99999999+1", "1..99999999+1", "99999999 values"),
        ("warps=1|2,wraps=3", "wraps", "has no parameter 'wraps'"),
        ("warps", "warps", "gives no parameter a value"),
        ("warps=4,", "", "gives no parameter a value"),
    ],
)
def test_a_mistake_is_named(text: str, part: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        axes(text)
    assert told in error.value.message
    assert f"'{part}'" in error.value.message or not part
    assert error.value.hint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "ws", {"baseline": GOOD}, {"fix": TUNED})


def test_a_space_is_all_combinations(root: Path) -> None:
    study = find_workspace(root).study()
    found = expanded(study.folder, "fix[warps=2|4,block=64..128*2]", study.variants)
    assert names_of("fix", found) == [
        "fix[warps=2,block=64]",
        "fix[warps=2,block=128]",
        "fix[warps=4,block=64]",
        "fix[warps=4,block=128]",
    ]
    assert is_space("fix[warps=2|4]")
    assert is_space("fix[warps=2..4*2]")
    assert not is_space("fix[warps=2]")
    assert not is_space("fix")


def test_a_large_space_is_not_ours_to_search(root: Path) -> None:
    study = find_workspace(root).study()
    with pytest.raises(UsageError, match="220 combinations") as error:
        expanded(study.folder, "fix[warps=1..20+1,block=1..11+1]", study.variants)
    assert "narrow it" in error.value.hint


def drawn(random: random.Random, truth: float, noise: float, sessions: int = 5) -> SessionTimes:
    return {
        number: (InstanceTime(truth * (1 + random.gauss(0, noise)), None, None),)
        for number in range(sessions)
    }


def test_only_fresh_sessions_tell_the_truth_of_the_best_of_many() -> None:
    """Thirty-two kernels of the very same speed, four hundred times: the interval from the sessions
    that picked the best leaves 1 out three times as often as it says, that of fresh ones does not.
    """
    source = random.Random(7)
    trials, out = 400, {"picked": 0, "fresh": 0}
    for _ in range(trials):
        times = {f"v{n}": drawn(source, 10.0, 0.01) for n in range(32)}
        others = {n: t for n, of in times.items() if n != "v0" and (t := time_of(of, HEADLINE))}
        best = min(others, key=lambda name: others[name].value)
        fresh = (drawn(source, 10.0, 0.01), drawn(source, 10.0, 0.01))
        for kind, pair in (("picked", (times["v0"], times[best])), ("fresh", fresh)):
            ratio = not_none(ratio_of(*pair))
            assert ratio.high is not None
            out[kind] += not not_none(ratio.low) <= 1 <= ratio.high
    assert out["picked"] / trials > 0.12
    assert 0.02 < out["fresh"] / trials < 0.085


Sweeper = Callable[..., dict[str, Any]]


@pytest.fixture
def sweep(root: Path, capsys: Capsys) -> Sweeper:
    def run(*arguments: str) -> dict[str, Any]:
        (found,) = json_of(capsys, "sweep", *arguments, project=root)["sweeps"]
        return dict(found)

    return run


def by_warps(run: Run) -> float:
    """Best at eight; the block hardly matters."""
    off = {2: 1.5, 4: 1.0, 8: 0.8, 16: 1.2}[int(run.params.get("warps", 4))]
    return 10 * off * (1 + 1e-5 * int(run.params.get("block", 64)))


@pytest.fixture
def gpu(monkeypatch: Patch) -> StandIn:
    return StandIn(monkeypatch, by_warps)


def default_of(found: dict[str, Any]) -> str:
    (name,) = (each["variant"] for each in found["combinations"] if each["is_default"])
    return str(name)


def test_the_best_is_timed_again_beside_the_default_and_both_are_profiled(
    gpu: StandIn, sweep: Sweeper
) -> None:
    found = sweep("fix[warps=2..16*2]")
    assert [c["values"]["warps"] for c in found["combinations"]] == [8, 4, 16, 2]
    assert default_of(found) == "fix"
    first, second = gpu.timed
    assert set(first) == {"fix", "fix[warps=2]", "fix[warps=8]", "fix[warps=16]"}
    assert set(second) == {"fix", "fix[warps=8]"}
    assert gpu.captured == ["fix", "fix[warps=8]"]
    assert found["again"] == found["best_over_default"]
    assert found["best_over_default"]["low"] <= 1.25 <= found["best_over_default"]["high"]
    picked = found["combinations"][0]["over_default"]
    assert found["best_over_default"]["ratio"] != picked["ratio"]
    assert found["combinations"][-1]["over_best"]["ratio"] == pytest.approx(0.8 / 1.5, rel=0.02)
    assert found["combinations"][0]["shared_bytes"] == 1024 + 512
    assert found["combinations"][0]["registers"] == 32


def test_a_second_sweep_measures_nothing(
    gpu: StandIn, root: Path, sweep: Sweeper, capsys: Capsys
) -> None:
    gpu.spills = lambda run: 8 * (run.params.get("warps") == 16)
    first = sweep("fix[warps=2..16*2]")
    gpu.built.clear()
    gpu.timed.clear()
    again = sweep("fix[warps=2..16*2]")
    assert gpu.built == []
    assert gpu.timed == []
    assert again["combinations"] == first["combinations"]
    assert again["best_over_default"] == first["best_over_default"]
    listed = json_of(capsys, "list", project=root)["studies"][0]["variants"]
    assert [each["variant"] for each in listed] == ["baseline", "fix"], "none that is derived"
    found = sweep("fix[warps=8|16]")
    assert default_of(found) == "fix", "it stands in every sweep"
    assert {c["variant"] for c in found["combinations"]} == {"fix", "fix[warps=8]", "fix[warps=16]"}


def test_what_fails_costs_only_itself_and_is_not_timed(gpu: StandIn, sweep: Sweeper) -> None:
    gpu.spills = lambda run: 8 * (run.params.get("warps") == 8)
    gpu.broken = lambda run: run.params.get("warps") == 16
    gpu.wrong = lambda run: run.params.get("warps") == 2
    found = sweep("fix[warps=2..16*2,block=64|128]")
    states = {(c["values"]["warps"], c["values"]["block"]): c for c in found["combinations"]}
    by_warps = {4: "timed", 8: "refused", 16: "not built", 2: "failed"}
    assert {key: c["state"] for key, c in states.items()} == {
        (warps, block): state for warps, state in by_warps.items() for block in (64, 128)
    }
    assert states[8, 64]["why"]["message"] == "8 bytes of register spills"
    assert states[2, 64]["why"]["message"].startswith("wrong: max error")
    assert "fix[warps=8]" not in gpu.checked  # the compiler gate comes first
    assert gpu.timed == [["fix", "fix[block=128]"]]  # one alternative: nothing was picked
    assert found["picked"] is False


def test_the_best_is_none_that_is_less_accurate_than_the_gate_allows(
    gpu: StandIn, sweep: Sweeper
) -> None:
    gpu.error = lambda run: 3.0 if run.params.get("warps") == 8 else 1.0
    found = sweep("fix[warps=2..16*2]")
    assert found["combinations"][0]["variant"] == "fix"
    (eight,) = (each for each in found["combinations"] if each["values"]["warps"] == 8)
    assert (eight["state"], eight["microseconds"]) == ("inaccurate", None)
    assert eight["why"]["message"].startswith("3x the error of the reference")


def test_a_sweep_is_written_beside_the_reports(gpu: StandIn, root: Path, capsys: Capsys) -> None:
    out = text_of(capsys, "sweep", "fix[warps=2..16*2]", project=root)
    assert "is the fastest of 4" in out
    assert "fresh sessions that had no part in picking it" in out
    (written,) = (root / "reports" / "scale").glob("*/SWEEP.md")
    assert "4 combinations" in written.read_text()


def test_without_a_gpu_the_compiler_still_says_its_part(
    root: Path, builds_here: None, capsys: Capsys
) -> None:
    builds = json_of(capsys, "build", "fix[warps=2|4]", project=root)["builds"]
    assert [each["variant"] for each in builds] == ["fix[warps=2]", "fix"]


@pytest.mark.parametrize(
    ("space", "code", "told"),
    [
        ("fix", 2, "nothing to sweep"),
        ("fix[warps=2|4]", 3, "hint: measure it where there is a GPU"),
    ],
)
def test_what_cannot_be_swept_is_told(
    space: str, code: int, told: str, root: Path, capsys: Capsys
) -> None:
    assert told in error_of(capsys, "sweep", space, project=root, code=code)


def test_variants_are_compiled_by_several_workers_and_told_by_one(
    root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(compilation, "FEWEST_VARIANTS", 2)
    bad = 'if (i < n) out[i] = 2 * x[i];\n#if WARPS == 2\n#error "not with two"\n#endif'
    (root / "kernels" / "scale" / "baseline.cu").write_text(KERNEL.format(body=bad))
    builds = json_of(capsys, "build", "fix", "fix[warps=1..3+1]", project=root, code=4)["builds"]
    assert [each["variant"] for each in builds] == ["fix", *(f"fix[warps={n}]" for n in (1, 2, 3))]
    assert [each["variant"] for each in builds if each.get("error")] == ["fix[warps=2]"]
    assert "does not compile" in builds[2]["error"]
