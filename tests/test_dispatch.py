"""Blocks over Dask workers that die, lie, hang or vanish: every block exactly once, or its name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

pytest.importorskip("distributed")

from benchmarks import blocks as bench
from benchmarks import blockwork

from onplaces import card
from workbench.errors import EnvironmentLacks
from workbench.evidence import journal
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Environment, Series, Session
from workbench.places import blocks, workers
from workbench.places.blocks import Block, Failed, Left
from workbench.places.dispatch import Dispatch
from workbench.places.underway import State, Watching
from workbench.places.workers import About, Crew, what_is_wrong
from workbench.run.protocol import Surroundings, Timed, encode
from workbench.words import Regime

ROOT = Path(__file__).parents[1]
MODULE = "def run(x):\n    return x\n"


# ---- what stands in for a worker's task ----------------------------------------------------------
def refusing(data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
    """Every third shape fails whatever is tried."""
    if blocks.decode(data).derived and "n3" in blocks.decode(data).derived:
        name = blocks.id_of(data)
        failed = Failed(block=name, kind="ToolFailed", message="no luck", again=True)
        return blocks.encode_answer(failed)
    return blockwork.task(data, blobs, kind, topic)


def lying(data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
    """The first answer for a shape is of other bytes than it says."""
    found = blocks.decode_answer(blockwork.task(data, blobs, kind, topic))
    told = f"lied-{topic}-{blocks.decode(data).shape}"
    mark = Path(os.environ[blockwork.RAN]).with_name(told)
    if isinstance(found, Left) and not mark.exists():
        mark.touch()
        name = next(iter(found.files))
        found = structs.replace(found, files={**found.files, name: b"{}"})
    return blocks.encode_answer(found)


def tell_of_a_session(data: bytes, topic: str) -> None:
    """As a real block does."""
    from distributed import get_worker

    series = Series(
        variant="fix1", instance=0, regime=Regime.CHAINED, calls=1, microseconds=(9.0,),
        around=(4.0,),
    )  # fmt: skip
    alone, together = (
        Session(number=0, instances=1, series=(series,), alone=alone) for alone in (True, False)
    )
    for event in (
        Surroundings(environment=Environment(gpu="none", gpu_uuid="GPU-1")),
        Timed(session=alone, nodes={}, stride=1),
        Timed(session=together, nodes={}, stride=1),
    ):
        told = {"block": blocks.id_of(data), "where": "1", "event": encode(event).decode()}
        get_worker().log_event(topic, told)
    time.sleep(0.5)


def telling_and_refusing(data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
    tell_of_a_session(data, topic)
    return refusing(data, blobs, kind, topic)


def telling_and_lying(data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
    tell_of_a_session(data, topic)
    return lying(data, blobs, kind, topic)


def unequal(data: bytes, blobs: Any, kind: Any, topic: str) -> bytes:
    """One of the workers has another card."""
    from distributed import get_worker

    worker = get_worker()
    if worker.name == 0:
        name, why = blocks.id_of(data), "it has an abacus"
        failed = Failed(block=name, kind="UnequalCard", message=why, again=True, unequal=True,
                        where=worker.address)  # fmt: skip
        return blocks.encode_answer(failed)
    return blockwork.task(data, blobs, kind, topic)


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Crew, Path]]:
    top = tmp_path_factory.mktemp("crew")
    with bench.crew(2, top / "own", top / "ran") as found:
        yield found, top / "ran"


def dispatched(
    crew: Crew, root: Path, number: int, task: Callable[..., bytes] = blockwork.task
) -> tuple[EvidenceFolder, list[dict[str, str]], list[str]]:
    """The evidence, what failed by errand, and the notes."""
    if not root.exists():
        bench.workspace(root)
    folder = EvidenceFolder(root / "ablations" / "nothing" / "evidence" / "none")
    notes: list[str] = []
    watching = Watching(note=notes.append)
    outcomes = Dispatch(crew, bench.errands(root, folder, number), ["x"], watching, task).run()
    return folder, [one.measured.failures for one in outcomes], notes


def test_every_block_is_merged_exactly_once_though_workers_are_killed() -> None:
    found = bench.measure(200, kills=2)
    assert found.killed >= 1
    assert found.exactly_once
    assert found.merged == 200 <= found.executed


def test_sources_are_sent_to_who_lacks_them(
    crew: tuple[Crew, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    submit = crew[0].submit

    def counted(function: Any, data: Any, blobs: Any, **how: Any) -> Any:
        sent.extend(len(of_block) for of_task in blobs for of_block in of_task)
        return submit(function, data, blobs, **how)

    monkeypatch.setattr(crew[0], "submit", counted)
    dispatched(crew[0], tmp_path / "ws", 20)
    sent.clear()
    root = bench.workspace(tmp_path / "other")
    (root / "kernels" / "nothing" / "fix1.py").write_text("def run():\n    return 2\n")
    dispatched(crew[0], root, 20)
    assert 1 <= sum(sent) <= 2  # the file that is new, by the first block of each worker
    assert sum(count > 0 for count in sent) <= 2


def test_a_block_that_fails_three_times_is_named_and_the_others_go_on(
    crew: tuple[Crew, Path], tmp_path: Path
) -> None:
    folder, failures, notes = dispatched(crew[0], tmp_path / "ws", 6, refusing)
    assert [bool(found) for found in failures] == [False, True, False, False, False, False]
    assert failures[1] == dict.fromkeys(bench.VARIANTS, "no luck (3 tries)")
    assert len(journal.load_journal(folder).sessions) == 5
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("task", "whole"),
    [(telling_and_refusing, 2), (telling_and_lying, 3)],
    ids=["refused three times", "not what was measured, once each"],
)
def test_sessions_of_a_block_that_leaves_nothing_are_in_the_journal(
    crew: tuple[Crew, Path], tmp_path: Path, task: Callable[..., bytes], whole: int
) -> None:
    """Or a block could be killed until it gives what is wanted."""
    folder, _, _ = dispatched(crew[0], tmp_path / "ws", 3, task)
    entries = journal.load_journal(folder).sessions
    assert len([entry for entry in entries if not entry.cut_short]) == whole
    lost = [entry for entry in entries if entry.cut_short]
    assert len(lost) == 3, "one a try"
    for entry in lost:
        assert (entry.sessions, entry.medians, entry.gpu_uuid) == (1, {"fix1": 5.0}, "GPU-1")
        assert list(entry.fingerprints.values()) != [""]


def test_what_is_on_record_was_not_cut_short_by_an_interruption(
    crew: tuple[Crew, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the answer of a block and the end of its group."""

    def interrupted(dispatch: Dispatch) -> bool:
        if any(landing.group for landing in dispatch.landings.values()):
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(Dispatch, "settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dispatched(crew[0], tmp_path / "ws", 3, telling_and_refusing)
    folder = EvidenceFolder(tmp_path / "ws" / "ablations" / "nothing" / "evidence" / "none")
    entries = journal.load_journal(folder).sessions
    whole = {entry.shape for entry in entries if not entry.cut_short}
    assert whole
    assert whole.isdisjoint(entry.shape for entry in entries if entry.cut_short)


def test_an_answer_that_is_not_what_was_measured_is_asked_for_again(
    crew: tuple[Crew, Path], tmp_path: Path
) -> None:
    folder, failures, notes = dispatched(crew[0], tmp_path / "ws", 5, lying)
    assert failures == [{}] * 5
    assert len(notes) == 5
    assert "is not what was measured" in notes[0]
    assert bench.merged_once(folder, 5) == (5, True)


def test_a_worker_with_another_card_gets_nothing_more(
    crew: tuple[Crew, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Crew("bench", crew[0].client, crew[0].kind, crew[0].gpu)
    folder, failures, notes = dispatched(alone, tmp_path / "ws", 8, unequal)
    assert failures == [{}] * 8
    assert bench.merged_once(folder, 8) == (8, True)
    assert notes == ["a worker of 'bench' is left out: it has an abacus"]
    alone.out = dict.fromkeys(alone.client.scheduler_info()["workers"], "it has an abacus")
    monkeypatch.setattr("workbench.places.dispatch.OUT_SECONDS", 0.1)
    monkeypatch.setattr("workbench.places.dispatch.LOOK_SECONDS", 0.1)
    with pytest.raises(EnvironmentLacks, match="no worker of 'bench' is left: it has an abacus"):
        dispatched(alone, tmp_path / "other", 1)


def test_the_same_command_goes_on_where_it_was_interrupted(
    crew: tuple[Crew, Path], tmp_path: Path
) -> None:
    root = bench.workspace(tmp_path / "ws")
    folder = EvidenceFolder(root / "ablations" / "nothing" / "evidence" / "none")
    ran = crew[1]
    before = len(ran.read_text().splitlines()) if ran.exists() else 0

    def stop(state: State, block: Block, left: Left) -> None:
        if state.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dispatch(
            crew[0], bench.errands(root, folder, 20), ["x"], Watching(done=stop), blockwork.task
        ).run()
    kept = len(journal.load_journal(folder).sessions)
    assert 7 <= kept < 20  # those that were put on record together
    executed = len(ran.read_text().splitlines()) - before
    lost = journal.load_journal(folder).sessions[0]
    folder.timing(lost.shape, lost.file).unlink()
    time.sleep(1.1)  # timings are called after their second
    dispatched(crew[0], root, 20)
    again = len(ran.read_text().splitlines()) - before - executed
    assert again == 20 - kept + 1  # what was finished is measured by nobody again, but what is gone
    assert all(len(folder.timing_files(f"n{n}")) == 1 for n in range(2, 22))
    assert not (folder.root / ".blocks").exists()


def test_what_is_wrong_with_a_worker_is_said() -> None:
    good = About(version="1", code=workers.own_code(), missing=(), ncu="1", cards=(card(0),))
    assert what_is_wrong(good) == ""
    for change, why in (
        ({"code": "x"}, "another one"),
        ({"cards": ()}, "no GPU"),
        ({"missing": ("torch",)}, "torch"),
        ({"ncu": ""}, "no ncu"),
        ({"error": "it broke"}, "it broke"),
    ):
        assert why in what_is_wrong(structs.replace(good, **change))
