"""Compile what variants launch in Triton, without a GPU: for ``benchmarks.carried``.

python -m benchmarks.carried_launches FOLDER STUDY:SHAPE:VARIANT...

The variants run on tensors of the CPU, with the Triton of this environment, and a launch compiles
for compute capability 9.0. FOLDER gets the binary and the metadata of each kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from benchmarks.carried_load import key_of
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import compile as compiled
from triton.runtime import jit
from triton.runtime.driver import driver

from workbench.cuda import overridden
from workbench.study.workspace import find_workspace, load_module

SMS = 132


class NoGpu:
    multi_processor_count = SMS

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made_by_triton = jit.JITFunction.create_binder

    def kept(source: Any, target: Any = None, options: Any = None) -> Any:
        kernel = compiled(source, target=target, options=options)
        stem = folder / key_of(source, options)
        (metadata,) = (p for name, p in kernel.metadata_group.items() if name.endswith(".json"))
        stem.with_suffix(".json").write_bytes(Path(metadata).read_bytes())
        stem.with_suffix(".cubin").write_bytes(kernel.asm["cubin"])
        return kernel

    def binder(self: Any) -> Any:
        made = made_by_triton(self)
        self.compile = kept
        return made

    def only_compiles(self: Any, grid: Any) -> Any:
        return lambda *args, **options: self.run(*args, grid=grid, warmup=True, **options)

    driver.set_active(NoGpu())
    jit.JITFunction.create_binder = binder
    jit.KernelInterface.__getitem__ = only_compiles
    vars(torch.cuda)["get_device_properties"] = lambda device=None: NoGpu()
    workspace = find_workspace(Path.cwd())
    for place, each in enumerate(wanted):
        study_name, shape, variant = each.split(":", 2)
        study = workspace.study(study_name)
        path = study.variants[variant].module
        if "import triton\n" not in path.read_text():
            continue
        with overridden(dict(study.variants[variant].params)):
            module = load_module(path, f"variant_{place}")
        module.run(**study.module.inputs(study.shapes[shape], torch.Generator()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
