"""The JSON of `ablate`, `show` and `diff` on the fixture workspace holds the figures of b7de5af7.

``fixture/figures.json.zst`` is command to path to value, printed by that commit. Only figures and
verdicts are in it, not sentences. ``RENAMED`` says where a figure is found today; at most 50 lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from answers import json_of
from workspaces import FIXTURE

FIGURES = Path(__file__).parent / "fixture" / "figures.json.zst"
COMMANDS = (
    "ablate --study attention --json",
    "ablate --study softmax --json",
    "ablate --study transpose --all-shapes --json",
    "show fix5 --study attention --json",
    "show fix11[stagger=1] --study attention --json",
    "show sdpa --study attention --json",
    "show fused --study softmax --json",
    "show tma --study transpose --json",
    "diff fix4 fix5 --study attention --json",
    "diff fix6 fix7 --study attention --json",
    "diff online fused --study softmax --json",
    "diff baseline tiled --study transpose --json",
)
# An expression for the start of an old path, and what stands there now: None if it is gone. The
# first that matches counts. The changelog says what to use instead.
RENAMED: dict[str, str | None] = {
    r".*/track_record/nvidia/": None,
    r".*/(recordings|recorded_at|ladders|kernel_against_kernel)/": None,
    r".*/(dram_pct_of_peak|theoretical_occupancy_pct)$": None,
    r"(/tables/[^/]+)?/measured_ceilings/": None,
    # In a table of versions; `show` and `profile` have them of each variant.
    r".*/(versions|references)/[^/]+/(call|bottlenecks|roofline)(/|$)": None,
    r"(.*/versions/[^/]+|.*/references/[^/]+)?/(stall_standard_errors|top_stalls)(/|$)": None,
    r".*/effort(/|$)": None,
    r".*/elsewhere(/|$)": None,
    r"(/tables/[^/]+)?/noise/": None,
    r".*/sharpness(/|$)": None,
    r".*/predictions/(groups/|alpha$)": None,
    r".*/advice/.+/record(/|$)": None,
    # `diff` has what else moved, `advise` the details of its advice.
    r".*/(whole|against_parent)/(moves|launch|following_duration)(/|$)": None,
    r".*/(whole|against_parent|comparison)/rules(/|$)": None,
    r".*/(versions|references)/[^/]+/advice/.+/(limit|line|record|tried)(/|$)": None,
    r".*/track_record/": None,
    r".*/gain_up_to$": None,  # estimates rank, and are not printed
    # What only the caller can do is last, every kernel has some waits, and a stream has no use for
    # fewer instructions: among three are other kinds, or their lines.
    r".*/advice/(issue/less-work|latency\.(wait|barrier)/\w+|launch/early|memory\.dram/\w+)/": None,
    r".*/timing/(alone|copies|is_chained|most|stride|wrong|fewer)(/|$)": None,
    r".*/timing/company/(alone|together|in_cycles|by_time)(/|$)": None,
    r"(.*)/timing/company(?=/|$)": r"\1/timing/interference",
    r"(.*)/timing/twins(?=/|$)": r"\1/timing/controls",
    r"(.*)/gates/in company(?=/)": r"\1/gates/interference",
    r"(.*)/anatomy(?=/)": r"\1/decomposition",
    r"(.*)/regimes/chained(?=/)": r"\1",
    r".*/regimes/[^/]+/fastest$": None,
    r".*/hunks/\d+/(tied|together)(/|$)": None,
    r"(.*)/hunks/(\d+)/hunk$": r"\1/hunks/\2/number",
    r"(.*)/lines_(before|after)/first$": r"\1/lines_\2/0",
    r"(.*)/lines_(before|after)/last$": r"\1/lines_\2/1",
    r"(.*/rows/\w+/\w+|/unchanged_lines/\d+/\w+)/(samples|share|microseconds)$": r"\1/cost/\2",
    r"(.*)/geometric_mean_over_fastest$": r"\1/geometric_mean",
    r"(.*)/share_of_measured/compute$": r"\1/share_of_measured",
    r"(.*)/share_of_measured/(\w+)$": r"\1/levels/\2/share_of_measured",
    r"(.*)/comparison/moves(?=/)": r"\1/comparison/largest_changes/figures",
    r"(.*)/comparison/(launch|following_duration)(?=/)": r"\1/comparison/largest_changes/\2",
    r"/moved/": None,
    r".*/share_of_(tensor_path_peak|nearest_roof)$": None,
    r"(.*/(build|tables/\d+))?/schema_version$": None,
}
# The one verdict of today for each step that was "rejected": a wrong output, an error beyond the
# limit, or else its interval, all below 1 or all below the least speedup.
REJECTED = {
    "fix2[warps=12]": "slower",
    "fix3": "wrong",
    "fix10[pingpong=1]": "slower",
    "fix10[polynomial=4]": "slower",
    "fix11[early=1]": "slower",
    "fused[warps=2]": "inaccurate",
    "fused[warps=8]": "no_gain",
    "fused[warps=8,streaming=1]": "slower",
    "fused[warps=16]": "no_gain",
    "persistent": "slower",
    "cluster": "inaccurate",
    "chosen": "inaccurate",
    "swizzled": "no_gain",
    "tma": "slower",
    "tma[swizzle=0]": "no_gain",
}
# Ten sessions came for the verdicts on these: they are in the ratio that decides alone now, since
# times and ratios of a table are of the sessions that have every variant.
OPEN = ("fix11[stagger=1]", "fix11[stagger=1,polynomial=3]")
# Kept by one recording, and not by the interval over all that the journal has of them.
BY_ALL_RECORDINGS = ("fix11[stagger=1]", "fix12", "fix14")
OF_SESSIONS = re.compile(r"(.*/)(microseconds|speedup_over_parent|predictions/Time)/(.*)")
VERDICTS = ("verdict", "result", "status", "state")
# The keys that name a row of a list, in the order in which they are tried.
IDENTITIES = ("variant", "id", "name", "key", "shape", "metric", "kind", "reason", "label", "rule")


def identities(rows: list[Any]) -> list[str]:
    """A name for each row of a list: what tells it from the others, or else its number."""
    if all(isinstance(row, dict) for row in rows):
        for key in IDENTITIES:
            found = [row.get(key) for row in rows]
            if all(isinstance(each, str) for each in found) and len(set(found)) == len(found):
                return [str(each) for each in found]
    return [str(number) for number in range(len(rows))]


def figures(value: Any, path: str = "") -> Iterator[tuple[str, float | str | None]]:
    """Every figure with its path. A list of named rows reads like a table of these names."""
    if isinstance(value, list):
        value = dict(zip(identities(value), value, strict=True))
    if isinstance(value, dict):
        for key, each in value.items():
            yield from figures(each, f"{path}/{key}")
    elif not isinstance(value, str) or path.rpartition("/")[2] in VERDICTS:
        yield path, value


def today(path: str) -> str | None:
    """Where a figure of b7de5af7 stands now; None if it is gone."""
    for old, new in RENAMED.items():
        if found := re.match(old, path):
            return None if new is None else found.expand(new) + path[found.end() :]
    return path


# Lines of Triton had no costs, since they stand in a file of Python.
TRITON = "diff online fused --study softmax --json"
OF_LINES = re.compile(
    r"/(hunks|outside_hunks|unchanged_lines)/.*((before|after)/(cost/)?\w+|host)$"
)


def value_today(command: str, path: str, value: float | str | None) -> float | str | None:
    """A figure of b7de5af7 as it is now: the same, but for the verdict that became four."""
    prefix, in_table, rest = path.rpartition("/versions/")
    variant, _, figure = rest.partition("/") if in_table else (command.split()[1], "", path[1:])
    if variant in BY_ALL_RECORDINGS and not prefix:
        value = {"gates/faster/passed": None, "verdict": "inconclusive"}.get(figure, value)
    if value != "rejected":
        return value
    return REJECTED[variant]


@cache
def frozen() -> dict[str, dict[str, float | str | None]]:
    packed = FIGURES.read_bytes()
    found: dict[str, dict[str, float | str | None]] = json.loads(
        zstandard.ZstdDecompressor().decompress(packed)
    )
    return found


def test_the_map_is_short() -> None:
    assert len(RENAMED) <= 50


def test_figures_have_paths() -> None:
    rows = [{"variant": "a", "time": 1.5, "note": "x"}, {"variant": "b", "verdict": "kept"}]
    assert dict(figures({"rows": rows, "shares": [0.5, None]})) == {
        "/rows/a/time": 1.5,
        "/rows/b/verdict": "kept",
        "/shares/0": 0.5,
        "/shares/1": None,
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_figures_are_those_of_the_frozen_commit(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read = json_of(capsys, *command.split(), project=FIXTURE)
    now = {path.replace("/variants/", "/versions/"): value for path, value in figures(read)}
    before = frozen()[command]
    assert len(before) > 50
    open_here = [name for name in OPEN if f"show {name} " in command]
    names = open_here or [f"/versions/{name}/" for name in OPEN if command.startswith("ablate")]

    def same(path: str, value: float | str | None) -> bool:
        known, of = now.get(path), OF_SESSIONS.fullmatch(path)
        if command == TRITON and OF_LINES.match(path) and value in (None, True):
            return known == value or isinstance(known, float | int)
        if known == value or not of or not (open_here or any(name in path for name in names)):
            return known == value
        if of[2] == "speedup_over_parent" and "/regimes/" not in path:
            return now[f"{of[1]}deciding_speedup/{of[3]}"] == value
        if path.endswith(("/sessions", "/instances", "/level")):
            return known in (5, 20, 95)
        assert isinstance(known, float)
        return known == pytest.approx(value, rel=0.02)

    wrong = [
        f"{path} was {value!r}, is {now.get(found)!r} at {found}"
        for path, value in before.items()
        if (found := today(path)) is not None and not same(found, value_today(command, path, value))
    ]
    assert wrong == []
