"""The manifest of a place of kind kubernetes: against the operator's schema, and by kubectl's dry
run against a server that knows its kinds and no more.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dask_kubernetes", reason="the extra 'cluster' is not installed")

import yaml

from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.places import kubernetes
from workbench.study.places import KubernetesPlace

SECRETS = {"ca": "CERTIFICATE", "cert": "CERTIFICATE", "key": "PRIVATE KEY"}
PLACE = KubernetesPlace(
    name="pods", image="registry.example/workbench:1", namespace="gpus", workers=3, cores=8
)
CRDS = "operator/deployment/helm/dask-kubernetes-operator/crds"


def made(place: KubernetesPlace = PLACE) -> dict[str, Any]:
    return kubernetes.manifest(place, "workbench-0a1b2c3d", SECRETS)


def container(place: KubernetesPlace, of: str) -> dict[str, Any]:
    (found,) = made(place)["items"][1]["spec"][of]["spec"]["containers"]
    return dict(found)


def schema(kind: str) -> Mapping[str, Any]:
    text = (files("dask_kubernetes") / CRDS / f"{kind}.yaml").read_text()
    found = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return dict(found)


def faults(value: Any, rule: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Where a value departs from an OpenAPI schema: as an API server that is told to be strict, it
    takes no field that the schema does not name.
    """
    if rule.get("x-kubernetes-int-or-string") or "type" not in rule:
        return
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, kinds[rule["type"]]):
        yield f"{at} is a {type(value).__name__}, not of type {rule['type']}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, rule["items"], f"{at}[{number}]")
    elif isinstance(value, dict):
        yield from (
            f"{at}.{name} is missing" for name in rule.get("required", ()) if name not in value
        )
        known = rule.get("properties", {})
        for name, item in value.items():
            if name in known:
                yield from faults(item, known[name], f"{at}.{name}")
            elif "additionalProperties" in rule:
                yield from faults(item, rule["additionalProperties"], f"{at}.{name}")
            elif known and not rule.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{at}.{name} is unknown"


@pytest.mark.parametrize("place", [PLACE, KubernetesPlace("x", image="i", privileged=True)])
def test_the_manifest_fits_the_schema_of_the_operator(place: KubernetesPlace) -> None:
    spec = {"spec": made(place)["items"][1]["spec"]}
    assert list(faults(spec, schema("daskcluster"))) == []


def test_the_check_of_the_schema_finds_what_is_wrong() -> None:
    cluster = made()["items"][1]
    cluster["spec"]["worker"]["replica"] = 3
    cluster["spec"]["worker"]["spec"]["containers"][0]["args"] = "python"
    del cluster["spec"]["scheduler"]["service"]
    found = list(faults(cluster, schema("daskcluster")))
    assert any(".spec.worker.replica is unknown" in fault for fault in found)
    assert any(".args is a str" in fault for fault in found)
    assert any(".service is missing" in fault for fault in found)


def test_workers_have_a_gpu_each_and_the_scheduler_none() -> None:
    worker, scheduler = container(PLACE, "worker"), container(PLACE, "scheduler")
    assert made()["items"][1]["spec"]["worker"]["replicas"] == 3
    for which in ("requests", "limits"):
        assert worker["resources"][which]["nvidia.com/gpu"] == "1"
        assert "nvidia.com/gpu" not in scheduler["resources"][which]
    assert "--resources GPU=1" in " ".join(worker["args"])
    assert worker["image"] == PLACE.image
    assert "securityContext" not in worker
    admin = container(KubernetesPlace("x", image="i", privileged=True), "worker")
    assert admin["securityContext"] == {"capabilities": {"add": ["SYS_ADMIN"]}}


def test_all_words_between_pods_are_encrypted_and_the_key_is_in_the_secret_alone() -> None:
    secret, cluster = made()["items"]
    assert secret["stringData"] == SECRETS
    assert "PRIVATE KEY" not in json.dumps(cluster)
    for of in ("scheduler", "worker"):
        args = " ".join(container(PLACE, of)["args"])
        assert "--protocol tls" in args
        assert "--tls-key /var/run/workbench-tls/key" in args
        env = {e["name"]: e["value"] for e in container(PLACE, of)["env"]}
        assert env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
        (volume,) = cluster["spec"][of]["spec"]["volumes"]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    address = container(PLACE, "worker")["args"][3]
    assert address == "tls://workbench-0a1b2c3d-scheduler.gpus.svc:8786"


