"""Compile the extension with nvcc for the torch that runs this, into build/, as kernel-builder
lays it out: ``python build.py``. It needs nvcc and g++.
"""

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
PACKAGE = HERE / "torch-ext" / PLAN["general"]["name"].replace("-", "_")
IDENTITY = json.loads((PACKAGE / "metadata.json").read_text("utf-8"))["id"]
KERNELS = PLAN["kernel"]["kernels"]
VERSION = "".join(torch.__version__.split(".")[:2])
TARGET = f"torch{VERSION}-cxx11-cu{(torch.version.cuda or '0').replace('.', '')}"
FOLDER = HERE / "build" / f"{TARGET}-{platform.machine()}-linux"
SCRATCH, TORCH = HERE / "_build", Path(torch.__file__).parent
REGISTRATION = """#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define REGISTER_EXTENSION(NAME)
"""
NVCC = ["nvcc", "-c", "-O3", "-std=c++20", "-DNDEBUG", "-Xcompiler=-fPIC,-fno-gnu-unique"]
BINDING = [f"-DTORCH_EXTENSION_NAME={IDENTITY}", f"-I{SCRATCH}", f"-I{TORCH / 'include'}"]
ARCHS = [name.replace(".", "") for name in KERNELS["cuda-capabilities"]]
CUDA = [*KERNELS["cuda-flags"], *(f"-gencode=arch=compute_{n},code=sm_{n}" for n in ARCHS)]


def compiled(source: str) -> Path:
    target = SCRATCH / f"{Path(source).stem}.o"
    flags = CUDA if source in KERNELS["src"] else BINDING
    subprocess.run([*NVCC, *flags, "-o", target, HERE / source], check=True)
    return target


shutil.rmtree(FOLDER, ignore_errors=True)
shutil.copytree(PACKAGE, FOLDER)
shutil.copy(HERE / "_ops.py", FOLDER)
SCRATCH.mkdir(exist_ok=True)
(SCRATCH / "registration.h").write_text(REGISTRATION)
with ThreadPoolExecutor(os.cpu_count()) as pool:
    objects = list(pool.map(compiled, [*PLAN["torch"]["src"], *KERNELS["src"]]))
link = ["nvcc", "-shared", "-o", FOLDER / f"{IDENTITY}.so", *objects, f"-L{TORCH / 'lib'}"]
subprocess.run([*link, "-lc10", "-ltorch_cpu"], check=True)
print(FOLDER)
