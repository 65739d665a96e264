"""A package of ``workbench ship`` in the models of docs/models.md, beside what it was made from.

    python -m benchmarks.shipped_models DIR

Prints a Markdown table. Needs what benchmarks/models.py needs, and nothing of FlashAttention.
Logits are the same bit for bit where the package runs the kernel that the variant runs, and are not
where it fell back to its reference.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from benchmarks.models import LOGITS, ROUNDS, STUDY, build, drawn, forward, register, timed
from benchmarks.models_page import MODELS, OURS, SDPA, TOKENS, launched

from workbench.study.workspace import load_module

PACKAGE = "package"
NAMES = (SDPA, OURS, PACKAGE)


def function_of(folder: Path) -> Any:
    """The operator of a package, as its users import it."""
    (module,) = (path.parent.name for path in (folder / "torch-ext").glob("*/__init__.py"))
    sys.path.insert(0, str(folder / "torch-ext"))
    return getattr(import_module(module), STUDY.name)


def same_logits(model: Any, made: Any, tokens: torch.Tensor) -> bool:
    """Of the last positions, by the variant and by the package."""
    found = []
    for name in (OURS, PACKAGE):
        made.set_attn_implementation(name)
        found.append(forward(model, made, tokens, LOGITS)[:, -LOGITS:])
    return torch.equal(*found)


def main(arguments: list[str]) -> int:
    (folder,) = map(Path, arguments)
    adapter = load_module(STUDY / "adapters" / "transformers.py", "models_adapter")
    register(adapter, (SDPA, OURS))
    known: Any = import_module("transformers").AttentionInterface
    known.register(PACKAGE, adapter.implementation(function_of(folder), strict=True))
    here = "SDPA (ms) | the variant (ms) | the package (ms)"
    print(f"| model | tokens | {here} | without a graph: {here} | logits |")
    print(f"| --- |{' ---: |' * 7} --- |")
    differ = False
    for name, model in MODELS.items():
        made = build(model)
        for length in TOKENS:
            took = timed(model, made, NAMES, length, ROUNDS)
            same = same_logits(model, made, drawn(model, length))
            differ |= not same
            shown = [took[one] for one in (*NAMES, *map(launched, NAMES))]
            times = " | ".join(f"{one:.3g}" for one in shown)
            said = "the same bits" if same else "others"
            print(f"| {name} | {length} | {times} | {said} |", flush=True)
        del made
        gc.collect()
        torch.cuda.empty_cache()
    return 1 if differ else 0


if __name__ == "__main__":
    with torch.no_grad():
        raise SystemExit(main(sys.argv[1:]))
