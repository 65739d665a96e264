"""Workers as jobs of Slurm: dask-jobqueue's ``SLURMCluster``, with the scheduler in this process.

The nodes reach the scheduler, and it them, over the cluster's network: both sides show certificates
of this cluster alone, which are written, for this user alone, into a folder that all nodes see.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Security
from distributed.core import Status

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.places.jobqueue import SLURMCluster
from workbench.places.opened import Opened, Tell
from workbench.places.scheduler import FOR_WORKERS, PAGES, SETTINGS, WITHOUT_PAGES, security
from workbench.study.places import SlurmPlace

TOOLS = ("sbatch", "scancel")
LOST_SECONDS = 20.0  # in which a worker that its nanny starts again is back
# A nanny would set these for what is measured, too; None is how its configuration takes them out,
# which an environment variable of Dask's cannot say: they are in capitals.
UNSET = ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"


@contextmanager
def open_cluster(place: SlurmPlace, tell: Tell) -> Iterator[Opened]:
    """The jobs are submitted, and wait in Slurm's queue; at the end they are cancelled.

    Raises EnvironmentLacks without Slurm's commands or Dask's package for it, ToolFailed where a
    job is refused.
    """
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        raise EnvironmentLacks(
            f"{', '.join(missing)} not found: jobs are submitted from a machine of the cluster",
            hint="log in there, or reach it as a place of kind ssh",
        )
    folder = Path(place.folder).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with dask.config.set({**WITHOUT_PAGES, **SETTINGS}), in_files(security(), folder) as secured:
        cluster = Jobs(**settings(place, folder), security=secured)
        try:
            require_taken(place, cluster.job_script())  # type: ignore[no-untyped-call]
            cluster.scale(jobs=place.nodes)  # type: ignore[no-untyped-call]
            count = place.nodes * cards_of(place.gres)
            many = "s" * (place.nodes != 1)
            tell(f"{place.nodes} job{many} submitted to Slurm, for {count} GPUs in all")
            yield Opened(cluster.scheduler_address, cluster.security, count)
        finally:
            cluster.close()


@contextmanager
def in_files(secured: Any, folder: Path) -> Iterator[Security]:
    """The same certificate and key in files that this user alone reads; gone afterwards."""
    roles = ("client", "scheduler", "worker")
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as own:
        for name, text in {"ca": secured.tls_ca_file, "cert": secured.tls_worker_cert}.items():
            Path(own, name).write_text(text)
        Path(own, "key").touch(mode=0o600)
        Path(own, "key").write_text(secured.tls_worker_key)
        yield Security(
            require_encryption=True,
            tls_ca_file=f"{own}/ca",
            **{f"tls_{role}_{what}": f"{own}/{what}" for role in roles for what in ("cert", "key")},
        )


class Jobs(SLURMCluster):
    """Those that ended, at their walltime say, are submitted again; Dask itself does so only where
    it adapts to its load, and there not for a job of several workers.
    """

    def _update_worker_status(self, op: str, message: Any) -> None:
        lost = ""
        if op == "remove" and self.status == Status.running:
            lost = str(self.scheduler_info["workers"][message]["name"])
        super()._update_worker_status(op, message)  # type: ignore[no-untyped-call]
        if lost:
            asyncio.get_running_loop().call_later(LOST_SECONDS, self._submit_again, lost)

    def _submit_again(self, worker: str) -> None:
        """The job of a worker, if none of its workers has come back."""
        here = {one["name"] for one in self.scheduler_info["workers"].values()}
        for name, spec in self.worker_spec.items():
            workers = {f"{name}{suffix}" for suffix in spec.get("group", ("",))}
            if worker in workers and not workers & here and self.status == Status.running:
                self.workers.pop(name, None)  # Dask lets go of a job of one worker itself
                self._futures.add(asyncio.ensure_future(self._correct_state()))  # type: ignore[no-untyped-call]


def settings(place: SlurmPlace, folder: Path) -> dict[str, Any]:
    """What ``SLURMCluster`` takes: one job a node, in it one worker a GPU."""
    count = cards_of(place.gres)
    gres = [f"--gres={place.gres}"] if place.gres else []
    worker = ["--resources", "GPU=1"]
    pages = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    return {
        "queue": place.partition or None,
        "account": place.account or None,
        "walltime": place.walltime,
        "cores": count,  # threads of Dask: one a worker
        "job_cpu": place.cores,
        "processes": count,
        "memory": place.memory,
        "job_extra_directives": [*gres, *place.directives],
        "job_script_prologue": [
            *(f"export {name}={shlex.quote(value)}" for name, value in environment().items()),
            *place.prologue,
        ],
        "job_name": "workbench",
        "python": place.python or sys.executable,
        "worker_extra_args": [*worker, *pages],
        "death_timeout": 120,
        "log_directory": str(folder / "logs"),
        "local_directory": "${TMPDIR:-/tmp}",
        "interface": place.interface or None,
        "protocol": "tls://",
        "scheduler_options": {
            **PAGES,
            **({"interface": place.interface} if place.interface else {}),
        },
    }


def environment() -> dict[str, str]:
    """Of Dask, in a job."""
    unset = {"nanny": {"pre-spawn-environ": dict.fromkeys(UNSET)}}
    return {**FOR_WORKERS, INHERITED: dask.config.serialize({"distributed": unset})}


def cards_of(gres: str) -> int:
    """How many GPUs a job asks for: ``gpu:h200:4`` and ``gpu:4`` are four, others one."""
    for part in gres.split(","):
        name, *more = part.partition("(")[0].split(":")
        if name == "gpu" and more and more[-1].isdigit():
            return max(1, int(more[-1]))
    return 1


def require_taken(place: SlurmPlace, script: str) -> None:
    """Raises ToolFailed for a job that Slurm would refuse: Dask would say so in its log alone."""
    done = subprocess.run(
        ["sbatch", "--test-only"], input=script, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolFailed(
            f"Slurm takes no job of '{place.name}': {said[-1]}",
            hint=f"look at partition, account, gres and walltime in [places.{place.name}]",
            ran="sbatch --test-only",
        )
