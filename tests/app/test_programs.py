"""``profile -- PROGRAM``: what a user sees of a program, with a stand-in for ncu."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from answers import Capsys, Patch, both_of, error_of, text_of
from git_repository import repository
from workbench.app import program
from workbench.app.program import call_numbers, free_name
from workbench.cli.main import main
from workbench.derive.matching import groups
from workbench.judge.program_variants import ProgramStudy, ProgramVariant, steps
from workbench.ncu import command, reader
from workbench.ncu.report_file import Launch
from workbench.run import machine, process
from workbench.study.config import Gates, Profiler
from workspaces import CAUSAL, executable, recorded_report

# Runs the program, copies a recorded report, and writes the log as ncu does.
NCU = """#!/bin/bash
while [ $# -gt 0 ]; do
  case "$1" in
    --export) report=$2; shift 2;;
    --log-file) log=$2; shift 2; break;;
    --kernel-id) echo "$2" >> {folder}/asked; shift 2;;
    *) shift;;
  esac
done
[ -n "$NCU_SAYS" ] && echo "$NCU_SAYS" > "$log" && exit 1
"$@"; code=$?
[ $code = 0 ] || echo "==ERROR== The application returned an error code ($code)." >> "$log"
[ -n "$NO_KERNEL" ] && echo "==WARNING== No kernels were profiled." >> "$log" && exit $code
cp {folder}/recorded "$report"
exit $code
"""
DENIED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
RUN = ("--", "bash", "train.sh", "7")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with an ncu, below which the test runs beside a program."""
    packed = recorded_report(CAUSAL, "fix10").read_bytes()
    (tmp_path / "recorded").write_bytes(zstandard.ZstdDecompressor().decompress(packed))
    executable(tmp_path / "ncu", NCU.format(folder=tmp_path))
    monkeypatch.setattr(machine, "find_ncu", lambda: str(tmp_path / "ncu"))
    monkeypatch.setattr(machine, "find_gpu", lambda: object())
    monkeypatch.setattr(reader, "_opened", {})  # the same report is open in other tests
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    executable(Path("train.sh"), "#!/bin/bash\necho epoch $1\nexit ${2:-0}\n")
    return tmp_path


def test_a_program_is_listed_then_profiled_and_its_report_kept(
    folder: Path, capsys: Capsys
) -> None:
    text, notes = both_of(capsys, "profile", *RUN)
    assert text.startswith("bash train.sh 7: 2 kernels, 3 launches, 421 µs on the GPU under ncu")
    assert "| 1 | attention_forward | 16x64 | 384 | 145 |" in text
    assert text.count("What to try next") == 3
    assert "train.ncu-rep: NVIDIA H200" in text
    assert "Warp instructions" not in text
    assert notes.count("epoch 7") == 1  # of the first run alone
    names, calls = (folder / "asked").read_text().strip().removeprefix("::regex:").split(":")
    assert names.startswith("^(cudnn_generated_")
    assert names.endswith("|attention_forward)$")
    assert calls == "^(1|2)$"
    assert text_of(capsys, "advise", "train.ncu-rep").count("Limit: ") >= 3
    assert free_name(RUN[1:]) == Path("train-2.ncu-rep")


