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
import functools
import gc
import math
import multiprocessing
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from types import ModuleType
from typing import Any

import msgspec
import torch

from workbench.derive.speedup import Interval, over_sessions
from workbench.render.numbers import number, percent
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace, load_module

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "kernels" / "attention_served"
PAGE = ROOT / "docs" / "models.md"
RECORDED = ROOT / "benchmarks" / "recorded" / "models.json"
TABLE = re.compile(r"(<!-- models: (?P<name>\w+) -->\n).*?(<!-- /models -->)", re.DOTALL)
OURS, SDPA, FA4, NONE = "workbench", "sdpa_unmasked", "fa4", "no_attention"
IMPLEMENTATIONS = (SDPA, FA4, OURS, NONE)
TOKENS = (512, 2048, 8192)  # of a forward pass
ROUNDS = 12
WARM_SECONDS = 0.3
LOGITS = 512  # positions at the end whose logits are compared
SECONDS = 240  # limit of a session

Session = dict[str, float]  # implementation to milliseconds; see ``launched``
Errors = dict[str, float]  # implementation to the relative error of its logits


@dataclass(frozen=True)
class Model:
    """``config`` and ``kind`` are classes of transformers. A forward pass is one sequence, or
    several of the ``longest`` that the model takes.
    """

    title: str
    config: str
    kind: str
    dtype: str
    settings: Mapping[str, Any]
    keeps_logits: bool = False
    longest: int = 1 << 20

    def batch(self, tokens: int) -> int:
        return max(1, tokens // self.longest)


def llama(title: str, heads: int, head_dim: int, **settings: Any) -> Model:
    every = {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": head_dim,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        **settings,
    }
    return Model(title, "LlamaConfig", "LlamaForCausalLM", "bfloat16", every, keeps_logits=True)


MODELS = {
    "llama": llama(
        "Llama-like, the shape of Llama-3.2-1B: 16 layers, 32 heads of 64 over 8 of keys, causal, "
        "bf16",
        heads=32,
        head_dim=64,
        vocab_size=128256,
    ),
    "llama-d128": llama(
        "Llama-like: 16 layers, 16 heads of 128 over 8 of keys, causal, bf16",
        heads=16,
        head_dim=128,
        vocab_size=32000,
    ),
    "bert": Model(
        "BERT-like: 32 layers, 24 heads of 64, fp16, sequences of 512 tokens",
        "BertConfig",
        "BertForMaskedLM",
        "float16",
        {
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
        longest=512,
    ),
}


class Recording(msgspec.Struct, kw_only=True):
    """``times`` are by model and number of tokens, one mapping a session; ``sources`` is the
    kernel's fingerprint.
    """

    sources: str
    gpu: str = ""
    driver: str = ""
    date: str = ""
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    parameters: dict[str, int] = msgspec.field(default_factory=dict)
    times: dict[str, dict[int, list[Session]]] = msgspec.field(default_factory=dict)
    errors: dict[str, dict[int, Errors]] = msgspec.field(default_factory=dict)

    def add_times(self, model: str, tokens: int, session: Session) -> None:
        self.times.setdefault(model, {}).setdefault(tokens, []).append(session)

    def add_errors(self, model: str, tokens: int, errors: Errors) -> None:
        self.errors.setdefault(model, {})[tokens] = errors

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


def current(study: Study) -> Recording | None:
    """The record, if it was made with the kernel's present sources."""
    if not RECORDED.is_file():
        return None
    recording = msgspec.json.decode(RECORDED.read_bytes(), type=Recording)
    return recording if recording.sources == sources(study) else None


# ---- the tables ------------------------------------------------------------------------------
HEADER = (
    "tokens",
    "SDPA (ms)",
    "FlashAttention-4 (ms)",
    "ours (ms)",
    "ours vs the faster of both [95 % interval]",
    "share of attention, SDPA → ours",
    "ours vs SDPA without a graph",
    "error of logits ÷ SDPA's",
)


def of_sessions(sessions: list[Session], figure: Callable[[Session], float]) -> Interval:
    """The geometric mean of a figure of each session, with the 95 % interval over them."""
    return over_sessions([math.log(figure(session)) for session in sessions])


def ratio(sessions: list[Session], other: str, ours: str) -> str:
    found = of_sessions(sessions, lambda one: one[other] / one[ours])
    ends = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{number(found.value)}x{ends}"


def share(sessions: list[Session], implementation: str) -> str:
    """Of a forward pass, the part saved if attention returns its queries unchanged."""
    return percent(fmean(1 - session[NONE] / session[implementation] for session in sessions))


def row(recording: Recording, name: str, tokens: int) -> tuple[str, ...]:
    model, sessions = MODELS[name], recording.times[name][tokens]
    batch, missing = model.batch(tokens), "not collected"

    def milliseconds_of(implementation: str) -> str:
        if implementation not in sessions[0]:
            return missing
        return number(of_sessions(sessions, lambda one: one[implementation]).value)

    others = [other for other in (SDPA, FA4) if all(other in one for one in sessions)]
    best = min(others, key=lambda other: sum(one[other] for one in sessions))
    errors = recording.errors.get(name, {}).get(tokens)
    eager = all(launched(OURS) in one for one in sessions)
    return (
        f"{tokens}" if batch == 1 else f"{batch} × {tokens // batch}",
        *map(milliseconds_of, (SDPA, FA4, OURS)),
        f"{ratio(sessions, best, OURS)} ({'SDPA' if best == SDPA else 'FlashAttention-4'})",
        f"{share(sessions, SDPA)} → {share(sessions, OURS)}",
        ratio(sessions, launched(SDPA), launched(OURS)) if eager else missing,
        f"{errors[OURS] / errors[SDPA]:.3f}x" if errors else missing,
    )


def table(recording: Recording, name: str) -> str:
    """One model's results in Markdown, below a line that describes the model."""
    title, times = MODELS[name].title, recording.times.get(name)
    if not times:
        return f"{title}: not collected.\n"
    count = min(map(len, times.values()))
    size = recording.parameters[name] / 1e9
    rows = [HEADER, ("---:",) * len(HEADER), *(row(recording, name, n) for n in sorted(times))]
    lines = [f"{title}; {size:.2f} billion parameters, {count} session{'s' * (count > 1)}.", ""]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"


def page(text: str, recording: Recording | None) -> str:
    """The page with its tables written again; without a record they say "Not collected."."""

    def part(match: re.Match[str]) -> str:
        name = match["name"].replace("_", "-")
        if recording is None:
            body = "Not collected.\n"
        elif name == "provenance":
            packages = ", ".join(f"{p} {v}" for p, v in recording.packages.items() if v)
            body = (
                f"{recording.gpu}, driver {recording.driver}, {recording.date[:10]}; {packages}.\n"
            )
        else:
            body = table(recording, name)
        return f"{match[1]}{body}{match[3]}"

    return TABLE.sub(part, text)


# ---- measuring -------------------------------------------------------------------------------
def attention_of(name: str) -> Callable[..., torch.Tensor]:
    """``attention(q, k, v, causal)`` as the adapter takes it. Raises ImportError."""
    if name == NONE:  # the rest of the model
        return lambda q, k, v, causal: q.transpose(1, 2).contiguous()
    variant = "chosen" if name == OURS else "fa4"
    return load_module(STUDY / f"{variant}.py", f"models_{variant}").run  # type: ignore[no-any-return]


def register(adapter: ModuleType) -> tuple[str, ...]:
    """The implementations that can be imported here, by the names transformers knows them under.
    Those of the adapter raise where they would fall back. None gets a mask: transformers makes none
    for names that have no function for it.
    """
    transformers: Any = import_module("transformers")
    sdpa: Any = import_module("transformers.integrations.sdpa_attention")
    found = []
    for name in IMPLEMENTATIONS:
        try:
            called = (
                sdpa.sdpa_attention_forward
                if name == SDPA
                else adapter.implementation(attention_of(name), strict=True)
            )
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        transformers.AttentionInterface.register(name, called)
        found.append(name)
    return tuple(found)


def build(model: Model) -> Any:
    """With random weights, as its class draws them, on the GPU."""
    transformers: Any = import_module("transformers")
    config = getattr(transformers, model.config)(**model.settings)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, model.dtype))
    try:
        with torch.device("cuda"):
            made = getattr(transformers, model.kind)(config)
    finally:
        torch.set_default_dtype(before)
    return made.eval()


