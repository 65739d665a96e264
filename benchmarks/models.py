"""Whole models with attention by this repository's kernel, by SDPA and by FlashAttention-4.

    python -m benchmarks.models [--sessions 5]      measure, on a GPU, and write docs/models.md
    python -m benchmarks.models --tables            write the tables from what is recorded

Models of transformers with random weights, about a billion parameters each; nothing is downloaded.
A session is a process of its own. Writes benchmarks/recorded/models.json after each session. Needs
a GPU of compute capability 9.0, torch, transformers 5.x, cuda-core, and optionally flash-attn-4.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch
from tools.pages import DOCS, ROOT, with_part
from tools.pages import table as markdown
from tools.pages import write as write_pages

from workbench.cuda.compiler import package_version
from workbench.derive.speedup import over_sessions
from workbench.render.doc import number, percent
from workbench.run.worker.timing.graphs import captured
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace, load_module

STUDY = ROOT / "kernels" / "attention_served"
PAGE = DOCS / "models.md"
RECORDED = ROOT / "benchmarks" / "recorded" / "models.json"
OURS, SDPA, FA4, NONE = "workbench", "sdpa_unmasked", "fa4", "no_attention"
TOKENS = (512, 2048, 8192)  # of a forward pass
ROUNDS, WARM_SECONDS = 12, 0.3
LOGITS = 512  # positions at the end whose logits are compared
SECONDS = 240  # limit of a session

Figures = dict[str, float]  # by implementation: milliseconds, or the relative error of logits


class Model(NamedTuple):
    """``config`` and ``kind`` are classes of transformers. A forward pass is one sequence, or
    several of the ``longest`` that the model takes.
    """

    title: str
    config: str
    kind: str
    dtype: str
    settings: dict[str, int]
    longest: int = 1 << 20

    def batch(self, tokens: int) -> int:
        return max(1, tokens // self.longest)


def llama(title: str, heads: int, head_dim: int, vocabulary: int) -> Model:
    settings = {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": head_dim,
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "vocab_size": vocabulary,
    }  # fmt: skip
    return Model(f"Llama-like{title}", "LlamaConfig", "LlamaForCausalLM", "bfloat16", settings)


OF_128 = ": 16 layers, 16 heads of 128 over 8 of keys, causal, bf16"
LIKE_1B = ", the shape of Llama-3.2-1B: 16 layers, 32 heads of 64 over 8 of keys, causal, bf16"
MODELS = {
    "llama": llama(LIKE_1B, 32, 64, 128256),
    "llama-d128": llama(OF_128, 16, 128, 32000),
    "bert": Model(
        "BERT-like: 32 layers, 24 heads of 64, fp16, sequences of 512 tokens",
        "BertConfig", "BertForMaskedLM", "float16",
        {
            "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 32,
            "num_attention_heads": 24, "vocab_size": 30522, "max_position_embeddings": 512,
        },
        longest=512,
    ),
}  # fmt: skip


class Measured(msgspec.Struct, kw_only=True):
    """Where and when a file of benchmarks/recorded was measured."""

    gpu: str = ""
    driver: str = ""
    date: str = ""
    packages: dict[str, str] = msgspec.field(default_factory=dict)

    def begin(self, *packages: str) -> None:
        self.date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.packages = {name: package_version(name) for name in packages}

    def name_gpu(self) -> None:
        """Makes a CUDA context."""
        from workbench.run.worker.device import environment

        here = environment()
        self.gpu, self.driver = here.gpu or "", here.driver or ""

    @property
    def provenance(self) -> str:
        packages = ", ".join(f"{name} {of}" for name, of in self.packages.items() if of)
        return f"{self.gpu}, driver {self.driver}, {self.date[:10]}; {packages}"

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


M = TypeVar("M", bound=Measured)


def read(path: Path, kind: type[M]) -> M:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def in_process(start: str, seconds: float, work: Callable[..., None], *given: object) -> bool:
    """Whether a process of its own did the work, and in this time."""
    context: Any = multiprocessing.get_context(start)
    process = context.Process(target=work, args=given)
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return bool(process.exitcode == 0)


class Recording(Measured, kw_only=True):
    """``times`` are by model and number of tokens, one mapping a session; ``sources`` is the
    kernel's fingerprint.
    """

    sources: str
    parameters: dict[str, int] = msgspec.field(default_factory=dict)
    times: dict[str, dict[int, list[Figures]]] = msgspec.field(default_factory=dict)
    errors: dict[str, dict[int, Figures]] = msgspec.field(default_factory=dict)

    def worst_error(self) -> float:
        """The largest error of our logits as a multiple of SDPA's; NaN if one is NaN."""
        every = [e[OURS] / e[SDPA] for by in self.errors.values() for e in by.values()]
        return math.nan if any(map(math.isnan, every)) else max(every, default=0.0)


