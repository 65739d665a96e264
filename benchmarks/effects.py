"""Whole models with and without a kernel: the predicted gain beside the measured one.

    python -m benchmarks.effects [--pairs 24]       measure, on a GPU, and write docs/models.md
    python -m benchmarks.effects --tables           write the table from what is recorded

A model runs in two CUDA graphs, one with each implementation, in pairs of alternating order. The
prediction needs no model with the kernel: ``workbench weigh`` of a torch.profiler trace gives the
time in the replaced calls, and one such call is timed alone on the model's own tensors. Each row
has a process of its own. Writes benchmarks/recorded/effects.json after each. Needs what
``benchmarks.models`` needs, and triton.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any
from unittest.mock import patch

import msgspec
import torch
from benchmarks.models import (
    MODELS,
    PAGE,
    Measured,
    Model,
    build,
    drawn,
    forward,
    in_process,
    milliseconds,
    read,
)
from tools.pages import ROOT, with_parts
from tools.pages import table as markdown
from tools.pages import write as write_pages

from workbench import cuda
from workbench.app.target import find_recorded
from workbench.cli.streams import executor
from workbench.cli.weigh import weigh
from workbench.derive.speedup import T_975, over_sessions, quantile_of
from workbench.render.doc import number
from workbench.run.worker.timing.graphs import captured
from workbench.study.workspace import load_module

RECORDED = ROOT / "benchmarks" / "recorded" / "effects.json"
EVIDENCE = "nvidia-h100-80gb-hbm3"  # the recorded ratios of ``weigh``
STEPS = 3  # of the model in a trace
RUN_MS, ALONE_MS, WARM_SECONDS = 20.0, 2.0, 0.3
MOST_PAIRS = 100_000
REPLACED = "benchmarks::replaced"

# Around a call of the model: the stock call, and the tensors that a variant gets in its place.
Around = Callable[..., torch.Tensor]
Installed = Callable[[Any, Around], Any]


# ---- what is replaced ------------------------------------------------------------------------
def attend(made: Any, function: Callable[..., Any]) -> None:
    """Let the model use this attention. A name without a mask function gets no mask."""
    transformers: Any = import_module("transformers")
    transformers.AttentionInterface.register("replaced", function)
    made.set_attn_implementation("replaced")


def sdpa(*arguments: Any, **keywords: Any) -> Any:
    module: Any = import_module("transformers.integrations.sdpa_attention")
    return module.sdpa_attention_forward(*arguments, **keywords)


def eager(module: Any, q: Any, k: Any, v: Any, mask: Any, **keywords: Any) -> Any:
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.matmul(weights, v).transpose(1, 2).contiguous(), None


@contextmanager
def attention(made: Any, around: Around) -> Iterator[None]:
    """Replace SDPA, and the copy of its result, in every layer."""

    def call(module: Any, q: Any, k: Any, v: Any, mask: Any, **keywords: Any) -> Any:
        said = keywords.get("is_causal")
        causal = bool(getattr(module, "is_causal", True) if said is None else said)
        return around(lambda: sdpa(module, q, k, v, mask, **keywords)[0], q, k, v, causal), None

    attend(made, call)
    yield


@contextmanager
def softmax(made: Any, around: Around) -> Iterator[None]:
    """Replace every softmax: those of attention in a BERT-like model, where it is two matrix
    products with a softmax between them.
    """
    stock = torch.nn.functional.softmax

    def call(x: torch.Tensor, dim: int) -> torch.Tensor:
        return around(lambda: stock(x, dim=dim), x)

    attend(made, eager if made.config.model_type == "bert" else sdpa)
    with patch.object(torch.nn.functional, "softmax", call):
        yield


@contextmanager
def experts(made: Any, around: Around) -> Iterator[None]:
    """Replace the experts of every layer: sorting, both products, and the weighted sum."""
    kind = type(made.model.layers[0].mlp.experts)
    stock = kind.forward

    def call(self: Any, x: Any, ids: Any, weights: Any) -> torch.Tensor:
        given = (x, ids, weights, self.gate_up_proj, self.down_proj)
        return around(lambda: stock(self, x, ids, weights), *given)

    attend(made, sdpa)
    with patch.object(kind, "forward", call):
        yield


def by_rows(run: Around, x: torch.Tensor) -> torch.Tensor:
    return run(x.reshape(-1, x.shape[-1])).view(x.shape)


def routed(run: Around, x: Any, ids: Any, weights: Any, *products: Any) -> torch.Tensor:
    return run(x, ids.int(), weights.float(), *products)


# ---- the rows --------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Pair:
    """A kernel and a model. ``passed`` hands the model's tensors to the variant."""

    title: str
    study: str
    variant: str
    model: Model
    tokens: int
    installed: Installed
    passed: Callable[..., torch.Tensor] = lambda run, *given: run(*given)
    parameters: tuple[tuple[str, int], ...] = ()
    samples: bool = False  # draws the next token's probabilities, too

    @property
    def called(self) -> str:
        values = ",".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.variant}[{values}]" if values else self.variant

    def load(self) -> Around:
        path = ROOT / "kernels" / self.study / f"{self.variant}.py"
        with cuda.overridden(dict(self.parameters)):
            run = load_module(path, f"effects_{self.study}").run
        return lambda stock, *given: self.passed(run, *given)

    def step(self, made: Any, tokens: torch.Tensor) -> torch.Tensor:
        logits = forward(made, tokens, 1)
        return torch.nn.functional.softmax(logits[:, -1], dim=-1) if self.samples else logits


