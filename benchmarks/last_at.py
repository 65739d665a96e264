"""The last step of attention and all references, timed at shapes of the study and at derived ones:

    python -m benchmarks.last_at 'b2h8s*' 'b2h16*,dtype=bfloat16' ...     on a GPU

Each is the name of shapes that are profiled, or a pattern of it, and what is to be set there. What
is on record and current is not timed again. `benchmarks.sizes` tells of it in docs/sizes.md.
Exit codes: 0 done, 1 a variant failed, 2 no such shape, 3 no GPU, 130 interrupted.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Sequence

import typer
from benchmarks.sizes import ATTENTION, ROOT

from workbench.commands.measuring import ensure_timed
from workbench.commands.progress import note
from workbench.commands.target import target_at
from workbench.errors import UsageError, WorkbenchError
from workbench.study.model import Study
from workbench.study.shapes import Picked, pick_shapes
from workbench.study.workspace import find_workspace


def shapes_at(study: Study, wanted: Sequence[str]) -> list[Picked]:
    """In the order in which they are wanted. Raises UsageError for a pattern that fits none, and
    for what cannot be set.
    """
    profiled = [name for name, shape in study.shapes.items() if shape.profiled]
    found: list[Picked] = []
    for one in wanted:
        pattern, comma, values = one.partition(",")
        names = fnmatch.filter(profiled, pattern)
        if not names:
            raise UsageError(f"no shape is like {pattern!r}", hint=", ".join(profiled))
        found += (each for name in names for each in pick_shapes(study, name + comma + values)[0])
    return found


def main(wanted: Sequence[str]) -> int:
    workspace = find_workspace(ROOT)
    study = workspace.study(ATTENTION.study)
    references = [r.name for r in study.ladder.references if not r.captured]
    checked: set[str] = set()
    failed = False
    try:
        for target in [target_at(workspace, each) for each in shapes_at(study, wanted)]:
            ensured = ensure_timed(target, [ATTENTION.variant, *references], checked=checked)
            checked |= set(ensured.timed) - ensured.failures.keys()
            for name, why in ensured.failures.items():
                note(f"error: {name} at {target.shape}: {why}")
            failed = failed or bool(ensured.failures)
    except WorkbenchError as error:
        note(f"error: {error.message}\nhint: {error.hint}")
        return error.exit_code
    except typer.Exit as interrupted:  # what was finished is kept
        return interrupted.exit_code
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
