"""Where a block may go: elsewhere than where it failed, and never only to who is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")

from distributed import Client, LocalCluster

from workbench.places.workers import Crew

RELEASED = threading.Event()  # workers are threads of this process here


def where(_: object) -> bytes:
    from distributed import get_worker

    return str(get_worker().address).encode()


def sent(crew: Crew, key: str, avoid: str) -> Any:
    (future,) = crew.submit(where, [None], keys=[key], avoid=avoid)
    return future


def occupied() -> None:
    RELEASED.wait(30)


@pytest.fixture
def cluster() -> Iterator[Any]:
    RELEASED.clear()
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        resources={"GPU": 1},
        dashboard_address="127.0.0.1:0",
    ) as started:
        yield started
        RELEASED.set()


def test_a_block_goes_elsewhere_than_where_it_failed(cluster: Any) -> None:
    with Client(cluster) as client:
        crew = Crew("here", client, (), None)
        one, other = crew.addresses()
        assert sent(crew, "block-a", avoid=one).result(20).decode() == other
        assert sent(crew, "block-b", avoid=other).result(20).decode() == one


def test_a_block_for_a_worker_that_dies_goes_to_another(cluster: Any) -> None:
    """It waits for the one that it may go to, and that one dies: whoever is left has it."""
    with Client(cluster) as client:
        crew = Crew("here", client, (), None)
        worker, rest = cluster.workers.values()
        busy = client.submit(occupied, workers=[worker.address], resources={"GPU": 1})
        block = sent(crew, "block-c", avoid=rest.address)
        cluster.sync(worker.close, executor_wait=False)
        client.cancel([busy], force=True)
        RELEASED.set()
        assert block.result(20).decode() == rest.address
