"""Other tools' files, named where a report or a source is expected: what they are, what helps."""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.study.files import for_shell

HEAD = 4096  # bytes that tell a kind
CUDA_MACHINE = 190  # of an ELF file
NO_COUNTERS = "it has times and no counters: `workbench profile -- PROGRAM` collects them"
# What a file begins with, what it is then, and what helps with {file}.
BEGINNINGS = {
    rb"version https://git-lfs": ("a pointer of git LFS, without the file", "git lfs pull"),
    rb"\x1f\x8b": ("compressed by gzip", "gunzip -k {file}"),
    rb"BZh": ("compressed by bzip2", "bunzip2 -k {file}"),
    rb"\xfd7zXZ": ("compressed by xz", "unxz -k {file}"),
    rb"PK\x03\x04": ("a zip archive", "unzip {file}"),
    rb"SQLite format 3": ("an SQLite database, such as nsys exports", NO_COUNTERS),
    rb"\s*(?:<!DOCTYPE|<html)": ("a web page", "download the raw file, not the page around it"),
    rb'(?:.*\n)*?(?:==PROF==|"ID","Process ID")': (
        "text that ncu printed",
        "workbench reads ncu's report: run ncu with -o NAME, and name NAME.ncu-rep",
    ),
}
ENDINGS = {
    ".nsys-rep": ("a report of Nsight Systems", NO_COUNTERS),
    ".qdrep": ("a report of Nsight Systems", NO_COUNTERS),
    ".cu": ("CUDA source", "workbench try {file}"),
    ".cuh": ("CUDA source", "workbench try {file}"),
    ".py": ("Python source", "workbench try {file}, or workbench profile -- python {file}"),
    ".ipynb": ("a notebook", "workbench try {file}"),
}
SCRIPT = ("a script", "workbench profile -- {call}")


def kind_of(path: Path) -> tuple[str, str] | None:
    """Return what a file is, and what to do with it; None for a report, and for what nothing tells.

    Raises OSError where it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    begun = (kind for mark, kind in BEGINNINGS.items() if re.match(mark, head))
    kind = next(begun, None)
    if head.startswith(b"\x7fELF"):
        kind = _elf(head, path)
    kind = kind or ENDINGS.get(path.suffix) or (SCRIPT if head.startswith(b"#!") else None)
    if kind is None:
        return None
    call = f"./{path}" if path == Path(path.name) else path  # a bare name is searched on PATH
    return kind[0], kind[1].format(file=for_shell(path), call=for_shell(call))


def _elf(head: bytes, path: Path) -> tuple[str, str]:
    """A program, a library, an object file or a cubin."""
    if int.from_bytes(head[18:20], "little") == CUDA_MACHINE:
        return "compiled CUDA code", "workbench diff {file} OTHER.cubin compares two"
    if re.search(r"\.so(\.\d+)*$", path.name):
        hint = "profile a program that calls it: workbench profile -- python script.py"
        return "a compiled library", hint
    if head[16] == 1 or not os.access(path, os.X_OK):
        return "compiled code", "link it to a program, or chmod +x {file}"
    return "a program", "workbench profile -- {call}"
