"""study.py and variants are users' code: whatever they are or do, a message names the file."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys, Patch, both_of, error_of, python, ran, refused
from property_cases import examples
from workbench.cli.main import main
from workbench.errors import UsageError
from workbench.study.sources import source_files, source_texts
from workbench.study.values import tolerance_at
from workbench.study.workspace import find_workspace
from workspaces import GOOD, STUDY, make, rewrite

REFUSED = ("list", "--json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path, {"baseline": GOOD})


def study_file(root: Path) -> Path:
    return root / "kernels" / "scale" / "study.py"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\nsys.exit(0)\n", ["study.py:2 could not be imported", "SystemExit"]),
        ("raise BaseException('no')\n", ["study.py:1 could not be imported", "BaseException: no"]),
        ("\n\nraise GeneratorExit\n", ["study.py:3 could not be imported", "GeneratorExit"]),
        ("raise KeyboardInterrupt\n", ["study.py:1 could not be imported: KeyboardInterrupt"]),
        ("x = 1\n1 / 0\n", ["study.py:2 could not be imported", "ZeroDivisionError"]),
        ("x = (\n", ["study.py:1 could not be imported", "SyntaxError"]),
        ("import no_such\n", ["study.py:1 could not be", "no_such", "import torch inside"]),
        (
            "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n",
            ["study.py:4 could not be imported: E"],
        ),
        ("def f():\n    f()\nf()\n", ["study.py:2 could not be imported", "RecursionError"]),
    ],
)
def test_a_study_that_raises_or_exits_is_named_with_its_line(
    text: str, words: list[str], root: Path, capsys: Capsys
) -> None:
    study_file(root).write_text(text + STUDY)
    refused(capsys, *REFUSED, words=words, project=root)


def test_an_endless_import_is_stopped(root: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.bounds.STUDY_SECONDS", 0.2)
    study_file(root).write_text("while True:\n    pass\n")
    before = signal.getsignal(signal.SIGALRM)
    words = ["could not be imported: it takes longer than 0.2 s"]
    refused(capsys, *REFUSED, words=words, project=root)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_import_that_catches_the_first_stop_gets_another(
    root: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("workbench.bounds.STUDY_SECONDS", 0.1)
    monkeypatch.setattr("workbench.bounds.STUDY_AGAIN_SECONDS", 0.1)
    endless = "    while True:\n        pass\n"
    study_file(root).write_text(f"try:\n{endless}except BaseException:\n{endless}")
    refused(capsys, *REFUSED, words=["it takes longer than"], project=root)


def test_what_a_study_prints_is_no_part_of_the_json(root: Path) -> None:
    """In a process of its own: a program that the study starts writes to the descriptor."""
    prints = "import os, subprocess\nprint('one')\nos.write(1, b'two')\n"
    prints += "subprocess.run(['echo', 'three'])\n"
    study_file(root).write_text(prints + STUDY)
    done = python("-m", "workbench", *REFUSED, "--project", root)
    assert done.returncode == 0
    assert json.loads(done.stdout)["studies"][0]["study"] == "scale"
    for text in ("one", "two", "three"):
        assert text in done.stderr


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_study_prints_where_a_standard_stream_is_closed(closed: str, root: Path) -> None:
    study_file(root).write_text("print('one')\n" + STUDY)
    line = f'exec {sys.executable} -m workbench list --json --project "$0" {closed}>&-'
    done = ran("sh", "-c", line, root)
    assert "Traceback" not in done.stderr
    if closed == "2":
        assert json.loads(done.stdout)["studies"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"large": Shape', "1: Shape", ["study.py: the shape 1 has no name"]),
        ('"large": Shape', '"../x": Shape', ["study.py: the shape '../x' has no name"]),
        ("Shape(n=4194304)", "Shape(q=object())", ["study.py:5", "'q' (object) is not"]),
        ('default_shape = "large"', "default_shape = []", ["default_shape '[]' is none"]),
        (
            "def work(shape):",
            "def __getattr__(name):\n    raise KeyError(name)\n\n\ndef werk(shape):",
            ["study.py:21 cannot be used: KeyError"],
        ),
        ("def work(shape):", "def werk(shape):", ["study.py does not define 'work'"]),
        ("def work(shape):", "work = 3\n\n\ndef werk(shape):", ["'work' must be a function"]),
    ],
)
def test_odd_parts_of_a_study_are_named(
    old: str, new: str, words: list[str], root: Path, capsys: Capsys
) -> None:
    rewrite(study_file(root), old, new)
    refused(capsys, *REFUSED, words=words, project=root)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise SystemExit(0)", "study.py:21 has a work() that fails at 'large': SystemExit: 0"),
        ("return 3", "work() must return workbench.Work"),
        ("return Work(flops='a', bytes=1, dtype='')", "flops and bytes as numbers"),
        ("return Work(flops=float('nan'), bytes=1, dtype='')", "flops and bytes as numbers"),
    ],
)
def test_a_work_that_fails_is_named(body: str, told: str, root: Path) -> None:
    study_file(root).write_text(STUDY.partition("    return Work")[0] + f"    {body}\n")
    with pytest.raises(UsageError, match=re.escape(told)):
        find_workspace(root).study().work("large")


@pytest.mark.parametrize("rule", ["lambda shape: shape.m", "lambda shape: 3"])
def test_a_tolerance_that_fails_is_named(rule: str, root: Path) -> None:
    rewrite(study_file(root), "Tolerance(absolute=1e-6, relative=1e-6)", rule)
    study = find_workspace(root).study()
    with pytest.raises(UsageError, match=r"study\.py.* tolerance"):
        tolerance_at(study.tolerance, study.shapes["large"])


# ---- files that are no text, or no files -----------------------------------------------------
def test_a_study_that_is_not_utf_8_is_named_with_the_byte(root: Path, capsys: Capsys) -> None:
    study_file(root).write_bytes(b"# caf\xe9\n" + STUDY.encode())
    words = ["study.py is not UTF-8: byte 0xe9 at offset 5", "save the file"]
    refused(capsys, *REFUSED, words=words, project=root)


@pytest.mark.parametrize("name", ["bad.py", "bad.cu"])
def test_a_source_that_is_not_utf_8_costs_only_its_variant(
    name: str, tmp_path: Path, capsys: Capsys
) -> None:
    make(tmp_path, {"baseline": GOOD, "bad": GOOD})
    path = tmp_path / "kernels" / "scale" / name
    mark = b"#" if name.endswith(".py") else b"//"
    path.write_bytes(mark + b" caf\xe9\n" + path.read_bytes())
    assert main(["list", "--project", str(tmp_path)]) == 0
    study = find_workspace(tmp_path).study()
    assert {"bad.py", "bad.cu"} <= {p.name for p in source_files(study, study.variants["bad"])}
    assert "caf\ufffd" in "".join(source_texts(study, study.variants["bad"]).values())
    errors, err = built(tmp_path, capsys)
    assert errors["baseline"] == ""
    assert f"{name} is not UTF-8: byte 0xe9 at offset {len(mark) + 4}" in errors["bad"]
    assert f"error: bad: {name}" in err


def built(root: Path, capsys: Capsys) -> tuple[dict[str, str], str]:
    """The error of each variant, of which some do not build, and what stderr says."""
    capsys.readouterr()
    out, err = both_of(capsys, "build", "--json", project=root, code=4)
    return {found["variant"]: found["error"] for found in json.loads(out)["builds"]}, err


def test_a_folder_named_study_py_is_told(root: Path, capsys: Capsys) -> None:
    study_file(root).unlink()
    study_file(root).mkdir()
    err = error_of(capsys, "list", "--study", "scale", project=root)
    assert "study.py is a folder, not a file" in err
    assert "did you mean 'scale'" not in err


# ---- names that leave the folder -------------------------------------------------------------
def test_sources_outside_of_the_study_are_not_read_and_do_not_compile(
    tmp_path: Path, capsys: Capsys
) -> None:
    (outside := tmp_path / "secret.cuh").write_text("#define SECRET 2\n")
    other = 'from workbench import cuda\nkernel = cuda.kernel("../../../secret.cuh", "f")\n'
    modules = {"other": f"{other}def run(x):\n    return x\n"}
    root = make(tmp_path / "ws", dict.fromkeys(("baseline", "up", "far"), GOOD), modules)
    folder = root / "kernels" / "scale"
    for name, include in (("up", "../../../secret.cuh"), ("far", str(outside))):
        rewrite(folder / f"{name}.cu", "extern", f'#include "{include}"\nextern')
    study = find_workspace(root).study()
    for name in ("up", "far", "other"):
        files = source_files(study, study.variants[name])
        assert {path.parent for path in files} == {folder}
        assert "secret.cuh" not in {path.name for path in files}
    errors, _ = built(root, capsys)
    assert errors["baseline"] == ""
    assert 'up.cu(1): #include "../../../secret.cuh" leaves the folder' in errors["up"]
    assert "leaves the folder of its study" in errors["far"]
    assert "other.py names ../../../secret.cuh, which leaves" in errors["other"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", ".hidden", "a\\b", "x" * 300])
@pytest.mark.parametrize("kind", ["step", "reference"])
def test_a_variant_is_called_as_a_file_of_its_folder(
    kind: str, name: str, root: Path, capsys: Capsys
) -> None:
    rest = 'key_change = "x"\nparent = "baseline"' if kind == "step" else "primary = true"
    with (root / "ablations" / "scale" / "ablation.toml").open("a") as ladder:
        ladder.write(f"\n[[{kind}]]\nvariant = '{name}'\n{rest}\n")
    words = ["ablation.toml", f"'{name}'", "no name of a file"]
    refused(capsys, *REFUSED, words=words, project=root)


@pytest.mark.parametrize("name", ["../scale", "scale/../scale", "/", ".."])
def test_a_study_is_called_as_its_folder(name: str, root: Path, capsys: Capsys) -> None:
    (root / "workbench.toml").write_text(f'study = "{name}"')
    err = error_of(capsys, "build", "--arch", "sm_0", "--study", name, project=root)
    assert f"unknown study '{name}'" in err


@pytest.mark.parametrize("value", ["None", "[1]", "{[]: 1}", "1 + n", "(1, 2)", "b'x'"])
def test_parameters_that_are_no_values_are_named(
    value: str, tmp_path: Path, capsys: Capsys
) -> None:
    root = with_parameter(tmp_path, "warps", value)
    err = error_of(capsys, "build", "fix1[warps=2]", project=root)
    assert "fix1.py:3: the values in cuda.params(...) must be plain" in err
    assert "hint: compute what depends on them below, from params" in err
    assert "'warps'" in err


def with_parameter(root: Path, name: str, default: str) -> Path:
    """A workspace whose ``fix1`` declares it, in its third line."""
    module = f"from workbench import cuda\nn = 1\nparams = cuda.params({name}={default})\n"
    return make(root, {"baseline": GOOD}, {"fix1": f"{module}def run(x):\n    return x\n"})


@pytest.mark.parametrize(
    ("value", "hint"),
    [*((each, "give it a finite number") for each in ("nan", "inf", "1e999")),
     ("../../x", "evidence is kept under it: leave out '/'")],
)  # fmt: skip
def test_a_parameter_has_a_value_that_a_name_and_json_can_have(
    value: str, hint: str, tmp_path: Path, capsys: Capsys
) -> None:
    root = with_parameter(tmp_path, "rate", '"a"' if "/" in value else "1.0")
    assert f"hint: {hint}" in error_of(capsys, "build", f"fix1[rate={value}]", project=root)


# ---- any study at all ------------------------------------------------------------------------
LINES = [
    *("import sys", "import os", "sys.exit(3)", "print('x')", "raise BaseException"),
    *("raise SystemExit", "1 / 0", "shapes = {}", "shapes = {'large': 3}"),
    *("shapes = {'large': Shape(n=None)}", "shapes = {('a',): Shape(n=2)}"),
    *("shapes = {'a\\0b': Shape(n=2)}", "default_shape = None", "default_shape = {}"),
    *("tolerance = None", "tolerance = print", "inputs = None", "del work"),
    *("def __getattr__(name): raise KeyError(name)", "sys.stdout = None", "\x00", "\ufeff"),
    *("    indented", "(" * 300),
]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("drawn") / "ws", {"baseline": GOOD})


def lines_between(lines: list[str], after: int) -> bytes:
    own = STUDY.splitlines()
    return "\n".join([*own[:after], *lines, *own[after:]]).encode("utf-8", "surrogatepass")


def bytes_between(data: bytes, at: int) -> bytes:
    return STUDY.encode()[:at] + data + STUDY.encode()[at:]


@settings(max_examples=examples(50, many=5000))
@given(
    st.builds(
        lines_between,
        st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=3),
        st.integers(min_value=0, max_value=20),
    )
    | st.builds(bytes_between, st.binary(max_size=60), st.integers(min_value=0, max_value=400))
)
def test_any_study_is_read_or_refused_by_name(drawn: Path, text: bytes) -> None:
    study_file(drawn).write_bytes(text)
    stdout = sys.stdout
    refused = None
    try:
        find_workspace(drawn).study("scale")
    except UsageError as error:
        refused = error
    assert refused is None or (str(study_file(drawn)) in refused.message and refused.hint)
    assert sys.stdout is stdout
    assert os.fstat(1)


@settings(max_examples=examples(20, many=2000))
@given(st.binary(max_size=60), st.integers(min_value=0, max_value=200))
def test_any_bytes_in_a_variant_leave_the_study_readable(drawn: Path, data: bytes, at: int) -> None:
    study_file(drawn).write_text(STUDY)
    for path in (study_file(drawn).with_name(f"baseline{kind}") for kind in (".py", ".cu")):
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + data + whole[at:])
        study = find_workspace(drawn).study()
        assert source_texts(study, study.variants["baseline"])
        path.write_bytes(whole)


@pytest.mark.slow
def test_what_ends_the_process_of_a_trial_has_its_line(tmp_path: Path, capsys: Capsys) -> None:
    """In a worker of its own, and in a file that it imports."""
    (tmp_path / "x.py").write_text("import helper\ndef f(x):\n    helper.go()\n")
    (tmp_path / "helper.py").write_text("import ctypes\ndef go():\n    ctypes.string_at(0)\n")
    assert main(["try", str(tmp_path / "x.py:f"), "--input", "x=randn(64)", "--quick"]) in (1, 2)
    told = capsys.readouterr().err
    assert "(helper.py:3, exit -11)" in told
    assert "the worker stopped" not in told
