"""CUDA binaries: ELF files (System V ABI, 64 bit) with a section a kernel.

The machine code of a kernel can be compared without disassembling it: two kernels are the same to
the GPU if their sections are the same, whatever their sources and lines are.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"\x7fELF\x02\x01"
CUDA = 190  # e_machine
HEADER, SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
SYMBOL, RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
NO_BITS = 8  # a section that takes no room in the file
TEXT = ".text."
# Where a kernel's own sections are called after it: code, attributes, relocations, constants and
# static shared memory. Line tables, PTX, symbols and the compiler's notes are no part of its code.
_OWN = re.compile(r"\.(?:text|rela?\.text|nv\.info|nv\.shared|nv\.constant\d+)\.(?P<of>.+)")
# Attributes that tell of the compiler: EIATTR_CUDA_API_VERSION, EIATTR_LANGUAGE, one without a name
# that is 1 in all that NVRTC 13.5 makes, and a PREEXIT_USED of 0, which older ones leave out.
_INFO, _SIZED = ".nv.info.", 4
_OF_THE_COMPILER = re.compile(rb"\x04[\x37\x66].*|\x03\x6b\x01\x00|\x02\x6d\x00\x00", re.DOTALL)
_SHARED = re.compile(r"\.nv\.(?:constant\d+|global(?:\.init)?|shared\.reserved.*)")


class ElfSection(NamedTuple):
    """``body`` is empty where it takes no room in the file; ``size`` is its own then."""

    name: str
    size: int
    body: bytes


def sections(content: bytes, start: int = 0) -> Iterator[ElfSection]:
    """Read the sections of the binary that begins at ``start``. Raises ValueError, IndexError or
    struct.error for what is none.
    """
    head = HEADER.unpack_from(content, start)
    machine, table, size, count, names = head[2], head[6], head[11], head[12], head[13]
    if machine != CUDA or size != SECTION.size:
        raise ValueError("not a CUDA binary")
    every = [SECTION.unpack_from(content, start + table + i * size) for i in range(count)]
    texts = _body(content, start, every[names])
    for header in every:
        name = texts[header[0] : texts.index(b"\0", header[0])].decode("ascii", "replace")
        body = b"" if header[1] == NO_BITS else _body(content, start, header)
        yield ElfSection(name, header[5], body)


def _body(content: bytes, begin: int, section: tuple[int, ...]) -> bytes:
    start, size = begin + section[4], section[5]
    if start + size > len(content):
        raise ValueError("cut short")
    return content[start : start + size]


def pointed_at(cubin: bytes, variable: str) -> str:
    """The function that a variable of a cubin is a pointer to. Raises ValueError where it has no
    such variable, and what ``sections`` raises.
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


def code_digests(cubin: bytes) -> dict[str, str]:
    """Function to the sha256 of all that the GPU sees of it; empty for what is no CUDA binary.

    That is its own sections, those that all functions share (constants and variables of the
    module), and the functions that are no entries, since it may call them.
    """
    try:
        every = (s for s in sections(cubin) if _OWN.fullmatch(s.name) or _SHARED.fullmatch(s.name))
        parts = [_of_the_code(s) if s.name.startswith(_INFO) else s for s in every]
        names = [s.name.removeprefix(TEXT) for s in parts if s.name.startswith(TEXT)]
        entries = {name for name in names if any(s.name == f".nv.constant0.{name}" for s in parts)}
        return {name: _digest(parts, name, entries) for name in sorted(entries)}
    except (ValueError, IndexError, struct.error):
        return {}


def _digest(parts: list[ElfSection], kernel: str, entries: set[str]) -> str:
    digest = hashlib.sha256()
    for section in sorted(parts):
        match = _OWN.fullmatch(section.name)
        of = match["of"] if match else ""
        if of in entries and of != kernel:
            continue
        name = section.name.replace(kernel, "") if of == kernel else section.name
        digest.update(f"{name} {section.size}\0".encode())
        digest.update(section.body)
    return digest.hexdigest()


def _of_the_code(info: ElfSection) -> ElfSection:
    """Sort the attributes of a kernel, each a format, a number and two bytes: a value, or the size
    of the value that follows.
    """
    attributes, place = [], 0
    while place < info.size:
        kind, _, size = struct.unpack_from("<BBH", info.body, place)
        end = place + 4 + (size if kind == _SIZED else 0)
        attributes.append(info.body[place:end])
        place = end
    body = b"".join(sorted(a for a in attributes if not _OF_THE_COMPILER.fullmatch(a)))
    return ElfSection(info.name, len(body), body)
