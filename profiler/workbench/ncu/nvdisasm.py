"""The instructions of CUDA binaries, by NVIDIA's ``nvdisasm``. No GPU is needed."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from workbench.children import temporary_folder
from workbench.cuda.compiler import TOOLKIT, ran
from workbench.cuda.cubin import MAGIC, TEXT
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError

TOOL, SECONDS = "nvdisasm", 120.0
Instructions = list[tuple[int, str]]  # address in bytes from the function's beginning, and text
_FUNCTION = re.compile(rf"{re.escape(TEXT)}(?P<name>\S+):")
_LABEL = re.compile(r"(?P<name>\.L_\w+):")
_INSTRUCTION = re.compile(r"/\*(?P<address>[0-9a-f]+)\*/\s+(?P<text>.*?)\s*;")
_JUMP = re.compile(r"`\((\.L_\w+)\)")


def find() -> str:
    """Return its path: on PATH, in the CUDA toolkit, or of the wheel nvidia-cuda-nvdisasm. Raises
    EnvironmentLacks.
    """
    wheels = (Path(entry or ".", "nvidia", "cu13", "bin", TOOL) for entry in sys.path)
    for place in (Path(shutil.which(TOOL) or TOOLKIT.with_name(TOOL)), *wheels):
        if place.is_file():
            return str(place)
    raise EnvironmentLacks(
        f"{TOOL} is not installed: it turns compiled kernels into instructions",
        hint="pip install nvidia-cuda-nvdisasm",
    )


def disassembled(cubin: bytes, name: str) -> Mapping[str, Instructions]:
    """The instructions of each function of a binary; ``name`` is what messages call it. Targets of
    branches are addresses.

    Raises UsageError for what is no CUDA binary, EnvironmentLacks and ToolFailed.
    """
    if not cubin.startswith(MAGIC):
        raise UsageError(
            f"{name} is no CUDA binary", hint="`nvcc -cubin` or `cuobjdump -xelf all` writes one"
        )
    with temporary_folder() as folder:
        (path := folder / "kernel.cubin").write_bytes(cubin)
        code, text = ran([find(), "-c", path.name], folder, SECONDS)
    if code != 0:
        raise ToolFailed(
            f"{TOOL} could not read {name}", ran=text.strip()[:500], hint="is it a whole cubin?"
        )
    return parsed(text)


def parsed(text: str) -> dict[str, Instructions]:
    """Return what ``nvdisasm -c`` prints; labels become the addresses that they stand at."""
    functions: dict[str, Instructions] = {}
    labels: dict[str, int] = {}
    waiting: list[str] = []
    code: Instructions = []
    for line in map(str.strip, text.splitlines()):
        if function := _FUNCTION.fullmatch(line):
            code = functions.setdefault(function["name"], [])
        elif label := _LABEL.fullmatch(line):
            waiting.append(label["name"])
        elif instruction := _INSTRUCTION.match(line):
            address = int(instruction["address"], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            code.append((address, " ".join(instruction["text"].split())))

    def address_of(match: re.Match[str]) -> str:
        return f"{labels[match[1]]:#x}" if match[1] in labels else match[0]

    return {
        name: [(address, _JUMP.sub(address_of, text)) for address, text in code]
        for name, code in functions.items()
    }
