"""A broken record is named with its file and field, whatever broke it: never a traceback."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys
from faults.test_fault_config import spoil
from property_cases import examples
from workbench.cli.main import main
from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.records import PACKED, Captures, Record, Timing, VariantRecord, timing_name
from workbench.study.files import json_data
from workspaces import EVIDENCE, copy_of_fixture, told_in

SHAPE = "b4h16s2048d128-causal"
SESSION = timing_name(next((EVIDENCE / SHAPE / "timings").iterdir()).name)
FILES: dict[str, type[Record]] = {
    "variants/fix10.json": VariantRecord,
    f"{SHAPE}/captures.json": Captures,
    f"{SHAPE}/timings/{SESSION}": Timing,
}
ROWS = 6  # of a session: enough to be one
Place = tuple[str | int, ...]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, 2**64, -(2**70), 10**400, 0, -1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["", "../../etc/passwd", "/dev/zero", "a\0b", "\x1b[2J", "‮", ".", "x" * 300]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def content(name: str) -> Any:
    """A recorded file, sessions with a few rows."""
    path = EVIDENCE / name
    found = told_in(path if path.is_file() else path.with_name(path.name + PACKED))
    for session in found.get("sessions", ()):
        for series in session["series"]:
            series |= {k: v[:ROWS] for k, v in series.items() if isinstance(v, list)}
    return found


def places(node: Any, at: Place = ()) -> Iterator[Place]:
    """Of everything in a file."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


CONTENT = {name: content(name) for name in FILES}
PLACES = {name: sorted(places(data), key=repr) for name, data in CONTENT.items()}
TAKEN_OUT = "taken out"


def changed(name: str, place: Place, value: Any) -> bytes:
    data = json.loads(json.dumps(CONTENT[name]))
    node = data
    for key in place[:-1]:
        node = node[key]
    if value is TAKEN_OUT:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return json.dumps(data).encode()


changes = st.sampled_from(list(FILES)).flatmap(
    lambda name: st.tuples(
        st.just(name), st.sampled_from(PLACES[name]), st.one_of(st.just(TAKEN_OUT), values)
    )
)


def read(name: str, data: bytes) -> str:
    """What is said against it; "" where it is taken."""
    with tempfile.TemporaryDirectory() as top:
        path = Path(top) / EVIDENCE.name / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        error = refusal(path, FILES[name])
        assert error is None or (str(path) in error.message and error.hint)
        return error.message if error else ""


def refusal(path: Path, kind: type[Record]) -> UsageError | None:
    try:
        store.read_record(path, kind)
    except UsageError as error:
        return error
    return None


@settings(max_examples=examples(100, many=4000))
@given(changes)
def test_a_changed_field_is_taken_or_named(change: tuple[str, Place, Any]) -> None:
    name, place, value = change
    told = read(name, changed(name, place, value))
    if told and place[0] != "schema_version":
        field = [str(part) for part in place if isinstance(part, str)]
        assert any(part in told for part in field), (told, place)


@settings(max_examples=examples(60, many=1000))
@given(st.sampled_from(list(FILES)), st.binary(max_size=4), st.floats(0, 1), st.integers(0, 4))
def test_changed_bytes_are_taken_or_refused(
    name: str, put: bytes, where: float, skipped: int
) -> None:
    data = json.dumps(CONTENT[name]).encode()
    at = int(where * len(data))
    read(name, data[:at] + put + data[at + skipped :])
    assert read(name, data[: int(where * (len(data) - 1))]), "a cut file is refused"


@pytest.mark.parametrize("name", FILES)
def test_any_depth_is_refused(name: str) -> None:
    deep = b'{"schema_version": 1, "%s": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
    assert read(name, deep.replace(b"%s", b"build"))
    assert "nested too deeply" in read(name, deep.replace(b"%s", b"other"))


@pytest.mark.parametrize("report", ["../reports/a.ncu-repz", "/dev/zero", "", "a\0b", ".hidden"])
def test_a_capture_names_a_file_of_its_folder(report: str) -> None:
    name = f"{SHAPE}/captures.json"
    captures = CONTENT[name]["captures"]
    changed = {**captures, "fix10": {**captures["fix10"], "report": report}}
    data = json.dumps({**CONTENT[name], "captures": changed}).encode()
    assert "no file in the folder of reports" in read(name, data)


