"""What of the red team can be shown without a GPU: patches, files, sources, outputs."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy
import pytest
import torch

from reward_hacks import CHEATS, HONEST, KERNELS, REFERENCE, WORKSPACE, Cheat, docstring, ladder
from workbench import cuda
from workbench.cuda.compiler import Source, waits
from workbench.cuda.includes import expand_includes
from workbench.cuda.programs import CompileError
from workbench.errors import UsageError
from workbench.evidence.records import GraphNode
from workbench.run.measurement import Listener
from workbench.run.protocol import ErrorText, Failed
from workbench.run.worker import process_settings
from workbench.run.worker.correctness import compare
from workbench.run.worker.guard import Guard, Opened, Tampered, unseen
from workbench.run.worker.integrity import IntegritySnapshot
from workbench.run.worker.output import refuse_output
from workbench.run.worker.process_settings import HAS_NEWER, ProcessSetting
from workbench.run.worker.timing import graphs
from workbench.study.model import Study, Tolerance
from workbench.study.sources import Fingerprints, source_files
from workbench.study.workspace import find_workspace, load_module
from workbench.words import NodeKind, Phase

BOUND = Tolerance(absolute=1e-3, relative=1e-3)
AT_LOAD = [
    cheat
    for cheat in CHEATS
    if cheat.family in ("patched", "slowed reference")
    and cheat.variant not in ("patched_later", "slowed_by_a_thread", "slows_a_graph")
]


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


# In a process of its own: what is patched stays patched where the seal does not put it back.
SEALED = """
import json, statistics, sys
from pathlib import Path
import numpy, torch
import workbench.run.worker.correctness
from workbench import cuda
from workbench.run.worker.integrity import IntegritySnapshot
from workbench.run.worker.timing import graphs
from workbench.study.workspace import load_module

folder, *names = sys.argv[1:]
load = lambda name: load_module(Path(folder) / f"{name}.py", f"workbench_variant_{name}")
snapshot, told = IntegritySnapshot(), {}
for name in names:
    module = load(name)
    snapshot.also(module)
    told[name] = [snapshot.changed(own=module.__name__)]
    try:
        module.run(torch.zeros(4, 4))
    except Exception as error:
        pass
    told[name].append(snapshot.changed(own=module.__name__))
    snapshot.restore()
    told[name].append(snapshot.changed())
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def told() -> Mapping[str, list[str]]:
    """Of each variant what the seal says after it was loaded, has run, and was put right again."""
    others = [name for name in HONEST if name != "baseline"]
    names = ["baseline", *(cheat.variant for cheat in AT_LOAD), *others]
    return sealed(KERNELS, *names)


def sealed(folder: Path, *names: str) -> Mapping[str, list[str]]:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", SEALED, str(folder), *names],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("cheat", AT_LOAD, ids=lambda cheat: cheat.variant)
def test_a_patch_is_named_and_mended(cheat: Cheat, told: Mapping[str, list[str]]) -> None:
    loaded, _, mended = told[cheat.variant]
    assert cheat.finds(loaded), loaded
    assert mended == ""


@pytest.mark.parametrize("variant", HONEST)
def test_honest_variants_break_no_seal(variant: str, told: Mapping[str, list[str]]) -> None:
    assert told[variant] == ["", "", ""]


PATCHES = {
    "defaults": (
        "from workbench.run.worker import correctness\n"
        "correctness.check_variant.__kwdefaults__ = {'a': 1}\n",
        "changes the code of workbench.run.worker.correctness.check_variant",
    ),
    "shadow": (
        "from workbench.run.worker import correctness\ncorrectness.isinstance = lambda *a: True\n",
        "adds workbench.run.worker.correctness.isinstance",
    ),
    "tensor": ("import torch\ntorch.Tensor.double = torch.Tensor.float\n", "adds torch.Tensor.dou"),
    "builtin": ("import builtins\nbuiltins.abs = lambda x: 0\n", "changes builtins.abs"),
    "sleeping": (
        "import threading\ndef edit():\n    pass\nother = threading.Timer(600, edit)\n"
        "other.daemon = True\nother.start()\n",
        "keeps a thread running in sleeping.py:2",
    ),
    "collector": (
        "import gc\ngc.callbacks.append(lambda *anything: None)\n",
        "adds to gc.callbacks",
    ),
    "thread": (
        "import time\n"
        "def work():\n    time.sleep(600)\n"
        "import threading\nthreading.Thread(target=work, daemon=True).start()\n",
        "keeps a thread running in thread.py:3",
    ),
}


