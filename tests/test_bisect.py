"""The commit in which a variant became wrong or slow: what runs the same is asked once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snapshots
from answers import Capsys, Patch
from commits import Repository, repository
from faulty import examples
from standin import measured_by, record_times
from test_gate import CU, MODULE
from workbench.cli.main import main
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder
from workbench.judge.commits import first_bad
from workbench.run.plan import MeasuredPlan, Plan
from workbench.run.recording import Recorder
from workbench.study.workspace import find_workspace
from workbench.words import CheckResult
from workspaces import GOOD, make

pytestmark = pytest.mark.usefixtures("builds_here")


class Bench:
    """Stands in for a measurement: what a kernel says is what it does."""

    asked: ClassVar[list[Plan]] = []

    def __init__(self, study: Any, config: Any, folder: Any, plan: Plan, *rest: Any) -> None:
        self.study, self.folder, self.plan = study, folder, plan

    def text(self, variant: str) -> str:
        module = self.study.folder / f"{variant}.py"
        return str(module.with_suffix(".cu").read_text())

    def run(self) -> MeasuredPlan:
        Bench.asked.append(self.plan)
        self.check()
        if self.plan.timed:
            self.time()
        return MeasuredPlan()

    def check(self) -> None:
        recorder = Recorder(self.study, self.plan.shape, self.folder, self.plan.variants)
        for name in self.plan.checked:
            wrong = "WRONG" in self.text(name)
            status = CheckResult.WRONG if wrong else CheckResult.CORRECT
            recorder.check(name, self.plan.shape, status=status, why="max error 1" * wrong)

    def time(self) -> None:
        slow = {name: 1 + 0.06 * self.text(name).count("SLOW") for name in self.plan.timed}
        record_times(self, {name: 10.0 * by for name, by in slow.items()})


@pytest.fixture
def bench(monkeypatch: Patch) -> type[Bench]:
    measured_by(monkeypatch, Bench)
    Bench.asked = []
    return Bench


def history(tmp_path: Path, planted: str, code: str) -> tuple[Repository, list[str]]:
    """Ten commits: comments, files elsewhere, harmless changes of the code, and in the sixth
    ``code`` with the word ``planted`` beside it.
    """
    root = make(tmp_path / "repo" / "gpu", {"baseline": GOOD})
    (root / "kernels" / "scale" / "baseline.py").write_text(MODULE.format(name="baseline"))
    made = repository(tmp_path / "repo", "gpu")
    shas = [made.git("rev-parse", "HEAD")]
    shas.append(made.edit(CU, "extern", "// one\nextern"))
    shas.append(made.edit(CU, "2 * x[i]", "x[i] * 2 + 0 * i"))
    (made.top / "readme").write_text("nothing of the GPU")
    shas.append(made.commit("readme"))
    shas.append(made.edit(CU, "// one", "// two"))
    shas.append(made.edit(CU, "x[i] * 2 + 0 * i", f"/* {planted} */ {code}"))
    shas.append(made.edit(CU, "// two", "// three\n"))
    shas.append(made.edit(CU, "(i < n)", "(i <= n - 1)"))
    (made.top / "readme").write_text("nothing of the GPU either")
    shas.append(made.commit("readme again"))
    shas.append(made.edit(CU, "// three\n", ""))
    return made, shas


def bisect(made: Repository, capsys: Capsys, *arguments: str) -> tuple[int, Any, str]:
    project = ["--project", str(made.workspace)]
    code = main(["bisect", "baseline", *arguments, "--json", *project])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_a_break_of_correctness_is_found(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    made, shas = history(tmp_path, "WRONG", "x[i] * 3")
    code, told, _ = bisect(made, capsys, shas[0])
    assert (code, told["what"]) == (0, "wrong")
    assert told["first_bad"]["commit"] == shas[5]
    assert told["last_good"]["commit"] == shas[4]
    assert told["commits"] == 10
    assert told["tested"] == len(bench.asked) < 5
    assert told["same"] > 0
    assert made.git("worktree", "list").count("\n") == 0


def test_a_slowdown_that_shows_in_time_alone_is_found(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    made, shas = history(tmp_path, "SLOW", "fmaf(x[i], 3, -x[i])")
    code, told, _ = bisect(made, capsys, shas[0])
    assert (code, told["what"], told["first_bad"]["commit"]) == (0, "slow", shas[5])
    timed = [plan.timed for plan in bench.asked if plan.timed]
    assert timed
    assert all({"baseline__base", "baseline"} <= set(names) for names in timed)


def test_what_does_not_compile_is_passed_over(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    """The range that is left is told, and not a commit that nobody tested."""
    made, shas = history(tmp_path, "WRONG", "y[i]")
    made.edit(CU, "y[i]", "x[i] * 3")
    code, told, said = bisect(made, capsys, shas[0])
    assert code == 5
    assert "or in a commit before it that could not be tested" in said
    assert told["last_good"]["commit"] == shas[4]
    assert told["first_bad"]["commit"] == made.git("rev-parse", "HEAD")
    assert told["untested"]
    assert set(told["untested"]) <= set(shas[5:])


def test_nothing_to_find(tmp_path: Path, bench: type[Bench], capsys: Capsys) -> None:
    made, shas = history(tmp_path, "fine", "fmaf(x[i], 3, -x[i])")
    code, _, said = bisect(made, capsys, shas[0])
    assert code == 1
    assert "baseline is not wrong or slower at HEAD" in said
    made, shas = history(tmp_path / "other", "WRONG", "x[i] * 3")
    assert bisect(made, capsys, shas[5], "--what", "wrong")[0] == 1
    code, _, said = bisect(made, capsys, shas[5], shas[0])
    assert (code, "does not lead to" in said) == (2, True)


def test_without_a_gpu_nothing_is_guessed(tmp_path: Path, capsys: Capsys) -> None:
    made, shas = history(tmp_path, "SLOW", "fmaf(x[i], 3, -x[i])")
    code, _, said = bisect(made, capsys, shas[0])
    assert code == 5
    assert "cannot be tested" in said
    assert bisect(made, capsys, shas[0], "--what", "slow")[0] == 5
    assert bisect(made, capsys, shas[0], "--what", "odd")[0] == 2


def test_registers_are_no_answer_without_a_gpu(tmp_path: Path, capsys: Capsys) -> None:
    made, shas = history(tmp_path, "SLOW", "sin((double)x[i])")
    code, _, said = bisect(made, capsys, shas[0], "--what", "slow")
    assert (code, "it needs measuring (registers 10 → 28 of scale" in said) == (5, True)


def test_a_variant_that_is_none(tmp_path: Path, capsys: Capsys) -> None:
    made, shas = history(tmp_path, "fine", "x[i] * 3")
    assert main(["bisect", "basline", shas[0], "--project", str(made.workspace)]) == 2
    assert "did you mean 'baseline'?" in capsys.readouterr().err


def test_without_a_good_commit_it_starts_at_the_last_correct_evidence(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    made, _ = history(tmp_path, "fine", "2 * x[i]")
    assert bisect(made, capsys)[0] == 2
    study = find_workspace(made.workspace).study("scale")
    folder = EvidenceFolder(made.workspace / "ablations/scale/evidence/nvidia-h200")
    timed = snapshots.timing(study.default_shape, {"baseline": 10.0})
    store.write(folder.timings(study.default_shape) / "t.json.zst", timed)
    for status in (CheckResult.CORRECT, CheckResult.WRONG):
        recorder = Recorder(study, study.default_shape, folder, ["baseline"])
        recorder.check("baseline", study.default_shape, status=status, why="max error 1")
        made.commit(f"recorded: {status}")
    good = made.git("rev-parse", "HEAD~1")
    assert bisect(made, capsys, "", "HEAD~1")[0] == 2  # nothing has changed since
    made.edit(CU, "2 * x[i]", "2 * x[i] + 0")
    bad = made.edit(CU, "2 * x[i] + 0", "x[i] * 3 /* WRONG */")
    code, told, said = bisect(made, capsys)
    assert (code, told["what"], told["first_bad"]["commit"]) == (0, "wrong", bad)
    assert told["commits"] == 4
    assert f"from {good[:10]} recorded: correct" in said


@settings(max_examples=examples(100))
@given(st.data())
def test_the_first_bad_one_is_found_by_halves(data: st.DataObject) -> None:
    number = data.draw(st.integers(2, 200))
    bad = data.draw(st.integers(1, number - 1))
    unknown = data.draw(st.sets(st.integers(1, number - 1), max_size=10)) - {number - 1}
    asked: list[int] = []

    def is_bad(place: int) -> bool | None:
        asked.append(place)
        return None if place in unknown else place >= bad

    last_good, found = first_bad(number, is_bad)
    assert last_good < bad <= found
    assert set(range(last_good + 1, found)) <= unknown
    assert len(asked) == len(set(asked)) <= number.bit_length() + len(unknown) + 1
