"""Which report holds a variant, and what is known of its kernels."""

from __future__ import annotations

from workbench.evidence.records.base import Provenance, Record, require_file_name


class CapturedKernel(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a capture says of a kernel: registers a thread, bytes of shared memory a block (its own
    and what was asked for at the launch), and executed instructions that spill registers.
    """

    kernel: str
    registers: int | None = None
    shared_bytes: int | None = None
    spill_instructions: int | None = None


class CaptureIndex(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``<shape>/captures/<variant>.json``: which launches of which report are the variant's.

    ``range`` is the NVTX range around them, ``sha256`` of the report as it is kept. ``repeats``
    are earlier reports of the same sources under the same ncu, newest first, and
    ``repeats_sha256`` theirs by name, where known. ``resources`` are those of its kernels, each
    once.
    """

    variant: str
    shape: str
    fingerprint: str
    report: str
    sha256: str
    range: str
    launches: int
    ncu: str
    ncu_flags: tuple[str, ...]
    provenance: Provenance
    repeats: tuple[str, ...] | None = None
    repeats_sha256: dict[str, str] | None = None
    resources: tuple[CapturedKernel, ...] | None = None

    def __post_init__(self) -> None:
        require_file_name("report", self.report)
        for name in self.repeats or ():
            require_file_name("repeats", name)

    @property
    def known_sha256(self) -> dict[str, str]:
        """Of its report and its repeats, by name."""
        return {**(self.repeats_sha256 or {}), self.report: self.sha256}