def test_other_ways_to_patch_are_named_too(tmp_path: Path) -> None:
    for name, (text, _) in PATCHES.items():
        (tmp_path / f"{name}.py").write_text(text + "def run(x):\n    return x\n")
    found = sealed(tmp_path, *PATCHES)
    for name, (_, expected) in PATCHES.items():
        assert found[name][0].startswith(expected), (name, found[name])
        assert found[name][2] == "", "nobody else is to be blamed for it"


def test_what_is_not_the_variants_breaks_no_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of an installed library, as tqdm starts one, which torch.compile imports where it is
    installed; what a variant keeps in its own module; torch's compiler.
    """
    for folder in ("target", "plain"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}_monitor.py").write_text(
            "import threading\nwait = threading.Event().wait\n"
            "def work():\n    wait(600)\n"
            "threading.Thread(target=work, daemon=True).start()\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    (tmp_path / "target" / "monitor-1.0.dist-info").mkdir()
    (tmp_path / "monitor-1.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path)  # which stands in sys.path as "", where every path begins
    for name, text in {
        "own": "cache = {}\n\ndef run(x):\n    global run\n    cache['n'] = x\n"
        "    run = lambda x: x\n",
        "next": "def run(x):\n    return x\n",
        "compiled": "import torch\nimport torch._dynamo, torch._inductor\n"
        "run = torch.compile(lambda x: x * 2, backend='eager')\n",
        "target": "import target_monitor\ndef run(x):\n    return x\n",
        "plain": "import plain_monitor\ndef run(x):\n    return x\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = dict(sealed(tmp_path, "own", "next", "compiled", "target", "plain"))
    assert found.pop("plain")[0] == "keeps a thread running in plain_monitor.py:4"
    assert found == {name: ["", "", ""] for name in ("own", "next", "compiled", "target")}


class Held:
    """As an instance of a timing session is."""

    CHANGING = ("latest",)

    def __init__(self) -> None:
        self.calls, self.kept, self.marks, self.latest = {"chained": 40}, {"": [1.0]}, [1, 2], 3

    def replay(self) -> None: ...


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda held: held.calls.update(chained=80), "changes what is in Held.calls"),
        (lambda held: held.kept.update({"": [1.0]}), "changes what is in Held.kept"),
        (lambda held: setattr(held, "kept", {}), "changes Held.kept"),
        (lambda held: held.marks.pop(), "changes what is in Held.marks"),
        (lambda held: setattr(held, "replay", print), "adds Held.replay"),
        (lambda held: setattr(held, "latest", 4), ""),
    ],
)
def test_what_measures_is_held(change: Any, told: str) -> None:
    """Numbers of calls, kept outputs, graphs and marks of instances, and their methods."""
    snapshot, held = IntegritySnapshot(), Held()
    snapshot.protect(held)
    assert snapshot.changed() == ""
    change(held)
    assert snapshot.changed() == told
    snapshot.restore()
    assert snapshot.changed() == ""
    assert (held.calls, held.kept, held.marks) == ({"chained": 40}, {"": [1.0]}, [1, 2])
    snapshot.release([held])
    change(held)
    assert snapshot.changed() == ""


def test_who_replaces_a_source_is_named_and_the_source_is_put_back(tmp_path: Path) -> None:
    """The variant itself, and not the one whose source it is."""
    for name in ("study", "parent", "bad"):
        (tmp_path / f"{name}.py").write_text("def run(x):\n    return x\n")
    (tmp_path / "bad.py").write_text(
        "import os\nfrom pathlib import Path\n\ndef run(x):\n"
        "    own = Path(__file__).parent\n"
        "    (own / 'slow.tmp').write_text('def run(x):\\n    return 0 * x')\n"
        "    os.replace(own / 'slow.tmp', own / 'parent.py')\n    return x\n"
    )
    guard = Guard(tmp_path, {"parent": ("parent.py",), "bad": ("bad.py",)})

    def called(name: str) -> Any:
        with guard.watching(name):
            return guard.load(tmp_path / f"{name}.py", f"workbench_{name}").run(7)

    assert called("parent") == 7
    with pytest.raises(Tampered, match=r"replaces parent\.py, a source"):
        called("bad")
    assert called("parent") == 7
    with pytest.raises(Tampered), guard.watching("bad"):
        sys.addaudithook(lambda *anything: None)


PRECISION = "torch.backends.cuda.matmul.fp32_precision"
MODE = "from torch.utils._python_dispatch import TorchDispatchMode as Mode"
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
    "trace": ("sys.settrace(hook)", "sys.gettrace()"),
    "profile": ("sys.setprofile(hook)", "sys.getprofile()"),
    "threads": ("threading.setprofile(hook)", "threading.getprofile()"),
    "handler": ("signal.signal(signal.SIGUSR1, hook)", "signal.getsignal(signal.SIGUSR1)"),
}
ENDING = {  # what holds while the code that sets them runs
    "timer": ("signal.setitimer(signal.ITIMER_VIRTUAL, 600)", "signal.getitimer(1)"),
    "mode": (f"{MODE}; Mode().__enter__()", "torch._C._len_torch_dispatch_stack()"),
}
IMPORTS = "import signal, sys, threading, torch"
MODULE = (
    IMPORTS
    + """

