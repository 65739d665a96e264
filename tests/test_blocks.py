"""Blocks: what travels, how a plan is taken apart, what is merged, and what is refused."""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

import pytest
from benchmarks import million
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from faulty import examples
from onplaces import card
from standin import StandIn, ceiling
from workbench.derive.intervals import T_975, Ratio, over_sessions
from workbench.derive.speedup import ratio_of, session_times
from workbench.errors import (
    EnvironmentLacks,
    GateFailed,
    ToolFailed,
    UsageError,
    WorkbenchError,
)
from workbench.evidence import frames, journal, store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import (
    CaptureIndex,
    CeilingsFile,
    Checks,
    GraphNode,
    Provenance,
    Series,
    Session,
    Timing,
)
from workbench.judge.deciding import Deciding
from workbench.judge.gates import speed_verdict
from workbench.judge.inputs import TimedTogether
from workbench.judge.sessions import warnings_of
from workbench.places import blocks
from workbench.places.blocks import Block, Failed, Lacking, Left
from workbench.places.carry import Store, files_of, hashes
from workbench.places.combine import combined
from workbench.places.execute import answer
from workbench.places.local import Kept
from workbench.places.merge import Merger, Staged
from workbench.places.plan import Errand, apart, shares, whole_ones
from workbench.places.spool import Spool
from workbench.run.cards import Card, held, largest_kind
from workbench.run.measure import Measurement
from workbench.run.plan import Measured, Plan
from workbench.run.protocol import Broken, CeilingsJob, ErrorText, Learned, TrialJob
from workbench.run.recording import with_repeats
from workbench.run.trial import error_of
from workbench.study.config import Config, Gates
from workbench.study.config import Timing as TimingConfig
from workbench.study.workspace import find_workspace
from workbench.words import NodeKind, Regime, Verdict
from workspaces import make

MODULE = "def run(x):\n    return x\n"
NAMES = ("baseline", "fix")
ORIGIN = Provenance(date="2026-01-01T00:00:00Z")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "ws", {}, dict.fromkeys(NAMES, MODULE))


def errand(root: Path, plan: Plan | None = None, **timing: Any) -> Errand:
    study = find_workspace(root).study()
    folder = EvidenceFolder(root / "ablations" / "scale" / "evidence" / "nvidia-h200")
    config = Config(timing=replace(TimingConfig(), **timing))
    return Errand(study, config, folder, plan or Plan("large", timed=NAMES))


def measure_as_is(block: Block, root: Path, folder: EvidenceFolder, on_event: Any) -> Measured:
    study, config = find_workspace(root).study(block.study), block.config
    undecided = block.deciding.undecided(study.ladder, config)
    return Measurement(study, config, folder, block.plan, on_event, undecided).run()


def carried(block: Block, root: Path, scratch: Path, **changes: Any) -> Left:
    """As a worker would, with what stands in for the GPU."""
    scratch.mkdir()
    (scratch / "workspace").symlink_to(root)
    name = blocks.id_of(blocks.encode(block))
    left = answer(name, block, scratch, "nvidia-h200", lambda event: None, measure_as_is)
    return structs.replace(left, **changes)


def tree(folder: EvidenceFolder) -> dict[str, bytes]:
    return {
        path.relative_to(folder.root).as_posix(): path.read_bytes()
        for path in sorted(folder.root.rglob("*"))
        if path.is_file()
    }


# ---- what travels --------------------------------------------------------------------------------
def test_a_block_is_plain_json_and_called_after_it(root: Path) -> None:
    block = errand(root).block(["workbench", "ablate"])
    data = blocks.encode(block)
    assert blocks.decode(data) == block
    assert (
        json.loads(data)["sources"]["kernels/scale/fix.py"]
        == hashlib.sha256((root / "kernels" / "scale" / "fix.py").read_bytes()).hexdigest()
    )
    assert blocks.id_of(data) == blocks.id_of(
        blocks.encode(errand(root).block(["workbench", "ablate"]))
    )
    (root / "kernels" / "scale" / "fix.py").write_text(MODULE + "\n")
    assert blocks.id_of(data) != blocks.id_of(
        blocks.encode(errand(root).block(["workbench", "ablate"]))
    )


