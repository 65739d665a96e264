"""One source of a kernel and its local headers, without a path of this machine in it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from workbench.errors import UsageError
from workbench.words import VIRTUAL_ROOT

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
_COMPUTED = re.compile(r'^\s*#\s*include\s*([^\s"<].*)')

NAMED = ("CPATH", "CPLUS_INCLUDE_PATH")  # variables of g++ that name folders of headers


def header_folders(*, named_only: bool = False) -> list[str]:
    """Folders with ``cuda_fp16.h`` and its like: the toolkit's, else the pip wheels'. Only those
    that the user names, with ``named_only``.
    """
    if named_only:
        return [part for name in NAMED for part in os.environ.get(name, "").split(":") if part]
    wheels = (Path(entry or ".") / "nvidia" / "cu13" / "include" for entry in sys.path)
    for folder in (Path("/usr/local/cuda/include"), *wheels):
        if (folder / "cuda_fp16.h").is_file():
            return [str(p) for p in (folder, folder / "cccl") if p.is_dir()]
    return []


def expand_includes(path: Path, seen: set[Path] | None = None, errors: str = "strict") -> str:
    """The source with its local includes in place and ``#line`` marks under virtual names.

    NVRTC would otherwise write this machine's folders into the line table of every capture.
    A file is included once, as with ``#pragma once``. Raises UsageError for a file that is not
    UTF-8, and for an include from outside of the study's folder, unless ``errors`` are replaced.
    """
    seen = seen if seen is not None else set()
    seen.add(path)
    study, lines = path.parent.name, []
    text = source_text(path, path.name, errors)
    for number, line in enumerate(text.splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match and errors == "strict" and not within_study(path, match[1]):
            raise UsageError(
                f'{path.name}({number}): #include "{match[1]}" leaves the folder of its study',
                hint="copy the file beside study.py",
            )
        if (computed := _COMPUTED.match(line)) and errors == "strict":
            raise UsageError(
                f"{path.name}({number}): #include {computed[1]} does not say which file it means",
                hint="name it: what is not named is in no fingerprint",
            )
        target = path.parent / match[1] if match else None
        if target is None or not target.is_file():
            lines.append("" if line.strip() == "#pragma once" else line)
        elif target in seen:
            lines.append("")
        else:
            lines += [
                f'#line 1 "{virtual_name(target.parent.name, target.name)}"',
                expand_includes(target, seen, errors).rstrip("\n"),
                f'#line {number + 1} "{virtual_name(study, path.name)}"',
            ]
    return "\n".join(lines) + "\n"


def source_text(path: Path, shown: str, errors: str = "strict") -> str:
    """Raises UsageError, with the path as it is ``shown``, for what is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start}",
            hint="save the file as UTF-8",
        ) from None


def within_study(path: Path, name: str) -> bool:
    """Whether a file that ``path`` names lies in its study's folder, ``kernels/<study>``."""
    study = next((p for p in path.parents if p.parent.name == "kernels"), path.parent)
    return within(study, path.parent / name)


def within(folder: Path, name: Path | str) -> bool:
    """Whether ``name``, as something in the folder calls it, stays in there."""
    return Path(os.path.normpath(folder / name)).is_relative_to(os.path.normpath(folder))


def virtual_name(study: str, file: str) -> str:
    """The name a source is compiled under, so that no machine's path reaches a capture."""
    return f"{VIRTUAL_ROOT}/{study}/{file}"
