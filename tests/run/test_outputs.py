"""What ``run`` may return: several outputs, inputs changed in place, gradients; and how it is told
where it returns anything else. Without a GPU.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from answers import Patch, not_none
from inprocess import calls_here
from workbench.errors import CannotTell, UsageError
from workbench.evidence.records import CheckOutcome
from workbench.run.worker import correctness, output
from workbench.run.worker.correctness import check_variant
from workbench.run.worker.output import (
    NoResult,
    chunks,
    compare,
    error_of,
    expected_of,
    outputs_of,
    paired,
    require_judging,
    same_bits,
)
from workbench.run.worker.timing.neighbours import GUARD_BYTES
from workbench.study.config import Gates
from workbench.study.values import Shape, Tolerance
from workbench.study.workspace import check_study_module
from workbench.words import CheckResult

BOUND = Tolerance(absolute=1e-4, relative=1e-5)
Pair = namedtuple("Pair", "out lse")


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: Patch) -> None:
    """Checks run where there is no GPU; what is filled with NaN is memory of the CPU."""
    real_full = torch.full

    def full(*given: Any, device: Any = None, **named: Any) -> Any:
        return real_full(*given, device=None if device == "cuda" else device, **named)

    generator = torch.Generator

    class Here:
        def __new__(cls, device: str) -> Any:
            return generator()

    monkeypatch.setattr(torch, "full", full)
    monkeypatch.setattr(torch, "Generator", Here)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def study_of(reference: Callable[..., Any], **parts: Any) -> Any:
    def inputs(shape: Any, generator: Any) -> dict[str, Any]:
        return {"x": torch.randn(6, 5, generator=generator)}

    return SimpleNamespace(inputs=inputs, reference=reference, tolerance=BOUND, **parts)


def outcome(study: Any, run: Callable[..., Any], peer: Any = None) -> CheckOutcome:
    return check_variant(cast(Any, study), calls_here(study, run), None, peer)


def why_of_one(run: Callable[..., Any], **parts: Any) -> str:
    """Of one check of what doubles its input."""
    study = study_of(doubled)
    return correctness.check_once(study, calls_here(study, run, **parts), None).why


def doubled(x: Any) -> Any:
    return x.double() * 2


def two(x: Any) -> Any:
    return doubled(x), x.double().sum(1)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: (x * 2, x.sum(1)),
        lambda x: [x * 2, x.sum(1)],
        lambda x: Pair(x * 2, x.sum(1)),
        lambda x: {"out": x * 2, "lse": x.sum(1)},
    ],
    ids=["tuple", "list", "named", "dict"],
)
@pytest.mark.parametrize(
    "reference", [two, lambda x: Pair(*two(x)), lambda x: {"out": two(x)[0], "lse": two(x)[1]}]
)
def test_several_outputs_are_compared_each_with_its_own(run: Any, reference: Any) -> None:
    assert outcome(study_of(reference), run).status == CheckResult.CORRECT


def test_names_decide_before_places() -> None:
    study = study_of(lambda x: {"lse": x.double().sum(1), "out": x.double() * 2})
    assert outcome(study, lambda x: {"out": x * 2, "lse": x.sum(1)}).status == CheckResult.CORRECT


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda x: (x * 2, x.sum(1) + 1), "'1': max error 1"),
        (lambda x: Pair(x * 2, x.sum(1) + 1), "'lse': max error 1"),
        (lambda x: (x * 2, x.sum(0)), "'1' has shape (5,), expected (6,)"),
        (lambda x: (x * 2, x.sum(1).long()), "'1' has int64, where reference() gives float64"),
        (lambda x: (x * 2,), "run() gives 0, reference() 0, 1: 1 where reference() gives 2"),
        (lambda x: x * 2, "run() gives a tensor, reference() 0, 1: 1 where reference() gives 2"),
        (lambda x: (x * 2, None), "run() returned None at '1', not a tensor"),
        (lambda x: None, "run() returned None, not a tensor"),
        (lambda x: (), "run() returned an empty tuple"),
        (lambda x: (x * 2, 3.0), "run() returned float at '1', not a tensor"),
        (lambda x: (x * 2, x[:, 0]), "what run() returns at '1' shares memory with its input 'x'"),
        (lambda x: (x * 2, {"a": x.sum(1).to("meta")}), "returned a tensor on meta at '1.a'"),
    ],
)
def test_what_is_wrong_with_one_of_several_is_told_with_its_name(run: Any, said: str) -> None:
    found = outcome(study_of(two), run)
    assert found.status == CheckResult.WRONG
    assert said in found.why
    assert bool(found.hint) == ("max error" not in said)


def test_the_worst_output_is_named() -> None:
    found = outcome(study_of(two), lambda x: Pair(x * 2, x.sum(1) * (1 + 1e-6)))
    assert found.status == CheckResult.CORRECT
    assert found.output == "lse"


def test_the_worst_beside_the_primary_reference_is_named() -> None:
    def off(by: float, other: float) -> Any:
        return lambda x: Pair(x * 2 * (1 + by), x.sum(1) * (1 + other))

    found = outcome(study_of(two), off(4e-6, 2e-6), peer=off(3e-6, 6e-7))
    assert found.output == "lse"
    assert found.times_reference == pytest.approx(2e-6 / 6e-7, rel=0.4)


@pytest.mark.parametrize("worse", [1, 5])
def test_the_error_of_one_number_is_compared_over_many_draws(worse: int) -> None:
    """Of one draw an honest sum has any multiple of the reference's error. The first two are called
    twice; what follows is one call each, beside the reference's.
    """
    draw = iter(range(1000))

    def total(x: Any, phase: int, by: float) -> Any:
        return x.double().abs().sum() + by * 1e-9 * math.sin(7.0 * (next(draw) // 2) + phase)

    study = study_of(lambda x: x.double().abs().sum())
    found = outcome(study, lambda x: total(x, 1, worse), peer=lambda x: total(x, 0, 1))
    assert found.times_reference == pytest.approx(worse, rel=0.3)
    assert next(draw) == 2 * correctness.MOST_DRAWS + 2


@pytest.mark.parametrize(("error", "why"), [(5e-4, ""), (3e-3, "relative error"), (0.1, "max er")])
def test_a_sum_that_cancels_is_right_by_all_calls_together(error: float, why: str) -> None:
    """Half of them are a tenth of the others, for which the error is ten times as large."""

    def inputs(shape: Any, generator: Any) -> dict[str, Any]:
        is_small = torch.rand((), generator=generator) < 0.5
        return {"x": torch.tensor([30 * (0.1 if is_small else 1.0)])}

    study = study_of(lambda x: x.double().sum())
    study.inputs, study.tolerance = inputs, Tolerance(absolute=0.05, relative=5e-5)
    found = outcome(study, lambda x: x.double().sum() + error, peer=lambda x: x.double().sum())
    assert (found.status == CheckResult.WRONG) == bool(why), found.why
    assert why in found.why


@pytest.mark.parametrize(("units", "accurate"), [(1, True), (4, False)])
def test_one_number_need_not_be_nearer_than_its_type_allows(units: int, accurate: bool) -> None:
    """A reference that sums in float64 rounds once, and a sum in float32 cannot be as near."""
    study = study_of(lambda x: x.double().square().sum())

    def off(x: Any) -> Any:
        near = x.double().square().sum().float()
        for _ in range(units):
            near = torch.nextafter(near, torch.tensor(math.inf))
        return near

    found = outcome(study, off, peer=lambda x: x.double().square().sum().float())
    assert (not_none(found.times_reference) <= Gates().max_error) == accurate


@pytest.mark.parametrize(("worse", "most"), [(1.2, 2.6), (5.0, 11.0)])
@pytest.mark.parametrize("kind", ["all inputs", "large inputs"])
def test_an_error_in_few_large_elements_is_compared_over_many_draws(
    kind: str, worse: float, most: float
) -> None:
    """Of exp(x) few elements make up the norm, and of a kind of input: of one draw the ratio of
    errors is chance.
    """

    def exact(x: Any) -> Any:
        return (6 * x.double()).exp() if kind == "all inputs" else x.double()

    def large(inputs: Any, generator: Any) -> dict[str, Any]:
        inputs["x"][0, 0] += 1e4
        return inputs  # type: ignore[no-any-return]

    def rounded(x: Any, by: float) -> Any:
        torch.manual_seed(int(x.abs().sum() * 1e3) + int(by * 10))
        return exact(x) * (1 + by * 1e-7 * torch.randn(x.shape).double())

    study = study_of(exact, adversarial={} if kind == "all inputs" else {"large": large})
    study.inputs = lambda shape, generator: {"x": torch.randn(40, 30, generator=generator)}
    study.tolerance = Tolerance(absolute=math.inf, relative=1e-3)

    def run(x: Any) -> Any:
        return rounded(x, worse if kind == "all inputs" or x.max() > 1e3 else 1.0)

    found = outcome(study, run, peer=lambda x: rounded(x, 1.0))
    assert worse / 2.2 < (found.times_reference or 0.0) < most  # four deviations of 24 draws


@pytest.mark.parametrize(
    ("error", "allowed", "kind", "rounding"),
    [
        (3e-6, 1e-4, torch.float32, True),  # a sum by atomics
        (6e-6, 1e-4, torch.float32, False),  # three products in bfloat16 for one in float32
        (3e-4, 1e-2, torch.float32, False),  # TF32
        (2e-7, 2e-6, torch.float32, False),
        (1e-3, 2e-3, torch.float16, False),
    ],
)
def test_an_error_of_rounding_is_not_held_against_a_step(
    error: float, allowed: float, kind: torch.dtype, rounding: bool
) -> None:
    """However near the reference is."""
    study = study_of(lambda x: x.double() * 1.1)
    study.inputs = lambda shape, generator: {"x": torch.randn(40, 30, generator=generator)}
    study.tolerance = Tolerance(absolute=math.inf, relative=allowed)

    def off(x: Any, by: float) -> Any:
        return (x.double() * 1.1 * (1 + by)).to(kind)

    found = outcome(study, lambda x: off(x, error), peer=lambda x: off(x, 0.0))
    assert (found.status, found.rounding) == (CheckResult.CORRECT, rounding)
    assert not_none(found.times_reference) > 2


@pytest.mark.parametrize(("refused", "status"), [("", "correct"), ("too far", "wrong")])
def test_a_studys_own_check_decides_and_our_errors_stand_beside_it(
    refused: str, status: str
) -> None:
    study = study_of(lambda x: x.double() * 2, accepts=lambda inputs, out: refused)
    found = outcome(study, lambda x: x * 2.1, peer=lambda x: x * 2)
    assert (found.status, found.why) == (status, refused)
    assert found.rounding == (not refused)
    assert found.relative == pytest.approx(0.05, rel=1e-3)


def test_how_many_elements_make_up_a_norm() -> None:
    counted = output.elements_in_norm
    assert counted(torch.ones(3, 5)) == pytest.approx(15)
    assert counted(torch.tensor([1e30, 1.0, math.nan, math.inf])) == pytest.approx(1)
    assert counted(torch.zeros(4)) == math.inf


def test_another_type_than_the_primary_references_is_other_work() -> None:
    study = study_of(lambda x: x.double() * 2)
    found = outcome(study, lambda x: x.double() * 2, peer=lambda x: x * 2)
    assert (found.status, found.hint) == (CheckResult.WRONG, "return float32")
    assert found.why == "its result is float64, where the primary reference gives float32"


# ---- in place ---------------------------------------------------------------------------------
@pytest.mark.parametrize("returns", [lambda x: None, lambda x: x, lambda x: (x,)])
def test_an_input_changed_in_place_is_an_output(returns: Any) -> None:
    study = study_of(doubled, in_place=("x",))
    assert outcome(study, lambda x: returns(x.mul_(2))).status == CheckResult.CORRECT
    wrong = outcome(study, lambda x: returns(x.mul_(3)))
    assert (wrong.status, wrong.output) == (CheckResult.WRONG, "x")


def scaled(x: Any) -> None:
    x.mul_(2)


def summed(x: Any) -> Any:
    total = x.sum(1)
    x.mul_(2)
    return total


@pytest.mark.parametrize(
    ("reference", "run", "peer"),
    [
        (lambda x: (x.double().sum(1), doubled(x)), summed, None),
        (lambda x: {"x": doubled(x), "sums": x.double().sum(1)}, summed, None),
        (lambda x: x.mul_(2).double(), scaled, scaled),
    ],
    ids=["what is returned is first", "names decide", "the reference works in place too"],
)
def test_what_is_changed_is_compared_with_its_own(reference: Any, run: Any, peer: Any) -> None:
    study = study_of(reference, in_place=("x",))
    assert outcome(study, run, peer).status == CheckResult.CORRECT


def test_other_inputs_must_stay_as_they_are() -> None:
    def run(x: Any) -> Any:
        out = x * 2
        x.zero_()
        return out

    assert outcome(study_of(doubled), run).why == "changes its input 'x'"


def test_in_place_must_name_a_tensor() -> None:
    with pytest.raises(UsageError, match="in_place names 'y', which is no tensor"):
        outcome(study_of(doubled, in_place=("y",)), lambda x: x)


@pytest.mark.parametrize("names", ["x", 3, ("x", 3)])
@pytest.mark.parametrize("part", ["in_place", "constant"])
def test_names_of_inputs_are_a_tuple(names: Any, part: str, tmp_path: Any) -> None:
    parts = dict.fromkeys(("inputs", "reference", "work"), len) | {part: names}
    shapes, tolerance = {"s": Shape(n=1)}, Tolerance(1, 1)
    module: Any = SimpleNamespace(shapes=shapes, default_shape="s", tolerance=tolerance, **parts)
    with pytest.raises(UsageError, match=f"'{part}' must be the names of the inputs"):
        check_study_module(tmp_path, module)


# ---- gradients --------------------------------------------------------------------------------
def with_gradients(reference: Callable[..., Any]) -> Any:
    study = study_of(reference)
    given = study.inputs

    def inputs(shape: Any, generator: Any) -> dict[str, Any]:
        drawn: dict[str, Any] = given(shape, generator)
        return {"x": drawn["x"].requires_grad_(True)}

    study.inputs = inputs
    return study


def gradient(x: Any) -> Any:
    return torch.autograd.grad(x.square().sum(), x)


def test_a_backward_pass_is_a_call() -> None:
    study = with_gradients(lambda x: (2 * x.double(),))
    assert outcome(study, gradient, peer=gradient).status == CheckResult.CORRECT
    forward = with_gradients(lambda x: x.double().square())
    assert outcome(forward, lambda x: x.square()).status == CheckResult.CORRECT


def test_a_gradient_left_in_an_input_is_told() -> None:
    def run(x: Any) -> Any:
        x.square().sum().backward()
        return x.grad.clone()

    found = outcome(with_gradients(lambda x: 2 * x.double()), run)
    assert "leaves a gradient in its input 'x'" in found.why
    assert "torch.autograd.grad" in found.hint


# ---- the second call --------------------------------------------------------------------------
NOT_AGAIN = "leaves NaN in its result when it is called again: not written anew"


def test_what_is_not_written_again_is_told() -> None:
    written: list[Any] = []

    def run(x: Any) -> Any:
        if not written:
            written.append(x * 2)
        return written[0]

    assert why_of_one(run) == NOT_AGAIN


def test_what_launches_on_another_stream_does_not_find_its_inputs(monkeypatch: Patch) -> None:
    given: list[Any] = []
    early: list[Any] = []  # what another stream makes of the inputs while this one pauses

    def run(x: Any) -> Any:
        given.append(x)
        return early[0] if early else x * 2

    monkeypatch.setattr(correctness, "pause", lambda: early.append(given[0] * 2))
    assert why_of_one(run) == NOT_AGAIN
    early.clear()
    monkeypatch.setattr(correctness, "pause", lambda: None)
    assert why_of_one(run) == ""


class Graph:
    """Stands in for a CUDA graph: it does the work again, in the same memory."""

    capturing = False

    def __init__(self, work: Callable[[], Any], side: Any) -> None:
        self.replay = partial(self.do, work)
        self.replay()

    def do(self, work: Callable[[], Any]) -> None:
        Graph.capturing = True
        work()
        Graph.capturing = False


@pytest.mark.parametrize(
    ("factor", "said"),
    [(2.0, ""), (2.1, "in a CUDA graph: max error"), (math.nan, "in a CUDA graph: leaves NaN")],
)
def test_other_work_in_a_graph_is_wrong(factor: float, said: str, monkeypatch: Patch) -> None:
    out = torch.empty(6, 5)

    def run(x: Any) -> Any:
        return torch.mul(x, factor, out=out) if Graph.capturing else x * 2

    monkeypatch.setattr(correctness, "captured", Graph)
    monkeypatch.setattr(correctness, "nodes", lambda graph: ("a kernel",))
    why = why_of_one(run, side=object)
    assert why.startswith(said)
    assert bool(why) == bool(said)


def test_what_only_the_first_call_changes_is_told() -> None:
    called: list[int] = []

    def run(x: Any) -> Any:
        result = x * 2
        if not called:
            x.zero_()
        called.append(1)
        return result

    assert why_of_one(run) == "changes its input 'x'"


def test_results_that_differ_from_call_to_call_are_noted() -> None:
    check: list[int] = []

    def run(x: Any) -> Any:
        check.append(1)
        return x * 2 * (1 + len(check) * 1e-7)

    assert outcome(study_of(doubled), run).varies
    assert not outcome(study_of(doubled), lambda x: x * 2).varies


# ---- piece by piece ---------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 50), (2, 3, 40), (40, 1, 2), (1, 99)])
def test_chunks_cover_every_element_once(shape: tuple[int, ...]) -> None:
    seen = torch.zeros(shape)
    for at in chunks(shape, 16):
        assert seen[at].numel() <= 16
        seen[at] += 1
    assert (seen == 1).all()


@pytest.fixture
def small_chunks(monkeypatch: Patch) -> None:
    monkeypatch.setattr(output.chunks, "__defaults__", (16,))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("transposed", [False, True])
def test_a_comparison_in_pieces_says_what_a_whole_one_says(transposed: bool) -> None:
    expected = torch.randn(9, 30, dtype=torch.float64)
    out = (expected + torch.randn_like(expected) * 1e-3).float()
    if transposed:
        out = out.t().contiguous().t()
    error = out.double() - expected
    absolute, relative, why = compare(out, expected, BOUND)
    assert absolute == float(error.abs().max())
    assert relative == pytest.approx(float(error.norm() / expected.norm()), rel=1e-12)
    row, column = divmod(int(error.abs().argmax()), 30)
    assert why.endswith(f"worst at [{row}, {column}]")
    out[4, 17] = out[7, 3] = math.nan
    assert compare(out, expected, BOUND)[2] == (
        "2 of 270 outputs differ in NaN or infinity, the first at [4, 17]: NaN, expected "
        f"{float(expected[4, 17]):.3g} (not written, or read out of bounds)"
    )


def test_nan_and_infinity_are_right_where_the_reference_has_them() -> None:
    expected = torch.tensor([1.0, math.nan, -math.inf, 4.0], dtype=torch.float64)
    assert compare(expected.float(), expected, BOUND) == (0.0, 0.0, "")
    absolute, relative, why = compare(expected.float() + 0.5, expected, BOUND)
    assert absolute == 0.5
    assert relative == pytest.approx(math.sqrt(0.5 / 17))
    assert why.startswith("max error 0.5")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, math.nan, "1 of 4 outputs differ in NaN or infinity, the first at [0]: NaN"),
        (0, -math.inf, "the first at [0]: -inf, expected 1"),
        (1, 7.0, "the first at [1]: 7, expected NaN"),
        (1, math.inf, "the first at [1]: inf, expected NaN"),
        (2, math.inf, "the first at [2]: inf, expected -inf"),
        (2, -9.0, "the first at [2]: -9, expected -inf"),
    ],
)
def test_nan_and_infinity_of_one_side_alone_are_wrong(place: int, value: float, said: str) -> None:
    expected = torch.tensor([1.0, math.nan, -math.inf, 4.0], dtype=torch.float64)
    out = expected.float()
    out[place] = value
    absolute, relative, why = compare(out, expected, BOUND)
    assert said in why
    assert math.isnan(absolute)
    assert math.isnan(relative)
    assert error_of(out, expected, "f")[2] == why


@pytest.mark.parametrize("value", [math.nan, 0.0])
def test_a_reference_that_is_nan_everywhere_judges_nothing(value: float) -> None:
    expected = torch.full((2, 3), math.nan, dtype=torch.float64)
    out = torch.full((2, 3), value)
    assert compare(out, expected, BOUND)[2] == "the reference is NaN everywhere"
    found = outcome(study_of(lambda x: x.double() * math.nan), lambda x: x * value)
    assert (found.status, found.why) == (CheckResult.WRONG, "the reference is NaN everywhere")
    assert found.hint == "check inputs() and reference() in study.py"
    with pytest.raises(CannotTell, match="NaN everywhere in output 1: nothing can be compared"):
        require_judging((torch.ones(2), expected))
    require_judging((torch.tensor([math.nan, 0.0]), torch.empty(0)))


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "float8_e4m3fn", "bfloat16"])
def test_every_type_can_be_compared(dtype: str) -> None:
    kind = getattr(torch, dtype)
    out = torch.tensor([1.0, 0.0, 1.0]).to(kind)
    wide = torch.complex128 if kind.is_complex else torch.float64
    expected = out.to(wide) if kind.is_complex or kind.is_floating_point else out.clone()
    assert compare(out, expected, BOUND) == (0.0, 0.0, "")
    assert compare(out, 1 - expected.to(wide), BOUND)[0] == 1.0
    assert same_bits(out, out.clone())


def test_an_error_where_the_reference_is_zero_has_no_bound() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    assert compare(zero.float(), zero, BOUND) == (0.0, 0.0, "")
    assert compare(zero.float() + 1e-7, zero, BOUND)[1] == math.inf


# ---- names ------------------------------------------------------------------------------------
def test_torchs_own_named_tuples_have_names() -> None:
    found = outputs_of(torch.max(torch.randn(3, 4), 1), {})
    assert list(found.tensors) == ["values", "indices"]


def test_structures_of_which_nothing_fits_are_refused() -> None:
    one, other = torch.ones(2), torch.zeros(2)
    found, expected = outputs_of({"a": one, "b": other}, {}), expected_of({"a": one, "c": other})
    with pytest.raises(NoResult, match="'b' is on one side alone"):
        paired(found, expected)


# ---- memory -----------------------------------------------------------------------------------
class Memory(TorchDispatchMode):
    """Stands in for the allocator's own account: bytes of all storages alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, found)):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.alive[StorageWeakRef(storage)] = storage.nbytes()
        self.alive = {ref: size for ref, size in self.alive.items() if not ref.expired()}
        self.peak = max(self.peak, sum(self.alive.values()))
        return found


