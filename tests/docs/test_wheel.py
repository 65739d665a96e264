"""The wheel: one package, the packaged study inside, usable from any folder."""

from __future__ import annotations

import email
import re
import zipfile
from pathlib import Path

import pytest

from answers import python
from workspaces import ROOT

pytestmark = pytest.mark.slow


def run(*command: str, cwd: Path, site: Path | None = None) -> str:
    path = {"PYTHONPATH": str(site)} if site else {}
    done = python("-m", *command, cwd=cwd, **path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run("build", "--wheel", "--no-isolation", "--outdir", str(out), cwd=ROOT)
    (found,) = out.glob("*.whl")
    return found


def test_it_holds_one_package_and_the_workspace(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"workbench"}
    inside = "workbench/_content"
    for name in (
        "workbench.toml",
        "kernels/attention/fix3.cu",
        "ablations/attention/ablation.toml",
        "templates/report.html.j2",
        "templates/report.css",
        "templates/report.js",
        "templates/package/torch-ext/PACKAGE/op.py",
        "templates/solution/binding.cu",
        "LICENSE",
        "pyproject.toml",
        "starters/common/kernels/rmsnorm/study.py",
        "starters/cuda/kernels/rmsnorm/baseline.cu",
        "starters/triton/ablations/rmsnorm/ablation.toml",
        "starters/torch/kernels/rmsnorm/fix1.py",
    ):
        assert f"{inside}/{name}" in names
    assert any("/b2h8s512d64/timings/" in name for name in names)
    assert any("/tables/" in name for name in names)
    assert not any(name.endswith(".ncu-repz") or "/kernels/moe/" in name for name in names)
    assert wheel.stat().st_size <= 3e6
    assert "workbench/py.typed" in names
    assert "workbench/evidence/ceilings.toml" in names


def test_its_metadata_has_a_description_and_every_extra_is_documented(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(archive.read(name))
    assert told["Description-Content-Type"] == "text/markdown"
    assert str(told.get_payload()).startswith("# workbench")
    rows = set(
        re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "verbs.md").read_text(), re.MULTILINE)
    )
    assert set(told.get_all("Provides-Extra", [])) <= rows


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    options = ("-q", "--no-deps", "--no-index", "--no-compile", "--target", str(folder))
    run("pip", "install", *options, str(wheel), cwd=folder)
    return folder


def test_installed_it_works_on_the_packaged_workspace_and_reports_here(
    site: Path, tmp_path: Path
) -> None:
    here = tmp_path
    out = run("workbench", "list", cwd=here, site=site)
    assert re.search(r"\| fix6 \| fix4 \| [1-9]\d* timed, [1-9]\d* profiled \|", out)
    assert list(here.iterdir()) == []
    run("workbench", "report", "fix1", cwd=here, site=site)
    written = here / "workbench-reports" / "attention" / "fix1"
    assert (written / "OPTIMIZATION_REPORT.md").is_file()
    assert (written / "roofline-dark.svg").is_file()
    (report, *_) = sorted(ROOT.glob("ablations/softmax/evidence/*/reports/*.ncu-repz"))
    assert re.search(r"\d+ launches", run("workbench", "show", str(report), cwd=here, site=site))
    run("workbench", "init", "mine", cwd=here, site=site)
    assert "fix1.cu" in run("workbench", "build", "fix1", "--project", "mine", cwd=here, site=site)


def test_what_is_shipped_of_the_packaged_workspace_has_the_workbenchs_licence(
    site: Path, tmp_path: Path
) -> None:
    code = (
        "from workbench.cli.ship import licence_of\n"
        "from workbench.study.workspace import find_workspace\n"
        "name, text = licence_of(find_workspace().root)\n"
        "print(name, len(text))"
    )
    done = python("-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    assert done.stdout.strip() == f"Apache-2.0 {len((ROOT / 'LICENSE').read_bytes())}"