BERT = MODELS["bert"]
LONG_BERT = BERT._replace(
    settings=BERT.settings | {"num_hidden_layers": 8, "max_position_embeddings": 4096},
    longest=4096,
)
MOE = Model(
    "", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", "bfloat16",
    {
        "hidden_size": 2048, "moe_intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 32000,
        "max_position_embeddings": 8192, "norm_topk_prob": True,
    },
)  # fmt: skip
attending = partial(Pair, study="attention_served", variant="chosen", installed=attention)
streaming = partial(
    Pair, study="softmax", variant="fused", parameters=(("warps", 8), ("streaming", 1)),
    installed=softmax, passed=by_rows,
)  # fmt: skip
PAIRS = {
    "llama-8192": attending(title="Llama-like, heads of 64", model=MODELS["llama"], tokens=8192),
    "llama-d128-8192": attending(
        title="Llama-like, heads of 128", model=MODELS["llama-d128"], tokens=8192
    ),
    "bert-eager": streaming(title="BERT-like, eager attention", model=LONG_BERT, tokens=8192),
    "llama-512": attending(title="Llama-like, heads of 64", model=MODELS["llama"], tokens=512),
    "bert": attending(title="BERT-like, 4 × 512", model=BERT, tokens=2048),
    "llama-sampled": streaming(
        title="Llama-like, SDPA; the next token's probabilities",
        model=MODELS["llama-d128"], tokens=2048, samples=True,
    ),
    "experts": Pair(
        title="Qwen3-MoE-like", study="moe", variant="fix26", model=MOE, tokens=8192,
        installed=experts, passed=routed,
    ),
}  # fmt: skip


class Effect(msgspec.Struct, kw_only=True):
    """``milliseconds`` are of a step without the kernel in a graph, ``replaced`` of its replaced
    calls in the trace. ``alone`` is the ratio of a replaced call, ``largest`` the largest recorded.
    ``error`` is how far the logits of both are apart, relative. ``pairs`` have milliseconds without
    and with.
    """

    kernel: str
    milliseconds: float
    replaced: float
    calls: float
    extents: str
    alone: float
    largest: float
    at: str
    error: float
    pairs: list[tuple[float, float]]

    @property
    def share(self) -> float:
        return self.replaced / self.milliseconds

    @property
    def most(self) -> float:
        return self.share * (1 - 1 / self.largest)

    @property
    def predicted(self) -> float:
        return self.share * (1 - 1 / self.alone)

    @property
    def logarithms(self) -> list[float]:
        return [math.log(without / with_) for without, with_ in self.pairs]


