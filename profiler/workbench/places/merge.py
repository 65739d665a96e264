"""What a block left becomes evidence here, as if it had been measured here.

Every file is compared with its hash, read as the record that it is, and belongs to the block's own
variants and shape; else nothing of it is kept. What was merged before changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec import structs

from workbench.errors import ToolFailed, UsageError
from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder, is_there
from workbench.evidence.recorded import derived_shapes
from workbench.evidence.records import (
    Build,
    CaptureIndex,
    Checks,
    GraphNode,
    JournalEntry,
    Provenance,
    Record,
    Session,
    SessionEntry,
    Timing,
    differing,
)
from workbench.places.blocks import Block, Left
from workbench.run.recording import remove_superseded, stamp, with_repeats, write_captures
from workbench.study.model import Study
from workbench.study.sources import Fingerprints

R = TypeVar("R", bound=Record)
JOURNAL = "journal.jsonl"
MINE = "run the same command again: it measures what is missing"
# What cards and libraries of the sessions of one comparison have in common.
EQUAL = (
    *("gpu", "compute_capability", "sm_count", "l2_bytes", "memory_bytes", "driver"),
    *("cuda", "nvrtc", "cudnn", "torch", "cuda_core", "packages"),
)


class Arrived:
    """What a block left, every file compared with its hash. Raises ToolFailed for what is not what
    the worker wrote, or no evidence of this block.
    """

    def __init__(self, block: Block, left: Left) -> None:
        self.block, self.left = block, left
        allowed = re.compile(
            r"(builds|checks)/[^/]+\.json|reports/[^/]+\.ncu-repz|journal\.jsonl|"
            + re.escape(block.shape)
            + r"/(shape\.json|(timings|captures)/[^/]+\.json)"
        )
        if left.files.keys() != left.sha256.keys():
            raise ToolFailed(f"a block came without its hashes: {block.words}", hint=MINE)
        for name, data in left.files.items():
            if hashlib.sha256(data).hexdigest() != left.sha256[name]:
                raise ToolFailed(f"{name} is not what was measured: {block.words}", hint=MINE)
            if not allowed.fullmatch(name) or ".." in PurePosixPath(name).parts:
                raise ToolFailed(f"{name!r} is no evidence of a block: {block.words}", hint=MINE)

    def records(self, folder: str, kind: type[R]) -> Iterator[tuple[Path, R]]:
        """Those of a folder, by the path that they have in an evidence folder."""
        for name in sorted(self.left.files):
            path = Path(name)
            if path.parent.as_posix() == folder:
                try:
                    yield path, store.decode(path, self.left.files[name], kind)
                except UsageError as error:
                    raise ToolFailed(f"{self.block.words}: {error.message}", hint=MINE) from None


class Merger:
    """Puts what blocks of a study left into one evidence folder.

    Evidence belongs to the sources as they were when it was sent for: that of others is refused.
    """

    def __init__(self, folder: EvidenceFolder) -> None:
        self.folder = folder
        self.shapes = derived_shapes(folder)
        entries = journal.load_journal(folder).sessions
        self.timings = {(entry.shape, entry.file) for entry in entries if not entry.cut_short}
        self.cut_short = [entry for entry in entries if entry.cut_short]
        self.prints: dict[str, Fingerprints] = {}

    def learn(self, study: Study) -> None:
        """The shapes and variants of an errand, and their sources as they are now."""
        self.shapes |= {name: shape.parameters for name, shape in study.shapes.items()}
        prints = Fingerprints(study)
        self.prints = {**dict.fromkeys(study.variants, prints), **self.prints}

    def merge(self, block: Block, left: Left) -> None:
        """All that stands by itself: builds, checks, captures, and a comparison whose sessions are
        all in this block. Raises ToolFailed for what is not what the worker wrote.
        """
        if left.gpu != self.folder.gpu:
            raise ToolFailed(f"a block is of {left.gpu}, not of {self.folder.gpu}", hint=MINE)
        arrived = Arrived(block, left)
        for _, build in arrived.records("builds", Build):
            self.build(build)
        for _, checks in arrived.records("checks", Checks):
            self.checks(checks)
        for path, timing in arrived.records(f"{block.shape}/timings", Timing):
            self.timing(path.name, self.owned(block, timing))
        self.ended_early(arrived)
        self.captures(arrived)

    def still_has(self, left: Left) -> bool:
        """Whether what was merged of a block before is still on record; what was not is at hand."""
        kept = (name for name in left.sha256 if re.search(r"(/timings|/captures|^checks)/", name))
        return bool(left.files) or all(is_there(self.folder.root / name) for name in kept)

    # ---- builds and checks -------------------------------------------------------------------
    def build(self, record: Build) -> None:
        self.require(record.variant, record.fingerprint, self.of_sources(record.variant))
        path = self.folder.build(record.variant)
        known = store.read(path, Build) if is_there(path) else None
        same = known is not None and known.fingerprint == record.fingerprint
        if known is None or not same or _is_older(known.provenance, record.provenance):
            self.write(path, record, known)

    def checks(self, record: Checks) -> None:
        """Beside those of other shapes; of one shape, the newer."""
        for shape, check in record.shapes.items():
            self.require(record.variant, check.fingerprint, self.at(record.variant, shape))
        path = self.folder.check(record.variant)
        known = store.read(path, Checks) if is_there(path) else None
        still = {
            shape: check
            for shape, check in (known.shapes if known else {}).items()
            if check.fingerprint == self.at(record.variant, shape)
        }
        newer = known is None or not _is_older(record.provenance, known.provenance)
        shapes = still | record.shapes if newer else record.shapes | still
        origin = record.provenance if newer or known is None else known.provenance
        self.write(path, structs.replace(record, shapes=shapes, provenance=origin), known)

    def of_sources(self, variant: str) -> str | None:
        return self.prints[variant].of_sources(variant) if variant in self.prints else None

    def at(self, variant: str, shape: str) -> str | None:
        """The fingerprint of a variant at a shape; None where either is not known."""
        if variant not in self.prints or shape not in self.shapes:
            return None
        return self.prints[variant].at(variant, self.shapes[shape])

    def require(self, variant: str, found: str, wanted: str | None) -> None:
        if found != wanted:
            raise ToolFailed(f"a block came back with evidence of another {variant}", hint=MINE)

    def write(self, path: Path, record: R, known: R | None) -> None:
        if record != known:
            store.write(path, record)

    # ---- times -------------------------------------------------------------------------------
    def owned(self, block: Block, timing: Timing) -> Timing:
        if (timing.study, timing.shape) != (block.study, block.shape):
            raise ToolFailed(f"a timing is of another shape: {block.words}", hint=MINE)
        for variant, found in timing.fingerprints.items():
            self.require(variant, found, self.at(variant, timing.shape))
        return timing

    def timing(self, name: str, timing: Timing) -> None:
        """With the journal's entry, once. Older timings of no others than its variants go."""
        path = self.folder.timings(timing.shape) / name
        if (timing.shape, name) in self.timings or is_there(path):
            if not is_there(path) or store.read(path, Timing) == timing:
                return  # it is on record, or was and is superseded
            path = path.with_stem(f"{path.stem}-{_digest(timing)}")  # two cards in one second
            if (timing.shape, path.name) in self.timings or is_there(path):
                return
        store.write(path, timing)
        self.timings.add((timing.shape, path.name))
        journal.append(self.folder, journal.timing_entry(path.name, timing))
        remove_superseded(self.folder, timing.shape, path.name, set(timing.fingerprints))

    def ended_early(self, arrived: Arrived) -> None:
        """Its timings that were cut short, which have left nothing else, once."""
        data = arrived.left.files.get(JOURNAL, b"")
        for entry in store.decode_lines(Path(JOURNAL), data, JournalEntry)[0]:
            if isinstance(entry, SessionEntry) and entry.cut_short and entry not in self.cut_short:
                self.cut_short.append(entry)
                journal.append(self.folder, entry)

    def gathered(self, shares: Sequence[tuple[Block, Left]], planned: int) -> Timing | None:
        """The shares of one comparison as the one timing that they are, not yet on record; None
        where no session came to its end. Raises ToolFailed for cards that are not equal.
        """
        timings = [
            self.owned(share, timing)
            for share, left in shares
            for _, timing in Arrived(share, left).records(f"{share.shape}/timings", Timing)
        ]
        out = {name for _, left in shares if left.files for name in left.failures}
        return combined(timings, out, planned) if timings else None

    def spread(self, timing: Timing) -> None:
        """Put gathered sessions on record, where there are as many as were planned."""
        if timing.is_complete and timing.together:
            self.timing(f"{stamp(timing.provenance.date)}.json", timing)

    # ---- captures ----------------------------------------------------------------------------
    def captures(self, arrived: Arrived) -> None:
        """Every report with the indexes that name it."""
        block, by_report = arrived.block, dict[str, list[CaptureIndex]]()
        for _, index in arrived.records(f"{block.shape}/captures", CaptureIndex):
            if index.shape != block.shape:
                raise ToolFailed(f"a capture is of another shape: {block.words}", hint=MINE)
            self.require(index.variant, index.fingerprint, self.at(index.variant, index.shape))
            by_report.setdefault(index.report, []).append(index)
        for name, indexes in by_report.items():
            report = arrived.left.files.get(f"reports/{name}", b"")
            digest = hashlib.sha256(report).hexdigest()
            if any(index.sha256 != digest for index in indexes):
                raise ToolFailed(f"{name} is not the report that was recorded", hint=MINE)
            fresh = [index for index in indexes if not self.has(index)]
            if fresh:
                self.capture(name, digest, report, fresh)

    def has(self, new: CaptureIndex) -> bool:
        path = self.folder.capture_index(new.shape, new.variant)
        return is_there(path) and new.sha256 in store.read(path, CaptureIndex).known_sha256.values()

    def capture(
        self, name: str, digest: str, report: bytes, indexes: Iterable[CaptureIndex]
    ) -> None:
        kept = self.folder.reports / name
        if is_there(kept) and store.digest_of(kept) != digest:  # two cards in the same second
            name = f"{kept.stem}-{digest[:8]}{kept.suffix}"
        named = [
            with_repeats(self.folder, structs.replace(index, report=name)) for index in indexes
        ]
        write_captures(self.folder, name, report, named)