def test_an_answer_is_what_was_answered() -> None:
    for one in (
        Lacking(block="b", sha256=("x",)),
        Failed(block="b", kind="ToolFailed", message="m", again=True),
        Left(block="b", gpu="g", files={"a": b"1"}, sha256={"a": "2"}, card=card(0)),
        Left(block="b", gpu="g", files={}, sha256={}, told=Learned(inputs={}, outputs=())),
        Left(block="b", gpu="g", files={}, sha256={}, told=broken(UsageError("no", hint="h"))),
    ):
        assert blocks.decode_answer(blocks.encode_answer(one)) == one


def broken(error: WorkbenchError) -> Broken:
    kind = type(error).__name__
    return Broken(error=ErrorText(kind=kind, message=error.message, hint=error.hint))


@pytest.mark.parametrize("kind", [UsageError, EnvironmentLacks, ToolFailed, GateFailed])
def test_an_error_that_was_told_is_the_one_that_was_raised(kind: type[WorkbenchError]) -> None:
    found = error_of(broken(kind("why", hint="how")))
    assert (type(found), found.message, found.hint) == (kind, "why", "how")


def test_a_job_travels_with_the_sources_that_it_needs(root: Path) -> None:
    one = errand(root, Plan("large"))
    trial = TrialJob(study="scale", shapes=("large",), baseline="baseline", called="k.py",
                     references=("fix",), device="cuda")  # fmt: skip
    ceilings = CeilingsJob(ceilings=("dram", "fp32"))
    for job, sources, words in (
        (trial, one.sources, "large: called once"),
        (ceilings, {}, "2 ceilings"),
    ):
        block = replace(one, instead=job).block(["try"])
        assert blocks.decode(blocks.encode(block)) == block
        assert (block.instead, block.sources, block.words) == (job, sources, words)


def test_sources_are_kept_by_content_and_laid_out_as_they_were(root: Path, tmp_path: Path) -> None:
    files = files_of(find_workspace(root).study())
    wanted, kept = hashes(files), Store(tmp_path / "kept")
    assert set(kept.lacks(wanted.values())) == set(wanted.values())
    kept.put({wanted[name]: path.read_bytes() for name, path in files.items()})
    assert kept.lacks(wanted.values()) == ()
    kept.lay_out(wanted, tmp_path / "there")
    there = find_workspace(tmp_path / "there").study("scale")
    assert hashes(files_of(there)) == wanted


def test_content_of_another_hash_is_refused(root: Path, tmp_path: Path) -> None:
    kept = Store(tmp_path / "kept")
    with pytest.raises(ToolFailed, match="other content"):
        kept.put({"0" * 64: b"x"})
    sha256 = hashlib.sha256(b"x").hexdigest()
    kept.put({sha256: b"x"})
    kept.path(sha256).write_bytes(b"y")
    with pytest.raises(ToolFailed, match="other content"):
        kept.lay_out({"kernels/k": sha256}, tmp_path / "there")
    assert kept.lacks([sha256]) == (sha256,)  # it is asked for again
    kept.put({sha256: b"x"})
    for name in ("../k", "/k", "kernels/../../k"):
        with pytest.raises(ToolFailed, match="no path"):
            kept.lay_out({name: sha256}, tmp_path / "there")


# ---- how a plan is taken apart -------------------------------------------------------------------
def test_what_no_card_could_do_beside_is_one_block(root: Path) -> None:
    for plan in (Plan("large", timed=NAMES), Plan("large", checked=NAMES), Plan("large")):
        ((block,),) = staged(root, 3, plan)
        assert (block.checked, block.timed, block.share) == (plan.checked, plan.timed, -1)


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20))
@settings(max_examples=examples(60))
def test_shares_are_all_names_in_their_order(names: list[int], most: int) -> None:
    found = shares(names, most)
    assert [name for part in found for name in part] == names
    assert len(found) <= most
    assert len(found) == (1 if names else 0) or all(len(part) >= 4 for part in found)


@pytest.mark.parametrize(
    ("errands", "cards", "whole"), [(1, 1, 1), (1, 2, 0), (3, 2, 2), (11, 2, 10), (4, 2, 4)]
)
def test_as_many_shapes_as_cards_are_a_block_each(
    root: Path, errands: int, cards: int, whole: int
) -> None:
    found = [errand(root, Plan("large", captured=("fix",) * (i % 2))) for i in range(errands)]
    assert sum(whole_ones(found, cards)) == whole