def launched(implementation: str) -> str:
    """The key of its time without a CUDA graph, Python and launches included."""
    return f"{implementation}, launched"


def sources(study: Study) -> str:
    """The fingerprint of the kernels that run; neither of the adapter nor of the launch."""
    return Fingerprints(study).of_sources("chosen")


# ---- the tables ------------------------------------------------------------------------------
HEADER = (
    "tokens", "SDPA (ms)", "FlashAttention-4 (ms)", "ours (ms)",
    "ours vs the faster of both [95 % interval]", "share of attention, SDPA → ours",
    "ours vs SDPA without a graph", "error of logits ÷ SDPA's",
)  # fmt: skip


def ratio(sessions: list[Figures], other: str, ours: str) -> str:
    """The geometric mean over sessions, with its 95 % interval."""
    found = over_sessions([math.log(one[other] / one[ours]) for one in sessions])
    ends = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{number(found.value)}x{ends}"


def share(sessions: list[Figures], implementation: str) -> str:
    """Of a forward pass, the part saved if attention returns its queries unchanged."""
    return percent(fmean(1 - session[NONE] / session[implementation] for session in sessions))


def row(recording: Recording, name: str, tokens: int) -> tuple[str, ...]:
    batch, sessions = MODELS[name].batch(tokens), recording.times[name][tokens]
    means = {
        each: number(geometric_mean([one[each] for one in sessions]))
        for each in (SDPA, FA4, OURS)
        if all(each in one for one in sessions)
    }
    others = [each for each in (SDPA, FA4) if each in means]
    best = min(others, key=lambda other: sum(one[other] for one in sessions))
    errors = recording.errors.get(name, {}).get(tokens)
    eager = all(launched(OURS) in one for one in sessions)
    return (
        f"{tokens}" if batch == 1 else f"{batch} × {tokens // batch}",
        *(means.get(each, "not collected") for each in (SDPA, FA4, OURS)),
        f"{ratio(sessions, best, OURS)} ({'SDPA' if best == SDPA else 'FlashAttention-4'})",
        f"{share(sessions, SDPA)} → {share(sessions, OURS)}",
        ratio(sessions, launched(SDPA), launched(OURS)) if eager else "not collected",
        f"{errors[OURS] / errors[SDPA]:.3f}x" if errors else "not collected",
    )


def described(recording: Recording, name: str) -> str:
    title, times = MODELS[name].title, recording.times.get(name)
    if not times:
        return f"- `{name}`: {title}: not collected."
    count, size = min(map(len, times.values())), recording.parameters[name] / 1e9
    sessions = f"{count} session{'s' * (count > 1)}"
    return f"- `{name}`: {title}; {size:.2f} billion parameters, {sessions}."


def tables(recording: Recording) -> str:
    """What each model is, and the results of all in one table."""
    rows = [
        (f"`{name}`", *row(recording, name, tokens))
        for name in MODELS
        for tokens in sorted(recording.times.get(name, ()))
    ]
    lines = "\n".join(described(recording, name) for name in MODELS)
    return f"{lines}\n\n{markdown(('model', *HEADER), rows, left=1)}\n"


def page(text: str, recording: Recording, present: str) -> str:
    """The page with its table written again. ``present`` is the fingerprint of the kernel's
    present sources.
    """
    note = " The kernel's sources have changed since." * (present != recording.sources)
    body = f"{recording.provenance}.{note}\n\n{tables(recording)}"
    return with_part(text, "models: passes", body)


# ---- measuring -------------------------------------------------------------------------------
def registered() -> Iterator[str]:
    """The implementations that can be imported here, by the names transformers knows them under.
    Those of the adapter raise where they would fall back. None gets a mask: transformers makes none
    for names that have no function for it.
    """
    transformers: Any = import_module("transformers")
    adapter = load_module(STUDY / "adapters" / "transformers.py", "models_adapter")
    sdpa: Any = import_module("transformers.integrations.sdpa_attention")

    def none(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        return q.transpose(1, 2).contiguous()  # the rest of the model

    for name, variant in ((SDPA, ""), (FA4, "fa4"), (OURS, "chosen"), (NONE, "")):
        try:
            run = load_module(STUDY / f"{variant}.py", f"models_{variant}").run if variant else none
            strict = adapter.implementation(run, strict=True)
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        called = sdpa.sdpa_attention_forward if name == SDPA else strict
        transformers.AttentionInterface.register(name, called)
        yield name


def build(model: Model) -> Any:
    """With random weights, as its class draws them, on the GPU."""
    transformers: Any = import_module("transformers")
    config = getattr(transformers, model.config)(**model.settings)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, model.dtype))
    try:
        with torch.device("cuda"):
            return getattr(transformers, model.kind)(config).eval()
    finally:
        torch.set_default_dtype(before)


