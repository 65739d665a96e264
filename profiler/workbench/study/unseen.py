"""Shapes that a variant has not seen, drawn from the ranges that ``study.py`` promises.

The draw is seeded with the variant's sources: who edits them gets other shapes, and a replay the
same ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.errors import UsageError
from workbench.study.model import Study
from workbench.study.params import derived
from workbench.study.sources import plain_digest

DRAWN = 3
MOST = 1 << 48
ATTEMPTS = 20  # of a study whose ``shape_name`` refuses some


@dataclass(frozen=True)
class UnseenShapes:
    """``study`` has them among its shapes; ``seed`` is hexadecimal. No names without ranges.

    The first is a large one, and there times are compared: at a small one they are those of a
    launch, and say little of a kernel.
    """

    study: Study
    names: tuple[str, ...] = ()
    seed: str = ""


def ranges_of(study: Study) -> Mapping[str, range]:
    """Parameter to its values: ``ranges = {"rows": range(1, 8193)}`` of study.py. Raises UsageError
    for anything else.
    """
    found = getattr(study.module, "ranges", {})
    known = study.shapes[study.default_shape].parameters
    for name, values in found.items() if isinstance(found, dict) else [("ranges", found)]:
        ends = (values[0], values[-1]) if isinstance(values, range) and values else (0,)
        if name not in known or not all(1 <= end <= MOST for end in ends):
            raise UsageError(
                f"{study.folder / 'study.py'}: 'ranges' must be a dict of parameters to ranges of "
                f"whole numbers from 1 to 2^48, which '{name}' is not",
                hint='such as ranges = {"rows": range(1, 8193)}',
            )
    return found


def unseen_shapes(study: Study, variant: str) -> UnseenShapes:
    """Raises UsageError for ranges that are none."""
    ranges = ranges_of(study)
    if not ranges or variant not in study.variants:
        return UnseenShapes(study)
    seed = plain_digest(study, study.variants[variant])[:8]
    drawing, own = random.Random(seed), set(study.shapes)
    names: list[str] = []
    for _ in range(ATTEMPTS):
        values = {n: _drawn(drawing, every, not names) for n, every in sorted(ranges.items())}
        try:
            picked = derived(study, study.default_shape, values)
        except UsageError:  # the study has no inputs for it
            continue
        if picked.name not in own:
            study, own = picked.study, {*own, picked.name}
            names.append(picked.name)
        if len(names) == DRAWN:
            break
    return UnseenShapes(study, tuple(names), seed)


def _drawn(drawing: random.Random, values: range, large: bool) -> int:
    """As many small as large ones: even over the logarithm, or over its upper half."""
    low, high = sorted((values[0], values[-1]))
    least = math.sqrt(low * high) if large else low
    aimed = math.exp(drawing.uniform(math.log(least), math.log(high)))
    return values[min(len(values) - 1, round(abs(aimed - values[0]) / abs(values.step)))]
