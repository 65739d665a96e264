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
NAME = PLAN["general"]["name"].replace("-", "_")
IDENTITY = json.loads((HERE / "torch-ext" / NAME / "metadata.json").read_text("utf-8"))["id"]
MAJOR, MINOR = torch.__version__.split(".")[:2]
TARGET = f"torch{MAJOR}{MINOR}-cxx11-cu{(torch.version.cuda or '0').replace('.', '')}"
FOLDER = HERE / "build" / f"{TARGET}-{platform.machine()}-linux"
SCRATCH, TORCH = HERE / "_build", Path(torch.__file__).parent
REGISTRATION = """#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define REGISTER_EXTENSION(NAME)
"""
COMMON = ["nvcc", "-c", "-O3", "-std=c++20", "-DNDEBUG", "-Xcompiler=-fPIC,-fno-gnu-unique"]


def compiled(job: tuple[str, list[str]]) -> Path:
    source, flags = job
    target = SCRATCH / f"{Path(source).stem}.o"
    subprocess.run([*COMMON, *flags, "-o", target, HERE / source], check=True)
    return target


shutil.rmtree(FOLDER, ignore_errors=True)
shutil.copytree(HERE / "torch-ext" / NAME, FOLDER)
SCRATCH.mkdir(exist_ok=True)
(SCRATCH / "registration.h").write_text(REGISTRATION)
include = TORCH / "include"
folders = [SCRATCH, include, include / "torch" / "csrc" / "api" / "include"]
binding = [f"-DTORCH_EXTENSION_NAME={IDENTITY}", *(f"-I{folder}" for folder in folders)]
jobs = [(source, binding) for source in PLAN["torch"]["src"]]
for kernel in PLAN["kernel"].values():
    numbers = [capability.replace(".", "") for capability in kernel["cuda-capabilities"]]
    archs = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
    units = [source for source in kernel["src"] if source.endswith(".cu")]
    jobs += [(unit, [*kernel.get("cuda-flags", []), *archs]) for unit in units]
with ThreadPoolExecutor(os.cpu_count()) as pool:
    objects = list(pool.map(compiled, jobs))
link = ["nvcc", "-shared", "-o", FOLDER / f"{IDENTITY}.so", *objects, f"-L{TORCH / 'lib'}"]
subprocess.run([*link, "-lc10", "-ltorch_cpu"], check=True)
shutil.copy(HERE / "_ops.py", FOLDER)
print(FOLDER)
