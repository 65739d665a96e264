"""Every hint that can be followed here is followed, and helps; more in ``test_fault_hints``."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from answers import Capsys, Patch
from faults.test_fault_config import LADDER
from workbench.cli import doctor
from workbench.cli.main import main
from workbench.cuda.programs import expand_includes
from workbench.errors import UsageError
from workbench.ncu import command as ncu
from workbench.run import compilation as building
from workbench.run import machine
from workbench.run.process import WorkerEnd
from workspaces import (
    CAUSAL,
    EVIDENCE,
    FIXTURE,
    GOOD,
    MODULE,
    RAW,
    ROOT,
    STUDY,
    executable,
    make,
    recorded_report,
)

SHAPE = "b2h8s512d64"
REPORT = recorded_report(CAUSAL, "fix10")
OTHER = RAW
HERE = ["--project", str(FIXTURE)]


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def hint(self) -> str:
        return self.err.partition("hint: ")[2].strip()


Run = Callable[..., Told]


@pytest.fixture
def run(capsys: Capsys) -> Run:
    def verb(*arguments: object) -> Told:
        return Told(main([str(each) for each in arguments]), *capsys.readouterr())

    return verb


# ---- the files of a study --------------------------------------------------------------------
CONFIG = 'study = "scale"\n\n[gates]\nmin_speedup = 1.05\n\n[profiler]\nclock_control = "none"\n'
STUDY_PY, ABLATION = "kernels/scale/study.py", "ablations/scale/ablation.toml"
TOML = "workbench.toml"
REFERENCE = LADDER[LADDER.index("[[reference]]") :]
SHAPES, TOLERANCE = re.findall(r"^(?:shapes|tolerance) = .*$", STUDY, re.MULTILINE)


LEAVE, TURN = "for the default", "did you mean"
PLAIN = "tolerance = Tolerance(absolute=1e-3, relative=1e-3)"
# A file, what is written for what, the hint, and what the hint says to write for that: with none,
# what stood there before. Hints of one kind are followed once, and worded in tests/study.
CASES = [
    (TOML, "[gates]", "[gates", "fix this line"),
    (TOML, "min_speedup", "min_speed", f"{TURN} 'min_speedup'?"),
    (TOML, "min_speedup = 1.05", 'min_speedup = "x"', f"leave 'gates.min_speedup' out {LEAVE}", ""),
    (ABLATION, "schema_version = 1\n", "\n", "write schema_version = 1 at its top"),
    (ABLATION, 'parent = "baseline"\n', "\n", "only the first step has none"),
    (ABLATION, '"none"', '"none"\nparent = "x"', "has no parent: leave it out"),
    (ABLATION, '["baseline"]', '["baselin"]', f"{TURN} 'baseline'?"),
    (ABLATION, '"large"', '"odd"', "known: large"),
    (ABLATION, "[0.4, 0.6]", "[0.6, 0.4]", "none of them below zero, the lower one first"),
    (ABLATION, '"time"', '"tiem"', f"{TURN} 'time'?"),
    (ABLATION, '"time"', '"stall.long_scorebord"', f"{TURN} 'stall.long_scoreboard'?"),
    (ABLATION, '"ref"', '"a/ref"', "without '/' and without .py"),
    (ABLATION, REFERENCE, REFERENCE.replace('"ref"', '"missing"'), "take the name out of", ""),
    (ABLATION, REFERENCE, REFERENCE[1:].replace("]]", "]"), f"leave 'reference' out {LEAVE}", ""),
    (STUDY_PY, SHAPES, "shapes = 3", 'such as shapes = {"large": Shape(n=1024)}'),
    (STUDY_PY, '{"large": Shape', '{"a/b": Shape', 'a string without "/", such as "large"'),
    (STUDY_PY, 'default_shape = "large"', 'default_shape = "larg"', f"{TURN} 'large'?"),
    (STUDY_PY, TOLERANCE, "tolerance = 3", f"such as {PLAIN}", PLAIN),
    (STUDY_PY, TOLERANCE, f"adversarial = [1]\n{TOLERANCE}", "each takes the inputs and a gener"),
    (STUDY_PY, "from w", "import no_such\nfrom w", "import torch inside its functions"),
    (STUDY_PY, "from w", "import sys\nsys.exit()\nfrom w", "take the exit out"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a step, a reference, and parameters of its step."""
    tuned = MODULE.format(name="baseline").replace(
        "kernel =", "params = cuda.params(warps=4)\nkernel ="
    )
    modules = {"b": tuned, "ref": "def run(x):\n    return x * 2\n"}
    root = make(tmp_path / "ws", {"baseline": GOOD}, modules)
    (root / TOML).write_text(CONFIG)
    (root / ABLATION).write_text(LADDER)
    return root


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}: {case[3]}" for case in CASES])
def test_a_file_is_mended_as_the_hint_says(case: tuple[str, ...], root: Path, run: Run) -> None:
    file, before, broken, hint, mended = (*case, case[1])[:5]
    whole = (root / file).read_text()
    assert before in whole
    (root / file).write_text(whole.replace(before, broken, 1))
    told = run("list", "--project", root)
    assert (told.code, told.out) == (2, "")
    assert hint in told.hint
    (root / file).write_text(whole.replace(before, mended, 1))
    assert run("list", "--project", root).code == 0


