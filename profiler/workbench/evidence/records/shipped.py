"""What a package says of the variant that it holds."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from workbench.evidence.records.base import Number, Provenance, Record


class ShippedTime(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured of a shipped variant at a shape: microseconds of a call, chained, and how
    many times faster it is than ``reference``, with the interval of ``level`` percent over
    ``sessions``.

    ``times_reference`` is its error as a multiple of the primary reference's, ``file`` the timing
    that the figures come from, by its path in the evidence folder.
    """

    shape: str
    microseconds: Number
    sessions: int
    file: str
    reference: str = ""
    ratio: Number | None = None
    low: Number | None = None
    high: Number | None = None
    level: int = 95  # 99 where it was looked at before
    times_reference: Number | None = None


class ShippedCubin(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A cubin in a package. ``code`` is the sha256 of its machine code, ``measured`` whether that
    is what the evidence speaks of: another NVRTC may make other code of the same source. None is
    not collected.
    """

    file: str
    sha256: str
    arch: str
    source: str
    kernel: str
    registers: int
    code: str = ""
    measured: bool | None = None
    defines: dict[str, str] = msgspec.field(default_factory=dict)


class Shipped(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``provenance.json`` of a package: what was shipped, and what is known of it.

    ``sources`` are the variant's files as they stand in their workspace, ``files`` all files of the
    package: name to sha256. ``environment`` is that of the evidence, ``gates`` say why the step is
    kept. ``keeps`` as in ``shipped.facts``.
    """

    mend: ClassVar[str] = "ship it again"

    date: str
    workbench: str
    study: str
    variant: str
    key_change: str
    fingerprint: str
    judged_at: str
    verdict: str
    gates: dict[str, str]
    commit: str
    sources: dict[str, str]
    environment: Provenance
    times: tuple[ShippedTime, ...]
    cubins: tuple[ShippedCubin, ...] = ()
    compiler: str = ""
    keeps: tuple[str, ...] = ()
    files: dict[str, str] = msgspec.field(default_factory=dict)