@pytest.mark.parametrize("form", ["--json", "--brief"])
def test_programs_are_answered_in_json(folder: Path, capsys: Capsys, form: str) -> None:
    text = text_of(capsys, "profile", form, "--to", "a.ncu-rep", "--", "bash", "train.sh", "--json")
    answer = json.loads(text)
    assert [one["kernel"] for one in answer["listed"]][1:] == ["attention_forward"] * 2
    if form == "--json":
        assert answer["program"] == ["bash", "train.sh", "--json"]
        assert answer["profile"]["kernels"][0]["advice"]
    else:
        assert answer["report"] == "a.ncu-rep"
        assert answer["kernels"][0]["next"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--", "bash", "train.sh", "7", "9"), 4, "ended with exit code 9"),
        (("--", "nothing.sh"), 2, "there is no program nothing.sh"),
        (("--", "train.sh"), 2, "hint: workbench profile -- ./train.sh"),
        (("--",), 2, "no program stands after --"),
        (("./train.sh",), 2, "hint: workbench profile -- ./train.sh"),
        (("--kernel", "wrong", *RUN), 2, "train.sh has no launch of a kernel 'wrong'"),
        (("--launch", "7", *RUN), 2, "launches count from 0 to 2"),
        (("--skip", "3", *RUN), 2, "--skip 3 leaves none of 3 launches"),
        (("--on", "host", *RUN), 2, "--on is for variants"),
        (("--kernel", "fix", "fix1"), 2, "--kernel is for programs"),
        (("--to", "train.sh", *RUN), 2, "is no name of a report"),
    ],
)
def test_what_goes_wrong_is_said(
    folder: Path, capsys: Capsys, arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert says in error_of(capsys, "profile", *arguments, code=code)
    assert Path("train.ncu-rep").exists() == (code == 4)


@pytest.mark.parametrize(
    ("setting", "more", "code", "says"),
    [
        ("NO_KERNEL", (), 5, "ended well, and ncu saw no kernel"),
        ("NO_KERNEL", ("3",), 4, "ended with exit code 3, before a kernel ended"),
        ("NCU_SAYS", (), 3, "ncu may not read the GPU's performance counters"),
    ],
)
def test_a_run_without_a_report_says_why(
    folder: Path, capsys: Capsys, monkeypatch: Patch, setting: str, more: tuple[str, ...],
    code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(setting, DENIED)
    assert says in error_of(capsys, "profile", *RUN, *more, code=code)
    assert not list(Path().glob("*.ncu-rep"))


def test_without_ncu_or_gpu_the_way_out_is_named(
    folder: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    monkeypatch.setattr(machine, "missing_packages", lambda: [])
    command = "ncu --set full --import-source yes --target-processes all -o train bash train.sh"
    assert command in error_of(capsys, "profile", *RUN, code=3)
    monkeypatch.setattr(machine, "find_ncu", lambda: None)
    assert "install Nsight Compute" in error_of(capsys, "profile", *RUN, code=3)


def test_ctrl_c_ends_the_program(folder: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "TELL_SECONDS", 0.0)
    end = process.run_program(["sleep", "60"], folder, interrupt, echo=False)
    assert (end.interrupted, end.returncode) == (True, -signal.SIGINT)
    monkeypatch.setattr(program, "run_program", lambda *a, **k: end)
    assert main(["profile", *RUN]) == 130
    assert "nothing was profiled" in capsys.readouterr().err


def test_as_few_calls_as_reach_every_kernel_are_profiled() -> None:
    """ncu profiles each name at each number; instances of a template share a name."""
    names = ["scale<2>", "scale<3>", "add", "move"] * 5 + ["add<512>", "add<512>", "once"]
    launches = [
        Launch(i, name.partition("<")[0], name, "kernel", (1,), (32,), 1.0, None, "gpu")
        for i, name in enumerate(names)
    ]
    numbers = list(call_numbers(groups(launches[:-1]), launches))
    assert numbers == [7, 4]  # of add<512> and scale<2>, then of all others
    assert list(call_numbers(groups(launches[-1:]), launches)) == [1]
    line = command.profiling("ncu", Profiler(), "r", "l", ["a<b>", "c"], [2, 1, 2])
    assert line[line.index("--kernel-id") + 1] == "::regex:^(a.b.|c)$:^(1|2)$"


def keep(*more: str) -> tuple[str, ...]:
    return ("--keep", "train", *more, *RUN)


def test_builds_of_a_program_are_a_ladder(folder: Path, capsys: Capsys) -> None:
    again = keep("--build", "true")
    assert "touch workbench.toml" in error_of(capsys, "profile", *again)
    Path("workbench.toml").write_text("[timing]\nsessions = 2\n")
    built = keep("--build", "echo 1 > built", "--check", "test -f built")
    text, notes = both_of(capsys, "profile", *built)
    assert "| echo 1 > built | 421 |" in text
    assert "run 3 of 3: profiling" in notes
    text_of(capsys, "profile", *again)
    answer = json.loads(text_of(capsys, "profile", "--json", *again))
    assert [step["verdict"] for step in answer["study"]] == ["baseline", "no_gain"]
    step = answer["study"][1]["kept"]
    assert (step["report"], len(step["sessions"])) == ("true-2.ncu-rep", 2)
    assert step["figures"]["registers"] > 0
    table = text_of(capsys, "profile", "--csv", *again)
    assert ",speedup_over_parent,speedup_over_parent_low," in table.splitlines()[0]
    Path("built").unlink()
    for arguments, code, says in (
        (again, 1, "--check ended with exit code 1"),
        (keep("--build", "echo no; exit 3"), 4, "--build ended with exit code 3: no"),
        (keep("--build", "true", "--check", "ls"), 2, "the --check of train is `test -f built`"),
        (("--keep", "train", "--", "bash", "train.sh"), 2, "the program of train is"),
        (keep(), 2, "is in no git repository"),
        (keep("--to", "a.ncu-rep"), 2, "with --keep it stands in the study"),
        (("--check", "true", *RUN), 2, "name it with --keep NAME"),
    ):
        assert says in error_of(capsys, "profile", *arguments, code=code)


def test_a_commit_is_a_variant(folder: Path, capsys: Capsys) -> None:
    Path("workbench.toml").write_text("[timing]\nsessions = 1\n")
    made = repository(Path.cwd())
    answer = json.loads(text_of(capsys, "profile", "--brief", *keep()))
    assert made.git("rev-parse", "HEAD").startswith(answer["study"][0]["variant"])
    Path("train.sh").write_text("#!/bin/bash\n")
    assert "commit them, or name what builds" in error_of(capsys, "profile", *keep())


@pytest.mark.parametrize(
    ("times", "clock", "verdict"),
    [
        ((80.0, 80.4, 79.8), 1.0, "kept"),
        ((80.0, 80.4, 79.8), 0.8, "inconclusive"),  # as many cycles: another clock alone
        ((120.0, 120.5, 119.9), 1.0, "slower"),
        ((100.5, 100.2, 99.9), 1.0, "no_gain"),
        ((60.0, 130.0, 80.0), 1.0, "inconclusive"),
    ],
)
def test_a_variant_is_judged_by_sessions(
    times: tuple[float, ...], clock: float, verdict: str
) -> None:
    def variant(name: str, times: tuple[float, ...], clock: float) -> ProgramVariant:
        sessions = tuple((time, time / clock) for time in times)
        return ProgramVariant(
            variant=name, gpu="H200", report="", sessions=sessions, kernel="k", figures={}
        )

    pair = (variant("a", (100.0, 100.3, 99.8), 1.0), variant("b", times, clock))
    study = ProgramStudy(command=("./prog",), check="", variants=pair)
    assert [step.verdict for step in steps(study, Gates())] == ["baseline", verdict]
    moved = replace(pair[1], gpu="H100")
    other = replace(study, variants=(pair[0], moved))
    assert [step.speedup_over_parent for step in steps(other, Gates())] == [None, None]
