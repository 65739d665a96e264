"""Inputs that are the same in every call: nobody writes them, all instances share them, and what a
variant made of them in one call is of no use in the call that is looked at. Without a GPU.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from answers import Patch, not_none
from workbench.errors import UsageError
from workbench.run.worker.timing import neighbours as module
from workbench.run.worker.timing.instances import SessionSetup
from workbench.run.worker.timing.neighbours import MOST_CALLS, Neighbours
from workbench.study.values import Shape

SMALL, LARGE = 64, 4096  # elements of fp32
L2 = 4 * SMALL * 4  # bytes


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: Patch) -> None:
    def fresh(study: Any, shape: Shape, seeds: Any) -> dict[str, Any]:
        return {"x": torch.randn(SMALL), "w": torch.randn(LARGE), "n": 3}

    def room_for(like: Any, copies: int) -> list[Any]:
        return [torch.empty_like(like) for _ in range(copies)]

    monkeypatch.setattr(module, "fresh", fresh)
    monkeypatch.setattr(module, "room_for", room_for)
    monkeypatch.setattr(module, "on_gpu", lambda value: isinstance(value, torch.Tensor))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 30))


def made(moved: float = 1e9, **study: Any) -> Neighbours:
    """With room in half of the L2 for the small input alone; a call moves so many bytes."""
    card = SimpleNamespace(l2_bytes=L2)
    study = {"work": lambda shape: SimpleNamespace(bytes=moved), **study}
    return Neighbours(cast(Any, card), cast(Any, SimpleNamespace(**study)), Shape())


def test_they_are_in_common_and_in_no_table() -> None:
    around = made(constant=("w",))
    one, other = around.inputs(), around.inputs()
    assert one["w"].data_ptr() == other["w"].data_ptr()
    assert one["x"].data_ptr() != other["x"].data_ptr()
    table = around.input_tables(one)
    assert not_none(table.floats)[:, 0].tolist() == [one["x"].data_ptr()]


def test_renewed_they_have_other_values_in_the_same_place() -> None:
    around = made(constant=("w",))
    inputs = around.inputs()
    before, at = inputs["w"].clone(), inputs["w"].data_ptr()
    around.renew()
    assert inputs["w"].data_ptr() == at
    assert not torch.equal(inputs["w"], before)
    assert torch.equal(around.written(3, 1)["w"], inputs["w"])


def test_they_are_in_copies_where_a_call_leaves_some_of_them_in_l2() -> None:
    assert made(moved=module.APART * L2, constant=("w",)).copies == 1
    assert made(moved=2 * L2, constant=("w",)).copies == module.APART // 2
    assert made(moved=2 * L2).copies == 1, "nothing is constant"


@pytest.mark.parametrize(
    ("moved", "each", "free", "copies"),
    [
        (0.0, 1 << 20, 1e12, module.MOST_COPIES),
        (100e6, 1 << 30, 100e9, 4),
        (100e6, 1 << 30, 6e9, 1),  # two of them, and what they were drawn as, do not fit
        (50e6, 8 << 30, 100e9, 2),
    ],
)
def test_as_many_as_it_takes_and_memory_allows(
    moved: float, each: int, free: float, copies: int
) -> None:
    assert module.copies_of_constants(moved, 50_000_000, each, free) == copies


def test_calls_have_them_in_turn_and_the_one_ahead_the_last() -> None:
    around = made(moved=2 * L2, constant=("w",))
    at = [around.constants_of(call)["w"].data_ptr() for call in range(-1, 2 * around.copies)]
    assert len(set(at)) == around.copies
    assert at[0] == at[around.copies] == at[-1]
    assert all(one != other for one, other in pairwise(at))
    written = [around.written(3, call)["w"] for call in range(around.copies)]
    assert [w.data_ptr() for w in written] == at[1 : around.copies + 1]
    assert not torch.equal(written[0], written[1])


def test_every_copy_is_renewed() -> None:
    around = made(moved=2 * L2, constant=("w",))
    before = [copy["w"].clone() for copy in around.constants]
    around.renew()
    assert not any(torch.equal(a, b["w"]) for a, b in zip(before, around.constants, strict=True))


def test_a_graph_has_each_of_them_as_often() -> None:
    def calls(copies: int, each: float) -> int:
        inputs = SimpleNamespace(copies=copies)
        return SessionSetup(cast(Any, None), cast(Any, None), cast(Any, inputs), 1000.0).calls(each)

    assert [calls(6, each) for each in (25.0, 400.0, 900.0)] == [36, 6, 6]
    for copies in range(1, module.MOST_COPIES + 1):
        assert calls(copies, 1.0) <= MOST_CALLS  # neighbours.cu tells 64 calls of a replay apart
        assert calls(copies, 1.0) % copies == 0


def test_it_names_a_tensor() -> None:
    with pytest.raises(UsageError, match="constant names 'v', which is no tensor on the GPU"):
        made(constant=("v",))
