"""What the parent and its worker say to each other, and the worker's own loop, without a GPU."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import inspect, structs

from answers import Patch
from made_records import sessions_job
from workbench.errors import ToolFailed
from workbench.evidence.records import Environment
from workbench.run import protocol
from workbench.run.process import Tail
from workbench.run.protocol import (
    EVENTS,
    Checked,
    DeviceFound,
    Done,
    ErrorText,
    Event,
    Failed,
    Job,
    Start,
    VariantsJob,
    decode,
    encode,
)
from workbench.run.worker import checking, correctness, device, job_worker
from workbench.run.worker.timing import graphs, neighbours
from workbench.words import CheckResult, Phase
from workspaces import make


def made(kind: Any) -> Any:
    """A value of a type, with something in every field."""
    match kind:
        case inspect.StructType():
            return kind.cls(**{field.name: made(field.type) for field in kind.fields})
        case inspect.UnionType():
            return made(kind.types[0])
        case inspect.DictType():
            return {made(kind.key_type): made(kind.value_type)}
        case inspect.VarTupleType():
            return (made(kind.item_type),)
        case inspect.TupleType():
            return tuple(map(made, kind.item_types))
        case inspect.EnumType():
            return list(kind.cls)[-1]
    plain: dict[Any, Any] = {
        inspect.StrType: "μ[warps=12]",
        inspect.BoolType: True,
        inspect.FloatType: 0.25,
    }
    return {**plain, inspect.IntType: 7}[type(kind)]


@pytest.mark.parametrize("kind", Event.__args__)
def test_an_event_arrives_as_it_was_sent(kind: type) -> None:
    event = made(inspect.type_info(kind))
    line = encode(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line.decode()) == event


def checked(**own: Any) -> Checked:
    whole: dict[str, Any] = {"status": CheckResult.WRONG, "max_abs": 0.5, "relative": 0.5, **own}
    return Checked(variant="a", shape="large", why="", **whole)


def test_text_and_numbers_of_other_libraries_travel_too() -> None:
    """torch's version is a string of its own kind; a file's name may be no Unicode."""

    class Version(str):
        pass

    found = decode(encode(DeviceFound(environment=Environment(torch=Version("2.13")))).decode())
    assert found == DeviceFound(environment=Environment(torch="2.13"))
    error = ErrorText(kind="OSError", message="\udcff.cu")
    spoilt = Failed(variant="a", phase=Phase.CHECK, error=error)
    assert decode(encode(spoilt).decode()).error.message == "?.cu"  # type: ignore[union-attr]
    told = decode(encode(checked(max_abs=np.float64(0.25))).decode())
    assert told == checked(max_abs=0.25)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_what_is_no_number_is_null_in_an_event(value: float) -> None:
    line = encode(checked(max_abs=value)).decode()
    assert '"max_abs": null' in line
    assert decode(line) == checked(max_abs=None)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "truncated"),
        ('{"event": "timed", "nodes": {}}', "missing required field `session`"),
        ('{"event": "passed"}', "'passed'"),
        ('{"event": "hello", "pid": "7"}', "`$.pid`"),
        ("no json", "malformed"),
        ('{"later": ' + "[" * 100_000, "recursion"),
    ],
    ids=["empty", "missing", "unknown", "mistyped", "no JSON", "nested"],
)
def test_a_damaged_line_is_no_traceback(line: str, told: str) -> None:
    with pytest.raises(ToolFailed, match="the worker wrote what is no event") as caught:
        decode(line)
    assert told in caught.value.message
    assert caught.value.hint


GREEN = Start(variant="grün", phase=Phase.TIME)
HALF_A_LETTER = encode(GREEN).index(b"\xc3") + 1


@pytest.mark.parametrize(("event", "half"), [(Done(), 5), (GREEN, HALF_A_LETTER)])
def test_half_a_line_or_letter_waits_for_the_rest(event: Event, half: int, tmp_path: Path) -> None:
    whole, path = encode(event), tmp_path / EVENTS
    path.write_bytes(whole + whole[:half])
    tail = Tail(path)
    assert [decode(line) for line in tail.lines()] == [event]
    with path.open("ab") as file:
        file.write(whole[half:])
    assert [decode(line) for line in tail.lines()] == [event]


@pytest.mark.parametrize(
    "job",
    [
        VariantsJob(
            study="scale",
            variants=("fix2[warps=12]",),
            params={"fix2[warps=12]": {"warps": 12, "fast": True, "rate": 1.0, "label": "a"}},
            phases=(Phase.BUILD, Phase.CHECK),
            shape="large",
            reference="torch",
        ),
        sessions_job(sources={"baseline": ("baseline.py", "baseline.cu")}, references=("torch",)),
    ],
    ids=["variants", "sessions"],
)
def test_a_job_is_read_as_it_was_written(job: Job, tmp_path: Path) -> None:
    protocol.write_job(tmp_path / "job.json", job)
    found = protocol.read_job(tmp_path / "job.json")
    assert found == job
    if isinstance(found, VariantsJob):
        values = found.params["fix2[warps=12]"]
        assert [type(value) for value in values.values()] == [int, bool, float, str]


# ---- the worker's loop -----------------------------------------------------------------------
class Neighbours:
    """Stands in for the kernels that write a variant's inputs."""

    written = 0

    def __init__(self, card: Any, study: Any, shape: Any) -> None:
        self.gpu = card

    def inputs(self) -> dict[str, Any]:
        return {"x": 3}

    def input_tables(self, inputs: dict[str, Any]) -> None:
        assert inputs == {"x": 3}

    def write(self, table: None, call: int) -> None:
        Neighbours.written += 1


