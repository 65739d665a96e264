"""Read and write the records of evidence, and know where they stand."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from workbench import bounds
from workbench.errors import UsageError
from workbench.evidence.records import (
    PACKED,
    CaptureIndex,
    Captures,
    DerivedShape,
    Record,
    Timeline,
    Timing,
    VariantRecord,
)
from workbench.study.files import (
    Rank,
    compressed,
    contents,
    decompressed,
    decompressed_beginning,
    disk_full,
    held,
    is_there,
    json_as_type,
    listed,
    require_inside,
    stands,
    unreadable,
    write_bytes,
)
from workbench.words import SCHEMA_VERSION, Parameter

EVIDENCE = "evidence"


def gpu_slug(name: str) -> str:
    """A GPU's name as its folder has it: ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True)
class EvidenceFolder:
    """``ablations/<study>/evidence/<gpu>/``; ``gpu`` is the GPU's name in lower case."""

    root: Path

    @property
    def gpu(self) -> str:
        return self.root.name

    def variant(self, variant: str) -> Path:
        return self.root / f"variants/{variant}.json"

    def timings(self, shape: str) -> Path:
        return self.root / shape / "timings"

    def timing(self, shape: str, name: str) -> Path:
        """Return where a timing of this name is, or is to be written."""
        return self.timings(shape) / (name + PACKED)

    def timing_files(self, shape: str) -> list[Path]:
        return listed(self.timings(shape), ".json" + PACKED)

    def shape(self, shape: str) -> Path:
        return self.root / shape / "shape.json"

    def captures(self, shape: str) -> Path:
        return self.root / shape / "captures.json"

    def capture_files(self) -> list[Path]:
        return [path for shape in self.shapes if is_there(path := self.captures(shape.name))]

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def tables(self, report: str) -> Path:
        """Return where the tables read of a report are kept; see ``ncu.captures``."""
        return self.root / f"tables/{Path(report).stem}.json.zst"

    def timeline(self, shape: str, variant: str) -> Path:
        return self.root / shape / "timelines" / f"{variant}.json{PACKED}"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def shapes(self) -> list[Path]:
        """The folders of the shapes, and those of variants, tables and reports beside them."""
        return [path for path in listed(self.root) if path.is_dir()]

    @property
    def every_gpu(self) -> list[EvidenceFolder]:
        """This and its neighbours: the folders of the same study for all GPUs."""
        return [EvidenceFolder(path) for path in listed(self.root.parent) if path.is_dir()]


def evidence_folders(ablations: Path, study: str) -> list[EvidenceFolder]:
    top = ablations / study / EVIDENCE
    return [EvidenceFolder(p) for p in listed(top) if p.is_dir()]


R = TypeVar("R", bound=Record)
_NUMBERS = re.compile(r"\[\n(?: +[-+.\deE]+,?\n)+ *\]")  # no string of JSON has a line end

CONTENT = b',"content":"'  # what stands in tables between their report's sha256 and their own
_REPORT = re.compile(rb'"of":{[^}]*"report":"([0-9a-f]{64})"')
EXCHANGED = "is not the file that was recorded"  # what another sha256 says

_OWN_LINE = re.compile(rb'\n "schema_version": ([0-9]{1,9}),?$', re.MULTILINE)
_FIRST = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*([0-9]{1,9})\s*[,}]')


class _Header(msgspec.Struct):
    schema_version: int


def read_record(path: Path, kind: type[R]) -> R:
    """Raises UsageError for what is no evidence, is of a newer schema, or is no such record."""
    return decode(path, contents(path, kind.repair), kind)


def decode(path: Path, data: bytes, kind: type[R]) -> R:
    """Decode a file's content as a record; raises as ``read_record``."""
    try:
        data = unpacked(path, data)
        require_schema(path, data, kind.schema)
        record: R = json_as_type(data, kind, besides=1)
        return record
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is damaged: {error}", hint=kind.repair) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=kind.repair) from None


def require_schema(path: Path, data: bytes, newest: int = SCHEMA_VERSION) -> int:
    """The version of a file. Raises UsageError for one above ``newest``, or without any."""
    try:
        # As they are written; else all of it has to be read twice.
        first = _FIRST.match(data) or _OWN_LINE.search(data)
        if first is None:
            header: _Header = json_as_type(data, _Header)
        version = int(first[1]) if first else header.schema_version
    except msgspec.ValidationError:
        raise UsageError(
            f"{path} has no schema_version", hint="it is not evidence of the workbench"
        ) from None
    if version > newest:
        raise UsageError(
            f"{path} is of schema {version}; this workbench reads up to {newest}",
            hint="update the workbench: `git pull` in its checkout, then `pip install -e .`",
        )
    return version


def digest_of(path: Path) -> str:
    """sha256 of a file as it is now. Raises EnvironmentLacks for one that cannot be read."""
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


@cache
def _digest(path: Path, modified: int, changed: int, size: int) -> str:
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def report_sha256(folder: EvidenceFolder, name: str) -> tuple[str | None, bool]:
    """Return a report's sha256, and whether the report itself is there.

    It is that of the file, or as the tables give it; None where neither is there, "" where the
    tables are damaged. Raises EnvironmentLacks for a file that cannot be read.
    """
    path = folder.reports / name
    if is_there(path):
        return digest_of(path), True
    path = folder.tables(name)
    if not stands(path):
        return None, False
    try:
        sha256 = _REPORT.search(decompressed_beginning(contents(path)))
    except (UsageError, ValueError):
        return "", False
    return sha256[1].decode() if sha256 else "", False


