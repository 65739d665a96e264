"""A Dask scheduler: one that runs already, or one in this process for workers from elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.places.installing import no_dask
from workbench.places.opened import Opened, Tell
from workbench.study.places import SchedulerPlace

# No page for whoever else is on this machine: Dask's own are served without TLS.
WITHOUT_PAGES = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.comm.require-encryption": True,
}
SETTINGS = {
    "distributed.worker.profile.enabled": False,  # it wakes the worker a hundred times a second
    "distributed.scheduler.worker-ttl": "60 s",
    "distributed.scheduler.allowed-failures": 2,
    "distributed.comm.timeouts.connect": "15 s",
    "distributed.nanny.pre-spawn-environ": {},  # what is measured runs as it does without Dask
    "distributed.admin.low-level-log-length": 100,  # of each of its logs, for its developers
}
FOR_WORKERS = {  # of the same, in the environment of a worker that is started elsewhere
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "100",
    "DASK_LOGGING__DISTRIBUTED": "warning",
}
PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}


@contextmanager
def open_cluster(place: SchedulerPlace, tell: Tell) -> Iterator[Opened]:
    """One that runs already, with the workers that it has."""
    from distributed import Security

    secured = Security(
        require_encryption=True,
        tls_ca_file=place.ca,
        tls_client_cert=place.cert,
        tls_client_key=place.key,
    )
    is_open = place.address.startswith("tcp://")  # on the loopback: nowhere else may it be so
    yield Opened(address=place.address, security=None if is_open else secured, workers=0)


def security() -> Any:
    """A key and certificate of this cluster alone, which live no longer than it does; both ends
    show them (distributed asks for a client's certificate as well).

    Raises EnvironmentLacks where a package of the ``cluster`` extra is missing.
    """
    try:
        from distributed import Security

        return Security.temporary()
    except ImportError as error:
        raise no_dask(error.name or "cryptography") from None


@contextmanager
def local_scheduler() -> Iterator[Any]:
    """A cluster without workers, on the loopback and with TLS."""
    secured = security()
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({**WITHOUT_PAGES, **SETTINGS}),
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls",
            security=secured,
            scheduler_kwargs=PAGES,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster
