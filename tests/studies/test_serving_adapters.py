"""torchtitan, SGLang and vLLM as far as the adapters ask for them: what goes to the kernel is
right, and the rest goes to whom it went before. The stand-ins have the names and shapes of SGLang
0.5 and vLLM 0.16; torchtitan's own class is tried where it is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Patch
from workbench.study.workspace import load_module
from workspaces import ROOT

ADAPTERS = ROOT / "kernels" / "attention_served" / "adapters"
HEADS, KEY_HEADS, D = 4, 2, 64
Adapter = Callable[[str], ModuleType]


class Attention:
    """The study's own reference, which notes how often it is asked."""

    def __init__(self) -> None:
        study = load_module(ADAPTERS.parent / "study.py", "served_study")
        self.reference, self.calls = study.reference, 0

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
    ) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = self.reference(q, k, v, causal)
        return out.to(q.dtype)


@pytest.fixture
def attention() -> Attention:
    return Attention()


@pytest.fixture
def adapter(monkeypatch: Patch) -> Callable[[str], ModuleType]:
    """As on a card that the kernels are made for; nothing else of a check is left out."""

    def made(name: str) -> ModuleType:
        module = load_module(ADAPTERS / f"{name}.py", f"adapter_of_{name}")
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: module.CAPABILITY)
        return module

    return made


def modules(monkeypatch: Patch, **entries: dict[str, Any]) -> None:
    for name, found in entries.items():
        made = ModuleType(name)
        vars(made).update(found)
        monkeypatch.setitem(sys.modules, name, made)


# ---- torchtitan ----
class ScaledDotProductAttention(torch.nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attention_masks: Any = None,
        scale: float | None = None, enable_gqa: bool = False, is_causal: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=scale, is_causal=is_causal, enable_gqa=enable_gqa
        )
        return out.transpose(1, 2)


