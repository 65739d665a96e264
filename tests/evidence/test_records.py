"""Files of evidence: read and written byte for byte, and what is wrong with one is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import inspect

from answers import Patch
from made_evidence import timing
from workbench import bounds
from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.journal import JournalEntry
from workbench.evidence.records import (
    Captures,
    DerivedShape,
    Environment,
    Provenance,
    Record,
    Shipped,
    Timing,
    VariantRecord,
    timing_name,
)
from workbench.evidence.store import EvidenceFolder
from workbench.run import recording
from workbench.run.recording import provenance
from workbench.study.files import compressed, write_bytes
from workbench.study.model import LadderFile
from workbench.words import SCHEMA_VERSION
from workspaces import EVIDENCE, FIXTURE, ROOT, told_in

SHAPE = "b2h8s512d64"
KINDS: dict[str, type[Record]] = {"variants": VariantRecord, "timings": Timing}
FILES = {
    "variant": "variants/fix1.json",
    "capture": f"{SHAPE}/captures.json",
    "timing": f"{SHAPE}/timings/20260102T030405Z.json.zst",
}

NO_REPEATS = b' "repeats": [],\n'  # what older captures have, and nothing reads


@pytest.mark.parametrize(
    "root", [FIXTURE, pytest.param(ROOT, marks=pytest.mark.slow)], ids=["fixture", "repository"]
)
def test_every_file_on_record_is_read_and_written_back_byte_for_byte(
    root: Path, tmp_path: Path
) -> None:
    found = root.glob("ablations/*/evidence/*/**/*.json")
    paths = sorted(path for path in found if path.name not in ("shape.json", "ceilings.json"))
    assert len(paths) > 50
    for path in paths:
        kind = Captures if path.name == "captures.json" else KINDS[path.parent.name]
        store.write(tmp_path / "again.json", store.read_record(path, kind))
        known = path.read_bytes().replace(NO_REPEATS, b"")
        assert (tmp_path / "again.json").read_bytes() == known, path
    timings = sorted(root.glob("ablations/*/evidence/*/*/timings/*"))
    assert {path.suffixes[-1] for path in timings} == {".zst"}
    for path in timings:
        again = store.encoded(store.read_record(path, Timing), Path())
        assert again == store.unpacked(path, path.read_bytes()), path


def test_a_compressed_record_is_the_same_bytes_whenever_it_is_written(tmp_path: Path) -> None:
    path = next(FIXTURE.glob("ablations/transpose/evidence/*/*/timings/*.json.zst"))
    timing = store.read_record(path, Timing)
    found = []
    for name in ("one", "two"):
        store.write(tmp_path / f"{name}.json.zst", timing)
        found.append((tmp_path / f"{name}.json.zst").read_bytes())
    assert found[0] == found[1]
    two = tmp_path / "two.json.zst"
    assert store.read_record(two, Timing) == timing
    for broken in (found[0][:-9], found[0][:200], b"", b"{}", found[0][:50] + found[0][60:]):
        two.write_bytes(broken)
        with pytest.raises(UsageError, match="cannot be read"):
            store.read_record(two, Timing)


def test_a_small_file_that_holds_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json.zst"
    path.write_bytes(compressed(bytes(bounds.HELD_ALWAYS + 1)))
    with pytest.raises(UsageError, match="holds too much"):
        store.read_record(path, Timing)


def test_a_timing_is_found_by_the_name_that_the_journal_has(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    here = folder.timing("large", "20260102T030405Z.json")
    assert here.name == "20260102T030405Z.json.zst"
    write_bytes(here, b"")
    assert folder.timing_files("large") == [here]
    assert folder.timing("large", timing_name(here.name)) == here


def test_keys_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    whole = EVIDENCE / FILES["variant"]
    data = json.loads(whole.read_text())
    data["build"]["provenance"]["weather"] = {"outside": [1, 2]}
    path = tmp_path / "variant.json"
    path.write_text(json.dumps({**data, "later": True}))
    assert store.read_record(path, VariantRecord) == store.read_record(whole, VariantRecord)


def test_what_is_as_its_fields_begin_is_not_written_and_read_all_the_same(tmp_path: Path) -> None:
    recorded = EVIDENCE / FILES["variant"]
    record = store.read_record(recorded, VariantRecord)
    whole, path = told_in(recorded), tmp_path / "whole.json"
    whole["build"]["kernels"][0] |= {"spill_store_bytes": 0}
    next(iter(whole["checks"].values())).update(varies=False)
    path.write_text(json.dumps(whole))
    assert store.read_record(path, VariantRecord) == record
    store.write(path, record)
    assert json.loads(path.read_bytes()) == told_in(recorded)
    written = path.read_text()
    for left_out in ("spill_store_bytes", "varies"):
        assert f'"{left_out}"' not in written


def test_what_was_not_collected_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "provenance.json"
    store.write(path, Provenance(date="2026-01-02T03:04:05Z"))
    assert json.loads(path.read_text()) == {"date": "2026-01-02T03:04:05Z", "schema_version": 1}


Change = Callable[[dict[str, Any]], object]


def put(*path: str | int, value: Any = None, taken: bool = False) -> Change:
    """Sets what stands at this place of a file, or takes it out."""

    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        if taken:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return change


LACKS = "Object missing required field"
WRONG: list[tuple[str, Change, str]] = [
    ("variant", put("build", "fingerprint", taken=True), f"{LACKS} `fingerprint` - at `$.build`"),
    (
        "variant",
        put("build", "kernels", 0, "registers", value="many"),
        "Expected `int`, got `str` - at `$.build.kernels[0].registers`",
    ),
    (
        "variant",
        put("checks", SHAPE, "max_abs", value="0"),
        "Expected `int | float | null`, got `str` - at `$.checks[...].max_abs`",
    ),
    (
        "variant",
        put("checks", SHAPE, "status", value="corect"),
        "Invalid enum value 'corect' - at `$.checks[...].status`",
    ),
    (
        "capture",
        put("captures", "fix1", "ncu_flags", value=[1]),
        "Expected `str`, got `int` - at `$.captures[...].ncu_flags[0]`",
    ),
    ("timing", put("sessions", taken=True), f"{LACKS} `sessions`"),
    (
        "timing",
        put("sessions", 1, "series", 0, "regime", value="warm"),
        "Invalid enum value 'warm' - at `$.sessions[1].series[0].regime`",
    ),
    (
        "timing",
        put("sessions", 0, "series", 1, "microseconds", 2, value=None),
        "Expected `int | float`, got `null` - at `$.sessions[0].series[1].microseconds[2]`",
    ),
    (
        "timing",
        put("sessions", 0, "series", 0, "mhz", value=[1980]),
        "has 'mhz' of another length than 'microseconds', 3 - at `$.sessions[0].series[0]`",
    ),
    (
        "timing",
        put("sessions", 0, "series", 0, "microseconds", value=[]),
        "has 'around' of another length than 'microseconds', 0 - at `$.sessions[0].series[0]`",
    ),
]


TIMING = store.content(timing(SHAPE, {"fix2[warps=12]": 97.0, "sdpa": 10.0}, reference="sdpa"))


@pytest.fixture
def folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path / EVIDENCE.name)


def load(path: Path) -> object:
    return store.read_record(
        path, Captures if path.name == "captures.json" else KINDS[path.parent.name]
    )


def refused(folder: EvidenceFolder, name: str, data: bytes) -> UsageError:
    """What is said of a file of this kind with this content."""
    path = folder.root / FILES[name]
    path.parent.mkdir(parents=True)
    path.write_bytes(store.packed(path, data))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(("name", "change", "told"), WRONG, ids=[told for *_, told in WRONG])
def test_a_wrong_field_is_named_with_what_was_expected(
    name: str, change: Change, told: str, folder: EvidenceFolder
) -> None:
    data = told_in(EVIDENCE / FILES[name]) if name != "timing" else TIMING
    data = json.loads(json.dumps(data))
    change(data)
    error = refused(folder, name, json.dumps(data).encode())
    assert f"is damaged: {told}" in error.message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "has no schema_version"),
        (b'{"schema_version": "1"}', "has no schema_version"),
        (b'{"schema_version": 1}', "is damaged: Object missing required field"),
        (b'{"schema_version": 9}', "is of schema 9; this workbench reads up to "),
        (b'{"schema_version": 1', "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=["list", "no number", "empty", "newer", "cut", "no text", "nothing"],
)
def test_what_is_no_record_is_named_in_every_kind_of_file(
    name: str, data: bytes, told: str, folder: EvidenceFolder
) -> None:
    assert told in refused(folder, name, data).message


def test_a_file_that_is_wrong_twice_is_no_traceback(folder: EvidenceFolder) -> None:
    """A wrong field, and behind it no JSON at all."""
    refused(folder, "variant", b'{"schema_version": 1, "variant": 3, "build": "\\ud800"}')


# ---- the command on record
@pytest.mark.parametrize(
    ("module", "typed", "told"),
    [
        ("", ["/usr/bin/workbench", "ablate", "fix1"], "workbench ablate fix1"),
        ("workbench.__main__", ["/x/workbench/__main__.py", "check"], "workbench check"),
        ("benchmarks.models", ["/x/models.py", "b?"], "python -m benchmarks.models 'b?'"),
        ("", ["/x/times.py", "--out=/x/out"], "python times.py --out=out"),
        ("", [""], "python"),
        ("", ["-c", "7"], "python -c 7"),
    ],
)
def test_of_each_program(monkeypatch: Patch, module: str, typed: list[str], told: str) -> None:
    started = ModuleType("__main__")
    started.__spec__ = ModuleSpec(module, None, origin=typed[0]) if module else None
    monkeypatch.setitem(sys.modules, "__main__", started)
    monkeypatch.setattr(sys, "argv", typed)
    assert provenance(Environment()).command == told


def test_of_a_process_that_acts_for_another(monkeypatch: Patch) -> None:
    monkeypatch.setattr(recording, "_elsewhere", [])
    recording.act_for(["python", "-m", "benchmarks.models", "b?"])
    assert provenance(Environment()).command == "python -m benchmarks.models 'b?'"


# The values that a file of a schema may have, where they are words of a list. A value that goes
# makes older files unreadable: then raise the ``schema`` of the record and add a line here.
CHANGES = """async-copy balance barriers bulk-copy cache-hints choose coalesce early fuse less-work
narrow operands other-pipe overlap registers reuse smaller-code specialise split swizzle tail tensor
tile-shared vector warps"""
WORDS = {
    ("VariantRecord", 1): {"CheckResult": "correct crashed failed hung unsupported wrong"},
    ("Timing", 2): {
        "NodeKind": "kernel memcpy memset other",
        "Regime": "alone back_to_back chained cold",
    },
    ("JournalEntry", 1): {
        "Known": "captured nothing timed unknown",
        "entry": "capture prediction session",
    },
    ("LadderFile", 1): {"Change": CHANGES, "Written": "after before", "literals": "wrong"},
}
WORDED = (VariantRecord, Captures, DerivedShape, Shipped, Timing, LadderFile)


def words_of(kind: Any) -> dict[str, set[str]]:
    """The enumerations in a record, by name."""
    found: dict[str, set[str]] = {}
    seen: set[type] = set()
    queue: list[Any] = [inspect.type_info(kind)]
    while queue:
        node = queue.pop()
        if isinstance(node, inspect.EnumType):
            found[node.cls.__name__] = {each.value.replace(" ", "_") for each in node.cls}
        elif isinstance(node, inspect.LiteralType):
            found.setdefault("literals", set()).update(map(str, node.values))
        elif isinstance(node, inspect.StructType) and node.cls not in seen:
            seen.add(node.cls)
            queue += [each.type for each in node.fields]
            if node.tag_field is not None:
                found.setdefault(node.tag_field, set()).add(str(node.tag))
        for name in ("types", "item_types"):
            queue += getattr(node, name, ())
        for name in ("item_type", "key_type", "value_type"):
            queue += [getattr(node, name)] if hasattr(node, name) else []
    return found


@pytest.mark.parametrize("kind", [*WORDED, JournalEntry], ids=str)
def test_a_value_that_goes_raises_the_schema(kind: Any) -> None:
    name = getattr(kind, "__name__", "JournalEntry")
    recorded = WORDS.get((name, getattr(kind, "schema", SCHEMA_VERSION)), {})
    assert words_of(kind) == {key: set(text.split()) for key, text in recorded.items()}
