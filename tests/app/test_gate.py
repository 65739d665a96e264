"""Two commits compared: what is the same needs no measuring, what moved has a cause."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import structs

import made_evidence
import workspaces
from answers import Capsys, Patch, error_of, not_none
from git_repository import Repository, repository
from made_ladder import ratio
from made_records import built_kernel, made_index
from standin import measured_by, record_times
from workbench.app import gate as app_gate
from workbench.app.gate import Side
from workbench.cli.main import main
from workbench.cuda.compiler import CUBIN_FOLDER, CUBINS, Source
from workbench.cuda.cubin import code_digests
from workbench.derive.figures import Figure
from workbench.derive.speedup import Ratio
from workbench.evidence import store
from workbench.evidence.records import BuiltKernel, CaptureIndex, Captures, Provenance
from workbench.evidence.store import EvidenceFolder, captures_at
from workbench.judge.commits import (
    AtCommit,
    TimedPair,
    VariantChange,
    judge_change,
    time_verdict,
    with_controls,
)
from workbench.judge.findings import sentence
from workbench.judge.session_checks import Control
from workbench.ncu.captures import LAUNCHES
from workbench.run import machine
from workbench.run.measurement import MeasuredPlan, Plan
from workbench.run.repository import Commit, join, older
from workbench.study.config import CommitGate, Config
from workbench.study.files import compressed, decompressed
from workbench.study.sources import Fingerprints, meaning, meaning_of_c
from workbench.study.workspace import find_workspace
from workbench.words import Cause, Move, Regime
from workspaces import CAUSAL, EVIDENCE, FIXTURE, GOOD, SHOWN, copy_of_fixture, make

RULES = Config()
STUDY = "kernels/scale/study.py"
CODE = "code of study.py (inputs, reference, work)"
SLOW = "if (i < n) out[i] = __fmaf_rn(x[i], 3.f, -x[i]);"
CU, MODULE_FILE = "kernels/scale/baseline.cu", "kernels/scale/baseline.py"


@pytest.fixture
def scale(tmp_path: Path) -> Repository:
    """A workspace in a subfolder of a repository."""
    make(tmp_path / "repo" / "gpu", {"baseline": GOOD, "fast": SLOW})
    return repository(tmp_path / "repo", "gpu")


@pytest.fixture
def gate_by_workers(
    scale: Repository, capsys: Capsys, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Compiled code is kept from one test to the next."""
    cubins = tmp_path_factory.getbasetemp() / "cubins"

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        kept = () if "--cache" in arguments else ("--cache", str(cubins))
        code = main(["gate", *arguments, *kept, "--json", "--project", str(scale.workspace)])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else {}

    return run


@pytest.fixture
def gate(gate_by_workers: Any, builds_here: None) -> Any:
    """As that, with builds in this process."""
    return gate_by_workers


