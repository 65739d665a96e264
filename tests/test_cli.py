"""The command line: names, hints, exit codes, streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from answers import Capsys, Patch, both_of, error_of, json_of, text_of
from workbench.cli import main as cli
from workbench.cli import streams
from workbench.cli.main import main
from workspaces import FIXTURE, GOOD, copy_of_fixture, make

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
        (
            ["show", "fix1", "--metric", "gpu__time_duration.summ"],
            "unknown metric",
            "'gpu__time_duration.sum'",
        ),
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["ablate", "--json"],
        ["profile", "baseline", "--json"],
        ["show", "fix1", "--json"],
        ["show", "fix1", "--source", "--json"],
        ["show", "fix1", "--metric", "smsp__inst_executed.sum", "--json"],
        ["list", "--json"],
        ["check", "fix4", "--json"],
    ],
)
def test_json_is_the_whole_of_stdout(arguments: list[str], capsys: Capsys) -> None:
    assert json_of(capsys, *arguments, *HERE)["schema_version"] == 1


def test_a_wrong_variant_on_record_ends_in_1_unless_its_step_declares_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    root = copy_of_fixture(tmp_path)
    ladder = root / "ablations" / "attention" / "ablation.toml"
    command = ["check", "--json", "--project", str(root)]
    assert "fix3 is wrong, as declared" in error_of(capsys, *command, code=0)
    plain = ladder.read_text().replace('expected = "wrong"\n', "")
    ladder.write_text(plain.replace('variant = "fix4"\n', 'variant = "fix4"\nexpected = "wrong"\n'))
    assert "fix4 is declared wrong and is correct" in error_of(capsys, *command, code=1)
    ladder.write_text(plain)
    out, err = both_of(capsys, *command, code=1)
    wrong = {r["variant"] for r in json.loads(out)["checks"] if r["status"] == "wrong"}
    assert wrong == {"fix3"}
    assert "error: fix3: wrong at b2h8s512d64: with outliers inputs" in err
    assert "hint: a variant that is wrong is not timed" in err


def test_recorded_evidence_says_so_in_the_first_line(capsys: Capsys) -> None:
    first = text_of(capsys, "profile", "baseline", *HERE).splitlines()[0]
    assert first.startswith("recorded evidence: NVIDIA H200, 2026-")
    assert "ncu 2025.3.1" in first


def test_profile_names_the_bottleneck_with_metric_estimate_and_line(capsys: Capsys) -> None:
    lines = text_of(capsys, "profile", "baseline", *HERE).splitlines()
    start = lines.index("Top bottlenecks:")
    assert next(x for x in lines if x).startswith("recorded evidence")
    assert lines[4].startswith("**Limit:** ")
    assert "**Hottest line:** " in lines[4]
    first, second = (next(x for x in lines[start:] if x.startswith(f"{n}. ")) for n in (1, 2))
    assert (
        "sm__warps_active.avg.pct_of_peak_sustained_active = 6.25; NVIDIA estimates 67 %" in first
    )
    assert "long_scoreboard = 59.9; NVIDIA estimates 60 %" in second
    assert "hottest line `baseline.cu:30`" in second


def test_without_gpu_and_evidence_the_way_out_is_named(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: None)
    make(tmp_path, {"baseline": GOOD})
    err = error_of(capsys, "ablate", project=tmp_path, code=3)
    assert "no evidence is recorded for scale" in err
    assert "no NVIDIA GPU was found" in err
    assert "workbench doctor" in err


def test_doctor_says_what_works(capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: None)
    monkeypatch.setattr("workbench.run.machine.find_ncu", lambda: None)
    last = text_of(capsys, "doctor").strip().splitlines()[-1]
    assert "works here: profile, ablate, report and show on recorded evidence" in last
    assert "Will not work: check, timing and profiling on this GPU" in last
    data = json_of(capsys, "doctor")
    assert data["works"]["read"] is True
    assert data["works"]["measure"] is False


def test_being_ended_is_being_interrupted(monkeypatch: Patch) -> None:
    """So that the processes it started end with it, and what was finished is kept."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "run", lambda arguments: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with pytest.raises(KeyboardInterrupt):
            main([])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from workbench.cli.main import main; main(['--help']);"
        "heavy = {'pandas', 'matplotlib', 'torch', 'ncu_report', 'jinja2'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_list_loads_nothing_heavy_and_no_step_is_its_own_parent() -> None:
    code = (
        "import sys; from workbench.cli.main import main; main(['list', '--json', *sys.argv[1:]]);"
        "heavy = {'pandas', 'numpy', 'torch', 'ncu_report', 'jinja2'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *HERE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    baseline, *others = json.loads(done.stdout)["studies"][0]["variants"]
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    row = next(line for line in done.stdout.splitlines() if "| msgspec " in line)
    assert "[fail]" in row
    assert "- **msgspec**: pip install msgspec" in done.stdout


def test_what_takes_longer_than_a_second_says_that_it_works(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    """Until something else is printed; and nothing where stderr is no terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waiting = streams.Waiting()
    waiting.start()
    assert waiting.timer is not None
    waiting.timer.function()
    waiting.stop()
    assert capsys.readouterr().err == "working ...\r\x1b[K"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    waiting.start()
    assert waiting.timer is None
