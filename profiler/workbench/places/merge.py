"""What a block left becomes evidence here, as if it had been measured here.

Every file is compared with its hash, read as the record that it is, and belongs to the block's own
variants and shape; else nothing of it is kept. What was merged before changes nothing, and what a
killed command had merged in part is completed.

What several blocks left is put on record together: first every file is on the disk, then each gets
its name, then the journal says so, and only then does what they supersede go.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec import structs

from workbench.errors import ToolFailed, UsageError
from workbench.evidence import journal, store
from workbench.evidence.layout import (
    EvidenceFolder,
    gpu_slug,
    is_there,
    timing_name,
)
from workbench.evidence.recorded import derived_shapes
from workbench.evidence.records import (
    Build,
    CaptureIndex,
    CeilingsFile,
    Checks,
    Entry,
    JournalEntry,
    Provenance,
    Record,
    SessionEntry,
    Timing,
)
from workbench.places.blocks import Block, Left
from workbench.places.combine import combined
from workbench.run.protocol import CeilingsJob
from workbench.run.recording import digest, remove_superseded, remove_unused, stamp, with_repeats
from workbench.study.model import Study
from workbench.study.sources import Fingerprints

R = TypeVar("R", bound=Record)
JOURNAL, CEILINGS = "journal.jsonl", "ceilings.json"
MINE = "run the same command again: it measures what is missing"
OF_GPU = re.compile(r"(builds|checks)/[^/]+\.json|reports/[^/]+\.ncu-repz|journal\.jsonl")
OF_SHAPE = re.compile(r"shape\.json|captures/[^/]+\.json|timings/[^/]+\.json\.zst")
KEPT = re.compile(r"(/timings|/captures|^checks)/|^ceilings\.json$")  # what stays, of what came


class Arrived:
    """What a block left, every file compared with its hash. Raises ToolFailed for what is not what
    the worker wrote, or no evidence of this block.
    """

    def __init__(self, block: Block, left: Left) -> None:
        self.block, self.left = block, left
        if left.files.keys() != left.sha256.keys():
            raise ToolFailed(f"a block came without its hashes: {block.words}", hint=MINE)
        for name, data in left.files.items():
            if hashlib.sha256(data).hexdigest() != left.sha256[name]:
                raise ToolFailed(f"{name} is not what was measured: {block.words}", hint=MINE)
            if not self.is_evidence(name) or ".." in PurePosixPath(name).parts:
                raise ToolFailed(f"{name!r} is no evidence of a block: {block.words}", hint=MINE)

    def is_evidence(self, name: str) -> bool:
        if self.block.instead is not None:
            return isinstance(self.block.instead, CeilingsJob) and name == CEILINGS
        rest = name.removeprefix(f"{self.block.shape}/")
        return bool(OF_GPU.fullmatch(name) or (rest != name and OF_SHAPE.fullmatch(rest)))

    def records(self, folder: str, kind: type[R]) -> Iterator[tuple[Path, R]]:
        """Those of a folder, by the path that they have in an evidence folder."""
        for name in sorted(self.left.files):
            path = Path(name)
            if path.parent.as_posix() == folder:
                try:
                    yield path, store.decode(path, self.left.files[name], kind)
                except UsageError as error:
                    raise ToolFailed(f"{self.block.words}: {error.message}", hint=MINE) from None


@dataclass
class Staged:
    """What is to be put on record: records by their file, which version of it was ``seen`` before,
    and those files; lines of the journal; new timings by shape and name, with their variants;
    whether captures are among it.
    """

    records: dict[Path, Record] = field(default_factory=dict)
    seen: dict[Path, tuple[int, int] | None] = field(default_factory=dict)
    files: dict[Path, bytes] = field(default_factory=dict)
    lines: list[Entry] = field(default_factory=list)
    timed: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    captured: bool = False


class Merger:
    """Puts what blocks of a study left into one evidence folder.

    Evidence belongs to the sources as they were when it was sent for: that of others is refused.
    """

    def __init__(self, folder: EvidenceFolder) -> None:
        self.folder = folder
        self.shapes = derived_shapes(folder)
        known = journal.load_journal(folder)
        whole = (entry for entry in known.sessions if not entry.cut_short)
        self.told: set[tuple[str, ...]] = {(entry.shape, entry.file) for entry in whole}
        self.told |= {(entry.shape, entry.variant, entry.report) for entry in known.captures}
        self.cut_short = [entry for entry in known.sessions if entry.cut_short]
        self.prints: dict[str, Fingerprints] = {}
        self.staged = Staged()

    def learn(self, study: Study) -> None:
        """The shapes and variants of an errand, and their sources as they are now."""
        self.shapes |= {name: shape.parameters for name, shape in study.shapes.items()}
        prints = Fingerprints(study)
        self.prints = {**dict.fromkeys(study.variants, prints), **self.prints}

    def merge(self, block: Block, left: Left) -> None:
        """Stage all that stands by itself: builds, checks, captures, and a comparison whose
        sessions are all in this block; one block of a shape before each ``commit``. Raises
        ToolFailed for what is not what the worker wrote, and stages nothing of it.
        """
        if left.gpu != self.folder.gpu:
            raise ToolFailed(f"a block is of {left.gpu}, not of {self.folder.gpu}", hint=MINE)
        arrived = Arrived(block, left)
        builds = list(arrived.records("builds", Build))
        checks = list(arrived.records("checks", Checks))
        measured = CEILINGS in left.files
        ceilings = list(arrived.records(".", CeilingsFile)) if measured else []
        timings = list(arrived.records(f"{block.shape}/timings", Timing))
        captures = self.reports(arrived)
        for _, build in builds:
            self.require(build.variant, build.fingerprint, self.of_sources(build.variant))
        for _, each in checks:
            for shape, check in each.shapes.items():
                self.require(each.variant, check.fingerprint, self.at(each.variant, shape))
        for _, timing in timings:
            self.require_own(block, timing)
        for _, found in ceilings:
            if gpu_slug(found.provenance.gpu or "") != self.folder.gpu:
                gpu = found.provenance.gpu or "no GPU"
                raise ToolFailed(f"the ceilings are of {gpu}", hint=MINE)
        for arrivals in (builds, checks, ceilings):
            for _, record in arrivals:
                self.put(record)
        for path, timing in timings:
            self.timing(timing_name(path.name), timing, left.files[path.as_posix()])
        self.ended_early(arrived)
        for name, indexes in captures.items():
            self.capture(name, left.files[f"reports/{name}"], indexes)

    def commit(self, beside: Sequence[Path] = ()) -> None:
        """Put what is staged on record. What stands in the files ``beside`` is on the disk before
        any of it has its name. Raises EnvironmentLacks where the disk is full.
        """
        with store.alone(self.folder.root):
            self.renew()
            staged, self.staged = self.staged, Staged()
            store.write_together(staged.files, beside)
            if staged.lines:
                journal.append(self.folder, *staged.lines)
            for (shape, name), variants in staged.timed.items():
                remove_superseded(self.folder, shape, name, variants)
            if staged.captured:
                remove_unused(self.folder)

    def renew(self) -> None:
        """Stage again what another command has written beside, since it was read here."""
        for path, record in list(self.staged.records.items()):
            if _version(path) == self.staged.seen.get(path):
                continue
            if isinstance(record, Build | Checks | CeilingsFile):
                del self.staged.records[path], self.staged.files[path]
                self.put(record)

    def put(self, record: Build | Checks | CeilingsFile) -> None:
        """Stage it beside what is on record."""
        match record:
            case Build():
                self.build(record)
            case Checks():
                self.checks(record)
            case CeilingsFile():
                self.ceilings(record)

    def still_has(self, left: Left) -> bool:
        """Whether what was merged of a block before is still on record; what was not is at hand."""
        kept = (self.folder.root / name for name in left.sha256 if re.search(KEPT, name))
        return bool(left.files) or all(is_there(path) for path in kept)

    def known(self, path: Path, kind: type[R]) -> R | None:
        """As it is staged, else as it is on record."""
        if path in self.staged.records:
            found = self.staged.records[path]
            assert isinstance(found, kind)
            return found
        self.staged.seen[path] = _version(path)
        return store.read(path, kind) if is_there(path) else None

    def stage(self, path: Path, record: Record, data: bytes = b"") -> None:
        """``data`` is what the file is to have, where it is at hand."""
        self.staged.records[path] = record
        self.staged.files[path] = data or store.encoded(record, path)

    def tell(self, *of: str) -> bool:
        """Whether the journal has no line of this yet; from now on it has."""
        is_new = of not in self.told
        self.told.add(of)
        return is_new

    # ---- builds, ceilings and checks ---------------------------------------------------------
    def build(self, record: Build) -> None:
        path = self.folder.build(record.variant)
        known = self.known(path, Build)
        same = known is not None and known.fingerprint == record.fingerprint
        if known is None or not same or _is_older(known.provenance, record.provenance):
            self.stage(path, record)

    def ceilings(self, record: CeilingsFile) -> None:
        """Those that were measured last."""
        known = self.known(self.folder.ceilings, CeilingsFile)
        if known is None or _is_older(known.provenance, record.provenance):
            self.stage(self.folder.ceilings, record)

    def checks(self, record: Checks) -> None:
        """Beside those of other shapes; of one shape, the newer."""
        path = self.folder.check(record.variant)
        known = self.known(path, Checks)
        still = {
            shape: check
            for shape, check in (known.shapes if known else {}).items()
            if check.fingerprint == self.at(record.variant, shape)
        }
        newer = known is None or not _is_older(record.provenance, known.provenance)
        shapes = still | record.shapes if newer else record.shapes | still
        origin = record.provenance if newer or known is None else known.provenance
        merged = structs.replace(record, shapes=shapes, provenance=origin)
        if merged != known:
            self.stage(path, merged)

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

    # ---- times -------------------------------------------------------------------------------
    def require_own(self, block: Block, timing: Timing) -> None:
        if (timing.study, timing.shape) != (block.study, block.shape):
            raise ToolFailed(f"a timing is of another shape: {block.words}", hint=MINE)
        for variant, found in timing.fingerprints.items():
            self.require(variant, found, self.at(variant, timing.shape))

    def timing(self, name: str, timing: Timing, data: bytes = b"") -> None:
        """With the journal's entry, once. Older timings of no others than its variants go."""
        path = self.folder.timing(timing.shape, name)
        known = self.known(path, Timing)
        if known is not None and known != timing:
            name = f"{Path(name).stem}-{_digest(timing)}.json"  # two cards in one second
            path = self.folder.timing(timing.shape, name)
            known = self.known(path, Timing)
        is_new = self.tell(timing.shape, name)
        if known is None and not is_new:
            return  # it was on record, and is superseded
        if known is None:
            self.stage(path, timing, data)
        if is_new:
            self.staged.lines.append(journal.timing_entry(name, timing))
        if is_new or self.folder.timing_files(timing.shape)[-1:] == [path]:
            self.staged.timed[timing.shape, name] = set(timing.fingerprints)

    def ended_early(self, arrived: Arrived) -> None:
        """Its timings that were cut short, which have left nothing else, once."""
        data = arrived.left.files.get(JOURNAL, b"")
        for entry in store.decode_lines(Path(JOURNAL), data, JournalEntry)[0]:
            if isinstance(entry, SessionEntry) and entry.cut_short and entry not in self.cut_short:
                self.cut_short.append(entry)
                self.staged.lines.append(entry)

    def gathered(self, shares: Sequence[tuple[Block, Left]], planned: int) -> Timing | None:
        """The shares of one comparison as the one timing that they are, not yet on record; None
        where no session came to its end. Raises ToolFailed for cards that are not equal.
        """
        timings: list[Timing] = []
        for share, left in shares:
            for _, timing in Arrived(share, left).records(f"{share.shape}/timings", Timing):
                self.require_own(share, timing)
                timings.append(timing)
        out = {name for _, left in shares if left.files for name in left.failures}
        return combined(timings, out, planned) if timings else None

    def spread(self, timing: Timing) -> None:
        """Put gathered sessions on record, where there are as many as were planned."""
        if timing.is_complete and timing.together:
            self.timing(f"{stamp(timing.provenance.date)}.json", timing)
            self.commit()

    # ---- captures ----------------------------------------------------------------------------
    def reports(self, arrived: Arrived) -> dict[str, list[CaptureIndex]]:
        """Every report that came, and the indexes that name it."""
        block, by_report = arrived.block, dict[str, list[CaptureIndex]]()
        for _, index in arrived.records(f"{block.shape}/captures", CaptureIndex):
            if index.shape != block.shape:
                raise ToolFailed(f"a capture is of another shape: {block.words}", hint=MINE)
            self.require(index.variant, index.fingerprint, self.at(index.variant, index.shape))
            by_report.setdefault(index.report, []).append(index)
        for name, indexes in by_report.items():
            report = arrived.left.files.get(f"reports/{name}", b"")
            if any(index.sha256 != digest(report) for index in indexes):
                raise ToolFailed(f"{name} is not the report that was recorded", hint=MINE)
        return by_report

    def capture(self, name: str, report: bytes, indexes: Sequence[CaptureIndex]) -> None:
        """A report, and those of its indexes that are not on record yet, with the repeats that
        are.
        """
        path = self.folder.reports / name
        if is_there(path) and store.digest_of(path) != digest(report):  # two cards in one second
            path = path.with_stem(f"{path.stem}-{digest(report)[:8]}")
        for index in indexes:
            of = self.folder.capture_index(index.shape, index.variant)
            known = self.known(of, CaptureIndex)
            if known is None or index.sha256 not in known.known_sha256.values():
                self.staged.files[path] = report  # before the indexes that name it
                known = with_repeats(self.folder, structs.replace(index, report=path.name))
                self.stage(of, known)
                self.staged.captured = True
            if known.sha256 == index.sha256 and self.tell(known.shape, known.variant, known.report):
                self.staged.lines.append(journal.capture_entry(known))


def _version(path: Path) -> tuple[int, int] | None:
    """Another one each time that it is written; None where it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _is_older(one: Provenance, other: Provenance) -> bool:
    return one.date < other.date


def _digest(timing: Timing) -> str:
    text = json.dumps(store.content(timing), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
