"""Whether a variant gives the same bits in every call on the same inputs, on a GPU:

    python -m benchmarks.repeats STUDY VARIANT SHAPE... [--calls N]

At each shape with inputs of every kind that the study checks. Memory that a call is likely to be
given is full of NaN before it, so that what is read before it is written is seen as such. Prints,
for each kind, in how many calls the output differs from that of the first, in how many it has NaN,
and where and by how much; ends with 1 where it does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workbench import cuda
from workbench.errors import EnvironmentLacks, UsageError, WorkbenchError
from workbench.study.params import find_variant
from workbench.study.workspace import find_workspace, load_module

ROOT = Path(__file__).resolve().parents[1]
CALLS = 300
BLOCKS = [1 << shift for shift in range(10, 24)]  # bytes of memory that is made to hold NaN
SHOWN = 3  # calls that differ


def poison() -> None:
    """Fill what the allocator is likely to give next."""
    kept = [torch.full((size // 4,), float("nan"), device="cuda") for size in BLOCKS for _ in "ab"]
    del kept


def repeated(run: Callable[..., torch.Tensor], inputs: Mapping[str, Any], calls: int) -> list[str]:
    """What differs, a line a call, and ahead of them in how many."""
    poison()
    first = run(**inputs).clone()
    lines, nans = [], int(first.isnan().any())
    for number in range(1, calls):
        poison()
        out = run(**inputs)
        nans += int(out.isnan().any())
        if torch.equal(out, first):
            continue
        where = (out != first).nonzero()
        low, high = where.min(0).values.tolist(), where.max(0).values.tolist()
        worst = float((out.double() - first.double()).abs().max())
        lines.append(f"call {number}: {len(where)} in {low} to {high}, by {worst:.3g} at most")
    if not lines and not nans:
        return []
    return [f"{len(lines)} of {calls} calls differ, {nans} have NaN", *lines[:SHOWN]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("study")
    parser.add_argument("variant")
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--calls", type=int, default=CALLS)
    given = parser.parse_args(arguments)
    try:
        if not torch.cuda.is_available():
            raise EnvironmentLacks("there is no GPU", hint="calls are compared on one")
        return compare(given.study, given.variant, given.shapes, given.calls)
    except WorkbenchError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code


def compare(study_name: str, name: str, shapes: Sequence[str], calls: int) -> int:
    """1 where calls differ. Raises UsageError for what the study does not have."""
    study = find_workspace(ROOT).study(study_name)
    if missing := [shape for shape in shapes if shape not in study.shapes]:
        raise UsageError(f"{study_name} has no {', '.join(missing)}", hint="workbench list")
    module: Any = load_module(study.folder / "study.py", "repeated_study")
    found = find_variant(study.folder, name, study.variants)
    with cuda.overridden(dict(found.params)):
        variant: Any = load_module(found.module, "repeated")
    kinds = {"as drawn": None, **getattr(module, "adversarial", {})}
    differs = False
    for shape in shapes:
        for kind_name, kind in kinds.items():
            generator = torch.Generator("cuda").manual_seed(1)
            inputs = module.inputs(study.shapes[shape], generator)
            if kind is not None:
                inputs = kind(inputs, generator)
            lines = repeated(variant.run, inputs, calls)
            differs |= bool(lines)
            print(f"{shape}, {kind_name}: {lines[0] if lines else 'the same bits'}", flush=True)
            for line in lines[1:]:
                print(f"    {line}", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