Worker = Callable[..., list[Event]]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: Patch) -> Worker:
    """Runs a job in this process: no GPU is asked for anything, all else is the worker's own."""
    make(tmp_path, {}, dict.fromkeys(("one", "two"), "def run(x):\n    return 2 * x\n"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "environment", lambda: Environment(gpu="NVIDIA H200"))
    monkeypatch.setattr(device, "context_lost", lambda: False)
    monkeypatch.setattr(
        neighbours, "TimedGpu", lambda: SimpleNamespace(advance=lambda: None, side=None)
    )
    monkeypatch.setattr(graphs, "warm_up", lambda call, side: call())
    monkeypatch.setattr(neighbours, "Neighbours", Neighbours)
    for name in ("synchronize", "nvtx.range_push", "nvtx.range_pop"):
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *given: None)

    def once(
        study: Any, calls: Any, shape: Any, kind: str, peer: Any, alone: bool
    ) -> correctness.ComparedCall:
        assert calls(kind, 1, {}, alone, print).mark == 6
        return correctness.ComparedCall(0.25, 1e-3, "", varies=bool(kind), times_reference=2.0)

    def make_calls(study: Any, run: Any, *given: Any) -> correctness.CallsMade:
        return correctness.CallsMade("", run(3))

    monkeypatch.setattr(correctness, "make_calls", make_calls)
    monkeypatch.setattr(checking, "give_back_memory", lambda: None)
    monkeypatch.setattr(correctness, "check_once", once)

    def run(*phases: Phase, variants: tuple[str, ...] = ("one", "two"), **more: Any) -> list[Event]:
        job = VariantsJob(
            study="scale",
            variants=variants,
            params={},
            phases=phases,
            sources=dict.fromkeys(variants, ("one.py", "two.py")),
            arch="sm_90a",
            shape="large",
            check_shapes=("large", "odd"),
            ranges={name: f"workbench:scale/{name}/large" for name in variants},
        )
        protocol.write_job(tmp_path / protocol.JOB, structs.replace(job, **more))
        monkeypatch.setattr(sys, "argv", ["worker", protocol.JOB])
        job_worker.main()
        lines = (tmp_path / EVENTS).read_text().splitlines()
        return [decode(line) for line in lines]

    return run


def kinds(events: list[Event]) -> Iterator[str]:
    for event in events:
        name = getattr(event, "variant", "")
        yield f"{type(event).__name__} {name}".strip()


def test_a_worker_builds_and_checks(worker: Worker) -> None:
    events = worker(Phase.BUILD, Phase.CHECK)
    assert list(kinds(events)) == [
        *("Hello", "Hello", "DeviceFound", "Start one", "Built one"),
        *("Start one", "Checked one", "Checked one"),
        *("Start two", "Built two", "Start two", "Checked two", "Checked two"),
        "Done",
    ]
    (checked, *_) = [event for event in events if isinstance(event, Checked)]
    assert (checked.status, checked.max_abs, checked.relative) == (CheckResult.CORRECT, 0.25, 1e-3)
    assert (checked.times_reference, checked.kind, checked.varies) == (2.0, "", False)


def test_a_worker_knows_shapes_that_the_study_does_not_list(worker: Worker) -> None:
    more = {"shape": "n8", "check_shapes": ("n8", "odd"), "derived": {"n8": {"n": 8}}}
    events = worker(Phase.CHECK, **more)
    checked = [event.shape for event in events if isinstance(event, Checked)]
    assert checked == ["n8", "odd", "n8", "odd"]


def test_a_worker_captures(worker: Worker, monkeypatch: Patch) -> None:
    """What goes backward too, on the thread that has the range."""
    before, own = Neighbours.written, list[bool]()

    def pushed(name: str) -> None:
        own.append(not torch._C._is_multithreading_enabled())

    monkeypatch.setattr("torch.cuda.nvtx.range_push", pushed)
    told = list(kinds(worker(Phase.CAPTURE)))
    assert own == [True, True]
    assert torch._C._is_multithreading_enabled()
    assert Neighbours.written == before + 2 * 2
    assert told == [
        *("Hello", "DeviceFound", "Start one", "Start two"),
        *("Start one", "Captured one", "Start two", "Captured two", "Done"),
    ]


def test_who_fails_is_out_and_the_others_go_on(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "kernels" / "scale" / "one.py").write_text("def run(x):\n    raise ValueError\n")
    events = worker(Phase.BUILD, Phase.CHECK)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert (failed.variant, failed.phase) == ("one", Phase.CHECK)
    assert failed.error.message == "ValueError (one.py:2)"
    assert [event.variant for event in events if isinstance(event, Checked)] == ["two", "two"]
    assert events[-1] == Done()


def test_a_worker_without_a_gpu_says_why(
    worker: Worker, monkeypatch: Patch, tmp_path: Path
) -> None:
    def none() -> Environment:
        raise RuntimeError("no driver\nat all")

    monkeypatch.setattr("workbench.run.worker.device.environment", none)
    pid = os.fork()  # how its own fork ends is how it ends
    if pid == 0:
        worker(Phase.CHECK)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    last = json.loads((tmp_path / EVENTS).read_text().splitlines()[-1])
    assert last["event"] == "broken"
    assert last["error"]["message"] == "RuntimeError: no driver"