def _is_older(one: Provenance, other: Provenance) -> bool:
    return one.date < other.date


def _digest(timing: Timing) -> str:
    text = json.dumps(store.content(timing), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def combined(timings: Sequence[Timing], out: set[str], planned: int) -> Timing:
    """One timing of several, in this order; ``out`` are variants that failed in one of them.

    A session that ran on another card than the others says on which. Raises ToolFailed where cards,
    drivers or libraries are not equal.
    """
    first = timings[0]
    for other in timings[1:]:
        if told := differences(first.provenance, other.provenance):
            raise ToolFailed(
                f"sessions of {first.shape} ran on unequal cards: {told}",
                hint="the workers of a place that measures one comparison must be equal",
            )
    cards = {timing.provenance.gpu_uuid for timing in timings}
    several = len(cards) > 1
    sessions: list[Session] = []
    numbers = {True: 0, False: 0}
    for timing in timings:
        for session in timing.sessions:
            series = tuple(one for one in session.series if one.variant not in out)
            if not series:
                continue
            sessions.append(
                structs.replace(
                    session,
                    number=numbers[session.alone],
                    series=series,
                    audits=tuple(one for one in session.audits if one.variant not in out),
                    card=(timing.provenance.gpu_uuid or "") if several else "",
                )
            )
            numbers[session.alone] += 1
    hosts = {timing.provenance.host for timing in timings}
    origin = structs.replace(
        first.provenance,
        gpu_uuid=None if several else first.provenance.gpu_uuid,
        host=None if len(hosts) > 1 else first.provenance.host,
    )
    nodes: dict[str, tuple[GraphNode, ...]] = {}
    unsteady: set[str] = set()
    for timing in timings:
        unsteady |= {*timing.unsteady, *differing(nodes, timing.nodes)}
        nodes = {**timing.nodes, **nodes}
    prints = {name: found for timing in timings for name, found in timing.fingerprints.items()}
    return structs.replace(
        first,
        fingerprints={name: prints[name] for name in sorted(prints) if name not in out},
        nodes={name: found for name, found in nodes.items() if name not in out},
        sessions=tuple(sessions),
        provenance=origin,
        planned=planned,
        unsteady=tuple(sorted(unsteady - out)),
    )


def differences(one: Provenance, other: Provenance) -> str:
    """What keeps the sessions of two cards from being compared, in words."""
    pairs: Mapping[str, tuple[object, object]] = {
        name: (getattr(one, name), getattr(other, name)) for name in EQUAL
    }
    return ", ".join(f"{name} {a} and {b}" for name, (a, b) in pairs.items() if a != b)
