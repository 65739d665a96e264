"""Mixture of experts, forward: out[t] = sum over the k experts e of token t of
weight · (silu(x[t] gate_e^T) * (x[t] up_e^T)) down_e^T.

The router has decided: which experts a token goes to, and with what weights, are inputs. Read on
machines without torch too, so torch is imported inside the functions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

# Experts, experts of a token, hidden and intermediate size: of Mixtral 8x7B, DeepSeek-V2-Lite and
# Qwen3-30B-A3B.
MIXTRAL = (8, 2, 4096, 14336)
DEEPSEEK = (64, 6, 2048, 1408)
QWEN3 = (128, 8, 2048, 768)
NAMES = {MIXTRAL: "mixtral", DEEPSEEK: "deepseek", QWEN3: "qwen3"}
MULTIPLE = 128  # of which hidden and intermediate size are multiples
CHUNK = 2048  # rows of an expert that the reference takes at once


def _shape(tokens: int, of: tuple[int, int, int, int], routing: str = "balanced", *,
           profiled: bool = True, captured: bool = False) -> Shape:  # fmt: skip
    experts, topk, hidden, intermediate = of
    return Shape(profiled=profiled, captured=captured, T=tokens, E=experts, k=topk, H=hidden,
                 I=intermediate, routing=routing)  # fmt: skip


shapes = {
    "mixtral-t1": _shape(1, MIXTRAL),
    "mixtral-t16": _shape(16, MIXTRAL),
    "mixtral-t128": _shape(128, MIXTRAL),
    "mixtral-t1024": _shape(1024, MIXTRAL),
    "mixtral-t1024-zipf": _shape(1024, MIXTRAL, "zipf"),
    "mixtral-t1024-one": _shape(1024, MIXTRAL, "one"),
    "mixtral-t8192": _shape(8192, MIXTRAL),
    "mixtral-t8192-zipf": _shape(8192, MIXTRAL, "zipf"),
    "deepseek-t1": _shape(1, DEEPSEEK),
    "deepseek-t16": _shape(16, DEEPSEEK),
    "deepseek-t128": _shape(128, DEEPSEEK),
    "deepseek-t128-zipf": _shape(128, DEEPSEEK, "zipf"),
    "deepseek-t1024": _shape(1024, DEEPSEEK),
    "deepseek-t1024-zipf": _shape(1024, DEEPSEEK, "zipf"),
    "deepseek-t1024-one": _shape(1024, DEEPSEEK, "one"),
    "deepseek-t8192": _shape(8192, DEEPSEEK),
    "deepseek-t8192-zipf": _shape(8192, DEEPSEEK, "zipf"),
    "qwen3-t1": _shape(1, QWEN3),
    "qwen3-t16": _shape(16, QWEN3),
    "qwen3-t128": _shape(128, QWEN3),
    "qwen3-t128-zipf": _shape(128, QWEN3, "zipf"),
    "qwen3-t1024": _shape(1024, QWEN3, captured=True),
    "qwen3-t1024-zipf": _shape(1024, QWEN3, "zipf"),
    "qwen3-t1024-one": _shape(1024, QWEN3, "one"),
    "qwen3-t8192": _shape(8192, QWEN3),
    "qwen3-t8192-zipf": _shape(8192, QWEN3, "zipf"),
    "one token": _shape(1, (8, 2, 512, 384), profiled=False),
    "few tokens": _shape(37, (8, 2, 256, 640), profiled=False),
    "one of three": _shape(130, (3, 1, 384, 128), profiled=False),
    "four of sixty": _shape(200, (60, 4, 512, 384), profiled=False),
    "eight of many": _shape(333, (128, 8, 256, 256), profiled=False),
    "long tiles": _shape(700, (4, 2, 1024, 1408), profiled=False),
}
default_shape = "qwen3-t1024"
constant = ("w13", "w2")  # a model's weights are those of the call before


def shape_name(shape: Shape) -> str:
    """As those that are listed: ``qwen3-t64``."""
    if shape.k > shape.E or shape.H % MULTIPLE or shape.I % MULTIPLE:
        raise ValueError(f"k is at most E, and H and I are multiples of {MULTIPLE}")
    loads(shape.routing, shape.E, shape.k, shape.T)
    of = (shape.E, shape.k, shape.H, shape.I)
    name = NAMES.get(of, "e{}k{}h{}i{}".format(*of))
    skew = "" if shape.routing == "balanced" else f"-{shape.routing}"
    return f"{name}-t{shape.T}{skew}"


# Rounding to bf16, 2^-9 of a value each: of both products, the activation, the output of an expert
# and the sum, of outputs up to 4.
tolerance = Tolerance(absolute=5e-2, relative=1e-2)


def loads(routing: str, experts: int, topk: int, tokens: int) -> list[int]:
    """How many tokens each expert gets, the busiest first: ``topk`` times ``tokens`` in all, and
    at most ``tokens``, as no token goes twice to one. They are the same in every draw, so that the
    least traffic is known.

    - ``balanced``: experts are equally likely. Loads differ as those of a random choice do: they
      are the quantiles of the binomial distribution.
    - ``zipf``: as 1 / rank; for few tokens the last ones get nothing.
    - ``one``: one expert gets every token, the others what is left, evenly.
    - ``few``: as many experts as a token has get every token, the others nothing.
    """
    if routing == "balanced":
        return _quantiles(experts, topk, tokens)
    shares = {
        "zipf": [1 / rank for rank in range(1, experts + 1)],
        "one": [math.inf] + [1.0] * (experts - 1),
        "few": [1.0] * topk + [0.0] * (experts - topk),
    }
    if routing not in shares:
        raise ValueError(f"routing is one of balanced, {', '.join(shares)}")
    found, left = [], topk * tokens
    for at, share in enumerate(shares[routing]):
        behind = sum(shares[routing][at:])
        part = 1.0 if math.isinf(share) else share / behind if behind else 0.0
        found.append(min(tokens, math.ceil(left * part - 1e-9)))
        left -= found[-1]
    return found


def _quantiles(experts: int, topk: int, tokens: int) -> list[int]:
    """Of the loads of so many experts, each chosen by a token with the same probability."""
    if topk == experts:
        return [tokens] * experts
    chance, below, load, found = topk / experts, 0.0, -1, []
    for rank in range(experts):
        while below < (rank + 0.5) / experts and load < tokens:
            load += 1
            ways = math.lgamma(tokens + 1) - math.lgamma(load + 1) - math.lgamma(tokens - load + 1)
            rest = (tokens - load) * math.log1p(-chance)
            below += math.exp(ways + load * math.log(chance) + rest)
        found.append(load)
    left = topk * tokens - sum(found)  # a few, for want of fractions: of the busiest
    one = 1 if left > 0 else -1
    while left:
        for at in reversed(range(experts)):
            if left and 0 <= found[at] + one <= tokens:
                found[at] += one
                left -= one
    return found[::-1]


def _routed(
    routing: str, experts: int, topk: int, tokens: int, generator: torch.Generator
) -> torch.Tensor:
    """[T, k] int32: experts of these loads dealt to the tokens, each token's all different."""
    import torch

    on = generator.device
    order = torch.randperm(experts, generator=generator, device=on)
    counts = torch.tensor(loads(routing, experts, topk, tokens), device=on)
    dealt = order.repeat_interleave(counts).view(topk, tokens).T
    dealt = dealt[torch.randperm(tokens, generator=generator, device=on)]
    slots = torch.rand((tokens, topk), generator=generator, device=on).argsort(-1)
    return dealt.gather(1, slots).int()


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """x: [T, H] normal(0, 1); topk_ids: [T, k] int32; topk_weights: [T, k] fp32, of each token
    adding up to 1; w13: [E, 2I, H], an expert's gate and below it its up projection; w2:
    [E, H, I]; bf16 where nothing else is said.

    Rows of a weight are outputs and its columns what is summed over: as nn.Linear has them and
    vLLM stores them, what TMA and wgmma take without a transpose (K-major), and transposed views
    are what ``torch._grouped_mm`` asks for. Weights are scaled so that sums stay normal(0, 1).
    """
    import torch

    on = generator.device

    def normal(*size: int) -> torch.Tensor:
        empty = torch.empty(size, dtype=torch.bfloat16, device=on)
        return empty.normal_(0, size[-1] ** -0.5, generator=generator)

    x = torch.randn((shape.T, shape.H), generator=generator, device=on)
    weights = torch.rand((shape.T, shape.k), generator=generator, device=on) + 0.1
    return {
        "x": x.bfloat16(),
        "topk_ids": _routed(shape.routing, shape.E, shape.k, shape.T, generator),
        "topk_weights": weights / weights.sum(-1, keepdim=True),
        "w13": normal(shape.E, 2 * shape.I, shape.H),
        "w2": normal(shape.E, shape.H, shape.I),
    }


