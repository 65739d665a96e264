"""The memory hierarchy: counters of several units agree with each other on recorded captures."""

from __future__ import annotations

import pytest

from workbench.derive.figures import MEMORY_LEVELS, Figure, figures
from workbench.ncu.capture import find_metric, load_capture
from workbench.ncu.catalog import catalog
from workbench.render.document import pair
from workbench.render.document.blocks import Table, plain
from workspaces import (
    CAUSAL,
    FLUSHED,
    SHOWN,
    YOUNGER,
    output_of,
    recorded_capture,
    recorded_range,
)


def known(shape: str, variant: str) -> dict[str, Figure]:
    return figures(recorded_capture(shape, variant).metrics)


def test_every_level_is_a_figure_of_the_catalogue() -> None:
    assert set(MEMORY_LEVELS) <= set(catalog())


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        *((SHOWN, variant) for variant in ("baseline", "fix2", "fix4", "fix7", "sdpa_flash")),
        *((CAUSAL, variant) for variant in ("fix9", "fix10", "sdpa")),
    ],
)
def test_levels_agree_with_each_other(shape: str, variant: str) -> None:
    found = known(shape, variant)
    value = {key: found[key].value for key in MEMORY_LEVELS if key in found}
    younger = {key for key in MEMORY_LEVELS if YOUNGER.issuperset(catalog()[key].names)}
    lacking = {"sectors_per_request", "sectors_per_store"} | younger
    assert set(MEMORY_LEVELS) - value.keys() <= lacking
    for requests, ratio, through in (
        ("global_load_requests", "sectors_per_request", "global_read"),
        ("global_store_requests", "sectors_per_store", "global_write"),
    ):
        if ratio in value:
            assert value[through] == pytest.approx(32 * value[requests] * value[ratio])
        else:
            assert value[requests] == value[through] == 0
    assert value["bulk_read"] <= value["l2_to_l1"] * 1.001
    assert value["local_read"] == value["local_write"] == 0 or not variant.startswith("fix")
    assert 0 <= value["l1_hit"] <= 100


@pytest.mark.parametrize("variant", ["baseline", "fix1", "fix4", "fix7", "sdpa"])
def test_l1_gets_no_less_than_l2_is_asked_for(variant: str) -> None:
    """Several SMs that ask for one sector at once may be answered with one read of it."""
    rows = find_metric(*recorded_range(FLUSHED, variant), "lts__t_sectors_srcunit_tex_op_read.sum")
    asked = sum(32e-6 * float(row.value or 0) for row in rows)
    got = figures(load_capture(*recorded_range(FLUSHED, variant)).metrics)["l2_to_l1"].value
    assert 0 < asked <= 1.05 * got


def test_show_and_diff_have_it_as_a_table() -> None:
    shown = output_of("show fix7")
    assert "| L2 to L1, bulk copies (TMA) " in shown
    assert "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum" in shown
    compared = output_of("diff fix6 fix7")
    assert "| L2 to L1, bulk copies (TMA) (MB) " in compared
    assert "Local loads through L1" not in compared  # nothing on either side


def test_a_diff_tells_what_was_not_collected_from_what_stayed_at_zero() -> None:
    zero = Figure("local_read", "Local loads through L1", 0.0, "MB", "m")
    (shown,) = pair.memory(("a", "b"), {"local_read": zero}, {}).blocks
    assert isinstance(shown, Table)
    rows = {
        row.key: [plain(row.cells[side].text) for side in ("before", "after")] for row in shown.rows
    }
    assert rows["local_read"] == ["0", "not collected"]
    assert rows["local_write"] == ["not collected", "not collected"]
    (shown,) = pair.memory(("a", "b"), {"local_read": zero}, {"local_read": zero}).blocks
    assert isinstance(shown, Table)
    assert "local_read" not in {row.key for row in shown.rows}
