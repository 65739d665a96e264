"""The name of a kernel that is the same in every process."""

from __future__ import annotations

import re

VARIANT_MODULE = "workbench_variant"
# A module is loaded more than once in a process, each time under another number, which Numba puts
# into the names of its kernels: _ZN30workbench_variant_2_with_numba4siluB2v3B96cw51...
NUMBERED = re.compile(rf"\d+({VARIANT_MODULE}_)\d+_")
# And the number of the compilation: the ABI tag that numba/cuda/itanium_mangler.py makes of a uid.
COMPILATION = re.compile(r"B(\d+)v(\d+)(?=[BE])")


def variant_module(number: int, variant: str) -> str:
    """As what the module of a variant is loaded for the ``number``-th time in this process."""
    return f"{VARIANT_MODULE}_{number}_{variant}"


def lasting_kernel(mangled: str) -> str:
    """The mangled name without the numbers that modules and compilations have in a process."""
    if NUMBERED.search(mangled) is None:
        return mangled
    return COMPILATION.sub(_without, NUMBERED.sub(r"\1", mangled))


def _without(tag: re.Match[str]) -> str:
    return "" if int(tag[1]) == len(tag[2]) + 1 else tag[0]