class Recording(Measured, kw_only=True):
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)


# ---- the table -------------------------------------------------------------------------------
HEADER = (
    "model", "tokens", "kernel", "step (ms)", "replaced calls", "recorded: at most",
    "kernel alone", "predicted", "measured [95 % interval]", "logits differ by",
)  # fmt: skip


def saved(ratio: float) -> str:
    return f"{100 * (1 - 1 / ratio):.2f}"


def needed(logarithms: Sequence[float]) -> int | None:
    """Count the pairs that would resolve the mean from 0, were it right; None for too many."""
    mean, spread = abs(fmean(logarithms)), stdev(logarithms)
    fits = (
        n for n in range(2, MOST_PAIRS)
        if quantile_of(T_975, n - 1) * spread < mean * math.sqrt(n)
    )  # fmt: skip
    return next(fits, None)


def measured(effect: Effect) -> str:
    found = over_sessions(effect.logarithms)
    assert found.low is not None
    assert found.high is not None
    text = f"{saved(found.value)} % [{saved(found.low)}, {saved(found.high)}]"
    if found.low < 1 < found.high:
        pairs = needed(effect.logarithms)
        fewest = f"fewer than {pairs}" if pairs else f"{MOST_PAIRS:,}"
        text += f": cannot be resolved with {fewest} pairs"
    return text


def row(name: str, effect: Effect) -> tuple[str, ...]:
    pair = PAIRS[name]
    return (
        pair.title, str(pair.tokens), f"{pair.study}, `{effect.kernel}`",
        number(effect.milliseconds), f"{effect.calls:g}, {100 * effect.share:.2f} %",
        f"{100 * effect.most:.2f} %", f"{effect.alone:.3g}x", f"{100 * effect.predicted:.2f} %",
        measured(effect), f"{100 * effect.error:.2g} %",
    )  # fmt: skip


def table(recording: Recording) -> str:
    pairs = min(len(effect.pairs) for effect in recording.effects.values())
    rows = [row(name, effect) for name, effect in recording.effects.items()]
    return f"{recording.provenance}; {pairs} pairs of runs.\n\n{markdown(HEADER, rows, left=3)}\n"


def written() -> dict[Path, str]:
    return {PAGE: with_parts(PAGE, {"models: effects": table(read(RECORDED, Recording))})}


# ---- measuring -------------------------------------------------------------------------------
_STOCK: list[Callable[[], torch.Tensor]] = []


