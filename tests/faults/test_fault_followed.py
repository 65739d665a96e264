"""Every hint that can be followed here is followed, and helps; more in ``test_fault_hints``."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from workbench import words
from workbench.app import doctor
from workbench.cli.main import main
from workbench.cuda.includes import expand_includes
from workbench.errors import UsageError
from workbench.ncu import command as ncu
from workbench.run import compilation as building
from workbench.run import machine
from workbench.run.process import WorkerEnd
from workbench.study.workspace import find_workspace, including
from workspaces import (
    CAUSAL,
    EVIDENCE,
    FIXTURE,
    GOOD,
    MODULE,
    RAW,
    ROOT,
    STUDY,
    make,
    recorded_report,
)

Capture = pytest.CaptureFixture[str]
Change = tuple[str, str]  # what is written for what
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
def run(capsys: Capture) -> Run:
    def verb(*arguments: object) -> Told:
        return Told(main([str(each) for each in arguments]), *capsys.readouterr())

    return verb


# ---- the files of a study --------------------------------------------------------------------
LADDER = """schema_version = 1

[[step]]
variant = "baseline"
key_change = "none"

[[step]]
variant = "fix1"
parent = "baseline"
key_change = "one"
shape = "large"
chooses = ["baseline"]

[[step.prediction]]
figure = "time"
factor = [0.5, 0.9]

