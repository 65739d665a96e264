"""Honest kernels through check, referee, timing and every cross-check: none may fail.

    python -m benchmarks.honest RESULTS [STUDY...] [--seconds 500]

Kernels of one operation, size and type are a study, measured as ``ablate`` measures it: a process a
variant, the referee, a session. Prints a line for each kernel with the values of the cross-checks,
and two rows of docs/trust.md: kernels written before the bounds were fixed, and after. RESULTS gets
a JSON line for each kernel: those of an earlier call are not measured again. After ``--seconds`` no
more studies are begun. Needs a GPU and ncu.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.honest.corpus import Point, points, study_of
from tools.pages import ROOT, batched, row

from workbench.app.executor import Local
from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.derive.figures import figures
from workbench.derive.rooflines import peaks
from workbench.errors import WorkbenchError
from workbench.evidence.records import (
    METHOD,
    Call,
    CaptureIndex,
    CheckOutcome,
    Provenance,
    Session,
    Timing,
    Witness,
    allowed_apart,
)
from workbench.judge.findings import sentence
from workbench.judge.time_checks import (
    REFEREE,
    Case,
    anchors_apart,
    cross_check_gates,
    profiled,
    referee_gate,
)
from workbench.load import VariantEvidence
from workbench.ncu.capture import L2_SECTORS, load_capture
from workbench.ncu.catalog import needed_metrics
from workbench.ncu.command import RANGE_PREFIX, range_name
from workbench.render.doc import number
from workbench.run import machine
from workbench.run.process import compiler_environment
from workbench.run.protocol import (
    EVENTS,
    Broken,
    Checked,
    DeviceFound,
    Failed,
    SessionsJob,
    TimedSession,
    VariantsJob,
    Witnessed,
    decode,
)
from workbench.study.config import Gates
from workbench.study.model import Step
from workbench.words import CheckResult, GateState, Inputs, Phase, Status, grouped

HERE = Path(__file__).parent
TIMED, PROFILED = "--timed", "--profiled"
TEXTS = ("cuda_c", "with_triton", "with_torch", "with_settings")
STUDY = """import sys
sys.path.append({root!r})
from benchmarks.honest.corpus import Point, study_of
globals().update(vars(study_of(Point({function!r}, {size}, {dtype!r}))))
"""
COUNTED = re.compile(r"gpu__time|gpc__cycles|dram__(?!throughput)|lts__|derived__lts|sm__sass|"
                     r"l1tex__m_l1tex2xbar|"
                     r"smsp__sass_thread|smsp__inst_executed\.sum|sm__cycles|sm__ops_path.*(off|fp64)|"
                     r"launch__|smsp__cycles_elapsed.avg.per")  # fmt: skip
NCU = ["ncu", "--cache-control", "none", "--clock-control", "none", "--force-overwrite", "--nvtx"]


@dataclass
class Studied:
    """What the processes of a study say: by function, what stopped it in ``failed``."""

    origin: Provenance = field(default_factory=lambda: Provenance(date=""))
    checks: dict[str, CheckOutcome] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    nodes: dict[str, Call] = field(default_factory=dict)
    ways: dict[str, tuple[Call, ...]] = field(default_factory=dict)
    broken: str = ""


class Told(NamedTuple):
    """What came of a kernel, written ``half`` ("before" or "after") the bounds were fixed: the
    cross-checks ``opened`` have no answer, ``apart`` is how far the referee's time and a session's
    are, as a share of what is allowed, ``share`` the time over the longest launch of ncu's.
    """

    name: str
    half: str
    line: str
    rejected: bool
    opened: tuple[str, ...] = ()
    apart: float | None = None
    share: float | None = None


Studies = Mapping[str, Sequence[Point]]
AT_ONCE = 3  # studies of a process and of an ncu, which take seconds to start


def studies(names: Iterable[str] = ()) -> Studies:
    """Of these names; of all if there are none."""
    every = grouped((point.study, point) for point in points())
    return {name: every[name] for name in names or every}


ANCHOR = "anchor"  # PyTorch's function, beside which the referee times all others


def laid_out(folder: Path, study: str, every: Sequence[Point]) -> Path:
    """A workspace of one study, with a module for each function: it is ``run`` there."""
    first, to = every[0], folder / study / "kernels" / study
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "kernels.cu", to)
    values = {"root": str(ROOT), "function": first.function, "size": first.size}
    (to / "study.py").write_text(STUDY.format(**values, dtype=first.dtype))
    texts = [(HERE / f"{name}.py").read_text() for name in TEXTS]
    modules = {point.function: point.function for point in every}
    for name, function in {**modules, ANCHOR: f"{first.operation}_torch"}.items():
        text = next(t for t in texts if re.search(rf"\b{function}\b", t))
        entry = f'CALLS["{function}"]' if "CALLS" in text else function
        entry = f"{function}()" if "MAKERS" in text else entry
        (to / f"{name}.py").write_text(f"{text}\n\nrun = {entry}\n")
    return to


def timed(folder: Path, every: Studies) -> None:
    """Check and time the points of each study, in a fork that does it and leaves nothing."""
    from workbench.run.worker.startup import forked, import_ahead, import_libraries

    laid = {study: laid_out(folder, study, studied) for study, studied in every.items()}
    import_libraries()
    import_ahead(path for to in laid.values() for path in to.glob("*.py"))
    for study, to in laid.items():
        functions = [point.function for point in every[study]]
        os.waitpid(forked(partial(measure, study, to.parent.parent, functions)), 0)


def measure(study: str, folder: Path, functions: Sequence[str]) -> None:
    """As the processes of ``ablate`` do it."""
    from workbench.run.worker.event_log import EventLog, or_broken
    from workbench.run.worker.job_worker import JobWorker
    from workbench.run.worker.session_forks import Server

    os.chdir(folder)
    names = (ANCHOR, *functions)
    sources: dict[str, tuple[str, ...]] = {name: (f"{name}.py", "kernels.cu") for name in names}
    with EventLog(folder) as journal, or_broken(journal):
        job = VariantsJob(
            study=study, variants=names, params={}, phases=(Phase.BUILD, Phase.CHECK), shape="it",
            check_shapes=("it",), reference=ANCHOR, references=(ANCHOR,), sources=sources,
        )  # fmt: skip
        JobWorker(job, journal).run()
        sessions = SessionsJob(
            study=study, shape="it", params={}, sources=sources, references=(ANCHOR,),
            controls=(ANCHOR,), sessions=1, instances=2, rounds=12, graph_microseconds=300.0,
        )  # fmt: skip
        server = Server(sessions, journal)
        server.witnessed(names)
        server.session([ANCHOR], alone=True)
        server.sessions(names, 1)


def profiled_here(folder: Path, every: Studies) -> None:
    """A call of each point in its NVTX range, as a capture of ``ablate`` makes it."""
    import torch

    from workbench.run.worker.process_settings import load_kept
    from workbench.run.worker.timing.graphs import as_timed
    from workbench.run.worker.timing.neighbours import Neighbours, TimedGpu

    for study, studied in every.items():
        to, known = laid_out(folder, study, studied), read(folder, study)
        for point in studied:
            values = study_of(point)
            around = Neighbours(TimedGpu(), values, values.shapes["it"])
            inputs = around.inputs()
            table = around.input_tables(inputs)
            around.gpu.advance()
            around.write(table, 0)

            def load(
                to: Path = to, point: Point = point, inputs: Inputs = inputs
            ) -> Callable[[], Any]:
                module = load_kept(to / f"{point.function}.py", f"honest_{point.name}")
                return partial(module.run, **inputs)

            name = point.function
            ways = (known.nodes[name], *known.ways.get(name, ())) if name in known.nodes else ()
            try:
                call = as_timed(load, ways, around.gpu.side)
                around.write(table, 1)
                torch.cuda.synchronize()
                # What goes backward launches on the thread that has the range, as in a capture.
                with torch.autograd.set_multithreading_enabled(False):
                    torch.cuda.nvtx.range_push(range_name("honest", point.name, "it"))
                    call()
                    torch.cuda.synchronize()
                    torch.cuda.nvtx.range_pop()
            except Exception as error:
                print(f"{point.name}: {error}", file=sys.stderr)
            del around, inputs
            gc.collect()
            torch.cuda.empty_cache()


def read(folder: Path, study: str) -> Studied:
    """The events of a study's processes."""
    studied = Studied()
    path = folder / study / EVENTS
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        event = decode(line)
        if isinstance(event, DeviceFound):
            studied.origin = Provenance(date="", l2_bytes=event.environment.l2_bytes)
        elif isinstance(event, Checked):
            studied.checks[event.variant] = event
        elif isinstance(event, Failed):
            studied.failed[event.variant] = f"{event.phase.value}: {event.error.message}"
        elif isinstance(event, Witnessed):
            studied.witnesses.append(event.witness)
        elif isinstance(event, TimedSession):
            studied.sessions.append(event.session)
            studied.nodes |= event.nodes
            studied.ways |= event.ways
        elif isinstance(event, Broken):
            studied.broken = event.error.message
    return studied


