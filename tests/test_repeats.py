"""Calls on the same inputs: what differs is told, and where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from benchmarks import repeats


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "poison", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["moe", "fix19x", "qwen3-t1"], "'fix19x'"),
        (["moe", "fix10", "qwen3-t2x"], "moe has no qwen3-t2x"),
    ],
)
def test_what_the_study_does_not_have_is_told(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert repeats.main(arguments) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "hint: " in err


def test_it_needs_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert repeats.main(["moe", "fix10", "qwen3-t1"]) == 3
    assert "there is no GPU" in capsys.readouterr().err


def counting(change: Callable[[torch.Tensor, int], None]) -> Callable[..., torch.Tensor]:
    """Doubles; ``change`` is given what comes out and the number of the call."""
    calls = 0

    def run(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        out = 2 * x
        change(out, calls)
        calls += 1
        return out

    return run


def test_the_same_bits_have_nothing_to_tell() -> None:
    assert repeats.repeated(counting(lambda out, call: None), {"x": torch.ones(2, 3)}, 5) == []


def test_what_differs_is_told_with_its_place_and_its_size() -> None:
    def change(out: torch.Tensor, call: int) -> None:
        if call in (2, 4):
            out[1, 1:] += 0.25

    lines = repeats.repeated(counting(change), {"x": torch.ones(2, 3)}, 6)
    assert lines == [
        "2 of 6 calls differ, 0 have NaN",
        "call 2: 2 in [1, 1] to [1, 2], by 0.25 at most",
        "call 4: 2 in [1, 1] to [1, 2], by 0.25 at most",
    ]


def test_nan_is_told_also_where_every_call_has_it() -> None:
    def change(out: torch.Tensor, call: int) -> None:
        out[0, 0] = float("nan")

    lines = repeats.repeated(counting(change), {"x": torch.ones(2, 3)}, 3)
    assert lines[0] == "2 of 3 calls differ, 3 have NaN"  # NaN is not what it was
