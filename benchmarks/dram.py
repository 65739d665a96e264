"""Reads from DRAM of every recorded capture whose inputs L2 cannot hold, by the `work` cross-check.

The kernels are honest, so this is the distribution that the bound of the cross-check rests on.

python -m benchmarks.dram      exits with 1 if the cross-check rejects one
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.judge.cross_checks import LEAST_WORK, case_of, work_gate
from workbench.judge.findings import Finding
from workbench.judge.snapshot import snapshot
from workbench.judge.view import Views
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]


def reads(root: Path) -> Iterator[tuple[str, Finding]]:
    """Study, shape and variant of each, and what the cross-check says of its reads."""
    for study in find_workspace(root).studies():
        captured = (root / "ablations" / study).glob("evidence/*/*/captures/*")
        for shape in sorted({path.parent.parent.name for path in captured}):
            target = find_target(Local(), root, study, shape)
            taken = snapshot(target.evidence(), target.steps([]))
            view = Views(taken, target.workspace.config, taken.names).table
            for variant in view.evidence.variants:
                why = work_gate(case_of(view, variant)).why
                parts = why.values.get("findings", ())
                for found in (why, *(parts if isinstance(parts, tuple) else ())):
                    if isinstance(found, Finding) and found.code.startswith("work.reads"):
                        yield f"{study} | {shape} | {variant}", found


def main() -> int:
    print("| study | shape | variant | inputs, MB | read / inputs | read / least that passes |")
    print("| --- | --- | --- | --: | --: | --: |")
    ratios, margins, rejected = [], [], 0
    for name, found in reads(ROOT):
        done, needed, inputs = (float(str(found.values[k])) for k in ("done", "needed", "inputs"))
        ratios.append(done / inputs)
        margins.append(done / (LEAST_WORK * needed))
        rejected += found.code == "work.reads_missing"
        print(f"| {name} | {inputs / 1e6:.1f} | {ratios[-1]:.3f} | {margins[-1]:.2f} |")
    print(f"\n{len(ratios)} captures, {rejected} rejected")
    print(f"read / inputs: least {min(ratios):.3f}, median {median(ratios):.3f}")
    print(f"read / least that passes: least {min(margins):.2f}")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
