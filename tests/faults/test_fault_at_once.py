"""Two commands at once: each that writes because of what it read waits for the other."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from answers import Capsys, Patch, error_of
from made_evidence import session as timed_session
from workbench.app import report, try_
from workbench.cli.init import add_agents, new_workspace
from workbench.cli.new import new_step
from workbench.errors import UsageError
from workbench.evidence.store import EvidenceFolder
from workbench.run.protocol import TimedSession
from workbench.run.recording import Recorder
from workbench.study import files
from workbench.study.files import Rank, alone, held
from workbench.study.workspace import find_workspace
from workspaces import GOOD, contents, make

Use = tuple[Path, Callable[[], object]]
PREDICTION = """
[[step.prediction]]
figure = "time"
factor = [0.8, 0.9]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: Patch) -> Path:
    made = make(tmp_path / "ws", {"baseline": GOOD, "fix1": GOOD})
    with (made / "ablations/scale/ablation.toml").open("a") as file:
        file.write(PREDICTION)
    monkeypatch.chdir(made)
    return made


def of_new(root: Path) -> Use:
    study = find_workspace(root).study()
    return root / "ablations/scale", lambda: new_step(study, "fix9", "fix1", "x", [], by_name=False)


def of_init(root: Path) -> Use:
    empty = root.with_name("empty")
    return empty, lambda: new_workspace(empty, "cuda")


def of_agents(root: Path) -> Use:
    return root, lambda: add_agents(root)


def of_report(root: Path) -> Use:
    folder = root / "reports/scale"
    return folder, lambda: report.write_files(find_workspace(root), folder, {"a.md": "x"})


def of_keep(root: Path) -> Use:
    """``kept`` asks only for these two of an attempt."""
    tried = SimpleNamespace(folder=root.with_name("tried"), study="scale")
    make(tried.folder, {"baseline": GOOD})
    (into := root.with_name("into")).mkdir()
    return into, lambda: try_.kept(tried, into)  # type: ignore[arg-type]


def recorder_of(root: Path) -> Recorder:
    study = find_workspace(root).study()
    folder = EvidenceFolder(root / "ablations/scale/evidence/h100")
    return Recorder(study, study.default_shape, folder, study.variants)


def of_predictions(root: Path) -> Use:
    recorder = recorder_of(root)
    return recorder.folder.root, recorder.predictions


def of_timing(root: Path) -> Use:
    recorder = recorder_of(root)
    event = TimedSession(session=timed_session(1, {"fix1": 5.0}), nodes={})
    return recorder.folder.root, lambda: recorder.session(event, 1)


def of_dropped(root: Path) -> Use:
    recorder = recorder_of(root)
    event = TimedSession(session=timed_session(1, {"fix1": 5.0}), nodes={})
    recorder.session(event, 1)
    return recorder.folder.root, recorder.drop_timing


@pytest.mark.parametrize(
    "of",
    [*(of_new, of_init, of_agents, of_report, of_keep, of_predictions, of_timing), of_dropped],
    ids=lambda of: of.__name__,
)
def test_a_command_waits_for_another_that_is_writing(of: Callable[[Path], Use], root: Path) -> None:
    folder, use = of(root)
    thread = threading.Thread(target=use)
    with alone(folder):
        before = contents(folder)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert contents(folder) == before
    thread.join(120)
    assert not thread.is_alive()
    assert contents(folder) != before


def test_of_two_that_keep_a_study_at_once_the_second_is_refused(root: Path) -> None:
    into, keep = of_keep(root)
    keep()
    before = (into / "kernels/scale/study.py").stat()
    with pytest.raises(UsageError, match="is there already"):
        keep()
    assert (into / "kernels/scale/study.py").stat() == before


def test_a_study_that_was_half_kept_is_kept_by_the_same_command(
    root: Path, monkeypatch: Patch
) -> None:
    into, keep = of_keep(root)
    rename = Path.rename

    def killed(path: Path, to: Path) -> Path:
        if to == into / "kernels/scale":
            raise KeyboardInterrupt
        return rename(path, to)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            with pytest.raises(KeyboardInterrupt):
                keep()
        assert [path.name for path in into.glob("*/*")] == ["scale"]
    try_.require_none(into, "scale")  # before anything is measured
    keep()
    assert {path.name for path in into.glob("*/scale/*")} == {
        *("study.py", "baseline.py", "baseline.cu", "ablation.toml")
    }
    with pytest.raises(UsageError, match="is there already"):
        try_.require_none(into, "scale")


@pytest.mark.parametrize(
    ("first", "second"),
    [(Rank.FOLDER, Rank.FOLDER), (Rank.FOLDER, Rank.GPU), (Rank.FILE, Rank.FOLDER)],
)
def test_locks_are_taken_in_one_order(first: Rank, second: Rank, tmp_path: Path) -> None:
    """Every lock of every other test is taken through the same function."""
    with (tmp_path / "one").open("w") as one, (tmp_path / "other").open("w") as other:
        with (
            held(one.fileno(), first, tmp_path),
            pytest.raises(AssertionError, match="is locked after"),
            held(other.fileno(), second, tmp_path),
        ):
            pass
        with held(other.fileno(), second, tmp_path):  # the order is that of locks that are held
            pass


def test_no_lock_is_taken_elsewhere() -> None:
    """The text of the bootstrap runs alone, and holds nothing else meanwhile."""
    engine = Path(files.__file__).parents[1]
    takes = {path.name for path in engine.rglob("*.py") if "flock(" in path.read_text()}
    assert takes == {"files.py", "bootstrap.py"}


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        *((n, 0, "this file system has no locks") for n in (errno.ENOLCK, errno.ENOTSUP)),
        (errno.EIO, 3, "no locks"),
    ],
)
def test_a_file_system_without_locks_is_reported(
    number: int, code: int, said: str, root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """A lock that fails for any other reason is an error."""

    def refuse(handle: int, how: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(files, "without_locks", {})
    before = contents(root)
    told = error_of(capsys, "new", "fix9", "--from", "fix1", "--change", "x", code=code)
    assert said in told
    assert (contents(root) == before) == bool(code)
    if not code:
        assert f"{root}/ablations/scale: " in told
        assert "run one command at a time" in told