def staged(
    root: Path, cards: int, plan: Plan, answers: Any = None, **timing: Any
) -> list[list[Block]]:
    """The blocks of every stage, where each leaves nothing but what ``answers`` says."""
    one = errand(root, plan, **timing)
    stages = apart(one.block([]), cards, Merger(one.folder), lambda timing: ())
    found: list[list[Block]] = []
    left: list[Left] | None = None
    while True:
        try:
            stage = next(stages) if left is None else stages.send(left)
        except StopIteration:
            return found
        found.append(stage)
        empty = Left(block="", gpu="", files={}, sha256={})
        left = [answers(block) if answers else empty for block in stage]


def test_one_card_times_while_the_others_capture(root: Path) -> None:
    names = tuple(f"v{i}" for i in range(16))
    plan = Plan("large", timed=names, captured=names)
    check, rest = staged(root, 3, plan)
    assert sorted(name for block in check for name in block.checked) == sorted(names)
    assert len(check) == 3
    timing, *captures = rest
    assert (timing.timed, timing.captured, timing.proven) == (names, (), True)
    assert timing.timing.sessions == 5  # all on one card
    assert [len(block.captured) for block in captures] == [8, 8]
    assert not any(block.timed or block.checked for block in captures)


def test_what_failed_is_not_timed(root: Path) -> None:
    def answers(block: Block) -> Left:
        failures = {"fix": "wrong"} if "fix" in block.checked else {}
        return Left(block="", gpu="", files={}, sha256={}, failures=failures)

    _, rest = staged(root, 2, Plan("large", timed=NAMES, captured=NAMES), answers)
    assert [(block.timed, block.captured) for block in rest] == [
        (("baseline",), ()),
        ((), ("baseline",)),
    ]


def test_sessions_are_spread_where_each_has_a_card(root: Path) -> None:
    plan = Plan("large", timed=NAMES, proven=True)
    (stage,) = staged(root, 5, plan)
    assert [block.share for block in stage] == [0, 1, 2, 3, 4]
    assert {(b.timing.sessions, b.timing.max_sessions) for b in stage} == {(1, 1)}
    (stage,) = staged(root, 4, plan)
    assert [block.share for block in stage] == [-1]


# ---- what is merged ------------------------------------------------------------------------------
@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch, lambda run: {"baseline": 10.0, "fix": 8.0}[run.variant])


def merged(merger: Merger, block: Block, left: Left) -> None:
    merger.merge(block, left)
    merger.commit()


def test_a_block_is_merged_as_if_it_had_been_measured_here(
    root: Path, tmp_path: Path, gpu: StandIn
) -> None:
    one = errand(root)
    block = one.block(["workbench", "ablate"])
    left = carried(block, root, tmp_path / "b")
    merger = Merger(one.folder)
    merger.learn(one.study)
    merged(merger, block, left)
    found = tree(one.folder)
    assert {name: data for name, data in left.files.items() if "journal" not in name} == {
        name: data for name, data in found.items() if "journal" not in name
    }
    assert len(journal.load_journal(one.folder).sessions) == 1
    merged(merger, block, left)
    again = Merger(one.folder)
    again.learn(one.study)
    merged(again, block, left)
    assert tree(one.folder) == found  # merging twice changes nothing


def test_a_timing_that_was_cut_short_elsewhere_is_noted_here_once(
    root: Path, tmp_path: Path, gpu: StandIn
) -> None:
    one = errand(root)
    block = one.block(["workbench", "ablate"])
    left = carried(block, root, tmp_path / "b")
    (line,) = [text for text in left.files["journal.jsonl"].splitlines() if b'"session"' in text]
    ended = json.loads(line) | {"cut_short": True, "sessions": 2, "file": "20260101T000000Z.json"}
    data = left.files["journal.jsonl"] + json.dumps(ended).encode() + b"\n"
    left = structs.replace(
        left,
        files={**left.files, "journal.jsonl": data},
        sha256={**left.sha256, "journal.jsonl": hashlib.sha256(data).hexdigest()},
    )
    for _ in range(2):
        merger = Merger(one.folder)
        merger.learn(one.study)
        merged(merger, block, left)
        merged(merger, block, left)
        entries = journal.load_journal(one.folder).sessions
        assert sorted((entry.cut_short, entry.sessions) for entry in entries) == [
            (False, 5),
            (True, 2),
        ]


