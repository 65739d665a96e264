"""What NVRTC and ptxas report: resources of every kernel, warnings, diagnostics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelBuild:
    """What ptxas reports of one kernel; sizes in bytes, registers per thread. ``code`` is the
    sha256 of its machine code (see ``cubin``); "" of one that is not launched.
    """

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    code: str = ""


_FUNCTION = re.compile(r"Function properties for (\S+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# ptxas calls it information when it waits after every wgmma, which costs a third of the speed.
_WARNING = re.compile(r"\bwarning\b|potential performance loss", re.IGNORECASE)


def parse_log(log: str) -> tuple[list[KernelBuild], list[str]]:
    """Resources per entry function, and the warnings, from an NVRTC and ptxas ``-v`` log."""
    entries: dict[str, dict[str, int]] = {}
    warnings: list[str] = []
    entry = function = ""
    for line in log.splitlines():
        if _WARNING.search(line):
            warnings.append(" ".join(line.split()))
        elif match := _ENTRY.search(line):
            entry = match[1]
            entries[entry] = {}
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif (match := _STACK.search(line)) and function in entries:
            numbers = map(int, match.groups())
            entries[function].update(
                zip(("stack_bytes", "spill_store_bytes", "spill_load_bytes"), numbers, strict=True)
            )
        elif (match := _REGISTERS.search(line)) and entry:
            shared = _SHARED.search(line)
            entries[entry]["registers"] = int(match[1])
            entries[entry]["shared_bytes"] = int(shared[1]) if shared else 0
    builds = [_build(name, found) for name, found in entries.items()]
    return builds, warnings


def _build(kernel: str, found: Mapping[str, int]) -> KernelBuild:
    """What the log does not name is zero."""
    return KernelBuild(
        kernel=kernel,
        registers=found.get("registers", 0),
        shared_bytes=found.get("shared_bytes", 0),
        stack_bytes=found.get("stack_bytes", 0),
        spill_store_bytes=found.get("spill_store_bytes", 0),
        spill_load_bytes=found.get("spill_load_bytes", 0),
    )


def compiler_message(text: str) -> str:
    """The diagnostics in a compiler log, without ptxas' resource lines."""
    kept = [
        line.strip("\0")
        for line in text.splitlines()
        if line.strip("\0 ") and "ptxas info" not in line and "bytes stack frame" not in line
    ]
    return "\n".join(kept[:40])
