"""Whole models with attention by this repository's kernel, by SDPA and by FlashAttention-4.

    python -m benchmarks.models [--models llama bert] [--sessions 5] [--keep]

Models of transformers with random weights, about a billion parameters each; nothing is downloaded.
Each session is a process of its own. Writes benchmarks/recorded/models.json and the tables of
docs/models.md; with ``--keep`` sessions are added to those on record, where the sources are the
same. Needs a GPU that the kernels are made for, torch, transformers 5.x and cuda-core.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import multiprocessing
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from benchmarks.models_page import (
    FA4,
    IMPLEMENTATIONS,
    MODELS,
    NONE,
    OURS,
    RECORDED,
    SDPA,
    TOKENS,
    Errors,
    Model,
    Recording,
    Session,
    launched,
    load,
    save,
    sources,
    write,
)

from workbench.study.workspace import find_workspace, load_module

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "kernels" / "attention_served"
ROUNDS = 12
WARM_SECONDS = 0.3
LOGITS = 512  # positions at the end whose logits are compared
SECONDS = 240  # of a session


def attention_of(name: str) -> Callable[..., torch.Tensor]:
    """``attention(q, k, v, causal)`` as the adapter takes it. Raises ImportError."""
    if name == OURS:
        return load_module(STUDY / "chosen.py", "models_chosen").run  # type: ignore[no-any-return]
    if name == FA4:
        return load_module(STUDY / "fa4.py", "models_fa4").run  # type: ignore[no-any-return]
    # Neither scores nor anything in place of them: what is left is the rest of the model.
    return lambda q, k, v, causal: q.transpose(1, 2).contiguous()


def register(adapter: ModuleType, wanted: Sequence[str]) -> tuple[str, ...]:
    """Those that are ``wanted`` and here, by the names transformers knows them under. Those of the
    adapter raise where they would have to fall back. Nobody is made a mask, which nothing here
    needs: transformers makes none for names that have no function for it.
    """
    transformers: Any = import_module("transformers")
    sdpa: Any = import_module("transformers.integrations.sdpa_attention")
    found = []
    for name in wanted:
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
    """The logits of the last ``kept`` positions, or all that a model without a choice gives."""
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


def timed(model: Model, made: Any, names: tuple[str, ...], length: int, rounds: int) -> Session:
    """The median of ``rounds`` in random order, in milliseconds, of each implementation: in CUDA
    graphs, and as Python launches it.
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
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            took[name].append(milliseconds(graphs[name]))
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            made.set_attn_implementation(name)
            torch.cuda.synchronize()
            start = time.perf_counter()
            forward(model, made, tokens, 1)
            torch.cuda.synchronize()
            took.setdefault(launched(name), []).append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times) for name, times in took.items()}


def errors(model: Model, made: Any, names: tuple[str, ...], length: int) -> Errors:
    """The relative error of each implementation's logits of the last positions, against those of
    the same weights and tokens in float32.
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


def session(to: Connection, asked: argparse.Namespace, first: bool) -> None:
    """In a process of its own; the first one compares logits too."""
    try:
        with torch.no_grad():
            adapter = load_module(STUDY / "adapters" / "transformers.py", "models_adapter")
            known = register(adapter, asked.implementations)
            for name in asked.models:
                model = MODELS[name]
                made = build(model)
                to.send(("parameters", name, sum(p.numel() for p in made.parameters())))
                for length in asked.tokens:
                    to.send(
                        ("times", name, length, timed(model, made, known, length, asked.rounds))
                    )
                    gc.collect()
                    torch.cuda.empty_cache()
                for length in asked.tokens if first else ():
                    to.send(("errors", name, length, errors(model, made, known, length)))
                del made
                gc.collect()
                torch.cuda.empty_cache()
    except BaseException:
        to.send(("failed", traceback.format_exc()))
    finally:
        to.close()


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def environment(to: Connection) -> None:
    from workbench.run.worker.device import environment as found

    try:
        here = found()
    except (AssertionError, RuntimeError):  # without a GPU, or without one that works
        to.send(None)
    else:
        to.send((here.gpu, here.driver, here.torch))
    to.close()


def measured(
    recording: Recording, asked: argparse.Namespace, keep: Callable[[Recording], None]
) -> bool:
    """Adds sessions to a recording, handed to ``keep`` after each; whether all were whole."""
    context, whole = multiprocessing.get_context("spawn"), True
    for number in range(asked.sessions):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=session, args=(theirs, asked, number == 0))
        process.start()
        theirs.close()
        until = time.monotonic() + SECONDS
        while ours.poll(max(0.0, until - time.monotonic())):
            try:
                what, *told = ours.recv()
            except EOFError:
                break
            if what == "failed":
                print(told[0], file=sys.stderr)
                whole = False
            elif what == "parameters":
                recording.parameters[told[0]] = told[1]
            elif what == "times":
                recording.add_times(*told)
            else:
                recording.add_errors(*told)
            print(what, *told, flush=True)
        process.join(5)
        if process.is_alive():
            process.kill()
            whole = False
        keep(recording)
    return whole


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--tokens", nargs="+", type=int, default=list(TOKENS))
    parser.add_argument("--implementations", nargs="+", choices=IMPLEMENTATIONS,
                        default=list(IMPLEMENTATIONS))  # fmt: skip
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--keep", action="store_true", help="add to what is on record")
    parser.add_argument("--to", type=Path, default=RECORDED)
    given = parser.parse_args(arguments)
    try:
        transformers: Any = import_module("transformers")
        for name in given.models:
            getattr(transformers, MODELS[name].kind)
    except ImportError as error:
        print(f"error: {error}\nhint: pip install transformers", file=sys.stderr)
        return 3
    context = multiprocessing.get_context("spawn")  # transformers may have used the driver
    ours, theirs = context.Pipe(duplex=False)
    asked = context.Process(target=environment, args=(theirs,))
    asked.start()
    theirs.close()
    here = ours.recv()
    asked.join()
    if here is None:
        print(
            "error: there is no GPU here\nhint: the page shows what is on record", file=sys.stderr
        )
        return 3
    study = find_workspace(ROOT).study("attention_served")
    recording = load(given.to) if given.keep and given.to.is_file() else None
    if recording is None or recording.sources != sources(study):
        recording = Recording(sources=sources(study))
    recording.gpu, recording.driver, with_torch = here
    recording.date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    recording.packages = {"torch": with_torch, "transformers": transformers.__version__}
    recording.packages["flash-attn-4"] = installed("flash-attn-4")
    whole = measured(recording, given, lambda one: save(one, given.to))
    if given.to == RECORDED:
        write(recording)
    if not whole:
        return 4
    most, worst = find_workspace(ROOT).config.gates.max_error, recording.worst_error()
    print(f"worst error of logits: {worst:.3f} of SDPA's, at most {most} is allowed")
    return 0 if worst <= most else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