def test_what_was_superseded_does_not_come_back(root: Path, tmp_path: Path, gpu: StandIn) -> None:
    one = errand(root)
    block = one.block(["workbench", "ablate"])
    old, new = (carried(block, root, tmp_path / name) for name in ("old", "new"))
    merger = Merger(one.folder)
    merger.learn(one.study)
    merged(merger, block, old)
    merged(merger, block, new)
    (path,) = one.folder.timing_files("large")
    assert path.name in {Path(name).name for name in new.files}
    found = tree(one.folder)
    again = Merger(one.folder)
    again.learn(one.study)
    merged(again, block, old)
    assert tree(one.folder) == found


def test_checks_of_other_shapes_stay_and_the_newer_one_counts(
    root: Path, tmp_path: Path, gpu: StandIn
) -> None:
    one = errand(root, Plan("large", checked=NAMES))
    odd = errand(root, Plan("odd", checked=NAMES))
    first = carried(odd.block([]), root, tmp_path / "odd")
    second = carried(one.block([]), root, tmp_path / "large")
    for order in ((first, second), (second, first)):
        folder = EvidenceFolder(tmp_path / order[0].block / "nvidia-h200")
        merger = Merger(folder)
        merger.learn(one.study)
        for left, block in ((left, odd if left is first else one) for left in order):
            merger.merge(block.block([]), left)  # both are put on record together
        merger.commit()
        checks = store.read(folder.check("fix"), Checks)
        assert set(checks.shapes) == {"large", "odd"}
        newest = json.loads(second.files["checks/fix.json"])["provenance"]["date"]
        assert checks.provenance.date == newest


def test_what_another_command_checks_meanwhile_stays(
    root: Path, tmp_path: Path, gpu: StandIn
) -> None:
    one = errand(root, Plan("large", checked=NAMES))
    odd = errand(root, Plan("odd", checked=NAMES))
    folder = EvidenceFolder(tmp_path / "both" / "nvidia-h200")
    first, second = Merger(folder), Merger(folder)
    for merger, each in ((first, one), (second, odd)):
        merger.learn(one.study)
        merger.merge(each.block([]), carried(each.block([]), root, tmp_path / each.plan.shape))
    second.commit()
    first.commit()
    assert set(store.read(folder.check("fix"), Checks).shapes) == {"large", "odd"}


def tampered(left: Left, name: str, data: bytes, *, rehashed: bool) -> Left:
    sha256 = hashlib.sha256(data).hexdigest() if rehashed else left.sha256.get(name, "")
    return structs.replace(
        left, files={**left.files, name: data}, sha256={**left.sha256, name: sha256}
    )


def test_what_is_not_what_was_measured_is_refused(root: Path, tmp_path: Path, gpu: StandIn) -> None:
    one = errand(root)
    block = one.block(["workbench", "ablate"])
    left = carried(block, root, tmp_path / "b")
    build, check = left.files["builds/fix.json"], left.files["checks/fix.json"]
    (timing,) = (name for name in left.files if "/timings/" in name)
    scale = frames.whole(left.files[timing])
    other = frames.compressed(scale.replace(b'"study": "scale"', b'"study": "other"'))
    foreign = build.replace(b'"fingerprint": "', b'"fingerprint": "0')
    for wrong, why in (
        (tampered(left, "builds/fix.json", build + b" ", rehashed=False), "not what was measured"),
        (tampered(left, "builds/fix.json", foreign, rehashed=True), "another fix"),
        (tampered(left, "builds/fix.json", b"{", rehashed=True), "large"),
        (tampered(left, "../up.json", b"{}", rehashed=True), "no evidence"),
        (tampered(left, "builds/../../up.json", b"{}", rehashed=True), "no evidence"),
        (tampered(left, "odd/timings/x.json", b"{}", rehashed=True), "no evidence"),
        (tampered(left, "kernels/study.py", b"", rehashed=True), "no evidence"),
        (tampered(left, timing, other, rehashed=True), "another shape"),
        (tampered(left, timing, other[:-9], rehashed=True), "cannot be read"),
        (tampered(left, timing, b"{}", rehashed=True), "cannot be read"),
        (structs.replace(left, sha256={}), "without its hashes"),
        (structs.replace(left, gpu="nvidia-a100"), "not of nvidia-h200"),
        (tampered(left, "checks/fix.json", check[:-9], rehashed=True), "large"),
    ):
        merger = Merger(EvidenceFolder(tmp_path / "never" / "nvidia-h200"))
        merger.learn(one.study)
        with pytest.raises(ToolFailed, match=why):
            merger.merge(block, wrong)
        assert merger.staged == Staged()


