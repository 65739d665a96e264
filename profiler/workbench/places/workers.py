"""The workers of a place: what they have, which are equal, and what they are given to do."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import workbench
from workbench.errors import EnvironmentLacks
from workbench.places import blocks
from workbench.places.blocks import Answer, Failed
from workbench.places.execute import carry_out
from workbench.run import machine
from workbench.run.cards import Card, cards, largest_kind
from workbench.run.gpu import Gpu

RESOURCES = {"GPU": 1}  # of a worker, and what a block takes of it
WAIT_SECONDS = 600.0  # for the first worker of a place
END_SECONDS = 20.0  # for what was cancelled to end
PREFIX = "block-"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself; ``code`` is of the workbench that it runs."""

    version: str
    code: str
    missing: tuple[str, ...]
    ncu: str
    cards: tuple[Card, ...] = ()
    error: str = ""


@cache
def own_code() -> str:
    """sha256 over this package's sources: both ends must measure and read in the same way."""
    digest, top = hashlib.sha256(), Path(workbench.__file__).parent
    for path in sorted(top.rglob("*.py")):
        if "_content" not in path.relative_to(top).parts:
            digest.update(path.relative_to(top).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def about() -> bytes:
    """Of this process."""
    tool = machine.find_ncu()
    return msgspec.json.encode(
        About(
            version=workbench.__version__,
            code=own_code(),
            missing=tuple(machine.missing_packages()),
            ncu=(machine.ncu_version(tool) or "") if tool else "",
            cards=tuple(cards()),
        )
    )


def task(data: bytes, blobs: dict[str, bytes], kind: tuple[str, ...], topic: str) -> bytes:
    """What a Dask worker is asked to do: see ``execute.carry_out``."""
    return carried_by(carry_out, data, blobs, kind, topic)


def together(
    data: Sequence[bytes],
    blobs: Sequence[dict[str, bytes]],
    task: Callable[..., bytes],
    kind: tuple[str, ...],
    topic: str,
) -> list[bytes]:
    """Blocks one after the other, by ``task`` or what stands in for it; one that breaks costs only
    itself.
    """
    return [_alone(task, *each, kind, topic) for each in zip(data, blobs, strict=True)]


def _alone(task: Callable[..., bytes], data: bytes, *given: object) -> bytes:
    try:
        return task(data, *given)
    except Exception as error:
        from distributed import get_worker

        failed = Failed(
            block=blocks.id_of(data),
            where=get_worker().address,
            kind=type(error).__name__,
            message=short(error),
            again=True,
        )
        return blocks.encode_answer(failed)


def short(error: BaseException | None) -> str:
    """Of what Dask or a worker raises, in a line."""
    if type(error).__name__ == "KilledWorker":
        return "every worker that had it died"
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{type(error).__name__}: {text}"


def carried_by(
    how: Callable[..., Answer],
    data: bytes,
    blobs: dict[str, bytes],
    kind: tuple[str, ...],
    topic: str,
) -> bytes:
    """``how`` is ``execute.carry_out``, or what stands in for it."""
    global _running
    here = Here(topic, blocks.id_of(data))
    _running += 1
    try:
        found = how(data, blobs, kind, here.tell, here.is_wanted)
    finally:
        _running -= 1
    return blocks.encode_answer(msgspec.structs.replace(found, where=here.worker.address))


def running() -> int:
    """How many blocks this process carries out now."""
    return _running


_running = 0


class Here:
    """The Dask worker around a task: its name, who listens, and whether anybody wants the task."""

    def __init__(self, topic: str, block: str) -> None:
        from distributed import get_worker

        self.worker: Any = get_worker()
        self.key = self.worker.get_current_task()
        self.topic, self.block = topic, block
        self.name = str(self.worker.name)

    def tell(self, event: bytes) -> None:
        told = {"block": self.block, "where": self.name, "event": event.decode()}
        self.worker.log_event(self.topic, told)

    def is_wanted(self) -> bool:
        """False once the client has cancelled it, or is gone."""
        state = self.worker.state.tasks.get(self.key)
        return state is not None and state.state in ("executing", "long-running", "resumed")


class Crew:
    """The equal workers of a place, behind a Dask client; ``gpu`` is what all of them have."""

    def __init__(self, place: str, client: Any, kind: tuple[str, ...], gpu: Gpu | None) -> None:
        self.place, self.client, self.kind = place, client, kind
        self._gpu = gpu
        self.out: dict[str, str] = {}

    @property
    def gpu(self) -> Gpu:
        assert self._gpu is not None
        return self._gpu

    @property
    def is_connected(self) -> bool:
        return bool(self.client.status == "running" and self.client.scheduler is not None)

    def addresses(self) -> list[str]:
        """Of the workers that are not left out."""
        every: Mapping[str, Any] = self.client.scheduler_info()["workers"]
        return [address for address in every if address not in self.out]

    def number(self) -> int:
        """How many workers there are now."""
        return len(self.addresses())

    def nobody(self) -> EnvironmentLacks:
        """For whoever has waited for a worker long enough."""
        why = f": {'; '.join(sorted(set(self.out.values())))}" if self.out else ""
        return EnvironmentLacks(
            f"no worker of '{self.place}' is left{why}",
            hint=f"`workbench doctor --on {self.place}` looks at each of them; what was finished "
            "is kept",
        )

    def exclude(self, address: str, why: str, note: Callable[[str], None]) -> None:
        """Its card is not equal to the others', so that it gets no block any more."""
        if address not in self.out:
            self.out[address] = why
            note(f"a worker of '{self.place}' is left out: {why}")

    def submit(
        self,
        function: Callable[..., Any],
        *columns: Sequence[Any],
        keys: Sequence[str],
        avoid: str,
        **same: Any,
    ) -> list[Any]:
        """Futures, one a key: ``columns`` are what the calls are given one by one, ``same`` what
        all of them are. ``avoid`` is where it was tried before; there again only where all else is.

        Where all those die to whom it may go, whoever comes in their place has it: Dask would wait
        for the dead. One whose card is not equal answers so, and is asked again later.
        """
        where = None
        if self.out or avoid:
            known = self.addresses()
            where = [address for address in known if address != avoid] or known or None
        futures: list[Any] = self.client.map(
            function,
            *columns,
            key=list(keys),
            pure=False,
            resources=RESOURCES,
            workers=where,
            allow_other_workers=where is not None,
            **same,
        )
        return futures

    def package_version(self, name: str) -> str | None:
        """Of an installed distribution there."""
        told = self.client.run(machine.package_version, name, on_error="ignore")
        return next((version for version in told.values() if version), None)

    def cancel(self, futures: list[Any]) -> None:
        """Return when no worker carries any of them out any more, or after a while."""
        with suppress(Exception):  # the scheduler may be gone, and its workers with it
            self.client.cancel(futures, force=True)
            end = time.monotonic() + END_SECONDS
            while time.monotonic() < end and any(
                name.startswith(PREFIX)
                for names in self.client.processing().values()
                for name in map(str, names)
            ):
                time.sleep(0.2)
            while time.monotonic() < end and any(
                self.client.run(running, on_error="ignore").values()
            ):
                time.sleep(0.2)


def meet(place: str, client: Any, note: Callable[[str], None]) -> Crew:
    """The largest group of equal cards among a place's workers. Raises EnvironmentLacks where none
    can measure.
    """
    told = wait_for_workers(place, client, note)
    out = {address: why for address, each in told.items() if (why := what_is_wrong(each))}
    able = {address: each.cards[0] for address, each in told.items() if address not in out}
    if not able:
        raise EnvironmentLacks(
            f"no worker of '{place}' can measure: {'; '.join(sorted(set(out.values())))}",
            hint=f"`workbench doctor --on {place}` looks at each of them; "
            f"`workbench setup --on {place}` brings a host to readiness",
        )
    kind = largest_kind(able.values())
    like = next(card for card in able.values() if card.kind == kind)
    crew = Crew(place, client, kind, like)
    for address, one in able.items():
        if one.kind != kind:
            out[address] = f"{one.name} is not equal to the others: {one.differs(like)}"
    for address, why in out.items():
        crew.exclude(address, why, note)
    return crew


def wait_for_workers(place: str, client: Any, note: Callable[[str], None]) -> dict[str, About]:
    """What each says of itself, as soon as there is one. Raises EnvironmentLacks after a while."""
    end, told_waiting = time.monotonic() + WAIT_SECONDS, False
    while not client.scheduler_info()["workers"]:
        if not told_waiting:
            note(f"waiting for the first worker of '{place}'")
            told_waiting = True
        if time.monotonic() > end:
            raise EnvironmentLacks(
                f"no worker of '{place}' came in {WAIT_SECONDS:g} s",
                hint="its queue may be full; the same command waits again",
            )
        time.sleep(0.2)
    without = [
        address
        for address, known in client.scheduler_info()["workers"].items()
        if "GPU" not in known["resources"]
    ]
    told = client.run(about, on_error="return")
    found = {}
    for address, each in told.items():
        if address in without:
            found[address] = _silent("it was started without --resources GPU=1")
        elif isinstance(each, bytes):
            found[address] = msgspec.json.decode(each, type=About)
        else:
            found[address] = _silent(f"it cannot say what it has: {type(each).__name__}")
    return found


def _silent(why: str) -> About:
    return About(version="", code="", missing=(), ncu="", error=why)


def what_is_wrong(each: About) -> str:
    """Why a worker cannot measure; "" where it can."""
    if each.error:
        return each.error
    if each.code != own_code():
        return f"its workbench is another one ({each.version}) than here"
    if not each.cards:
        return "it has no GPU"
    if each.missing:
        return f"Python packages are missing: {', '.join(each.missing)}"
    return "" if each.ncu else "it has no ncu"
