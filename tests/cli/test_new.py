"""``workbench new``: a variant copied, and a step added that leaves the ladder's text alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys, Patch, error_of, json_of, not_none, refused
from property_cases import examples
from workbench.cli.main import main
from workbench.cli.new import step_text, with_step
from workbench.study.model import Prediction, Step
from workbench.study.workspace import find_workspace
from workspaces import GOOD, contents, make, rewrite, step

CHANGE = ("--change", "eight halves a load")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path), "--template", "cuda"]) == 0
    return tmp_path


def new(root: Path, *options: str) -> int:
    return main(["new", *options, "--project", str(root)])


def fails(capsys: Capsys, root: Path, *options: str, words: Sequence[str] = ()) -> None:
    """And changes nothing."""
    before = contents(root)
    refused(capsys, "new", *options, project=root, words=words)
    assert contents(root) == before


def test_the_copy_is_a_variant_of_its_own(root: Path, builds_here: None, capsys: Capsys) -> None:
    assert new(root, "fix2", "--from", "baseline", *CHANGE) == 0
    out = capsys.readouterr().out.splitlines()
    folder = root / "kernels" / "rmsnorm"
    for ending in (".py", ".cu"):
        was, now = (folder / f"{name}{ending}" for name in ("baseline", "fix2"))
        assert now.read_text() == was.read_text().replace('"baseline.cu"', '"fix2.cu"')
    assert out[-1].startswith("next: change ")
    assert out[-1].endswith("fix2.cu, then `workbench ablate fix2`")
    capsys.readouterr()
    (built,) = json_of(capsys, "build", "fix2", project=root)["builds"]
    assert [kernel["source"] for kernel in built["kernels"]] == ["fix2.cu"]


def test_two_kernels_of_a_file_are_built_once_each(
    root: Path, builds_here: None, capsys: Capsys
) -> None:
    folder = root / "kernels" / "rmsnorm"
    for name in ("other", "third"):
        with (folder / "baseline.cu").open("a") as source:
            source.write(f'extern "C" __global__ void {name}(float* x) {{ x[threadIdx.x] = 1; }}\n')
    with (folder / "baseline.py").open("a") as module:
        module.write('other = cuda.kernel("baseline.cu", "other")\n')
    (built,) = json_of(capsys, "build", "baseline", project=root)["builds"]
    coded = {kernel["kernel"]: bool(kernel.get("code")) for kernel in built["kernels"]}
    assert len(built["kernels"]) == len(built["defines"]) == len(coded) == 3
    assert coded.pop("third") is False, "not launched"
    assert all(coded.values())


def test_two_commands_at_once_lose_no_step(root: Path) -> None:
    """Each adds steps to the ladder as it is when it writes."""
    names = [f"at{n}" for n in range(1, 4)]
    command = [sys.executable, "-m", "workbench", "new", "--from", "baseline", *CHANGE]
    running = [
        subprocess.Popen([*command, name, "--project", str(root)], stdout=subprocess.DEVNULL)
        for name in names
    ]
    assert [process.wait() for process in running] == [0] * len(names)
    steps = [step.variant for step in find_workspace(root).study().ladder.steps]
    assert sorted(steps[-len(names) :]) == names


def test_the_ladder_keeps_its_comments_and_gains_a_step(root: Path) -> None:
    ladder = root / "ablations" / "rmsnorm" / "ablation.toml"
    before = ladder.read_text()
    wanted = {
        "time=0.4..0.8": ("time", (0.4, 0.8)),
        "registers=1..1.5": ("registers", (1.0, 1.5)),
        " stall.long_scoreboard = .5 .. 1 ": ("stall.long_scoreboard", (0.5, 1.0)),
    }
    options = [word for text in wanted for word in ("--predict", text)]
    assert new(root, "fix2", "--from", "fix1", *CHANGE, *options) == 0
    after = ladder.read_text()
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []
    known = not_none(find_workspace(root).study().ladder.step("fix2"))
    assert (known.parent, known.key_change) == ("fix1", "eight halves a load")
    assert [(p.figure, p.factor) for p in known.predictions] == [*wanted.values()]
    assert after.index("# factor = [") < after.index('variant = "fix2"')


def test_kernels_of_another_name_are_copied_and_headers_are_shared(
    tmp_path: Path, capsys: Capsys
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD})
    folder = root / "kernels" / "scale"
    kernel = (folder / "baseline.cu").rename(folder / "scale.cu")
    kernel.write_text(f'#include "common.cuh"\n{kernel.read_text()}')
    (folder / "common.cuh").write_text("#pragma once\n")
    rewrite(folder / "baseline.py", "baseline.cu", "scale.cu")
    told = json_of(capsys, "new", "fix1", "--from", "baseline", *CHANGE, project=root)
    assert [Path(name).name for name in told["written"]] == ["fix1.py", "fix1.cu"]
    assert told["shared"] == ["common.cuh"]
    assert '"fix1.cu"' in (folder / "fix1.py").read_text()
    assert "scale.cu" not in (folder / "fix1.py").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("fix1", "--from", "baseline"), ["'fix1' is a variant of rmsnorm already", "fix2"]),
        (("builtin", "--from", "baseline"), ["'builtin' is a variant"]),
        (("study", "--from", "baseline"), ["'study' is the name of a study's own file already"]),
        (("fix-2", "--from", "baseline"), ["'fix-2' is no name for a variant", "letters"]),
        (("../fix2", "--from", "baseline"), ["is no name for a variant"]),
        (("fix2", "--from", "basline"), ["unknown step 'basline'", "'baseline'"]),
        (("fix2", "--from", "builtin"), ["'builtin' is a reference", "baseline, fix1"]),
        (("fix2", "--from", "fix1[warps=2]"), ["no files of its own", "copy fix1"]),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    root: Path, options: tuple[str, ...], words: list[str], capsys: Capsys
) -> None:
    fails(capsys, root, *options, *CHANGE, words=words)


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        ("time", ["'time' is no prediction", "FIGURE=LOW..HIGH"]),
        ("time=0.8", ["is no prediction"]),
        ("time=0.8-0.95", ["is no prediction"]),
        ("time=0.8...0.95", ["is no prediction"]),
        ("time=a..b", ["is no prediction"]),
        ("time=-1..1", ["is no prediction"]),
        ("time=0.95..0.8", ["has its higher end first"]),
        ("tme=0.8..0.95", ["'tme' is no figure", "did you mean 'time'?"]),
    ],
)
def test_a_prediction_that_says_nothing_is_refused(
    root: Path, prediction: str, words: list[str], capsys: Capsys
) -> None:
    options = ("fix2", "--from", "fix1", *CHANGE, "--predict", prediction)
    fails(capsys, root, *options, words=words)


def test_without_a_terminal_the_change_must_be_given(root: Path, capsys: Capsys) -> None:
    options = ("fix2", "--from", "fix1", "--predict", "time=0.5..1")
    fails(capsys, root, *options, words=["a step needs its key change", "--change"])
    fails(capsys, root, *options, "--change", "a\x07", words=["cannot be printed"])


def test_a_file_that_is_there_is_not_overwritten(root: Path, capsys: Capsys) -> None:
    (root / "kernels" / "rmsnorm" / "fix2.cu").write_text("mine")
    fails(capsys, root, "fix2", "--from", "fix1", *CHANGE, words=["fix2.cu is there already"])


def test_what_a_killed_command_left_is_used_by_the_next(root: Path) -> None:
    """It was killed before it had copied the last file, and had added the step."""
    ladder, module = root / "ablations/rmsnorm/ablation.toml", root / "kernels/rmsnorm/fix2.py"
    before = ladder.read_text()
    assert new(root, "fix2", "--from", "fix1", *CHANGE) == 0
    whole = ladder.read_text(), module.read_text()
    ladder.write_text(before)
    module.unlink()
    assert new(root, "fix2", "--from", "fix1", *CHANGE) == 0
    assert (ladder.read_text(), module.read_text()) == whole
    assert new(root, "fix2", "--from", "fix1", *CHANGE) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema_version = 1\n[[step]\n", ["is not valid TOML", "hint: fix this line"]),
        ("schema_version = 1\n", ["has no steps", "write one [[step]]"]),
        (
            'schema_version = 1\nstep = [{variant = "baseline", key_change = "a"}]\n',
            ["has its steps in a form that none can be added to", "by hand"],
        ),
    ],
)
def test_a_ladder_that_cannot_be_read_or_added_to_is_left_alone(
    tmp_path: Path, text: str, words: list[str], capsys: Capsys
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD})
    (root / "ablations" / "scale" / "ablation.toml").write_text(text)
    fails(capsys, root, "fix1", "--from", "baseline", *CHANGE, words=words)


def test_outside_a_workspace_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    told = error_of(capsys, "new", "fix1", "--from", "baseline", *CHANGE)
    assert "hint: `workbench init` makes one" in told
    assert list(tmp_path.iterdir()) == []


LADDERS = (
    "schema_version = 1\n" + step("baseline", None) + "# about the reference\n[[reference]]\n"
    'variant = "r"\nprimary = true\n',
    "schema_version = 1\r\n" + step("baseline", None).replace("\n", "\r\n"),
    '[[reference]]\nvariant = "r"\n' + step("baseline", None) + "# the end",
    step("baseline", None) + 'summary = 3\n[[step]]\nvariant = """\n[[reference]]\n"""\n',
    '[[ "step" ]]\nvariant = "a"\n[[step.prediction]]\nfigure = "time" # [[reference]]\n\n\n',
)


@given(st.sampled_from(LADDERS), st.text(max_size=40), st.booleans())
@settings(max_examples=examples(30, many=3000))
def test_only_a_step_is_added_whatever_the_layout(text: str, change: str, foretold: bool) -> None:
    prediction = Prediction(figure="time", factor=(0.5, 0.75), range=None)
    asked = Step("b", "baseline", change, predictions=(prediction,) * foretold)
    added = step_text(asked)
    try:
        wanted: dict[str, Any] = tomllib.loads(added)
    except tomllib.TOMLDecodeError:  # characters that TOML has not; the verb refuses them before
        assert not change.isprintable()
        return
    now = with_step(Path("ablation.toml"), text, added)
    was = tomllib.loads(text)
    assert tomllib.loads(now) == {**was, "step": [*was["step"], *wanted["step"]]}
    for line in text.splitlines():
        assert line in now.splitlines()
    assert ("\r" in now) == ("\r" in text)
