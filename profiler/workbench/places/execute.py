"""Carries a block out where the card is: ``python -m workbench.places.execute FOLDER GPU PARENT``.

``carry_out`` is what a Dask worker calls. It lays the sources out, takes a card and starts this
module as a process of its own, which measures as any machine does (``run.measure``) and leaves an
evidence folder. That process ends when the worker is gone, and is ended when nobody wants the block
any more or nothing is heard of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from workbench.errors import UsageError, WorkbenchError
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug
from workbench.places import blocks
from workbench.places.blocks import Answer, Block, Failed, Lacking, Left
from workbench.places.carry import Store
from workbench.run.calibrate import calibrate
from workbench.run.cards import (
    Held,
    cards,
    environment_of,
    folder_of,
    held,
    is_there,
    own_folder,
)
from workbench.run.measure import Measurement
from workbench.run.plan import Measured
from workbench.run.process import Tail
from workbench.run.protocol import CeilingsJob, Event, Passes, TrialJob, encode
from workbench.run.recording import act_for
from workbench.run.trial import told_by
from workbench.study.shapes import with_derived
from workbench.study.workspace import find_workspace, including

BLOCK, EVENTS, LEFT, BROKE = "block.json", "events.jsonl", "left", "broke.json"
WORKSPACE, EVIDENCE = "workspace", "evidence"
POLL_SECONDS = 0.1
STOP_SECONDS = 15.0  # for ncu to write its report
CARD_LOST = "the card is gone"
ON_SIGNAL = 130
KEPT_SECONDS = 86400.0
UNWANTED = "nobody wants the block any more"

Tell = Callable[[bytes], None]
Measure = Callable[[Block, Path, EvidenceFolder, Callable[[Event], None]], Measured]


class Broke(msgspec.Struct, frozen=True, kw_only=True):
    """Why the process of a block ended without evidence."""

    kind: str
    message: str
    hint: str = ""
    again: bool = True


def measure(
    block: Block, root: Path, folder: EvidenceFolder, on_event: Callable[[Event], None]
) -> Measured:
    """What this machine does for a block whose sources stand in the workspace ``root``."""
    if isinstance(block.instead, CeilingsJob):
        calibrate(folder, on_event, wanted=block.instead.ceilings)
        return Measured()
    study = find_workspace(root).study(block.study)
    if isinstance(block.instead, TrialJob):
        return Measured(told=told_by(study, block.instead))
    study, _ = including(with_derived(study, block.derived), block.variants)
    config, deciding = block.config, block.deciding
    return Measurement(
        study,
        config,
        folder,
        block.plan,
        on_event,
        deciding.undecided(study.ladder, config),
        deciding.refused(config),
        builds_of(block),
    ).run()


def builds_of(block: Block) -> Path:
    """Shared by the blocks of these sources; those that nobody has used for a day go."""
    digest = hashlib.sha256(json.dumps(block.sources, sort_keys=True).encode()).hexdigest()
    folder = own_folder() / "cubins" / digest[:20]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with suppress(OSError):  # another block was faster
            if other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other)
    return folder


def answer(
    name: str, block: Block, root: Path, gpu: str, on_event: Callable[[Event], None], how: Measure
) -> Left:
    """Carry a block out in this process; ``gpu`` is what its evidence folder is called. That is
    gone with the block: what is kept of it is kept where it is merged.
    """
    began = time.monotonic()
    folder = EvidenceFolder(root / EVIDENCE / gpu)
    folder.root.mkdir(parents=True)
    with store.in_scratch():
        measured = how(block, root / WORKSPACE, folder, on_event)
    if measured.interrupted:
        raise KeyboardInterrupt
    return blocks.left_by(name, gpu, folder.root, measured, time.monotonic() - began)


def carry_out(
    data: bytes,
    blobs: dict[str, bytes],
    kind: tuple[str, ...],
    tell: Tell = lambda event: None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Answer:
    """An encoded block on a card of this machine that is of a ``kind``.

    ``blobs`` are sources by sha256 that this machine may lack. ``tell`` hears the encoded events.
    """
    name = blocks.id_of(data)
    try:
        return _carried(name, data, blobs, kind, tell, is_wanted)
    except WorkbenchError as error:
        return Failed(
            block=name,
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint,
            again=not isinstance(error, UsageError),
        )


def _carried(
    name: str,
    data: bytes,
    blobs: dict[str, bytes],
    kind: tuple[str, ...],
    tell: Tell,
    is_wanted: Callable[[], bool],
) -> Answer:
    block, kept = blocks.decode(data), Store(own_folder() / "sources")
    kept.put(blobs)
    if lacking := kept.lacks(block.sources.values()):
        return Lacking(block=name, sha256=lacking)
    every = cards()
    equal = [card for card in every if card.kind == tuple(kind)]
    if not equal:
        why = f"it has {', '.join(every[0].kind)}" if every else "it has no GPU"
        return Failed(block=name, kind="UnequalCard", message=why, again=True, unequal=True)
    with held(equal, is_wanted) as mine:
        if mine is None:
            return Failed(block=name, kind="Unwanted", message=UNWANTED, again=True)
        with tempfile.TemporaryDirectory(dir=folder_of(mine.card), prefix="block-") as scratch:
            root = Path(scratch)
            kept.lay_out(block.sources, root / WORKSPACE)
            (root / BLOCK).write_bytes(data)
            return _watched(name, block, root, mine, tell, is_wanted)


def _watched(
    name: str, block: Block, root: Path, mine: Held, tell: Tell, is_wanted: Callable[[], bool]
) -> Answer:
    """Start the process, pass on what it tells, and end it where it has to be. It holds the card
    for as long as it lives, whatever becomes of this one.
    """
    card = mine.card
    environment = {**os.environ, **environment_of(card, root.parent)}
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "workbench.places.execute"]
    began = heard = time.monotonic()
    with (root / "log").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(root), gpu_slug(card.name), str(os.getpid())],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            pass_fds=(mine.handle,),
        )
    events, why = Tail(root / EVENTS), ""

    def told() -> bool:
        lines = list(events.lines())
        for line in filter(None, lines):
            tell(line.encode())
        return bool(lines)

    try:
        while process.poll() is None:
            if told():
                heard = time.monotonic()
            if not is_wanted():
                why = UNWANTED
            elif time.monotonic() - heard > block.silence:
                why = f"hangs: nothing came for {block.silence:g} s"
            if why:
                break
            time.sleep(POLL_SECONDS)
    finally:
        stop(process)
    told()  # what it said last
    left = root / LEFT
    if not why and not is_there(card):
        why = f"{CARD_LOST}: {card.name} {card.uuid}"  # what was blamed on variants was its fault
    if why or not left.is_file():
        broke = _broke(root, process.returncode)
        return Failed(
            block=name,
            kind="CardLost" if why.startswith(CARD_LOST) else broke.kind,
            message=why or broke.message,
            hint="" if why else broke.hint,
            again=bool(why) or broke.again,
        )
    found = blocks.decode_answer(left.read_bytes())
    assert isinstance(found, Left)
    return msgspec.structs.replace(found, card=card, seconds=time.monotonic() - began)


def _broke(root: Path, code: int) -> Broke:
    path = root / BROKE
    if path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=Broke)
    tail = (root / "log").read_text(errors="replace").splitlines()[-5:]
    message = "\n".join([f"the block's process stopped: exit {code}", *tail])
    return Broke(kind="ToolFailed", message=message, hint="`workbench doctor` there may say why")


def stop(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that what it started ends first; then for certain."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    end_with_all(process.pid)
    process.wait()


def end_with_all(pid: int) -> None:
    """Kill a process and all that it started, those in sessions of their own among them."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def _end_with(parent: int) -> None:
    """Stop as at Ctrl-C when the worker that started this process is gone."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_SECONDS)
    end_with_all(os.getpid())


def main() -> int:
    root, gpu, parent = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    data = (root / BLOCK).read_bytes()
    block = blocks.decode(data)
    act_for(block.command)
    try:
        with (root / EVENTS).open("ab", buffering=0) as events:

            def on_event(event: Event) -> None:
                events.write(b"\n" if isinstance(event, Passes) else encode(event))

            left = answer(blocks.id_of(data), block, root, gpu, on_event, measure)
        (root / f"{LEFT}.part").write_bytes(blocks.encode_answer(left))
        (root / f"{LEFT}.part").rename(root / LEFT)
    except KeyboardInterrupt:
        return ON_SIGNAL
    except WorkbenchError as error:
        broke = Broke(
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint,
            again=not isinstance(error, UsageError),
        )
        (root / BROKE).write_bytes(msgspec.json.encode(broke))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
