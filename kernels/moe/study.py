"""Mixture of experts, forward: out[t] = sum over the k experts e of token t of
weight · (silu(x[t] gate_e^T) * (x[t] up_e^T)) down_e^T.

Routing is an input: the experts of each token and their weights. A slot is one token of one expert.
Machines without torch read this file too, so the functions import torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench import Shape, Tolerance, Work

if TYPE_CHECKING:
    import torch

# Experts, experts per token, hidden and intermediate size of Mixtral 8x7B, DeepSeek-V2-Lite and
# Qwen3-30B-A3B.
MIXTRAL = (8, 2, 4096, 14336)
DEEPSEEK = (64, 6, 2048, 1408)
QWEN3 = (128, 8, 2048, 768)
NAMES = {MIXTRAL: "mixtral", DEEPSEEK: "deepseek", QWEN3: "qwen3"}
MULTIPLE = 128  # hidden and intermediate size are multiples of it
CHUNK = 2048  # tokens of an expert per iteration of the reference


def _shape(tokens: int, model: tuple[int, int, int, int], routing: str = "balanced", *,
           profiled: bool = True, captured: bool = False) -> Shape:  # fmt: skip
    experts, topk, hidden, intermediate = model
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
constant = ("w13", "w2")  # the weights of a model do not change between calls


def shape_name(shape: Shape) -> str:
    """Returns the name of a shape in the style of the listed ones: ``qwen3-t64``."""
    if shape.k > shape.E or shape.H % MULTIPLE or shape.I % MULTIPLE:
        raise ValueError(f"k must be at most E, and H and I multiples of {MULTIPLE}")
    loads(shape.routing, shape.E, shape.k, shape.T)
    sizes = (shape.E, shape.k, shape.H, shape.I)
    name = NAMES.get(sizes, "e{}k{}h{}i{}".format(*sizes))
    skew = "" if shape.routing == "balanced" else f"-{shape.routing}"
    return f"{name}-t{shape.T}{skew}"


# For outputs up to 4. Each rounding to bf16 costs 2^-9 of a value: after both products, the
# activation, the output of an expert and the sum.
tolerance = Tolerance(absolute=5e-2, relative=1e-2)


def loads(routing: str, experts: int, topk: int, tokens: int) -> list[int]:
    """Returns the number of tokens of each expert, in descending order.

    Their sum is ``topk * tokens``. No expert has more than ``tokens``, because a token chooses an
    expert at most once. Loads do not depend on the seed, so the minimum memory traffic is known.

    - ``balanced``: experts are equally likely. Loads vary as in a random choice: they are the
      quantiles of the binomial distribution.
    - ``zipf``: loads are proportional to 1 / rank. With few tokens the last experts get none.
    - ``one``: one expert gets every token, and the others share the rest evenly.
    - ``few``: ``topk`` experts get every token, and the others none.
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
    counts, remaining = [], topk * tokens
    for rank, share in enumerate(shares[routing]):
        total = sum(shares[routing][rank:])
        part = 1.0 if math.isinf(share) else share / total if total else 0.0
        counts.append(min(tokens, math.ceil(remaining * part - 1e-9)))
        remaining -= counts[-1]
    return counts


def _quantiles(experts: int, topk: int, tokens: int) -> list[int]:
    """Returns quantiles of an expert's load if each token chooses ``topk`` experts at random."""
    if topk == experts:
        return [tokens] * experts
    probability, cumulative, load, counts = topk / experts, 0.0, -1, []
    for rank in range(experts):
        while cumulative < (rank + 0.5) / experts and load < tokens:
            load += 1
            ways = math.lgamma(tokens + 1) - math.lgamma(load + 1) - math.lgamma(tokens - load + 1)
            rest = (tokens - load) * math.log1p(-probability)
            cumulative += math.exp(ways + load * math.log(probability) + rest)
        counts.append(load)
    # Rounding leaves a few slots too many or too few. The busiest experts make up for them.
    remaining = topk * tokens - sum(counts)
    step = 1 if remaining > 0 else -1
    while remaining:
        for rank in reversed(range(experts)):
            if remaining and 0 <= counts[rank] + step <= tokens:
                counts[rank] += step
                remaining -= step
    return counts[::-1]


