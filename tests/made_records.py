"""Tables of a few rows and small records for tests, as a capture or a build has them."""

from __future__ import annotations

from typing import Any

from workbench.evidence.records import Build, BuiltKernel, CaptureIndex, Provenance
from workbench.ncu.capture import METRIC_COLUMNS, ColumnTable
from workbench.run.protocol import SessionsJob

ORIGIN = Provenance(date="2026-01-02T03:04:05Z")


def metrics(*launches: dict[str, float]) -> ColumnTable:
    """Of one kernel a launch: metric name to value."""
    rows = [
        (i, f"k{i}", name, value, "")
        for i, found in enumerate(launches)
        for name, value in found.items()
    ]
    return ColumnTable(rows, columns=METRIC_COLUMNS)


def built_kernel(**own: Any) -> BuiltKernel:
    none = ("shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes")
    known: dict[str, Any] = {
        "kernel": "k",
        "registers": 32,
        "source": "k.cu",
        **dict.fromkeys(none, 0),
    }
    return BuiltKernel(**known | own)


def build_of(*kernels: BuiltKernel, **own: Any) -> Build:
    known: dict[str, Any] = {"variant": "fix1", "fingerprint": "", "sources": ("k.cu",)}
    known |= {"arch": "sm_90a", "warnings": (), "provenance": ORIGIN}
    return Build(kernels=kernels, **known | own)


def made_index(variant: str, shape: str, **own: Any) -> CaptureIndex:
    known: dict[str, Any] = dict.fromkeys(("fingerprint", "sha256", "range"), "")
    known |= {"report": "r.ncu-repz", "launches": 1, "ncu": "2025.3.1", "ncu_flags": ()}
    return CaptureIndex(variant=variant, shape=shape, **known | {"provenance": ORIGIN} | own)


def sessions_job(**own: Any) -> SessionsJob:
    known: dict[str, Any] = {"study": "scale", "shape": "large", "params": {}, "sources": {}}
    known |= {"references": (), "controls": (), "sessions": 2, "instances": 4, "rounds": 6}
    return SessionsJob(**known | {"graph_microseconds": 150.0} | own)
