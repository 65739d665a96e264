"""``@wb.variant``: a function of a script or notebook becomes a module, or is refused."""

from __future__ import annotations

import linecache
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.main import main
from workbench.errors import UsageError
from workbench.study.workspace import find_workspace, load_module

HEAD = """from __future__ import annotations

import math
import torch
import torch.nn.functional as F
import workbench as wb

"""
TAKE = '@wb.variant(name="fused", parent="baseline", change="one call", predict="time=0.2..0.5")\n'
FUSED = """def fused(x: torch.Tensor, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "rows"
    assert main(["init", str(folder), "--template", "torch"]) == 0
    monkeypatch.chdir(folder)
    return folder


def script(root: Path, text: str) -> dict[str, Any]:
    path = root / "demo.py"
    path.write_text(HEAD + text)
    linecache.checkcache()
    return runpy.run_path(str(path), run_name="demo")


def module(root: Path) -> str:
    return (root / "kernels" / "rmsnorm" / "fused.py").read_text()


def test_a_function_becomes_a_variant_and_a_step(root: Path) -> None:
    bound = script(root, TAKE + FUSED)
    assert module(root) == (
        "# From fused() of demo.py by @workbench.variant: change it there, not here.\n\n"
        "from __future__ import annotations\nimport torch.nn.functional as F\n\n"
        f"{FUSED}\nrun = fused\n"
    )
    study = find_workspace(root).study()
    step = study.ladder.step("fused")
    assert step is not None
    assert (step.parent, step.key_change, len(step.predictions)) == ("baseline", "one call", 1)
    import torch

    given = study.module.inputs(study.shapes["narrow"], torch.Generator().manual_seed(1))
    taken = load_module(study.folder / "fused.py", "taken")
    assert torch.equal(taken.run(**given), bound["fused"](**given))


def test_it_takes_what_the_function_names_and_nothing_else(root: Path) -> None:
    text = (
        "unused = [1] * 10**6\nEPS = 1e-6\nTWICE = EPS * 2\n\n"
        "def unwanted():\n    return unused\n\n"
        "def helper(y):\n    unused = TWICE\n    return y * unused\n\n"
        "class Scale:\n    by = math.sqrt(4)\n\n"
    )
    used = "def fused(x, weight, eps):\n    return later(helper(x) * Scale.by)\n\n"
    script(root, text + TAKE + used + "def later(y):\n    return y + 1\n\nprint(fused)\n")
    taken = module(root)
    order = ["import math", "EPS =", "TWICE =", "def helper", "class Scale", "def fused"]
    places = [taken.index(word) for word in [*order, "def later", "run = fused"]]
    assert places == sorted(places)
    for word in ("10**6", "unwanted", "import workbench", "@wb", "print", "torch"):
        assert word not in taken.partition("\n")[2]


def test_other_decorators_and_the_name_run_stay(root: Path) -> None:
    text = f"{TAKE}@torch.no_grad()\ndef run(x, weight, eps):\n    return x\n"
    script(root, text)
    assert "@torch.no_grad()\ndef run(" in module(root)
    assert "run = run" not in module(root)


def test_run_again_the_module_follows_the_function(root: Path) -> None:
    script(root, TAKE + FUSED)
    ladder = root / "ablations" / "rmsnorm" / "ablation.toml"
    before = ladder.read_text()
    first = module(root)
    script(root, "# a line more\n" + TAKE + FUSED)
    assert module(root) == first  # and its evidence stays current
    script(root, TAKE + FUSED.replace("shape, weight, eps)", "shape, weight, 2 * eps)"))
    assert "2 * eps" in module(root)
    assert ladder.read_text() == before


class Cells:
    """A notebook: cells are run one by one, with their text in linecache and in ``In``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        main_module = sys.modules["__main__"]
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.cells: list[str] = [""]
        monkeypatch.setattr(main_module, "In", self.cells, raising=False)

    def run(self, text: str) -> None:
        self.cells.append(text)
        file = f"<ipython-input-{len(self.cells)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.names)