def in_process(folder: Path, what: str, names: Iterable[str], ncu: Sequence[str] = ()) -> None:
    """What was compiled for an earlier process is kept in the folder."""
    kept = compiler_environment(folder, os.environ) | {CUBIN_FOLDER: str(folder)}
    script = [*ncu, sys.executable, "-m", "benchmarks.honest", what, str(folder), *names]
    subprocess.run(script, env={**os.environ, **kept}, check=not ncu, stdout=subprocess.DEVNULL)


def profile(folder: Path, report: Path, names: Iterable[str]) -> None:
    metrics = [*filter(COUNTED.match, needed_metrics()), L2_SECTORS]
    ncu = [*NCU, "--nvtx-include", f"regex:{RANGE_PREFIX}.*/", "--metrics", ",".join(metrics)]
    in_process(folder, PROFILED, names, ncu=[*ncu, "--export", str(report)])


def case_of(point: Point, studied: Studied, report: Path) -> Case:
    """As the judgement of a step would have it."""
    name, wanted = point.function, range_name("honest", point.name, "it")
    capture = None
    try:
        capture = load_capture(report, wanted)
    except WorkbenchError as error:
        studied.failed.setdefault(name, error.message)
    index = CaptureIndex(
        variant=name, shape="it", fingerprint="", report=report.name, sha256="", range=wanted,
        launches=1, ncu="", ncu_flags=("--cache-control", "none"), provenance=studied.origin,
    )  # fmt: skip
    state = dict.fromkeys(("build", "check", "timing", "capture"), Status.CURRENT)
    captured = figures(capture.metrics) if capture else {}
    evidence = VariantEvidence(
        name, "", state, True, index=index if capture else None, capture=capture, figures=captured
    )
    timing = Timing(
        study="honest", shape="it", fingerprints={}, nodes=studied.nodes, stride=1,
        ways=studied.ways, sessions=tuple(s for s in studied.sessions if not s.alone),
        witnesses=tuple(studied.witnesses), method=METHOD, provenance=studied.origin,
    )  # fmt: skip
    theory = peaks(capture.metrics) if capture else None
    return Case(evidence, timing, study_of(point).work(None), theory)


