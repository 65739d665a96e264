"""How inputs that a call changes, and several outputs, are timed. Without a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from answers import Patch, not_none
from workbench.errors import UsageError, with_hint
from workbench.run.measurement import Measurement, Plan
from workbench.run.protocol import ErrorText, Failed
from workbench.run.worker.correctness import judged
from workbench.run.worker.output import Outputs, expected_of
from workbench.run.worker.timing import neighbours as module
from workbench.run.worker.timing.instances import Instance, SessionSetup
from workbench.run.worker.timing.neighbours import (
    DRAWS,
    InputTables,
    Neighbours,
    signed_sum,
    wrong_sums,
)
from workbench.study.values import Tolerance
from workbench.words import IN_TURN, Phase, Regime

Launch = tuple[str, Any, tuple[Any, ...]]


@pytest.fixture
def launched() -> list[Launch]:
    return []


@pytest.fixture
def around(launched: list[Launch], monkeypatch: Patch) -> Neighbours:
    """Of a study with three inputs, of which a call changes ``b``."""

    def room_for(like: Any, copies: int) -> list[Any]:
        return [like.detach().clone() for _ in range(copies)]

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, where: Any) -> Callable[..., None]:
            return lambda *given: launched.append((self.name, where, given))

    monkeypatch.setattr(module, "room_for", room_for)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    made = object.__new__(Neighbours)
    made.like = {name: torch.randn(64) for name in "abc"} | {"n": 3}
    made.like["a"].requires_grad_(True)
    made.names, made.in_place, made.most_pieces = ["a", "b", "c"], ("b",), 16
    made.whole = False
    made.constant, made.constants = (), [{}]
    made.sources = {name: [torch.randn(64) for _ in range(DRAWS)] for name in "abc"}
    kernels = {name: Kernel(name) for name in ("write_inputs", "read_output")}
    made.gpu = cast(Any, SimpleNamespace(sms=4, state=None, kernels=kernels))
    return made


def test_inputs_that_a_call_changes_are_written_whole(
    around: Neighbours, launched: list[Launch]
) -> None:
    inputs = around.inputs()
    table = around.input_tables(inputs)
    assert table.floats is not None
    assert table.restored is not None
    assert table.floats[:, 0].tolist() == [inputs[name].data_ptr() for name in "ac"]
    assert table.restored[:, 0].tolist() == [inputs["b"].data_ptr()]
    around.write(table, 7)
    assert [given[0] for _, _, given in launched] == [table.floats, table.restored]
    launched.clear()
    around.restore(table, 7)
    assert [given[0] for _, _, given in launched] == [table.restored]


def test_without_any_there_is_one_node_as_before(
    around: Neighbours, launched: list[Launch]
) -> None:
    around.in_place = ()
    table = around.input_tables(around.inputs())
    assert table.restored is None
    around.write(table, 7)
    around.restore(table, 7)
    assert len(launched) == 1


def test_indices_are_those_of_one_draw(around: Neighbours, launched: list[Launch]) -> None:
    """Half of one table and half of another would be none that the study made."""
    around.like["c"] = torch.arange(64)
    around.sources["c"] = [torch.randperm(64) for _ in range(DRAWS)]
    table = around.input_tables(around.inputs())
    assert not_none(table.indices).shape[0] == 1
    around.write(table, 7)
    assert len(launched) == 3
    seen = set()
    for replay in range(40):
        written = around.written(replay, 5)["c"]
        assert any(torch.equal(written, draw) for draw in around.sources["c"])
        seen.add(tuple(written.tolist()))
    assert len(seen) == DRAWS


def test_what_is_changed_in_place_is_on_the_gpu(around: Neighbours) -> None:
    around.in_place = ("n",)
    with pytest.raises(UsageError, match="in_place names 'n', which is no tensor on the GPU"):
        around._require_writable()


def test_a_call_without_tensors_can_be_timed(around: Neighbours, launched: list[Launch]) -> None:
    """Of numbers alone. Its results prove nothing: the referee does not take it."""
    around.like, around.names, around.in_place = {"n": 3}, [], ()
    around._require_writable()
    around.write(around.input_tables(around.inputs()), 7)
    assert (launched, around.written(3, 5)) == ([], {"n": 3})


def test_every_input_is_written_in_full(around: Neighbours, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 5)
    first, second = around.written(3, 5), around.written(4, 5)
    for name in "ac":  # at some pieces two calls may have the same draw and factor
        assert int((first[name] != second[name]).view(-1, 4).any(1).sum()) >= 12
    draw = module.secret(3, 5, module.DRAW) % DRAWS
    pieces = module.pieces_in_memory(around.sources["c"][draw])
    by = module.factors(module.secret(3, 5, 1), torch.arange(16))
    wanted = module.scaled(pieces, torch.float32, by)
    assert torch.equal(module.pieces_in_memory(first["c"]), wanted)


def test_structured_inputs_are_scaled_as_a_whole(around: Neighbours) -> None:
    """A factor for each piece would leave no positive definite matrix."""
    around.whole = True
    table = around.input_tables(around.inputs())
    assert not_none(table.floats)[:, 4].tolist() == [3 | module.WHOLE] * 2
    draw = module.secret(3, 5, module.DRAW) % DRAWS
    ratio = around.written(3, 5)["c"] / around.sources["c"][draw]
    assert 0.75 <= float(ratio.min()) <= 1
    assert float(ratio.max()) == pytest.approx(float(ratio.min()))


def test_inputs_have_the_gradients_that_the_study_gives_them(around: Neighbours) -> None:
    given = around.inputs()
    assert [given[name].requires_grad for name in "abc"] == [True, False, False]
    assert given["a"].is_leaf


# ---- an instance -------------------------------------------------------------------------------
class Heard:
    """Stands in for the surroundings: what was queued, in order."""

    in_place = ("x",)
    restored = ("x",)

    def __init__(self) -> None:
        self.events: list[str] = []

    def write(self, table: Any, call: int, calls: int) -> None:
        self.events.append(f"write {call}")

    def restore(self, table: Any, call: int) -> None:
        self.events.append(f"restore {call}")

    def constants_of(self, call: int) -> dict[str, Any]:
        return {}

    def sum_output(self, out: Any, kept: Any, call: int, calls: int, number: int) -> None:
        self.events.append(f"read {int(out[0])} as {int(kept[0])} of {call}")


def instance(heard: Heard) -> Instance:
    made = object.__new__(Instance)
    flush = SimpleNamespace(zero_=lambda: heard.events.append("flush"))

    def around(call: Callable[[], Any]) -> Any:
        heard.events.append("stamps")
        found = call()
        heard.events.append("stamp")
        return found

    card = SimpleNamespace(around=around)
    shared = SimpleNamespace(inputs=heard, flush=flush, gpu=card, with_neighbours=tuple(Regime))
    made.setup = cast(Any, shared)
    made.calls = dict.fromkeys(Regime, 2)
    made.table = InputTables(None, None, None)
    made.kept = {"0": torch.tensor([10]), "x": torch.tensor([11])}
    made.own = {"x": torch.tensor([1])}

    def run(x: Any) -> Any:
        heard.events.append("run")
        return (torch.tensor([0]),)

    made.run = run
    return made


READS = ["read 0 as 10 of 1", "read 1 as 11 of 1"]
IDLE = ["read 10 as 10 of -1", "read 11 as 11 of -1"]


@pytest.mark.parametrize(
    ("regime", "bare", "events"),
    [
        ("chained", False, ["write 1", "stamps", "run", "stamp", *READS]),
        ("chained", True, ["write 1", "stamps", "stamp", *IDLE]),
        ("back to back", False, ["restore 1", "stamps", "run", "stamp"]),
        ("cold", False, ["restore 1", "flush", "stamps", "run", "stamp"]),
    ],
)
def test_the_stamps_are_next_to_the_call(regime: str, bare: bool, events: list[str]) -> None:
    heard = Heard()
    instance(heard).once(Regime(regime), 1, bare)
    assert heard.events == events


def test_a_call_that_restores_nothing_has_nothing_around_it_back_to_back() -> None:
    nothing, inputs = cast(Any, None), cast(Any, SimpleNamespace(in_place=()))
    plain = SessionSetup(nothing, nothing, inputs, 150.0)
    changing = SessionSetup(nothing, nothing, cast(Any, Heard()), 150.0)
    assert plain.with_neighbours == (Regime.CHAINED, Regime.COLD)
    assert changing.with_neighbours == IN_TURN
    heard = Heard()
    one = instance(heard)
    cast(Any, one.setup).with_neighbours = plain.with_neighbours
    one.once(Regime.BACK_TO_BACK, 1)
    assert heard.events == ["restore 1", "run"]


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        ((0, 0), ""),
        ((0, 1), "'lse': max error 1"),
        ((0, math.inf), "'lse': 4 of 4 outputs differ in NaN or inf"),
    ],
)
def test_each_output_of_a_timed_call_is_audited(shift: tuple[int, float], said: str) -> None:
    kept = {"out": torch.ones(4) + shift[0], "lse": torch.ones(4) + shift[1]}
    ones = torch.ones(4, dtype=torch.float64)
    bound = Tolerance(absolute=1e-3, relative=1e-3)
    audited, _ = judged(Outputs(kept, frozenset()), expected_of((ones, ones)), bound)
    assert audited.why.startswith(said) if said else audited.why == ""
    assert audited.relative == shift[1] or (math.isnan(audited.relative) and math.isinf(shift[1]))


def stale(share: float, seed: int = 0) -> str:
    """What is said of outputs of which a share is an earlier call's."""
    torch.manual_seed(seed)
    out, before = (torch.randn(64, 100) for _ in range(2))
    rows = round(share * 64)
    given = torch.cat([before[:rows], out[rows:]])
    kept = {"": torch.empty_strided((64, 100), (1, 64))}
    sums = {"": signed_sum(given, kept[""], 77)[0]}
    outputs, expected = Outputs(kept, frozenset([""])), expected_of(out.double())
    return wrong_sums(sums, 77, outputs, expected, Tolerance(absolute=1e-3, relative=1e-5))


def test_the_sums_of_any_call_are_audited() -> None:
    assert stale(0.0) == ""
    for seed in range(20):
        assert stale(0.1, seed).startswith("by its signed sum the error is 0.")
    assert stale(1.0)


# ---- hints -------------------------------------------------------------------------------------
def test_a_hint_is_recorded_and_printed_with_its_error() -> None:
    told: list[dict[str, Any]] = []
    recorder: Any = SimpleNamespace(
        build=lambda name, **given: told.append(given),
        check=lambda name, shape, **given: told.append(given),
    )
    none = cast(Any, None)
    made = Measurement(none, none, none, Plan("s"), lambda event: None)
    made.recorder = recorder
    error = ErrorText(kind="", message="needs helion", hint="pip install helion")
    for phase in (Phase.BUILD, Phase.CHECK):
        made.take(Failed(variant="a", phase=phase, error=error))
    assert [given["hint"] for given in told] == ["pip install helion"] * 2
    assert made.result.hints == {"a": "pip install helion"}
    assert with_hint("needs helion", made.result.hints["a"]).splitlines() == [
        "needs helion",
        "hint: pip install helion",
    ]
    assert with_hint("wrong", "") == "wrong"
