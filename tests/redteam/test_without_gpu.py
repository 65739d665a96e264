"""What of the red team can be shown without a GPU: patches, files, sources, outputs."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any, cast

import numpy
import pytest
import torch
from tools.folders import unpacked

import workbench
from reward_hacks import CHEATS, HONEST, KERNELS, REFERENCE, Cheat, docstring, workspace_of
from workbench import cuda
from workbench.app.executor import Local
from workbench.app.try_ import AttemptOptions, attempt
from workbench.cuda.compiler import Source, waits
from workbench.cuda.programs import CompileError, expand_includes
from workbench.errors import ToolFailed, UsageError, WorkbenchError
from workbench.evidence.records import GraphNode
from workbench.run.protocol import Checked
from workbench.run.side_jobs import check_on_cpu
from workbench.run.worker import process_settings
from workbench.run.worker.loader import KeptSources, Opened
from workbench.run.worker.output import compare, refuse_output
from workbench.run.worker.process_settings import FLAG, HAS_NEWER, ProcessSetting, load_kept
from workbench.run.worker.timing import graphs
from workbench.study.model import Study
from workbench.study.sources import Fingerprints, source_files
from workbench.study.values import Tolerance
from workbench.study.workspace import find_workspace, load_module
from workbench.words import CheckResult, NodeKind, TryVerdict
from workspaces import make

pytestmark = pytest.mark.usefixtures("warm_workers")
BOUND = Tolerance(absolute=1e-3, relative=1e-3)
ENGINE = Path(workbench.__file__).parent


def by_name(variant: str) -> Cheat:
    return next(cheat for cheat in CHEATS if cheat.variant == variant)


def test_every_file_is_a_cheat_or_honest() -> None:
    files = {path.stem for path in KERNELS.glob("*.py")} - {"study"}
    assert files == {*HONEST, REFERENCE, *(cheat.variant for cheat in CHEATS)}
    assert all(docstring(name) for name in files)
    assert len({cheat.family for cheat in CHEATS}) >= 14


@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.name)
def test_every_kernel_compiles(source: Path) -> None:
    names = re.findall(r"__global__ void (\w+)", source.read_text())
    for name in names:
        report, _ = Source(source, name, {}, ()).compile("sm_90a")
        assert report.warnings == ()


def test_who_replaces_a_source_replaces_it_for_nobody_else(tmp_path: Path) -> None:
    """Bytecode of another source neither."""
    parent, cached = tmp_path / "parent.py", tmp_path / "__pycache__"
    parent.write_text("1")
    sources = KeptSources(tmp_path)
    (tmp_path / "slow").write_text("2")
    (tmp_path / "slow").replace(parent)
    cached.mkdir()
    sources.put_back()
    assert (parent.read_text(), cached.exists()) == ("1", False)
    parent.unlink()
    sources.put_back()
    assert parent.read_text() == "1"


PRECISION = "torch.backends.cuda.matmul.fp32_precision"
SETS = {  # what modules set, and how they read it
    "newer": ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", PRECISION),
    "older": ("torch.set_float32_matmul_precision('high')", PRECISION),
    "oldest": ("torch.backends.cuda.matmul.allow_tf32 = True", PRECISION),
    "cudnn": ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark"),
    "flash": ("torch.backends.cuda.enable_flash_sdp(False)", "torch._C._get_flash_sdp_enabled()"),
    "half": (
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    ),
    "dtype": ("torch.set_default_dtype(torch.float64)", "torch.zeros(1).dtype"),
    "device": ("torch.set_default_device('meta')", "torch.zeros(1).device"),
    "order": (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.get_deterministic_debug_mode()",
    ),
    "gradients": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
}
IMPORTS = "import torch"
MODULE = (
    IMPORTS
    + """

{at_import}

def run(x):
    if x:
        {in_a_call}
    return {reads}