def _routed(
    routing: str, experts: int, topk: int, tokens: int, generator: torch.Generator
) -> torch.Tensor:
    """[T, k] int32: the experts of each token, all different, with the loads of ``loads``."""
    import torch

    device = generator.device
    order = torch.randperm(experts, generator=generator, device=device)
    counts = torch.tensor(loads(routing, experts, topk, tokens), device=device)
    ids = order.repeat_interleave(counts).view(topk, tokens).T
    ids = ids[torch.randperm(tokens, generator=generator, device=device)]
    slots = torch.rand((tokens, topk), generator=generator, device=device).argsort(-1)
    return ids.gather(1, slots).int()


def inputs(shape: Shape, generator: torch.Generator) -> dict[str, Any]:
    """The arguments of every variant, bf16 unless another type is given.

    - ``x``: [T, H] normal(0, 1)
    - ``topk_ids``: [T, k] int32
    - ``topk_weights``: [T, k] fp32, which add up to 1 for each token
    - ``w13``: [E, 2I, H], the gate projection of an expert, then its up projection
    - ``w2``: [E, H, I], the down projection

    Weights are [outputs, inputs] (K-major), as in nn.Linear and vLLM: TMA and wgmma need no
    transpose, and ``torch._grouped_mm`` takes transposed views. They are scaled so that sums stay
    normal(0, 1).
    """
    import torch

    device = generator.device

    def normal(*size: int) -> torch.Tensor:
        empty = torch.empty(size, dtype=torch.bfloat16, device=device)
        return empty.normal_(0, size[-1] ** -0.5, generator=generator)

    x = torch.randn((shape.T, shape.H), generator=generator, device=device)
    weights = torch.rand((shape.T, shape.k), generator=generator, device=device) + 0.1
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
    """Loads are proportional to 1 / rank."""
    return _rerouted(inputs, generator, "zipf")


def _one(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One expert gets every token."""
    return _rerouted(inputs, generator, "one")


def _few(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """All tokens go to the same experts, and most experts get none."""
    return _rerouted(inputs, generator, "few")


def _saturated(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """Gates of normal(0, 8): silu is near 0 for one half, and near the identity for the other."""
    inputs["x"] *= 8
    inputs["topk_weights"] /= 64
    return inputs


def _one_hot(inputs: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """One expert of a token has all its weight, so mixed-up weights are found."""
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
    """The output in float64, [T, H], one expert and CHUNK of its tokens at a time."""
    import torch

    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in topk_ids.unique().tolist():
        gate, up = w13[expert].double().chunk(2)
        down = w2[expert].double()
        tokens, slots = (topk_ids == expert).nonzero(as_tuple=True)
        for begin in range(0, len(tokens), CHUNK):
            token, slot = tokens[begin : begin + CHUNK], slots[begin : begin + CHUNK]
            rows = x[token].double()
            hidden = torch.nn.functional.silu(rows @ gate.T) * (rows @ up.T)
            out.index_add_(0, token, topk_weights[token, slot, None].double() * (hidden @ down.T))
    return out


def work(shape: Shape) -> Work:
    """The three products take 6 T k H I operations; each slot takes I more for gating and 2 H for
    weighting and adding. ``x``, the routing, the output, and the weights of experts that have a
    token move once.
    """
    rows = shape.T * shape.k
    active = sum(load > 0 for load in loads(shape.routing, shape.E, shape.k, shape.T))
    products = 6 * rows * shape.H * shape.I
    return Work(
        flops=products + rows * (shape.I + 2 * shape.H) - shape.T * shape.H,
        bytes=active * 6 * shape.H * shape.I + 4 * shape.T * shape.H + 8 * rows,
        dtype="bfloat16",
    )