def content(record: Record) -> dict[str, object]:
    return {"schema_version": record.schema, **msgspec.to_builtins(record)}


def encoded(record: Record, path: Path) -> bytes:
    """Encode a file's content: lists of numbers on one line; compressed if so named."""
    text = json.dumps(content(record), indent=1, sort_keys=True)
    text = _NUMBERS.sub(lambda numbers: f"[{' '.join(numbers[0][1:-1].split())}]", text)
    data = f"{text}\n".encode()
    return packed(path, data)


def packed(path: Path, data: bytes) -> bytes:
    """Compress content for a file of this name, if so named."""
    return compressed(data) if path.suffix == PACKED else data


def unpacked(path: Path, data: bytes) -> bytes:
    """Decompress a file's content. Raises ValueError if it is damaged or too large."""
    return decompressed(data) if path.suffix == PACKED else data


def write(path: Path, record: Record) -> None:
    """Raises EnvironmentLacks where the disk is full."""
    write_bytes(path, encoded(record, path))


def append(path: Path, *records: Record) -> None:
    """Add records as the last lines of a file, for good when this returns, ending a torn line
    first. Raises EnvironmentLacks where the disk is full.
    """
    lines = [json.dumps(content(record), sort_keys=True).encode() + b"\n" for record in records]
    try:
        require_inside(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            with held(handle, Rank.FILE, path):
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                whole = b"\n" * torn + b"".join(lines)
                if os.write(handle, whole) != len(whole):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise disk_full(path, error) or error from None


def read_lines(path: Path, kind: Any) -> tuple[list[Any], list[str]]:
    """The records of a file with one a line, and what is wrong with the lines passed over."""
    return decode_lines(path, contents(path), kind) if stands(path) else ([], [])


def decode_lines(path: Path, data: bytes, kind: Any) -> tuple[list[Any], list[str]]:
    """Decode a file's lines; see ``read_lines``."""
    records: list[Any] = []
    parts: list[str] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        if len(parts) == bounds.BAD_LINES:
            parts.append(f"{path.name} is not read from line {number} on: too many are damaged")
            break
        try:
            require_schema(path, line)
            records.append(json_as_type(line, kind, besides=1))
        except UsageError as error:
            parts.append(f"line {number} of {path.name} is passed over: {error.message}")
        except (msgspec.DecodeError, ValueError) as error:
            parts.append(f"line {number} of {path.name} is passed over: it is damaged: {error}")
    return records, parts


def _recorded(path: Path, kind: type[R]) -> R | None:
    """Read a record; None without a file."""
    return read_record(path, kind) if is_there(path) else None


def derived_shapes(folder: EvidenceFolder) -> dict[str, dict[str, Parameter]]:
    """Name to parameters of recorded shapes that the study did not list when measured."""
    records = (_recorded(folder.shape(path.name), DerivedShape) for path in folder.shapes)
    return {record.shape: record.parameters for record in records if record}


@cache
def measured_ceilings(gpu: str) -> Mapping[str, float]:
    """Return the rates that GPUs of a model reach: FLOP/s or byte/s by dram, l2, l1, fp32, fp64,
    half, ``tensor <type>``. Empty where nobody measured the model; ``gpu`` is its folder's name.
    """
    text = Path(__file__).with_name("ceilings.toml").read_text(encoding="utf-8")
    rates: dict[str, float] = tomllib.loads(text).get(gpu, {})
    return rates


def variant_record(folder: EvidenceFolder, variant: str) -> VariantRecord:
    """Empty without a file."""
    record = _recorded(folder.variant(variant), VariantRecord)
    return record or VariantRecord(variant=variant)


def captures_at(folder: EvidenceFolder, shape: str) -> Mapping[str, CaptureIndex]:
    """Return the captures at a shape by variant; empty without a file."""
    record = _recorded(folder.captures(shape), Captures)
    return record.captures if record else {}


def timeline_at(folder: EvidenceFolder, shape: str, variant: str) -> Timeline | None:
    return _recorded(folder.timeline(shape, variant), Timeline)


def timings_at(folder: EvidenceFolder, shape: str) -> Mapping[str, Timing]:
    """Return the whole timings at a shape by their files, oldest first."""
    timings = {path.name: read_record(path, Timing) for path in folder.timing_files(shape)}
    return {name: timing for name, timing in timings.items() if timing.is_complete}


def latest(folders: list[EvidenceFolder], shape: str, gpu: str = "") -> EvidenceFolder | None:
    """The folder with the newest evidence at this shape; that of a ``gpu``, if it has some."""
    dated = [(max((path.name for path in f.timing_files(shape)), default=""), f) for f in folders]
    with_evidence = [(date, f) for date, f in dated if date or (f.root / shape).is_dir()]
    chosen = gpu_slug(gpu)
    newest = max(with_evidence, key=lambda pair: (pair[1].gpu == chosen, pair[0]), default=None)
    return newest[1] if newest else None
