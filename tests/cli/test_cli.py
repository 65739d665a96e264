"""The command line: names, hints, exit codes, streams, and what hurt who used it first."""

from __future__ import annotations

import json
import math
import os
import queue
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import conftest
from answers import Capsys, Patch, both_of, error_of, json_of, python, text_of
from workbench.cli import main as cli
from workbench.cli import progress
from workbench.cli.main import VERBS, main
from workbench.render.as_json import VERSION
from workspaces import FIXTURE, GOOD, ROOT, copy_of_fixture, make, rewrite

HERE = ["--project", str(FIXTURE)]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["profile", "basline"], "unknown variant 'basline'", "'baseline'"),
        (["ablate", "fix1x"], "unknown variant 'fix1x'", "'fix1'"),
        (["ablate", "sdpa"], "'sdpa' is a reference", "fix1"),
        (["list", "--study", "atention"], "unknown study 'atention'", "'attention'"),
        (["ablate", "--shape", "b2h8s512d46"], "unknown shape", "'b2h8s512d64'"),
        (["ablate", "--shape", "ragged"], "checked but not profiled", "b2h8s512d64"),
        (["show", "fix1", "--metric", "gpu__tim_duration.sum"], "unknown metric", "'gpu__time_du"),
        (["show", "sdpa", "--source"], "no source lines", "library kernels"),
        (["build", "--arch", "hopper"], "'hopper' is no architecture", "sm_90a"),
    ],
)
def test_a_wrong_name_ends_in_a_hint_and_exit_code_2(
    arguments: list[str], message: str, hint: str, capsys: Capsys
) -> None:
    out, err = both_of(capsys, *arguments, *HERE, code=2)
    assert out == ""
    assert message in err.splitlines()[0]
    assert hint in err.split("hint:")[1]


def test_an_unknown_verb_is_refused(capsys: Capsys) -> None:
    assert "profile" in error_of(capsys, "profil")


def test_a_wrong_variant_on_record_ends_in_1_unless_its_step_declares_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    root = copy_of_fixture(tmp_path)
    ladder = root / "ablations" / "attention" / "ablation.toml"
    assert "fix3 is wrong, as declared" in error_of(capsys, "check", project=root, code=0)
    plain = ladder.read_text().replace('expected = "wrong"\n', "")
    ladder.write_text(plain.replace('variant = "fix4"\n', 'variant = "fix4"\nexpected = "wrong"\n'))
    told = error_of(capsys, "check", project=root, code=1)
    assert "fix4 is declared wrong and is correct" in told
    ladder.write_text(plain)
    out, err = both_of(capsys, "check", "--json", project=root, code=1)
    wrong = {r["variant"] for r in json.loads(out)["checks"] if r["status"] == "wrong"}
    assert wrong == {"fix3"}
    assert "error: fix3: wrong at b2h8s512d64: with outliers inputs" in err
    assert "hint: a variant that is wrong is not timed" in err


def test_profile_names_the_bottleneck_with_metric_estimate_and_line(capsys: Capsys) -> None:
    assert json_of(capsys, "profile", "baseline", *HERE)["schema_version"] == VERSION
    told = text_of(capsys, "profile", "baseline", *HERE)
    assert re.match(r"recorded evidence: NVIDIA H200, 2026-.*ncu 2025\.3\.1", told)
    assert re.match(r"\*\*Limit:\*\* .*\*\*Hottest line:\*\* ", told.splitlines()[4])
    limits = told.partition("Top bottlenecks:")[2]
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active = 6.25; NVIDIA estimates 67 %"
    assert re.search(rf"(?m)^1\. .*{occupancy}", limits)
    waits = "long_scoreboard = 59.9; NVIDIA estimates 60 %.*hottest line `baseline.cu:30`"
    assert re.search(rf"(?m)^2\. .*{waits}", limits)


def test_without_gpu_and_evidence_the_way_out_is_named(tmp_path: Path, capsys: Capsys) -> None:
    make(tmp_path, {"baseline": GOOD})
    err = error_of(capsys, "ablate", project=tmp_path, code=3)
    assert "no evidence is recorded for scale" in err
    assert "no NVIDIA GPU was found" in err
    assert "measure it where there is a GPU and ncu, or `--on HOST`; see `workbench doctor`" in err


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        ("advise fix17", 3, "it has one at other shapes: --shape b1h8s128d64"),
        ("show fix27 --shape S=1024", 3, "recorded shapes: b2h8s512d64, b1h8s128d64"),
        ("show fix27 --metric sm__throughput", 2, "sm__throughput.avg.pct_of_peak_sustained_elap"),
    ],
)
def test_a_hint_names_what_is_recorded(command: str, code: int, hint: str, capsys: Capsys) -> None:
    assert hint in error_of(capsys, *command.split(), project=ROOT, code=code)


