"""One source of a kernel and its local headers, without a path of this machine in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from workbench.words import VIRTUAL_ROOT

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"\s*$')


def header_folders() -> list[str]:
    """Folders with ``cuda_fp16.h`` and its like: the toolkit's, else the pip wheels'."""
    found = []
    toolkit = Path("/usr/local/cuda/include")
    if (toolkit / "cuda_fp16.h").is_file():
        found.append(toolkit)
    for entry in sys.path:
        wheel = Path(entry or ".") / "nvidia" / "cu13" / "include"
        if not found and (wheel / "cuda_fp16.h").is_file():
            found.append(wheel)
    return [str(p) for folder in found for p in (folder, folder / "cccl") if p.is_dir()]


def expand_includes(path: Path, seen: set[Path] | None = None) -> str:
    """The source with its local includes in place and ``#line`` marks under virtual names.

    NVRTC would otherwise write this machine's folders into the line table of every capture.
    A file is included once, as with ``#pragma once``.
    """
    seen = seen if seen is not None else set()
    seen.add(path)
    virtual = virtual_name(path)
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _INCLUDE.match(line)
        target = path.parent / match[1] if match else None
        if target is None or not target.is_file():
            lines.append("" if line.strip() == "#pragma once" else line)
        elif target in seen:
            lines.append("")
        else:
            lines += [
                f'#line 1 "{virtual_name(target)}"',
                expand_includes(target, seen).rstrip("\n"),
            ]
            lines.append(f'#line {number + 1} "{virtual}"')
    return "\n".join(lines) + "\n"


def virtual_name(path: Path) -> str:
    """The name a source is compiled under: its folder is its study's."""
    return f"{VIRTUAL_ROOT}/{path.parent.name}/{path.name}"