def test_a_function_of_a_notebook_is_taken_with_other_cells(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Cells(monkeypatch)
    notebook.run("import torch, workbench as wb")
    notebook.run("EPS = 1")
    notebook.cells.append("not python at all !")
    notebook.run("EPS = 2")
    notebook.run(TAKE + "def fused(x, weight, eps):\n    return torch.rsqrt(x + EPS)\n")
    taken = module(root)
    assert taken.startswith("# From fused() of a notebook by @workbench.variant")
    assert "EPS = 2" in taken
    assert "EPS = 1" not in taken
    assert "import torch" in taken


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (
            "weights = torch.ones(4)\n" + TAKE + "def fused(x, weight, eps):\n    return weights\n",
            "needs 'weights', a Tensor that was computed",
            "an input of the study",
        ),
        (
            "table = list(range(10**5))\n" + TAKE + "def fused(x, weight, eps):\n    table\n",
            "needs 'table', a list that was computed",
            "an input of the study",
        ),
        (
            "model = torch.nn.Linear(2, 2)\n" + TAKE + "def fused(x, weight, eps):\n    model(x)\n",
            "needs 'model', a Linear that was computed",
            "an input of the study",
        ),
        (
            "def outer(big):\n    "
            + TAKE
            + "    def fused(x, weight, eps):\n        return big\n\nouter(3)\n",
            "uses big of the function around it",
            "an input of the study",
        ),
        (
            "def outer():\n    "
            + TAKE
            + "    def fused(x, weight, eps):\n        return x\n\nouter()\n",
            "is defined inside of another function",
            "at the top level",
        ),
        (
            "for EPS in (1, 2):\n    pass\n"
            + TAKE
            + "def fused(x, weight, eps):\n    return EPS\n",
            "needs 'EPS', which demo.py:8 binds within other code",
            "a statement of its own",
        ),
        (
            "from beside import helper\n" + TAKE + "def fused(x, weight, eps):\n    helper()\n",
            "needs 'helper' of beside.py, which only code in that folder can import",
            "install it as a package",
        ),
        (
            "from math import *\n" + TAKE + "def fused(x, weight, eps):\n    return hypot(x, x)\n",
            "needs 'hypot', which no statement at the top level binds",
            "not by a star",
        ),
        (
            "from workbench import cuda\n\nkernel = cuda.kernel('beside.cu', 'f')\n"
            + TAKE
            + "def fused(x, weight, eps):\n    kernel[1, 1](x)\n",
            "beside.cu lies beside the script",
            "move it there: mv ",
        ),
        (TAKE[1:].strip() + "(lambda x, weight, eps: x)\n", "no function with a def", "write def"),
        (
            TAKE.replace("baseline", "basline") + FUSED,
            "unknown step 'basline'",
            "did you mean 'baseline'",
        ),
        (TAKE.replace("one call", "") + FUSED, "needs its key change", "such as"),
        (TAKE.replace("time=", "tme=") + FUSED, "'tme' is no figure", "did you mean 'time'"),
        (TAKE.replace("fused", "fix-1") + FUSED, "no name for a variant", "letters"),
        (TAKE.replace("fused", "fix1") + FUSED, "was not written from a function", "another name"),
        (
            TAKE.replace("fused", "fix1").replace("baseline", "fix1") + FUSED,
            "builds on 'baseline', not on 'fix1'",
            "another name",
        ),
        (TAKE.replace("fused", "builtin") + FUSED, "'builtin' is a variant", "fix2"),
    ],
)
def test_what_cannot_be_taken_along_is_refused_with_a_way_out(
    root: Path, text: str, words: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "beside.cu").write_text("")
    (root / "beside.py").write_text("def helper():\n    pass\n")
    monkeypatch.syspath_prepend(str(root))
    before = {path: path.read_bytes() for path in root.glob("[ak]*/**/*") if path.is_file()}
    with pytest.raises(UsageError) as caught:
        script(root, text)
    sys.modules.pop("beside", None)
    assert words in caught.value.message
    assert hint in caught.value.hint
    now = {p: p.read_bytes() for p in root.glob("[ak]*/**/*") if p.suffix in (".py", ".toml")}
    assert now.items() <= before.items()


def test_code_without_a_source_is_refused(root: Path) -> None:
    names: dict[str, Any] = {}
    with pytest.raises(UsageError, match="there is no source of fused") as caught:
        exec(HEAD + TAKE + FUSED, names)
    assert "prompt" in caught.value.hint


def test_outside_a_workspace_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no workspace here") as caught:
        script(tmp_path, TAKE + FUSED)
    assert "workbench init" in caught.value.hint
