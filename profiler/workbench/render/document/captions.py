"""The alternative text of every chart, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SIZES = "sizes"
CAPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "times": (
            "Time per call of each variant, baseline to fastest, on a logarithmic axis.",
            "Each variant changes the one above it. Dashed lines are references. An open mark is a "
            "variant that was not kept at this size. Times are per call inside a CUDA graph, "
            "between two other kernels: one writes the inputs, one reads the output.",
        ),
        "roofline": (
            "Roofline over {level}: the work that the problem needs, over the time and the bytes "
            "moved.",
            "Height is the FLOP that the problem needs over the time under ncu: it ranks the "
            "kernels. Work that a kernel does twice, or for nothing, does not count. The slope is "
            "what {level} can feed; the flat lines are what each kind of arithmetic can compute, "
            "at the clocks of one capture. A percentage is of the roof over the point.",
        ),
        "stall-time": (
            "Time under ncu by stall reason, each variant beside its parent.",
            "Each pair is on the scale of its parent: compare lengths within a pair only. A colour "
            "is its share of the warp state samples times the duration under ncu. Without that "
            "stall, less than its length would be saved.",
        ),
        SIZES: (
            "Time of the best variant and of the references at each size.",
            "A row is a size, with the best variant's time. A mark is a time there as a multiple "
            "of that one: right of 1x it is slower. Times are per call, between two other kernels.",
        ),
    }
)


def caption_of(name: str, level: str = "") -> tuple[str, str]:
    """Return alternative text and caption of a chart; ``level`` is the memory that feeds it."""
    alt, caption = CAPTIONS[name]
    return alt.format(level=level.upper()), caption.format(level=level.upper())