def forward(model: Model, made: Any, tokens: torch.Tensor, kept: int) -> torch.Tensor:
    """The logits of the last ``kept`` positions, or all if the model has no such option."""
    if model.keeps_logits:
        return made(tokens, use_cache=False, logits_to_keep=kept).logits  # type: ignore[no-any-return]
    return made(tokens).logits  # type: ignore[no-any-return]


def captured(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.capture_begin()
        work()
        graph.capture_end()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def drawn(model: Model, length: int) -> torch.Tensor:
    batch = model.batch(length)
    return torch.randint(model.settings["vocab_size"], (batch, length // batch), device="cuda")


def timed(model: Model, made: Any, names: Sequence[str], length: int) -> Session:
    """Milliseconds, medians of ``ROUNDS`` in random order: in CUDA graphs, and as Python launches
    each implementation.
    """
    tokens = drawn(model, length)
    graphs = {}
    for name in names:
        made.set_attn_implementation(name)
        graphs[name] = captured(functools.partial(forward, model, made, tokens, 1))
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        for graph in graphs.values():
            graph.replay()
        torch.cuda.synchronize()
    took: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name in random.sample(list(graphs), len(graphs)):
            took[name].append(milliseconds(graphs[name]))
    for _ in range(ROUNDS):
        for name in random.sample(list(graphs), len(graphs)):
            made.set_attn_implementation(name)
            torch.cuda.synchronize()
            start = time.perf_counter()
            forward(model, made, tokens, 1)
            torch.cuda.synchronize()
            took.setdefault(launched(name), []).append((time.perf_counter() - start) * 1e3)
    return {name: median(times) for name, times in took.items()}


def errors_of(model: Model, made: Any, names: Sequence[str], length: int) -> Errors:
    """The relative error of the logits of the last positions, against float32 with the same weights
    and tokens.
    """
    tokens = drawn(model, length)
    found = {}
    for name in names:
        if name != NONE:
            made.set_attn_implementation(name)
            found[name] = forward(model, made, tokens, LOGITS)[:, -LOGITS:].float()
    exact = copy.deepcopy(made).float()
    exact.set_attn_implementation(SDPA)
    wanted = forward(model, exact, tokens, LOGITS)[:, -LOGITS:]
    norm = wanted.double().norm()
    return {name: float((one - wanted).double().norm() / norm) for name, one in found.items()}


def session(to: Connection, first: bool) -> None:
    """In a process of its own; the first one also compares logits."""
    from workbench.run.worker.device import environment

    try:
        here = environment()
        to.send(("machine", here.gpu, here.driver, here.torch))
        with torch.no_grad():
            known = register(load_module(STUDY / "adapters" / "transformers.py", "models_adapter"))
            for name, model in MODELS.items():
                made = build(model)
                to.send(("parameters", name, sum(p.numel() for p in made.parameters())))
                for length in TOKENS:
                    to.send(("times", name, length, timed(model, made, known, length)))
                    gc.collect()
                    torch.cuda.empty_cache()
                for length in TOKENS if first else ():
                    to.send(("errors", name, length, errors_of(model, made, known, length)))
                del made
                gc.collect()
                torch.cuda.empty_cache()
    except BaseException:
        to.send(("failed", traceback.format_exc()))
    finally:
        to.close()


def add_session(recording: Recording, first: bool) -> bool:
    """Runs one session; whether all of it was measured."""
    context, whole = multiprocessing.get_context("spawn"), True
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=session, args=(theirs, first))
    process.start()
    theirs.close()
    until = time.monotonic() + SECONDS
    while ours.poll(max(0.0, until - time.monotonic())):
        try:
            what, *found = ours.recv()
        except EOFError:
            break
        print(what, *found, flush=True)
        if what == "failed":
            whole = False
        elif what == "machine":
            recording.gpu, recording.driver, recording.packages["torch"] = found
        elif what == "parameters":
            recording.parameters[found[0]] = found[1]
        elif what == "times":
            recording.add_times(*found)
        else:
            recording.add_errors(*found)
    process.join(5)
    if process.is_alive():
        process.kill()
        return False
    return whole


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    workspace = find_workspace(ROOT)
    study, whole = workspace.study("attention_served"), True
    if not given.tables:
        recording = Recording(sources=sources(study))
        recording.date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        known = ("torch", "transformers", "flash-attn-4")
        recording.packages = {package: installed(package) for package in known}
        for count in range(given.sessions):
            whole = add_session(recording, count == 0) and whole
            if recording.times:
                RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(recording)) + b"\n")
    found = current(study)
    PAGE.write_text(page(PAGE.read_text("utf-8"), found), "utf-8")
    if found is None:
        print("error: nothing is recorded of these sources", file=sys.stderr)
        return 3
    most, worst = workspace.config.gates.max_error, found.worst_error()
    print(f"worst error of logits: {worst:.3f} of SDPA's, at most {most} is allowed")
    return 4 if not whole else int(not worst <= most)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