def test_files_are_added_and_their_places_named(root: Path, run: Run) -> None:
    (root / ABLATION).unlink()
    assert run("list", "--project", root).hint == "it lists the variants of the study"
    (root / ABLATION).write_text("schema_version = 1\n")
    assert run("list", "--project", root).hint == "write one [[step]] for the baseline"
    (root / ABLATION).write_text(LADDER.replace('"ref"', '"lazy"'))
    assert run("list", "--project", root).hint.startswith("add the file, or")
    (root / "kernels/scale/lazy.py").write_text("def run(x):\n    return x\n")
    assert run("list", "--project", root).code == 0
    for text, place in (
        ("x = [", "(at end of document)"),
        ("\nx = 1 2\n", "(at line 9, column 7)"),
    ):
        (root / TOML).write_text(CONFIG + text)
        assert place in run("list", "--project", root).err


def test_the_docs_show_what_they_are_named_for(root: Path, run: Run) -> None:
    (root / STUDY_PY).write_text(STUDY.replace("def work(", "def werk("))
    assert run("list", "--project", root).hint == "see 'A whole workspace' in docs/variants.md"
    text = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    section = text.partition("\n## A whole workspace\n")[2].partition("\n## ")[0]
    parts = ("study.py", "shapes =", "default_shape", "tolerance =", "def inputs", "def reference")
    for part in (*parts, "def work(shape):\n    return Work(flops=", "[[step]]"):
        assert part in section
    for path in (ROOT / "profiler").rglob("*.py"):
        told = path.read_text(encoding="utf-8")
        for name in re.findall(r"'([A-Z][a-z ]+)' in docs/variants\.md", told):
            assert f"\n## {name}\n" in text


# ---- building --------------------------------------------------------------------------------
def test_what_does_not_build_is_mended_as_it_says(root: Path, run: Run) -> None:
    """The hints of a worker stand in its errors; of the verb there is one for all of them."""
    (root / "kernels/scale/b.py").write_text(MODULE.format(name="absent"))
    told = run("build", "b", "baseline", "--json", "--project", root)
    assert told.code == 4
    errors = {each["variant"]: each["error"] for each in json.loads(told.out)["builds"]}
    assert errors["baseline"] == ""
    assert told.hint.endswith("everything else was built")
    assert "there is no absent.cu in scale/" in errors["b"]
    (root / "kernels/scale/absent.cu").write_bytes(
        (root / "kernels/scale/baseline.cu").read_bytes()
    )
    (arch,) = re.findall(r"sm_90a", run("build", "--arch", "hopper", "--project", root).hint)
    assert run("build", "b", "--arch", arch, "--project", root).code == 0


def test_what_leaves_the_folder_is_copied_into_it(root: Path) -> None:
    outside, path = root / "outside.cuh", root / "kernels/scale/baseline.cu"
    outside.write_text("#define TWO 2\n")
    whole = path.read_text()
    path.write_text('#include "../../outside.cuh"\n' + whole)
    with pytest.raises(UsageError) as caught:
        expand_includes(path)
    assert caught.value.hint == "copy the file beside study.py"
    shutil.copy(outside, path.parent)
    path.write_text('#include "outside.cuh"\n' + whole)
    assert "#define TWO 2" in expand_includes(path)


# ---- names on the command line: more in tests/cli/test_cli.py, tests/ncu/test_foreign.py -------
TOGETHER = "a variant's kernels are taken together"
FOLDER, FILE = "{dir}/f.ncu-rep", "{dir}/a b.ncu-repz"
INSIDE = f"{FOLDER}/a b.ncu-repz"
PAIR = ["diff", "{report}", "{other}", "--launch"]
ONE_OF_EACH = "one of A and one of B, such as 0:3; `workbench show FILE` counts them"


