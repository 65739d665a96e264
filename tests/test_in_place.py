"""How inputs that a call changes, and several outputs, are timed. Without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from workbench.errors import UsageError  # noqa: E402
from workbench.run.worker.output import Outputs  # noqa: E402
from workbench.run.worker.timing import surroundings as module  # noqa: E402
from workbench.run.worker.timing.instances import Around, Instance  # noqa: E402
from workbench.run.worker.timing.session import Timing, order_of  # noqa: E402
from workbench.run.worker.timing.surroundings import DRAWS, Surroundings, Table  # noqa: E402
from workbench.study.model import Tolerance  # noqa: E402
from workbench.words import Regime  # noqa: E402

Launch = tuple[str, Any, tuple[Any, ...]]


@pytest.fixture
def launched() -> list[Launch]:
    return []


@pytest.fixture
def around(launched: list[Launch], monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """Of a study with three inputs, of which a call changes ``b``; of 4 pieces one is written."""

    def room_for(like: Any, copies: int) -> list[Any]:
        return [like.detach().clone() for _ in range(copies)]

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, where: Any) -> Callable[..., None]:
            return lambda *given: launched.append((self.name, where, given))

    monkeypatch.setattr(module, "room_for", room_for)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    made = object.__new__(Surroundings)
    made.like = {name: torch.randn(64) for name in "abc"} | {"n": 3}
    made.like["a"].requires_grad_(True)
    made.names, made.in_place, made.stride, made.most_pieces = ["a", "b", "c"], ("b",), 4, 16
    made.constant, made.constants, made.as_drawn = (), [{}], [{}]
    made.sources = {name: [torch.randn(64) for _ in range(DRAWS)] for name in "abc"}
    kernels = {name: Kernel(name) for name in ("write_inputs", "read_output")}
    made.card = cast(Any, SimpleNamespace(sms=4, state=None, kernels=kernels))
    return made


def test_inputs_that_a_call_changes_are_written_whole(
    around: Surroundings, launched: list[Launch]
) -> None:
    inputs = around.inputs()
    table = around.table(inputs)
    assert table.given is not None
    assert table.restored is not None
    assert table.given[:, 0].tolist() == [inputs[name].data_ptr() for name in "ac"]
    assert table.restored[:, 0].tolist() == [inputs["b"].data_ptr()]
    around.write(table, 7)
    strides = [given[2] for _, _, given in launched]
    assert ([given[0] is table.given for _, _, given in launched], strides) == (
        [True, False],
        [4, 1],
    )
    launched.clear()
    around.restore(table, 7)
    assert [given[2] for _, _, given in launched] == [1]


def test_without_any_there_is_one_node_as_before(
    around: Surroundings, launched: list[Launch]
) -> None:
    around.in_place = ()
    table = around.table(around.inputs())
    assert table.restored is None
    around.write(table, 7)
    around.restore(table, 7)
    assert len(launched) == 1


def test_indices_are_those_of_one_draw(around: Surroundings, launched: list[Launch]) -> None:
    """Of a large input a piece in four is written; a table of indices so made would be none."""
    around.like["c"] = torch.arange(64)
    around.sources["c"] = [torch.randperm(64) for _ in range(DRAWS)]
    table = around.table(around.inputs())
    assert table.indices is not None
    assert table.indices.shape[0] == 1
    around.write(table, 7)
    assert [given[2] for _, _, given in launched] == [4, 1, 1]
    seen = set()
    for replay in range(40):
        written = around.written(replay, 5)["c"]
        assert any(torch.equal(written, draw) for draw in around.sources["c"])
        seen.add(tuple(written.tolist()))
    assert len(seen) == DRAWS


def test_what_is_changed_in_place_is_on_the_gpu(around: Surroundings) -> None:
    around.in_place = ("n",)
    with pytest.raises(UsageError, match="in_place names 'n', which is no tensor on the GPU"):
        around._require_writable()


def test_what_was_written_of_them_is_all_of_it(around: Surroundings) -> None:
    """Of the others, a piece in four differs from the first draw."""
    written = around.written(3, 5)
    changed = {
        name: int((written[name] != around.sources[name][0]).view(-1, 4).any(1).sum())
        for name in "abc"
    }
    assert changed["b"] == 16
    assert changed["a"] <= 4
    assert changed["c"] <= 4


def test_inputs_have_the_gradients_that_the_study_gives_them(around: Surroundings) -> None:
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

    def write(self, table: Any, call: int) -> None:
        self.events.append(f"write {call}")

    def restore(self, table: Any, call: int) -> None:
        self.events.append(f"restore {call}")

    def constants_of(self, call: int) -> dict[str, Any]:
        return {}

    def read(self, out: Any, kept: Any, call: int, calls: int) -> None:
        self.events.append(f"read {int(out[0])} as {int(kept[0])} of {call}")


def instance(heard: Heard) -> Instance:
    made = object.__new__(Instance)
    flush = SimpleNamespace(zero_=lambda: heard.events.append("flush"))
    made.around = cast(Any, SimpleNamespace(inputs=heard, flush=flush))
    made.calls = dict.fromkeys(Regime, 2)
    made.table = Table(None, None, None)
    made.kept = {"0": torch.tensor([10]), "x": torch.tensor([11])}
    made.idle = {"0": torch.tensor([20]), "x": torch.tensor([21])}
    made.own = {"x": torch.tensor([1])}

    def run(x: Any) -> Any:
        heard.events.append("run")
        return (torch.tensor([0]),)

    made.run = run
    return made


@pytest.mark.parametrize(
    ("regime", "bare", "events"),
    [
        ("chained", False, ["write 1", "run", "read 0 as 10 of 1", "read 1 as 11 of 1"]),
        ("chained", True, ["write 1", "read 20 as 10 of -1", "read 21 as 11 of -1"]),
        ("back to back", False, ["restore 1", "run"]),
        ("back to back", True, ["restore 1"]),
        ("cold", False, ["restore 1", "flush", "run"]),
        ("cold", True, ["restore 1", "flush"]),
    ],
)
def test_what_surrounds_a_call_is_the_same_without_it(
    regime: str, bare: bool, events: list[str]
) -> None:
    heard = Heard()
    instance(heard).once(Regime(regime), 1, bare)
    assert heard.events == events


def test_a_regime_has_a_bare_graph_where_anything_is_around_a_call() -> None:
    plain = Around(cast(Any, None), cast(Any, None), cast(Any, SimpleNamespace(restored=[])), 150.0)
    changing = Around(cast(Any, None), cast(Any, None), cast(Any, Heard()), 150.0)
    assert plain.bared == (Regime.CHAINED, Regime.COLD)
    assert changing.bared == tuple(Regime)
    bare = {one.regime for one in order_of(range(3), 0, changing.bared) if one.bare}
    assert bare == set(Regime)


@pytest.mark.parametrize(
    ("shift", "said"),
    [((0, 0), ""), ((0, 1), "the output of a timed call: 'lse': max error 1")],
)
def test_each_output_of_a_timed_call_is_audited(shift: tuple[int, int], said: str) -> None:
    kept = {"out": torch.ones(4) + shift[0], "lse": torch.ones(4) + shift[1]}
    timed = SimpleNamespace(
        inputs_of_kept=dict,
        found=Outputs(kept, frozenset()),
        kept_pieces=lambda out, wanted: (out, wanted),
        changed_input=lambda: "",
    )
    made = object.__new__(Timing)
    ones = torch.ones(4, dtype=torch.float64)
    made.study = cast(Any, SimpleNamespace(reference=lambda: (ones, ones)))
    relative, why = made.audit(cast(Any, timed), Tolerance(absolute=1e-3, relative=1e-3))
    assert why.startswith(said) if said else why == ""
    assert relative == (1.0 if said else 0.0)


# ---- hints -------------------------------------------------------------------------------------
def test_a_hint_is_recorded_and_printed_with_its_error() -> None:
    from workbench.errors import with_hint
    from workbench.run.events import Listener
    from workbench.run.plan import MeasuredPlan, Plan
    from workbench.run.protocol import ErrorText, Failed
    from workbench.words import Phase

    told: list[dict[str, Any]] = []
    recorder: Any = SimpleNamespace(
        build=lambda name, **given: told.append(given),
        check=lambda name, shape, **given: told.append(given),
    )
    made = Listener(cast(Any, None), Plan("s"), recorder, MeasuredPlan(), lambda event: None)
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
