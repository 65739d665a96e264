"""Which of the rules of ncu are named first, and how well shares of stalls are known."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import pytest

from answers import not_none
from workbench.derive.figures import (
    ISSUING,
    Figure,
    figures,
    stall_shares,
    standard_error,
    top_stall,
)
from workbench.judge.bottlenecks import bottlenecks, parts
from workbench.ncu.capture import (
    LINE_COLUMNS,
    METRIC_COLUMNS,
    RULE_COLUMNS,
    Capture,
    ColumnTable,
    KeptTables,
)
from workbench.ncu.catalog import SAMPLES
from workbench.render import doc
from workbench.render.doc import share as share_text
from workbench.render.document.variant import bottleneck
from workbench.study.files import decompressed


def seen(value: float) -> Figure:
    return Figure("x", "X", value, "u", "m")


def rule(name: str, title: str, estimate: float, scope: str = "global") -> tuple[object, ...]:
    return (0, "k", name, "S", title, "message", scope, estimate, [("metric", 1.0)])


def share(reason: str, value: float) -> tuple[str, Figure]:
    return f"stall.{reason}", Figure(reason, reason, value, "%", "m")


def rules_of(*rows: tuple[object, ...]) -> ColumnTable:
    return ColumnTable([*rows], RULE_COLUMNS)


def lines_of(*samples: tuple[str, int, str, float]) -> ColumnTable:
    """File, line, reason and number."""
    return ColumnTable([(0, "k", *sample) for sample in samples], LINE_COLUMNS)


def test_rules_are_ranked_by_ncu_s_estimates_where_they_bind() -> None:
    found = dict([share("long_scoreboard", 60.0), share("drain", 2.0), share("selected", 20.0)])
    found["achieved_occupancy"], found["theoretical_occupancy"] = seen(6), seen(18)
    rules = rules_of(
        rule("TheoreticalOccupancy", "", 81),
        rule("MemoryCacheAccessPattern", "L1TEX Global Store Access Pattern", 70),
        rule("CPIStall", "Long Scoreboard Stalls", 55),
        rule("HighPipeUtilization", "Low Utilization", 95, "local"),
    )
    file, reason = "/workbench/kernels/s/a.cu", "long_scoreboard"
    lines = lines_of((file, 3, reason, 10.0), (file, 7, reason, 30.0))
    order = bottlenecks(rules, lines, found, {})
    assert [b.rule for b in order] == [
        "MemoryCacheAccessPattern",
        "CPIStall",
        "HighPipeUtilization",  # and not the limit on occupancy, which does not bind
    ]
    assert order[1].hot_line is not None
    assert (order[1].hot_line.line, order[1].hot_line.share) == (7, 0.75)
    assert order[1].value == 60.0


def test_compression_where_nothing_was_allocated_for_it_is_named_last() -> None:
    found = dict([share("long_scoreboard", 60.0), share("selected", 20.0)])
    compression = rule("MemoryL2Compression", "Low Compression Rate", 63)
    for rate, first in ((0.0, "CPIStall"), (0.4, "MemoryL2Compression")):
        focus = [("lrc__average_ilc_input_sector_success_rate.pct", rate)]
        low = (*compression[:-1], [*focus, ("lrc__ilc_input_sectors.sum", 2097706.0)])
        rules = rules_of(low, rule("CPIStall", "Stalls", 30))
        assert bottlenecks(rules, lines_of(), found, {})[0].rule == first


def test_of_several_kernels_the_one_that_takes_long_is_named_first() -> None:
    """An estimate is of its kernel's own runtime."""
    durations = [(0, "long", 90.0), (1, "short", 6.0), (2, "short", 4.0)]
    metrics = ColumnTable(
        [(n, k, "gpu__time_duration.sum", v, "ns") for n, k, v in durations],
        columns=METRIC_COLUMNS,
    )
    part = parts(metrics)
    assert part == {"long": 0.9, "short": 0.1}
    rules = rules_of(
        (1, "short", *rule("CPIStall", "Long Scoreboard Stalls", 80)[2:]),
        (0, "long", *rule("CPIStall", "Long Scoreboard Stalls", 20)[2:]),
    )
    found = dict([share("long_scoreboard", 60.0), share("selected", 20.0)])
    first, second = bottlenecks(rules, lines_of(), found, part)
    assert (first.kernel, first.part, second.kernel) == ("long", 0.9, "short")
    assert (first.metric, first.value) == ("metric", 1.0)  # the kernel's own, not of all
    assert "in long, 90 % of the durations" in doc.plain(bottleneck(first))
    (only,) = bottlenecks(rules_of(*rules.entries[1:]), lines_of(), found, {"long": 1.0})
    assert "durations" not in doc.plain(bottleneck(only))
    assert only.kernel == "long"


