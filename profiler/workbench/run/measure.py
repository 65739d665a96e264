"""From a list of variants to evidence: build, check, time, then one ncu for all captures.

Every finished piece is written to the evidence folder at once. A variant that fails costs only
itself: the others go on, in a fresh worker where it took the process along.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import convert

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import BuiltKernel, Environment, Samples
from workbench.evidence.store import disk_full
from workbench.ncu import command as ncu
from workbench.ncu import output
from workbench.ncu.ranges import range_name
from workbench.ncu.reader import launches_by_range
from workbench.run import machine
from workbench.run.process import Event, Worker, WorkerEnd, run_worker
from workbench.run.recording import Recorder
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.words import CheckResult


@dataclass(frozen=True)
class Plan:
    """What to measure at one shape.

    ``checked`` are built and compared with the reference, ``timed`` also timed together in that
    process, ``captured`` profiled in one ncu.
    """

    shape: str
    checked: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys([*self.checked, *self.timed, *self.captured]))


@dataclass
class Measured:
    """What came out besides the files: failures by variant, and what was written.

    A variant that does not support the shape has not failed, and is neither timed nor captured.
    """

    failures: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    written: list[Path] = field(default_factory=list)
    interrupted: bool = False

    @property
    def out(self) -> set[str]:
        return {*self.failures, *self.unsupported}


@contextmanager
def scratch_folder(study: Study) -> Iterator[Path]:
    """A folder with a copy of the study's sources, gone afterwards."""
    scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
    try:
        shutil.copytree(
            study.folder,
            scratch / "kernels" / study.name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield scratch
    except OSError as error:
        raise disk_full(scratch, error) or error from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Measurement:
    """One run of the measuring part: a study at a shape, on this machine's GPU."""

    def __init__(
        self,
        study: Study,
        config: Config,
        folder: EvidenceFolder,
        plan: Plan,
        on_event: Callable[[Event], None],
    ) -> None:
        self.study = study
        self.config = config
        self.folder = folder
        self.plan = plan
        self.on_event = on_event
        self.result = Measured()
        self.recorder = Recorder(study, plan.shape, folder, plan.variants)
        self.samples: list[Event] = []

    def run(self) -> Measured:
        with scratch_folder(self.study) as scratch:
            first = list(dict.fromkeys([*self.plan.checked, *self.plan.timed]))
            ahead = self.start_capture(scratch, list(self.plan.captured), gated=True)
            try:
                if first:
                    self.prepare(scratch, first, time=bool(self.plan.timed))
                if not self.result.interrupted:
                    self.capture(scratch, ahead)
            finally:
                if ahead is not None:
                    ahead.kill()
        self.result.written += self.recorder.written
        return self.result

    def start_capture(self, scratch: Path, variants: list[str], *, gated: bool) -> Worker | None:
        """ncu with a worker in a folder of its own; None where nothing is to be captured.

        A gated one loads its libraries while the variants are being checked and timed, which is
        half of what a profiled process costs, and touches the GPU only when the gate opens.
        """
        if not variants:
            return None
        tool = machine.find_ncu()
        if tool is None:
            raise machine.why_not_measuring()
        folder = scratch / "ncu"
        folder.mkdir(exist_ok=True)
        if not (folder / "kernels").exists():
            shutil.copytree(scratch / "kernels", folder / "kernels")
        (folder / ncu.REPORT).unlink(missing_ok=True)
        job = {**self.job(variants, ["capture"]), "gated": gated}
        return Worker(folder, job, self.ncu_command(tool), cubins=scratch)

    def ncu_command(self, tool: str) -> list[str]:
        return ncu.command(Path(tool).name, self.config.profiler)

    def job(self, variants: list[str], phases: list[str]) -> dict[str, Any]:
        shapes = [n for n, s in self.study.shapes.items() if s.captured and n != self.plan.shape]
        return {
            "study": self.study.name,
            "variants": variants,
            "params": params_of(self.study, variants),
            "shape": self.plan.shape,
            "check_shapes": [self.plan.shape, *shapes],
            "phases": phases,
            "ranges": {n: range_name(self.study.name, n, self.plan.shape) for n in variants},
            "timing": {
                "rounds": self.config.timing.rounds,
                "seconds": self.config.timing.seconds,
                "graph_microseconds": self.config.timing.graph_microseconds,
            },
        }

    def fail(self, variant: str, phase: str, why: str, status: str) -> None:
        self.result.failures[variant] = why
        if phase in ("check", "time"):
            self.recorder.check(variant, self.plan.shape, status=CheckResult(status), why=why)
        elif phase == "build":
            self.recorder.build(variant, error=why)

    def take(self, event: Event) -> None:
        """Keep what an event brings, as soon as it comes."""
        kind, variant = event["event"], event.get("variant", "")
        if kind == "environment":
            self.recorder.environment = convert(event, Environment)
        elif kind == "built":
            self.recorder.build(
                variant,
                arch=event["arch"],
                kernels=convert(event["kernels"], tuple[BuiltKernel, ...]),
                warnings=tuple(event["warnings"]),
            )
        elif kind == "checked":
            self.recorder.check(
                variant,
                event["shape"],
                status=CheckResult(event["status"]),
                why=event["why"],
                max_abs=event["max_abs"],
                relative=event["relative"],
            )
            if event["status"] == "wrong":
                self.result.failures[variant] = f"wrong at {event['shape']}: {event['why']}"
            elif event["status"] == "unsupported" and event["shape"] == self.plan.shape:
                self.result.unsupported[variant] = f"does not support this shape: {event['why']}"
        elif kind == "timed":
            self.samples.append(event)
        elif kind == "timing_done":
            self.write_timings(event["variants"])
        elif kind == "failed":
            self.fail(variant, event["phase"], event["message"], "failed")
        self.on_event(event)

    def write_timings(self, variants: list[str]) -> None:
        columns = {name: [one[name] for one in self.samples] for name in Samples.__struct_fields__}
        self.recorder.session(variants, convert(columns, Samples))

    def blame(self, outcome: WorkerEnd, limit: float) -> str | None:
        """The variant that took the worker down, recorded as failed; None when it ended well."""
        if outcome.finished or outcome.interrupted:
            return None
        if any(e["event"] == "context_lost" for e in outcome.events):
            return next(str(e["variant"]) for e in outcome.events if e["event"] == "context_lost")
        variant = outcome.current
        if not variant:
            broken = next((e for e in outcome.events if e["event"] == "broken"), None)
            tail = broken["message"] if broken else "\n".join(outcome.log.splitlines()[-5:])
            raise ToolFailed(f"the worker stopped: {tail}", hint="`workbench doctor` may say why")
        starts = [e for e in outcome.events if e["event"] == "start" and e["variant"] == variant]
        phase = starts[-1]["phase"] if starts else "build"
        why = (
            f"hangs: nothing came for {limit:g} s ({phase})"
            if outcome.timed_out
            else f"crashed its process ({phase}, exit {outcome.returncode})"
        )
        self.fail(variant, phase, why, "hung" if outcome.timed_out else "crashed")
        self.on_event({"event": "failed", "variant": variant, "phase": phase, "message": why})
        return variant

    def prepare(self, scratch: Path, variants: list[str], *, time: bool) -> None:
        """Build, check and, where asked for, time; again without the one that broke the worker."""
        phases = ["build", "check", "time"] if time else ["build", "check"]
        limit = self.config.limits.seconds_per_step
        while variants:
            self.samples.clear()
            outcome = run_worker(scratch, self.job(variants, phases), limit, self.take)
            if outcome.interrupted:
                self.result.interrupted = True
                return
            culprit = self.blame(outcome, limit)
            if culprit is None:
                return
            variants = [v for v in variants if v != culprit and v not in self.result.out]

    def capture(self, scratch: Path, ahead: Worker | None) -> None:
        """One ncu process for all, and another for the rest when a variant breaks it."""
        left = [v for v in self.plan.captured if v not in self.result.out]
        limit = self.config.limits.seconds_per_capture
        while left and not self.result.interrupted:
            worker = ahead or self.start_capture(scratch, left, gated=False)
            assert worker is not None
            if worker is ahead:
                worker.open_gate(left)
            ahead = None
            seen = {"text": ""}

            def on_log(text: str, seen: dict[str, str] = seen) -> None:
                seen["text"] = (seen["text"] + text)[-4000:]
                state = output.progress(seen["text"])
                if state:
                    self.on_event({"event": "passes", "kernel": state[0], "percent": state[1]})

            outcome = worker.watch(limit, self.take, on_log)
            self.result.interrupted = outcome.interrupted
            done = [e["variant"] for e in outcome.events if e["event"] == "captured"]
            report = worker.scratch / ncu.REPORT
            stored = self.store(report, done) if report.exists() else []
            culprit = None
            if not outcome.finished and outcome.current:
                culprit = self.blame(outcome, limit)
            left = [v for v in left if v not in stored and v not in self.result.out]
            if not stored and not culprit and not outcome.interrupted and left:
                raise output.failure(outcome.log)

    def store(self, report: Path, variants: list[str]) -> list[str]:
        """Keep the report, and an index entry for each variant it really holds."""
        counts = launches_by_range(report)
        names = {v: range_name(self.study.name, v, self.plan.shape) for v in variants}
        held = {v: counts[name] for v, name in names.items() if counts.get(name)}
        if held:
            version = machine.ncu_version(machine.find_ncu() or "ncu") or "not collected"
            self.recorder.captures(report, held, self.config.profiler, version)
        return list(held)


def params_of(study: Study, variants: list[str]) -> dict[str, dict[str, Any]]:
    """The parameters of a job's variants that differ from their own."""
    return {name: dict(study.variants[name].params) for name in variants}


def build_only(
    study: Study, variants: list[str], arch: str, limit: float, on_event: Callable[[Event], None]
) -> list[Event]:
    """Compile for ``arch`` in a worker, without a GPU; the ``built`` and ``failed`` events."""
    job = {
        "study": study.name,
        "variants": variants,
        "params": params_of(study, variants),
        "phases": ["build"],
        "arch": arch,
    }
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(
            f"building needs {' and '.join(missing)}", hint="pip install 'kernel-workbench[gpu]'"
        )
    with scratch_folder(study) as scratch:
        outcome = run_worker(scratch, job, limit, on_event)
    if outcome.interrupted:
        raise KeyboardInterrupt
    kept = [e for e in outcome.events if e["event"] in ("built", "failed")]
    if not outcome.finished:
        why = "takes too long" if outcome.timed_out else "crashed the compiler's process"
        kept.append(
            {
                "event": "failed",
                "variant": outcome.current,
                "phase": "build",
                "message": why,
                "hint": "",
            }
        )
    return kept