def ceilings_left(date: str, gpu: str | None = "NVIDIA H200", name: str = "ceilings.json") -> Left:
    file = CeilingsFile(
        ceilings={"fp32": ceiling(1)},
        not_collected={"l2": "no L2"},
        provenance=Provenance(date=date, gpu=gpu),
    )
    left = Left(block="b", gpu="nvidia-h200", files={}, sha256={})
    return tampered(left, name, store.encoded(file, Path(name)), rehashed=True)


def test_ceilings_are_merged_as_they_were_measured_and_the_newer_ones_count(root: Path) -> None:
    one = errand(root, Plan("large"))
    block = replace(one, instead=CeilingsJob(ceilings=("fp32", "l2"))).block([])
    old, new = ceilings_left("2026-01-01T00:00:00Z"), ceilings_left("2026-01-02T00:00:00Z")
    for left, wanted in ((old, old), (old, old), (new, new), (old, new)):
        merged(Merger(one.folder), block, left)
        assert tree(one.folder) == wanted.files
    merger = Merger(one.folder)
    done = structs.replace(new, files={})
    assert merger.still_has(done)
    one.folder.ceilings.unlink()
    assert not merger.still_has(done)


def test_what_a_job_does_not_leave_is_refused(root: Path) -> None:
    one = errand(root, Plan("large"))
    ceilings = CeilingsJob(ceilings=("fp32",))
    trial = TrialJob(study="scale", shapes=(), baseline="", called="", references=(), device="")
    good = ceilings_left("2026-01-01T00:00:00Z")
    data = good.files["ceilings.json"]
    for job, left, why in (
        (ceilings, tampered(good, "ceilings.json", data + b" ", rehashed=False), "not what was"),
        (ceilings, tampered(good, "ceilings.json", data[:-9], rehashed=True), "ceilings"),
        (ceilings, tampered(good, "builds/fix.json", b"{}", rehashed=True), "no evidence"),
        (ceilings, ceilings_left("2026-01-01T00:00:00Z", "NVIDIA A100"), "of NVIDIA A100"),
        (ceilings, ceilings_left("2026-01-01T00:00:00Z", None), "of no GPU"),
        (trial, good, "no evidence"),
        (None, good, "no evidence"),
    ):
        merger = Merger(one.folder)
        with pytest.raises(ToolFailed, match=why):
            merger.merge(replace(one, instead=job).block([]), left)
        assert merger.staged == Staged()


def test_captures_of_two_cards_in_one_second_are_both_kept(root: Path, tmp_path: Path) -> None:
    one = errand(root, Plan("large", captured=NAMES))
    merger = Merger(one.folder)
    merger.learn(one.study)
    for i, variant in enumerate(NAMES):
        report = b"(\xb5/\xfd report of " + variant.encode()
        index = CaptureIndex(
            variant=variant,
            shape="large",
            fingerprint=merger.at(variant, "large") or "",
            report="large-20260101T000000Z.ncu-repz",
            sha256=hashlib.sha256(report).hexdigest(),
            range="",
            launches=1,
            ncu="2025.3.1",
            ncu_flags=(),
            provenance=store.read(_any_timing(tmp_path / str(i)), Timing).provenance,
        )
        text = json.dumps(store.content(index)).encode()
        files = {f"large/captures/{variant}.json": text, f"reports/{index.report}": report}
        sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        left = Left(block="", gpu="nvidia-h200", files=files, sha256=sha256)
        for _ in range(2):
            merged(merger, one.block([]), left)
    reports = {path.name: path.read_bytes() for path in one.folder.reports.iterdir()}
    assert len(reports) == 2
    for variant in NAMES:
        kept = store.read(one.folder.capture_index("large", variant), CaptureIndex)
        assert reports[kept.report].endswith(variant.encode())
        assert with_repeats(one.folder, kept).repeats == (kept.report,)
    assert len(journal.load_journal(one.folder).captures) == 2