def hook(*anything):
    return None

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
    guard, number = Guard(tmp_path, {}), count(1)
    names: dict[str, Any] = {}
    exec(IMPORTS, names)

    def called(name: str, reads: str, at_import: str = "", in_a_call: str = "pass") -> list[str]:
        text = MODULE.format(at_import=at_import, in_a_call=in_a_call, reads=reads)
        (tmp_path / f"{name}.py").write_text(text)
        module = guard.load(tmp_path / f"{name}.py", f"workbench_variant_{next(number)}_{name}")
        values = [module.run(1)]
        assert eval(reads, names) == plain, (name, "the harness sees it")
        return [re.sub(" at 0x.*", "", str(value)) for value in (*values, module.run(0))]

    for name, (sets, reads) in {**SETS, **ENDING}.items():
        plain = eval(reads, names)
        changed, then = called(f"{name}_in_a_call", reads, in_a_call=sets)
        assert changed != str(plain), name
        if name in SETS:
            assert then == changed, name
            assert called(f"{name}_at_import", reads, at_import=sets) == [changed] * 2
            assert called(f"{name}_at_import", reads) == [changed] * 2
        assert called("next", reads) == [str(plain)] * 2, (name, "another one sees it")
    guard.require_whole()


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
    guard = Guard(tmp_path, {})

    def draws() -> list[float]:
        return [float(torch.rand(())), float(numpy.random.rand()), random.random()]

    def loaded(number: int) -> Any:
        return guard.load(tmp_path / "drawn.py", f"workbench_variant_{number}_drawn").run(0)

    first, one, second, other = loaded(1), draws(), loaded(2), draws()
    assert first == second
    assert all(a != b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("line", "is_own"),
    [("sys.addaudithook(lambda *anything: None)", True), ("call(sys, 'addaudithook')", False)],
)
def test_a_library_may_add_a_hook_of_its_own(line: str, is_own: bool, tmp_path: Path) -> None:
    """As filelock does when torch's compiler imports it: not one that it is asked to add."""
    guard = Guard(tmp_path, {})
    code = compile(line, f"{sysconfig.get_path('purelib')}/filelock/fork.py", "exec")

    def call(module: Any, name: str) -> None:
        getattr(module, name)(lambda *anything: None)

    with nullcontext() if is_own else pytest.raises(Tampered), guard.watching("torch"):
        exec(code, {"sys": sys, "call": call})


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
    said = refuse_output(out(x), {"x": x, "causal": True})
    assert said.startswith(expected) if expected else said == ""


