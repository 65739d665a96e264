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
BEGINNINGS = (
    (rb"version https://git-lfs", "a pointer of git LFS, without the file", "git lfs pull"),
    (rb"/annex/objects/", "a pointer of git-annex, without the file", "git annex get {file}"),
    (rb"\x1f\x8b", "compressed by gzip", "gunzip -k {file}"),
    (rb"BZh", "compressed by bzip2", "bunzip2 -k {file}"),
    (rb"\xfd7zXZ", "compressed by xz", "unxz -k {file}"),
    (rb"PK\x03\x04", "a zip archive", "unzip {file}"),
    (rb"SQLite format 3", "an SQLite database, such as nsys exports", NO_COUNTERS),
    (rb'"?Time \(%\)', "a table that nsys printed", NO_COUNTERS),
    (rb'\s*\{[^}]*"(?:schemaVersion|traceEvents)"', "a trace of torch.profiler", NO_COUNTERS),
    (rb"\s*(?:<!DOCTYPE|<html)", "a web page", "download the raw file, not the page around it"),
    (
        rb'(?:.*\n)*?(?:==PROF==|"ID","Process ID")',
        "text that ncu printed",
        "workbench reads ncu's report: run ncu with -o NAME, and name NAME.ncu-rep",
    ),
)
ENDINGS = {
    ".nsys-rep": ("a report of Nsight Systems", NO_COUNTERS),
    ".qdrep": ("a report of Nsight Systems", NO_COUNTERS),
    ".qdstrm": ("an unfinished report of Nsight Systems", NO_COUNTERS),
    ".nvvp": ("a profile of nvprof", NO_COUNTERS),
    ".cu": ("CUDA source", "workbench try {file}"),
    ".cuh": ("CUDA source", "workbench try {file}"),
    ".py": ("Python source", "workbench try {file}, or workbench profile -- python {file}"),
    ".ipynb": ("a notebook", "workbench try {file}"),
}


def kind_of(path: Path) -> tuple[str, str] | None:
    """Return what a file is, and what to do with it; None for a report, and for what nothing tells.

    Raises OSError where it cannot be read.
    """
    if path.is_symlink() and not path.exists():
        what = "a link of git-annex to a file that is not here"
        is_annexed = "annex/objects" in path.readlink().as_posix()
        return (what, f"git annex get {path}") if is_annexed else None
    with path.open("rb") as file:
        head = file.read(HEAD)
    name = for_shell(path)
    if head.startswith(b"\x7fELF"):
        return _elf(head, path)
    for beginning, what, hint in BEGINNINGS:
        if re.match(beginning, head):
            return what, hint.format(file=name)
    what, hint = ENDINGS.get(path.suffix, ("", ""))
    if not what and head.startswith(b"#!"):
        what, hint = "a script", "workbench profile -- {file}"
        name = _called(path)
    return (what, hint.format(file=name)) if what else None


def _elf(head: bytes, path: Path) -> tuple[str, str]:
    """A program, a library, an object file or a cubin."""
    name = for_shell(path)
    if int.from_bytes(head[18:20], "little") == CUDA_MACHINE:
        other = "workbench diff {0} OTHER.cubin compares two"
        return "compiled CUDA code", other.format(name)
    if re.search(r"\.so(\.\d+)*$", path.name):
        return (
            "a compiled library",
            "profile a program that calls it: workbench profile -- python script.py",
        )
    if head[16] == 1 or not os.access(path, os.X_OK):
        return "compiled code", f"link it to a program, or chmod +x {name}"
    return "a program", f"workbench profile -- {_called(path)}"


def _called(path: Path) -> str:
    """Name a file as a shell calls it: a bare name is searched on PATH."""
    return for_shell(f"./{path}" if path == Path(path.name) else path)
