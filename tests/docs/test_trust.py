"""What docs/trust.md, docs/sizes.md and docs/story.md say of the recorded ladders is so."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import agreement, between, claims
from benchmarks.honest import __main__ as honest
from benchmarks.honest.__main__ import ANCHOR, Told, laid_out, row_of, studies
from benchmarks.honest.corpus import points
from tools import story

from answers import Capsys, Patch, not_none
from standin import StandIn
from workbench.derive.speedup import over_sessions
from workbench.judge.findings import sentence
from workbench.judge.session_checks import TimingFacts
from workbench.judge.time_checks import REFEREE
from workbench.run import machine
from workbench.run.machine import Gpu
from workbench.study.config import Config
from workbench.study.workspace import find_workspace
from workbench.words import Verdict
from workspaces import FIXTURE, ROOT, contents, copy_of_fixture, put_in, recorded_ladder, told_in

PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text()


def test_the_cross_checks_have_the_names_of_gates() -> None:
    gates = {gate.name for row in recorded_ladder().rows for gate in row.gates}
    first = PAGE.partition("## Error rates")[0]
    rows = [line.split("|")[3] for line in first.splitlines() if line.count("|") == 4][2:]
    assert len(rows) == 6
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named <= {*gates, REFEREE}  # the fixture was timed without one


@cache
def every_timing() -> tuple[TimingFacts, ...]:
    """Of all timings on record in the repository, of whatever study and shape."""
    workspace = find_workspace(ROOT)
    return tuple(f for name in workspace.studies() for f in claims.facts_of(workspace, name))


@pytest.mark.slow
def test_no_recorded_control_is_off() -> None:
    every = [control for facts in every_timing() for control in facts.controls]
    off = sum(map(claims.excludes_one, every))
    told = f"[{off} of {len(every)} comparisons](measuring.md#aa-controls)"
    assert f"{told}, {100 * off / len(every):.1f} %; none lies wholly beyond 1 %" in PAGE
    assert not any(control.is_off for control in every)


@pytest.mark.slow
def test_no_recorded_reference_is_disturbed_by_its_company() -> None:
    companies = [facts.interference for facts in every_timing() if facts.interference is not None]
    assert len(companies) > 20
    assert not any(company.is_off for company in companies)


def test_a_step_that_was_not_checked_where_every_one_is_has_no_verdict(tmp_path: Path) -> None:
    root = copy_of_fixture(tmp_path, "transpose")
    path = root / "ablations/transpose/evidence/nvidia-h200/variants/chosen.json"
    record = told_in(path)
    del record["checks"]["edges"]
    put_in(path, record)
    row = recorded_ladder(root, "transpose").row("chosen")
    (correct,) = (gate for gate in row.gates if gate.name == "correct")
    assert (correct.passed, sentence(correct.why)) == (None, "not collected at edges")
    assert row.verdict == Verdict.INCONCLUSIVE


def test_looking_again_has_the_price_that_is_told() -> None:
    """A step that is exactly at the gate, by sessions that differ as recorded ones do."""
    timing, draw, gate = Config().timing, random.Random(0), math.log(1.03)
    kept = {"once": 0, "again": 0}
    for _ in range(20_000):
        drawn = [draw.gauss(gate, 0.004) for _ in range(timing.max_sessions)]
        for number in range(timing.sessions, timing.max_sessions + 1, timing.sessions):
            interval = over_sessions(drawn[:number], again=number > timing.sessions)
            assert interval.low is not None
            kept["once"] += number == timing.sessions and interval.low >= math.exp(gate)
            if interval.low >= math.exp(gate):
                kept["again"] += 1
                break
            if not_none(interval.high) < math.exp(gate):
                break
    assert 2.3 < kept["once"] / 200 < 2.7
    assert 2.8 < kept["again"] / 200 < 3.3
    assert "is kept in 3.1 % of cases instead of 2.5" in PAGE


# ---- sizes.md
def test_the_coverage_over_recordings_is_the_measured_one() -> None:
    table = (ROOT / "docs" / "measuring.md").read_text().split("<!-- between -->")[1]
    shares = re.findall(r"the 95 % interval of ([\d.]+ %) is (\[.*?\])", table)
    every, other = (" ".join(share) for share in shares)
    (sessions,) = re.findall(r"one recording holds (\d+ %) of", table)
    page = (ROOT / "docs" / "trust.md").read_text()
    told = f"and with the spread between recordings in {every} on H100s, {other} on H200s"
    assert f"[in {sessions}](measuring.md#recordings), {told}" in page


def test_bounds_and_selection_are_those_of_the_textbooks() -> None:
    assert claims.at_most(0, 56) == pytest.approx(1 - 0.05 ** (1 / 56))
    assert claims.at_least(56, 56) == pytest.approx(0.05 ** (1 / 56))
    assert claims.at_most(1, 2) == pytest.approx(math.sqrt(0.95))  # 1 - p² = 0.05
    assert claims.largest_of(1) == pytest.approx(0, abs=1e-9)
    assert claims.largest_of(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-4)


def test_a_recording_made_again_adds_to_the_journal_alone(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    root = copy_of_fixture(tmp_path, "softmax")
    gpu = StandIn(monkeypatch, lambda run: 10.0)
    before = contents(root)
    between.again("softmax", root)
    added = {p.name: new.removeprefix(before.get(p, b"")) for p, new in contents(root).items()}
    assert {name for name, new in added.items() if new} == {"journal.jsonl"}
    references = {"eager", "compiled"}
    assert references < json.loads(added["journal.jsonl"])["medians"].keys() <= {*gpu.timed[0]}


def test_a_study_without_times_on_this_gpu_is_not_recorded_again(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    gpu = StandIn(monkeypatch, lambda run: 10.0)
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("NVIDIA A100", "580", "8.0"))
    with pytest.raises(RuntimeError, match="softmax has no times on this GPU model"):
        between.again("softmax", copy_of_fixture(tmp_path, "softmax"))
    assert not gpu.jobs


def test_the_row_of_honest_kernels_is_of_what_each_was_told() -> None:
    every = [
        Told("", "", "", False, apart=0.31, share=0.9),
        Told("", "", "", True, apart=0.2, share=0.434),
        Told("", "", "", False, (REFEREE,), apart=0.812, share=1.1),
        Told("", "", "", False, ("kernels",), apart=0.0, share=12.0),
        Told("", "", "", True),
    ]
    told = "| 2026-11-29 | H200 | after | 5 | 2 | 1 | 0.81 | 0.43 |"
    assert row_of("after", every, "H200", "2026-11-29") == told
    assert row_of("", every[4:], "", "") == "|  |  |  | 1 | 1 | 0 | not collected | not collected |"


def test_honest_kernels_are_measured_in_parts(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(honest, "Local", lambda: SimpleNamespace(gpu=Gpu("H200", "580", "9.0")))
    monkeypatch.setattr(honest, "in_process", lambda folder, what, names: measured.extend(names))
    monkeypatch.setattr(honest, "profile", lambda *arguments: None)
    monkeypatch.setattr(honest, "case_of", lambda *arguments: None)
    monkeypatch.setattr(honest, "told", lambda point, *rest: Told(point.name, "after", "", False))
    names = [*studies()][:5]
    for _ in range(2):
        honest.main(tmp_path / "results", names[:2], 500.0)
    assert measured == names[:2]
    honest.main(tmp_path / "results", names, 0.0)
    assert measured == names[:2]
    honest.main(tmp_path / "results", names, 500.0)
    assert measured == names
    count = sum(len(studies()[name]) for name in names)
    assert capsys.readouterr().out.splitlines()[-1].split(" | ")[3] == str(count)


def test_honest_kernels_of_a_kind_are_a_study(tmp_path: Path) -> None:
    """Each is a module whose ``run`` it is, beside PyTorch's function by another name."""
    (study, every) = next(iter(studies(["silu_1024_float32"]).items()))
    folder = laid_out(tmp_path, study, every)
    modules = {path.stem for path in folder.glob("*.py")} - {"study"}
    assert modules == {*(point.function for point in every), ANCHOR}
    assert "run = silu_vectors" in (folder / "silu_vectors.py").read_text()
    assert 'run = CALLS["silu_torch"]' in (folder / f"{ANCHOR}.py").read_text()
    assert len({point.name for point in points()}) == len([*points()])