@pytest.mark.parametrize(
    ("wrong", "hint", "right"),
    [
        (["show", "fix1", "--shape", "b2h8"], TURN, ["show", "fix1", "--shape", SHAPE]),
        (["show", "fix1", "--launch", "1"], TOGETHER, ["show", "fix1"]),
        (["show", FOLDER], f"{TURN} '{INSIDE}'?", ["show", INSIDE, "--launch", "0"]),
        (["show", "{dir}/ab.ncu-repz"], f"{TURN} '{FILE}'?", ["show", FILE, "--launch", "0"]),
        ([*PAIR, "5"], ONE_OF_EACH, [*PAIR, "0:0"]),
        ([*PAIR, "0:0", "--kernel", "a"], "leave one of them out", [*PAIR, "0:0"]),
    ],
)
def test_what_the_hint_names_is_taken(
    wrong: list[str], hint: str, right: list[str], tmp_path: Path, run: Run
) -> None:
    (tmp_path / "f.ncu-rep").mkdir()
    for name in ("a b.ncu-repz", "f.ncu-rep/a b.ncu-repz"):
        (tmp_path / name).symlink_to(OTHER)
    names = {"dir": tmp_path, "report": REPORT, "other": OTHER}
    told = run(*(each.format(**names) for each in wrong), *HERE)
    assert told.code == 2
    assert hint.format(**names) in told.hint
    assert run(*(each.format(**names) for each in right), *HERE).code == 0


def test_a_command_in_a_hint_can_be_pasted(tmp_path: Path, run: Run) -> None:
    """Into any shell, whatever the names are."""
    whole = tmp_path / "it's [a] b.ncu-repz"
    shutil.copy(REPORT, whole)
    (command,) = re.findall(r"`(workbench .*?)`", run("diff", "fix1", whole, *HERE).hint)
    assert shlex.split(command)[1:] == ["show", str(whole)]


def test_an_unreadable_report_is_made_readable(
    tmp_path: Path, run: Run, monkeypatch: Patch
) -> None:
    path = Path(shutil.copy(OTHER, tmp_path / "a b.ncu-repz"))
    path.chmod(0)
    monkeypatch.setattr(os, "access", lambda each, mode: bool(Path(each).stat().st_mode & 0o400))
    (command,) = re.findall(r"`(.*)`", run("show", path).hint)
    subprocess.run(["sh", "-c", command], check=True)
    assert run("show", path, "--launch", "0").code == 0


def test_reports_are_copied_or_named_again(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "cut.ncu-repz"
    path.write_bytes(OTHER.read_bytes()[:5000])
    assert run("show", path).hint.startswith("copy it again from where it was made")
    os.mkfifo(tmp_path / "pipe.ncu-rep")
    assert run("show", tmp_path / "pipe.ncu-rep").hint == f"did you mean '{path}'?"


@pytest.mark.parametrize("name", ["variants/fix10.json", f"{SHAPE}/captures.json"])
def test_a_damaged_record_is_restored_or_deleted(name: str, workspace: Path, run: Run) -> None:
    path = workspace / EVIDENCE.relative_to(FIXTURE) / name
    whole = path.read_bytes()
    path.write_text("{")
    try:
        told = run("show", "fix10", "--project", workspace)
        assert (told.code, told.hint) == (2, "restore it, or delete it and measure again")
        path.unlink()
        assert run("show", "fix10", "--project", workspace).code == 0
    finally:
        path.write_bytes(whole)


# ---- what doctor is named for ----------------------------------------------------------------
def test_doctor_looks_at_what_hints_name_it_for(run: Run) -> None:
    rows = {row["name"] for row in json.loads(run("doctor", "--json").out)["rows"]}
    assert {"GPU", "driver", "torch", "NVRTC (cuda-core)", "CUDA headers", "zstandard"} <= rows
    assert ncu.failure("==ERROR== x").hint == "`workbench doctor` checks ncu"
    assert "ncu" in rows
    ended = WorkerEnd(events=[], returncode=1)
    assert "doctor" in building.worker_stopped(ended).hint


def test_doctor_is_as_good_as_what_it_says_of_ncu(tmp_path: Path, monkeypatch: Patch) -> None:
    """Its folder on PATH is found."""
    tool = tmp_path / "ncu"
    executable(tool, "#!/bin/sh\necho 'Version 2026.1.0.0 (build 1)'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine.find_ncu.cache_clear()
    try:
        assert machine.find_ncu() == str(tool)
        assert doctor.ncu_row().result == doctor.OK
    finally:
        machine.find_ncu.cache_clear()
