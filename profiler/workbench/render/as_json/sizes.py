"""Times over a range of shapes under ``--json``."""

from __future__ import annotations

from typing import Any

from workbench.judge.sizes import OverSizes


def sizes(over: OverSizes) -> dict[str, Any]:
    return {
        "study": over.study,
        "gpu": over.gpu,
        "warnings": over.warnings,
        "parameter": over.parameter,
        "others": over.others,
        "shapes": [{"shape": shape, "size": size} for shape, size in over.sizes.items()],
        "variants": [
            {
                "variant": line.variant,
                "reference": line.is_reference,
                "mean_over_fastest_reference": line.mean,
                "at": [
                    {
                        "shape": point.shape,
                        "size": point.size,
                        "microseconds": point.time,
                        "rate": point.rate,
                        "unit": "FLOP/s" if over.in_flops else "byte/s",
                        "share_of_measured": point.share,
                        "ceiling": point.of or None,
                        "fastest_reference": point.fastest or None,
                        "over_fastest_reference": point.over_fastest,
                    }
                    for point in line.points
                ],
            }
            for line in over.lines
        ],
    }
