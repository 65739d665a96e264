"""Shapes that a study does not list: how they are named, checked and kept."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from answers import Capsys, Patch, Told, error_of
from standin import Run, StandIn
from workbench.cli.main import main
from workbench.errors import UsageError
from workbench.run.protocol import VariantsJob
from workbench.study.model import Study
from workbench.study.params import pick_shapes
from workbench.study.workspace import find_workspace
from workspaces import GOOD, STUDY, make, rewrite, step

LADDER = "ablations/scale/ablation.toml"

SHAPES = """shapes = {
    "large": Shape(n=4096, rows=2, causal=False, dtype="float16"),
    "tall": Shape(n=64, rows=512, causal=False, dtype="float16"),
    "odd": Shape(profiled=False, n=1001, rows=1, causal=False, dtype="float16"),
}
"""


def write_study(root: Path, extra: str = "") -> None:
    text = re.sub("(?m)^shapes = .*$", lambda _: SHAPES, STUDY)
    (root / "kernels" / "scale" / "study.py").write_text(text + extra)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    eager = {"eager": "def run(x):\n    return x * 2\n"}
    made = make(tmp_path / "ws", {"baseline": GOOD, "wide": GOOD}, eager)
    write_study(made)
    reference = '[[reference]]\nvariant = "eager"\ntitle = "PyTorch"\nprimary = true\n'
    rewrite(made / LADDER, step("eager"), reference)
    return made


def study(root: Path) -> Study:
    return find_workspace(root).study()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n=1024..4096*2", ["n1024", "n2048", "large"]),
        ("n=1024", ["n1024"]),
        ("n=64,rows=512", ["tall"]),
        ("n=8,rows=1|2", ["n8-rows1", "n8"]),
        ("tall,n=128|64", ["tall-n128", "tall"]),
        ("causal=1,dtype=bfloat16", ["causal-dtype-bfloat16"]),
        ("n=1001,rows=1", ["n1001-rows1"]),  # the study's own is only checked
        ("tall", ["tall"]),
    ],
)
def test_a_derived_shape_has_a_stable_name(root: Path, text: str, names: list[str]) -> None:
    picked = pick_shapes(study(root), text)
    assert [each.name for each in picked] == names
    for each in picked:
        shape = each.study.shapes[each.name]
        assert shape.profiled
        assert (each.name in each.study.derived) == (each.name not in study(root).shapes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nn=4", "shape 'large' has no parameter 'nn'"),
        ("n=0", "'n' of a shape cannot be 0"),
        ("n=4..16", "is no range"),
        ("lrage", "unknown shape 'lrage'"),
        ("n=1..300+1", "300 combinations"),
        ("dtype=a/b", "is no name that a folder can have"),
    ],
)
def test_what_is_no_shape_says_why(root: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        pick_shapes(study(root), text)
    assert error.value.hint


def test_a_study_may_name_its_shapes_and_refuse_some(root: Path) -> None:
    rule = """

def shape_name(shape):
    if shape.n % 4:
        raise ValueError("n must be a multiple of 4")
    return f"{shape.rows}x{shape.n}"
