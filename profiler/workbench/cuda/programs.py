"""The text of a source of kernels: with its local headers, and without a path of this machine; and
of a whole program the device code, found by tokens, for a compiler that has no host.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from workbench.errors import ToolFailed, UsageError
from workbench.words import VIRTUAL_ROOT

_LOCAL = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
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
        match = _LOCAL.match(line)
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


_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s\\"]*)\(.*?\)(?P=mark)"'
    r"""|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
_SCOPE = re.compile(r"(?:inline\s+)?namespace\b\s*(?P<name>[\w:]*)[^()]*")
_C_LINKAGE = re.compile(r'extern\s+"C"\s*')
_ON_DEVICE = re.compile(r"\b(?:__global__|__device__|constexpr|consteval|\w*DEVICE\w*)\b")
_HAS_DEVICE_CODE = re.compile(r"__(?:global|device)__|DEVICE")
_OF_DEVICE = re.compile(r"^[ \t]*#\s*define\s+(\w+)\b.*(?:__device__|__global__)", re.MULTILINE)
_OF_KERNEL = re.compile(r"^[ \t]*#\s*define\s+(\w+)\b.*__global__", re.MULTILINE)
_CLASS = re.compile(r"(?:typedef\s+)?(?:struct|class|union|enum)\b")
_ATTRIBUTE = re.compile(r"\b(?:__launch_bounds__|__attribute__|__cluster_dims__|__maxnreg__)\s*\(")
_INITIALISED = re.compile(r"\s*[,{]")  # a member, with braces, ahead of a constructor's body
_LAST_MACRO = re.compile(r"(?<=[};])\s+[A-Z]\w*\s*$")  # CUB_NAMESPACE_END, without a semicolon
_MARKS = dict(zip("({[", ")}]", strict=True))


@dataclass(frozen=True)
class Item:
    """A declaration or definition at the scope of a namespace, from offset ``start`` to ``end``.

    ``head`` is what stands ahead of its body, without comments. ``scope`` is that of its
    namespaces, such as ``ns::``.
    """

    start: int
    end: int
    head: str
    scope: str
    c_linkage: bool
    is_function: bool  # with a body


@dataclass(frozen=True)
class Entry:
    """A ``__global__`` function. ``template`` are the parameters of the template that it is of.
    ``waits_for_grid``: its blocks wait for each other, which needs a cooperative launch.
    ``overloads`` are the parameters of others of its name; ``is_one_of_several`` also where others
    are only declared.
    """

    name: str
    parameters: str
    template: str | None
    c_linkage: bool
    waits_for_grid: bool = False
    overloads: tuple[str, ...] = ()
    is_one_of_several: bool = False


def masked(text: str) -> str:
    """The text with spaces for comments and directives, and ``_`` for what stands in strings."""

    def hidden(match: re.Match[str]) -> str:
        text_found = match[0]
        if text_found == '"C"':
            return text_found
        filler = " " if text_found.startswith(("//", "/*")) else "_"
        return "".join(c if c in "\n" else filler for c in text_found)

    plain = _SKIPPED.sub(hidden, text)
    return _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), plain)


def items(text: str) -> list[Item]:
    """List the items of a file; none where its braces do not match."""
    plain = masked(text)
    try:
        return list(_items(plain))
    except IndexError:
        return []


def _items(plain: str) -> Iterator[Item]:
    scopes: list[tuple[str, bool]] = []
    place = 0
    plain = _LAST_MACRO.sub("", plain)
    while match := re.compile(r"\S").search(plain, place):
        start = place = match.start()
        if plain[place] == "}":
            scopes.pop()
            place += 1
            continue
        place = _stop(plain, place)
        head = plain[start:place].strip()
        scope = _SCOPE.fullmatch(head)
        if plain[place] == "{" and (scope or _C_LINKAGE.fullmatch(head)):
            scopes.append((f"{scope['name']}::" if scope and scope["name"] else "", not scope))
            place += 1
            continue
        is_function = plain[place] == "{" and _is_function(head)
        if plain[place] == "{":
            place = _closed(plain, place)
            while is_function and _INITIALISED.match(plain, place):
                place = _closed(plain, _stop(plain, place))
            if not is_function:
                while plain[place := _stop(plain, place)] != ";":
                    place = _closed(plain, place)
                place += 1
        else:
            place += 1
        linkage = any(c for _, c in scopes) or head.startswith('extern "C"')
        yield Item(start, place, head, "".join(name for name, _ in scopes), linkage, is_function)
    if scopes:
        raise IndexError


def _stop(plain: str, place: int) -> int:
    """Find the next ``;`` or ``{`` that is not inside of parentheses."""
    while plain[place] not in ";{":
        place = _closed(plain, place) if plain[place] in "([" else place + 1
    return place