@pytest.mark.parametrize("shape", [(1 << 20,), pytest.param((1024, 1024), marks=pytest.mark.slow)])
def test_a_check_takes_no_more_than_three_times_the_operands(
    shape: tuple[int, ...], monkeypatch: Patch
) -> None:
    """Without what the reference itself takes."""
    monkeypatch.setattr(correctness, "POISON_BYTES", 0)
    monkeypatch.setattr(output.chunks, "__defaults__", (1 << 14,))
    memory, peaks = Memory(), []

    def reference(x: Any, y: Any) -> Any:
        peaks.append(memory.peak)
        result = x.double().mul_(2), y.double()
        memory.peak = 0
        return result

    def inputs(shape: Any, generator: Any) -> dict[str, Any]:
        return {name: torch.randn(shape, generator=generator) for name in "xy"}

    def run(x: Any, y: Any) -> Any:
        return x * 2, y.clone()

    study: Any = SimpleNamespace(inputs=inputs, reference=reference, tolerance=BOUND)
    with memory:
        calls = calls_here(study, run, shape)
        assert correctness.check_once(study, calls, shape, peer=run).why == ""
    operands = 4 * 4 * math.prod(shape)
    expected = 2 * 8 * math.prod(shape)
    margins = 4 * GUARD_BYTES
    assert operands <= peaks[0] <= 2.5 * operands + 3 * margins
    assert memory.peak - expected <= 1.6 * operands