def rows(told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {change["variant"]: change for change in told["studies"][0]["changes"]}


def verdicts(told: Mapping[str, Any]) -> dict[str, str]:
    return {name: change["verdict"] for name, change in rows(told).items()}


# ---- tier 0 --------------------------------------------------------------------------------
def test_comments_and_lines_are_the_same_without_measuring(
    scale: Repository, gate: Any, monkeypatch: Patch
) -> None:
    scale.edit(CU, "extern", "// what it does\n\nextern")
    scale.edit("kernels/scale/baseline.py", "from", '"""Doubles."""\n\nfrom')
    monkeypatch.setattr(machine, "can_measure", lambda: True)
    before = scale.git("worktree", "list")
    code, told = gate("HEAD~2")
    left = (scale.git("worktree", "list"), scale.git("status", "--porcelain"))
    assert left == (before, ""), "nothing is left in the repository"
    assert (code, verdicts(told)) == (0, {"baseline": "same", "fast": "same"})
    why = {c["variant"]: c["why"]["message"] for c in told["studies"][0]["changes"]}
    assert why["baseline"].startswith("only comments and blanks are others")
    assert why["fast"].startswith("its sources are the same")


def test_bisect_finds_the_commit_that_broke_a_variant(scale: Repository, capfd: Capsys) -> None:
    """The right one, past a commit that has none of that name, beside a bisect of the user's."""
    fast = "kernels/scale/fast.cu"
    scale.git("tag", "good")
    scale.edit(CU, "float", "flaot")  # another variant
    scale.edit(fast, "extern", "// one\nextern")
    (scale.workspace / "kernels/scale/fast.py").rename(scale.workspace / "kernels/scale/slow.py")
    scale.commit("without it")
    (scale.workspace / "kernels/scale/slow.py").rename(scale.workspace / "kernels/scale/fast.py")
    again = scale.commit("with it")
    bad = scale.edit(fast, "float", "flaot")
    tip = scale.edit(fast, "// one", "// two")
    scale.git("bisect", "start")
    before = [scale.git(*words) for words in (("bisect", "log"), ("status",), ("worktree", "list"))]

    def bisect(*commits: str, variant: str = "fast") -> tuple[int, str, str]:
        code = main(["bisect", variant, *commits, "--project", str(scale.workspace)])
        return (code, *capfd.readouterr())

    code, printed, _ = bisect("good", tip)
    assert (code, printed) == (0, f"first bad: {bad[:7]} {fast}: flaot\n")
    code, _, told = bisect("good", again)
    assert (code, "is neither slower nor broken at" in told) == (1, True)
    code, _, told = bisect("good", tip, variant="fost")
    assert (code, "did you mean 'fast'" in told) == (2, True)
    assert before == [
        scale.git(*words) for words in (("bisect", "log"), ("status",), ("worktree", "list"))
    ]


def test_other_code_is_found(scale: Repository, gate_by_workers: Any) -> None:
    scale.edit(CU, "2 * x[i]", "x[i] / 3")
    code, told = gate_by_workers("HEAD~1", "HEAD")
    change = rows(told)["baseline"]
    assert (code, change["verdict"], change["cause"], change["tier"]) == (
        *(5, "cannot tell", "source", 0),
    )
    assert "machine_code" in {m["what"] for m in change["differences"]}


UNDEFINED = 'error: identifier "y" is undefined'


@pytest.mark.parametrize(
    ("edit", "code", "verdict", "why", "differences"),
    [
        ((CU, "2 * x[i]", "x[i] * 2.0f"), 0, "same", "its machine code is the same", []),
        ((MODULE_FILE, "256 + 1", "256 + 2"), 5, "cannot tell", "it needs meas", ["host_code"]),
        ((CU, "2 * x[i]", "2 * y[i]"), 1, "broken", f"baseline.cu(3): {UNDEFINED}", ["compiles"]),
    ],
)
def test_a_change_of_code_or_launch_is_told_by_the_compiler(
    edit: tuple[str, str, str],
    code: int,
    verdict: str,
    why: str,
    differences: list[str],
    scale: Repository,
    gate: Any,
) -> None:
    scale.edit(*edit)
    found, told = gate("HEAD~1")
    assert (found, verdicts(told)) == (code, {"baseline": verdict, "fast": "same"})
    change = rows(told)["baseline"]
    assert why in change["why"]["message"]
    assert [moved["what"] for moved in change["differences"]] == differences


def test_a_kernel_in_a_file_of_another_name_is_the_same(scale: Repository, gate: Any) -> None:
    """But not where another kernel has its name now."""
    folder = scale.workspace / "kernels" / "scale"
    (folder / "baseline.cu").rename(folder / "other name.cu")
    scale.edit("kernels/scale/baseline.py", "baseline.cu", "other name.cu")
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)["baseline"]) == (0, "same")
    scale.edit("kernels/scale/baseline.py", "other name.cu", "fast.cu")
    assert gate("HEAD~1")[0] == 5


def test_a_package_that_is_not_here_breaks_nothing(scale: Repository, gate: Any) -> None:
    """Neither of a step nor of a reference."""
    scale.edit("kernels/scale/fast.py", "from", "import no_such_package\n\nfrom")
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)["fast"]) == (5, "cannot tell")
    assert "needs no_such_package" in rows(told)["fast"]["why"]["message"]
    with (scale.workspace / "ablations" / "scale" / "ablation.toml").open("a") as ladder:
        ladder.write('[[reference]]\nvariant = "lib"\nprimary = true\nneeds = "no-such-package"\n')
    module = scale.workspace / "kernels" / "scale" / "lib.py"
    module.write_text("import no_such_package\n\n\ndef run(x):\n    return x\n")
    scale.commit("a reference")
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)["lib"]) == (5, "new")  # a reference is a rule, too
    scale.edit("kernels/scale/lib.py", "return x", "return 2 * x")
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)["lib"]) == (5, "cannot tell")


def test_a_study_that_comes_goes_or_cannot_be_read(scale: Repository, gate: Any) -> None:
    for name in ("kernels", "ablations"):
        shutil.copytree(scale.workspace / name / "scale", scale.workspace / name / "more")
    scale.commit("another study")
    code, told = gate("HEAD~1")
    assert [study["study"] for study in told["studies"]] == ["more", "scale"]
    assert (code, verdicts(told)) == (0, {"baseline": "new", "fast": "new"})
    code, told = gate("HEAD", "HEAD~1")
    assert (code, verdicts({"studies": told["studies"][1:]})) == (0, {"more": "gone"})
    study = scale.workspace / "kernels" / "more" / "study.py"
    study.write_text(study.read_text() + "\nhere = (\n")
    scale.commit("no Python")
    code, told = gate("HEAD~1", "HEAD")
    assert (code, verdicts(told)) == (1, {"more": "broken"})  # once, and not of each variant
    change, last = rows(told)["more"], len(study.read_text().splitlines())
    assert f":gpu/kernels/more/study.py:{last} could not be imported" in change["why"]["message"]
    assert gate("HEAD", "HEAD~1")[0] == 5


