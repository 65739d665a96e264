"""CUDA binaries (ELF, System V ABI, 64 bit): their kernels, and those that travel with sources.

Two kernels are the same to the GPU if their sections are the same, whatever their sources and lines
are: no disassembly is needed. A folder of cubins has an ``index.json``, by a key over all that a
cubin was built from, so that no cubin passes for that of another source. A shipped package loads
them, and compiles only for architectures that it has none of.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.cuda.includes import expand_includes
from workbench.errors import EnvironmentLacks, UsageError
from workbench.words import INSTALL

if TYPE_CHECKING:
    from workbench.cuda.build import Source


MAGIC = b"\x7fELF\x02\x01"
CUDA = 190  # e_machine
HEADER, SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
NO_BITS = 8  # a section that takes no room in the file
TEXT = ".text."
# Where a kernel's own sections are called after it: code, attributes, relocations, constants and
# static shared memory. Line tables, PTX, symbols and the compiler's notes are no part of its code.
_OWN = re.compile(r"\.(?:text|rela?\.text|nv\.info|nv\.shared|nv\.constant\d+)\.(?P<of>.+)")
_SHARED = re.compile(r"\.nv\.(?:constant\d+|global(?:\.init)?|shared\.reserved.*)")


class Section(NamedTuple):
    """``body`` is empty where it takes no room in the file; ``size`` is its own then."""

    name: str
    size: int
    body: bytes


def sections(content: bytes, at: int = 0) -> Iterator[Section]:
    """Those of the binary that begins at ``at``. Raises ValueError, IndexError or struct.error for
    what is none.
    """
    head = HEADER.unpack_from(content, at)
    machine, table, size, count, names = head[2], head[6], head[11], head[12], head[13]
    if machine != CUDA or size != SECTION.size:
        raise ValueError("not a CUDA binary")
    every = [SECTION.unpack_from(content, at + table + i * size) for i in range(count)]
    texts = _body(content, at, every[names])
    for one in every:
        name = texts[one[0] : texts.index(b"\0", one[0])].decode("ascii", "replace")
        body = b"" if one[1] == NO_BITS else _body(content, at, one)
        yield Section(name, one[5], body)


def _body(content: bytes, at: int, section: tuple[int, ...]) -> bytes:
    start, size = at + section[4], section[5]
    if start + size > len(content):
        raise ValueError("cut short")
    return content[start : start + size]


def code_digests(cubin: bytes) -> dict[str, str]:
    """Function to the sha256 of all that the GPU sees of it; empty for what is no CUDA binary.

    That is its own sections, those that all functions share (constants and variables of the
    module), and the functions that are no entries, since it may call them.
    """
    try:
        found = [s for s in sections(cubin) if _OWN.fullmatch(s.name) or _SHARED.fullmatch(s.name)]
    except (ValueError, IndexError, struct.error):
        return {}
    names = [s.name.removeprefix(TEXT) for s in found if s.name.startswith(TEXT)]
    entries = {name for name in names if any(s.name == f".nv.constant0.{name}" for s in found)}
    return {name: _digest(found, name, entries) for name in sorted(entries)}


def _digest(found: list[Section], kernel: str, entries: set[str]) -> str:
    digest = hashlib.sha256()
    for section in sorted(found):
        match = _OWN.fullmatch(section.name)
        of = match["of"] if match else ""
        if of in entries and of != kernel:
            continue
        name = section.name.replace(kernel, "") if of == kernel else section.name
        digest.update(f"{name} {section.size}\0".encode())
        digest.update(section.body)
    return digest.hexdigest()


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
    from workbench.cuda.build import compiler_version

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


def write(folder: Path, source: Source, arch: str) -> None:
    """Add the cubin of a source, compiled here. Raises what ``Source.compile`` raises."""
    report, code = source.compile(arch)
    key, cubin = key_of(source, arch), bytes(code.code)
    mapping = dict(code.symbol_mapping)
    file = f"{source.path.stem}.{key[:SHOWN]}.{arch}.cubin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(cubin)
    index = folder / INDEX
    known = json.loads(index.read_text("utf-8")) if index.is_file() else {}
    known[key] = {
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
    index.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
