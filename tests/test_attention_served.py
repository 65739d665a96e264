"""Attention as models call it: what the study says is right, and what stands behind it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from workbench.study.model import Shape
from workbench.study.sources import source_files
from workbench.study.workspace import find_workspace, load_module
from workspaces import ROOT

STUDY = ROOT / "kernels" / "attention_served"


def inputs_of(**changed: Any) -> dict[str, Any]:
    module = find_workspace(ROOT).study("attention_served").module
    shape = Shape(**{"B": 2, "S": 5, "T": 5, "H": 4, "key_heads": 4, "D": 64, "causal": True,
                     "cached": False, "dtype": "float16", **changed})  # fmt: skip
    given = module.inputs(shape, torch.Generator().manual_seed(3))
    return {**given, **{name: given[name].double() for name in "qkv"}}


def reference(inputs: dict[str, Any]) -> torch.Tensor:
    made = find_workspace(ROOT).study("attention_served").module.reference(**inputs)
    assert isinstance(made, torch.Tensor)
    return made


def test_what_the_baseline_is_made_of_is_the_attention_studys_own() -> None:
    """A study cannot name files outside of its folder: it has copies, and they must stay that."""
    study = find_workspace(ROOT).study("attention_served")
    own = ("baseline", "fix15")  # attention has a newer dispatcher than this one
    copies = [p for p in source_files(study, study.variants["baseline"]) if p.stem not in own]
    assert {"fix11.cu", "fix14.cu", "hopper.cuh"} <= {path.name for path in copies}
    for path in copies:
        assert path.read_bytes() == (STUDY.parent / "attention" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"causal": False},
        {"key_heads": 2},
        {"T": 9, "key_heads": 1},
        {"T": 9, "cached": True},
        {"T": 3, "causal": False},
        {"S": 1, "T": 7},
    ],
    ids=str,
)
def test_the_reference_is_what_a_loop_over_queries_gives(changed: dict[str, Any]) -> None:
    """The last query sees all keys, each one before it one key less; heads of queries share keys in
    their order; the result is [B, S, H, D].
    """
    given = inputs_of(**changed)
    q, k, v = (given[name] for name in "qkv")
    b, h, s, d = q.shape
    keys, found = k.shape[2], reference(given)
    assert found.shape == (b, s, h, d)
    for row in range(s):
        seen = keys - (s - 1 - row) if given["causal"] else keys
        for head in range(h):
            key, value = (x[:, head * x.shape[1] // h, :seen] for x in (k, v))
            weights = ((key @ q[:, head, row, :, None])[..., 0] / d**0.5).softmax(-1)
            wanted = (weights[:, None] @ value)[:, 0]
            torch.testing.assert_close(found[:, row, head], wanted)


@pytest.mark.parametrize("changed", [{}, {"T": 9, "key_heads": 2}, {"S": 1, "T": 7}], ids=str)
def test_sdpa_is_asked_for_the_same(changed: dict[str, Any]) -> None:
    given = inputs_of(**changed)
    out = load_module(STUDY / "sdpa.py", "served_sdpa").run(**given)
    torch.testing.assert_close(out, reference(given))
    assert out.is_contiguous()


def test_inputs_are_the_views_that_a_projection_leaves() -> None:
    given = inputs_of(S=6, T=6, H=4, key_heads=2)
    assert given["q"].shape == (2, 4, 6, 64)
    assert given["q"].transpose(1, 2).is_contiguous()
    assert given["k"].transpose(1, 2).is_contiguous()
    assert inputs_of(T=9, cached=True)["k"].is_contiguous()


def test_padded_queries_are_those_of_more_keys() -> None:
    """The variants before ``lengths`` put zeros before the queries and take the last rows."""
    given = inputs_of(S=3, T=8, key_heads=2)
    padded = torch.nn.functional.pad(given["q"], (0, 0, 5, 0))
    torch.testing.assert_close(reference({**given, "q": padded})[:, 5:], reference(given))


def test_work_counts_the_pairs_that_are_seen() -> None:
    study = find_workspace(ROOT).study("attention_served")
    pairs = sum(4096 - 511 + row for row in range(512))
    assert study.work("chunk").flops == 4 * 128 * 32 * pairs
    assert study.work("chunk").bytes == (2 * 512 * 32 + 2 * 4096 * 8) * 128 * 2


def test_the_adapter_needs_nothing_of_this_repository() -> None:
    """It goes into packages as it is."""
    adapter = load_module(STUDY / "adapters" / "transformers.py", "served_adapter")
    assert "import workbench" not in inspect.getsource(adapter)
    assert "from workbench" not in inspect.getsource(adapter)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize(("sequence", "heads", "causal"), [(1100, 16, True), (896, 19, False)])
def test_two_streams_at_once_and_packed_views(sequence: int, heads: int, causal: bool) -> None:
    """Launches that fill the card several times, and ones of 133 tiles: one block has two of them,
    and the next launch begins while it is at the second.
    """
    chosen = load_module(STUDY / "chosen.py", "served_chosen")
    module = find_workspace(ROOT).study("attention_served").module
    sides = [torch.cuda.Stream() for _ in range(2)]
    found: list[list[torch.Tensor]] = [[], []]
    given = []
    for side in sides:
        size = (1, sequence, heads + 2, 128)
        packed = torch.randn(size, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        q, k, v = packed.split((heads, 1, 1), dim=1)  # no memory of their own
        given.append({"q": q, "k": k, "v": v, "causal": causal})
        side.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        for side, inputs, outs in zip(sides, given, found, strict=True):
            with torch.cuda.stream(side):
                outs.append(chosen.run(**inputs))
    torch.cuda.synchronize()
    for inputs, outs in zip(given, found, strict=True):
        assert all(torch.equal(out, outs[0]) for out in outs)
        torch.testing.assert_close(
            outs[0].double(), module.reference(**inputs), atol=4e-2, rtol=1.2e-2
        )
