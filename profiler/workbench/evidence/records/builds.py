"""What the compiler said of a variant."""

from __future__ import annotations

from typing import Any

import msgspec

from workbench.evidence.records.base import Provenance, Record, without_defaults


class BuiltKernel(Record, frozen=True, kw_only=True):
    """What ptxas reports of one kernel; sizes in bytes, of which 0 is not written, registers per
    thread. ``code`` is the sha256 of its machine code, without lines and names of files; "" is not
    collected, or of a kernel that the variant does not launch.
    """

    kernel: str
    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    source: str
    code: str = ""


class Build(Record, frozen=True, kw_only=True):
    """``builds/<variant>.json``: where it does not compile, ``error`` says why and ``hint`` what
    to do.
    """

    variant: str
    fingerprint: str
    sources: tuple[str, ...]
    arch: str
    kernels: tuple[BuiltKernel, ...]
    warnings: tuple[str, ...]
    error: str = ""
    provenance: Provenance
    hint: str | msgspec.UnsetType = msgspec.UNSET

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        return {
            **content,
            "kernels": [without_defaults(each, BuiltKernel) for each in content["kernels"]],
        }