def told(point: Point, studied: Studied, case: Case) -> Told:
    name, took, share, apart = point.function, case.microseconds, None, None
    gates = cross_check_gates(case)
    if case.timing:
        gates += referee_gate(case.timing, Step(name), took, Gates(), is_faster=False)
    check = studied.checks.get(name)
    wrong = check is None or check.status != CheckResult.CORRECT
    why = studied.failed.get(name) or studied.broken
    # Nothing but the gate of the referee is open for another reason than a missing capture.
    failed = [g for g in gates if g.state == GateState.FAILED]
    opened = [gate for gate in gates if gate.state == GateState.OPEN]
    under_ncu = profiled(case)
    cells = [f"{point.half:6} {point.name:40}"]
    if took is not None and under_ncu:
        longest, total = under_ncu.longest, under_ncu.total
        share = took / longest
        cells.append(f"{took:9.3f} µs, ncu {longest:9.3f} of {total:9.3f}")
        cells.append(f"{share:.3f}, {took - longest:+.3f} µs")
    witness = next((seen for seen in studied.witnesses if seen.variant == name), None)
    if took is not None and case.timing and witness and witness.microseconds:
        anchors = anchors_apart(case.timing, witness)
        more = witness.microseconds - took
        apart = min(abs(more), abs(more + anchors)) / allowed_apart(took)
        cells.append(f"referee {more:+.3f} µs, {more + anchors:+.3f}, {apart:.2f} of the bound")
    for gate in (*failed, *opened):
        cells.append(f"{gate.name} {gate.state.value.upper()}: {sentence(gate.why)}")
    cells += [f"{g.name}: {sentence(g.why)}" for g in gates if g.name in ("work", "timed outputs")]
    if wrong or why:
        cells.append(f"CHECK: {check.why if check else ''} {why}")
    return Told(
        point.name,
        point.half,
        " | ".join(cells),
        rejected=bool(failed or wrong or why),
        opened=tuple(gate.name for gate in opened),
        apart=apart,
        share=share,
    )


