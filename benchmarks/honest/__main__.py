"""Honest kernels through check, timing and every cross-check: none may fail.

Prints a line for each kernel with the values of the cross-checks, and a row of docs/trust.md.
Needs a GPU and ncu.

python -m benchmarks.honest
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from benchmarks.honest.corpus import Point, points, study_of

from workbench.app.executor import Local
from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.derive.figures import figures
from workbench.derive.speedup import TwoClocks, two_clocks
from workbench.errors import WorkbenchError
from workbench.evidence.records import (
    METHOD,
    Call,
    CaptureIndex,
    CheckOutcome,
    Provenance,
    Session,
    Timing,
    other_ways,
)
from workbench.judge.findings import sentence
from workbench.judge.gates import CLOCKS, Case, added_time, cross_check_gates, profiled
from workbench.load import VariantEvidence
from workbench.ncu.capture import L2_SECTORS, load_capture
from workbench.ncu.catalog import needed_metrics
from workbench.ncu.command import RANGE_PREFIX, range_name
from workbench.render.numbers import number
from workbench.run import machine
from workbench.run.process import compiler_environment
from workbench.study.values import Work
from workbench.words import CheckResult, GateState, Inputs, Status

HERE = Path(__file__).parent
TIMED, PROFILED, FOUND = "--timed", "--profiled", "found.json"
COUNTED = re.compile(r"gpu__time|gpc__cycles|dram__(?!throughput)|lts__|derived__lts|sm__sass|"
                     r"l1tex__m_l1tex2xbar|"
                     r"smsp__sass_thread|smsp__inst_executed\.sum|sm__cycles|sm__ops_path.*(off|fp64)|"
                     r"launch__|smsp__cycles_elapsed.avg.per")  # fmt: skip
SHORT = 16.7  # microseconds: docs/trust compares the clocks of calls up to this
NCU = ["ncu", "--cache-control", "none", "--clock-control", "none", "--force-overwrite", "--nvtx"]


class Found(msgspec.Struct):
    """What a run says of a point; ``wrong`` is what stopped it."""

    name: str
    check: CheckOutcome | None = None
    session: Session | None = None
    call: Call = ()
    ways: tuple[Call, ...] = ()
    wrong: str = ""
    l2_bytes: int | None = None


class Told(NamedTuple):
    """Of a kernel: ``opened`` are cross-checks without an answer, and ``share`` is the time over
    the longest launch under ncu.
    """

    line: str
    rejected: bool
    opened: tuple[str, ...] = ()
    clocks: TwoClocks | None = None
    share: float | None = None


def laid_out(folder: Path) -> Path:
    """A module for each point: its function is ``run``."""
    to = folder / "kernels" / "honest"
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "kernels.cu", to)
    texts = [(HERE / f"{name}.py").read_text() for name in ("cuda_c", "with_triton", "with_torch")]
    for point in points():
        text = next(t for t in texts if re.search(rf"\b{point.function}\b", t))
        entry = f'CALLS["{point.function}"]' if "CALLS" in text else point.function
        (to / f"{point.name}.py").write_text(f"{text}\n\nrun = {entry}\n")
    return to


def timed(folder: Path) -> None:
    """Check and time every point in this process."""
    from workbench.run.protocol import SessionsJob
    from workbench.run.worker.correctness import check_variant
    from workbench.run.worker.process_settings import load_kept
    from workbench.run.worker.timing.instances import Loader
    from workbench.run.worker.timing.session import Listeners, TimingProcess

    kernels, every = laid_out(folder), list(points())
    sources: dict[str, tuple[str, ...]] = {p.name: (f"{p.name}.py", "kernels.cu") for p in every}
    results = []
    for point in every:
        study, one = study_of(point), Found(point.name)
        results.append(one)
        loader = Loader(kernels, {}, load_kept, sources)

        def fail(name: str, error: BaseException, one: Found = one) -> None:
            one.wrong = f"{type(error).__name__}: {error}"

        try:
            run = loader.load(point.name).run
            one.check = check_variant(study, run, study.shapes["it"])
            job = SessionsJob(
                study="honest", shape="it", params={}, sources=sources, references=(), controls=(),
                sessions=1, instances=2, rounds=12, graph_microseconds=300.0,
            )  # fmt: skip
            process = TimingProcess(job, study, loader, Listeners(fail))
            one.session = process.session(0, [point.name], alone=False)
            one.l2_bytes = sys.modules["torch"].cuda.get_device_properties(0).L2_cache_size
            calls = process.calls.get(point.name, [()])
            one.call, one.ways = calls[0], other_ways(*calls)
            del process
        except Exception as error:
            fail(point.name, error)
        gc.collect()
        sys.modules["torch"].cuda.empty_cache()
    (folder / FOUND).write_bytes(msgspec.json.encode(results))


def profiled_here(folder: Path) -> None:
    """A call of each point in its NVTX range, as a capture of ``ablate`` makes it."""
    import torch

    from workbench.run.worker.timing.graphs import as_timed
    from workbench.run.worker.timing.neighbours import Neighbours
    from workbench.run.worker.timing.timed_gpu import TimedGpu
    from workbench.study.workspace import load_module

    kernels, timed = laid_out(folder), {one.name: one for one in found_in(folder)}
    for point in points():
        one, study = timed[point.name], study_of(point)
        around = Neighbours(TimedGpu(), study, study.shapes["it"])
        inputs = around.inputs()
        table = around.input_tables(inputs)
        around.gpu.advance()
        around.write(table, 0)

        def load(point: Point = point, inputs: Inputs = inputs) -> Callable[[], Any]:
            file = kernels / f"{point.name}.py"
            return partial(load_module(file, f"honest_{point.name}").run, **inputs)

        try:
            call = as_timed(load, (one.call, *one.ways) if one.call else (), around.gpu.side)
            around.write(table, 1)
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_push(range_name("honest", point.name, "it"))
            call()
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
        except Exception as error:
            print(f"{point.name}: {error}", file=sys.stderr)
        del around, inputs
        gc.collect()
        torch.cuda.empty_cache()


def found_in(folder: Path) -> list[Found]:
    return msgspec.json.decode((folder / FOUND).read_bytes(), type=list[Found])


def in_process(folder: Path, what: str, ncu: Sequence[str] = ()) -> None:
    """What was compiled for an earlier process is kept in the folder."""
    kept = compiler_environment(folder, os.environ) | {CUBIN_FOLDER: str(folder)}
    script = [*ncu, sys.executable, "-m", "benchmarks.honest", what, str(folder)]
    subprocess.run(script, env={**os.environ, **kept}, check=not ncu, stdout=subprocess.DEVNULL)


def profile(folder: Path, report: Path) -> None:
    metrics = [*filter(COUNTED.match, needed_metrics()), L2_SECTORS]
    ncu = [*NCU, "--nvtx-include", f"regex:{RANGE_PREFIX}.*/", "--metrics", ",".join(metrics)]
    in_process(folder, PROFILED, ncu=[*ncu, "--export", str(report)])


def case_of(one: Found, report: Path, work: Work) -> Case:
    """As the judgement of a step would have it."""
    origin, wanted = (
        Provenance(date="", l2_bytes=one.l2_bytes),
        range_name("honest", one.name, "it"),
    )
    capture = None
    try:
        capture = load_capture(report, wanted)
    except WorkbenchError as error:
        one.wrong = one.wrong or error.message
    index = CaptureIndex(
        variant=one.name, shape="it", fingerprint="", report=report.name, sha256="", range=wanted,
        launches=1, ncu="", ncu_flags=("--cache-control", "none"), provenance=origin,
    )  # fmt: skip
    state = dict.fromkeys(("build", "check", "timing", "capture"), Status.CURRENT)
    evidence = VariantEvidence(
        one.name,
        "",
        state,
        True,
        index=index if capture else None,
        capture=capture,
        figures=figures(capture.metrics) if capture else {},
    )
    timing = Timing(
        study="honest", shape="it", fingerprints={}, nodes={one.name: one.call}, stride=1,
        ways={one.name: one.ways}, sessions=(one.session,) if one.session else (), method=METHOD,
        provenance=origin,
    )  # fmt: skip
    clocks = two_clocks(timing.sessions).get(one.name)
    return Case(evidence, timing, work, clocks=clocks)


def told(one: Found, case: Case) -> Told:
    gates = cross_check_gates(case)
    wrong = one.check is None or one.check.status != CheckResult.CORRECT
    failed = [gate for gate in gates if gate.state == GateState.FAILED]
    opened = [gate for gate in gates if gate.state == GateState.OPEN]
    time, share = added_time(case), None
    under_ncu = profiled(case, time.ghz if time else None)
    cells = [f"{one.name:40}"]
    if time and under_ncu:
        longest, total = under_ncu.longest, under_ncu.total
        share = time.microseconds / longest
        cells.append(f"{time.microseconds:9.3f} µs, ncu {longest:9.3f} of {total:9.3f}")
        cells.append(f"{share:.3f}, {time.microseconds - longest:+.3f} µs")
    if clocks := case.clocks:
        cells.append(f"clocks {clocks.stamps - clocks.events:+.3f} µs ± {clocks.scatter:.3f}")
    for gate in (*failed, *opened):
        cells.append(f"{gate.name} {gate.state.value.upper()}: {sentence(gate.why)}")
    cells += [f"{g.name}: {sentence(g.why)}" for g in gates if g.name in ("work", "timed outputs")]
    if wrong or one.wrong:
        cells.append(f"CHECK: {one.check.why if one.check else ''} {one.wrong}")
    return Told(
        " | ".join(cells),
        rejected=bool(failed or wrong or one.wrong),
        opened=tuple(gate.name for gate in opened),
        clocks=clocks,
        share=share,
    )


def row(every: Sequence[Told], gpu: str, date: str) -> str:
    """Of the table in docs/trust.md."""
    rejected, no_time = sum(one.rejected for one in every), sum(CLOCKS in o.opened for o in every)
    clocks = (one.clocks for one in every)
    apart = [abs(both.stamps - both.events) for both in clocks if both and both.stamps <= SHORT]
    share = [one.share for one in every if one.share is not None]
    values = max(apart, default=None), min(share, default=None)
    cells = date, gpu, len(every), rejected, no_time, *(number(value, 2) for value in values)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    if (gpu := Local().gpu) is None:
        raise machine.why_not_measuring()
    with tempfile.TemporaryDirectory() as scratch:
        folder, report = Path(scratch), Path(scratch) / "honest.ncu-rep"
        in_process(folder, TIMED)
        profile(folder, report)
        works = {point.name: study_of(point).work(None) for point in points()}
        every = [told(one, case_of(one, report, works[one.name])) for one in found_in(folder)]
    for one in every:
        print(one.line)
    print(row(every, gpu.name, datetime.now(UTC).date().isoformat()))


if __name__ == "__main__":
    what, *folders = sys.argv[1:] or [""]
    {TIMED: timed, PROFILED: profiled_here}.get(what, main)(*map(Path, folders))
