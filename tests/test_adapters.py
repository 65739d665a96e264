"""The kernel as an attention implementation of transformers: what goes to it, and what to SDPA."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Patch
from workbench.study.workspace import load_module
from workspaces import ROOT

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

    modules: dict[str, dict[str, Any]] = {
        "transformers": {
            "AttentionInterface": interface("attention"),
            "AttentionMaskInterface": interface("mask"),
        },
        "transformers.integrations": {},
        "transformers.integrations.sdpa_attention": {"sdpa_attention_forward": forward},
        "transformers.masking_utils": {"sdpa_mask": mask},
    }
    for name, entries in modules.items():
        made = ModuleType(name)
        vars(made).update(entries)
        monkeypatch.setitem(sys.modules, name, made)
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


@pytest.mark.parametrize(
    ("changed", "made"),
    [
        ({"q_length": 6, "kv_length": 6}, None),
        ({"q_length": 6, "kv_length": 9}, "mask"),
        ({"q_length": 6, "kv_length": 6, "attention_mask": torch.ones(2, 6)}, "mask"),
        ({"q_length": 6, "kv_length": 6, "local_size": 4}, "mask"),
        ({"q_length": 6, "kv_length": 6, "allow_is_causal_skip": False}, "mask"),
        (
            {
                "q_length": 6,
                "kv_length": 9,
                "allow_is_causal_skip": False,
                "allow_is_bidirectional_skip": True,
            },
            None,
        ),
    ],
)
def test_a_mask_is_made_only_where_one_is_needed(
    adapter: ModuleType, stand_in: dict[str, Any], changed: dict[str, Any], made: str | None
) -> None:
    adapter.register(Calls())
    assert stand_in["mask"]["workbench"](batch_size=2, **changed, device="cpu") == made
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
