"""Opens a place: its cluster, a client of it, and the equal workers that measure."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.errors import EnvironmentLacks
from workbench.places.installing import no_dask
from workbench.places.opened import Opened, Tell
from workbench.places.workers import Crew, meet
from workbench.study.places import Place, kind_of

TIMEOUT_SECONDS = 30


@contextmanager
def open_place(place: Place, tell: Tell) -> Iterator[Crew]:
    """Raises EnvironmentLacks where it cannot be reached, or none of its workers can measure."""
    with client_of(place, tell) as client:
        yield meet(place.name, client, tell)


@contextmanager
def client_of(place: Place, tell: Tell) -> Iterator[Any]:
    """A Dask client. What was started for the place ends with it; a scheduler that ran before is
    left alone. Raises EnvironmentLacks where Dask is missing, or no scheduler answers.
    """
    try:
        importlib.import_module("distributed")
        module = importlib.import_module(f"workbench.places.{kind_of(place)}")
    except ImportError as error:
        raise no_dask(error.name or "distributed") from None
    with module.open_cluster(place, tell) as opened, connected(place.name, opened) as client:
        yield client


@contextmanager
def connected(name: str, opened: Opened) -> Iterator[Any]:
    """Raises EnvironmentLacks where nobody answers at the address, or lets this client in."""
    from distributed import Client

    try:
        client = Client(
            opened.address,
            security=opened.security,
            set_as_default=False,
            timeout=TIMEOUT_SECONDS,
            loop=opened.loop,
        )
    except (OSError, TimeoutError) as error:
        raise EnvironmentLacks(
            f"the scheduler of '{name}' does not answer at {opened.address}",
            hint="is it running, and are ca, cert and key those of its cluster?",
            ran=str(error),
        ) from None
    with client:
        yield client
