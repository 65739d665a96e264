"""A command that merges blocks ends at any moment, or the machine does: the same command goes on.

Every block is in the evidence exactly once, and none is measured again of which a word is on
record. The disk that is lost is the worst one: names are kept as soon as they are given, and of
content only what was forced, with a part of what was not.
"""

from __future__ import annotations

import collections
import hashlib
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import blocks as bench
from benchmarks import blockwork
from msgspec import structs

from faulty import examples
from standin import ceiling
from workbench.errors import UsageError
from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder, timing_name
from workbench.evidence.records import (
    CaptureIndex,
    CeilingsFile,
    Check,
    Checks,
    Provenance,
    Record,
    Timing,
)
from workbench.places import blocks, landing
from workbench.places.blocks import Left
from workbench.places.dispatch import Dispatch
from workbench.places.merge import Merger
from workbench.places.plan import Errand
from workbench.places.spool import Spool
from workbench.places.underway import Watching
from workbench.run.plan import Plan
from workbench.run.protocol import CeilingsJob
from workbench.run.recording import digest, stamp
from workbench.study.shapes import with_derived
from workbench.study.sources import Fingerprints
from workbench.words import CheckResult

NUMBER = 5
SHAPES = [f"n{n}" for n in range(2, NUMBER + 2)]


class Killed(BaseException):
    """Nothing is done any more."""


