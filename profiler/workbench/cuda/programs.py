"""A CUDA program as a source of kernels: its device code, for a compiler that has no host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from workbench.cuda.host_code import has_device_code, is_host, items, without
from workbench.errors import ToolFailed

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
PRELUDE = "prelude.cuh"  # what nvcc gives every source, and NVRTC does not
HINT = (
    "CPATH=FOLDER names a folder of headers, such as CUTLASS's include; with nvcc and a host "
    "compiler installed the file is compiled as it is"
)


class CompileError(ToolFailed):
    """The compiler refused a source; the message holds its diagnostics with file and line, and
    ``log`` all that it printed.
    """

    def __init__(self, message: str, *, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log


def for_nvrtc(text: str, name: str) -> str:
    """The device code, with what nvcc gives every source and NVRTC does not; ``name`` is what the
    text is compiled under.
    """
    wanted: list[str] = []

    def included(match: re.Match[str]) -> str:
        header = match[1]
        if header == "cub/cub.cuh":
            wanted.extend(_CUB)
        elif header in _STANDARD:
            wanted.append(f"cuda/std/{_STANDARD[header]}")
        elif not _HOST_HEADERS.fullmatch(header):
            return match[0]
        return ""

    text = _INCLUDE.sub(included, text)
    headers = "".join(
        f"#if __has_include(<{one}>)\n#include <{one}>\n#endif\n" for one in dict.fromkeys(wanted)
    )
    prelude = Path(__file__).with_name(PRELUDE).read_text(encoding="utf-8")
    return f'{headers}{prelude}#line 1 "{name}"\n{without_host_code(text)}'


def without_host_code(text: str) -> str:
    """``main()`` and the other functions of the host are spaces, on the same lines."""
    return without(text, (item for item in items(text) if is_host(item, text)))


def compiled(text: str, compiler: Callable[[str], T]) -> tuple[T, list[str]]:
    """What ``compiler`` makes of a text, or of less: without the headers that it does not find,
    without code of the host, and at last without the declarations that it refuses. And the headers
    that were left out.

    The last CompileError that it raises is raised, with the headers that were not found.
    """
    left_out: list[str] = []
    while True:
        try:
            return compiler(text), list(dict.fromkeys(left_out))
        except CompileError as error:
            missing = [one for pair in _MISSING.findall(error.log) for one in pair if one]
            left_out += missing
            less = without_host_code(_without_headers(text, missing))
            if less == text:
                less = _without_culprits(text, error.log)
            if less == text:
                if not left_out:
                    raise
                lacks = ", ".join(f"<{one}>" for one in dict.fromkeys(left_out))
                told = f"{error.message}\nnot found: {lacks}"
                raise CompileError(told, hint=HINT, log=error.log) from error.__cause__
            text = less


def _without_headers(text: str, headers: Sequence[str]) -> str:
    return _INCLUDE.sub(lambda match: "" if match[1] in headers else match[0], text)


def _without_culprits(text: str, log: str) -> str:
    """Without the declarations that errors are in, where nothing in them runs on the GPU."""
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
        and not has_device_code(item, text)
    ]
    return without(text, removed)
