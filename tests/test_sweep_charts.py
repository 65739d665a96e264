"""Pictures of sweeps and sizes: well-formed, within their width, and nothing left out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from workbench.derive.speedup import Time
from workbench.judge.fates import Fate
from workbench.judge.sizes import AtSize, OverSizes, SizeLine
from workbench.judge.sweep import Combination, Sweep
from workbench.render.chart import svg
from workbench.render.chart.lettering import text_width
from workbench.render.chart.scene import Anchor, Outline, Polygon, Scene, Sign, Width, labels
from workbench.render.chart.size_lines import shown, size_lines
from workbench.render.chart.sweep_chart import sweep_chart
from workbench.words import Origin, Parameter, Regime


def time(value: float) -> Time:
    return Time(value, 0.9 * value, 1.1 * value, Regime.CHAINED, 5, 20)


def sweep(axes: dict[str, tuple[Parameter, ...]], lost: int = 1) -> Sweep:
    """Of which the last ``lost`` were refused; the second is the default."""
    found: list[dict[str, Parameter]] = [{}]
    for name, values in axes.items():
        found = [{**one, name: value} for one in found for value in values]
    last = len(found) - lost
    return Sweep(
        study="study",
        shape="large",
        gpu="nvidia-h200",
        base="fix",
        axes=axes,
        combinations=tuple(
            Combination(
                variant=f"fix[{n}]",
                values=values,
                is_default=n == 1,
                fate=Fate.TIMED if n < last else Fate.REFUSED,
                time=time(5.0 + n) if n < last else None,
            )
            for n, values in enumerate(found)
        ),
        source=Origin.MEASURED,
    )


def inside(scene: Scene) -> None:
    for one in labels(scene.items):
        wide = text_width(one.text, one.size, bold=one.bold)
        left = one.at[0] - {Anchor.START: 0, Anchor.MIDDLE: wide / 2, Anchor.END: wide}[one.anchor]
        assert left >= -1, one
        assert left + wide <= scene.width + 1, one
        assert 0 <= one.at[1] <= scene.height, one
    for file in svg.files(scene):
        ElementTree.fromstring(file)


@pytest.mark.parametrize("width", Width)
@pytest.mark.parametrize(
    "axes",
    [
        {"warps": (2, 4, 8)},
        {"warps": (2, 4, 8), "block": (64, 128)},
        {"warps": (2, 4, 8), "block": (64, 128), "fast": (False, True)},
        {"a_parameter_with_a_very_long_name": (1, 2, 3, 4, 5, 6, 7, 8), "b": (1, 2)},
        {"warps": tuple(range(1, 101))},
    ],
)
def test_a_sweep_is_drawn_whatever_its_parameters(
    axes: dict[str, tuple[Parameter, ...]], width: Width
) -> None:
    found = sweep(axes)
    scene = sweep_chart(found, width)
    inside(scene)
    if len(axes) == 2:
        cells = [item for item in scene.items if isinstance(item, Polygon)]
        assert len(cells) == len(found.timed)
        assert {"best", "default"} <= {one.text for one in labels(scene.items)}
        frames = [item for item in scene.items if isinstance(item, Outline)]
        assert len(frames) == 3  # of the best, of the default, of the one that was refused
    elif len(found.combinations) <= 40:
        signs = [item for item in scene.items if isinstance(item, Sign)]
        assert len(signs) == len(found.combinations) + 3  # and those of the key


def over(names: int, references: int = 1) -> OverSizes:
    sizes = {f"n{2**i}": float(2**i) for i in range(4, 12)}
    lines = [
        SizeLine(
            variant=f"v{n}",
            is_reference=n >= names - references,
            points=tuple(AtSize(s, v, time((n + 1) * v), 1e12 / (n + 1)) for s, v in sizes.items()),
        )
        for n in range(names)
    ]
    return OverSizes("study", "nvidia-h200", "n", sizes, {"rows": 2}, tuple(lines), in_flops=True)


@pytest.mark.parametrize("width", Width)
@pytest.mark.parametrize("names", [1, 2, 7, 30])
def test_sizes_are_drawn_whatever_their_number(names: int, width: Width) -> None:
    inside(size_lines(over(names), width))


def test_the_fastest_and_the_references_have_names() -> None:
    found = over(30, references=2)
    named, others = shown(found)
    assert named[0].variant == "v0"  # the fastest
    assert {"v28", "v29"} <= {line.variant for line in named}
    assert len(named) + len(others) == 30