@dataclass
class Disk:
    """Lets so many changes come to pass, and none after them; knows how much of every file was
    forced.
    """

    changes: int
    forced: dict[int, int] = field(default_factory=dict)

    def change(self) -> None:
        if self.changes <= 0:
            raise Killed
        self.changes -= 1

    def lose(self, top: Path, part: float) -> None:
        """All that was not forced, but for a part of each file."""
        for path in top.rglob("*"):
            if path.is_file():
                found = path.stat()
                known = min(self.forced.get(found.st_ino, 0), found.st_size)
                os.truncate(path, known + int(part * (found.st_size - known)))

    @contextmanager
    def under(self, top: Path) -> Iterator[None]:
        for path in top.rglob("*"):
            if path.is_file():
                self.forced[path.stat().st_ino] = path.stat().st_size
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "mkdir", "rmdir", "write"):
                patch.setattr(os, name, self.counted(getattr(os, name)))
            patch.setattr(os, "unlink", self.counted(os.unlink, self.forget))
            patch.setattr(os, "fsync", self.counted(self.force))
            patch.setattr(os, "open", self.opening(os.open, os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            patch.setattr(io, "open", self.writing(io.open))
            yield

    def counted(self, function: Callable[..., Any], before: Any = None) -> Callable[..., Any]:
        def call(*given: Any, **how: Any) -> Any:
            self.change()
            if before is not None:
                before(*given, **how)
            return function(*given, **how)

        return call

    def opening(self, function: Callable[..., int], to_write: int) -> Callable[..., int]:
        def call(path: Any, flags: int, *given: Any, **how: Any) -> int:
            if flags & to_write:
                self.change()
            return function(path, flags, *given, **how)

        return call

    def writing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *given: Any, **how: Any) -> Any:
            if set(mode) & set("wax+"):
                self.change()
            return function(file, mode, *given, **how)

        return call

    def force(self, handle: int) -> None:
        found = os.fstat(handle)
        self.forced[found.st_ino] = found.st_size

    def forget(self, path: Any, **how: Any) -> None:
        with suppress(FileNotFoundError):
            self.forced.pop(Path(path).stat().st_ino, None)


class Done:
    """A future of what is done already."""

    status = "finished"

    def __init__(self, key: str, result: list[bytes]) -> None:
        self.key, self.result = key, result

    def add_done_callback(self, call: Callable[[Done], None]) -> None:
        call(self)

    def release(self) -> None:
        """Nobody keeps it."""


@dataclass
class Alone:
    """A crew without Dask: what is submitted is done at once."""

    kind = blockwork.CARD.kind
    place, is_connected = "here", True
    out: dict[str, str] = field(default_factory=dict)

    @property
    def client(self) -> Alone:
        return self

    def number(self) -> int:
        return 1

    def subscribe_topic(self, *given: object) -> None:
        """Nothing is told."""

    unsubscribe_topic = subscribe_topic

    def submit(
        self, function: Any, *columns: Any, keys: list[str], avoid: str, **same: Any
    ) -> list[Done]:
        calls = zip(keys, zip(*columns, strict=True), strict=True)
        return [Done(key, function(*given, **same)) for key, given in calls]

    def gather(self, futures: list[Done]) -> list[list[bytes]]:
        return [future.result for future in futures]

    def cancel(self, futures: list[Done]) -> None:
        """All of them are done."""


class Command:
    """Checks, times and captures every shape; each block that it measures has a date of its own."""

    def __init__(self, root: Path) -> None:
        self.folder = EvidenceFolder(root / "ablations" / "nothing" / "evidence" / "none")
        self.dates = itertools.count(1)
        self.measured: list[str] = []
        plan = Plan("", checked=bench.VARIANTS, timed=bench.VARIANTS, captured=bench.VARIANTS)
        self.errands: list[Errand] = [
            replace(one, plan=replace(plan, shape=one.plan.shape))
            for one in bench.errands(root, self.folder, NUMBER)
        ]
        self.study = self.errands[0].study
        self.prints = Fingerprints(self.study)

    def run(self) -> None:
        crew: Any = Alone()
        Dispatch(crew, self.errands, ["x"], Watching(), self.task).run()

    def task(self, data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
        block = blocks.decode(data)
        self.measured.append(block.shape)
        minutes, seconds = divmod(next(self.dates), 60)
        date = f"2026-01-01T00:{minutes:02}:{seconds:02}Z"
        files = self.evidence(block, date)
        sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        name = blocks.id_of(data)
        return blocks.encode_answer(
            Left(block=name, where="here", gpu="none", files=files, sha256=sha256)
        )

    def evidence(self, block: blocks.Block, date: str) -> dict[str, bytes]:
        shape, origin = block.shape, Provenance(date=date, gpu="none")
        parameters = block.derived[shape]
        timing = blockwork.timed(block, self.prints, with_derived(self.study, block.derived))
        report = f"{shape}-{stamp(date)}.ncu-repz"
        content = b"(\xb5/\xfd report of " + date.encode()
        records: dict[str, Record] = {
            f"{shape}/timings/{stamp(date)}.json.zst": structs.replace(timing, provenance=origin)
        }
        for variant in bench.VARIANTS:
            found = self.prints.at(variant, parameters)
            check = Check(
                status=CheckResult.CORRECT,
                why="",
                max_abs=None,
                relative=None,
                fingerprint=found,
            )
            records[f"checks/{variant}.json"] = Checks(
                variant=variant, shapes={shape: check}, provenance=origin
            )
            records[f"{shape}/captures/{variant}.json"] = CaptureIndex(
                variant=variant,
                shape=shape,
                fingerprint=found,
                report=report,
                sha256=digest(content),
                range="",
                launches=1,
                ncu="2025.3.1",
                ncu_flags=(),
                provenance=origin,
            )
        files = {name: store.encoded(record, Path(name)) for name, record in records.items()}
        return {**files, f"reports/{report}": content}


def told(folder: EvidenceFolder) -> collections.Counter[str]:
    """How many timings and captures of each shape the journal tells of."""
    known = journal.load_journal(folder)
    shapes = [entry.shape for entry in known.sessions] + [entry.shape for entry in known.captures]
    return collections.Counter(shapes)


def require_once(folder: EvidenceFolder, times: int) -> None:
    """All is on record after so many commands, once each."""
    assert told(folder) == dict.fromkeys(SHAPES, 3 * times)
    named = set()
    for shape in SHAPES:
        (timing,) = folder.timing_files(shape)
        assert len(store.read(timing, Timing).sessions) == bench.SESSIONS
        known = [e.file for e in journal.load_journal(folder).sessions if e.shape == shape]
        assert timing_name(timing.name) == max(known)
        for variant in bench.VARIANTS:
            index = store.read(folder.capture_index(shape, variant), CaptureIndex)
            assert len(index.repeats or ()) == times - 1
            for report, sha256 in index.known_sha256.items():
                assert store.digest_of(folder.reports / report) == sha256
                named.add(report)
    assert named == {path.name for path in folder.reports.glob("[!.]*")}
    for variant in bench.VARIANTS:
        assert set(store.read(folder.check(variant), Checks).shapes) == set(SHAPES)
    assert not (folder.root / ".blocks").exists()


@pytest.fixture
def measured_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in which all was measured once, so that there is something to supersede."""
    monkeypatch.setattr(landing, "MOST", 2)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    command = Command(bench.workspace(tmp_path / "before"))
    command.run()
    require_once(command.folder, 1)
    return tmp_path / "before"


def changes_of(before: Path, root: Path) -> int:
    """How many a whole command makes."""
    shutil.copytree(before, root)
    again, disk = Command(root), Disk(10**9)
    again.dates = itertools.count(1000)
    with disk.under(root):
        again.run()
    require_once(again.folder, 2)
    return 10**9 - disk.changes


def require_any_end(before: Path, scratch: Path, part: float) -> None:
    total = changes_of(before, scratch / "whole")
    assert total > 20 * NUMBER
    for changes in range(0, total, max(1, total // examples(30, many=total))):
        root = scratch / f"{changes}"
        shutil.copytree(before, root)
        first, disk = Command(root), Disk(changes)
        first.dates = itertools.count(1000)
        with disk.under(root), pytest.raises(Killed):
            first.run()
        disk.lose(root, part)
        on_record = {shape for shape, times in told(first.folder).items() if times > 3}
        second, spool = Command(root), Spool(first.folder.root / ".blocks")
        second.dates = itertools.count(2000)
        kept = {
            one.plan.shape
            for one in second.errands
            if spool.get(blocks.id_of(blocks.encode(one.block(["x"]))))
        }
        if on_record == set(SHAPES) and not kept:  # it was done, and had begun to clear up
            spool.clear()
            require_once(first.folder, 2)
            continue
        assert on_record <= kept
        second.run()
        assert sorted(second.measured) == sorted(set(SHAPES) - kept)
        require_once(second.folder, 2)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])  # 1: the command was killed, the machine goes on
def test_a_command_that_ends_anywhere_leaves_nothing_lost_or_twice(
    measured_before: Path, tmp_path: Path, part: float
) -> None:
    require_any_end(measured_before, tmp_path, part)


class Calibration:
    """Of a card, as the errand of a command; each has a date of its own."""

    def __init__(self, root: Path, date: str) -> None:
        self.folder = EvidenceFolder(root / "ablations" / "nothing" / "evidence" / "none")
        self.date, self.measured = date, 0
        (one,) = bench.errands(root, self.folder, 1)
        self.errand = replace(one, plan=Plan("n2"), instead=CeilingsJob(ceilings=("fp32",)))

    def run(self) -> None:
        crew: Any = Alone()
        Dispatch(crew, [self.errand], ["x"], Watching(), self.task).run()

    def task(self, data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
        self.measured += 1
        file = CeilingsFile(
            ceilings={"fp32": ceiling(1)},
            not_collected={},
            provenance=Provenance(date=self.date, gpu="none"),
        )
        content, name = store.encoded(file, Path("ceilings.json")), "ceilings.json"
        sha256 = hashlib.sha256(content).hexdigest()
        return blocks.encode_answer(
            Left(
                block=blocks.id_of(data),
                where="here",
                gpu="none",
                files={name: content},
                sha256={name: sha256},
            )
        )

    @property
    def on_record(self) -> str:
        return store.read(self.folder.ceilings, CeilingsFile).provenance.date


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_calibration_that_ends_anywhere_is_on_record_or_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    old, new, newest = (f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))
    before = bench.workspace(tmp_path / "before")
    Calibration(before, old).run()
    again = set()
    for changes in itertools.count():
        root = tmp_path / f"{changes}"
        shutil.copytree(before, root)
        first, disk = Calibration(root, new), Disk(changes)
        with disk.under(root), suppress(Killed):
            first.run()
            break
        disk.lose(root, part)
        assert first.on_record in (old, new)
        is_kept = Spool(first.folder.root / ".blocks").get(
            blocks.id_of(blocks.encode(first.errand.block(["x"])))
        )
        second = Calibration(root, newest)
        second.run()
        assert second.measured == (0 if is_kept else 1)
        assert second.on_record == (new if is_kept else newest)
        assert not (second.folder.root / ".blocks").exists()
        again.add(second.measured)
    assert again == {0, 1}


def unforced(patch: pytest.MonkeyPatch) -> None:
    write = store.write_together

    def written(files: dict[Path, bytes], beside: Sequence[Path] = ()) -> None:
        with store.in_scratch():
            write(files, beside)

    patch.setattr(store, "write_together", written)


def journal_first(patch: pytest.MonkeyPatch) -> None:
    commit = Merger.commit

    def committed(self: Merger, beside: Sequence[Path] = ()) -> None:
        lines, self.staged.lines = self.staged.lines, []
        journal.append(self.folder, *lines)
        commit(self, beside)

    patch.setattr(Merger, "commit", committed)


def spool_last(patch: pytest.MonkeyPatch) -> None:
    put = Spool.put

    def merged_only(self: Spool, every: Iterable[Left]) -> None:
        put(self, [left for left in every if not left.files])

    patch.setattr(Spool, "put", merged_only)


@pytest.mark.parametrize("wrong", [unforced, journal_first, spool_last])
def test_another_order_of_writes_would_be_found_out(
    wrong: Callable[[pytest.MonkeyPatch], None],
    measured_before: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong(monkeypatch)
    with pytest.raises((AssertionError, UsageError)):
        require_any_end(measured_before, tmp_path, 0.0)