def test_without_rules_the_stalls_stand_in() -> None:
    found = dict([share("wait", 40.0), share("selected", 60.0)])
    (only,) = bottlenecks(rules_of(), lines_of(("a.cu", 1, "wait", 4.0)), found, {})
    assert only.title == "Wait stalls"
    assert math.isnan(only.estimated_speedup_pct)


def test_a_roof_within_15_percent_is_named_first_and_advice_without_an_estimate_counts() -> None:
    found = dict([share("long_scoreboard", 60.0), share("wait", 2.0), share("selected", 20.0)])
    found["dram_pct"], found["fma_pipe"] = seen(88), seen(84)
    unrated = rule("SOLBottleneck", "High Throughput", math.nan)
    lines = lines_of(("a.cu", 1, "wait", 4.0))
    levels = {"l2": 30.0, "dram": 85.0}
    roof, advice = bottlenecks(rules_of(unrated), lines, found, {}, levels=levels)
    assert (roof.title, roof.scope, roof.value) == ("DRAM bandwidth", "roof", 88)
    assert doc.plain(bottleneck(roof)) == "DRAM bandwidth at 88 % of its peak (m)"
    assert advice.title == "High Throughput"
    assert "no estimate" in doc.plain(bottleneck(advice))
    (stall,) = bottlenecks(rules_of(), lines, {**found, "dram_pct": seen(50)}, {})
    assert stall.title == "Long scoreboard stalls"


# ---- samples
REPEATS = sorted((Path(__file__).parents[1] / "recorded" / "repeats").glob("*.json.zst"))


def test_a_share_of_506_samples_is_known_to_within_some_points() -> None:
    """The review's example: 70 of 506 are 13.8 ± 1.5 %."""
    error = standard_error(70 / 506, 506)
    assert error == pytest.approx(0.01535, rel=1e-3)
    assert share_text(70 / 506, error) == "13.8 ± 1.5 %"
    assert standard_error(0.5, None) is None
    assert share_text(0.5, None) == "50 %"
    assert share_text(0.44, standard_error(0.44, 1e7)) == "44 %"


def test_of_an_unknown_number_of_samples_there_is_no_error() -> None:
    found = not_none(top_stall({"wait": 0.5, "barrier": 0.5}, None))
    assert (found.reason, found.error) == ("barrier", None)
    assert top_stall({"selected": 1.0}, 100) is None
    assert top_stall({}, 100) is None


@cache
def recorded() -> list[tuple[str, list[Capture]]]:
    """The repeated captures of each variant, or of each of its kernels."""
    found: dict[str, list[Capture]] = {}
    for path in REPEATS:
        for launch in json.loads(decompressed(path.read_bytes()))["launches"]:
            metrics = [tuple(row) for row in launch["metrics"]]
            tables = KeptTables(launch["kernel"], metrics, [], [], frozenset(launch["collected"]))
            name = f"{launch['ranges'][0]} {launch['kernel']}"
            found.setdefault(name, []).append(Capture(path, (tables,)))
    assert {len(captures) for captures in found.values()} == {3}
    assert len(found) == 28
    return sorted(found.items())


def test_captures_differ_in_their_top_stall_within_its_error() -> None:
    """Where they do, at least one of them has another reason that is as near."""
    differing = 0
    for name, captures in recorded():
        tops, near = set(), False
        for capture in captures:
            shares = stall_shares(capture.metrics)
            top = top_stall(shares, figures(capture.metrics)[SAMPLES].value)
            assert top is not None, name
            others = [v for k, v in shares.items() if k not in (top.reason, ISSUING)]
            near |= max(others) + 2 * not_none(top.error) >= top.share
            tops.add(top.reason)
        differing += len(tops) > 1
        assert near or len(tops) == 1, (name, tops)
    assert differing >= 3