def test_new_and_gone_variants(scale: Repository, gate: Any) -> None:
    ladder = scale.workspace / "ablations" / "scale" / "ablation.toml"
    ladder.write_text(ladder.read_text().replace('"fast"', '"faster"'))
    for end in (".cu", ".py"):
        file = scale.workspace / "kernels" / "scale" / f"fast{end}"
        file.with_stem("faster").write_text(file.read_text().replace("fast.cu", "faster.cu"))
        file.unlink()
    scale.commit("renamed")
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)) == (0, {"baseline": "same", "faster": "new", "fast": "gone"})


def test_kept_cubins_are_not_compiled_again(scale: Repository, gate: Any, tmp_path: Path) -> None:
    scale.edit(CU, "2 * x[i]", "x[i] / 3")
    kept = []
    for _ in range(2):
        gate("HEAD~1", "HEAD", "--cache", str(tmp_path / "cubins"))
        kept.append({p: p.stat().st_mtime_ns for p in (tmp_path / "cubins").iterdir()})
    assert (len(kept[0]), kept[1]) == (2, kept[0])


ONE = 'extern "C" __global__ void one(int* x) { x[0] = 1; }\n'


class Runs:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def one(tmp_path: Path) -> Source:
    """Of a file with one kernel."""
    (file := tmp_path / "one.cu").write_text(ONE)
    return Source(file, "one", {}, ())


@pytest.mark.parametrize("content", ["pickle", "[]", '{"report": {}}', ""])
def test_nothing_in_a_folder_of_cubins_runs_here(
    one: Source, tmp_path: Path, monkeypatch: Patch, content: str
) -> None:
    monkeypatch.setenv(CUBIN_FOLDER, str(tmp_path))
    report, code = one.compile("sm_90a")
    (kept,), ran = tmp_path.glob(CUBINS), tmp_path / "ran"
    whole = kept.read_text()
    kept.write_bytes(pickle.dumps(Runs(ran)) if content == "pickle" else content.encode())
    for _ in range(2):
        again, same = one.compile("sm_90a")
        assert (again, bytes(same.code), ran.exists()) == (report, bytes(code.code), False)
        assert kept.read_text() == whole