[[reference]]
variant = "eager"
primary = true
"""
CONFIG = 'study = "scale"\n\n[gates]\nmin_speedup = 1.05\n\n[profiler]\nclock_control = "none"\n'
STUDY_PY, TOML, ABLATION = (
    "kernels/scale/study.py",
    "workbench.toml",
    "ablations/scale/ablation.toml",
)
README = "'A whole workspace' in docs/variants.md"


class Case(NamedTuple):
    file: str
    broken: Change
    hint: str
    mended: Change


CASES = [
    Case(TOML, ("[gates]", "[gates"), "fix this line", ("[gates", "[gates]")),
    Case(TOML, ("1.05", "9" * 5000), "write a number with fewer digits", ("9" * 5000, "9")),
    Case(TOML, ("1.05", "[" * 5000), "nothing in it needs depth", ("[" * 5000, "1.05")),
    Case(TOML, ("min_speedup", "min_speed"), "did you mean 'min_speedup'?", ("speed", "speedup")),
    Case(TOML, ('"none"', '"non"'), "did you mean 'none'?", ('"non"', '"none"')),
    Case(TOML, ("[gates]\nmin_speedup", "gates"), "leave 'gates' out", ("gates = 1.05", "")),
    Case(
        TOML,
        ("1.05", "0"),
        "leave 'gates.min_speedup' out for the default",
        ("min_speedup = 0", ""),
    ),
    Case(TOML, ("1.05", '"x"'), "leave 'gates.min_speedup' out", ('min_speedup = "x"', "")),
    Case(
        ABLATION,
        ("schema_version = 1\n", ""),
        "write schema_version = 1 at its top",
        ("\n[[step", "schema_version = 1\n[[step"),
    ),
    Case(ABLATION, ("parent", "parnet"), "did you mean 'parent'?", ("parnet", "parent")),
    Case(
        ABLATION,
        ('parent = "baseline"\n', ""),
        "only the first step has none",
        ('"fix1"', '"fix1"\nparent = "baseline"'),
    ),
    Case(
        ABLATION,
        ('parent = "baseline"', 'parent = "basline"'),
        "did you mean 'baseline'?",
        ("basline", "baseline"),
    ),
    Case(
        ABLATION,
        ('"none"', '"none"\nparent = "x"'),
        "the first step has no parent: leave it out",
        ('parent = "x"\n', ""),
    ),
    Case(
        ABLATION,
        ('["baseline"]', '"baseline"'),
        "leave 'step 'fix1'.chooses' out for the default",
        ('chooses = "baseline"\n', ""),
    ),
    Case(
        ABLATION,
        ('["baseline"]', '["baselin"]'),
        "did you mean 'baseline'?",
        ('["baselin"]', '["baseline"]'),
    ),
    Case(ABLATION, ('"large"', '"larg"'), "did you mean 'large'?", ('"larg"', '"large"')),
    Case(ABLATION, ('"large"', '"odd"'), "known: large", ('"odd"', '"large"')),
    Case(
        ABLATION,
        ("[0.5, 0.9]", "[0.9, 0.5]"),
        "two finite numbers, none of them below zero, the lower one first",
        ("[0.9, 0.5]", "[0.5, 0.9]"),
    ),
    Case(ABLATION, ('"time"', '"tiem"'), "did you mean 'time'?", ("tiem", "time")),
    Case(
        ABLATION,
        ("primary = true", 'primary = "true"'),
        "leave 'reference 'eager'.primary' out for the default",
        ('primary = "true"', "primary = true"),
    ),
    Case(
        ABLATION,
        ('"eager"', '"a/eager"'),
        "a variant is called as its module beside study.py, without '/' and without .py",
        ("a/eager", "eager"),
    ),
    Case(
        ABLATION,
        ('"eager"', '"missing"'),
        "add the file, or take the name out of ablation.toml",
        ('[[reference]]\nvariant = "missing"\nprimary = true\n', ""),
    ),
    Case(
        ABLATION,
        ("[[step.prediction]]", "[step.prediction]"),
        "leave 'step 'fix1'.prediction' out for the default",
        ('[step.prediction]\nfigure = "time"\nfactor = [0.5, 0.9]\n', ""),
    ),
    Case(
        ABLATION,
        ("[[reference]]", "[reference]"),
        "leave 'reference' out for the default",
        ('[reference]\nvariant = "eager"\nprimary = true\n', ""),
    ),
    Case(
        STUDY_PY,
        ("shapes = {", "shapes = 3; others = {"),
        'such as shapes = {"large": Shape(n=1024)}',
        ("shapes = 3", 'shapes = {"large": Shape(n=1024)}'),
    ),
    Case(
        STUDY_PY,
        ('{"large": Shape', '{"a/b": Shape'),
        'write a string without "/", such as "large"',
        ("a/b", "large"),
    ),
    Case(
        STUDY_PY,
        ('default_shape = "large"', 'default_shape = "larg"'),
        "did you mean 'large'?",
        ('"larg"', '"large"'),
    ),
    Case(
        STUDY_PY,
        ("tolerance = Tolerance", "tolerance = 3; other = Tolerance"),
        "such as tolerance = Tolerance(absolute=1e-3, relative=1e-3)",
        ("tolerance = 3", "tolerance = Tolerance(absolute=1e-3, relative=1e-3)"),
    ),
    Case(
        STUDY_PY,
        ("tolerance = Tolerance", "adversarial = [1]\ntolerance = Tolerance"),
        "each takes the inputs and a generator, and returns inputs",
        ("adversarial = [1]", 'adversarial = {"none": lambda inputs, generator: inputs}'),
    ),
    Case(
        STUDY_PY,
        ("from workbench", "import no_such\nfrom workbench"),
        "import torch inside its functions",
        ("import no_such", ""),
    ),
    Case(
        STUDY_PY,
        ("from workbench", "import sys\nsys.exit()\nfrom workbench"),
        "take the exit out: the file is imported by every verb",
        ("sys.exit()", ""),
    ),
    Case(
        STUDY_PY,
        ("from workbench", "1 / 0\nfrom workbench"),
        "fix this line, or run the file alone to see more",
        ("1 / 0", ""),
    ),
]


def small(root: Path) -> Path:
    """A workspace with a step, a reference, and parameters of its step."""
    fix1 = MODULE.format(name="baseline").replace(
        "kernel =", "params = cuda.params(warps=4)\nkernel ="
    )
    make(root, {"baseline": GOOD}, {"fix1": fix1, "eager": "def run(x):\n    return x * 2\n"})
    (root / TOML).write_text(CONFIG)
    (root / ABLATION).write_text(LADDER)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small(tmp_path / "ws")


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{c.file.rpartition('/')[2]}: {c.hint}" for c in CASES]
)
def test_a_file_is_mended_as_the_hint_says(case: Case, root: Path, run: Run) -> None:
    path = root / case.file
    whole = path.read_text()
    assert whole.count(case.broken[0]) >= 1
    path.write_text(whole.replace(*case.broken, 1))
    told = run("list", "--project", root)
    assert (told.code, told.out) == (2, "")
    assert case.hint in told.hint
    assert case.mended[0] in path.read_text()
    path.write_text(path.read_text().replace(*case.mended, 1))
    assert run("list", "--project", root).code == 0


def test_the_places_that_are_to_be_mended_are_named(root: Path, run: Run) -> None:
    for text, place in (
        ("x = [", "(at end of document)"),
        ("\nx = 1 2\n", "(at line 9, column 7)"),
    ):
        (root / TOML).write_text(CONFIG + text)
        assert place in run("list", "--project", root).err
    (root / STUDY_PY).write_text("1 / 0\n" + STUDY)
    (root / TOML).write_text(CONFIG)
    assert "study.py:1 " in run("list", "--project", root).err
    done = subprocess.run([sys.executable, root / STUDY_PY], capture_output=True, text=True)
    assert "Traceback" in done.stderr  # what running it by itself shows more of


def test_files_that_are_added_or_saved_otherwise(root: Path, run: Run) -> None:
    ladder = (root / ABLATION).read_text()
    (root / ABLATION).unlink()
    assert run("list", "--project", root).hint == "it lists the variants of the study"
    (root / ABLATION).write_text("schema_version = 1\n")
    assert run("list", "--project", root).hint == "write one [[step]] for the baseline"
    (root / ABLATION).write_text(LADDER.replace('"eager"', '"lazy"'))
    assert run("list", "--project", root).hint.startswith("add the file, or")
    (root / "kernels/scale/lazy.py").write_text("def run(x):\n    return x\n")
    assert run("list", "--project", root).code == 0
    (root / ABLATION).write_bytes(b"# caf\xe9\n" + ladder.encode())
    assert run("list", "--project", root).hint == "save the file as UTF-8"
    (root / ABLATION).write_text("# caf\u00e9\n" + ladder, encoding="utf-8")
    assert run("list", "--project", root).code == 0
    (root / ABLATION).unlink()
    (root / ABLATION).mkdir()
    assert run("list", "--project", root).hint == "put a text file there"


def test_the_docs_show_what_they_are_named_for() -> None:
    text = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    section = text.partition("\n## A whole workspace\n")[2].partition("\n## ")[0]
    for part in (
        "study.py",
        "shapes =",
        "default_shape",
        "tolerance =",
        "def inputs",
        "def reference",
    ):
        assert part in section
    assert "def work(shape):\n    return Work(flops=" in section
    assert "[[step]]" in section
    for path in (ROOT / "profiler").rglob("*.py"):
        told = path.read_text(encoding="utf-8")
        for name in re.findall(r"'([A-Z][a-z ]+)' in docs/variants\.md", told):
            assert f"\n## {name}\n" in text


def test_a_study_that_lacks_a_part_is_completed_from_the_readme(root: Path, run: Run) -> None:
    path = root / STUDY_PY
    for old, new in (("def work(", "def werk("), ("def work(", "work = 3\n\n\ndef werk(")):
        path.write_text(STUDY.replace(old, new))
        assert run("list", "--project", root).hint == f"see {README}"
    path.write_text(STUDY)
    assert run("list", "--project", root).code == 0


def test_of_several_studies_one_is_named_as_the_hint_says(root: Path, run: Run) -> None:
    for folder in ("kernels", "ablations"):
        shutil.copytree(root / folder / "scale", root / folder / "other")
    (root / TOML).write_text("")
    told = run("build", "--arch", "sm_0", "--project", root)
    assert told.hint == 'write study = "other" there, or use --study: other, scale'
    (root / TOML).write_text('study = "other"')
    assert run("show", "fix1", "--project", root).code == 3
    (root / TOML).write_text("")
    assert run("show", "fix1", "--study", "scale", "--project", root).code == 3


def test_where_there_is_no_study_or_workspace(tmp_path: Path, root: Path, run: Run) -> None:
    (tmp_path / TOML).write_text("")
    for verb in ("list", "ablate"):
        assert "with a study.py: `workbench init`" in run(verb, "--project", tmp_path).hint
    assert run("init", tmp_path).code == 0
    assert run("list", "--project", tmp_path).code == 0
    told = run("list", "--project", root / "kernels")
    assert told.hint == "--project takes a workspace's top folder"
    assert run("list", "--project", root).code == 0


@pytest.mark.parametrize(
    ("name", "hint", "right"),
    [
        ("fix1[warps=8", "write NAME or NAME[param=value,...]", "fix1[warps=8]"),
        (
            "fix1[warps]",
            "write name=a value, a|b|c, lo..hi*k (times k) or lo..hi+k (plus k)",
            "fix1[warps=8]",
        ),
        ("fix1[wraps=8]", "did you mean 'warps'?", "fix1[warps=8]"),
        ("baseline[warps=8]", "a variant declares them: cuda.params(...)", "fix1[warps=8]"),
        ("fix2", "did you mean 'fix1'?", "fix1"),
        ("fix1[warps=9999999999999999999]", "give it a finite number", "fix1[warps=99]"),
    ],
)
def test_a_name_is_written_as_the_hint_says(
    name: str, hint: str, right: str, root: Path, run: Run
) -> None:
    assert told_of(name, root, run) == hint
    named(right, root)


def told_of(name: str, root: Path, run: Run) -> str:
    told = run("build", name, "--arch", "sm_90a", "--project", root)
    assert told.code == 2
    return told.hint


def named(name: str, root: Path) -> None:
    """Raises UsageError for what is no variant."""
    including(find_workspace(root).study(), [name])


def test_parameters_are_computed_below_and_name_no_folder(root: Path, run: Run) -> None:
    path = root / "kernels/scale/fix1.py"
    whole = path.read_text()
    path.write_text(whole.replace("warps=4", "warps=2 + n"))
    hint = "compute what depends on them below, from params"
    assert told_of("fix1[warps=8]", root, run) == hint
    path.write_text(whole.replace("warps=4", "warps=2") + "\nn = params['warps'] + 2\n")
    named("fix1[warps=8]", root)
    path.write_text(whole.replace("warps=4", 'warps="a"'))
    hint = "evidence is kept under it: leave out '/'"
    assert told_of("fix1[warps=a/b]", root, run) == hint
    named("fix1[warps=ab]", root)


# ---- building --------------------------------------------------------------------------------
def test_what_does_not_build_is_mended_as_it_says(root: Path, run: Run) -> None:
    """The hints of a worker stand in its errors; of the verb there is one for all of them."""
    folder = root / "kernels/scale"
    (folder / "fix1.py").write_text(MODULE.format(name="absent"))
    (folder / "eager.py").write_text("x = 1\n")
    told = run("build", "fix1", "eager", "baseline", "--json", "--project", root)
    assert told.code == 4
    errors = {each["variant"]: each["error"] for each in json.loads(told.out)["builds"]}
    assert errors["baseline"] == ""  # "everything else was built"
    assert told.hint.endswith("everything else was built")
    assert "there is no absent.cu in scale/" in errors["fix1"]
    assert errors["eager"] == "eager.py defines no run()"
    (folder / "absent.cu").write_text((folder / "baseline.cu").read_text())
    (folder / "eager.py").write_text("def run(x):\n    return x\n")
    told = run("build", "fix1", "eager", "--arch", "hopper", "--project", root)
    arch, *_ = re.findall(r"sm_\w+", told.hint)
    assert run("build", "fix1", "eager", "--arch", arch, "--project", root).code == 0


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


# ---- names on the command line ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "hint", "right"),
    [
        (["show", "basline"], "did you mean 'baseline'?", ["show", "baseline"]),
        (
            ["ablate", "sdpa"],
            "references are always in the table; steps: baseline",
            ["report", "fix1"],
        ),
        (["show", "fix1", "--shape", "ragged"], "use one of ", ["show", "fix1", "--shape", SHAPE]),
        (["show", "fix1", "--shape", "b2h8"], "did you mean", ["show", "fix1", "--shape", SHAPE]),
        (
            ["show", "fix1", "--launch", "1"],
            "a variant's kernels are taken together",
            ["show", "fix1"],
        ),
        (
            ["diff", "fix1", "fix2", "--kernel", "x"],
            "a variant's kernels are taken together",
            ["diff", "fix1", "fix2"],
        ),
        (["diff", "fix1", "fix1"], "name two variants", ["diff", "fix1", "fix2"]),
        (
            ["show", "sdpa", "--source"],
            "NVRTC variants built by the workbench do",
            ["show", "fix1", "--source"],
        ),
        (
            ["show", "fix1", "--metric", "gpu__time_duration.summ"],
            "did you mean 'gpu__time_duration.sum'?",
            ["show", "fix1", "--metric", "gpu__time_duration.sum"],
        ),
        (
            ["list", "--study", "atention"],
            "did you mean 'attention'?",
            ["list", "--study", "attention"],
        ),
    ],
)
def test_what_the_hint_names_is_taken(
    wrong: list[str], hint: str, right: list[str], run: Run, tmp_path: Path
) -> None:
    told = run(*wrong, *HERE)
    assert told.code == 2
    assert hint in told.hint
    where = HERE
    if right[0] == "report":  # it writes
        for name in ("kernels", "ablations", "templates", TOML):
            (tmp_path / name).symlink_to(ROOT / name)
        where = ["--project", str(tmp_path)]
    assert run(*right, *where).code == 0


@pytest.mark.parametrize(
    ("wrong", "hint", "right"),
    [
        (
            ["show", "{dir}/f.ncu-rep"],
            "did you mean '{dir}/f.ncu-rep/a b.ncu-repz'?",
            ["show", "{dir}/f.ncu-rep/a b.ncu-repz", "--launch", "0"],
        ),
        (
            ["show", "{dir}/ab.ncu-repz"],
            "did you mean '{dir}/a b.ncu-repz'?",
            ["show", "{dir}/a b.ncu-repz", "--launch", "0"],
        ),
        (
            ["show", "{report}", "--launch", "9999"],
            "launches count from 0 to ",
            ["show", "{report}", "--launch", "0"],
        ),
        (
            ["show", "{report}", "--kernel", "attention_forwrad"],
            "did you mean 'attention_forward'?",
            ["show", "{report}", "--kernel", "attention_forward", "--launch", "0"],
        ),
        (
            ["show", "{report}", "--source"],
            "choose one with --kernel NAME or --launch N: cudnn_generated",
            ["show", "{report}", "--source", "--launch", "0"],
        ),
        (
            ["diff", "{report}", "{other}", "--launch", "5"],
            "one of A and one of B, such as 0:3; `workbench show FILE` counts them",
            ["diff", "{report}", "{other}", "--launch", "0:0"],
        ),
        (
            ["diff", "{report}", "{other}", "--launch", "0:0", "--kernel", "a"],
            "leave one of them out",
            ["diff", "{report}", "{other}", "--launch", "0:0"],
        ),
    ],
)
def test_what_the_hint_names_of_a_report_is_taken(
    wrong: list[str],
    hint: str,
    right: list[str],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"dir": tmp_path, "report": REPORT, "other": OTHER}
    (tmp_path / "f.ncu-rep").mkdir()
    for name in ("a b.ncu-repz", "f.ncu-rep/a b.ncu-repz"):
        (tmp_path / name).symlink_to(OTHER)
    told = run(*(each.format(**names) for each in wrong))
    assert told.code == 2
    assert hint.format(**names) in told.hint
    if right:
        assert run(*(each.format(**names) for each in right)).code == 0


def test_a_command_in_a_hint_can_be_pasted(tmp_path: Path, run: Run) -> None:
    """Into any shell, whatever the names are."""
    whole = tmp_path / "it's [a] b.ncu-repz"
    shutil.copy(REPORT, whole)
    (command,) = re.findall(r"`(workbench .*?)`", run("diff", "fix1", whole, *HERE).hint)
    assert shlex.split(command)[1:] == ["show", str(whole)]


def test_an_unreadable_report_is_made_readable(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a b.ncu-repz"
    shutil.copy(OTHER, path)
    path.chmod(0)
    monkeypatch.setattr(os, "access", lambda each, mode: bool(Path(each).stat().st_mode & 0o400))
    (command,) = re.findall(r"`(.*)`", run("show", path).hint)
    subprocess.run(["sh", "-c", command], check=True)
    assert run("show", path, "--launch", "0").code == 0


def test_reports_are_copied_or_named_again(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "cut.ncu-repz"
    path.write_bytes(OTHER.read_bytes()[:5000])
    assert run("show", path).hint.startswith("copy it again from where it was made")
    shutil.copy(OTHER, path)
    assert run("show", path, "--launch", "0").code == 0
    os.mkfifo(tmp_path / "pipe.ncu-rep")
    assert run("show", tmp_path / "pipe.ncu-rep").hint == f"did you mean '{path}'?"
    alone = tmp_path / "empty.ncu-rep"
    alone.mkdir()
    assert run("show", alone).hint == "there is no report in that folder"


# ---- evidence and what is written ------------------------------------------------------------
def evidence(workspace: Path) -> Path:
    return workspace / "ablations" / "attention" / "evidence" / EVIDENCE.name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("variants/fix10.json", "restore it, or delete it and measure again"),
        (f"{SHAPE}/captures.json", "restore it, or delete it and measure again"),
    ],
)
def test_a_damaged_record_is_restored_or_deleted(
    name: str, hint: str, workspace: Path, run: Run
) -> None:
    path, where = evidence(workspace) / name, ("show", "fix10", "--project", workspace)
    whole = path.read_bytes()
    path.write_text("{")
    try:
        told = run(*where)
        assert (told.code, told.hint) == (2, hint) or name.startswith("checks")
        path.unlink()
        assert run(*where).code == 0
    finally:
        path.write_bytes(whole)
    assert run(*where).code == 0


def test_a_damaged_or_missing_capture_is_restored(workspace: Path, run: Run) -> None:
    path = evidence(workspace) / "reports" / REPORT.name
    where = ("show", "fix10", "--shape", CAUSAL, "--source", "--top", "1", "--project", workspace)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert run(*where).hint == "restore the file, or profile the variant again"
    path.unlink()
    assert run(*where).code == 0, "its tables stand without it"
    path.write_bytes(whole)
    assert run(*where).code == 0


def test_a_report_that_could_not_be_written_is_written_by_the_same_names(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "workbench-reports"
    place.write_text("in the way")
    told = run("report", "fix1", "--shape", SHAPE)
    assert told.hint.startswith("fix that; `workbench report` with the same arguments")
    place.unlink()
    assert run("report", "fix1", "--shape", SHAPE).code == 0
    (written,) = place.rglob("OPTIMIZATION_REPORT.md")
    (written.parent / ".workbench").unlink()  # as in a folder of somebody else
    told = run("report", "fix1", "--shape", SHAPE)
    assert told.hint == "move it away, or run the same command in another folder"
    written.parent.rename(tmp_path / "mine")
    assert run("report", "fix1", "--shape", SHAPE).code == 0
    (written.parent / ".workbench").unlink()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert run("report", "fix1", "--shape", SHAPE).code == 0


def test_where_nothing_is_on_record_doctor_says_what_is_missing(root: Path, run: Run) -> None:
    if machine.can_measure():
        pytest.skip("this machine can measure")
    told = run("show", "fix1", "--project", root)
    assert told.code == 3
    assert (
        told.hint
        == "measure it where there is a GPU and ncu, or `--on HOST`; see `workbench doctor`"
    )
    assert "GPU" in run("doctor").out


# ---- what doctor is named for ----------------------------------------------------------------
def test_doctor_looks_at_what_hints_name_it_for(run: Run) -> None:
    rows = {row["name"] for row in json.loads(run("doctor", "--json").out)["rows"]}
    assert {"GPU", "driver", "torch", "NVRTC (cuda-core)", "CUDA headers", "zstandard"} <= rows
    assert ncu.failure("==ERROR== x").hint == "`workbench doctor` checks ncu"
    assert "ncu" in rows
    ended = WorkerEnd(events=[], returncode=1)
    assert "doctor" in building.worker_stopped(ended).hint


def test_doctor_is_as_good_as_what_it_says_of_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder on PATH is found."""
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\necho 'Version 2026.1.0.0 (build 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine.find_ncu.cache_clear()
    try:
        assert machine.find_ncu() == str(tool)
        assert doctor.ncu_row().result == doctor.OK
    finally:
        machine.find_ncu.cache_clear()


def test_what_is_to_be_installed_is_what_the_checkout_has() -> None:
    assert shlex.split(words.INSTALL) == ["pip", "install", "-e", f"{ROOT}[gpu]"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    gpu = text.partition("gpu = [")[2].partition("]")[0] + text.partition("gpu = [")[2]
    for name in ("torch", "cuda-core"):
        assert f'"{name}' in gpu
