"""The journal: what was recorded when, and what of a step was known before it was predicted."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import structs

from answers import Patch, not_none
from made_evidence import session as timed_session
from made_evidence import snapshot, step
from made_records import made_index
from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.journal import (
    Journal,
    PredictionEntry,
    SessionEntry,
    append,
    known_between,
    known_of,
    load_journal,
)
from workbench.evidence.records import Captures, Environment, GraphNode, Timing, timing_name
from workbench.evidence.store import EvidenceFolder
from workbench.judge.ladder import judge
from workbench.judge.provenance import recordings
from workbench.render.doc import plain
from workbench.render.document.ladder_report import recorded
from workbench.render.document.printed_ladder import answer
from workbench.run import recording
from workbench.run.protocol import TimedSession
from workbench.run.recording import Recorder
from workbench.study.config import Config
from workbench.study.files import write_bytes
from workbench.study.workspace import find_workspace
from workbench.words import HEADLINE, CheckResult, Known, NodeKind
from workspaces import GOOD, make

DATE = "2026-01-02T03:04:05Z"


def entry(file: str = "a.json", shape: str = "large", **medians: float) -> SessionEntry:
    return SessionEntry(
        date=DATE,
        shape=shape,
        file=file,
        sessions=1,
        regime=HEADLINE,
        fingerprints=dict.fromkeys(medians, ""),
        medians=dict(medians),
    )


@pytest.fixture
def folder(tmp_path: Path) -> EvidenceFolder:
    return EvidenceFolder(tmp_path / "evidence" / "gpu")


def test_what_is_appended_is_read_in_its_order(folder: EvidenceFolder) -> None:
    assert load_journal(folder).sessions == ()
    append(folder, entry("a.json", baseline=2.0))
    append(folder, entry("b.json", baseline=1.0))
    assert [found.file for found in load_journal(folder).sessions] == ["a.json", "b.json"]
    for line in folder.journal.read_text().splitlines():
        assert json.loads(line)["schema_version"] == 1


def test_a_torn_last_line_costs_only_itself(folder: EvidenceFolder) -> None:
    append(folder, entry("a.json"))
    append(folder, entry("b.json"))
    whole = folder.journal.read_bytes()
    folder.journal.write_bytes(whole[:-20])
    assert [found.file for found in load_journal(folder).sessions] == ["a.json"]
    append(folder, entry("c.json"))
    journal = load_journal(folder)
    assert [found.file for found in journal.sessions] == ["a.json", "c.json"]
    assert [note.split(" is passed over")[0] for note in journal.notes] == [
        "line 2 of journal.jsonl"
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"{}",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"schema_version": 99, "entry": "session"}',
        b'{"schema_version": 1, "entry": "of a kind to come", "date": ""}',
        b'{"schema_version": 1, "entry": "session", "date": ""}',
    ],
)
def test_a_damaged_line_is_told_and_passed_over(line: bytes, folder: EvidenceFolder) -> None:
    append(folder, entry("a.json"))
    with folder.journal.open("ab") as file:
        file.write(line + b"\n")
    append(folder, entry("b.json"))
    journal = load_journal(folder)
    assert [found.file for found in journal.sessions] == ["a.json", "b.json"]
    assert len(journal.notes) == 1
    assert "line 2 of journal.jsonl is passed over" in journal.notes[0]


def test_a_journal_that_cannot_be_read_is_no_empty_one(folder: EvidenceFolder) -> None:
    folder.journal.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"journal\.jsonl is a folder"):
        load_journal(folder)


def recorder(root: Path, folder: EvidenceFolder, prediction: str = "[0.4, 0.6]") -> Recorder:
    if not root.exists():
        make(root, {"baseline": GOOD, "fix1": GOOD})
    ladder = root / "ablations" / "scale" / "ablation.toml"
    text = ladder.read_text().split("[[step.prediction]]")[0].rstrip()
    told = f'\n\n[[step.prediction]]\nfigure = "time"\nfactor = {prediction}\n'
    ladder.write_text(text + told)
    study = find_workspace(root).study()
    found = Recorder(study, "large", folder, ["baseline", "fix1"])
    found.environment = Environment(gpu="G", gpu_uuid="GPU-1", host="0123456789ab")
    return found


def record_times(writer: Recorder) -> None:
    """Two sessions, in which fix1 is twice as fast."""
    writer.drop_timing()
    for number in range(2):
        found = timed_session(number, {"baseline": 2.0, "fix1": 1.0})
        writer.session(TimedSession(session=found, nodes={}), planned=2)
    writer.end_timing()


def noted(folder: EvidenceFolder) -> list[tuple[str, Known]]:
    return [(found.variant, found.known) for found in load_journal(folder).predictions]


def test_a_prediction_is_noted_once_with_what_was_known_of_its_step(
    tmp_path: Path, folder: EvidenceFolder
) -> None:
    root = tmp_path / "ws"
    recorder(root, folder).predictions()
    recorder(root, folder).predictions()
    assert noted(folder) == [("fix1", Known.NOTHING)]
    record_times(recorder(root, folder))
    recorder(root, folder).predictions()
    assert noted(folder) == [("fix1", Known.NOTHING)]
    recorder(root, folder, "[0.45, 0.55]").predictions()
    assert noted(folder) == [("fix1", Known.NOTHING), ("fix1", Known.TIMED)]


def test_what_was_timed_on_another_gpu_is_known_on_this_one(
    tmp_path: Path, folder: EvidenceFolder
) -> None:
    other = EvidenceFolder(folder.root.parent / "another")
    append(other, entry(baseline=1.0, fix1=2.0))
    recorder(tmp_path / "ws", folder).predictions()
    assert noted(folder) == noted(other) == [("fix1", Known.TIMED)]


def test_evidence_that_cannot_be_read_leaves_open_what_was_known(folder: EvidenceFolder) -> None:
    write_bytes(folder.timings("large") / "a.json.zst", b"no session")
    index = made_index("fix2", "large")
    store.write(folder.captures("large"), Captures(captures={"fix2": index}))
    known = known_of(folder)
    assert known[""] == Known.UNKNOWN
    assert known["fix2"] == Known.CAPTURED


def test_a_superseded_session_leaves_its_medians(tmp_path: Path, folder: EvidenceFolder) -> None:
    writer = recorder(tmp_path / "ws", folder)
    record_times(writer)
    (path,) = folder.timing_files("large")
    path = path.rename(path.with_name("20200101T000000Z.json.zst"))
    line = structs.replace(load_journal(folder).sessions[0], file="20200101T000000Z.json")
    folder.journal.unlink()
    append(folder, line)
    record_times(recorder(tmp_path / "ws", folder))
    assert not path.exists()
    gone, kept = load_journal(folder).sessions
    assert gone.file == "20200101T000000Z.json"
    assert gone.medians == pytest.approx({"baseline": 2.0, "fix1": 1.0}, rel=0.01)
    assert (gone.gpu_uuid, gone.host) == ("GPU-1", "0123456789ab")
    assert kept.fingerprints == gone.fingerprints


def test_what_instances_chose_to_launch_is_on_record(
    tmp_path: Path, folder: EvidenceFolder
) -> None:
    def launched(threads: int) -> tuple[GraphNode, ...]:
        whole = GraphNode(kind=NodeKind.KERNEL, kernel="k", grid=(8, 1, 1), block=(threads, 1, 1))
        return (whole, GraphNode(kind=NodeKind.MEMSET))

    writer = recorder(tmp_path / "ws", folder)
    for number, threads in enumerate((32, 256, 256)):
        nodes = {"baseline": launched(64)[:: 1 - 2 * (number % 2)], "fix1": launched(threads)}
        found = timed_session(number, {"baseline": 2.0, "fix1": 1.0})
        last = writer.session(TimedSession(session=found, nodes=nodes), planned=3)
        assert last.ways == ({"fix1": (launched(256),)} if number else {})
    assert last.nodes["fix1"] == launched(32)
    (path,) = folder.timing_files("large")
    assert store.read_record(path, Timing).ways == {"fix1": (launched(256),)}
    writer.drop_timing()
    again = writer.session(TimedSession(session=found, nodes=nodes), planned=3)
    assert again.ways == {}


def test_what_a_killed_run_left_is_noted_before_it_goes(
    tmp_path: Path, folder: EvidenceFolder
) -> None:
    """It had no time to write its own line: three of five sessions, and then a whole run."""
    root = tmp_path / "ws"
    writer = recorder(root, folder)
    for number in range(3):
        found = timed_session(number, {"baseline": 2.0, "fix1": 0.5})
        writer.session(TimedSession(session=found, nodes={}), planned=5)
    (path,) = folder.timing_files("large")
    path.rename(path.with_name("20200101T000000Z.json.zst"))
    again = recorder(root, folder, "[0.2, 0.3]")
    again.predictions()
    record_times(again)
    killed, kept = sorted(load_journal(folder).sessions, key=lambda entry: entry.file)
    assert (killed.file, killed.sessions) == ("20200101T000000Z.json", 3)
    assert (killed.cut_short, killed.found) == (True, True)
    assert killed.medians["fix1"] == pytest.approx(0.5, rel=0.01)
    assert (kept.cut_short, kept.found) == (False, False)
    assert [timing_name(path.name) for path in folder.timing_files("large")] == [kept.file]
    assert noted(folder) == [("fix1", Known.TIMED)]  # who saw it could predict it


def test_a_prediction_after_a_run_that_was_cut_short_is_not_prior(
    tmp_path: Path, folder: EvidenceFolder
) -> None:
    root = tmp_path / "ws"
    writer = recorder(root, folder)
    found = timed_session(0, {"baseline": 2.0, "fix1": 1.0})
    writer.session(TimedSession(session=found, nodes={}), planned=5)
    writer.drop_timing()
    assert not folder.timing_files("large")
    recorder(root, folder, "[0.45, 0.55]").predictions()
    assert noted(folder) == [("fix1", Known.TIMED)]


TIMES = {"s": {"baseline": 4.0, "fix1": 1.0, "library": 2.0}}
TIMED = snapshot([step("baseline", None), step("fix1", "baseline")], TIMES)


def test_the_report_says_how_often_a_shape_was_timed() -> None:
    told = recorded(judge(TIMED, Config()))
    assert told == ("Runs: 1 timing run at this size, 1 from before the journal.")
    journal = Journal(
        sessions=(
            entry("gone.json", "s", baseline=1.0, fix1=1.0, library=1.5),
            entry("s.json", "s", fix1=1.0, library=2.0),
            entry("elsewhere.json", "another shape", fix1=1.0),
        )
    )
    found = dataclasses.replace(TIMED, journal=journal)
    counted = recordings(found, "s")
    assert (counted.noted, counted.kept, counted.unnoted, counted.total) == (2, 1, 0, 2)
    assert recorded(judge(found, Config())).endswith("the medians of 1 others are kept.")


def test_all_recordings_of_the_same_sources_are_in_what_is_claimed() -> None:
    """Those of other sources, of another shape, and that were cut short are not."""
    alone = not_none(judge(TIMED, Config()).claimed)
    assert alone.ratio == pytest.approx(2.0)
    assert (alone.recordings, alone.later_low) == (1, None)
    told = plain(answer(judge(TIMED, Config())))
    assert "The interval covers this run only." in told
    prints = dict(TIMED.shapes["s"].timings[0].timing.fingerprints)
    other = structs.replace(entry("b.json", "s", fix1=1.0, library=2.1), fingerprints=prints)
    journal = Journal(
        sessions=(
            structs.replace(other, gpu_uuid="another"),
            structs.replace(other, fingerprints={**prints, "fix1": "changed"}),
            structs.replace(other, shape="t"),
            structs.replace(other, cut_short=True),
            structs.replace(other, file="s.json"),
        )
    )
    found = dataclasses.replace(TIMED, journal=journal, between=0.01)
    claimed = not_none(judge(found, Config()).claimed)
    assert claimed.ratio == pytest.approx(4.2**0.5)
    assert (claimed.recordings, claimed.gpus) == (2, 2)
    assert not_none(claimed.later_low) < 2.0 < 2.1 < (claimed.later_high or 0)
    told = plain(answer(judge(found, Config())))
    assert "Expected of another run: 2.05x [1.88, 2.23], by 2 runs on 2 GPUs." in told
    found = dataclasses.replace(found, journal=None, between_of="nvidia-l4")
    told = plain(answer(judge(found, Config())))
    assert "by this run and the spread of others on nvidia-l4." in told


def test_a_gpu_without_recordings_of_its_own_has_the_largest_known_spread() -> None:
    known = tomllib.loads((Path(store.__file__).parent / "between.toml").read_text())
    every = [known_between(model) for model in known]
    assert [model for _, model in every] == list(known)
    assert known_between("nvidia-a-new-one") == max(every)
    assert max(every)[0] > 0


def test_what_was_cut_short_is_counted_and_told() -> None:
    """Who ends a run when its sessions displease, and begins again, has recorded twice."""
    ended = structs.replace(entry("b.json", "s", fix1=1.0, library=1.2), cut_short=True)
    journal = Journal(sessions=(ended, entry("s.json", "s", fix1=1.0, library=2.0)))
    judged = judge(dataclasses.replace(TIMED, journal=journal), Config())
    assert (judged.recordings.total, judged.recordings.cut_short) == (2, 1)
    assert recorded(judged) == ("Runs: 2 timing runs at this size; 1 cut short and not kept.")


def test_an_entry_of_a_prediction_names_its_step() -> None:
    found = PredictionEntry(
        date=DATE, variant="fix1", parent=None, predictions=("0123",), known=Known.NOTHING
    )
    assert store.content(found) == {
        "schema_version": 1,
        "entry": "prediction",
        "date": DATE,
        "variant": "fix1",
        "parent": None,
        "predictions": ("0123",),
        "known": "nothing",
    }


def test_two_timings_of_one_second_are_both_kept(
    folder: EvidenceFolder, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Two commands at once, or a clock that was set back."""
    root = make(tmp_path / "twice", {"baseline": GOOD, "fix1": GOOD})
    study = find_workspace(root).study()
    monkeypatch.setattr(recording, "now", lambda: "2026-01-01T00:00:00Z")
    for name in ("baseline", "fix1"):
        recorder = Recorder(study, "large", folder, [name])
        found = timed_session(1, {name: 5.0})
        recorder.session(TimedSession(session=found, nodes={}), 1)
        recorder.end_timing()
    names = [timing_name(path.name) for path in folder.timing_files("large")]
    assert names == ["20260101T000000Z.json", "20260101T000000Z_2.json"]
    assert [one.file for one in load_journal(folder).sessions] == names


def test_checks_of_two_commands_at_once_are_all_kept(
    folder: EvidenceFolder, tmp_path: Path
) -> None:
    root = make(tmp_path / "twice", {"baseline": GOOD})
    study = find_workspace(root).study()

    def check(shape: str) -> None:
        for _ in range(25):
            recorder = Recorder(study, shape, folder, ["baseline"])
            recorder.check("baseline", shape, status=CheckResult.CORRECT, why="")
            found = store.variant_record(folder, "baseline").checks
            assert shape in found

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(check, shape) for shape in ("large", "odd")]:
            done.result()
    assert set(store.variant_record(folder, "baseline").checks) == {"large", "odd"}
