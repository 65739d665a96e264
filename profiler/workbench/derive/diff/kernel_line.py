"""Where a kernel begins in its source. Pure."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d+)")


def plain_name(kernel: str) -> str:
    """``forward`` of ``_Z7forwardILi64EEvPf`` and ``_ZN2ns7forwardEv`` (Itanium C++ ABI, 5.1.2);
    other names as they are.
    """
    at, name = (3 if kernel.startswith("_ZN") else 2), ""
    while kernel.startswith("_Z") and (match := _PART.match(kernel, at)):
        at = match.end() + int(match[1])
        name = kernel[match.end() : at]
    return name or kernel


def kernel_line(text: str, kernel: str = "") -> int | None:
    """The line, from 1, with the name of a ``__global__`` function, of the first where none is
    named; None where it is not there.
    """
    name = re.escape(plain_name(kernel)) if kernel else r"\w+"
    named = re.compile(rf"__global__\b[^;{{}}]*?\b(?P<name>{name})\s*\((?!\d)", re.DOTALL)
    match = named.search(text)
    return text.count("\n", 0, match.start("name")) + 1 if match else None