"""
    write_study(root, rule)
    assert [each.name for each in pick_shapes(study(root), "n=8|16")] == ["2x8", "2x16"]
    with pytest.raises(UsageError, match=r"refuses the shape n=9.*n must be a multiple of 4"):
        pick_shapes(study(root), "n=9")


def linear(run: Run) -> float:
    """A microsecond an element, one in two for ``wide``."""
    n = 4096 if run.shape == "large" else int(run.shape.removeprefix("n"))
    return 10 + n / 1000 * {"baseline": 1, "wide": 0.5, "eager": 0.8}[run.variant]


@pytest.fixture
def gpu(monkeypatch: Patch) -> StandIn:
    return StandIn(monkeypatch, linear)


def test_a_range_is_checked_once_at_the_shapes_where_everything_is_checked(
    gpu: StandIn, told: Told
) -> None:
    """And again when it is asked again: what is on record may be of another day."""
    for _ in range(2):
        gpu.jobs.clear()
        told("check", "wide", "--shape", "n=1024..4096*2")
        at = [job.check_shapes for job in gpu.jobs if isinstance(job, VariantsJob)]
        first, *others = at
        assert len(first) > 1
        assert [shapes for shapes in others if len(shapes) != 1] == []
        assert len(others) == 2


def test_what_current_evidence_says_of_other_shapes_is_not_checked_again(
    root: Path, gpu: StandIn, told: Told
) -> None:
    """``--fresh`` checks everywhere; so does a changed source."""

    def checked_at(*options: str) -> list[list[str]]:
        gpu.jobs.clear()
        told("ablate", *options)
        return [sorted(job.check_shapes) for job in gpu.jobs if isinstance(job, VariantsJob)]

    gpu.time = lambda run: 10.0
    everywhere = ["large", "odd", "tall"]
    assert checked_at() == [everywhere]
    assert checked_at("--shape", "tall") == [["tall"]]
    assert checked_at("--shape", "tall", "--fresh") == [everywhere]
    (root / "kernels" / "scale" / "wide.py").write_text(f"{GOOD}# changed\n")
    assert checked_at("--shape", "tall") == [everywhere]


def test_a_step_that_is_wrong_as_declared_fails_no_command(
    root: Path, gpu: StandIn, told: Told
) -> None:
    gpu.wrong = lambda run: run.variant == "wide"
    told("ablate", code=1)
    rewrite(root / LADDER, 'variant = "wide"\n', 'variant = "wide"\nexpected = "wrong"\n')
    told("ablate", "--fresh")


def test_what_is_known_of_a_derived_shape_outlives_other_measurements(
    gpu: StandIn, told: Told
) -> None:
    told("ablate", "wide", "--shape", "n=1024")
    assert next(job.derived for job in gpu.jobs if job.shape == "n1024") == {
        "n1024": {"n": 1024, "rows": 2, "causal": False, "dtype": "float16"}
    }
    (listed,) = told("list")["studies"]
    assert listed["shapes"] == ["large", "tall", "odd"], "none that is derived"
    assert all(not each["evidence"] for each in listed["variants"])
    told("ablate", "--fresh")
    gpu.timed.clear()
    gpu.checked.clear()
    told("ablate", "wide", "--shape", "n=1024")
    assert gpu.checked == []
    assert gpu.timed == []


def test_a_change_of_the_study_makes_a_derived_shape_stale(
    gpu: StandIn, root: Path, told: Told
) -> None:
    told("ablate", "wide", "--shape", "n=1024")
    gpu.timed.clear()
    write_study(root, "\nOTHER = 1\n")
    told("ablate", "wide", "--shape", "n=1024")
    assert len(gpu.timed) == 1


def test_check_takes_a_range(gpu: StandIn, told: Told) -> None:
    checks = told("check", "wide", "--shape", "n=512|1024")["checks"]
    assert {c["shape"]: c["status"] for c in checks} == {"n512": "correct", "n1024": "correct"}


def test_a_baseline_is_timed_beside_what_is_profiled_and_not_captured(
    gpu: StandIn, root: Path
) -> None:
    """A baseline of seconds a call would take ncu minutes at a large shape."""
    for end in (".py", ".cu"):
        wide = root / "kernels" / "scale" / f"wide{end}"
        shutil.copy(wide, wide.with_stem("last"))
    with (root / LADDER).open("a") as ladder:
        ladder.write(f"\n{step('last', 'wide')}")
    gpu.time = lambda run: 10.0
    assert main(["profile", "last", "--shape", "n=1024", "--project", str(root)]) == 0
    assert gpu.captured == ["last", "wide", "eager"]
    assert gpu.timed == [["last", "wide", "eager", "baseline"]]


def test_what_is_timed_only_where_asked_is_checked_there_where_asked(
    gpu: StandIn, root: Path, told: Told, capsys: Capsys
) -> None:
    path = root / "kernels" / "scale" / "study.py"
    rewrite(path, "Shape(n=64,", "Shape(captured=False, n=64,")
    everywhere = dict.fromkeys(("large", "tall", "odd"), "correct")
    for words, wanted in (
        ((), everywhere | {"tall": "not collected"}),
        (("--all-shapes",), everywhere),
    ):
        checks = told("check", "wide", *words)["checks"]
        assert {c["shape"]: c["status"] for c in checks} == wanted
    both = error_of(capsys, "check", "--all-shapes", "--shape", "tall", project=root)
    assert "exclude each other" in both


def test_one_shape_is_wanted_where_one_is_measured_or_shown(root: Path, capsys: Capsys) -> None:
    for verb in ("show", "profile", "ablate"):
        err = error_of(capsys, verb, "wide", "--shape", "n=1|2", project=root)
        assert "names 2 shapes, and this command takes one" in err
        assert "here give each parameter one value" in err


def test_a_single_derived_shape_is_as_any_other(gpu: StandIn, root: Path, told: Told) -> None:
    judged = told("ablate", "--shape", "n=1024")
    own = {"name": "n1024", "n": 1024, "rows": 2, "causal": False, "dtype": "float16"}
    assert judged["shape"] == own
    times = {row["variant"]: row["microseconds"]["value"] for row in judged["variants"]}
    assert times["wide"] == pytest.approx(10.5, rel=0.01)
    assert (root / "reports" / "scale" / "n1024" / "OPTIMIZATION_REPORT.md").is_file()
    assert told("show", "wide", "--shape", "n=1024")["variant"] == "wide"
    assert told("diff", "baseline", "wide", "--shape", "n=1024")["speedup"]["ratio"] > 1


@pytest.mark.parametrize(
    ("text", "told"),
    [("n=4", "its 'rows' is a list"), ("rows=4", "shape 'large' has no parameter 'rows'")],
)
def test_a_shape_of_more_than_numbers_and_strings_is_not_varied(
    text: str, told: str, root: Path
) -> None:
    rewrite(root / "kernels" / "scale" / "study.py", "rows=2", "rows=[2, 3]")
    with pytest.raises(UsageError, match=told):
        pick_shapes(study(root), text)
