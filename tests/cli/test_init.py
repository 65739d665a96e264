"""``workbench init``: a workspace that runs as it is, and overwrites nothing."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from answers import Capsys, Patch, error_of, json_of, not_none, refused
from workbench.cli.init import starters
from workbench.cli.main import main
from workbench.run import machine
from workbench.study.values import tolerance_at
from workbench.study.workspace import find_workspace, load_module
from workspaces import contents

TEMPLATES = ("cuda", "triton", "torch")


def made(root: Path, template: str = "cuda") -> Path:
    assert main(["init", str(root), "--template", template]) == 0
    return root


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_a_workspace_without_a_word_of_configuration(
    template: str, tmp_path: Path
) -> None:
    workspace = find_workspace(made(tmp_path / "rows", template))
    study = workspace.study()
    assert workspace.config.study == ""
    assert [step.variant for step in study.ladder.steps] == ["baseline", "fix1"]
    assert study.ladder.primary_reference == "builtin"
    checked = [shape for shape in study.shapes.values() if not shape.profiled]
    assert any(shape.columns % 2 and shape.rows % 2 for shape in checked)
    assert study.work(study.default_shape).bytes > 50e6  # more than an L2 holds


def test_there_are_no_other_templates() -> None:
    assert {p.name for p in starters().iterdir()} == {"agents", "common", *TEMPLATES}


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_fix_to_fill_in_is_a_copy_and_says_so(template: str, tmp_path: Path) -> None:
    study = find_workspace(made(tmp_path, template)).study()
    step = not_none(study.ladder.step("fix1"))
    assert "still a copy of baseline" in step.key_change

    def code(name: str) -> str:
        text = (study.folder / name).read_text()
        bare = re.sub(r'^""".*?"""|^\s*(//|#(?!include)).*$', "", text, flags=re.MULTILINE)
        return "\n".join(line for line in bare.splitlines() if line.strip())

    assert code("fix1.py") == code("baseline.py").replace("baseline.cu", "fix1.cu")
    texts = [path.read_text() for path in sorted(study.folder.glob("fix1.*"))]
    assert sum(text.count("To change: ") for text in texts) == 1
    if template == "cuda":
        assert code("fix1.cu") == code("baseline.cu")


def test_the_cuda_template_compiles_without_a_word(
    tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    root = made(tmp_path)
    capsys.readouterr()
    builds = json_of(capsys, "build", project=root)["builds"]
    assert [b["variant"] for b in builds] == ["baseline", "fix1"]
    assert all(b["kernels"] and not b["warnings"] and not b["error"] for b in builds)


def test_the_torch_template_is_right_at_every_odd_shape(tmp_path: Path) -> None:
    """Baseline, fix and reference on the CPU, against the float64 reference."""
    study = find_workspace(made(tmp_path, "torch")).study()
    for name in ("odd", "narrow", "one"):
        shape = study.shapes[name]
        bound = tolerance_at(study.tolerance, shape)
        plain = study.module.inputs(shape, torch.Generator().manual_seed(1))
        for kind in (None, *study.module.adversarial.values()):
            given = kind(plain, None) if kind else plain
            wanted = study.module.reference(**given)
            for variant in study.variants.values():
                out = load_module(variant.module, f"starter_{variant.name}").run(**given)
                assert out.dtype == torch.float16
                assert (out.double() - wanted).abs().max() <= bound.absolute
                assert (out.double() - wanted).norm() <= bound.relative * wanted.norm()


def test_an_adversarial_kind_breaks_what_it_is_there_for(tmp_path: Path) -> None:
    study = find_workspace(made(tmp_path)).study()
    plain = study.module.inputs(study.shapes["narrow"], torch.Generator().manual_seed(1))
    loud = study.module.adversarial["loud"](plain, None)["x"]
    assert not torch.isfinite((loud * loud).sum(-1)).all()  # squares in fp16
    silent = study.module.adversarial["silent"](plain, None)["x"]
    assert (silent == 0).all(-1).any()
    assert (plain["x"] != 0).any(-1).all()


def test_what_is_there_is_left_alone_and_named(tmp_path: Path, capsys: Capsys) -> None:
    mine = ("kernels/rmsnorm/baseline.cu", "workbench.toml", "notes.txt")
    (tmp_path / "kernels" / "rmsnorm").mkdir(parents=True)
    for name in mine:
        (tmp_path / name).write_text("# mine\n")
    (tmp_path / ".gitignore").write_text("*.o\n__pycache__/")
    made(tmp_path)
    out = capsys.readouterr().out
    kept = [line.split(": ")[1] for line in out.splitlines() if "left alone" in line]
    assert sorted(kept) == ["kernels/rmsnorm/baseline.cu", "workbench.toml"]
    assert {(tmp_path / name).read_text() for name in mine} == {"# mine\n"}
    ignored = (tmp_path / ".gitignore").read_text().splitlines()
    assert ignored == ["*.o", "__pycache__/", "reports/*/*/"]


def test_a_folder_with_any_name_beside_a_workspace(
    tmp_path: Path, monkeypatch: Patch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The command that it ends with goes there, though the name is no UTF-8 and has a quote."""
    made(tmp_path / "one")
    monkeypatch.chdir(tmp_path / "one")
    assert main(["init", os.fsdecode(b"../it's \xff \n\\")]) == 0
    command = capfdbinary.readouterr().out.split(b"next,")[1].split(b": ")[1]
    goes, _, then = command.rpartition(b" && ")
    assert then.startswith(b"workbench ablate\n")
    shown = subprocess.run(["bash", "-c", goes + b" && ls"], capture_output=True, check=True)
    assert b"workbench.toml" in shown.stdout


