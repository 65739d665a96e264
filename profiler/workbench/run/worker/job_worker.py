"""The process that holds the GPU: ``python -m workbench.run.worker.job_worker job.json``.

It runs in a scratch directory on a copy of the sources, imports torch, the study and the
variants, and appends one event per finished piece of work to ``events.jsonl``. The parent reads
that file; a crash here loses only what was under way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from workbench.children import adopt
from workbench.cuda.programs import source_text
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.records import BuiltKernel
from workbench.run.protocol import (
    Built,
    Captured,
    Checked,
    DeviceFound,
    Start,
    VariantsJob,
    read_calls,
)
from workbench.run.worker.event_log import STREAM_HINT, EventLog, describe
from workbench.run.worker.forking_worker import ForkingWorker, make_context
from workbench.run.worker.loader import Loader, Opened
from workbench.run.worker.startup import (
    import_ahead,
    import_for_forks,
    import_libraries,
    job_of,
    sources_of,
    wait_for_turn,
)
from workbench.study.front_ends import has_own_streams, is_compiling, require_configuration
from workbench.study.model import base_name
from workbench.words import CheckResult, Phase

if TYPE_CHECKING:
    from workbench.run.worker.timing.neighbours import Neighbours


class JobWorker(ForkingWorker):
    """Does one job in the current directory."""

    def __init__(self, job: VariantsJob, journal: EventLog) -> None:
        self.job = job
        self.loader = Loader(job, plain=job.only_compiles)
        super().__init__(journal, job.variants, self.loader.folder)
        if job.on_cpu:
            signal.signal(signal.SIGPROF, out_of_time)  # before any module has its own handlers
        self.failed: set[str] = set()
        self.reported = job.on_cpu or job.only_compiles
        self.neighbours: Neighbours | None = None
        self.opened: Opened | None = None

    def run(self) -> None:
        if self.job.waits:
            import_libraries()
            import_ahead(sources_of(self.job))
            self.variants = wait_for_turn()  # off the GPU
        if self.job.forks:
            self.run_forks(compares=Phase.CHECK in self.job.phases)
        else:
            self.load_study()
            self.work(self.variants)

    def compare_all(self) -> None:
        """Before any code of a variant runs, it has loaded what it compares with."""
        assert self.ends
        self.study = self.loader.study()
        make_context()
        reference = self.load_reference()
        self.ends.begin()
        try:
            for name in self.variants:
                self.compare(name, reference)
        except BaseException as error:
            told = describe(error)
            why = f"while {self.ends.work}: {told.message}"
            raise ToolFailed(why, hint=told.hint or self.its_reference) from error

    def prepare(self) -> None:
        self.load_study()
        make_context()

    def work(self, variants: Sequence[str]) -> None:
        """Do all phases of these. None is left of it but its events."""
        if not self.reported and [*variants][:1] == [*self.variants][:1]:
            from workbench.run.worker.device import environment

            self.journal.write(DeviceFound(environment=environment()))
        phases: dict[Phase, Callable[[str], None]] = {
            Phase.BUILD: self.build,
            Phase.CHECK: self.check,
            Phase.CAPTURE: self.capture,
            Phase.TRACE: partial(self.capture, traced=True),
        }
        for phase, work in phases.items():
            # A capture compiles what it calls; a check on the CPU builds nothing ahead of it.
            if phase in self.job.phases or (phase == Phase.BUILD and not self.job.on_cpu):
                self.each(variants, phase, work)

    def each(self, variants: Sequence[str], phase: Phase, work: Callable[[str], None]) -> None:
        """Do one phase of all variants that have not failed. A failure ends that variant alone."""
        checked = self.job.known if phase == Phase.CHECK else ()
        for name in [name for name in variants if name not in {*self.failed, *checked}]:
            self.journal.current(name)
            compiling = is_compiling(self.loader.files(name))
            self.journal.write(Start(variant=name, phase=phase, compiling=compiling))
            try:
                with self.covered(name):
                    work(name)
            except BaseException as error:  # users' code may also exit
                self.failed.add(name)
                self.journal.fail(name, phase, error)
        self.journal.current("")

    def load_study(self) -> None:
        self.study = self.loader.study()
        if not (self.job.on_cpu or self.job.only_compiles):
            self.opened = Opened(self.loader.folder.parent)

    def covered(self, name: str) -> AbstractContextManager[None]:
        """Raise UsageError at the end for a source that the fingerprint does not cover."""
        if self.opened is None:
            return nullcontext()
        return self.opened.require_covered(self.loader.folder, self.job.sources.get(name, ()))

    def build(self, name: str) -> None:
        file = self.loader.folder / f"{base_name(name)}.py"
        text = source_text(file, file.name)  # where it is not UTF-8, says so with the byte
        require_configuration(file.name, text)
        self.loader.load(name)
        if Phase.BUILD not in self.job.phases:
            return
        arch = self.job.arch
        if not arch:  # that of the GPU at hand
            from workbench.run.worker.device import device_arch

            arch = device_arch()
        built: dict[tuple[object, ...], tuple[BuiltKernel, str]] = {}
        warnings: dict[str, None] = {}
        for kernel in self.loader.declared:
            report, _ = kernel.compile(arch)
            warnings |= dict.fromkeys(report.warnings)
            for build in report.kernels:
                # A source is compiled for each of its kernels, and that one has its code.
                key = kernel.path, kernel.shown_defines, kernel.options, build.kernel
                if build.code or key not in built:
                    made = BuiltKernel(**vars(build), source=kernel.path.name)
                    built[key] = made, kernel.shown_defines
        self.journal.write(
            Built(
                variant=name,
                arch=arch,
                kernels=tuple(made for made, _ in built.values()),
                defines=tuple(defines for _, defines in built.values()),
                warnings=tuple(warnings),
            )
        )

    def check(self, name: str) -> None:
        """Make the calls that the process asks for that compares. On the CPU at one shape after the
        other, until one takes long: not all code is as fast as torch's. Raises EnvironmentLacks
        there for CUDA C.
        """
        from workbench.run.worker.checking import Draw
        from workbench.run.worker.correctness import make_calls
        from workbench.run.worker.timing.graphs import capture_stream

        run, on_cpu = self.loader.load(name), self.job.on_cpu
        if on_cpu and self.loader.declared:
            hint = "`--on HOST` checks it there; `workbench build` compiles it without one"
            raise EnvironmentLacks(CUDA_C, hint=hint)
        side = None if on_cpu else partial(capture_stream, self.loader.has_extension(name))
        if is_compiling(self.loader.files(name)):
            run = self.telling(name, run)
        run = self.in_layout(name, run)
        assert self.ends
        for shape, draws in groupby(self.ends.asks(name, Draw), key=lambda draw: draw.shape):
            calls = partial(make_calls, self.study, run, self.study.shapes[shape], side)
            try:
                with limited(CPU_SECONDS) if on_cpu else nullcontext():
                    for draw in draws:
                        self.ends.answer(name, draw, calls)
            except OutOfTime:
                return
            except Exception as error:
                raise self.failing_at(shape, error) from error

    def failing_at(self, shape: str, error: Exception) -> Exception:
        """An error with the name of the shape, where it is not the one that is timed."""
        if shape == self.job.shape:
            return error
        described = describe(error)
        return ToolFailed(f"at {shape}: {described.message}", hint=described.hint)

    def compare(self, name: str, reference: Callable[..., Any] | None) -> None:
        """Write at each shape whether what the process of a variant shows is right."""
        from workbench.run.worker.checking import Gone
        from workbench.run.worker.correctness import check_variant

        assert self.ends
        for shape in self.job.check_shapes:
            self.ends.work = f"comparing {name} at {shape}"
            calls = partial(self.ends.asked, name, shape)
            try:
                with limited(CPU_SECONDS) if self.job.on_cpu else nullcontext():
                    outcome = check_variant(self.study, calls, self.study.shapes[shape], reference)
            except (Gone, OutOfTime):
                break
            except Exception as error:
                self.ends.work = ""  # is over, also where what it was given took the context along
                self.journal.fail(name, Phase.CHECK, self.failing_at(shape, error))
                break
            wrong = outcome.status == CheckResult.WRONG
            if wrong and not outcome.hint and has_own_streams(self.loader.files(name)):
                outcome = structs.replace(outcome, hint=STREAM_HINT)
            self.journal.write(Checked(variant=name, shape=shape, **structs.asdict(outcome)))
        self.ends.end(name)

    def telling(self, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, which tells when it has returned for the first time: nothing compiles any more,
        and what takes long from then on is the kernel.
        """
        called_once = False

        def called(**inputs: Any) -> Any:
            nonlocal called_once
            result = run(**inputs)
            if not called_once:
                called_once = True
                self.journal.write(Start(variant=name, phase=Phase.CHECK))
            return result

        return called

    def load_reference(self) -> Callable[..., Any] | None:
        """The primary one, whose error stands beside those of variants. It is not what is timed."""
        if self.job.reference:
            with suppress(Exception):  # its errors are reported where it is built
                return self.loader.load(self.job.reference)
        return None

    def in_layout(self, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, bound to the layout that the study asks of its steps, not of references."""
        from workbench.run.worker.output import in_order

        asked = getattr(self.study, "contiguous", False) and name not in self.job.references
        return in_order(run) if asked else run

    def capture(self, name: str, *, traced: bool = False) -> None:
        """Call the variant once inside of its NVTX range, after calls outside of it, in which
        compilers and autotuners work. A variant that chooses its kernels is loaded again, a few
        times, until it launches what was timed. ``traced``: the last call is the replay of a graph,
        if one can capture it.

        A neighbour has just written the inputs, as in the chained regime.
        """
        import torch

        from workbench.run.worker.timing import graphs
        from workbench.run.worker.timing.neighbours import Neighbours, TimedGpu

        if self.neighbours is None:
            self.neighbours = Neighbours(TimedGpu(), self.study, self.study.shapes[self.job.shape])
        neighbours = self.neighbours
        inputs = neighbours.inputs()
        table = neighbours.input_tables(inputs)
        neighbours.gpu.advance()
        neighbours.write(table, 0)
        # Ranges are of a thread, and autograd has one of its own for what goes backward.
        with torch.autograd.set_multithreading_enabled(False):
            ways = read_calls(Path.cwd()).get(name, ())
            call = graphs.as_timed(
                lambda: partial(self.loader.load(name), **inputs), ways, neighbours.gpu.side
            )
            if traced:
                with suppress(Exception):  # it is called all the same
                    call = graphs.captured(call, neighbours.gpu.side).replay
                for _ in range(TRACED_AFTER):
                    call()
            neighbours.write(table, 1)
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_push(self.job.ranges[name])
            call()
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
        if not traced:
            self.journal.write(Captured(variant=name))


TRACED_AFTER = 3  # calls: the clocks have risen
CPU_SECONDS = 8.0  # at one shape
CUDA_C = "CUDA C needs a GPU"


class OutOfTime(BaseException):
    """Not even an interpreter of kernels keeps it for itself."""


def out_of_time(*_: object) -> None:
    raise OutOfTime


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTime inside after so many seconds of the CPU."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    with job_of(VariantsJob) as (job, journal), ExitStack() as stack:
        if job.on_cpu:
            os.environ["TRITON_INTERPRET"] = "1"
        if job.forks:
            import_for_forks("workbench.run.worker.job_worker", job)
            adopt()
        if job.on_cpu:
            from workbench.run.worker.device import on_cpu

            stack.enter_context(on_cpu())
        JobWorker(job, journal).run()


if __name__ == "__main__":
    main()