VERBS = (
    *(["check", "--json"], ["list", "--json"], ["show", "fix10", "--json", "--shape", SHAPE]),
    *(["check", "--brief"], ["show", f"attention/{SHAPE}/fix10", "--brief"]),
)


@settings(max_examples=examples(8, many=200))
@given(changes, st.sampled_from(VERBS))
def test_a_verb_ends_in_2_or_shows_the_rest(
    workspace: Path, change: tuple[str, Place, Any], verb: list[str]
) -> None:
    name, place, value = change
    path = workspace / "ablations" / "attention" / "evidence" / EVIDENCE.name / name
    path = path if path.is_file() else path.with_name(path.name + PACKED)
    kept = path.with_suffix(".kept")
    shutil.copy(path, kept)
    path.write_bytes(store.packed(path, changed(name, place, value)))
    try:
        wrong = {1} if verb[0] == "check" else set()  # fix3 is wrong, on record
        assert main([*verb, "--project", str(workspace)]) in {0, 2, *wrong}
    finally:
        kept.replace(path)


@pytest.mark.parametrize("value", ["-1", str(2**64), "-0.5", "1e300", "NaN", "1e999"])
def test_an_impossible_sample_is_refused_with_its_field(value: str) -> None:
    name = f"{SHAPE}/timings/{SESSION}"
    data = json.loads(json.dumps(CONTENT[name]))
    series = data["sessions"][0]["series"][0]
    series["microseconds"][1] = "HERE"
    told = read(name, json.dumps(data).replace('"HERE"', value).encode())
    assert "sessions[0].series[0].microseconds" in told or "JSON is malformed" in told
    assert read(name, json.dumps({**data, "stride": -1}).replace('"HERE"', "1").encode())


@pytest.mark.parametrize("name", FILES)
def test_a_key_that_stands_twice_is_refused(name: str) -> None:
    """Whichever of the two is the damage: the first was passed over without a word."""
    whole = json.dumps(CONTENT[name]).encode()
    key = next(key for key in CONTENT[name] if key != "schema_version")
    for first in (f'{{"{key}": 5, ', f'{{"{key}" : 5, ', '{"unknown": 1, "unknown": 2, '):
        told = read(name, first.encode() + whole[1:])
        assert "twice" in told or key in told
    assert read(name, whole) == ""


@pytest.mark.parametrize(
    ("kind", "why"),
    [("FIFO", "no regular file"), ("loop", "link in a loop"), ("large", "is larger than")],
)
def test_what_is_no_file_hangs_nothing(kind: str, why: str, tmp_path: Path) -> None:
    spoil(journal := tmp_path / "journal.jsonl", kind)
    with pytest.raises(UsageError, match=why):
        store.read_lines(journal, VariantRecord)
    spoil(record := tmp_path / "fix10.json", kind)
    assert why in str(refusal(record, VariantRecord))


def test_a_line_of_a_newer_journal_is_named(tmp_path: Path, capsys: Capsys) -> None:
    """By every verb that reads a journal."""
    root = copy_of_fixture(tmp_path)
    (journal, *_) = sorted(root.glob("ablations/transpose/evidence/*/journal.jsonl"))
    with journal.open("a") as file:
        file.write('{"schema_version": 99}\n')
    number = journal.read_text().count("\n")
    named = f"line {number} of journal.jsonl is passed over"
    told = f"{journal} is of schema 99; this workbench reads up to 1"
    for verb in (
        *("list", "check", "ablate", "ablate tiled --brief", "report", "show tiled"),
        *("advise tiled", "advise tiled --brief", "diff tiled padded", "profile tiled"),
        "ship tiled --as 1",
    ):
        ended = main([*verb.split(), "--study", "transpose", "--project", str(root)])
        assert ended == (2 if "ship" in verb else 0), verb
        shown = "".join(capsys.readouterr())
        assert named in shown, verb
        assert told in shown or "--brief" in verb, verb


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" * 9_000_000, "MiB of memory"),
        ("[" * 1_000_000, "nested too deeply"),
        ("[NaN]", "no number"),
    ],
    ids=["wide", "deep", "nan"],
)
def test_what_would_take_all_memory_is_refused(data: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        json_data(data)