def test_shapes_without_evidence_are_named_once(capsys: Capsys) -> None:
    command = "ablate --study attention_served --all-shapes --csv"
    told = error_of(capsys, *command.split(), project=ROOT, code=0)
    (line,) = (one for one in told.splitlines() if "no evidence" in one)
    assert line.startswith("no evidence is recorded at llama-2048-float16, llama-512, ")


def test_doctor_says_what_works(capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.run.machine.find_ncu", lambda: None)
    last = text_of(capsys, "doctor").strip().splitlines()[-1]
    assert "works here: profile, ablate, report and show on recorded evidence" in last
    assert "Will not work: check, timing and profiling on a GPU" in last
    works = json_of(capsys, "doctor")["works"]
    assert (works["read"], works["measure"]) == (True, False)


def test_being_ended_is_being_interrupted(monkeypatch: Patch) -> None:
    """So that the processes it started end with it, and what was finished is kept."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "run", lambda arguments: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(KeyboardInterrupt):
            main([])
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("failures", [0, 1])
def test_tests_stop_where_a_signal_ends_a_verb(monkeypatch: Patch, failures: int) -> None:
    session = SimpleNamespace(testsfailed=0, shouldstop=False)
    item: Any = SimpleNamespace(session=session, get_closest_marker=str)
    running = conftest.pytest_runtest_protocol(item)
    next(running)
    session.testsfailed = failures
    monkeypatch.setattr(cli, "_interrupted_at", math.inf)
    with pytest.raises(StopIteration):
        next(running)
    assert bool(session.shouldstop) is bool(failures)


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"pandas", "torch", "ncu_report", "jinja2"}),
        (["list", "--json", *HERE], {"pandas", "numpy", "torch", "ncu_report", "jinja2"}),
        (["ablate", "--study", "transpose", *HERE], {"pandas", "numpy", "jinja2"}),
    ],
)
def test_what_needs_nothing_heavy_loads_nothing_heavy(words: list[str], heavy: set[str]) -> None:
    """That takes half as long to import as all else takes."""
    code = "import sys; from workbench.cli.main import main; code = main(sys.argv[1:]);"
    code += f"sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else code)"
    done = python("-c", code, *words)
    assert done.returncode == 0, done.stderr


def test_no_step_is_its_own_parent(capsys: Capsys) -> None:
    baseline, *others = json_of(capsys, "list", *HERE)["studies"][0]["variants"]
    assert (baseline["variant"], baseline["parent"]) == ("baseline", None)
    assert all(each["parent"] != each["variant"] for each in others)


def test_doctor_names_a_package_without_which_nothing_else_starts() -> None:
    code = (
        "import sys; sys.modules['msgspec'] = None; import importlib.metadata as metadata;"
        "known = metadata.version;"
        "\ndef version(name):\n"
        "    if name == 'msgspec': raise metadata.PackageNotFoundError(name)\n"
        "    return known(name)\n"
        "metadata.version = version\n"
        "from workbench.cli.main import main; sys.exit(main(['doctor']))"
    )
    done = python("-c", code)
    assert done.returncode == 3, done.stderr
    row = next(line for line in done.stdout.splitlines() if "| msgspec " in line)
    assert "[fail]" in row
    assert "**msgspec**: pip install msgspec" in done.stdout


# ---- newcomers
MISSPELT = '[[step.prediction]]\nfigure = "tiem"\nfactor = [0.8, 0.9]\n'


@pytest.fixture
def here(monkeypatch: Patch) -> None:
    monkeypatch.chdir(FIXTURE)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return make(tmp_path / "ws", {"baseline": GOOD, "fix1": "if (i < n) out[i] = 2 * y[i];"})


@pytest.mark.parametrize(
    "command",
    ["list", "build", "show fix1", "diff baseline fix1", "ablate", "check"],
)
def test_a_misspelt_figure_is_told_by_every_verb(
    command: str, broken: Path, capsys: Capsys
) -> None:
    with (broken / "ablations" / "scale" / "ablation.toml").open("a") as file:
        file.write(MISSPELT)
    told = error_of(capsys, *command.split(), project=broken)
    assert "predicts 'tiem', which is no figure" in told
    assert "did you mean 'time'?" in told


def test_a_compile_error_is_told_once_with_a_path_that_an_editor_opens(
    broken: Path, monkeypatch: Patch, builds_here: None, capsys: Capsys
) -> None:
    monkeypatch.chdir(broken)
    told = error_of(capsys, "build", code=4)
    assert told.count('identifier "y" is undefined') == 1
    assert "/workbench/kernels" not in told
    (place,) = re.findall(r'^(\S+)\(\d+\): error: identifier "y"', told, re.M)
    assert (broken / place).samefile(broken / "kernels" / "scale" / "fix1.cu")


@pytest.mark.parametrize(
    "command",
    ["show fix9", "advise fix9", "diff baseline fix9", "profile fix9", "check fix9",
     "ablate fix9", "build fix9"],
)  # fmt: skip
def test_a_misspelt_name_is_told_where_nothing_is_on_record(
    command: str, broken: Path, capsys: Capsys
) -> None:
    """And not that there is no evidence of it, or no GPU."""
    assert "unknown variant 'fix9'" in error_of(capsys, *command.split(), project=broken)


@pytest.mark.parametrize(
    ("file", "old", "new", "hint"),
    [
        ("baseline.py", '"scale")', '"scal")', "did you mean 'scale'?"),
        (
            *("baseline.cu", 'extern "C" ', ""),
            'write extern "C" before its __global__, or call it "::scale" here',
        ),
    ],
)
def test_a_kernel_that_is_not_in_its_source_is_told_by_the_compiler(
    file: str, old: str, new: str, hint: str, tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    """And not by the first launch, on a GPU."""
    made = make(tmp_path / "ws", {"baseline": GOOD})
    rewrite(made / "kernels" / "scale" / file, old, new)
    err = error_of(capsys, "build", project=made, code=4)
    assert "baseline.cu has no kernel 'scal" in err
    assert f"hint: {hint}" in err
    assert "everything else was built" not in err


def test_a_missing_package_is_what_the_machine_lacks(tmp_path: Path, capsys: Capsys) -> None:
    made = make(tmp_path / "ws", {"baseline": GOOD})
    (made / "kernels/scale/baseline.py").write_text("import no_such_package\n")
    out, err = both_of(capsys, "build", project=made, code=3)
    assert "hint: install the package that `no_such_package` is of" in err
    assert out == ""  # no table without a row


def test_a_workspace_in_another_says_so(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "workbench.toml").touch()
    told = text_of(capsys, "init", tmp_path / "mine")
    assert f"inside another workspace, {tmp_path}, which" in told


def test_studies_are_listed_as_a_list(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert "built-in studies attention, attention_served, " in error_of(capsys, "list", code=0)


def test_one_time_is_no_sweep(here: None, broken: Path, capsys: Capsys) -> None:
    """The ladder's own record of the default is nobody's best of several."""
    out, err = both_of(capsys, "sweep", "fix2[warps=2|8]", code=3)
    assert out == ""
    assert "no sweep of fix2[warps=2|8] is recorded" in err


@pytest.mark.parametrize(
    ("steps", "study", "following"),
    [
        ("fix1 fix2", "attention", "advise fix2"),
        ("tiled", "transpose", "advise tiled --study transpose"),
    ],
)
def test_the_ladder_ends_with_the_next_command(
    steps: str, study: str, following: str, here: None, capsys: Capsys
) -> None:
    told = error_of(capsys, "ablate", *steps.split(), "--study", study, code=0)
    assert told.splitlines()[-1] == f"next: `workbench {following}`"


def test_the_help_says_every_verb_whole(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = text_of(capsys, "--help")
    listed = shown.partition("Commands:\n")[2].splitlines()[: len(VERBS)]
    assert [line.split()[0] for line in listed] == list(VERBS)
    assert all(line.endswith((".", "?")) and not line.endswith("...") for line in listed)
    assert "`workbench try FILE`" in shown


def test_help_names_no_type_of_python_and_has_an_example(capsys: Capsys) -> None:
    for verb in VERBS:
        shown = text_of(capsys, verb, "--help")
        assert not re.search(r"<\w+[^>]*>", shown), verb
        assert f"Example: workbench {verb}" in shown, verb


def test_a_command_that_waits_says_so(monkeypatch: Patch) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.01)
    monkeypatch.setattr(progress, "LOOK_S", 0.01)
    noted: queue.Queue[str] = queue.Queue()

    def printed(text: str) -> str:
        noted.put(text)
        return text

    monkeypatch.setattr(progress, "printable_lines", printed)
    with progress.telling("waiting for a host"):
        assert re.fullmatch(r"waiting for a host \(\d+ s\)", noted.get(timeout=60))


def test_an_evidence_id_stands_for_its_study_shape_and_variant(capsys: Capsys) -> None:
    at = "attention/b2h8s512d64/"
    told = json_of(capsys, "advise", f"{at}fix6@20260101", "--brief", project=FIXTURE)
    assert f"{told['study']}/{told['shape']}/{told['variant']}" == f"{at}fix6"
    pair = json_of(capsys, "diff", f"{at}fix6", f"{at}fix7@20260101", "--brief", project=FIXTURE)
    assert (pair["before"], pair["after"]) == ("fix6", "fix7")
    told = error_of(capsys, "diff", f"{at}fix6", "softmax/4096x8192/fused", project=FIXTURE)
    assert "different studies or shapes" in told
