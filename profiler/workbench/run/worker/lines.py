"""Source lines of what front ends compile: always those of the user's file. Runs in the worker.

CUDA code in a string of a variant's module: ``load_inline`` of torch and ``RawKernel`` and
``RawModule`` of CuPy write it to files of their own, whose lines a profiler and compiler errors
would name. Those of CuPy, and ``jit`` of Numba, are also asked for line information. Torch's
``load`` is given the sources under a path that all workers share, or each would build them anew.

Triton: its compiler knows through which calls a line was inlined and passes that on to LLVM, whose
PTX has the innermost line alone: that of ``standard.py`` for every sum and maximum. Between the
two, in a stage of Triton's own for such purposes, locations are replaced by those of the calls.
The code that is generated stays the same.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from workbench.cuda.programs import virtual_name
from workbench.ncu.places import is_library
from workbench.run.process import EXTENSIONS_DIR
from workbench.study.front_ends import front_ends_of
from workbench.study.sources import CODE, named_from

LEAST = 2  # lines that stand together, and are the user's then
LINE_INFO = "-lineinfo"


def prepare(path: Path) -> None:
    """Make the front ends that a module at ``path`` uses, or a file that it names, keep the lines
    of the user's file. This is done once a process.

    A missing package is reported by the module itself.
    """
    used = front_ends_of(named_from(path.parent, path.name))
    with suppress(ImportError):
        if "Triton" in used or "Helion" in used:
            prepare_triton()
        if "nvcc" in used:
            _wrap(import_module("torch.utils.cpp_extension"), "load_inline", _load_inline)
            _wrap(import_module("torch.utils.cpp_extension"), "load", _load)
        if "CuPy" in used:
            _wrap(import_module("cupy"), "RawKernel", _raw)
            _wrap(import_module("cupy"), "RawModule", _raw)
        if "Numba" in used:
            _wrap(import_module("numba.cuda"), "jit", _jit)


def _wrap(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
    """Wrap what a module calls so, unless that is done."""
    real = getattr(owner, name)
    if not hasattr(real, "tells_lines"):
        ours = wrapped(real)
        ours.tells_lines = True
        setattr(owner, name, ours)


def _jit(real: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's, with line information unless it is asked for more, or for none."""

    @functools.wraps(real)
    def jit(*arguments: Any, **named: Any) -> Any:
        if not named.get("debug"):
            named.setdefault("lineinfo", True)
        return real(*arguments, **named)

    return jit


