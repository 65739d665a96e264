"""What a mixture of experts costs piece by piece: the kernels that its last step calls, with parts
of their work left out. On a GPU:

    python -m benchmarks.least_experts
    python -m benchmarks.least_experts --page    docs/moe-notes.md, from what is on record

Every form does strictly less than a call has to, so what is fastest of it says how much this
structure could gain at most, and a form that leaves out a piece what that piece costs. Calls have
the weights in several copies in turn, so that L2 has nothing of them that matters; with one token
other experts too, each call between a copy of its token and a sum, which are taken off. Writes
``benchmarks/recorded/least_experts.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Any

from benchmarks.forms import Edit, Form, write_form

from workbench import cuda
from workbench.render.numbers import microseconds
from workbench.study.workspace import load_module

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "kernels" / "moe"
RECORD = ROOT / "benchmarks" / "recorded" / "least_experts.json"
PAGE = ROOT / "docs" / "moe-notes.md"
BLOCK = re.compile(r"(<!-- least -->\n).*?(<!-- /least -->)", re.DOTALL)
MODELS = ("deepseek", "qwen3")
COPIES = 4  # of the weights
ROUNDS, CALLS_ONE, CALLS = 15, 64, 8  # calls of a graph, of one token and of more
ORIGINAL = "original"
TOLERANCE = 0.05  # of the original's output, over 1 + its size


@dataclass(frozen=True)
class Target:
    """With so many tokens the variant is what is called."""

    tokens: int
    variant: str
    forms: tuple[Form, ...]


# ---- what is left out ---------------------------------------------------------------------------
ONE = {
    "waits": (
        Edit(
            "fix24.cu",
            "while (!is_of(call, as_it_is(from + kQuads - 1))) __nanosleep(kPause);",
            ";",
        ),
        Edit(
            "fix24.cu",
            "} while (!__all_sync(~0u, is_there));",
            "} while (call == 0 && !__all_sync(~0u, is_there));",
        ),
    ),
    "products": (
        Edit(
            "fix24.cu",
            """\
                    sum[j] = fmaf(low(two[j]), own[i][2 * j], sum[j]);
                    sum[j] = fmaf(high(two[j]), own[i][2 * j + 1], sum[j]);
""",
            "                    sum[j] += __uint_as_float(two[j]);\n",
        ),
        Edit(
            "fix24.cu",
            """\
        sum[i] = fmaf(low(own[i]), low(other[i]), sum[i]);
        sum[i] = fmaf(high(own[i]), high(other[i]), sum[i]);
""",
            "        sum[i] += __uint_as_float(own[i] ^ other[i]);\n",
        ),
    ),
}
FEW = {
    "products": (
        Edit(
            "fix19.cu",
            """\
                            mma(sum[half % kSets][n], a[part][i][half][0],
                                kRows == 16 ? a[part][i][half][kRows / 8 - 1] : Chunk{},
                                b[own][half][n]);
""",
            "                            sum[half % kSets][n][0] += 1.0f;\n",
        ),
    ),
    "sum": (
        Edit(
            "fix19.py", "    WEIGH[topk][tokens, hidden // 8](rows, place, topk_weights, out)\n", ""
        ),
    ),
}
MANY = {
    "products": (
        Edit(
            "experts.cuh",
            """\
            Wgmma<kN>::run(a, weights + 2 * i, tokens + 2 * i, step + i);
            Wgmma<kN>::run(b, weights + (kPartBytes >> 4) + 2 * i, tokens + 2 * i, step + i);
""",
            "",
        ),
    ),
    "tokens": (
        Edit(
            "experts.cuh",
            "if (16 * i < tile.width) copy_chunk(at + i * (16 * 128),",
            "if (false) copy_chunk(at,",
        ),
    ),
    "h": (
        Edit(
            "fix20.cu",
            "barrier_expect(full, 2 * kPartBytes + boxes * kBoxTokens * 128);",
            "barrier_expect(full, 2 * kPartBytes);",
        ),
        Edit(
            "fix20.cu", "for (int box = 0; box < boxes; ++box)", "for (int box = 0; box < 0; ++box)"
        ),
    ),
    "rows": (
        Edit(
            "fix20.cu",
            "        write_out(a, s.out[group], tile, out, columns, column, group);\n",
            "",
        ),
        Edit(
            "fix20.cu",
            """\
        if (column + 128 < columns)
            write_out(b, s.out[group], tile, out, columns, column + 128, group);
