"""The commit in which a variant became slower or broken: git's search, and the gate's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from answers import Capsys, Patch
from git_repository import Repository, repository
from standin import measured_by, record_times
from workbench.cli.main import main
from workbench.run.measurement import MeasuredPlan, Plan
from workbench.run.recording import Recorder
from workbench.words import CheckResult
from workspaces import GOOD, make

pytestmark = pytest.mark.usefixtures("builds_here")
FILE = "kernels/scale/fix.py"
MODULE = """DOES = "well"


def run(x):
    return x + x
"""


class Bench:
    """Stands in for a measurement: what a variant says is what it does."""

    asked: ClassVar[list[Plan]] = []

    def __init__(self, study: Any, config: Any, folder: Any, plan: Plan, *rest: Any) -> None:
        self.study, self.folder, self.plan = study, folder, plan

    def text(self, variant: str) -> str:
        return str((self.study.folder / f"{variant}.py").read_text())

    def run(self) -> MeasuredPlan:
        Bench.asked.append(self.plan)
        recorder = Recorder(self.study, self.plan.shape, self.folder, self.plan.variants)
        wrong = {name: "max error 1" for name in self.plan.checked if "WRONG" in self.text(name)}
        for name in self.plan.checked:
            status = CheckResult.WRONG if name in wrong else CheckResult.CORRECT
            recorder.check(name, self.plan.shape, status=status, why=wrong.get(name, ""))
        times = {name: 10 + 0.6 * ("SLOW" in self.text(name)) for name in self.plan.timed}
        record_times(self, times)
        return MeasuredPlan(failures=wrong)


@pytest.fixture
def bench(monkeypatch: Patch) -> type[Bench]:
    measured_by(monkeypatch, Bench)
    Bench.asked = []
    return Bench


def history(tmp_path: Path, planted: str) -> tuple[Repository, list[str]]:
    """Ten commits: comments, files elsewhere, harmless changes, and ``planted`` in the sixth."""
    make(tmp_path / "repo" / "gpu", {"baseline": GOOD}, {"fix": MODULE})
    made = repository(tmp_path / "repo", "gpu")
    shas = [made.git("rev-parse", "HEAD")]
    shas.append(made.edit(FILE, "DOES", "# one\nDOES"))
    shas.append(made.edit(FILE, "x + x", "2 * x"))
    (made.top / "readme").write_text("nothing of the GPU")
    shas.append(made.commit("readme"))
    shas.append(made.edit(FILE, "# one", "# two"))
    shas.append(made.edit(FILE, "well", planted))
    shas.append(made.edit(FILE, "# two", "# three"))
    shas.append(made.edit(FILE, "2 * x", "x * 2"))
    (made.top / "readme").write_text("nothing of the GPU either")
    shas.append(made.commit("readme again"))
    shas.append(made.edit(FILE, "# three\n", ""))
    return made, shas


def bisect(made: Repository, capsys: Capsys, *arguments: str) -> tuple[int, Any, str]:
    project = ["--project", str(made.workspace)]
    code = main(["bisect", "fix", *arguments, "--json", *project])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


@pytest.mark.parametrize(("planted", "verdict"), [("WRONG", "broken"), ("SLOW", "slower")])
def test_the_first_bad_commit_is_found(
    planted: str, verdict: str, tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    made, shas = history(tmp_path, planted)
    code, told, said = bisect(made, capsys, shas[0])
    assert (code, told["first_bad"]["commit"], told["untested"]) == (0, shas[5], [])
    assert f"{shas[5][:10]} kernels/scale/fix.py: {planted}: bad, {verdict}: " in said
    assert told["tested"] <= 5
    assert all(set(plan.checked) == {"fix", "fix__base"} for plan in bench.asked)
    assert made.git("worktree", "list").count("\n") == 0
    assert made.git("status", "--porcelain", "--", "gpu/kernels") == ""


def test_the_users_own_bisect_goes_on(tmp_path: Path, bench: type[Bench], capsys: Capsys) -> None:
    made, shas = history(tmp_path, "WRONG")
    made.git("bisect", "start", "HEAD", shas[0])
    here = made.git("rev-parse", "HEAD"), made.git("bisect", "log")
    assert bisect(made, capsys, shas[0], shas[-1])[1]["first_bad"]["commit"] == shas[5]
    assert here == (made.git("rev-parse", "HEAD"), made.git("bisect", "log"))


def test_commits_without_the_variant_are_passed_over(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    """All that may be the first bad one are named."""
    made, shas = history(tmp_path, "well")
    file = made.workspace / FILE
    text = file.read_text()
    file.unlink()
    gone = made.commit("no fix")
    file.write_text(text.replace("well", "WRONG"))
    bad = made.commit("fix again")
    code, told, said = bisect(made, capsys, shas[0])
    assert (code, told["first_bad"]["commit"], told["untested"]) == (5, bad, [gone])
    assert f"in {bad[:10]} or in a commit before it that could not be tested: {gone[:10]}" in said


def test_nothing_to_find(tmp_path: Path, bench: type[Bench], capsys: Capsys) -> None:
    made, shas = history(tmp_path, "fine")
    code, _, said = bisect(made, capsys, shas[0])
    assert (code, "fix is neither slower nor broken at HEAD" in said) == (1, True)
    assert main(["bisect", "fox", shas[0], "--project", str(made.workspace)]) == 2
    assert "did you mean 'fix'?" in capsys.readouterr().err


def test_the_older_commit_comes_first(tmp_path: Path, bench: type[Bench], capsys: Capsys) -> None:
    made, shas = history(tmp_path, "SLOW")
    newest = made.edit(FILE, "SLOW", "well")
    code, _, said = bisect(made, capsys, newest, shas[5])
    assert (code, "mistook good and bad revs" in said) == (2, True)
    assert "hint: name an older commit of the same branch first" in said


def test_without_a_gpu_nothing_is_guessed(tmp_path: Path, capsys: Capsys) -> None:
    made, shas = history(tmp_path, "SLOW")
    code, _, said = bisect(made, capsys, shas[0])
    assert (code, "HEAD cannot be tested" in said) == (5, True)