def row_of(half: str, every: Sequence[Told], gpu: str, date: str) -> str:
    """Of the table in docs/trust.md."""
    rejected = sum(one.rejected for one in every)
    differing = sum(REFEREE in one.opened for one in every)
    apart = max((one.apart for one in every if one.apart is not None), default=None)
    share = min((one.share for one in every if one.share is not None), default=None)
    figures = number(apart, 2), number(share, 2)
    return row((date, gpu, half, len(every), rejected, differing, *figures))


def main(results: Path, names: Sequence[str], seconds: float) -> None:
    if (gpu := Local().gpu) is None:
        raise machine.why_not_measuring()
    began, lines = time.monotonic(), results.read_text().splitlines() if results.is_file() else []
    answers = {answer.name: answer for answer in (Told(*json.loads(line)) for line in lines)}
    left = {
        study: every
        for study, every in studies(names).items()
        if any(point.name not in answers for point in every)
    }
    for some in batched(left, AT_ONCE):
        if time.monotonic() - began > seconds:
            break
        with tempfile.TemporaryDirectory() as scratch, results.open("a") as file:
            folder, report = Path(scratch), Path(scratch) / "honest.ncu-rep"
            in_process(folder, TIMED, some)
            profile(folder, report, some)
            for study in some:
                studied = read(folder, study)
                for point in left[study]:
                    answer = told(point, studied, case_of(point, studied, report))
                    answers[point.name] = answer
                    file.write(json.dumps(answer) + "\n")
                    print(answer.line, flush=True)
    halves = grouped((answer.half, answer) for answer in answers.values())
    for half, of_half in halves.items():
        print(row_of(half, of_half, gpu.name, datetime.now(UTC).date().isoformat()))


if __name__ == "__main__":
    if sys.argv[1:2] == [TIMED]:
        timed(Path(sys.argv[2]), studies(sys.argv[3:]))
    elif sys.argv[1:2] == [PROFILED]:
        profiled_here(Path(sys.argv[2]), studies(sys.argv[3:]))
    else:
        parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
        parser.add_argument("results", type=Path)
        parser.add_argument("study", nargs="*")
        parser.add_argument("--seconds", type=float, default=float("inf"))
        options = parser.parse_args()
        main(options.results, options.study, options.seconds)