def _load_inline(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def load_inline(
        name: str, cpp_sources: Any, cuda_sources: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        module = _module(sys._getframe(1))
        if module is not None:
            cpp_sources, cuda_sources = (
                _each(sources, module) for sources in (cpp_sources, cuda_sources)
            )
        return real(name, cpp_sources, cuda_sources, *arguments, **named)

    return load_inline


def _load(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def load(name: str, sources: Any, *arguments: Any, **named: Any) -> Any:
        paths = [sources] if isinstance(sources, str) else sources
        if folders := named.get("extra_include_paths"):
            named["extra_include_paths"] = [shared(folder) for folder in folders]
        return real(name, [shared(source) for source in paths], *arguments, **named)

    return load


def shared(path: Any) -> Any:
    """Map a file of this worker's copy of the sources to the copy beside its extensions (see
    ``run.process``); any other path stays.
    """
    kernels, beside = Path.cwd() / "kernels", Path(os.environ.get(EXTENSIONS_DIR, ""))
    source = Path(path).resolve()
    if not source.is_relative_to(kernels.resolve()):
        return path
    there = beside.parent / "kernels" / source.relative_to(kernels.resolve())
    if not there.exists():
        return path
    if source.is_file():
        source.open("rb").close()  # heard of as a source of the variant: ``Opened``
    return str(there)


def _each(sources: Any, module: Path) -> Any:
    if isinstance(sources, str):
        return marked(sources, module)
    return [marked(source, module) for source in sources] if sources else sources


def _raw(kind: Any) -> Any:
    """A class of CuPy that compiles what it is given with lines."""

    by_name = kind.__name__ == "RawModule"

    def __init__(self: Any, code: Any = None, *arguments: Any, **named: Any) -> None:
        module = _module(sys._getframe(1))
        if module is not None and isinstance(code, str):
            code = marked(code, module)
            if not by_name and len(arguments) > 1:
                arguments = (arguments[0], _with_lines(arguments[1]), *arguments[2:])
            else:
                named["options"] = _with_lines(named.get("options", ()))
        if by_name:
            kind.__init__(self, *arguments, code=code, **named)
        else:
            kind.__init__(self, code, *arguments, **named)

    return type(kind.__name__, (kind,), {"__init__": __init__})


def _with_lines(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(options) if LINE_INFO in options else (*options, LINE_INFO)


def _module(frame: FrameType) -> Path | None:
    """The file of the code that calls, where there is one."""
    path = Path(frame.f_code.co_filename)
    return path if path.is_file() else None


def marked(source: str, module: Path) -> str:
    """Insert ``#line`` where lines are those of ``module``, or of a file that it names."""
    files = [path for path in named_from(module.parent, module.name) if path.suffix in CODE]
    mine = source.splitlines()
    best: tuple[int, str, list[tuple[int, int, int]]] = (0, "", [])
    for file in files:
        theirs = file.read_text(errors="replace").splitlines()
        blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
        same = [(b.a, b.b, b.size) for b in blocks if b.size >= LEAST]
        total = sum(size for *_, size in same)
        if total > best[0]:
            best = (total, virtual_name(module.parent.name, file.name), same)
    _, name, same = best
    starts = {at: f'#line {line + 1} "{name}"' for at, line, _ in same}
    ends = {at + size: f'#line {at + size + 1} "{module.stem}.generated"' for at, _, size in same}
    parts: list[str] = []
    for at, line in enumerate(mine):
        place = starts.get(at) or ends.get(at)
        if place and not (at and mine[at - 1].endswith("\\")):
            parts.append(place)
        parts.append(line)
    return "\n".join(parts) + "\n"


HOOK = "add_stages_inspection_hook"  # of triton.knobs.runtime, from Triton 3.5 on
STAGE = "llir"
MOST_CALLS = 64


def prepare_triton() -> None:
    """Set a hook, once, for all kernels that this process compiles. An older Triton has none."""
    runtime = import_module("triton.knobs").runtime
    if hasattr(runtime, HOOK):
        _wrap(runtime, HOOK, _hook)


def _hook(before: Callable[..., Any] | None) -> Callable[..., Any]:
    def add(*arguments: Any, **named: Any) -> Any:
        if len(arguments) < 2:  # newer versions ask so what a kernel's cache depends on
            return before(*arguments, **named) if before else ("workbench lines", "1")
        if before is not None:
            before(*arguments, **named)
        stages = arguments[1]
        if STAGE in stages:
            compiled = stages[STAGE]

            def with_lines(*inner: Any) -> Any:
                code = compiled(*inner)  # whatever a stage of another version gives stays as it is
                return lines_of_users(code) if isinstance(code, str) else code

            stages[STAGE] = with_lines
        return None

    return add


ENTRY = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$", re.MULTILINE)
FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)")')


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
        place = number
        for _ in range(MOST_CALLS):
            if not is_library(file_of(place)):
                return place
            above = fields[place].get("inlinedAt", "")
            if kinds.get(above) != "DILocation":
                return number
            place = above
        return number

    bodies = {number: body for number, kind, body in ENTRY.findall(code) if kind == "DILocation"}

    def replaced(match: re.Match[str]) -> str:
        number = match[1]
        if match[2] != "DILocation":
            return match[0]
        return match[0].replace(match[3], bodies[own(number)])

    return ENTRY.sub(replaced, code)