@torch.library.custom_op(REPLACED, mutates_args=())
def replaced(
    a: torch.Tensor, b: torch.Tensor | None = None, c: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute a stock call as one operator of a trace, with all kernels that it launches."""
    return _STOCK[-1]()


def as_operator(stock: Callable[[], torch.Tensor], *given: Any) -> torch.Tensor:
    _STOCK.append(stock)
    try:
        result: torch.Tensor = replaced(*given[:3])
    finally:
        _STOCK.pop()
    return result


def trace(step: Callable[[], Any], path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    plan = torch.profiler.schedule(wait=0, warmup=1, active=STEPS)
    with torch.profiler.profile(
        activities=activities, schedule=plan, record_shapes=True,
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(path)),
    ) as profile:  # fmt: skip
        for _ in range(1 + STEPS):
            step()
            torch.cuda.synchronize()
            profile.step()


def graph_of(work: Callable[[], Any], times: int = 1, beside: Any = None) -> torch.cuda.CUDAGraph:
    def repeated() -> None:
        for _ in range(times):
            work()

    return captured(repeated, torch.cuda.Stream(), beside)


def paired(
    graphs: Sequence[torch.cuda.CUDAGraph], pairs: int, ms: float
) -> list[tuple[float, float]]:
    """Milliseconds of a replay of both, in alternating order. A run is as many replays as take
    ``ms``.
    """
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
    once = min(milliseconds(graph.replay, by_events=True) for graph in graphs)
    times = max(1, round(ms / max(once, 1e-3)))

    def run(graph: torch.cuda.CUDAGraph) -> float:
        def replays() -> None:
            for _ in range(times):
                graph.replay()

        return milliseconds(replays, by_events=True) / times

    made = []
    for index in range(pairs):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        took = {which: run(graphs[which]) for which in order}
        made.append((took[0], took[1]))
    return made


def alone(stock: Callable[[], Any], variant: Callable[[], Any]) -> float:
    """Time one replaced call beside the variant's: the ratio of medians."""
    for work in (stock, variant):
        for _ in range(3):
            work()
    times = max(1, round(ALONE_MS / max(milliseconds(stock, by_events=True), 1e-3)))
    graphs = [graph_of(work, times) for work in (stock, variant)]
    took = paired(graphs, 12, ALONE_MS)
    return median(a for a, _ in took) / median(b for _, b in took)


@torch.no_grad()
def effect_of(pair: Pair, pairs: int) -> Effect:
    made, tokens = build(pair.model), drawn(pair.model, pair.tokens)
    run, step = pair.load(), partial(pair.step, made, tokens)
    seen: list[Any] = []

    def stock_call(stock: Callable[[], torch.Tensor], *given: Any) -> torch.Tensor:
        seen[:] = [stock, *given]
        return stock()

    with pair.installed(made, stock_call):
        step()
        stock, *given = seen
        ratio = alone(stock, partial(run, stock, *given))
        seen.clear()
    graphs: list[torch.cuda.CUDAGraph] = []
    outputs: list[torch.Tensor] = []
    for around in (lambda stock, *given: stock(), run):
        with pair.installed(made, around):
            step()
            outputs.append(step().double())
            graphs.append(graph_of(step, beside=graphs[0] if graphs else None))
    error = float((outputs[1] - outputs[0]).norm() / outputs[0].norm())
    took = paired(graphs, pairs, RUN_MS)
    with tempfile.TemporaryDirectory() as folder, pair.installed(made, as_operator):
        path = Path(folder) / "trace.json"
        trace(step, path)
        target = find_recorded(executor(), ROOT, pair.study, None, gpu=EVIDENCE)
        weights = weigh(path, target, pair.called, [REPLACED])
    assert weights.ratio is not None
    own = [w for w in weights.weighed.weights if w.operator == REPLACED]
    return Effect(
        kernel=pair.called,
        milliseconds=median(without for without, _ in took),
        replaced=sum(w.microseconds for w in own) / weights.weighed.steps / 1e3,
        calls=sum(w.calls for w in own) / weights.weighed.steps,
        extents="; ".join(w.extents for w in own),
        alone=ratio,
        largest=weights.ratio,
        at=weights.shape,
        error=error,
        pairs=took,
    )


def measure(name: str, pairs: int) -> None:
    """Add one row to the recording; this process is for it alone."""
    recording = read(RECORDED, Recording)
    recording.name_gpu()
    recording.effects[name] = effect_of(PAIRS[name], pairs)
    recording.write(RECORDED)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--rows", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--more", action="store_true", help="keep the other rows as they are")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of all rows")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    if not given.tables:
        # A fork has what was imported here, and a CUDA context of its own: none may be made here.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        for model in {PAIRS[name].model.kind for name in given.rows}:
            getattr(import_module("transformers"), model)
        recording = read(RECORDED, Recording) if given.more else Recording()
        if not given.more:
            recording.begin("torch", "transformers", "triton")
        recording.write(RECORDED)
        ends = time.monotonic() + given.seconds
        for name in given.rows:
            begins = time.monotonic()
            left = max(1.0, ends - begins)
            state = "done" if in_process("fork", left, measure, name, given.pairs) else "failed"
            print(f"{name}: {time.monotonic() - begins:.0f} s, {state}", flush=True)
    write_pages(written())
    recording = read(RECORDED, Recording)
    print(table(recording))
    missing = set(given.rows) - set(recording.effects)
    for name in missing:
        print(f"error: not measured: {name}", file=sys.stderr)
    return 4 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