@pytest.mark.parametrize("of", ["scheduler", "worker"])
def test_the_commands_are_ones_that_dask_takes(of: str) -> None:
    """Every option of the containers is one of Dask's own command lines."""
    from distributed.cli.dask_scheduler import main as scheduler
    from distributed.cli.dask_worker import main as worker

    known = {o for p in {"scheduler": scheduler, "worker": worker}[of].params for o in
             (*p.opts, *p.secondary_opts)}  # fmt: skip
    words = container(PLACE, of)["args"]
    assert words[:2] == ["python", "-m"]
    assert {word for word in words[3:] if word.startswith("--")} <= known


class Api(BaseHTTPRequestHandler):
    """What kubectl asks for before it applies: which kinds there are, and whether it is there."""

    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        type(self).asked.append(f"{self.command} {path}")
        resources = {
            "/api/v1": ("v1", [("secrets", "Secret")]),
            "/apis/kubernetes.dask.org/v1": (
                "kubernetes.dask.org/v1",
                [("daskclusters", "DaskCluster")],
            ),
        }
        if path == "/api":
            return self.answer({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            version = {"groupVersion": "kubernetes.dask.org/v1", "version": "v1"}
            group = {
                "name": "kubernetes.dask.org",
                "versions": [version],
                "preferredVersion": version,
            }
            return self.answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
        if path in resources:
            version_name, kinds = resources[path]
            listed = [
                {"name": n, "singularName": "", "kind": k, "namespaced": True, "verbs": ["get"]}
                for n, k in kinds
            ]
            return self.answer(
                {
                    "kind": "APIResourceList",
                    "groupVersion": version_name,
                    "resources": listed,
                }
            )
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"}
        return self.answer({**status, "code": 404}, 404)

    def answer(self, body: Mapping[str, Any], code: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What it was asked; the user's kubectl speaks with it."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Known", (Api,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "test", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield asked
    server.shutdown()
    server.server_close()


def test_kubectl_would_apply_it(api: list[str]) -> None:
    words = ["apply", "--dry-run=client", "--validate=false", "-f", "-"]
    out = kubernetes.kubectl(PLACE, *words, given=json.dumps(made()))
    assert "secret/workbench-0a1b2c3d created (dry run)" in out
    assert "daskcluster.kubernetes.dask.org/workbench-0a1b2c3d created (dry run)" in out
    assert "GET /apis/kubernetes.dask.org/v1/namespaces/gpus/daskclusters/workbench-0a1b2c3d" in api


def test_a_cluster_that_cannot_be_reached_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    opened = kubernetes.open_cluster(PLACE, lambda line: None)
    with pytest.raises(ToolFailed, match="kubectl apply failed") as failed, opened:
        pass
    assert "kubectl get daskclusters" in failed.value.hint


KUBECTL = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in
  *"get pods"*) cat {folder}/pods ;;
  *port-forward*) exec sleep 60 ;;
esac
"""


def test_what_a_pod_waits_for_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a kubectl that says what a cluster would whose nodes have no such image."""
    (tmp_path / "kubectl").write_text(KUBECTL.format(folder=tmp_path))
    (tmp_path / "kubectl").chmod(0o755)
    waits = {"reason": "ImagePullBackOff", "message": "no such image"}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waits}}]}
    (tmp_path / "pods").write_text(json.dumps({"items": [{"status": status}]}))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(kubernetes, "SCHEDULER_SECONDS", 0.1)
    opened = kubernetes.open_cluster(PLACE, lambda line: None)
    with pytest.raises(ToolFailed, match="ImagePullBackOff no such image"), opened:
        pass
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[2] for line in asked] == ["apply", "get", "delete"]
    assert all(line.startswith("--namespace gpus ") for line in asked)


def test_without_kubectl_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    opened = kubernetes.open_cluster(PLACE, lambda line: None)
    with pytest.raises(EnvironmentLacks, match="kubectl was not found"), opened:
        pass


def test_a_cluster_without_the_operator_is_told_apart() -> None:
    said = 'error: resource mapping not found: no matches for kind "DaskCluster"'
    assert "Dask operator" in kubernetes.hint(PLACE, said)
    assert "namespace 'gpus'" in kubernetes.hint(PLACE, "Error from server (Forbidden): ...")