def _closed(plain: str, place: int) -> int:
    """Return the place behind the bracket that closes the one at ``place``."""
    close = [_MARKS[plain[place]]]
    while close:
        place += 1
        if plain[place] in _MARKS:
            close.append(_MARKS[plain[place]])
        elif plain[place] == close[-1]:
            close.pop()
    return place + 1


def _template(head: str) -> tuple[str | None, str]:
    """The parameters of a template, and what follows them."""
    head = re.sub(r'^extern\s+"C"\s*', "", head)
    if not (match := re.match(r"template\s*<", head)):
        return None, head
    depth, place = 1, match.end()
    while depth and place < len(head):
        depth += {"<": 1, ">": -1}.get(head[place], 0)
        place = _closed(head, place) if head[place] == "(" else place + 1
    return " ".join(head[match.end() : place - 1].split()), head[place:].strip()


def _is_function(head: str) -> bool:
    _, head = _template(head)
    if _CLASS.match(head):
        return head.endswith(")")
    before = head.partition("(")[0]
    return "(" in head and not re.search(r"(?<![=!<>])=(?!=)", re.sub(r"operator\W+", "", before))


def is_host(item: Item, text: str = "") -> bool:
    """Whether a function runs on the host alone; ``text`` may define macros for device code."""
    macros = _OF_DEVICE.findall(text)
    marked = _ON_DEVICE.search(item.head) or any(re.search(rf"\b{m}\b", item.head) for m in macros)
    return item.is_function and not marked


def without(text: str, removed: Iterable[Item]) -> str:
    """The text with spaces in place of these, on the same lines; directives stay."""
    plain, letters = masked(text), list(text)
    for item in removed:
        for place in range(item.start, item.end):
            if plain[place] not in " \n":
                letters[place] = " "
    return "".join(letters)


def entries(text: str) -> dict[str, Entry]:
    """The ``__global__`` functions that a text defines, by name: ``ns::scale``. Of those that share
    a name, the first.
    """
    entries_found: dict[str, Entry] = {}
    declared: dict[str, set[str]] = defaultdict(set)
    macros = "|".join(["__global__", *_OF_KERNEL.findall(text)])
    marked = re.compile(rf"\b(?:{macros})\b(?P<call>\s*\(\w*\))?")
    for item in items(text):
        if "(" in item.head and (marks := marked.search(item.head)):
            template, head = _template(item.head)
            head = head.replace(marks[0], "void") if marks["call"] else head
            while match := _ATTRIBUTE.search(head):
                head = head[: match.start()] + head[_closed(head, match.end() - 1) :]
            before, _, after = head.partition("(")
            name = item.scope + before.split()[-1]
            parameters = " ".join(after.rpartition(")")[0].split())
            declared[name].add(parameters)
            if not item.is_function:
                continue
            waits = re.search(r"\bthis_grid\s*\(", text[item.start : item.end]) is not None
            entry = Entry(name, parameters, template, item.c_linkage, waits)
            first = entries_found.setdefault(name, entry)
            if parameters not in (first.parameters, *first.overloads) and not re.search(
                r"template\s*<\s*>", item.head
            ):
                more = (*first.overloads, parameters)
                entries_found[name] = replace(first, overloads=more)
    return {
        name: replace(entry, is_one_of_several=len(declared[name]) > 1)
        for name, entry in entries_found.items()
    }


_LAUNCH = re.compile(r"([\w:]+\s*(?:<[^<>;]*>)?)\s*<<<(.*?)>>>\s*\(", re.DOTALL)


def launches(text: str) -> Iterator[tuple[str, str]]:
    """The launches in a file: the kernel's bare name, and the launch itself in one line."""
    plain = masked(text)
    for match in _LAUNCH.finditer(plain):
        with suppress(IndexError):
            whole = plain[match.start() : _closed(plain, match.end() - 1)]
            yield match[1].partition("<")[0].strip(), " ".join(whole.split())