def test_a_kernel_is_built_where_none_can_be_kept(
    one: Source, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Such as in a folder of a disk that is read-only, or one that was removed meanwhile."""
    for folder in (one.path, tmp_path / "gone"):
        monkeypatch.setenv(CUBIN_FOLDER, str(folder))
        assert [each.kernel for each in one.compile("sm_90a")[0].kernels] == ["one"]


def test_the_machine_code_of_a_kernel_without_its_lines(one: Source) -> None:
    """Two kernels of one file: a change to one is none of the other."""
    text = f"{ONE}{ONE.replace('one', 'two').replace('= 1', '= 2')}"
    told = []
    for changed in (text, f"// shifted\n\n{text}", text.replace("x[0] = 2", "x[0] = 3")):
        one.path.write_text(changed)
        report, code = one.compile("sm_90a")
        told.append(code_digests(bytes(code.code)))
        assert {k.kernel: bool(k.code) for k in report.kernels} == {"one": True, "two": False}
    assert told[0] == told[1]
    assert told[0]["one"] == told[2]["one"]
    assert told[0]["two"] != told[2]["two"]
    assert code_digests(b"\x7fELF no") == {}


def test_cuda_that_means_the_same() -> None:
    one = 'int a; // x \\\n still a comment\n/* b\n */ char c = \'"\', *d = "// no"; // y\n'
    other = '\n int a;\nchar c = \'"\', *d = "// no";\n'
    assert meaning_of_c(one) == meaning_of_c(other)
    assert meaning_of_c(one) != meaning_of_c(other.replace("// no", "// so"))
    assert meaning_of_c('R"(// kept)"') == 'R"(// kept)"'


def test_python_that_means_the_same() -> None:
    assert meaning('"""A."""\nx = 1  # one\n') == meaning('# b\n"""B."""\n\n\nx = 1\n')
    assert meaning("x = 1\n") != meaning("x = 2\n")
    assert meaning("x = None") == (  # of every version of Python
        "Module(body=[Assign(targets=[Name(id='x', ctx=Store())], value=Constant())])"
    )
    assert meaning('def f():\n    """A."""\n    return 1\n') == meaning("def f(): return 1")
    assert meaning("def f(:") == "def f(:"


# ---- mistakes ------------------------------------------------------------------------------
def test_a_cache_that_is_a_link_in_a_loop(
    scale: Repository, tmp_path: Path, capsys: Capsys
) -> None:
    (loop := tmp_path / "loop").symlink_to(loop)
    told = error_of(capsys, "gate", "HEAD", "HEAD", "--cache", loop, project=scale.workspace)
    assert "is a link in a loop" in told


@pytest.mark.parametrize("base", ["nowhere", "--all", ""])
def test_no_such_commit(scale: Repository, capsys: Capsys, base: str) -> None:
    told = error_of(capsys, "gate", "--project", str(scale.workspace), "--", base)
    assert f"'{base}' is no commit" in told
    assert "hint: `git log" in told


def test_no_repository(tmp_path: Path, capsys: Capsys) -> None:
    make(tmp_path, {"baseline": GOOD})
    assert "is in no git repository" in error_of(capsys, "gate", "HEAD~1", project=tmp_path)


def test_a_commit_without_a_workspace(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "readme").write_text("x")
    made = repository(tmp_path, "gpu")
    make(tmp_path / "gpu", {"baseline": GOOD})
    made.commit("a workspace")
    told = error_of(capsys, "gate", "HEAD~1", project=tmp_path / "gpu")
    assert "has no workbench.toml in gpu/" in told


# ---- verdicts ------------------------------------------------------------------------------
def kernel(code: str = "a", **changed: Any) -> BuiltKernel:
    return built_kernel(code=code, **changed)


def at(fingerprint: str = "a", *, kernels: BuiltKernel | None = None, **known: Any) -> AtCommit:
    built = ((kernels, ""),) if kernels else None
    return AtCommit(
        fingerprint=fingerprint, plain=fingerprint, host="h", method="m", kernels=built, **known
    )


def figure(value: float, name: str = "warp_instructions") -> dict[str, Figure]:
    return {name: Figure(name, name, value, "M", name, "lower")}


def judged(before: AtCommit, after: AtCommit, timed: TimedPair | None = None) -> VariantChange:
    return judge_change("v", before, after, RULES, timed)


@pytest.mark.parametrize(
    ("changed", "warnings", "fact"),
    [
        ({"registers": 40}, (), ""),
        ({"registers": 49}, (), " (registers 32 → 49 of k)"),
        ({"registers": 8}, (), " (registers 32 → 8 of k)"),
        ({"spill_store_bytes": 8}, (), " (spills, bytes 0 → 8 of k)"),
        ({"shared_bytes": 1024}, (), ""),
        ({}, ("declared but never used",), " (warnings 0 → 1)"),
    ],
)
def test_without_a_measurement_nothing_is_slower(
    changed: dict[str, int], warnings: tuple[str, ...], fact: str
) -> None:
    """What the compiler says stands beside it: fewer spills for more registers may be faster."""
    after = at("b", kernels=kernel("b", **changed), warnings=warnings)
    found = judged(at("a", kernels=kernel()), after)
    assert (found.verdict, found.cause, found.tier) == (Move.CANNOT_TELL, Cause.SOURCE, 0)
    assert sentence(found.why) == f"its machine code is another: it needs measuring{fact}"
    assert len(found.differences) == 2  # and its machine code


# ---- rules ---------------------------------------------------------------------------------
def test_a_change_does_not_choose_the_rules_it_is_judged_by(
    scale: Repository, gate: Any, bench: type[Bench]
) -> None:
    """6 % slower, and a margin of 100 % with it."""
    scale.edit("kernels/scale/fast.cu", "3.f, -x[i]", "4.f, -2 * x[i]")
    settings = scale.workspace / "workbench.toml"
    settings.write_text(settings.read_text() + "\n[gate]\nmargin = 1.0\n")
    scale.commit("a wider margin")
    bench.times = {"baseline": 20.0, "fast__base": 10.0, "fast": 10.6}
    code, told = gate("HEAD~2")
    assert (code, rows(told)["fast"]["verdict"]) == (1, "slower")
    assert rows(told)["workbench.toml"]["why"]["message"] == "gate.margin: 0.02 → 1.0"


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        (
            STUDY,
            "Tolerance(absolute=1e-6",
            "Tolerance(absolute=1.0",
            "tolerance at large: 1e-06, relative 1e-06 → 1, relative 1e-06; "
            f"tolerance at odd: 1e-06, relative 1e-06 → 1, relative 1e-06; {CODE}",
        ),
        (STUDY, "torch.randn", "torch.ones", CODE),
        (STUDY, "n=1001", "n=1024", "shape odd: n=1001 → n=1024"),
        (STUDY, ', "odd": Shape(profiled=False, n=1001)', "", "shape odd: n=1001 → none"),
        (
            "ablations/scale/ablation.toml",
            'key_change = "fast"',
            'key_change = "fast"\ndrops = ["odd"]',
            "fast.drops: none → odd",
        ),
    ],
)
def test_other_rules_are_reported_and_are_not_the_same(
    scale: Repository, gate: Any, file: str, old: str, new: str, why: str
) -> None:
    scale.edit(file, old, new)
    code, told = gate("HEAD~1")
    name = Path(file).name
    row = rows(told)[name]
    assert (code, row["verdict"], row["why"]["message"]) == (5, "cannot tell", why)
    if name == "study.py":  # what it checks and times is not what it was
        assert set(verdicts(told).values()) == {"cannot tell"}


def test_other_texts_are_no_other_rules(scale: Repository, gate: Any) -> None:
    scale.edit("kernels/scale/study.py", "def work", "# as it was\ndef work")
    scale.edit("ablations/scale/ablation.toml", 'key_change = "fast"', 'key_change = "faster"')
    assert gate("HEAD~2")[0] == 0


@pytest.mark.parametrize(
    ("instructions", "read", "move"),
    [
        (1.05, 1.0, Move.SLOWER),
        (0.95, 1.0, Move.FASTER),
        (1.004, 1.0, Move.CANNOT_TELL),
        (1.2, 0.5, Move.CANNOT_TELL),  # they move both ways
    ],
)
def test_counters_against_their_noise(instructions: float, read: float, move: Move) -> None:
    before, after = (
        at(code, kernels=kernel(code), figures=figure(100.0 * one) | figure(other, "dram_read"))
        for code, one, other in (("a", 1.0, 1.0), ("b", instructions, read))
    )
    found = judged(before, after)
    assert (found.verdict, found.tier, found.cause) == (move, 1, Cause.SOURCE)


@pytest.mark.parametrize(
    ("value", "spread", "move"),
    [
        (0.95, 0.01, Move.SLOWER),
        (1.05, 0.01, Move.FASTER),
        (1.0, 0.01, Move.SAME),
        (0.985, 0.002, Move.SAME),  # certain, and less than counts
        (0.97, 0.05, Move.CANNOT_TELL),
    ],
)
def test_times_by_their_interval(value: float, spread: float, move: Move) -> None:
    assert time_verdict(ratio(value, spread), CommitGate())[0] == move
    assert time_verdict(Ratio(value, None, None, 1), CommitGate())[0] == Move.CANNOT_TELL
    again = replace(ratio(value, spread), level=99)
    assert time_verdict(again, CommitGate())[1].values["level"] == 99


def test_times_decide_over_counters() -> None:
    before = at("a", kernels=kernel(), figures=figure(100.0))
    after = at("b", kernels=kernel("b"), figures=figure(120.0))
    found = judged(before, after, TimedPair(ratio(1.1, 0.01), 11.0, 10.0))
    assert (found.verdict, found.tier) == (Move.FASTER, 2)


def test_a_control_that_moved_takes_the_verdict_away() -> None:
    """Twins for times; for counters a variant that nobody changed."""
    off = Control("baseline", Regime.CHAINED, ratio(0.95, 0.005))
    timed = TimedPair(ratio(0.9, 0.01), 10.0, 11.0, (off,))
    before, after = at("a", kernels=kernel()), at("b", kernels=kernel("b"))
    found = judged(before, after, timed)
    assert (found.verdict, found.cause) == (Move.CANNOT_TELL, Cause.NOISE)

    moved = judged(
        at("a", figures=figure(1.0), index=index(driver="1")),
        at("a", figures=figure(1.2), index=index(driver="2")),
    )
    assert (moved.verdict, moved.cause) == (Move.SLOWER, Cause.HARDWARE)
    slower = judged(replace(before, figures=figure(1.0)), replace(after, figures=figure(1.3)))
    changes = [replace(moved, variant="control"), replace(slower, variant="changed")]
    assert slower.verdict == Move.SLOWER
    _, told = with_controls(changes, frozenset({"control"}))
    assert (told.verdict, told.cause) == (Move.CANNOT_TELL, Cause.HARDWARE)


def index(**origin: Any) -> CaptureIndex:
    return made_index("v", "s", provenance=Provenance(date="2026", **origin))


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        ({"nvrtc": "13.0"}, {"nvrtc": "13.1"}, Cause.COMPILER),
        ({"torch": "2.8"}, {"torch": "2.9"}, Cause.LIBRARY),
        ({"gpu": "H100"}, {"gpu": "H200"}, Cause.HARDWARE),
        ({}, {}, Cause.NOISE),
    ],
)
def test_the_cause_where_the_sources_are_the_same(
    one: dict[str, str], other: dict[str, str], cause: Cause
) -> None:
    before = at(figures=figure(1.0), index=index(**one))
    after = at(figures=figure(1.1), index=index(**other))
    found = judged(before, after)
    assert (found.verdict, found.cause) == (Move.SLOWER, cause)
    assert judged(before, replace(after, method="n")).cause == Cause.METHOD


@pytest.mark.parametrize(
    ("flags", "cause"),
    [(("--set", "basic"), Cause.METHOD), (("--pm-sampling-interval", "8000"), Cause.NOISE)],
)
def test_flags_of_ncu_are_a_cause_but_for_how_often_it_samples(
    flags: tuple[str, ...], cause: Cause
) -> None:
    before = at(figures=figure(1.0), index=index())
    after = at(figures=figure(1.1), index=structs.replace(index(), ncu_flags=flags))
    assert judged(before, after).cause == cause


def test_what_failed_before_is_no_news() -> None:
    assert judged(at("a"), at("b", error="no\nreally")).why.values == {"text": "no"}
    assert judged(at("a"), at("b", wrong="wrong at s: x")).verdict == Move.BROKEN
    assert judged(at("a", error="no"), at("b", error="no")).verdict == Move.CANNOT_TELL
    assert judged(at("a", wrong="no"), at("a", wrong="no")).verdict == Move.SAME


# ---- tiers 1 and 2 -------------------------------------------------------------------------
class Bench:
    """Stands in for a measurement: variants take so many microseconds."""

    times: ClassVar[Mapping[str, float]] = {}
    captures: ClassVar[Mapping[str, str]] = {}
    asked: ClassVar[list[Plan]] = []
    wrong: ClassVar[set[str]] = set()

    def __init__(
        self, study: Any, config: Any, folder: Any, plan: Plan, tell: Any, undecided: Any, *_: Any
    ) -> None:
        self.study, self.folder, self.plan, self.undecided = study, folder, plan, undecided

    def run(self) -> MeasuredPlan:
        Bench.asked.append(self.plan)
        if self.plan.timed:
            self.time()
        for name in self.plan.captured:
            if name in Bench.captures:
                self.capture(name, Bench.captures[name])
        return MeasuredPlan()

    def capture(self, name: str, recorded: str) -> None:
        """That of a variant of the repository's own study."""
        shape, index = self.plan.shape, workspaces.recorded_index(SHOWN, recorded)
        parameters = self.study.shapes[shape].parameters
        index["fingerprint"] = Fingerprints(self.study).at_shape(name, parameters)
        made = msgspec.convert(index | {"variant": name, "shape": shape}, CaptureIndex)
        known = {**store.captures_at(self.folder, shape), name: made}
        store.write(self.folder.captures(shape), Captures(captures=known))
        tables = self.folder.tables(index["report"])
        tables.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(EVIDENCE / "tables" / tables.name, tables)

    def time(self) -> None:
        times = {name: Bench.times[name] for name in self.plan.timed}
        timing = record_times(self, times, controls=[self.plan.timed[0]])
        for name in Bench.wrong:
            timing = made_evidence.wrongly_timed(timing, name)
        store.write(self.folder.timings(self.plan.shape) / "t.json.zst", timing)
        assert list(self.undecided(timing)) == []


@pytest.fixture
def bench(monkeypatch: Patch) -> type[Bench]:
    measured_by(monkeypatch, Bench)
    Bench.asked, Bench.captures, Bench.wrong = [], {}, set()
    return Bench


@pytest.mark.parametrize(
    ("now", "verdict", "code"), [(10.6, "slower", 1), (9.0, "faster", 0), (10.05, "same", 0)]
)
def test_both_commits_are_timed_in_the_same_sessions(
    scale: Repository, gate: Any, bench: type[Bench], now: float, verdict: str, code: int
) -> None:
    """A change that shows in times alone; the unchanged variant is timed beside it."""
    scale.edit("kernels/scale/fast.cu", "3.f, -x[i]", "4.f, -2 * x[i]")
    bench.times = {"baseline": 20.0, "fast__base": 10.0, "fast": now}
    found, told = gate("HEAD~1")
    assert (found, verdicts(told)) == (code, {"baseline": "same", "fast": verdict})
    assert [plan.timed for plan in bench.asked] == [("baseline", "fast__base", "fast")]
    change = rows(told)["fast"]
    assert change["tier"] == 2
    assert change["timed"]["before_us"] == pytest.approx(10.0, rel=0.01)
    assert change["timed"]["ratio"]["low"] < 10.0 / now < change["timed"]["ratio"]["high"]


def test_what_is_wrong_while_it_is_timed_is_broken_and_not_faster(
    scale: Repository, gate: Any, bench: type[Bench]
) -> None:
    """Right when it is checked: a result that was kept from the call before, for instance."""
    scale.edit("kernels/scale/fast.cu", "3.f, -x[i]", "4.f, -2 * x[i]")
    bench.times = {"baseline": 20.0, "fast__base": 10.0, "fast": 1.0}
    bench.wrong = {"fast"}
    code, told = gate("HEAD~1")
    assert (code, verdicts(told)) == (1, {"baseline": "same", "fast": "broken"})
    assert rows(told)["fast"]["why"]["message"] == "wrong while it was timed: all zero"
    assert rows(told)["fast"]["timed"] is None


def test_counters_of_both_commits_are_compared(
    scale: Repository, gate: Any, bench: type[Bench]
) -> None:
    """A change that shows in counters; at tier 1 nothing is timed."""
    scale.edit("kernels/scale/fast.cu", "3.f, -x[i]", "4.f, -2 * x[i]")
    bench.captures = {"fast__base": "fix1", "fast": "baseline"}
    code, told = gate("HEAD~1", "HEAD", "--tier", "1")
    assert (code, verdicts(told)) == (1, {"baseline": "same", "fast": "slower"})
    (plan,) = bench.asked
    assert (plan.timed, plan.captured) == ((), ("fast__base", "fast"))
    change = rows(told)["fast"]
    assert (change["tier"], change["cause"], change["timed"]) == (1, "source", None)
    more = {m["what"] for m in change["differences"] if m["tier"] == 1 and m["after"] > m["before"]}
    assert more >= {"warp_instructions", "global_load_sectors"}
    bench.captures = {"fast__base": "fix1", "fast": "fix1"}
    assert gate("HEAD~1", "HEAD", "--tier", "1")[0] == 5  # only a time can tell


def test_the_older_variants_stand_beside_the_newer_ones(scale: Repository, tmp_path: Path) -> None:
    """Their own sources under other names, the lines where they were."""
    old = shutil.copytree(scale.workspace, tmp_path / "old")
    header = scale.workspace / "kernels" / "scale" / "more.cuh"
    for root, factor in ((old, "2"), (scale.workspace, "3")):
        folder = root / "kernels" / "scale"
        (folder / header.name).write_text(f"#define FACTOR {factor}\n")
        (folder / "fast.cu").write_text(
            '#include "more.cuh"\n' + (folder / "fast.cu").read_text().replace("3.f", "FACTOR")
        )
    both = [find_workspace(root).study("scale") for root in (old, scale.workspace)]
    made = join(tmp_path / "joint", both[0], both[1], scale.workspace, ["fast"], "baseline")
    study = made.study("scale")
    assert list(study.variants) == ["baseline", "fast__base", "fast"]
    folder = study.folder
    assert (folder / "fast__base.cu").read_text().startswith('#include "more__base.cuh"\n')
    assert (folder / "more__base.cuh").read_text() == "#define FACTOR 2\n"
    assert (folder / "more.cuh").read_text() == "#define FACTOR 3\n"
    assert 'cuda.kernel("fast__base.cu", "scale")' in (folder / "fast__base.py").read_text()
    assert older("fix2[warps=12]") == "fix2__base[warps=12]"
    head = Fingerprints(both[1])
    assert Fingerprints(study).of_sources("fast") == head.of_sources("fast")


@pytest.fixture
def attention(tmp_path: Path, builds_here: None) -> Repository:
    """A copy of the frozen study with its recorded evidence, at a shape whose report was kept."""
    top = copy_of_fixture(tmp_path, "attention")
    study = top / "kernels" / "attention" / "study.py"
    study.write_text(study.read_text().replace(f'"{SHOWN}"\n', f'"{CAUSAL}"\n'))
    return repository(top)


def with_kernel_of(made: Repository, name: str, other: str) -> None:
    """Commit the kernel of ``other`` for ``name``, and its recorded capture with it."""
    folder = made.workspace / "kernels" / "attention"
    (folder / f"{name}.py").write_text((folder / f"{other}.py").read_text())
    evidence = EvidenceFolder(made.workspace / EVIDENCE.relative_to(FIXTURE))
    study, known = find_workspace(made.workspace).study(), captures_at(evidence, CAUSAL)
    fingerprint = Fingerprints(study).at_shape(name, study.shapes[CAUSAL].parameters)
    own = structs.replace(known[other], variant=name, fingerprint=fingerprint)
    store.write(evidence.captures(CAUSAL), Captures(captures={**known, name: own}))
    made.commit(f"another {name}")


def gate_of(made: Repository, capsys: Capsys, base: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["gate", base, "--json", "--project", str(made.workspace)])
    return code, rows(json.loads(capsys.readouterr().out))


@pytest.mark.slow
def test_recorded_counters_are_compared_without_a_gpu(
    attention: Repository, monkeypatch: Patch, capsys: Capsys
) -> None:
    """The attention study with comments that change nothing, and then with fix10's kernel for
    fix9, and fix10's recorded capture with it.
    """
    # Changes of machine code are in test_sass.py; a cubin is disassembled for a second.
    monkeypatch.setattr(app_gate, "with_machine_code", lambda executor, changes, *given: changes)
    folder = attention.workspace / "kernels" / "attention"
    attention.edit("kernels/attention/fix10.cu", "\n", "\n\n")
    (folder / "fix1.py").write_text("# a comment\n" + (folder / "fix1.py").read_text())
    with_kernel_of(attention, "fix9", "fix10")
    code, changes = gate_of(attention, capsys, "HEAD~2")
    assert changes["fix10"]["verdict"] == changes["fix1"]["verdict"] == "same"
    assert changes["fix1"]["stale"]
    others = {name: c["why"]["message"] for name, c in changes.items() if c["verdict"] != "same"}
    assert list(others) == ["fix9"], others
    moved = changes["fix9"]
    assert (moved["tier"], moved["cause"]) == (1, "source")
    assert (code, moved["verdict"]) == (1, "slower")
    assert {m["tier"] for m in moved["differences"]} == {0, 1}


def instructions(made: Repository) -> float | None:
    """Of fix10, in millions, as a gate takes them."""
    workspace = find_workspace(made.workspace)
    side = Side(Commit("0" * 40, "HEAD"), workspace, workspace.study())
    found = not_none(side.at("fix10", counters=True))
    assert found.without_report == (not found.figures)
    return found.figures["warp_instructions"].value if found.figures else None


def test_forged_tables_do_not_count(attention: Repository) -> None:
    """Theirs is the right checksum: the report is read again, and without it there is nothing."""
    evidence = EvidenceFolder(attention.workspace / EVIDENCE.relative_to(FIXTURE))
    measured = instructions(attention)
    (report,) = evidence.reports.iterdir()
    tables = evidence.tables(report.name)
    head, _, launches = decompressed(tables.read_bytes()).partition(LAUNCHES)
    forged = re.sub(rb'("smsp__inst_executed\.sum",)\d+', rb"\g<1>15604718", launches)
    digest = hashlib.sha256(forged).hexdigest().encode()
    tables.write_bytes(compressed(head[: -len(digest)] + digest + LAUNCHES + forged))
    assert forged != launches
    assert instructions(attention) == measured
    report.unlink()
    assert instructions(attention) is None


def test_tables_do_not_count_without_their_report(
    attention: Repository, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("workbench.app.gate.compile_sides", lambda *_: None)  # code stays unknown
    evidence = EvidenceFolder(attention.workspace / EVIDENCE.relative_to(FIXTURE))
    (report,) = evidence.reports.iterdir()
    report.unlink()
    with_kernel_of(attention, "fix9", "fix10")
    code, changes = gate_of(attention, capsys, "HEAD~1")
    assert (code, changes["fix9"]["verdict"]) == (5, "cannot tell")
    why = changes["fix9"]["why"]["message"]
    assert "counters of tables without their report do not count" in why


# ---- on a GPU ------------------------------------------------------------------------------
@pytest.mark.gpu
def test_a_slowdown_on_a_gpu(scale: Repository, gate_by_workers: Any) -> None:
    """One that shows in counters and in times; and a comment, of which nothing is measured."""
    code, told = gate_by_workers("HEAD", "HEAD")
    assert code == 0
    twice = "if (i < n) { out[i] = 0; __threadfence(); out[i] = 2 * x[i] + 0 * x[(i * 7919) % n]; }"
    scale.edit(CU, GOOD, twice)
    scale.edit("kernels/scale/fast.cu", "extern", "// nothing\nextern")
    code, told = gate_by_workers("HEAD~2")
    assert (code, verdicts(told)) == (1, {"baseline": "slower", "fast": "same"})
    change = rows(told)["baseline"]
    assert (change["tier"], change["cause"]) == (2, "source")
    assert {m["tier"] for m in change["differences"]} == {0, 1, 2}
    assert change["timed"]["ratio"]["high"] < 1
