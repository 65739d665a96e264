"""Traces as ``iket`` writes them, of launches whose blocks are said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from workbench.derive.timeline import CallTimeline, call_timeline
from workbench.run import iket

TICK = 32
Block = tuple[int, Sequence[tuple[int, int]]]  # an SM, and start and end of each warp in ticks


def trace(*launches: tuple[str, Sequence[Block]], graph: int = 1) -> dict[str, object]:
    """The whole file, of which so many of the last launches are a ``graph``'s. The last block comes
    first, as in real ones.
    """
    table: list[dict[str, object]] = []
    every = []
    for name, blocks in launches:
        warps = []
        for number, (sm, lives) in reversed(list(enumerate(blocks))):
            for warp, (start, end) in enumerate(lives):
                times = {"startTs": 10**18 + TICK * start, "endTs": 10**18 + TICK * end}
                warps.append({**times, "locIdx": len(table)})
                table.append({"ctaId": [number, 0, 0], "smId": sm, "warpId": warp, "gpcId": 0})
        size = {"gridDimX": len(blocks), "blockDimX": 32 * len(blocks[0][1])}
        ones = dict.fromkeys(("gridDimY", "gridDimZ", "blockDimY", "blockDimZ"), 1)
        every.append({"kernelName": name, **size, **ones, "gridId": 1, "warpLifetimes": warps})
    graphs = {"graph_exec_2:0": every[-graph:]}
    return {"launches": every[:-graph], "graphLaunches": graphs, "locationTable": table}


def written(path: Path, *launches: tuple[str, Sequence[Block]]) -> Path:
    path.write_text(json.dumps(trace(*launches)))
    return path


def call(folder: Path, *launches: Sequence[Block]) -> CallTimeline:
    """Launches of one call, all of a graph, read through a file."""
    named = [(f"kernel{number}", blocks) for number, blocks in enumerate(launches)]
    (folder / "a.trace.json").write_text(json.dumps(trace(*named, graph=len(named))))
    return call_timeline(iket.call_in(folder, ""))


def even(
    sms: int = 8, waves: int = 4, life: int = 100, *, gap: int = 0, after: int = 0, early: int = 0
) -> list[Block]:
    """Equal blocks of four warps, one at a time on each SM, ``gap`` after another, the first of
    them ``after`` the start. Of each the first warp ends ``early``.
    """
    return [
        (sm, [(start, start + life - early * (warp == 0)) for warp in range(4)])
        for wave in range(waves)
        for sm in range(sms)
        for start in [after + wave * (life + gap)]
    ]


def on(sm: int, start: int, end: int) -> Block:
    return sm, [(start, end)] * 4
