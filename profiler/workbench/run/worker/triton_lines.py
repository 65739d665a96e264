"""Lines of Triton kernels: what is inlined from Triton's own library belongs to the user's line.

Triton's compiler knows through which calls a line was inlined and passes that on to LLVM, whose PTX
has the innermost line alone: that of ``standard.py`` for every sum and maximum. Between the two, in
a stage of Triton's own for such purposes, locations are replaced by those of the calls that they
came through. Runs in the worker; the code that is generated stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.ncu.places import is_library
from workbench.run.worker.generated_lines import ENTRY, FIELD, lines_of_origin

HOOK = "add_stages_inspection_hook"  # of triton.knobs.runtime, from Triton 3.5 on
STAGE = "llir"
MOST_CALLS = 64


def prepare() -> None:
    """For all kernels that this process compiles; once, and nothing where Triton is older."""
    runtime = import_module("triton.knobs").runtime
    before = getattr(runtime, HOOK, None)
    if hasattr(runtime, HOOK) and not hasattr(before, "tells_lines"):
        setattr(runtime, HOOK, _hook(before))


def _hook(before: Callable[..., Any] | None) -> Callable[..., Any]:
    def add(*given: Any, **named: Any) -> Any:
        if len(given) < 2:  # newer versions ask so what a kernel's cache depends on
            return before(*given, **named) if before else ("workbench lines", "1")
        if before is not None:
            before(*given, **named)
        stages = given[1]
        if STAGE in stages:
            compiled = stages[STAGE]
            stages[STAGE] = lambda *inner: _of_users(compiled(*inner))
        return None

    add.tells_lines = True  # type: ignore[attr-defined]
    return add


def _of_users(code: Any) -> Any:
    """Whatever a stage of another version gives stays as it is."""
    if not isinstance(code, str):
        return code
    return lines_of_origin(lines_of_users(code), Path.cwd() / "kernels")


def lines_of_users(code: str) -> str:
    """LLVM's text with the locations in libraries replaced by the nearest call in another file."""
    kinds, fields = {}, {}
    for number, kind, body in ENTRY.findall(code):
        kinds[number] = kind
        fields[number] = {key: ref or text for key, ref, text in FIELD.findall(body)}

    def file_of(number: str) -> str:
        scope = fields.get(fields[number].get("scope", ""), {})
        file = fields.get(scope.get("file", ""), {})
        return f"{file.get('directory', '')}/{file.get('filename', '')}"

    def own(number: str) -> str:
        found = number
        for _ in range(MOST_CALLS):
            if not is_library(file_of(found)):
                return found
            above = fields[found].get("inlinedAt", "")
            if kinds.get(above) != "DILocation":
                return number
            found = above
        return number

    bodies = {number: body for number, kind, body in ENTRY.findall(code) if kind == "DILocation"}

    def replaced(match: re.Match[str]) -> str:
        number = match[1]
        if match[2] != "DILocation":
            return match[0]
        return match[0].replace(match[3], bodies[own(number)])

    return ENTRY.sub(replaced, code)
