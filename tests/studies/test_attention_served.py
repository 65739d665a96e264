"""Attention as models call it: the study, and its adapter for transformers."""

from __future__ import annotations

import importlib.util
import inspect
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Patch
from studies.test_serving_adapters import modules
from workbench.study.sources import source_files
from workbench.study.values import Shape
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


# ---- transformers
ADAPTER = ROOT / "kernels" / "attention_served" / "adapters" / "transformers.py"
MODULE = SimpleNamespace(is_causal=True)


class Calls:
    """An attention that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[torch.Size, torch.Size, bool]] = []

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
    ) -> torch.Tensor:
        if q.shape[-1] == 48:
            raise NotImplementedError("head dimension 64 or 128")
        self.asked.append((q.shape, k.shape, causal))
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if causal:
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
            scores = scores.masked_fill(~keep, float("-inf"))
        out: torch.Tensor = scores.softmax(-1) @ v
        return out.transpose(1, 2).contiguous()


@pytest.fixture
def adapter(monkeypatch: Patch) -> ModuleType:
    """As on a card that the kernels are made for: where tensors are is not looked at."""
    module = load_module(ADAPTER, "adapter_of_transformers")
    refused = module.refused

    def anywhere(*arguments: Any) -> str:
        why: str = refused(*arguments)
        return "" if why == "it is on cpu" else why

    monkeypatch.setattr(module, "refused", anywhere)
    return module


@pytest.fixture
def stand_in(monkeypatch: Patch) -> dict[str, Any]:
    """transformers, as far as the adapter asks for it: what is registered, and calls of SDPA."""
    seen: dict[str, Any] = {"attention": {}, "mask": {}, "sdpa": [], "sdpa_mask": []}

    def interface(name: str) -> SimpleNamespace:
        return SimpleNamespace(register=seen[name].__setitem__)

    def forward(*arguments: Any, **named: Any) -> tuple[str, None]:
        seen["sdpa"].append((arguments, named))
        return "sdpa", None

    def mask(*arguments: Any, **named: Any) -> str:
        seen["sdpa_mask"].append((arguments, named))
        return "mask"

    interfaces = {"attention": "AttentionInterface", "mask": "AttentionMaskInterface"}
    entries: dict[str, dict[str, Any]] = {
        "transformers": {name: interface(kind) for kind, name in interfaces.items()},
        "transformers.integrations": {},
        "transformers.integrations.sdpa_attention": {"sdpa_attention_forward": forward},
        "transformers.masking_utils": {"sdpa_mask": mask},
    }
    modules(monkeypatch, **entries)
    return seen


def tensors(length: int = 6, keys: int = 6, d: int = 64) -> tuple[torch.Tensor, ...]:
    made = (torch.randn(2, n, h, d).transpose(1, 2) for n, h in ((length, 4), (keys, 2), (keys, 2)))
    return tuple(made)


def test_a_plain_call_goes_to_the_kernel(adapter: ModuleType, stand_in: dict[str, Any]) -> None:
    attention = Calls()
    adapter.register(attention, "ours")
    out, weights = stand_in["attention"]["ours"](MODULE, *tensors(), None, scaling=64**-0.5)
    assert weights is None
    assert out.shape == (2, 6, 4, 64)
    assert attention.asked == [((2, 4, 6, 64), (2, 2, 6, 64), True)]
    assert not stand_in["sdpa"]


@pytest.mark.parametrize(
    ("length", "keys", "is_causal", "asked"),
    [(1, 9, None, (9, False)), (4, 9, None, (4, True)), (4, 9, False, (9, False))],
)
def test_causality_is_that_of_sdpa(
    adapter: ModuleType, stand_in: dict[str, Any], length: int, keys: int,
    is_causal: bool | None, asked: tuple[int, bool],
) -> None:  # fmt: skip
    """One token sees all keys; without a mask, keys beyond the queries are room in a cache."""
    attention = Calls()
    adapter.register(attention)
    call = stand_in["attention"]["workbench"]
    call(MODULE, *tensors(length, keys), None, is_causal=is_causal)
    assert [(k[2], causal) for _, k, causal in attention.asked] == [asked]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"attention_mask": torch.ones(2, 1, 6, 6, dtype=torch.bool)}, "mask"),
        ({"dropout": 0.1}, "dropout"),
        ({"scaling": 0.5}, "scaled by 0.5"),
        ({"position_bias": torch.zeros(1, 4, 6, 6)}, "bias"),
        ({"d": 48}, "64 or 128"),
        ({"grad": True}, "gradients"),
        ({"narrow": True}, "another head dimension"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_rest_goes_to_sdpa_as_it_came(
    adapter: ModuleType, stand_in: dict[str, Any], changed: dict[str, Any], why: str
) -> None:
    q, k, v = tensors(d=changed.pop("d", 64))
    q.requires_grad_(changed.pop("grad", False))
    v = v[..., :32] if changed.pop("narrow", False) else v
    mask = changed.pop("attention_mask", None)
    attention = Calls()
    adapter.register(attention)
    assert stand_in["attention"]["workbench"](MODULE, q, k, v, mask, **changed) == ("sdpa", None)
    assert not attention.asked
    (arguments, named), = stand_in["sdpa"]  # fmt: skip
    assert all(one is other for one, other in zip(arguments, (MODULE, q, k, v, mask), strict=True))
    assert changed.items() <= named.items()
    strict = adapter.implementation(attention, strict=True)
    with pytest.raises(NotImplementedError, match=why):
        strict(MODULE, q, k, v, mask, **changed)


def test_another_card_is_none_of_its_own(stand_in: dict[str, Any]) -> None:
    module = load_module(ADAPTER, "adapter_elsewhere")
    module.register(Calls())
    assert stand_in["attention"]["workbench"](MODULE, *tensors(), None) == ("sdpa", None)


NO_SKIP = {"allow_is_causal_skip": False}


@pytest.mark.parametrize(
    ("changed", "made"),
    [
        ({}, None),
        ({"kv_length": 9}, "mask"),
        ({"attention_mask": torch.ones(2, 6)}, "mask"),
        ({"local_size": 4}, "mask"),
        (NO_SKIP, "mask"),
        ({"kv_length": 9, **NO_SKIP, "allow_is_bidirectional_skip": True}, None),
    ],
)
def test_a_mask_is_made_only_where_one_is_needed(
    adapter: ModuleType, stand_in: dict[str, Any], changed: dict[str, Any], made: str | None
) -> None:
    adapter.register(Calls())
    given = {"batch_size": 2, "q_length": 6, "kv_length": 6, **changed}
    assert stand_in["mask"]["workbench"](**given, device="cpu") == made
    assert all("device" in named for _, named in stand_in["sdpa_mask"])


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
@pytest.mark.parametrize("kind", ["Llama", "Bert"])
def test_models_of_transformers_give_the_same_as_with_sdpa(adapter: ModuleType, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    settings = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip
    if kind == "Llama":
        settings["num_key_value_heads"] = 2
    model = getattr(transformers, f"{kind}Model")(
        getattr(transformers, f"{kind}Config")(**settings)
    )
    attention = Calls()
    adapter.register(attention, "ours")
    tokens = torch.randint(100, (2, 17))
    padded = torch.ones_like(tokens)
    padded[0, :5] = 0
    model.eval()
    with torch.no_grad():
        for mask in (None, padded):
            out = []
            for name in ("sdpa", "ours"):
                model.set_attn_implementation(name)
                out.append(model(tokens, attention_mask=mask).last_hidden_state)
            torch.testing.assert_close(*out)
    assert len(attention.asked) == 2, "padded batches go to SDPA"
