"""The memory hierarchy of a capture, from the kernel to DRAM: figures and their order. Pure."""

from __future__ import annotations

# From the kernel down, as Nsight Compute's memory chart has them.
LEVELS = (
    "global_load_requests",
    "sectors_per_request",
    "global_read",
    "global_store_requests",
    "sectors_per_store",
    "global_write",
    "local_read",
    "local_write",
    "shared_loads",
    "shared_stores",
    "shared_wavefronts",
    "shared_conflicts",
    "l1_hit",
    "l2_to_l1",
    "bulk_read",
    "l1_to_l2",
    "l2_hit",
    "dram_read",
    "dram_write",
)
