"""A scheduler that runs already: reached with its certificates, and with no others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("workbench.places.jobqueue", reason="the extra 'cluster' is not installed")

from distributed import LocalCluster

from workbench.errors import EnvironmentLacks
from workbench.places import opening
from workbench.places.opening import client_of
from workbench.places.scheduler import security
from workbench.places.slurm import in_files
from workbench.study.places import SchedulerPlace


def place(address: str, folder: Path) -> SchedulerPlace:
    named = {what: str(folder / what) for what in ("ca", "cert", "key")}
    return SchedulerPlace(name="there", address=address, **named)


def folder_of(secured: Any) -> Path:
    """Of its certificates."""
    return Path(secured.tls_ca_file).parent


def test_a_scheduler_that_runs_is_used_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "TIMEOUT_SECONDS", 2)
    with in_files(security(), tmp_path) as secured, in_files(security(), tmp_path) as stranger:
        folder, other = (folder_of(one) for one in (secured, stranger))
        with LocalCluster(
            n_workers=1,
            processes=False,
            protocol="tls",
            security=secured,
            dashboard_address="127.0.0.1:0",
        ) as cluster:
            there = cluster.scheduler_address
            for _ in range(2):
                with client_of(place(there, folder), lambda line: None) as client:
                    assert list(client.run(os.getpid).values()) == [os.getpid()]
            with (
                pytest.raises(EnvironmentLacks, match="does not answer") as failed,
                client_of(place(there, other), lambda line: None),
            ):
                pass
            assert "ca, cert and key" in failed.value.hint
