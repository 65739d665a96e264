"""Stands in for the measuring of blocks, on Dask workers: evidence without a GPU or a process.

What a block leaves is that of ``run.measure``, record for record, with times that its name decides.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug
from workbench.evidence.records import Provenance, Series, Session, Timing
from workbench.places import blocks, workers
from workbench.places.blocks import Answer, Block, Lacking
from workbench.places.carry import Store
from workbench.run.cards import Card, own_folder
from workbench.run.plan import Measured
from workbench.run.recording import now, stamp
from workbench.study.model import Study
from workbench.study.shapes import with_derived
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace
from workbench.words import Regime

CARD = Card("none", driver="none", compute_capability="none", uuid="GPU-of-none")
RAN = "WORKBENCH_RAN"  # in a worker's environment: a file that gets a line for every block


def task(data: bytes, blobs: dict[str, bytes], kind: tuple[str, ...], topic: str) -> bytes:
    """In place of ``workers.task``."""
    return workers.carried_by(carry_out, data, blobs, kind, topic)


def carry_out(
    data: bytes,
    blobs: dict[str, bytes],
    kind: tuple[str, ...],
    tell: Callable[[bytes], None],
    is_wanted: Callable[[], bool],
) -> Answer:
    """A block whose variants are all timed in as many sessions as it says."""
    began, name, block = time.monotonic(), blocks.id_of(data), blocks.decode(data)
    kept = Store(own_folder() / "sources")
    kept.put(blobs)
    if lacking := kept.lacks(block.sources.values()):
        return Lacking(block=name, sha256=lacking)
    study, prints = sources_of(json.dumps(block.sources, sort_keys=True), block.study)
    with tempfile.TemporaryDirectory() as scratch:
        folder = EvidenceFolder(Path(scratch) / gpu_slug(CARD.name))
        timing = timed(block, prints, with_derived(study, block.derived))
        path = folder.timing(block.shape, f"{stamp(timing.provenance.date)}.json")
        with store.in_scratch():
            store.write(path, timing)
        left = blocks.left_by(name, folder.gpu, folder.root, Measured(), time.monotonic() - began)
    if log := os.environ.get(RAN):
        with Path(log).open("a") as file:
            file.write(f"{name}\n")
    return left


@lru_cache(maxsize=4)
def sources_of(sources: str, name: str) -> tuple[Study, Fingerprints]:
    """Laid out once a process."""
    root = Path(tempfile.mkdtemp(prefix="blockwork-"))
    Store(own_folder() / "sources").lay_out(json.loads(sources), root)
    study = find_workspace(root).study(name)
    return study, Fingerprints(study)


def timed(block: Block, prints: Fingerprints, study: Study) -> Timing:
    parameters = study.shapes[block.shape].parameters
    seed = hashlib.sha256(f"{block.shape} {block.share}".encode()).digest()
    draw = random.Random(seed)
    sessions = tuple(
        Session(
            number=number,
            instances=1,
            series=tuple(
                Series(
                    variant=variant,
                    instance=0,
                    regime=Regime.CHAINED,
                    calls=1,
                    microseconds=(14 + draw.random(), 14 + draw.random()),
                    around=(4, 4),
                )
                for variant in block.timed
            ),
        )
        for number in range(block.timing.sessions)
    )
    return Timing(
        study=block.study,
        shape=block.shape,
        fingerprints={v: prints.at(v, parameters) for v in sorted(block.timed)},
        nodes={},
        stride=1,
        sessions=sessions,
        provenance=Provenance(date=now(), gpu=CARD.name, gpu_uuid=CARD.uuid),
        planned=block.timing.sessions,
    )
