"""A timeline for ui.perfetto.dev: an SM is a process, a block's place on it a thread."""

from __future__ import annotations

import gzip
import json
from heapq import heappop, heappush

from workbench.derive.timeline import CallTimeline

SUFFIX = ".trace.json.gz"


def perfetto(call: CallTimeline) -> bytes:
    """Return the file, which has a bar for each block."""
    events: list[dict[str, object]] = []
    ended: dict[int, list[tuple[int, int]]] = {}  # by SM: ends of blocks with their places
    for one in call.launches:
        launch, us = one.launch, one.launch.tick_ns / 1000
        rows = zip(launch.starts, launch.lives, launch.sms, range(one.blocks), strict=True)
        for start, life, sm, block in sorted(rows):
            begin, places = launch.begin + start, ended.setdefault(sm, [])
            is_free = bool(places) and places[0][0] <= begin
            place = heappop(places)[1] if is_free else len(places)
            heappush(places, (begin + life, place))
            what = {"ph": "X", "name": f"{one.kernel} {block}", "pid": sm, "tid": place}
            events.append({**what, "ts": round(us * begin, 3), "dur": round(us * life, 3)})
    names = [{"ph": "M", "name": "process_name", "pid": sm} for sm in ended]
    named = [{**name, "args": {"name": f"SM {name['pid']}"}} for name in names]
    text = json.dumps({"traceEvents": [*named, *events]}, separators=(",", ":"))
    return gzip.compress(text.encode(), 6, mtime=0)
