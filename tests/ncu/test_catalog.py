"""The catalogue of figures: what is wrong in ``metrics.toml`` is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import UsageError
from workbench.ncu.catalog import METRICS, read_catalog

CYCLES = '[cycles]\nlabel = "Elapsed cycles"\nnames = ["gpc__cycles_elapsed.max"]\nkind = "time"\n'
TEXT = '[kind]\ntime = { unit = "cycle" }\n' + CYCLES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT + CYCLES, "the figure 'cycles' stands twice"),
        (TEXT.replace('kind = "time"', 'kind = "tiem"'), "'cycles' is of the kind 'tiem'"),
        (TEXT + "scales = 2\n", "'cycles': Object contains unknown field `scales`"),
        (
            TEXT.replace('names = ["gpc__cycles_elapsed.max"]\n', ""),
            "'cycles': Object missing required field `names`",
        ),
        (TEXT + CYCLES.replace("[cycles]", "[length]"), "'length' is 'cycles' again"),
    ],
)
def test_a_wrong_entry_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_catalog(path)
    assert caught.value.message == f"{path}: {said}"


def test_ours_has_no_figure_twice() -> None:
    assert len(read_catalog(METRICS)) > 40
