"""Packages for tests: handmade ones whose variant is torch on the CPU, and how one is loaded."""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from answers import Patch, not_none
from workbench.run.worker.shipping import checked_call
from workspaces import ROOT

CONTENT = ROOT / "templates" / "package"
_numbers = itertools.count()


@contextmanager
def quiet() -> Iterator[None]:
    """Where the reference answers with a warning, as tests want it to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def passes_opcheck(op: Any, *inputs: torch.Tensor) -> None:
    """Of torch: the operator's schema, fake implementation and gradients agree with it."""
    assert set(torch.library.opcheck(op.operator, inputs).values()) == {"SUCCESS"}


def ops_of(identity: str) -> str:
    """``_ops.py``, as it is built."""
    return f"import torch\n\nops = torch.ops.{identity}\n"


def loaded(folder: Path, name: str) -> ModuleType:
    """A built package, as `kernels` imports it under the id of its metadata."""
    spec = not_none(importlib.util.spec_from_file_location(name, folder / "__init__.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    not_none(spec.loader).exec_module(module)
    return module


def handmade(
    root: Path,
    monkeypatch: Patch,
    *,
    run: str,
    reference: str,
    calls: Sequence[dict[str, Any]],
    study: str = "",
    outputs: int = 1,
    keeps: tuple[str, ...] = (),
    on_gpu: bool = True,
    files: Mapping[str, str] | None = None,
) -> Any:
    """The module ``op`` of a package whose variant and reference are these modules.

    ``calls`` are the inputs that it was checked with. ``on_gpu`` takes the CPU for one. ``files``
    are beside them.
    """
    name = f"handmade_{next(_numbers)}"
    top = root / name
    (top / "sources").mkdir(parents=True)
    for file in ("op.py", "cuda.py"):
        shutil.copy(CONTENT / "torch-ext" / "PACKAGE" / file, top)
    (top / "_ops.py").write_text(ops_of(name))
    texts = {"__init__.py": "", "fast.py": run, "plain.py": reference, "study.py": study}
    for file, text in {**texts, **(files or {})}.items():
        (top / "sources" / file).write_text(text)
    tensors = [n for n, value in calls[0].items() if isinstance(value, torch.Tensor)]
    kinds = [(n, "Tensor" if n in tensors else type(v).__name__) for n, v in calls[0].items()]
    facts = {
        "package": name,
        "function": "thing",
        "variant": "fast",
        "modules": {"variant": ["fast", {}], "study": ["study", {}]}
        | ({"reference": ["plain", {}]} if reference else {}),
        "arguments": kinds,
        "keeps": keeps,
        "capabilities": [],
        "outputs": outputs,
        "calls": list(map(checked_call, calls)),
        "strided": [n for n in tensors if not all(call[n].is_contiguous() for call in calls)],
    }
    (top / "variant.json").write_text(json.dumps(facts))
    (top / "__init__.py").write_text("from . import op\n")
    op = loaded(top, name).op
    if on_gpu:
        monkeypatch.setattr(op, "_elsewhere", lambda devices: "")
        monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda d: 7, raising=False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return op