def _any_timing(folder: Path, **provenance: Any) -> Path:
    path = folder / "t.json"
    store.write(path, timing_of(1, **provenance))
    return path


# ---- sessions on several cards -------------------------------------------------------------------
def timing_of(sessions: int, noise: float = 0.0, seed: int = 1, **provenance: Any) -> Timing:
    draw = random.Random(seed)
    return Timing(
        study="scale",
        shape="large",
        fingerprints=dict.fromkeys(NAMES, "f"),
        nodes={},
        stride=1,
        sessions=tuple(
            Session(
                number=n,
                instances=1,
                series=tuple(
                    Series(
                        variant=name,
                        instance=0,
                        regime=Regime.CHAINED,
                        calls=1,
                        microseconds=(time * math.exp(draw.gauss(0, noise)),),
                    )
                    for name, time in (("baseline", 10.0), ("fix", 8.0))
                ),
            )
            for n in range(sessions)
        ),
        provenance=structs.replace(ORIGIN, **provenance),
        planned=sessions,
    )


def test_sessions_of_several_cards_are_one_timing_that_says_which() -> None:
    timings = [timing_of(1, 0.01, seed, gpu_uuid=f"GPU-{seed % 2}") for seed in range(5)]
    found = combined(timings, set(), 5)
    assert [session.number for session in found.together] == [0, 1, 2, 3, 4]
    assert [session.card for session in found.sessions] == [f"GPU-{n % 2}" for n in range(5)]
    assert found.provenance.gpu_uuid is None
    assert found.is_complete
    same = combined([timing_of(1, gpu_uuid="GPU-0")] * 2, set(), 2)
    assert {session.card for session in same.sessions} == {""}
    assert same.provenance.gpu_uuid == "GPU-0"


def test_cards_on_which_a_call_launched_other_kernels_are_told() -> None:
    def launched(**threads: int) -> Timing:
        nodes = {
            name: (GraphNode(kind=NodeKind.KERNEL, kernel="k", grid=(1, 1, 1), block=(n, 1, 1)),)
            for name, n in threads.items()
        }
        return structs.replace(timing_of(1), nodes=nodes)

    shares = [launched(baseline=64, fix=n) for n in (32, 256, 32)]
    assert combined(shares, set(), 3).unsteady == ("fix",)
    assert combined(shares, {"fix"}, 3).unsteady == ()
    before = structs.replace(shares[0], unsteady=("baseline",))
    assert combined([before, shares[0]], set(), 2).unsteady == ("baseline",)


@pytest.mark.parametrize(
    "other", [{"gpu": "NVIDIA H100"}, {"driver": "590"}, {"memory_bytes": 1}, {"torch": "3"}]
)
def test_sessions_of_unequal_cards_are_refused(other: dict[str, Any]) -> None:
    known = structs.replace(ORIGIN, gpu="NVIDIA H200", driver="580", memory_bytes=2, torch="2")
    origins = (known, structs.replace(known, **other))
    timings = [structs.replace(timing_of(1), provenance=origin) for origin in origins]
    with pytest.raises(ToolFailed, match=next(iter(other))):
        combined(timings, set(), 2)


def test_an_interval_over_several_cards_is_over_the_cards() -> None:
    logs = [0.10, 0.12, 0.20, 0.22, 0.30]
    cards = ["a", "a", "b", "b", "c"]
    means = [fmean(logs[:2]), fmean(logs[2:4]), logs[4]]
    found = over_sessions(logs, cards=cards)
    half = T_975[1] * stdev(means) / math.sqrt(3)
    assert found.value == pytest.approx(math.exp(fmean(means)))
    assert found.half_width == pytest.approx(half)
    assert found.sessions == 5
    assert over_sessions(logs, cards=["a"] * 5) == over_sessions(logs)
    own = over_sessions(logs, cards=list("abcde"))
    assert own.value == pytest.approx(over_sessions(logs).value)
    assert own.half_width == pytest.approx(over_sessions(logs).half_width)


