"""What all records have in common, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from workbench.words import SCHEMA_VERSION

Number = int | float
UNITS = ("FLOP/s", "byte/s")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``mend`` is the way out where a file of this kind is damaged, ``schema`` its version."""

    schema: ClassVar[int] = SCHEMA_VERSION
    mend: ClassVar[str] = "restore it, or delete it and measure again"

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        """Its content without what a file of this kind leaves out to be smaller."""
        return content


def without_defaults(content: Mapping[str, Any], kind: type[Record]) -> dict[str, Any]:
    """Of a record of this kind what is not as its fields begin."""
    begin = {each.name: each.default for each in msgspec.structs.fields(kind)}
    return {name: value for name, value in content.items() if value != begin[name]}


class Environment(Record, frozen=True, kw_only=True, omit_defaults=True):
    """GPU, driver and libraries of the process that measured; sizes in bytes.

    ``gpu_uuid`` is NVML's. ``host`` is a digest of the machine's name, which tells two machines
    apart and names neither. ``packages`` are the versions of what references need. None is not
    collected, and is not written.
    """

    gpu: str | None = None
    gpu_uuid: str | None = None
    host: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    cudnn: str | None = None
    torch: str | None = None
    cuda_core: str | None = None
    python: str | None = None
    packages: dict[str, str] | None = None


class Provenance(Environment, frozen=True, kw_only=True, omit_defaults=True):
    """Where a record comes from; ``date`` is in UTC, ``command`` what the user ran."""

    date: str
    workbench: str | None = None
    command: str | None = None
    ncu_command: str | None = None


def require_file_name(field: str, name: str) -> None:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"has '{field}' {name!a}, no file in the folder of reports")
