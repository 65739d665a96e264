"""nvcc: where it is, and what it makes of a source."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from workbench.children import ended
from workbench.cuda.cubin import sections
from workbench.words import Parameter

TOOLKIT = Path("/usr/local/cuda/bin/nvcc")
HOST_COMPILERS = ("g++", "clang++", "c++")  # nvcc preprocesses with one
FLAGS = ("-cubin", "-lineinfo", "--expt-relaxed-constexpr", "--expt-extended-lambda")
SOURCE, CUBIN, ENTRY = "kernel.cu", "kernel.cubin", "workbench_entry"
SECONDS = 600.0
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")


class Refused(Exception):
    """nvcc did not compile it. ``is_fatal``: nvcc itself does not work, whatever the source."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log
        self.is_fatal = re.search(r"^nvcc fatal", log, re.MULTILINE) is not None


@cache
def find() -> str:
    """Find nvcc on PATH, or in the CUDA toolkit; "" without a host compiler as well."""
    nvcc = shutil.which("nvcc") or (str(TOOLKIT) if TOOLKIT.is_file() else "")
    return nvcc if os.environ.get("NVCC_CCBIN") or any(map(shutil.which, HOST_COMPILERS)) else ""


@cache
def version(nvcc: str) -> str:
    release = re.search(r"\bV([\d.]+)", ran([nvcc, "--version"], "/")[1])
    return f"nvcc {release[1]}" if release else "nvcc"


def ran(
    command: Sequence[str],
    folder: str | Path,
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
) -> tuple[int | None, str]:
    """Exit code and output of a tool; the code is None where it did not start or come to an end."""
    late = f"{command[0]} timed out after {seconds:g} seconds"
    try:
        with tempfile.TemporaryFile("w+", errors="replace") as output:  # a child keeps a pipe open
            streams = {"stdout": output, "stderr": subprocess.STDOUT}
            code = ended(command, seconds, cwd=folder, env=environment, **streams)
            output.seek(0)
            return code, output.read() if code is not None else late
    except OSError as error:
        return None, str(error)


def compiled(
    nvcc: str,
    text: str,
    kernel: str,
    arch: str,
    defines: Mapping[str, Parameter],
    folders: Sequence[str],
    ptxas: Sequence[str],
) -> tuple[str, bytes, str]:
    """Log, cubin, and the symbol of ``kernel``: an ``extern "C"`` name or a name expression, whose
    template is instantiated then, such as a cast to a pointer that tells overloads apart. Raises
    Refused.
    """
    if not kernel.isidentifier():
        text += f"\n__device__ auto {ENTRY} = {kernel if kernel[0] == '(' else f'&{kernel}'};\n"
    with tempfile.TemporaryDirectory(prefix="workbench-nvcc-") as folder:
        Path(folder, SOURCE).write_text(text, encoding="utf-8")
        command = [
            nvcc,
            *FLAGS,
            f"-arch={arch}",
            *(f"-D{name}={value}" for name, value in defines.items()),
            *(part for option_value in folders for part in ("-isystem", option_value)),
            *(part for option_value in ptxas for part in ("-Xptxas", option_value)),
            *("-o", CUBIN, SOURCE),
        ]
        code, log = ran(command, folder)
        if code != 0:
            raise Refused(log if code is not None and log else f"nvcc fatal: {log or code}")
        cubin = Path(folder, CUBIN).read_bytes()
    return log, cubin, kernel if kernel.isidentifier() else pointed_at(cubin, ENTRY)


def pointed_at(cubin: bytes, variable: str) -> str:
    """The function that a variable of a cubin is a pointer to. Raises ValueError where it has no
    such variable, and what ``cubin.sections`` raises.
    """
    parts = {section.name: section.body for section in sections(cubin)}
    names = parts[".strtab"]
    symbols: list[tuple[str, int]] = [
        (names[name : names.index(b"\0", name)].decode(), value)
        for name, _, _, _, value, _ in SYMBOL.iter_unpack(parts[".symtab"])
    ]
    places = [value for name, value in symbols if name == variable]
    for place, info, _ in RELOCATION.iter_unpack(parts.get(".rela.nv.global.init", b"")):
        if place in places:
            name, _ = symbols[int(info) >> 32]
            return name
    raise ValueError(f"the cubin has no pointer {variable}")