T = TypeVar("T")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"].*$', re.MULTILINE)
_LINE = re.compile(r'#line (\d+) "([^"]+)"')
_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error", re.MULTILINE)
_MISSING = re.compile(
    r'cannot open source file "([^"]+)"|fatal error: (\S+): No such file', re.MULTILINE
)
# Of the host alone, as far as NVRTC goes: where they are there, it cannot read them.
_HOST_HEADERS = re.compile(
    r"[a-z_]+|(?:assert|ctype|errno|inttypes|locale|omp|pthread|setjmp|signal|std\w+|string|time"
    r"|unistd|sys/\w+)\.h"
    r"|cu(?:blas|fft|solver|sparse|dnn|file)\w*\.h|curand\.h|cuda\.h|nccl\.h|nvml\.h|nvtx3/.*"
    r"|(?:thrust|torch|ATen|c10|pybind11)/.*|helper_\w+\.h|nvToolsExt\.h|cuda_profiler_api\.h"
)
# Headers of C and C++ by their counterparts for device code.
_STANDARD = {
    **{f"{name}.h": f"c{name}" for name in ("stdint", "float", "limits", "math", "stddef")},
    **{name: name for name in ("cstdint", "cfloat", "climits", "cmath", "cstddef", "limits")},
    **{name: name for name in ("type_traits", "utility", "array", "tuple", "functional")},
    **{name: name for name in ("complex", "numeric", "iterator", "span", "optional")},
    "algorithm": "__algorithm_",
}
# What cub/cub.cuh has for device code.
_CUB = (
    *(f"cub/block/block_{part}.cuh" for part in ("load", "store", "reduce", "scan", "radix_sort")),
    *(f"cub/warp/warp_{part}.cuh" for part in ("reduce", "scan")),
)
_HALVES = ("cuda_fp16.h", "cuda_bf16.h")  # which these headers bring along
_WITH_HALVES = ("cublas", "torch/", "ATen/", "c10/")
_TORCHS_NAMES = (
    "#ifdef __CUDA_BF16_H__\n"
    "namespace c10 { using Half = __half; using BFloat16 = __nv_bfloat16; }\n"
    "namespace at { using c10::Half; using c10::BFloat16; }\n"
    "#endif\n"
)
PRELUDE = "prelude.cuh"  # what nvcc gives every source, and NVRTC does not
HINT = (
    "CPATH=FOLDER names a folder of headers, such as CUTLASS's include; with nvcc and a host "
    "compiler installed, nvcc compiles the unchanged file"
)


class CompileError(ToolFailed):
    """The compiler refused a source; the message holds its diagnostics with file and line, and
    ``log`` all that it printed.
    """

    def __init__(self, message: str, *, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log


def for_nvrtc(text: str, name: str) -> str:
    """Return the device code of ``name``, with what nvcc gives every source and NVRTC not."""
    wanted: list[str] = []

    def included(match: re.Match[str]) -> str:
        header = match[1]
        if header == "cub/cub.cuh":
            wanted.extend(_CUB)
        elif header.startswith(_WITH_HALVES):
            wanted.extend(_HALVES)
        elif header in _STANDARD:
            wanted.append(f"cuda/std/{_STANDARD[header]}")
        elif not _HOST_HEADERS.fullmatch(header):
            return match[0]
        return ""

    text = _INCLUDE.sub(included, text)
    headers = _if_there(wanted)
    prelude = Path(__file__).with_name(PRELUDE).read_text(encoding="utf-8")
    return f'{headers}{prelude}#line 1 "{name}"\n{without_host_code(text)}'


def _if_there(headers: Iterable[str]) -> str:
    names = dict.fromkeys(headers)
    text = "".join(f"#if __has_include(<{one}>)\n#include <{one}>\n#endif\n" for one in names)
    return text + _TORCHS_NAMES if {*_HALVES} <= {*names} else text


def without_host_code(text: str) -> str:
    """``main()`` and the other functions of the host are spaces, on the same lines."""
    return without(text, (item for item in items(text) if is_host(item, text)))


def compiled(text: str, compiler: Callable[[str], T]) -> tuple[T, list[str]]:
    """Compile a text, or less of it, and list the headers that were left out.

    What is left out for ``compiler``: the headers that it does not find, then code of the host, and
    at last the declarations that it refuses. The last CompileError is raised, with the headers that
    were not found.
    """
    left_out: list[str] = []
    while True:
        try:
            return compiler(text), list(dict.fromkeys(left_out))
        except CompileError as error:
            missing = [header for pair in _MISSING.findall(error.log) for header in pair if header]
            left_out += missing
            less = without_host_code(_without_headers(text, missing))
            if any(header.startswith(_WITH_HALVES) for header in missing):
                less = less if _if_there(_HALVES) in less else _if_there(_HALVES) + less
            if less == text:
                less = _without_culprits(text, error.log)
            if less == text:
                if not left_out:
                    raise
                lacks = ", ".join(f"<{header}>" for header in dict.fromkeys(left_out))
                shown = f"{error.message}\nnot found: {lacks}"
                raise CompileError(shown, hint=HINT, log=error.log) from error.__cause__
            text = less


def _without_headers(text: str, headers: Sequence[str]) -> str:
    return _INCLUDE.sub(lambda match: "" if match[1] in headers else match[0], text)


def _without_culprits(text: str, log: str) -> str:
    """Leave out the declarations that errors are in, where nothing in them runs on the GPU."""
    wrong = {(file, int(line)) for file, line in _ERROR.findall(log)}
    lines: list[tuple[int, int]] = []
    name, number, offset = "", 0, 0
    for line in text.split("\n"):
        if match := _LINE.match(line):
            name, number = match[2], int(match[1]) - 1
        elif (name, number) in wrong:
            lines.append((offset, offset + len(line)))
        offset, number = offset + len(line) + 1, number + 1
    removed = [
        item
        for item in items(text)
        if any(item.start < end and start < item.end for start, end in lines)
        and not _HAS_DEVICE_CODE.search(text, item.start, item.end)
    ]
    return without(text, removed)