def test_its_json_says_what_was_done(tmp_path: Path, capsys: Capsys) -> None:
    told = json_of(capsys, "init", str(tmp_path), "--template", "triton")
    assert told["study"] == "rmsnorm"
    assert told["left_alone"] == []
    assert all((tmp_path / name).is_file() for name in told["written"])
    assert "workbench.toml" in told["written"]


def test_a_workspace_is_not_made_twice(tmp_path: Path, capsys: Capsys) -> None:
    before = contents(made(tmp_path))
    err = refused(capsys, "init", str(tmp_path), "--template", "torch")
    assert "has a study already: rmsnorm" in err
    assert "workbench new" in err
    assert contents(tmp_path) == before


def test_an_unknown_template_names_the_nearest(tmp_path: Path, capsys: Capsys) -> None:
    err = refused(capsys, "init", str(tmp_path), "--template", "trition")
    assert "unknown template 'trition'" in err
    assert "did you mean 'triton'?" in err
    assert "known: cuda, torch, triton" in refused(capsys, "init", "--template", "opencl")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "kernels").write_text("mine")
    assert f"{tmp_path / 'kernels'} is a file" in refused(capsys, "init", str(tmp_path))
    (tmp_path / "file").write_text("mine")
    assert f"{tmp_path / 'file'} is a file" in refused(capsys, "init", str(tmp_path / "file"))
    assert (tmp_path / "kernels").read_text() == (tmp_path / "file").read_text() == "mine"


def stopped_after(files: int, error: BaseException) -> Callable[[int], None]:
    """Writes so many files, and then half of one: Ctrl-C comes anywhere."""
    left = [files]

    def write(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
            raise error

    return write


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("options", [(), ("--agents",)])
@pytest.mark.parametrize("files", [0, 1, 5])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (FULL, 3)])
def test_what_was_interrupted_leaves_nothing_and_can_be_made_again(
    error: BaseException,
    code: int,
    files: int,
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    (tmp_path / "kernels").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stopped_after(files, error))
        assert main(["init", str(tmp_path), *options]) == code
    assert [path.name for path in tmp_path.rglob("*")] == ["kernels"]
    made(tmp_path)
    assert find_workspace(tmp_path).study().name == "rmsnorm"


@pytest.mark.gpu
@pytest.mark.parametrize("template", TEMPLATES)
def test_on_a_gpu_a_template_goes_to_a_report_without_an_edit(
    template: str, tmp_path: Path, capsys: Capsys
) -> None:
    root = made(tmp_path, template)
    capsys.readouterr()
    told = json_of(capsys, "ablate", project=root)
    baseline, fix = told["variants"]
    assert {row["status"] for row in (baseline, fix, *told["references"])} == {"current"}
    assert fix["verdict"] in ("slower", "no_gain", "inconclusive")  # a copy
    assert fix["stalls"]
    report = root / "reports" / "rmsnorm" / "OPTIMIZATION_REPORT.md"
    assert "still a copy of baseline" in report.read_text()


@pytest.mark.parametrize(
    ("template", "code", "told"),
    [
        ("torch", 0, "checked fix1: correct at "),
        ("triton", 0, "checked fix1: correct at "),
        ("cuda", 3, "no step can be checked here: CUDA C needs a GPU"),
    ],
)
def test_a_new_workspace_is_checked_on_the_cpu(
    template: str, code: int, told: str, tmp_path: Path, trials_here: None, capsys: Capsys
) -> None:
    root = made(tmp_path, template)
    study = root / "kernels" / "rmsnorm" / "study.py"
    text = study.read_text()
    for size, smaller in {"4096": "256", "1001": "101", "4095": "255", "8193": "257"}.items():
        assert size in text
        text = text.replace(size, smaller)
    study.write_text(text)
    if template == "triton" and find_spec("triton") is None:
        code, told = 3, "needs triton, which is not installed"
    assert main(["check", "--project", str(root)]) == code
    assert told in capsys.readouterr().err
    if template == "torch":
        path = root / "kernels" / "rmsnorm" / "fix1.py"
        path.write_text(path.read_text().replace("+ eps", "- eps").replace("wide * scale", "wide"))
        assert "error: fix1: wrong at" in error_of(capsys, "check", "fix1", project=root, code=1)


def test_without_torch_the_check_says_how_to_get_it(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(machine, "missing_to_run", lambda: ["torch"])
    told = error_of(capsys, "check", "--project", str(made(tmp_path, "torch")), code=3)
    assert "error: torch is not installed" in told
    assert "hint: pip install torch" in told
