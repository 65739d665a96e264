"""How far the referee's time of a kernel is from a session's: the table of docs/measuring.md.

One session of each study's kernels at a shape, then the referee. It needs a GPU, and two minutes.

    python -m benchmarks.refereed
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean, median

from tools.pages import ROOT, row, table

from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.run.protocol import SessionsJob
from workbench.run.worker.loader import Loader
from workbench.run.worker.referee import Referee
from workbench.run.worker.startup import import_libraries
from workbench.run.worker.timing.session import TimingProcess
from workbench.study.config import TimingSettings
from workbench.words import HEADLINE, grouped

CASES = {  # the first variant is the anchor
    ("attention", "b1h8s128d64"): ("sdpa", "fix11", "fix30", "sdpa_cudnn"),
    ("attention", "b2h8s512d64"): ("sdpa", "fix7", "fix11", "fix30", "sdpa_cudnn", "sdpa_flash"),
    ("attention", "b4h16s2048d128"): ("sdpa", "fix7", "fix30", "sdpa_cudnn"),
    ("moe", "qwen3-t16"): ("compiled", "fix26", "grouped"),
    ("softmax", "8192x1024"): ("eager", "online", "split", "compiled", "fused"),
    ("softmax", "256x131072-fp32"): ("eager", "split", "cluster"),
    ("transpose", "2048x2048"): ("eager", "tiled", "padded", "vectorised", "copy"),
}

HEAD = ("study", "shape", "session, µs", "referee − session, least", "most")


def job_of(study: str, shape: str, variants: Sequence[str]) -> SessionsJob:
    names = tuple(sorted(path.name for path in (ROOT / "kernels" / study).iterdir()))
    settings = TimingSettings()
    return SessionsJob(
        study=study, shape=shape, params={}, sources=dict.fromkeys(variants, names), references=(),
        controls=(), sessions=1, instances=settings.instances, rounds=settings.rounds,
        graph_microseconds=settings.graph_microseconds,
    )  # fmt: skip


def session(job: SessionsJob, variants: Sequence[str]) -> dict[str, float]:
    """The chained microseconds of each variant, in a process for that alone."""
    import torch

    torch.zeros(1, device="cuda")
    loader = Loader(job)
    study = loader.study()

    def fail(variant: str, error: BaseException) -> None:
        raise error

    timed = TimingProcess(job, study, loader, fail).session(0, variants, False)
    medians = grouped(
        (series.variant, median(series.microseconds))
        for series in timed.series
        if series.regime == HEADLINE and not series.control
    )
    return {name: fmean(times) for name, times in medians.items()}


def main() -> None:
    import_libraries()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as cubins:
        os.environ[CUBIN_FOLDER] = cubins
        print(table(HEAD, [], left=2))
        for (study, shape), variants in CASES.items():
            job = job_of(study, shape, variants)
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as fork:
                times, anchor = fork.submit(session, job, variants).result(), variants[0]
            by_referee: dict[str, float] = {}
            for seen in Referee(job, anchor).witnesses(variants[1:], lambda name: None):
                if seen.variant == anchor and not seen.why:
                    continue
                if not seen.microseconds or not seen.anchor_microseconds:
                    raise RuntimeError(f"{seen.variant}: {seen.unmeasured or seen.why}")
                by_referee |= {anchor: seen.anchor_microseconds, seen.variant: seen.microseconds}
            more = {name: time / times[name] - 1 for name, time in by_referee.items()}
            ends = min(more, key=more.__getitem__), max(more, key=more.__getitem__)
            span = f"{min(times.values()):.3g} to {max(times.values()):.3g}"
            least, most = (f"{more[name]:+.1%} {name}" for name in ends)
            print(row((study, shape, span, least, most)), flush=True)


if __name__ == "__main__":
    main()
