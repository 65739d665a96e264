"""What has landed is put on record, a group at a time.

The disk is waited for twice a group, whatever number of blocks is in it: first for what the blocks
left, in the spool and under temporary names beside the evidence; then, once all of it has its name,
for the journal. A command that is killed leaves its last group in the spool: the next one merges it
again, which completes it and changes nothing that was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from workbench.evidence.layout import EvidenceFolder
from workbench.places.blocks import Left
from workbench.places.merge import Merger
from workbench.places.spool import Spool

if TYPE_CHECKING:
    from workbench.places.underway import Flight

MOST = 64  # blocks of a group: what they left is in memory


class Landing:
    """Of one evidence folder."""

    def __init__(self, folder: EvidenceFolder) -> None:
        self.merger = Merger(folder)
        self.spool = Spool(folder.root / ".blocks")
        self.group: list[tuple[Flight, Left]] = []

    def has_room(self, shape: str) -> bool:
        """Whether a block of this shape can join the group: what supersedes what of one shape is
        seen from the files that are on record.
        """
        return len(self.group) < MOST and all(one.block.shape != shape for one, _ in self.group)

    def add(self, flight: Flight, left: Left) -> None:
        """To the group. Raises ToolFailed for what is not what the worker wrote."""
        if left.files and flight.is_share:
            self.merger.gathered([(flight.block, left)], 1)
        elif left.files:
            self.merger.merge(flight.block, left)
        self.group.append((flight, left))

    def commit(self) -> list[tuple[Flight, Left]]:
        """The group, now on record; shares of a comparison are kept until all of them are in.

        Raises EnvironmentLacks where the disk is full.
        """
        group, self.group = self.group, []
        if not any(left.files for _, left in group):
            return group
        self.spool.put(left for _, left in group if left.files)
        self.merger.commit([self.spool.log])
        merged = [
            (flight, left if flight.is_share else structs.replace(left, files={}))
            for flight, left in group
        ]
        self.spool.put(left for _, left in merged if left.sha256 and not left.files)
        return merged