""",
            "",
        ),
    ),
    "sum": (
        Edit(
            "fix20.py", "    weigh[topk][tokens, hidden // 8](rows, place, topk_weights, out)\n", ""
        ),
    ),
}
EDITS: Mapping[str, Mapping[str, tuple[Edit, ...]]] = {"fix24": ONE, "fix19": FEW, "fix20": MANY}

NO_PRODUCTS = Form("nothing multiplied", ("products",))
NO_SUM = Form("no sum of a token's experts", ("sum",))
FEW_FORMS = (Form(ORIGINAL), NO_PRODUCTS, NO_SUM, Form("neither of these", ("products", "sum")))
TARGETS = (
    Target(1, "fix24", (Form(ORIGINAL), NO_PRODUCTS, Form("nobody waits for h", ("waits",)))),
    Target(16, "fix19", FEW_FORMS),
    Target(128, "fix19", FEW_FORMS),
    Target(
        1024,
        "fix20",
        (
            *FEW_FORMS,
            Form("tokens not gathered", ("tokens",)),
            Form("h not read", ("h",)),
            Form("second product not written", ("rows",)),
            Form("weights alone", ("products", "tokens", "h", "rows", "sum")),
        ),
    ),
)


def made(target: Target, form: Form, scratch: Path) -> Path:
    """The folder of a form. Raises Changed."""
    return write_form(FOLDER, target.variant, form, EDITS[target.variant], scratch)


# ---- what is timed ------------------------------------------------------------------------------
class Inputs:
    """Of a model with so many tokens: what call ``number`` of a graph has."""

    def __init__(self, study: ModuleType, shape: Any) -> None:
        import torch

        generator = torch.Generator("cuda").manual_seed(random.randrange(2**48))
        draws = [study.inputs(shape, generator) for _ in range(COPIES)]
        self.first, self.is_one = draws[0], shape.T == 1
        ids = [draws[0]["topk_ids"]]
        if self.is_one:  # the experts dealt out among calls
            order = torch.randperm(shape.E, generator=generator, device="cuda").int()
            ids = [
                order[at : at + shape.k].view(1, -1).contiguous()
                for at in range(0, shape.E - shape.k + 1, shape.k)
            ]
        self.every = [
            {**self.first, "topk_ids": chosen, "w13": draw["w13"], "w2": draw["w2"]}
            for draw, chosen in product(draws, ids)
        ]
        random.shuffle(self.every)
        self.calls = CALLS_ONE if self.is_one else CALLS
        self.source = torch.randn_like(self.first["x"])
        self.sum = torch.zeros_like(self.first["x"])

    def of(self, number: int) -> dict[str, Any]:
        return self.every[number % len(self.every)]


def captured(call: Callable[[int], None], calls: int) -> torch.cuda.CUDAGraph:
    """So many calls, after some that load what they launch."""
    import torch

    for number in range(2):
        call(number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            call(number)
    return graph


def measure(study: ModuleType, target: Target, shape: Any, scratch: Path) -> dict[str, list[float]]:
    """By form, microseconds of a call in each round, in which all forms come in random order."""

    inputs, modules = Inputs(study, shape), []
    right = load_module(FOLDER / "grouped.py", "least_grouped").run(**inputs.of(0)).float()

    def calling(run: Callable[..., torch.Tensor] | None) -> Callable[[int], None]:
        def call(number: int) -> None:
            if inputs.is_one:
                inputs.first["x"].copy_(inputs.source)
            out = inputs.sum if run is None else run(**inputs.of(number))
            if inputs.is_one:
                inputs.sum.add_(out)

        return call

    graphs = {}
    for form in target.forms:
        module: Any = load_module(made(target, form, scratch) / f"{target.variant}.py", "least")
        cuda.take_declared()
        modules.append(module)  # which keeps what its blocks know each other by
        if form.name == ORIGINAL:
            out = module.run(**inputs.of(0)).float()
            error = float(((out - right).abs() / (1 + right.abs())).max())
            if not error < TOLERANCE:
                raise RuntimeError(f"{target.variant}, {target.tokens} tokens: off by {error:.2g}")
        graphs[form.name] = captured(calling(module.run), inputs.calls)
    around = captured(calling(None), inputs.calls) if inputs.is_one else None
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(ROUNDS + 1):
        bare = seconds(around) if around else 0.0
        for name in random.sample(list(graphs), len(graphs)):
            took = (seconds(graphs[name]) - bare) * 1e6 / inputs.calls
            if number > 0:  # the first one warms up
                found[name].append(round(took, 3))
    return found


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of a replay, behind another."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


# ---- what is told -------------------------------------------------------------------------------
def lines(model: str, shapes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of a table of Markdown: a form a row, a number of tokens a column."""
    found = {
        one["tokens"]: {name: median(rounds) for name, rounds in one["microseconds"].items()}
        for one in shapes
        if one["model"] == model
    }
    yield f"| {model} | " + " | ".join(map(str, found)) + " |"
    yield "| --- |" + " --: |" * len(found)
    for name in dict.fromkeys(name for times in found.values() for name in times):
        cells = []
        for times in found.values():
            own = times.get(name)
            over = f" {times[ORIGINAL] / own:.3f}x" if own and name != ORIGINAL else ""
            cells.append(f"{microseconds(own)}{over}" if own else "—")
        yield f"| {name} | {' | '.join(cells)} |"


def page_tables() -> str:
    shapes = json.loads(RECORD.read_text("utf-8"))["shapes"]
    return "\n\n".join("\n".join(lines(model, shapes)) for model in MODELS)


def write_page() -> None:
    text, found = BLOCK.subn(rf"\g<1>{page_tables()}\n\g<2>", PAGE.read_text("utf-8"))
    assert found == 1
    PAGE.write_text(text, "utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    if parser.parse_args(arguments).page:
        write_page()
        return 0
    import torch

    if not torch.cuda.is_available():
        print("error: there is no GPU\nhint: calls are timed on one", file=sys.stderr)
        return 3
    study: Any = load_module(FOLDER / "study.py", "least_study")
    shapes = []
    with tempfile.TemporaryDirectory(prefix="workbench-least-") as folder:
        for model, target in product(MODELS, TARGETS):
            shape = study.shapes[f"{model}-t{target.tokens}"]
            found = measure(study, target, shape, Path(folder))
            shapes.append({"model": model, "tokens": target.tokens, "microseconds": found})
            print(model, target.tokens, {n: median(r) for n, r in found.items()}, flush=True)
            torch.cuda.empty_cache()
    whole = {
        "gpu": torch.cuda.get_device_name(0),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "shapes": shapes,
    }
    RECORD.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
