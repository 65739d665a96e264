"""The Triton variants of a study on the CPU, by Triton's interpreter:
``TRITON_INTERPRET=1 python triton_interpreted.py FOLDER`` prints a line for each that was checked,
and who is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

from workbench import cuda
from workbench.study.values import Shape, tolerance_at
from workbench.study.workspace import load_module

VARIANTS: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "softmax": (
        ("baseline", {}),
        ("online", {}),
        ("fused", {}),
        ("fused", {"warps": 2, "streaming": 1}),
        ("persistent", {"programs": 1}),
        ("split", {}),
        ("chosen", {}),
    ),
    "moe": (("fused", {}), ("fused", {"rows": 16, "cols": 64, "group": 2})),
}


def routed(tokens: int, experts: int, topk: int, hidden: int, intermediate: int) -> Shape:
    return Shape(T=tokens, E=experts, k=topk, H=hidden, I=intermediate, routing="balanced")


SHAPES = {
    "softmax": (
        Shape(rows=5, cols=1000, dtype="float16"),
        Shape(rows=7, cols=2048, dtype="float32"),
        Shape(rows=2, cols=9001, dtype="float32"),
        Shape(rows=1, cols=40001, dtype="float32"),
        Shape(rows=5, cols=1, dtype="float32"),
    ),
    "moe": (routed(1, 8, 2, 256, 128), routed(50, 3, 1, 128, 256), routed(70, 5, 3, 128, 128)),
}


def wrong(study: Any, run: Any, shape: Shape, kind: Any) -> str:
    generator = torch.Generator().manual_seed(7)
    inputs = study.inputs(shape, generator)
    inputs = kind(inputs, generator) if kind else inputs
    for name, value in inputs.items():  # the interpreter has no products in bf16
        if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
            inputs[name] = value.half()
    expected, bound = study.reference(**inputs), tolerance_at(study.tolerance, shape)
    error = run(**inputs).double() - expected
    absolute, relative = float(error.abs().max()), float(error.norm() / expected.norm())
    fits = absolute <= bound.absolute and relative <= bound.relative  # false of nan
    return "" if fits else f"{absolute:.2g} {relative:.2g}"


def main(folder: Path) -> None:
    properties = SimpleNamespace(multi_processor_count=3)
    cast(Any, torch.cuda).get_device_properties = lambda device: properties
    study = load_module(folder / "study.py", "study")
    for name, params in VARIANTS[folder.name]:
        with cuda.overridden(params):
            module = load_module(folder / f"{name}.py", f"variant_{name}_{len(params)}")
        for shape in SHAPES[folder.name]:
            for kind in (None, *study.adversarial.values()):
                said = f"{name} {params} {shape} {kind.__name__ if kind else ''}"
                try:
                    why = wrong(study, module.run, shape, kind)
                except NotImplementedError:
                    print("unsupported", said)
                    break
                print(f"WRONG {why}" if why else "correct", said)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
