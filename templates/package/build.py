"""Compile the extension with nvcc for the torch that runs this, into build/, as kernel-builder
lays it out: ``python build.py``. It needs nvcc and g++.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
PLAN = tomllib.loads((HERE / "build.toml").read_text("utf-8"))
NAME = PLAN["general"]["name"].replace("-", "_")
OPS = """import torch

torch.ops.load_library(__file__.replace("_ops.py", "{id}.so"))
ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    return f"{id}::{{op_name}}"
"""


def build() -> Path:
    """Compile, and return the folder of the build."""
    metadata = json.loads((HERE / "torch-ext" / NAME / "metadata.json").read_text("utf-8"))
    major, minor = torch.__version__.split(".")[:2]
    cuda = (torch.version.cuda or toolkit()).replace(".", "")
    folder = HERE / "build" / f"torch{major}{minor}-cxx11-cu{cuda}-{platform.machine()}-linux"
    scratch = HERE / "_build"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "torch-ext" / NAME, folder)
    scratch.mkdir(exist_ok=True)
    (scratch / "registration.h").write_text(
        "#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)\n"
        "#define REGISTER_EXTENSION(NAME)\n"
    )
    common = ["nvcc", "-c", "-O3", "-std=c++20", "-DNDEBUG", "-Xcompiler=-fPIC,-fno-gnu-unique"]
    torch_flags = [f"-DTORCH_EXTENSION_NAME={metadata['id']}", f"-I{scratch}"]
    headers = Path(torch.__file__).parent / "include"
    torch_flags += [f"-I{headers}", f"-I{headers / 'torch' / 'csrc' / 'api' / 'include'}"]
    jobs = [(source, torch_flags) for source in PLAN["torch"]["src"]]
    for kernel in PLAN["kernel"].values():
        flags = [*kernel.get("cuda-flags", [])]
        for capability in kernel["cuda-capabilities"]:
            number = capability.replace(".", "")
            flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        jobs += [(source, flags) for source in kernel["src"] if source.endswith(".cu")]

    def compiled(job: tuple[str, list[str]]) -> str:
        source, flags = job
        target = scratch / f"{Path(source).stem}.o"
        subprocess.run([*common, *flags, "-o", target, HERE / source], check=True)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, jobs))
    library = folder / f"{metadata['id']}.so"
    torch_libraries = Path(torch.__file__).parent / "lib"
    subprocess.run(
        [
            "nvcc",
            "-shared",
            "-o",
            library,
            *objects,
            f"-L{torch_libraries}",
            "-lc10",
            "-ltorch_cpu",
        ],
        check=True,
    )
    (folder / "_ops.py").write_text(OPS.format(id=metadata["id"]))
    return folder


def toolkit() -> str:
    """Return nvcc's version, for a torch without CUDA."""
    said = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    return said.partition("release ")[2].partition(",")[0]


if __name__ == "__main__":
    print(build())