def _rerouted(inputs: dict[str, Any], generator: torch.Generator, routing: str) -> dict[str, Any]:
    tokens, topk = inputs["topk_ids"].shape
    experts = inputs["w13"].shape[0]
    inputs["topk_ids"] = _routed(routing, experts, topk, tokens, generator)
    return inputs


def _zipf(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Loads fall as 1 / rank."""
    return _rerouted(inputs, generator, "zipf")


def _one(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One expert gets every token."""
    return _rerouted(inputs, generator, "one")


def _few(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All tokens go to the same experts, and most experts get nothing."""
    return _rerouted(inputs, generator, "few")


def _saturated(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Gates of normal(0, 8): silu is as good as zero for one half, and the other as it is."""
    inputs["x"] *= 8
    inputs["topk_weights"] /= 64
    return inputs


def _one_hot(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One of a token's experts has all its weight, so that no weight passes for another."""
    import torch

    weights = inputs["topk_weights"]
    tokens, topk = weights.shape
    chosen = torch.randint(topk, (tokens, 1), generator=generator, device=weights.device)
    inputs["topk_weights"] = torch.zeros_like(weights).scatter_(1, chosen, 1)
    return inputs


adversarial = {
    "Zipf": _zipf,
    "one busy expert": _one,
    "few experts": _few,
    "saturated": _saturated,
    "one-hot weights": _one_hot,
}


def reference(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    """The same in float64, [T, H], an expert after the other and of its tokens a part at a time."""
    import torch

    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in topk_ids.unique().tolist():
        gate, up = w13[expert].double().chunk(2)
        down = w2[expert].double()
        tokens, slots = (topk_ids == expert).nonzero(as_tuple=True)
        for at in range(0, len(tokens), CHUNK):
            token, slot = tokens[at : at + CHUNK], slots[at : at + CHUNK]
            rows = x[token].double()
            hidden = torch.nn.functional.silu(rows @ gate.T) * (rows @ up.T)
            out.index_add_(0, token, topk_weights[token, slot, None].double() * (hidden @ down.T))
    return out


def work(shape: Shape) -> Work:
    """6 T k H I operations in three products, I and 2 H more of every expert of a token for gating,
    weighing and adding; x, ids, weights and out once, and the weights of the experts that get a
    token once.
    """
    rows = shape.T * shape.k
    hit = sum(load > 0 for load in loads(shape.routing, shape.E, shape.k, shape.T))
    products = 6 * rows * shape.H * shape.I
    return Work(
        flops=products + rows * (shape.I + 2 * shape.H) - shape.T * shape.H,
        bytes=hit * 6 * shape.H * shape.I + 4 * shape.T * shape.H + 8 * rows,
        dtype="bfloat16",
    )