def forward(made: Any, tokens: torch.Tensor, kept: int) -> torch.Tensor:
    """The logits of the last ``kept`` positions, or all if the model has no such option."""
    is_bert = made.config.model_type == "bert"
    options = {} if is_bert else {"use_cache": False, "logits_to_keep": kept}
    return made(tokens, **options).logits  # type: ignore[no-any-return]


def milliseconds(work: Callable[[], Any], *, by_events: bool) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    before = time.perf_counter()
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) if by_events else (time.perf_counter() - before) * 1e3


def drawn(model: Model, length: int) -> torch.Tensor:
    batch = model.batch(length)
    return torch.randint(model.settings["vocab_size"], (batch, length // batch), device="cuda")


def timed(made: Any, names: Sequence[str], tokens: torch.Tensor) -> Figures:
    """Milliseconds, medians of ``ROUNDS`` in random order: in CUDA graphs, and as Python launches
    each implementation.
    """
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    for name in names:
        made.set_attn_implementation(name)
        for _ in range(2):
            forward(made, tokens, 1)
        graphs[name] = captured(partial(forward, made, tokens, 1), torch.cuda.Stream())
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        for graph in graphs.values():
            graph.replay()
        torch.cuda.synchronize()
    took: dict[str, list[float]] = {}
    for eager in (False, True):
        for _ in range(ROUNDS):
            for name in random.sample(list(graphs), len(graphs)):
                made.set_attn_implementation(name)
                work = partial(forward, made, tokens, 1) if eager else graphs[name].replay
                key = launched(name) if eager else name
                took.setdefault(key, []).append(milliseconds(work, by_events=not eager))
    return {name: median(times) for name, times in took.items()}


def errors_of(made: Any, names: Sequence[str], tokens: torch.Tensor) -> Figures:
    """The relative error of the logits of the last positions, against float32 with the same weights
    and tokens.
    """
    found = {}
    for name in names:
        if name != NONE:
            made.set_attn_implementation(name)
            found[name] = forward(made, tokens, LOGITS)[:, -LOGITS:].float()
    exact = copy.deepcopy(made).float()
    exact.set_attn_implementation(SDPA)
    wanted = forward(exact, tokens, LOGITS)[:, -LOGITS:]
    norm = wanted.double().norm()
    return {name: float((one - wanted).double().norm() / norm) for name, one in found.items()}


@torch.no_grad()
def session(first: bool) -> None:
    """Add a session, which this process is for; the first one also compares logits."""
    recording = read(RECORDED, Recording)
    recording.name_gpu()
    names = list(registered())
    for name, model in MODELS.items():
        made = build(model)
        recording.parameters[name] = sum(p.numel() for p in made.parameters())
        for length in TOKENS:
            times = recording.times.setdefault(name, {}).setdefault(length, [])
            times.append(timed(made, names, drawn(model, length)))
            gc.collect()
            torch.cuda.empty_cache()
        for length in TOKENS if first else ():
            errors = recording.errors.setdefault(name, {})
            errors[length] = errors_of(made, names, drawn(model, length))
        recording.write(RECORDED)
        del made
        gc.collect()
        torch.cuda.empty_cache()


def written() -> dict[Path, str]:
    study = find_workspace(ROOT).study("attention_served")
    return {PAGE: page(PAGE.read_text("utf-8"), read(RECORDED, Recording), sources(study))}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    workspace = find_workspace(ROOT)
    whole = True
    if not given.tables:
        found = Recording(sources=sources(workspace.study("attention_served")))
        found.begin("torch", "transformers", "flash-attn-4")
        found.write(RECORDED)
        for count in range(given.sessions):
            whole &= in_process("spawn", SECONDS, session, count == 0)
    write_pages(written())
    most, worst = workspace.config.gates.max_error, read(RECORDED, Recording).worst_error()
    print(f"worst error of logits: {worst:.3f} of SDPA's, at most {most} is allowed")
    return 4 if not whole else int(not worst <= most)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