@pytest.mark.parametrize("real", [False, True])
def test_torchtitans_inner_attention(
    real: bool, attention: Attention, adapter: Adapter, monkeypatch: Patch
) -> None:
    if real:
        if importlib.util.find_spec("torchtitan") is None:
            pytest.skip("torchtitan is not installed")
        inner = pytest.importorskip("torchtitan.models.common.attention").ScaledDotProductAttention
        model = torch.nn.Sequential(inner(inner.Config()))
    else:
        entries = {"torchtitan.models.common.attention":
                   {"ScaledDotProductAttention": ScaledDotProductAttention}}  # fmt: skip
        modules(monkeypatch, **entries)
        model = torch.nn.Sequential(ScaledDotProductAttention(), torch.nn.Identity())
    q, k, v = (torch.randn(2, 9, heads, D) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    wanted = model[0](q, k, v, enable_gqa=True)
    assert adapter("torchtitan").use(model, attention) == 1
    torch.testing.assert_close(model[0](q, k, v, enable_gqa=True), wanted)
    assert attention.calls == 1
    model[0](q.requires_grad_(), k, v, enable_gqa=True).sum().backward()
    with torch.no_grad():
        model[0](q, k, v, enable_gqa=True, scale=0.5)
    assert attention.calls == 1
    with torch.no_grad():
        model[0](q, k, v, enable_gqa=True, scale=D**-0.5)
    assert attention.calls == 2


# ---- SGLang ----
class Pool:
    """Keys and values of all requests by place."""

    def __init__(self, places: int) -> None:
        self.k, self.v = (torch.randn(places, KEY_HEADS, D) for _ in range(2))
        self.written = 0

    def set_kv_buffer(self, layer: Any, at: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self.k[at], self.v[at] = (x.view(-1, KEY_HEADS, D) for x in (k, v))
        self.written += 1

    def get_key_buffer(self, layer: int) -> torch.Tensor:
        return self.k

    def get_value_buffer(self, layer: int) -> torch.Tensor:
        return self.v


class TorchNativeAttnBackend:
    def __init__(self, runner: Any) -> None:
        self.asked: list[bool] = []

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> str:
        self.asked.append(save_kv_cache)
        return "native"


@pytest.fixture
def sglang(monkeypatch: Patch) -> dict[str, Any]:
    """What is registered, by name."""
    found: dict[str, Any] = {"choices": []}
    layers = "sglang.srt.layers.attention"
    entries = {
        "sglang.srt.server_args": {"add_attention_backend_choices": found["choices"].extend},
        f"{layers}.attention_registry":
            {"register_attention_backend": lambda name: lambda made: found.update({name: made})},
        f"{layers}.torch_native_backend": {"TorchNativeAttnBackend": TorchNativeAttnBackend},
    }  # fmt: skip
    modules(monkeypatch, **entries)
    return found


def layer(**changed: Any) -> SimpleNamespace:
    return SimpleNamespace(**{
        "qk_head_dim": D, "v_head_dim": D, "tp_q_head_num": HEADS, "layer_id": 0, "logit_cap": 0,
        "scaling": D**-0.5, "is_cross_attention": False, "sliding_window_size": -1,
        "attn_type": "decoder", **changed})  # fmt: skip


def requests(before: list[int], new: list[int]) -> SimpleNamespace:
    """A batch whose tokens lie in the pool in an order of their own."""
    places = torch.randperm(sum(before) + sum(new))
    table = torch.zeros(8, 64, dtype=torch.long)
    rows = torch.tensor([5, 2, 7][: len(new)])
    fresh, start = [], 0
    for row, had, gets in zip(rows, before, new, strict=True):
        table[row, : had + gets] = places[start : start + had + gets]
        fresh.append(places[start + had : start + had + gets])
        start += had + gets
    return SimpleNamespace(
        token_to_kv_pool=Pool(len(places)), out_cache_loc=torch.cat(fresh),
        req_to_token_pool=SimpleNamespace(req_to_token=table), req_pool_indices=rows,
        extend_prefix_lens_cpu=before, extend_seq_lens_cpu=new)  # fmt: skip


def test_sglangs_prompts_are_computed_request_by_request(
    attention: Attention, adapter: Adapter, sglang: dict[str, Any]
) -> None:
    adapter("sglang").register(attention)
    assert sglang["choices"] == ["workbench"]
    served = sglang["workbench"](None)
    before, new = [0, 6, 3], [5, 4, 1]
    batch = requests(before, new)
    q = torch.randn(sum(new), HEADS * D)
    k, v = (torch.randn(sum(new), KEY_HEADS * D) for _ in range(2))
    out = served.forward_extend(q, k, v, layer(), batch)
    assert out.shape == q.shape
    assert attention.calls == 3
    start = 0
    for row, had, gets in zip(batch.req_pool_indices, before, new, strict=True):
        at = batch.req_to_token_pool.req_to_token[row, : had + gets]
        for token in range(gets):
            keys = batch.token_to_kv_pool.k[at[: had + token + 1]]
            values = batch.token_to_kv_pool.v[at[: had + token + 1]]
            for head in range(HEADS):
                one = q[start + token].view(HEADS, D)[head]
                weights = (keys[:, head // 2] @ one / D**0.5).softmax(0)
                mine = out[start + token].view(HEADS, D)[head]
                torch.testing.assert_close(mine, weights @ values[:, head // 2])
        start += gets


@pytest.mark.parametrize(
    "changed", [{"logit_cap": 30.0}, {"sliding_window_size": 128}, {"scaling": 1.0},
                {"is_cross_attention": True}, {"v_head_dim": 32}], ids=str
)  # fmt: skip
def test_what_sglang_asks_for_besides_goes_to_its_own(
    changed: dict[str, Any], attention: Attention, adapter: Adapter, sglang: dict[str, Any]
) -> None:
    adapter("sglang").register(attention)
    served, batch = sglang["workbench"](None), requests([0], [5])
    q, k, v = (torch.randn(5, n * D) for n in (HEADS, KEY_HEADS, KEY_HEADS))
    assert served.forward_extend(q, k, v, layer(**changed), batch) == "native"
    assert served.asked == [True]
    assert not batch.token_to_kv_pool.written, "its own writes the keys"


def test_sglangs_keys_are_written_once_where_the_kernel_refuses(
    adapter: Adapter, sglang: dict[str, Any]
) -> None:
    def refuses(*anything: Any) -> torch.Tensor:
        raise NotImplementedError("head dimension 64 or 128")

    adapter("sglang").register(refuses)
    served, batch = sglang["workbench"](None), requests([0], [5])
    q, k, v = (torch.randn(5, n * D) for n in (HEADS, KEY_HEADS, KEY_HEADS))
    assert served.forward_extend(q, k, v, layer(), batch) == "native"
    assert served.asked == [False]
    assert batch.token_to_kv_pool.written == 1


# ---- vLLM ----
class FlashAttentionImpl:
    def __init__(self, attn_type: str = "decoder", **changed: Any) -> None:
        self.attn_type, self.scale, self.alibi_slopes = attn_type, D**-0.5, None
        self.sliding_window, self.logits_soft_cap, self.sinks = (-1, -1), 0, None
        vars(self).update(changed)

    def forward(self, *anything: Any, **named: Any) -> str:
        return "flash"


@pytest.fixture
def vllm(request: pytest.FixtureRequest, monkeypatch: Patch) -> dict[Any, str]:
    """Registered paths; with a parameter its forward writes the cache."""
    found: dict[Any, str] = {}
    written = {"forward_includes_kv_cache_update": getattr(request, "param", False)}
    given = type("FlashAttentionBackend", (), written)
    entries: dict[str, dict[str, Any]] = {
        "vllm.v1.attention.backends.registry": {
            "register_backend": found.__setitem__,
            "AttentionBackendEnum": SimpleNamespace(CUSTOM="custom"),
        },
        "vllm.v1.attention.backends.flash_attn": {
            "FlashAttentionBackend": given,
            "FlashAttentionImpl": FlashAttentionImpl,
        },
    }
    modules(monkeypatch, **entries)
    return found


def prompts(sequences: int, new: int, longest: int, **changed: Any) -> SimpleNamespace:
    return SimpleNamespace(**{
        "num_actual_tokens": sequences * new, "max_query_len": new, "max_seq_len": longest,
        "query_start_loc": torch.arange(sequences + 1) * new, "causal": True,
        "use_cascade": False, **changed})  # fmt: skip


def called(served: Any, batch: Any, tokens: int, **named: Any) -> tuple[Any, torch.Tensor, Any]:
    q, k, v = (torch.randn(tokens, heads, D) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    output = torch.full((tokens, HEADS * D), -7.0)
    return served.forward(None, q, k, v, None, batch, output, **named), output, (q, k, v)


@pytest.mark.parametrize("kind", ["decoder", "encoder_only"])
def test_vllms_batches_of_one_length(
    kind: str, attention: Attention, adapter: Adapter, vllm: dict[Any, str]
) -> None:
    module = adapter("vllm")
    backend = module.register(attention)
    assert vllm == {"custom": "adapter_of_vllm.Served"}
    assert module.Served is backend
    assert backend.get_name() == "CUSTOM"
    result, output, (q, k, v) = called(backend.get_impl_cls()(kind), prompts(3, 5, 5), 17)
    assert result is output
    assert attention.calls == 1
    assert bool((output[15:] == -7).all()), "padding stays as it is"
    views = [x[:15].view(3, 5, -1, D).transpose(1, 2) for x in (q, k, v)]
    wanted = attention.reference(*views, kind == "decoder").flatten(0, 1).flatten(1)
    torch.testing.assert_close(output[:15].double(), wanted)


@pytest.mark.parametrize(
    ("batch", "changed", "named"),
    [
        (prompts(3, 5, 9), {}, {}),
        (prompts(3, 5, 5, num_actual_tokens=14), {}, {}),
        (prompts(3, 5, 5, use_cascade=True), {}, {}),
        (prompts(3, 5, 5), {"sliding_window": (127, 0)}, {}),
        (prompts(3, 5, 5), {"logits_soft_cap": 30}, {}),
        (prompts(3, 5, 5), {"sinks": torch.zeros(4)}, {}),
        (prompts(3, 5, 5), {"scale": 1.0}, {}),
        (prompts(3, 5, 5), {}, {"output_scale": torch.ones(1)}),
        (None, {}, {}),
    ],
)
def test_the_rest_of_vllm_goes_to_flash_attention(
    batch: Any, changed: Any, named: Any, attention: Attention, adapter: Adapter, vllm: Any
) -> None:
    served = adapter("vllm").backend(attention).get_impl_cls()(**changed)
    assert called(served, batch, 15, **named)[0] == "flash"
    assert not attention.calls


@pytest.mark.parametrize("vllm", [True], indirect=True)
def test_a_vllm_whose_forward_writes_the_cache_keeps_its_decoders(
    attention: Attention, adapter: Adapter, vllm: Any
) -> None:
    made = adapter("vllm").backend(attention).get_impl_cls()
    assert called(made("decoder"), prompts(3, 5, 5), 15)[0] == "flash"
    assert called(made("encoder_only"), prompts(3, 5, 5), 15)[0] != "flash"