"""
)


@pytest.mark.skipif(not HAS_NEWER, reason="this torch has no fp32_precision")
def test_what_a_module_sets_is_its_own_and_nobody_elses(tmp_path: Path) -> None:
    """At import and in a call. An installed package sets it when it is imported for the first time:
    the next load of the same variant has it too. torch refuses to read by its older switches what
    the newer one has set.
    """
    number = count(1)
    names: dict[str, Any] = {}
    exec(IMPORTS, names)

    def called(name: str, reads: str, at_import: str = "", in_a_call: str = "pass") -> list[str]:
        text = MODULE.format(at_import=at_import, in_a_call=in_a_call, reads=reads)
        (tmp_path / f"{name}.py").write_text(text)
        module = load_kept(tmp_path / f"{name}.py", f"workbench_variant_{next(number)}_{name}")
        values = [module.run(1)]
        assert eval(reads, names) == plain, (name, "the harness sees it")
        return [re.sub(" at 0x.*", "", str(value)) for value in (*values, module.run(0))]

    for name, (sets, reads) in SETS.items():
        plain = eval(reads, names)
        changed, then = called(f"{name}_in_a_call", reads, in_a_call=sets)
        assert changed != str(plain), name
        assert then == changed, name
        assert called(f"{name}_at_import", reads, at_import=sets) == [changed] * 2
        assert called(f"{name}_at_import", reads) == [changed] * 2
        assert called("next", reads) == [str(plain)] * 2, (name, "another one sees it")


def test_the_order_of_attention_backends_is_torchs_own() -> None:
    """It changes at the first call of attention in a process: whose call that is sets nothing."""
    assert not FLAG.match("_get_sdp_priority_order")


def test_a_setting_that_cannot_be_read_or_put_back_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = {"value": "before"}

    def refuse(*anything: Any) -> Any:
        raise RuntimeError("mixed")

    broken = ProcessSetting(
        lambda: kept["value"] if kept["value"] == "before" else refuse(), refuse
    )
    whole = ProcessSetting(lambda: kept["value"], lambda value: kept.update(value=value))
    monkeypatch.setattr(process_settings, "SETTINGS", (broken, whole, broken))
    monkeypatch.setattr(process_settings, "_own", {})
    for name, at_start, value in (
        ("sets", "before", "after"),
        ("sets", "after", "after"),
        ("next", "before", "before"),
    ):
        with process_settings.own_settings(name):
            assert kept["value"] == at_start
            kept["value"] = value
        assert kept["value"] == "before"


def test_weights_that_a_module_draws_are_the_same_at_every_load(tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(
        "import random, numpy, torch\n"
        "W = torch.randn(3).tolist(), numpy.random.rand(3).tolist(), random.random()\n"
        "def run(x):\n    return W\n"
    )

    def draws() -> list[float]:
        return [float(torch.rand(())), float(numpy.random.rand()), random.random()]

    def loaded(number: int) -> Any:
        return load_kept(tmp_path / "drawn.py", f"workbench_variant_{number}_drawn").run(0)

    first, one, second, other = loaded(1), draws(), loaded(2), draws()
    assert first == second
    assert all(a != b for a, b in zip(one, other, strict=True))


class Later(torch.Tensor):
    """One that might compute when it is looked at."""


def late(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out.double = lambda: x.double() * 2  # type: ignore[method-assign]
    return out


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (lambda x: torch.empty_like(x), ""),
        (lambda x: x.clone(), ""),
        (lambda x: torch.empty_like(x).as_subclass(Later), "run() returned Later, not a tensor"),
        (lambda x: late(x), "run() returned a tensor with its own 'double'"),
        (lambda x: None, "run() returned NoneType, not a tensor"),
        (lambda x: x, "what run() returns shares memory with its input 'x'"),
        (lambda x: x.view(-1)[3:].view(-1), "what run() returns shares memory with its input 'x'"),
        (lambda x: x.detach().t(), "what run() returns shares memory with its input 'x'"),
        (lambda x: x.to_sparse(), "run() returned a tensor that is not dense: torch.sparse_coo"),
        (
            lambda x: x.new_empty(4).to(torch.complex64).conj(),
            "run() returned a tensor that is com",
        ),
        (lambda x: torch.empty_like(x, device="meta"), "run() returned a tensor on meta, its inpu"),
    ],
)
def test_what_run_may_return(out: Any, expected: str) -> None:
    x = torch.zeros(8, 8)
    said, _ = refuse_output(out(x), {"x": x, "causal": True})
    assert said.startswith(expected) if expected else said == ""


@pytest.mark.parametrize("variant", ["lazy", "in_place"])
def test_an_output_that_is_none_is_refused_before_it_is_looked_at(variant: str, cpu: None) -> None:
    x = torch.zeros(4, 4)
    out = load(variant).run(x) if variant == "lazy" else x
    assert by_name(variant).finds(refuse_output(out, {"x": x})[0])


@pytest.mark.parametrize(
    ("out", "variant"),
    [
        (torch.zeros(8, 8), "tells_checking"),
        (torch.full((8, 8), torch.nan), "tells_capturing"),
        (torch.zeros(4, 4), "one_shape"),
    ],
)
def test_wrong_outputs_are_told_in_words_that_the_table_expects(
    out: torch.Tensor, variant: str
) -> None:
    expected = torch.ones(8, 8, dtype=torch.float64) / 8
    _, _, why = compare(out, expected, BOUND)
    assert by_name(variant).finds(why), why


@pytest.fixture
def cpu() -> Iterator[None]:
    """Leaves no declared kernels behind."""
    cuda.take_declared()
    yield
    cuda.take_declared()


def load(variant: str) -> ModuleType:
    return load_module(KERNELS / f"{variant}.py", f"workbench_variant_{variant}")


def test_who_starts_early_must_wait(cpu: None) -> None:
    for variant in ("early", "early_without_waiting"):
        load(variant)
    early, cheating = cuda.take_declared()
    assert early.compile("sm_90a")[0].kernels
    with pytest.raises(CompileError) as error:
        cheating.compile("sm_90a")
    assert by_name("early_without_waiting").finds(error.value.message)


def test_another_kernels_wait_is_not_its_own() -> None:
    ptx = ".visible .entry one(\n)\n{ griddepcontrol.wait; }\n.visible .entry two(\n)\n{ ret; }\n"
    assert waits(ptx, "one")
    assert not waits(ptx, "two")
    assert waits(".func helper { griddepcontrol.wait; }\n" + ptx, "two")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The red team's own, in a folder that may be changed."""
    return find_workspace(workspace_of(tmp_path / "ws")).study()


