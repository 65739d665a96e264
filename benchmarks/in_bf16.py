"""The last step of attention and all references, timed with inputs in bf16 at shapes of the study:

    python -m benchmarks.in_bf16 'b2h16*' ...     names or patterns, on a GPU

What is on record and current is not timed again. `benchmarks.sizes` tells of it in docs/sizes.md.
Exit codes: 0 done, 1 a variant failed, 2 no such shape, 3 no GPU.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Sequence

from benchmarks.sizes import ATTENTION, ROOT

from workbench.commands.measuring import ensure_timed
from workbench.commands.progress import note
from workbench.commands.target import target_at
from workbench.errors import UsageError, WorkbenchError
from workbench.study.model import Study
from workbench.study.shapes import Picked, pick_shapes
from workbench.study.workspace import find_workspace


def shapes_in_bf16(study: Study, patterns: Sequence[str]) -> list[Picked]:
    """Of the shapes that are profiled. Raises UsageError for a pattern that fits none of them."""
    profiled = [name for name, shape in study.shapes.items() if shape.profiled]
    found: list[Picked] = []
    for pattern in patterns:
        names = fnmatch.filter(profiled, pattern)
        if not names:
            raise UsageError(f"no shape is like {pattern!r}", hint=", ".join(profiled))
        found += (each for n in names for each in pick_shapes(study, f"{n},dtype=bfloat16")[0])
    return found


def main(patterns: Sequence[str]) -> int:
    workspace = find_workspace(ROOT)
    study = workspace.study(ATTENTION.study)
    references = [r.name for r in study.ladder.references if not r.captured]
    checked: set[str] = set()
    failed = False
    try:
        for target in [target_at(workspace, each) for each in shapes_in_bf16(study, patterns)]:
            ensured = ensure_timed(target, [ATTENTION.latest, *references], checked=checked)
            checked |= set(ensured.timed) - ensured.failures.keys()
            for name, why in ensured.failures.items():
                note(f"error: {name} at {target.shape}: {why}")
            failed = failed or bool(ensured.failures)
    except WorkbenchError as error:
        note(f"error: {error.message}\nhint: {error.hint}")
        return error.exit_code
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