def test_the_lazy_one_is_refused_before_it_is_looked_at(cpu: None) -> None:
    module = load("lazy")
    x = torch.zeros(4, 4)
    assert by_name("lazy").finds(refuse_output(module.run(x), {"x": x}))


def test_the_aliasing_one_is_refused() -> None:
    x = torch.zeros(4, 4)
    assert by_name("in_place").finds(refuse_output(x, {"x": x}))


@pytest.mark.parametrize(
    ("out", "variant"),
    [
        (torch.zeros(8, 8), "patched_check"),
        (torch.full((8, 8), torch.nan), "tells_capturing"),
        (torch.zeros(4, 4), "one_shape"),
    ],
)
def test_wrong_outputs_are_told_in_words_that_the_table_expects(
    out: torch.Tensor, variant: str
) -> None:
    expected = torch.ones(8, 8, dtype=torch.float64) / 8
    _, _, why = compare(out, expected, BOUND)
    assert by_name("tells_checking" if variant == "patched_check" else variant).finds(why), why


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
    root = tmp_path / "ws"
    shutil.copytree(WORKSPACE, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "ablations" / "softmax").mkdir(parents=True, exist_ok=True)
    (root / "ablations" / "softmax" / "ablation.toml").write_text(ladder())
    return find_workspace(root).study()


@contextmanager
def heard(folder: Path) -> Iterator[dict[str, None]]:
    with Opened(folder).during() as seen:
        yield seen


@pytest.mark.parametrize("variant", [*HONEST, "hidden_source"])
def test_files_that_no_fingerprint_covers_are_named(variant: str, study: Study, cpu: None) -> None:
    with heard(study.folder) as seen:
        load_module(study.folder / f"{variant}.py", f"workbench_variant_{variant}")
        for kernel in cuda.take_declared():
            expand_includes(kernel.source.path)
    known = [path.name for path in source_files(study, study.variants[variant])]
    why = unseen(seen, study.folder, known)
    if variant in HONEST:
        assert why == ""
    else:
        assert by_name(variant).finds(why), why


def test_whatever_a_module_names_is_in_its_fingerprint(study: Study) -> None:
    module, table = study.folder / "registers.py", study.folder / "table.bin"
    table.write_bytes(b"\0\xff\1")
    module.write_text(module.read_text() + '\nTABLE = "table.bin"\n')
    before = Fingerprints(study).at_shape("registers", study.shapes["rows"].parameters)
    table.write_bytes(b"\0\xff\2")
    assert Fingerprints(study).at_shape("registers", study.shapes["rows"].parameters) != before


def test_files_that_the_study_names_are_in_every_fingerprint(study: Study) -> None:
    code, weights = study.folder / "study.py", study.folder / "weights.bin"
    weights.write_bytes(b"1")
    code.write_text(code.read_text() + '\nWEIGHTS = "weights.bin"\n')
    before = Fingerprints(study).at_shape("baseline", study.shapes["rows"].parameters)
    weights.write_bytes(b"2")
    assert Fingerprints(study).at_shape("baseline", study.shapes["rows"].parameters) != before


def test_the_harness_is_in_every_fingerprint(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Fingerprints(study).at_shape("baseline", study.shapes["rows"].parameters)
    monkeypatch.setattr("workbench.study.sources.HARNESS", 99)
    assert Fingerprints(study).at_shape("baseline", study.shapes["rows"].parameters) != before


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


def test_what_is_seen_beside_others_is_not_recorded() -> None:
    """It is done again alone, in a process of its own."""
    failed: list[Any] = []
    nothing = cast(Any, None)
    listener = Listener(nothing, nothing, nothing, nothing, failed.append)
    listener.fail = lambda *given: None  # type: ignore[method-assign]
    error = ErrorText.of(Tampered("changes torch.softmax"))
    event = Failed(variant="bad", phase=Phase.CHECK, error=error)
    listener.together = True
    listener.take(event)
    assert (listener.suspects, failed) == (["bad"], [])
    listener.together = False
    listener.take(event)
    assert (listener.suspects, failed) == (["bad"], [event])


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