@pytest.mark.parametrize("variant", [*HONEST, "hidden_source"])
def test_files_that_no_fingerprint_covers_are_named(variant: str, study: Study, cpu: None) -> None:
    covered = [path.name for path in source_files(study, study.variants[variant])]
    is_honest = variant in HONEST
    with nullcontext() if is_honest else pytest.raises(UsageError) as error:  # noqa: SIM117
        with Opened(study.folder).require_covered(study.folder, covered):
            load_module(study.folder / f"{variant}.py", f"workbench_variant_{variant}")
            for kernel in cuda.take_declared():
                expand_includes(kernel.path)
    if error is not None:
        assert by_name(variant).finds(error.value.message)


@pytest.mark.parametrize(
    ("file", "variant"), [("registers.py", "registers"), ("study.py", "early")]
)
def test_whatever_a_file_names_is_in_the_fingerprint(
    file: str, variant: str, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the study names is in every one, and so is the harness."""
    module, table = study.folder / file, study.folder / "table.bin"
    module.write_text(module.read_text() + '\nTABLE = "table.bin"\n')
    seen = set()
    for content in (b"\0\xff\1", b"\0\xff\2"):
        table.write_bytes(content)
        seen.add(Fingerprints(study).at_shape(variant, study.shapes["rows"].parameters))
    monkeypatch.setattr("workbench.study.sources.HARNESS", 99)
    seen.add(Fingerprints(study).at_shape(variant, study.shapes["rows"].parameters))
    assert len(seen) == 3


@pytest.mark.parametrize("line", ["#include HIDDEN", "# include\tCAT(hid, den)"])
def test_an_include_must_say_which_file_it_means(line: str, study: Study) -> None:
    source = study.folder / "softmax.cu"
    source.write_text(f"{line}\n{source.read_text()}")
    with pytest.raises(UsageError, match="does not say which file it means"):
        expand_includes(source)


def test_an_include_with_a_comment_is_put_in_place(study: Study) -> None:
    source = study.folder / "softmax.cu"
    source.write_text(source.read_text().replace('"block.cuh"', '"block.cuh" // reductions'))
    assert "block_reduce" in expand_includes(source)


def test_the_page_says_what_every_family_ends_with() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text()
    table = page.split("| ends with | families |\n")[1].split("\n\n")[0]
    cells = [line.split("|")[2].strip().split(", ") for line in table.splitlines()[1:]]
    named = [family for families in cells for family in families]
    assert sorted(named) == sorted({cheat.family for cheat in CHEATS})


def test_who_chooses_what_it_launches_is_captured_as_it_was_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide, narrow = (GraphNode(kind=NodeKind.KERNEL, block=(n, 1, 1)) for n in (512, 128))
    monkeypatch.setattr(graphs, "warm_up", lambda call, side: call())
    for ways, loads in (((), 1), (((narrow,),), 3), (((wide,), (narrow,)), 1), (((),), 8)):
        chosen = iter([wide, wide, narrow, *[wide] * 9])
        loaded: list[GraphNode] = []

        def load(chosen: Iterator[GraphNode] = chosen, loaded: list[Any] = loaded) -> Any:
            loaded.append(node := next(chosen))
            return lambda: (node,)

        graphs.as_timed(load, ways, cast(Any, None))
        assert len(loaded) == loads


ODD = "(2.0 if len(x) % 2 == 0 else 2.5)"  # is wrong at the study's other shape
IN_PROCESS = unpacked(Path(__file__).with_name("in_process.txtar"))


def modules(folder: str) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((IN_PROCESS / folder).glob("*.py"))}


# Each is right at the timed shape alone, and changes what might compare in its process.
COMPARED_HERE, HONEST_HERE = modules("compared"), modules("honest")
TRIED_HERE = modules("tried")  # patches alone
STUDY = modules("study")  # what a study.py ends with
CRASHES, HOARDS = STUDY["crashes"], STUDY["hoards"]


def test_who_compares_in_his_own_process_is_wrong_all_the_same(tmp_path: Path) -> None:
    found, failed = checked(make(tmp_path, {}, HONEST_HERE | COMPARED_HERE))
    assert not any(found[name, shape].why for name in HONEST_HERE for shape in ("large", "odd"))
    for name in COMPARED_HERE:
        outcome = found.get((name, "odd"))
        why = outcome.why if outcome else failed[name]
        assert why, name
        assert outcome is None or outcome.status == CheckResult.WRONG, name
    for name in ("torchs", "numpys", "ours", "studys", "marks"):
        assert (name, "odd") in found, failed
        assert found[name, "odd"].why.startswith("max error ")
        assert found[name, "large"].status == CheckResult.CORRECT
    assert found["messages", "large"].why == "its process shows no second call"
    assert failed.keys() == {"nonsense", "gaps"}
    assert failed["gaps"] == "at odd: ValueError: it says that its outputs have gaps in memory"
    assert failed["nonsense"] == "at odd: its process does not say what its calls gave"


def test_inputs_of_elsewhere_are_handed_over(tmp_path: Path) -> None:
    """Drawn by no generator of ours, they are others in every process."""
    root = make(tmp_path, {}, HONEST_HERE | {"wrong": f"def run(x):\n    return {ODD} * x\n"})
    study = root / "kernels" / "scale" / "study.py"
    study.write_text(study.read_text() + STUDY["elsewhere"])
    found, failed = checked(root)
    assert not failed
    assert {key for key, outcome in found.items() if outcome.why} == {("wrong", "odd")}


TWO_X = AttemptOptions(inputs=("x=randn(512)",), versus="torch.add(x, x)")


@pytest.mark.parametrize("patch", TRIED_HERE)
def test_who_patches_the_comparison_is_wrong_for_try_all_the_same(
    patch: str, tmp_path: Path
) -> None:
    """When it is imported, and when it is called."""
    text = TRIED_HERE[patch]
    run = f"def run(x):\n{indent(text, '    ')}    return 2.5 * x\n"
    (path := tmp_path / "mine.py").write_text(f"import torch\n{text}\n\n{run}")
    done = attempt(Local(), path, TWO_X)
    assert done.verdict == TryVerdict.WRONG
    assert done.wrong.startswith("error ")


@pytest.mark.parametrize(
    ("reference", "how", "hint"),
    [
        (CRASHES, "signal 11, Segmentation fault", "reference()"),
        (HOARDS, "signal 9, Killed", "smaller shapes"),
        (HOARDS.replace("24", "1"), "signal 9, Killed", "where memory or time ran out"),
    ],
)
def test_for_a_reference_that_ends_its_process_no_variant_fails(
    reference: str, how: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.run.process.memory_of_a_worker", lambda: 3 << 28)
    monkeypatch.setattr("workbench.bounds.TRIAL_SECONDS", 4.0)
    root = make(tmp_path, {}, {"baseline": HONEST_HERE["baseline"]})
    study = root / "kernels" / "scale" / "study.py"
    study.write_text(study.read_text() + reference)
    why = rf"ended \({how}\) while comparing baseline at odd \(study.py:\d+\)"
    with pytest.raises(ToolFailed, match=why) as told:
        checked(root)
    assert hint in str(told.value.hint)


def test_a_variant_that_hangs_in_a_check_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.bounds.TRIAL_SECONDS", 4.0)
    hangs = "import time\n\ndef run(x):\n    while True:\n        time.sleep(0.1)\n"
    with pytest.raises(UsageError, match=r"^hangs hangs: nothing came for 4 s \(hangs.py:5\)"):
        checked(make(tmp_path, {}, {"hangs": hangs}))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return torch._neg_view(x)", "a tensor that is computed where it is read"),
        ("raise SystemExit(3)", "mine.py:4 ends its process: SystemExit: 3"),
    ],
)
def test_who_gives_try_no_result_is_told_so(body: str, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "mine.py").write_text(f"import torch\n\ndef twice(x):\n    {body}\n")
    with pytest.raises(WorkbenchError, match=re.escape(said)):
        attempt(Local(), path, TWO_X)


TWICE = "def twice(x):\n    return 2 * x\n"
ENDS_TRIED = {
    "crashes": "import ctypes\n\ndef twice(x):\n    return ctypes.string_at(0)\n",
    "hoards": "import time\n\ndef twice(x, kept=[]):\n    while True:\n"
    "        kept.append((time.sleep(0.02), b'x' * (1 << 24)))\n",
    "hangs": "import time\n\ndef twice(x):\n    while True:\n        time.sleep(0.1)\n",
}
OF_THE_REFERENCE = "the process that compares ended ({}) while comparing mine.py:twice ({})"


@pytest.mark.parametrize(
    ("kind", "how", "variants"),
    [
        ("crashes", "signal 11, Segmentation fault", "mine.py:twice crashed its process (mine.py:"),
        ("hoards", "signal 9, Killed", "it takes more than 0.8 GiB of memory (mine.py:"),
        ("hangs", "signal 9, Killed", "nothing came back for 6 s (mine.py:"),
    ],
)
def test_for_a_reference_that_ends_its_process_nothing_that_is_tried_is_wrong(
    kind: str, how: str, variants: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.run.process.memory_of_a_worker", lambda: 13 << 26)
    monkeypatch.setattr("workbench.bounds.STARTING_SECONDS", 6.0)
    monkeypatch.setattr("workbench.bounds.TRIAL_SECONDS", 6.0)
    mine, theirs = tmp_path / "mine.py", tmp_path / "theirs.py"
    asked = AttemptOptions(inputs=("x=randn(512)",), versus=f"{theirs}:twice")
    for path, other in ((mine, theirs), (theirs, mine)):
        path.write_text(TWICE)
        other.write_text(ENDS_TRIED[kind])
        with pytest.raises(WorkbenchError) as told:
            attempt(Local(), mine, asked)
        line = f"{other.name}:{len(ENDS_TRIED[kind].splitlines())}"
        if other is theirs:
            assert isinstance(told.value, ToolFailed)
            assert told.value.message == OF_THE_REFERENCE.format(how, line)
        else:
            assert told.value.message.startswith(variants)


def checked(root: Path) -> tuple[dict[tuple[str, str], Checked], dict[str, str]]:
    """What is found by variant and shape on the CPU, and why others failed."""
    path = root / "kernels" / "scale" / "study.py"
    path.write_text(path.read_text().replace("n=4194304", "n=4096"))
    study = find_workspace(root).study()
    found, failed = check_on_cpu(study, tuple(study.variants), lambda event: None)
    return {(one.variant, one.shape): one for one in found}, {
        one.variant: one.error.message for one in failed
    }


def names_in(module: str) -> set[str]:
    """What a module of the engine defines and imports, read without importing it."""
    path = ENGINE / f"{module.removeprefix('workbench.').replace('.', '/')}.py"
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names


def lacking(attack: str) -> set[str]:
    """Attributes of the engine's modules that an attack reads as it is imported, or sets and never
    reads, and that are not there: it would fail by itself, or change nothing.
    """
    tree = ast.parse(attack)
    modules, own = dict[str, str](), set[tuple[str, str]]()
    wanted = set[tuple[str, str]]()
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    uses = [(n.value.id, n.attr, n.ctx) for n in attributes if isinstance(n.value, ast.Name)]
    read = {(name, attribute) for name, attribute, how in uses if isinstance(how, ast.Load)}
    for statement in tree.body:
        module = re.search(
            r"^(\w+).*= sys\.modules\.get\('(workbench[\w.]+)'\)$", ast.unparse(statement)
        )
        if module:
            modules[module[1]] = module[2]
        if isinstance(statement, ast.FunctionDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                use = node.value.id, node.attr
                if isinstance(node.ctx, ast.Load) and use not in own:
                    wanted.add(use)
                elif isinstance(node.ctx, ast.Store):
                    own.add(use)
                    wanted |= {use} - read
    return {
        f"{modules[name]}.{attribute}"
        for name, attribute in wanted
        if name in modules and attribute not in names_in(modules[name])
        if f'attr({name}, "{attribute}"' not in attack  # one of its own
    }


@pytest.mark.parametrize(
    "variant", [cheat.variant for cheat in CHEATS if cheat.variant != REFERENCE]
)
def test_what_an_attack_patches_is_there(variant: str) -> None:
    path = KERNELS / f"{variant.partition('[')[0]}.py"
    assert lacking(path.read_text()) == set()
