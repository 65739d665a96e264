"""Cubins that travel with their sources: a shipped package loads them, and compiles only for
architectures that it has none of. The folder has an ``index.json``, by a key over all that a cubin
was built from, so that no cubin passes for that of another source.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from workbench.cuda.compiler import NVRTC, Source, compiler_version
from workbench.cuda.includes import expand_includes
from workbench.errors import EnvironmentLacks, UsageError
from workbench.words import INSTALL

INDEX = "index.json"
SHOWN = 16  # digits of a key in the name of a file

_folder: Path | None = None
_codes: dict[str, Any] = {}


def carry(folder: Path) -> None:
    """From now on kernels are looked for here, and each is loaded once a process."""
    global _folder
    _folder = folder


def key_of(source: Source, arch: str) -> str:
    """sha256 over the source with its local headers, name, macros, options and architecture."""
    made_of = [
        expand_includes(source.path),
        source.name,
        sorted((name, str(value)) for name, value in source.defines.items()),
        list(source.options),
        source.must_wait,
        arch,
        *([] if source.compiler == NVRTC else [source.compiler]),
    ]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()


def code_of(source: Source, arch: str) -> Any:
    """The cuda-core object code of a kernel. Raises what ``Source.compile`` raises where it has to
    be compiled, and UsageError for a carried cubin that is not the one that was written.
    """
    if _folder is None:
        return source.compile(arch)[1]
    key = key_of(source, arch)
    if key not in _codes:
        _codes[key] = _carried(_folder, key) or _compiled(source, arch)
    return _codes[key]


def _compiled(source: Source, arch: str) -> Any:
    if not compiler_version():
        raise EnvironmentLacks(
            f"there is no cubin of {source.path.name} for {arch}, and NVRTC is not installed",
            hint=INSTALL,
        )
    return source.compile(arch)[1]


def _carried(folder: Path, key: str) -> Any:
    """None where there is none."""
    index = folder / INDEX
    entry = json.loads(index.read_text("utf-8")).get(key) if index.is_file() else None
    if entry is None:
        return None
    from cuda.core import ObjectCode

    cubin = (folder / entry["file"]).read_bytes()
    if hashlib.sha256(cubin).hexdigest() != entry["sha256"]:
        raise UsageError(
            f"{entry['file']} is not the cubin that was shipped", hint="install the package again"
        )
    symbols = {name: symbol.encode() for name, symbol in entry["symbols"].items()}
    return ObjectCode.from_cubin(cubin, symbol_mapping=symbols)


def write_cubin(folder: Path, source: Source, arch: str) -> None:
    """Add the cubin of a source, compiled here. Raises what ``Source.compile`` raises."""
    report, code = source.compile(arch)
    key, cubin = key_of(source, arch), bytes(code.code)
    mapping = dict(code.symbol_mapping)
    file = f"{source.path.stem}.{key[:SHOWN]}.{arch}.cubin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(cubin)
    index = folder / INDEX
    entries = json.loads(index.read_text("utf-8")) if index.is_file() else {}
    entries[key] = {
        "file": file,
        "sha256": hashlib.sha256(cubin).hexdigest(),
        "symbols": {name: symbol.decode() for name, symbol in mapping.items()},
        "arch": arch,
        "source": source.path.name,
        "kernel": source.name,
        "defines": {name: str(value) for name, value in source.defines.items()},
        "registers": max((one.registers for one in report.kernels), default=0),
        "code": next((one.code for one in report.kernels if one.code), ""),
    }
    index.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", "utf-8")
