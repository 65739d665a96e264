"""Evidence is what was measured: a report that was exchanged or changed is not shown as such."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys, both_of, error_of, json_of, text_of
from property_cases import examples
from workbench.errors import BadCapture
from workbench.evidence.store import CONTENT, EXCHANGED, EvidenceFolder
from workbench.load import VariantEvidence, load, load_ladder
from workbench.ncu.capture import KeptTables, Tables
from workbench.ncu.captures import LAUNCHES, tables_of
from workbench.study.files import compressed
from workbench.study.model import Study
from workbench.study.workspace import find_workspace
from workbench.words import Status
from workspaces import (
    EVIDENCE,
    FIXTURE,
    RAW,
    YOUNGER,
    copy_of_fixture,
    recorded_index,
    recorded_report,
    rewrite,
)

SHAPE = "b4h16s2048d128-causal"
SMALL, OTHER = recorded_report(SHAPE, "fix10"), RAW
WHOLE = SMALL.read_bytes()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_fixture(tmp_path_factory.mktemp("hashes"), "attention")


def in_copy(workspace: Path, path: Path) -> Path:
    return workspace / path.relative_to(FIXTURE)


@pytest.fixture
def report(workspace: Path) -> Iterator[Path]:
    """The small report of a copy of the repository, put back afterwards."""
    path = in_copy(workspace, SMALL)
    yield path
    path.write_bytes(WHOLE)


@cache
def study(workspace: Path) -> Study:
    return find_workspace(workspace).study()


def evidence_of(workspace: Path, variant: str) -> VariantEvidence:
    folder = EvidenceFolder(in_copy(workspace, EVIDENCE))
    known = load(study(workspace), folder, {SHAPE: [variant]}, captures=[SHAPE])
    return known[SHAPE].variants[variant]


@pytest.mark.parametrize("data", [OTHER.read_bytes(), b""], ids=["exchanged", "empty"])
def test_a_report_that_is_another_costs_its_variants_their_captures_alone(
    data: bytes, workspace: Path, report: Path
) -> None:
    report.write_bytes(data)
    whole, folder = study(workspace), EvidenceFolder(in_copy(workspace, EVIDENCE))
    ladder = load_ladder(whole, folder, "b4h16s2048d128", whole.ladder.chain([]), sources=True)
    hurt = evidence_of(workspace, "fix10")
    assert hurt.state["capture"] == Status.DAMAGED
    assert hurt.index is None
    assert hurt.damage == f"{report.name} {EXCHANGED}"
    others = ladder.shapes["b4h16s2048d128"].variants.values()
    assert all(each.capture for each in others if each.index)


def test_ablate_says_so_and_goes_on(workspace: Path, report: Path, capsys: Capsys) -> None:
    report.write_bytes(OTHER.read_bytes())
    where = ["--project", str(workspace), "--shape", SHAPE]
    rows = json_of(capsys, "ablate", *where)["variants"]
    row = next(row for row in rows if row["variant"] == "fix10")
    assert row["microseconds"]["value"] > 0
    assert row["dram_gb_per_s"] is None
    for words in ((), ("--all",), ("--csv",)):
        told = both_of(capsys, "ablate", *words, *where)
        assert f"{report.name} {EXCHANGED}: no capture of" in (
            told.err if "--csv" in words else told.out
        )
    assert EXCHANGED in error_of(capsys, "show", "fix10", "--source", *where, code=4)
    for verb, code in (("show", 0), ("ablate", 5), ("profile", 0)):
        answer = json_of(capsys, verb, "fix10", "--brief", *where, code=code)
        assert (answer["capture"], len(answer["damage"])) == ("damaged", 1)


def test_list_says_so_too(workspace: Path, report: Path, capsys: Capsys) -> None:
    report.write_bytes(OTHER.read_bytes())
    told = text_of(capsys, "list", project=workspace)
    capture = f"fix10 has a damaged capture at {SHAPE} (nvidia-h200)"
    assert f"{capture}: {report.name} {EXCHANGED}" in told
    assert "1 damaged" in told
    (study,) = json_of(capsys, "list", project=workspace)["studies"]
    states = [each for v in study["variants"] for each in v["evidence"] if each["why"]]
    assert {(each["shape"], each["state"]) for each in states} == {(SHAPE, "damaged")}


def test_an_edited_index_is_no_way_around(workspace: Path) -> None:
    path = EvidenceFolder(in_copy(workspace, EVIDENCE)).captures(SHAPE)
    kept = path.read_text()
    rewrite(path, recorded_index(SHAPE, "sdpa")["sha256"], "0" * 64)
    try:
        assert evidence_of(workspace, "sdpa").state["capture"] == Status.DAMAGED
    finally:
        path.write_text(kept)


@settings(max_examples=examples(40, many=1200))
@given(st.integers(0, 8 * len(WHOLE) - 1), st.booleans())
def test_no_flipped_bit_and_no_cut_is_evidence(workspace: Path, bit: int, cut: bool) -> None:
    path = in_copy(workspace, SMALL)
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data[: bit // 8] if cut else data)
    try:
        evidence = evidence_of(workspace, "fix10")
        assert evidence.capture is None
        assert evidence.state["capture"] == Status.DAMAGED
    finally:
        path.write_bytes(WHOLE)


TABLES = EvidenceFolder(EVIDENCE).tables(SMALL.name)
PACKED = TABLES.read_bytes()
TEXT = zstandard.ZstdDecompressor().decompress(PACKED)
BODY = TEXT.index(b'"launches":')
DIGITS = [at for at, byte in enumerate(TEXT) if at > BODY and byte in b"0123456789"]


def launches_in(kept: Path, told: list[str]) -> list[object]:
    return [content(launch) for launch, _ in tables_of(SMALL, kept, tell=told.append)]


def content(launch: Tables) -> object:
    """Without the metrics that these tables are too old to have."""
    metrics = [row for row in launch.metrics if row[0] not in YOUNGER]
    return launch.kernel, metrics, list(launch.lines)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / TABLES.name


TRUE = [content(launch) for launch, _ in tables_of(SMALL, TABLES)]


@settings(max_examples=examples(8, many=600))
@given(st.sampled_from(DIGITS), st.integers(1, 9))
def test_an_edited_figure_is_read_again_from_the_report(kept: Path, at: int, more: int) -> None:
    digit = (TEXT[at] - 48 + more) % 10 + 48
    kept.write_bytes(zstandard.compress(TEXT[:at] + bytes([digit]) + TEXT[at + 1 :]))
    told: list[str] = []
    assert launches_in(kept, told) == TRUE
    assert told == [f"{kept.name} {EXCHANGED}: it was read again from {SMALL.name}"]
    told.clear()
    assert launches_in(kept, told) == TRUE
    assert told == [], "the tables were written again"


@settings(max_examples=examples(8, many=600))
@given(st.integers(0, 8 * len(PACKED) - 1), st.booleans())
def test_a_flipped_bit_or_a_cut_of_tables_changes_nothing(kept: Path, bit: int, cut: bool) -> None:
    data = bytearray(PACKED)
    data[bit // 8] ^= 1 << bit % 8
    kept.write_bytes(data[: bit // 8] if cut else data)
    assert launches_in(kept, []) == TRUE


OF_ANOTHER = EvidenceFolder(EVIDENCE).tables(recorded_report("b4h16s2048d128", "fix8").name)
NO_TABLES = [b"{}", b"null", b'{"of":1,"content":"', TEXT[:BODY], TEXT[:-1]]


@pytest.mark.parametrize(
    "data", [*map(zstandard.compress, NO_TABLES), b"", b"[]", OF_ANOTHER.read_bytes()]
)
def test_what_is_no_table_is_read_again(kept: Path, data: bytes) -> None:
    told: list[str] = []
    kept.write_bytes(data)
    assert launches_in(kept, told) == TRUE
    assert [f"it was read again from {SMALL.name}" in text for text in told] == [True]


def test_what_the_product_compresses_has_a_checksum(kept: Path) -> None:
    kept.unlink(missing_ok=True)
    assert isinstance(tables_of(SMALL, kept)[0][0].kernel, str)
    for data in (compressed(b"a report"), kept.read_bytes(), PACKED):
        assert zstandard.get_frame_parameters(data).has_checksum
    assert isinstance(tables_of(SMALL, kept)[0][0], KeptTables)


@pytest.mark.parametrize("value", [b"-1.0", b"18446744073709551616", b"NaN"])
def test_an_impossible_sample_makes_tables_unusable(value: bytes, tmp_path: Path) -> None:
    """Their checksum is their own: whoever changes them can make another."""
    head, _, rest = TEXT.partition(CONTENT)
    body = rest.partition(LAUNCHES)[2]
    at = re.search(rb'"smsp__pcsamp_warps_issue_stalled_wait", ?([\d.]+)', body)
    assert at is not None
    body = body[: at.start(1)] + value + body[at.end(1) :]
    checksum = hashlib.sha256(body).hexdigest().encode()
    kept = tmp_path / TABLES.name
    kept.write_bytes(compressed(head + CONTENT + checksum + LAUNCHES + body))
    where = re.escape(kept.name) + ".* has 'smsp__pcsamp_warps_issue_stalled_wait'"
    with pytest.raises(BadCapture, match=where):
        tables_of(tmp_path / SMALL.name, kept)
