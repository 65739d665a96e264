"""When the warps of unmodified kernels ran: ``iket`` of NVIDIA's CUTLASS DSL runs a program, and
its trace becomes records. It reads no counters, and needs no permission for them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import msgspec

from workbench import bounds
from workbench.cuda.compiler import package_version
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.records import TracedLaunch
from workbench.ncu.command import lasting_kernel
from workbench.words import OWN_EXTRA

PACKAGE = "nvidia-cutlass-dsl-libs-base"
OUTPUT = "iket"  # a folder in that of the run
SAYS = "[run-iket]"  # before what is its own among the output of a program
LANES = 32  # threads of a warp
MARK = "write_inputs"  # the kernel that the capture's driver launches just before the call
# It is not on the path of the program that it runs.
MAIN = "import sys; sys.path.append({!r}); from iket.cli.main import entrypoint; entrypoint()"


def folder() -> Path:
    """Return the folder that Python must search for ``iket``. Raises EnvironmentLacks."""
    spec = find_spec("iket")
    if spec is not None and spec.origin:
        return Path(spec.origin).parents[1]
    base = find_spec("nvidia_cutlass_dsl")
    for place in (base.submodule_search_locations or ()) if base else ():
        if (Path(place) / "dsl_packages" / "iket").is_dir():
            return Path(place) / "dsl_packages"
    why = f"a timeline needs {PACKAGE} 4.8.1 or newer, which is not installed"
    raise EnvironmentLacks(why, hint=OWN_EXTRA.format("timeline"))


def command(output: str = OUTPUT) -> list[str]:
    """The prefix of a command line that is traced; the trace is written below ``output``."""
    options = ["--output-dir", output, "--clobber", "profile", "--warp-trace"]
    main = MAIN.format(str(folder()))
    return [sys.executable, "-c", main, *options, "--postprocess", "json", "--"]


class _Warp(msgspec.Struct, rename="camel", gc=False):
    start_ts: int
    end_ts: int
    loc_idx: int


class _Place(msgspec.Struct, rename="camel", gc=False):
    cta_id: tuple[int, int, int]
    sm_id: int
    warp_id: int


class _Launch(msgspec.Struct, rename="camel"):
    kernel_name: str
    grid_dim_x: int
    grid_dim_y: int
    grid_dim_z: int
    block_dim_x: int
    block_dim_y: int
    block_dim_z: int
    warp_lifetimes: list[_Warp]
    in_graph: bool = False

    @property
    def start(self) -> int:
        return min(warp.start_ts for warp in self.warp_lifetimes)

    @property
    def span(self) -> int:
        return max(warp.end_ts for warp in self.warp_lifetimes) - self.start


class _Trace(msgspec.Struct, rename="camel"):
    launches: list[_Launch]
    location_table: list[_Place]
    graph_launches: dict[str, list[_Launch]] = {}


def call_in(output: Path, said: str) -> tuple[TracedLaunch, ...]:
    """Return the launches of a variant's last call: those after the last ``MARK``. ``said`` is what
    was printed of an error. Raises ToolFailed.
    """
    launches, places = _read(output, said)
    marked = [number for number, one in enumerate(launches) if one.kernel_name == MARK]
    return _records(launches[marked[-1] + 1 :] if marked else launches, places)


def last_of_each(
    output: Path, said: str, kernel: str | None, most: int
) -> tuple[TracedLaunch, ...]:
    """Return the last launch of each kernel whose name has ``kernel`` in it: of the ``most`` that
    ran longest, in the order in which they ran. Raises ToolFailed.
    """
    launches, places = _read(output, said)
    last = {one.kernel_name: one for one in launches if (kernel or "") in one.kernel_name}
    longest = sorted(last.values(), key=lambda one: -one.span)[:most]
    return _records(sorted(longest, key=lambda one: one.start), places)


def _read(output: Path, said: str) -> tuple[list[_Launch], Sequence[_Place]]:
    """The launches of the process that launched most, in the order of their starts."""
    files = sorted(output.glob("*.trace.json"), key=lambda path: path.stat().st_size)
    if not files:
        hint = "does it launch a kernel in its first process, and end well without iket?"
        raise ToolFailed(f"iket wrote no trace{f': {said}' * bool(said)}", hint=hint)
    if files[-1].stat().st_size > bounds.TRACE:
        hint = "let the program launch less: every launch of the process is in it"
        raise ToolFailed(f"iket's trace is larger than {bounds.TRACE >> 30} GiB", hint=hint)
    try:
        trace = msgspec.json.decode(files[-1].read_bytes(), type=_Trace)
    except msgspec.DecodeError as error:
        hint = f"{PACKAGE} 4.8.1 is known to work; here is {package_version(PACKAGE) or 'another'}"
        raise ToolFailed(f"iket's trace cannot be read: {error}", hint=hint) from None
    in_graphs = list(chain(*trace.graph_launches.values()))
    for launch in in_graphs:
        launch.in_graph = True
    every = [*trace.launches, *in_graphs]
    launches = sorted((one for one in every if one.warp_lifetimes), key=lambda one: one.start)
    return launches, trace.location_table


def _records(launches: Sequence[_Launch], places: Sequence[_Place]) -> tuple[TracedLaunch, ...]:
    if not launches:
        raise ToolFailed("iket's trace has no such kernel", hint="`--kernel` takes part of a name")
    first = launches[0].start
    warps = [warp for one in launches for warp in one.warp_lifetimes]
    tick = math.gcd(*(t - first for warp in warps for t in (warp.start_ts, warp.end_ts))) or 1
    return tuple(_record(one, places, first, tick) for one in launches)


def _record(launch: _Launch, places: Sequence[_Place], first: int, tick: int) -> TracedLaunch:
    import numpy as np  # here, as every measurement imports this module

    threads = launch.block_dim_x * launch.block_dim_y * launch.block_dim_z
    wide, high = launch.grid_dim_x, launch.grid_dim_y
    warps, blocks, begin = -(-threads // LANES), wide * high * launch.grid_dim_z, launch.start
    smaller, name = "choose a smaller shape", launch.kernel_name
    if blocks > bounds.TIMELINE_BLOCKS:
        why = f"{name} has {blocks:,} blocks; a timeline keeps {bounds.TIMELINE_BLOCKS:,}"
        raise ToolFailed(why, hint=smaller)
    rows: dict[int, tuple[int, int, int]] = {}
    for warp in launch.warp_lifetimes:
        place = places[warp.loc_idx]
        x, y, z = place.cta_id
        start, end = (warp.start_ts - begin) // tick, (warp.end_ts - begin) // tick
        rows[(x + wide * (y + high * z)) * warps + place.warp_id] = start, end, place.sm_id
    if rows.keys() != set(range(blocks * warps)):
        why = f"iket recorded {len(rows):,} of {blocks * warps:,} warps of {name}"
        raise ToolFailed(why, hint=f"{smaller}: its buffer may be full")
    ordered = np.array([rows[n] for n in range(len(rows))]).reshape(blocks, warps, 3)
    starts, ends, sms = ordered.transpose(2, 0, 1)
    begins, stride = starts.min(axis=1), -(-len(rows) // bounds.TIMELINE_WARPS)
    return TracedLaunch(
        kernel=lasting_kernel(name),
        warps=warps,
        in_graph=launch.in_graph,
        tick_ns=tick,
        begin=(begin - first) // tick,
        sms=tuple(sms[:, 0].tolist()),
        starts=tuple(begins.tolist()),
        lives=tuple((ends.max(axis=1) - begins).tolist()),
        stride=stride,
        warp_starts=tuple((starts - begins[:, None])[::stride].ravel().tolist()),
        warp_lives=tuple((ends - starts)[::stride].ravel().tolist()),
    )