def test_ncu_sees_the_calls_between_the_stamps_of_a_graph() -> None:
    call = ["write_inputs", "stamp(long *)", "stamp(long *)", "memset", "silu<int>(x)", "stamp"]
    graph = ["advance", *call, "read_output", "stamp", *call, "read_output", *call, "stamp"]
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Value"']
    for place, kernel in enumerate(graph):
        values = zip(agreement.METRICS, ("1,500", "3,000"), strict=True)
        lines += [f'"{place}","{kernel}","{metric}","{value}"' for metric, value in values]
    calls = agreement.between_stamps([*agreement.launches(lines)])
    assert [[one.kernel for one in each] for each in calls] == [["memset", "silu<int>"]] * 2
    assert agreement.total(calls) == [3.0, 6.0]  # microseconds, thousands of cycles


# ---- story.md
STORY = story.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def frozen() -> story.Evidence:
    return story.evidence(FIXTURE)


@pytest.mark.slow
def test_its_numbers_hold() -> None:
    assert list(story.faults(STORY, story.evidence())) == []
    assert len(story.NAMED.findall(STORY)) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5<!--fix11[stagger=1] sessions-->", []),
        ("1.09x<!--fix5 ratio-->", []),
        ("1.08x<!--fix5 ratio-->", ["it is 1.09"]),
        ("1.087x<!--fix5\nratio-->", ["it is 1.09"]),
        ("204 µs<!--fix10 time at b4h16s2048d128-->", []),
        ("1,028 µs<!--baseline time cold-->", []),
        ("1.40x<!--fix5 ratio cold-->", []),
        ("1.40x<!--fix5 ratio back-to-back-->", ["it is 1."]),
        ("7 µs<!--fix99 time-->", ["not recorded"]),
        ("7 µs<!--fix4 time at b1-->", ["not recorded"]),
        ("7 µs<!--fix5 time at b2h8s512d64-causal-->", ["not recorded"]),
        ("1.1x<!--sdpa ratio-->", ["not recorded"]),
        ("5 %<!--fix4 predicted issue_active low-->", ["not recorded"]),
        ("7<!--fix4 figure beauty-->", ["not recorded"]),
        ("It took 5.14 µs, 12 % or 1.5x", ["'5.14 µs'", "'12 %'", "'1.5x'"]),
        ("64 keys, 128 KB, `5.14 µs` and 2,8,512,64", []),
        ("[16 of 297](trust.md)", []),
        ("[16 of 298](trust.md)", ["298 of"]),
    ],
)
def test_what_does_not_hold_is_found(
    text: str, says: Sequence[str], frozen: story.Evidence
) -> None:
    found = list(story.faults(text, frozen))
    assert len(found) == len(says)
    for fault, said in zip(found, says, strict=True):
        assert said in fault


@pytest.mark.slow
def test_its_pictures_are_there() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', STORY)
    assert len(pictures) == 9
    assert all((story.PAGE.parent / each).is_file() for each in pictures)


def test_hacks_that_were_written_after_the_bounds_are_counted_apart(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    head = "| runs | GPU | hacks written before | kept | written after | kept |\n"
    first, rest = PAGE.split(head)
    rule, rows = rest.split("\n", 1)
    page = tmp_path / "trust.md"
    monkeypatch.setattr(claims, "TRUST", page)
    for cells, told in (
        ("56 | 0 | - | - |", ["0 of 56"]),
        ("77 | 0 | 23 | 2 |", ["0 of 77", "2 of 23"]),
    ):
        page.write_text(
            f"{first}{head}{rule}\n| 2026-11-29 | H200 | {cells}\n\n{rows[rows.index('| ends') :]}"
        )
        assert [f"{one.came} of {one.of}" for one in claims.tried()][:-2] == told