def test_an_interval_over_two_cards_holds_on_each() -> None:
    logs, cards = [0.10, 0.20, 0.12, 0.24, 0.11], ["a", "b", "a", "b", "a"]
    one, other = [0.10, 0.12, 0.11], [0.20, 0.24]
    spread = math.sqrt((2 * variance(one) + variance(other)) / 3)
    found = over_sessions(logs, cards=cards)
    assert found.value == pytest.approx(math.exp((fmean(one) + fmean(other)) / 2))
    assert found.low == pytest.approx(math.exp(0.11 - T_975[2] * spread / math.sqrt(3)))
    assert found.high == pytest.approx(math.exp(0.22 + T_975[2] * spread / math.sqrt(2)))
    again = over_sessions(logs, cards=cards, again=True)
    assert (again.high or 0) > (found.high or 0)
    assert again.level == 99
    alone = over_sessions([0.1, 0.2], cards=["a", "b"])  # nothing is known within a card
    assert alone == over_sessions([0.1, 0.2])


def test_two_cards_that_agree_decide_and_two_that_do_not_leave_it_open() -> None:
    gates = Gates()
    verdicts = []
    for second in (0.20, -0.20):  # 22 % faster on both, or only on one of them
        logs = [0.20, 0.201, 0.199, second, second + 0.001, second - 0.001]
        found = over_sessions(logs, cards=list("aaabbb"))
        ratio = Ratio(found.value, found.low, found.high, found.sessions)
        verdicts.append(speed_verdict(ratio, gates))
    assert verdicts == [Verdict.KEPT, Verdict.INCONCLUSIVE]


@pytest.mark.parametrize("between", [0.0, 1.0, 3.0])
def test_intervals_of_two_cards_hold_for_each_of_them(between: float) -> None:
    """Drawn 2000 times, three sessions on each; ``between`` in standard deviations of one."""
    draw, held, tries = random.Random(2), 0, 2000
    for _ in range(tries):
        commons = [draw.gauss(0, between) for _ in range(2)]
        logs = [common + draw.gauss(0, 1) for common in commons for _ in range(3)]
        found = over_sessions(logs, cards=list("aaabbb"))
        held += all(found.holds(math.exp(common)) for common in commons)
    assert held / tries > 0.95


def test_intervals_hold_where_cards_differ() -> None:
    """Drawn 4000 times: what a card adds is as large as what a session does."""
    draw, held_by, naive, tries = random.Random(1), 0, 0, 4000
    for _ in range(tries):
        logs: list[float] = []
        cards: list[str] = []
        for name in ("a", "b", "c", "d"):
            of_card = draw.gauss(0, 1)
            logs += [of_card + draw.gauss(0, 1) for _ in range(3)]
            cards += [name] * 3
        held_by += over_sessions(logs, cards=cards).holds(1.0)
        naive += over_sessions(logs).holds(1.0)
    assert held_by / tries == pytest.approx(0.95, abs=0.015)
    assert naive / tries < 0.85  # what a card has in common is not drawn three times


def test_a_ratio_of_a_timing_on_two_cards_is_of_both() -> None:
    timings = [timing_of(1, 0.01, seed, gpu_uuid=f"GPU-{seed % 2}") for seed in range(6)]
    widths = []
    for several in (timings, [structs.replace(t, provenance=ORIGIN) for t in timings]):
        times = session_times(combined(several, set(), 6).together)
        before, after = (next(t for key, t in times.items() if key[0] == n) for n in NAMES)
        ratio = ratio_of(before, after)
        assert ratio is not None
        assert ratio.sessions == 6
        widths.append(math.log((ratio.high or 0) / (ratio.low or 1)))
    assert widths[0] != widths[1]
    logs = [over_sessions([_log(t) for t in timings], cards=[str(i % 2) for i in range(6)])]
    assert widths[0] == pytest.approx(2 * (logs[0].half_width or 0))


def _log(timing: Timing) -> float:
    times = {one.variant: one.microseconds[0] for one in timing.sessions[0].series}
    return math.log(times["baseline"] / times["fix"])


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        (1, ""),
        (2, "2 equal cards: an interval holds for each of the two and says nothing of other cards"),
        (3, "3 equal cards: intervals are over the cards, and only more cards narrow them"),
        (6, "6 equal cards: intervals are over the cards"),
    ],
)
def test_that_a_timing_ran_on_several_cards_is_said(cards: int, said: str) -> None:
    timings = [timing_of(1, 0.01, seed, gpu_uuid=f"GPU-{seed % cards}") for seed in range(6)]
    together = TimedTogether("t", frozenset(NAMES), combined(timings, set(), 6))
    told = list(warnings_of({"large": together}, "sdpa"))
    assert len(told) == (cards > 1)
    assert all(one.startswith(f"6 sessions ran on {said}") for one in told)


