"""Workers as pods of Kubernetes, made by the Dask operator from dask-kubernetes' own manifest.

``KubeCluster`` itself knows no TLS, and every pod of the cluster could reach its scheduler. So the
manifest that it would apply is given certificates, from a secret of this cluster of workers alone,
and applied with ``kubectl``, whose port-forward is the only way in from here.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.places.connection import free_port
from workbench.places.installing import no_dask
from workbench.places.opened import Opened, Tell
from workbench.places.scheduler import FOR_WORKERS, security
from workbench.study.places import KubernetesPlace

PORT = 8786
SCHEDULER_SECONDS = 600.0  # until its image is there
FORWARD_SECONDS = 30.0
MOUNTED = "/var/run/workbench-tls"
LABELS = {"app.kubernetes.io/managed-by": "workbench"}
TLS = [
    *("--protocol", "tls", "--tls-ca-file", f"{MOUNTED}/ca"),
    *("--tls-cert", f"{MOUNTED}/cert", "--tls-key", f"{MOUNTED}/key"),
]
# The operator asks the scheduler whether it lives over HTTP, and for nothing else.
ENVIRONMENT = {
    **FOR_WORKERS,
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": '["distributed.http.health"]',
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60 s",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
}
SMALL = {"cpu": "1", "memory": "2Gi"}  # of the scheduler


@contextmanager
def open_cluster(place: KubernetesPlace, tell: Tell) -> Iterator[Opened]:
    """At the end the pods are deleted. Raises EnvironmentLacks without kubectl, ToolFailed where
    the cluster refuses the manifest or its scheduler does not start.
    """
    if shutil.which("kubectl") is None:
        raise EnvironmentLacks(
            "kubectl was not found", hint="install it, and let it reach the cluster"
        )
    name, secured = f"workbench-{secrets.token_hex(4)}", security()
    files = {
        "ca": secured.tls_ca_file,
        "cert": secured.tls_worker_cert,
        "key": secured.tls_worker_key,
    }
    try:
        kubectl(place, "apply", "-f", "-", given=json.dumps(manifest(place, name, files)))
        tell(f"{place.workers} pods asked for, as DaskCluster {name}")
        await_scheduler(place, name)
        with forwarded(place, name) as port:
            yield Opened(f"tls://127.0.0.1:{port}", secured, place.workers)
    finally:
        kinds = "daskclusters.kubernetes.dask.org,secrets"
        with suppress(ToolFailed):
            kubectl(place, "delete", kinds, name, "--ignore-not-found", "--wait=false")


def manifest(place: KubernetesPlace, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The secret and the cluster of workers, as one list."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": LABELS},
        "type": "Opaque",
        "stringData": dict(files),
    }
    return {"apiVersion": "v1", "kind": "List", "items": [secret, cluster(place, name)]}


def cluster(place: KubernetesPlace, name: str) -> dict[str, Any]:
    """What ``KubeCluster`` would apply, with certificates, and the GPUs at the workers alone.

    Raises EnvironmentLacks where dask-kubernetes is missing.
    """
    try:
        from dask_kubernetes.operator import make_cluster_spec
    except ImportError as error:
        raise no_dask(error.name or "dask-kubernetes") from None
    made: dict[str, Any] = make_cluster_spec(
        name=name, image=place.image, n_workers=place.workers, env=ENVIRONMENT
    )
    made["metadata"]["labels"] = LABELS
    scheduler, worker = made["spec"]["scheduler"]["spec"], made["spec"]["worker"]["spec"]
    for pod in (scheduler, worker):
        pod["volumes"] = [{"name": "tls", "secret": {"secretName": name, "defaultMode": 0o400}}]
        (container,) = pod["containers"]
        container["volumeMounts"] = [{"name": "tls", "mountPath": MOUNTED, "readOnly": True}]
    (first,) = scheduler["containers"]
    first["resources"] = {"requests": SMALL, "limits": SMALL}
    first["args"] = ["python", "-m", "distributed.cli.dask_scheduler", "--host", "0.0.0.0", *TLS]
    (second,) = worker["containers"]
    size = {"cpu": str(place.cores), "memory": place.memory, place.gpu: "1"}
    second["resources"] = {"requests": size, "limits": size}
    address = f"tls://{name}-scheduler.{place.namespace}.svc:{PORT}"
    second["args"] = [
        *("python", "-m", "distributed.cli.dask_worker", address, *TLS),
        *("--name", "$(DASK_WORKER_NAME)", "--nthreads", "1", "--memory-limit", "0"),
        "--no-nanny",  # the pod starts it again
        *("--resources", "GPU=1", "--no-dashboard"),
    ]
    if place.privileged:
        second["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN"]}}
    return made


def kubectl(place: KubernetesPlace, *arguments: str, given: str | None = None) -> str:
    """Its output. Raises ToolFailed with its own words."""
    done = subprocess.run(
        [*command(place), *arguments], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolFailed(
            f"kubectl {arguments[0]} failed: {said[-1]}", hint=hint(place, done.stderr)
        )
    return done.stdout


def command(place: KubernetesPlace) -> list[str]:
    context = ["--context", place.context] if place.context else []
    return ["kubectl", *context, "--namespace", place.namespace]


def hint(place: KubernetesPlace, said: str) -> str:
    if "no matches for kind" in said or "doesn't have a resource type" in said:
        return (
            "the cluster lacks the Dask operator: `helm install --repo https://helm.dask.org ...`"
        )
    if "orbidden" in said:
        return f"your account may not do that in namespace '{place.namespace}'"
    return "`kubectl get daskclusters` must work"


def await_scheduler(place: KubernetesPlace, name: str) -> None:
    """Raises ToolFailed where its pod is not ready after a while, with what it waits for."""
    chosen = f"dask.org/cluster-name={name},dask.org/component=scheduler"
    last = time.monotonic() + SCHEDULER_SECONDS
    why = "no pod was made: is the Dask operator running?"
    while time.monotonic() < last:
        found = json.loads(kubectl(place, "get", "pods", "-l", chosen, "-o", "json"))["items"]
        for pod in found:
            status = pod.get("status", {})
            conditions = {c["type"]: c for c in status.get("conditions", [])}
            if conditions.get("Ready", {}).get("status") == "True":
                return
            why = waiting(status, conditions)
        time.sleep(1.0)
    raise ToolFailed(
        f"the scheduler's pod of '{place.name}' does not get ready: {why}",
        hint=f"`kubectl describe pods -l {chosen}` says more",
    )


def waiting(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    """In Kubernetes' own words: that of a container, else why the pod has no node."""
    for container in status.get("containerStatuses", []):
        if found := container.get("state", {}).get("waiting"):
            return f"{found.get('reason', '')} {found.get('message', '')}".strip()
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message") or status.get("phase", "unknown"))


@contextmanager
def forwarded(place: KubernetesPlace, name: str) -> Iterator[int]:
    """A port of the loopback that leads to the scheduler."""
    port = free_port()
    started = subprocess.Popen(
        [
            *(*command(place), "port-forward", "--address", "127.0.0.1"),
            *(f"service/{name}-scheduler", f"{port}:{PORT}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        last = time.monotonic() + FORWARD_SECONDS
        while not listens(port):
            if started.poll() is not None or time.monotonic() > last:
                raise ToolFailed(
                    f"kubectl port-forward to {name}-scheduler does not come about",
                    hint=f"your account needs pods/portforward in namespace '{place.namespace}'",
                )
            time.sleep(0.1)
        yield port
    finally:
        started.terminate()
        started.wait()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
