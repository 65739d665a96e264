"""Measure packages of ``ship`` as people have them: with `kernels` and torch, no workbench.

    python -P benchmarks/shipped.py RESULTS FOLDER     # adds RESULTS/NAME.json
    python -m benchmarks.shipped RESULTS --write       # the table of docs/ship.md

Nothing else should be at work on the GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

CALLS, ROUNDS = 20, 15  # calls in a graph or a loop, and how often that is timed
HEAD = (
    "package", "at", "shapes", "in a graph (µs)", "reference (µs)", "host time (µs)",
    "reference (µs)", "`kernels benchmark`",
)  # fmt: skip


def in_graph(call: Callable[[], Any]) -> float:
    """Microseconds of a call, of many in a CUDA graph."""
    import torch

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    taken = []
    for _ in range(ROUNDS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        taken.append(float(first.elapsed_time(last)) * 1000 / CALLS)
    return median(taken)


def on_host(call: Callable[[], Any]) -> float:
    """Microseconds until a call returns, whatever the GPU then still has to do."""
    import torch

    taken = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        taken.append((time.perf_counter() - started) * 1e6 / CALLS)
    return median(taken)


def fallback(op: Any, inputs: dict[str, Any], changed: Callable[[Any], Any]) -> dict[str, Any]:
    """Call the operator with inputs that it was not checked for: its warnings, and whether they
    come with the reference's result.
    """
    import torch

    others = {name: changed(x) if torch.is_tensor(x) else x for name, x in inputs.items()}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        out = op._tensors(op.run(*others.values()))
    right = all(map(torch.equal, out, op.reference(**others)))
    return {"is_right": right, "warnings": [str(warning.message) for warning in told]}


def measured(folder: Path) -> dict[str, Any]:
    """Load a package, which may build it; time it beside its reference, and benchmark it."""
    import torch
    from kernels import get_local_kernel  # type: ignore[attr-defined]  # not the folder here

    started = time.perf_counter()
    op = get_local_kernel(folder).op
    import_seconds, study = time.perf_counter() - started, op.study()
    shape = study.default_shape
    inputs = study.inputs(study.shapes[shape], torch.Generator("cuda").manual_seed(1))
    values = list(inputs.values())
    op.strict(True)
    calls = {"package": lambda: op.run(*values), "reference": lambda: op.reference(**inputs)}
    graph_us = {name: in_graph(call) for name, call in calls.items()}
    host_us = {name: on_host(call) for name, call in calls.items()}
    op.strict(False)
    texts = [path.read_text("utf-8") for path in folder.glob("torch-ext/*/sources/*.py")]
    language = "Triton" if any("import triton" in text for text in texts) else "PyTorch"
    return {
        "name": "a kept file of `try`" if shape == "given" else f"{op.FUNCTION} `{op.VARIANT}`",
        "language": "CUDA" if op.FACTS["capabilities"] else language,
        "shape": shape,
        "sizes": "x".join(map(str, values[0].shape)),
        "checked": len(op.FACTS["checked"]),
        "import_seconds": import_seconds,
        "graph_us": graph_us,
        "host_us": host_us,
        "other_types": fallback(op, inputs, lambda x: x.double() if x.is_floating_point() else x),
        "other_shapes": fallback(op, inputs, lambda x: x[None]),
        "benchmark": benchmarked(folder),
        "gpu": torch.cuda.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {name: version(name) for name in ("torch", "triton", "kernels")},
    }


def benchmarked(folder: Path) -> dict[str, float]:
    """Run ``kernels benchmark``: by shape, how many times as fast as the reference."""
    command = ["-c", "from kernels.cli import main; main()", "benchmark", str(folder)]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=folder, check=False
    )
    sys.stderr.write(done.stdout + done.stderr)
    ratios = re.findall(r"^  (\w+): ([\d.]+)x faster", done.stderr, re.MULTILINE)
    return {shape: float(ratio) for shape, ratio in ratios}


def page(text: str, packages: Sequence[dict[str, Any]]) -> str:
    """Return docs/ship.md with the figures of these packages."""
    from tools.pages import table, with_part

    rows = []
    for package in packages:
        shape = package["shape"]
        ratio = package["benchmark"][re.sub(r"\W", "_", shape)]
        figures = [*package["graph_us"].values(), *package["host_us"].values()]
        rows.append(
            [
                f"{package['name']} ({package['language']})",
                package["sizes"] if shape == "given" else shape,
                package["checked"],
                *(f"{figure:.3g}" for figure in figures),
                f"{ratio:.2f}x",
            ]
        )
    return with_part(text, "shipped", table(HEAD, rows, left=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if folder := options.folder and options.folder.resolve():
        text = json.dumps(measured(folder), indent=1)
        (options.results / f"{folder.name}.json").write_text(text, "utf-8")
    if options.write:
        from tools.pages import DOCS, write

        texts = [path.read_text("utf-8") for path in sorted(options.results.glob("*.json"))]
        ship = DOCS / "ship.md"
        write({ship: page(ship.read_text("utf-8"), list(map(json.loads, texts)))})


if __name__ == "__main__":
    main()