# ---- cards ---------------------------------------------------------------------------------------
def test_most_cards_are_of_the_largest_kind() -> None:
    found = [card(0), card(1, driver="590"), card(2)]
    assert largest_kind(found) == found[0].kind


def test_a_card_is_held_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_PLACE", str(tmp_path / "own"))
    both: Sequence[Card] = [card(0), card(1)]
    with held(both) as one, held(both) as other:
        assert one is not None
        assert other is not None
        assert {one.card, other.card} == set(both)
        patience = iter([True, False])
        with held(both, lambda: next(patience)) as third:
            assert third is None
    with held(both) as again:
        assert again is not None
        assert again.card == both[0]


# ---- the spool -----------------------------------------------------------------------------------
def test_a_spool_forgets_what_is_torn_or_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".blocks"
    one, two = (Left(block=name, gpu="", files={}, sha256={}) for name in ("one", "two"))
    assert Spool(folder).get("one") is None
    spool = Spool(folder)
    spool.put([one])
    first = spool.log.stat().st_size
    spool.put([two])
    whole = spool.log.read_bytes()
    for end in range(len(whole) + 1):
        spool.log.write_bytes(whole[:end])
        found = Spool(folder)
        assert found.get("one") == (one if end >= first else None)
        assert found.get("two") == (two if end == len(whole) else None)
    for at in range(first):  # a bit of it is another
        spool.log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert Spool(folder).get("one") is None
    spool.log.write_bytes(whole + bytes(100))
    later = Spool(folder)
    later.put([structs.replace(one, gpu="later")])
    found = Spool(folder)
    assert found.get("one") == structs.replace(one, gpu="later")
    assert found.get("two") == two
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 90_000)
    assert Spool(folder).get("two") is None
    found.clear()
    assert not folder.exists()


def test_a_plan_is_taken_apart_as_when_it_was_begun(root: Path) -> None:
    one = errand(root)
    folder = one.folder.root / ".blocks"
    assert [Spool(folder).cards(one.block([]), now) for now in (4, 2, 8)] == [4, 4, 4]
    assert Spool(folder).cards(one.block(["other"]), 2) == 2


def test_a_question_travels_as_data(root: Path) -> None:
    one = replace(errand(root), deciding=Deciding(pairs=(("baseline", "fix"),), refusing=True))
    block = blocks.decode(blocks.encode(one.block([])))
    assert block.deciding == one.deciding
    open_ = block.deciding.undecided(one.study.ladder, block.config)
    assert open_(timing_of(5, 0.6)) == ("baseline", "fix")  # too wide to say
    assert open_(timing_of(5, 0.0001)) == ()
    assert block.deciding.refused(block.config) is not None
    assert Deciding().refused(block.config) is None


# ---- the workers of this machine -----------------------------------------------------------------
def test_a_worker_that_ends_is_started_again_and_later_each_time(tmp_path: Path) -> None:
    began = tmp_path / "began"
    text = f"open({str(began)!r}, 'a').write('x')"
    kept = Kept([sys.executable, "-I", "-S", "-c", text], {})
    for wait in (0.4, 0.8, 1.6):
        while kept.process is None:
            kept.look()
            time.sleep(0.01)
        kept.process.wait()
        before = time.monotonic()
        kept.look()
        assert before + wait <= kept.after <= time.monotonic() + wait
    kept.end()
    assert began.read_text() == "xxx"


def test_a_million_points_are_added_up() -> None:
    ten = million.column(10, 0.02)
    assert ten["blocks"] == "100,000"
    assert ten["minutes of the client"] == "33"
    seconds = 11 + 12 * 0.4 + 5 * (0.26 + 48 * 2.39 / 228)
    assert ten["seconds of a block"] == f"{seconds:.1f}"
    assert ten["minutes on 1000 cards"] == f"{100 * seconds / 60:.0f}"
