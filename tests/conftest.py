"""Shared fixtures: a fixed terminal, and the gpu ring skipped with its reason."""

from __future__ import annotations

import gc
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import property_cases
from answers import Capsys, Patch, Told, json_of
from inprocess import builds_here as builds_here
from inprocess import hooks_of_one_test as hooks_of_one_test
from inprocess import same_draws as same_draws
from inprocess import trials_here as trials_here
from warm_workers import warm_server as warm_server
from warm_workers import warm_workers as warm_workers
from workbench.cli import main
from workbench.run import machine
from workbench.run.machine import VISIBLE
from workbench.study.files import CONFIG_FILE
from workbench.study.workspace import Workspace
from workspaces import copy_of_fixture

ROOT = Path(__file__).parents[1]
CACHES = itertools.count()
# Small tensors on several threads: these wait for each other, longer than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", choices=("few", "many"), default="few", help="cases a property")


@pytest.hookimpl(tryfirst=True)  # before hypothesis looks for its seed, and the time limit is set
def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # a fifth of the time in which tests are collected
    many = config.getoption("--faults") == "many"
    property_cases.configure(many=many)
    if many and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))
    if many and config.getoption("timeout", None) is None:
        config.option.timeout = 3600  # of thousands of cases, each with its own limit
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # keep the order of pytest_collection_modifyitems
    scratch = Path(tempfile.gettempdir()).resolve()
    if any((folder / CONFIG_FILE).is_file() for folder in (scratch, *scratch.parents)):
        raise pytest.UsageError(f"TMPDIR is in a workspace, {scratch}: set it to another folder")
    # Whatever a shell starts in the background ignores Ctrl-C, and so would what the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed")
    told = f"faults: {config.getoption('--faults')}"
    return f"{told}, --hypothesis-seed={seed}" if seed else told


@pytest.fixture(autouse=True)
def within_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under ``--faults=many`` nothing of ``tests/faults`` takes more than a GiB."""
    many = request.config.getoption("--faults") == "many" and request.path.parent.name == "faults"
    own, children = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    before = [resource.getrusage(who).ru_maxrss for who in (own, children)]
    yield
    if many:
        peak = resource.getrusage(own).ru_maxrss
        child = resource.getrusage(children).ru_maxrss
        # That of all which ended so far, each of which begins with the peak of this process.
        child *= child > max(peak, before[1])
        assert max(peak - before[0], child) << 10 < property_cases.MOST_BYTES


@pytest.fixture(autouse=True)
def fixed_terminal(monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture(autouse=True)
def cache_of_one_test(
    request: pytest.FixtureRequest, monkeypatch: Patch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test finds or leaves anything in the user's; one on a GPU builds there what it needs."""
    if request.node.get_closest_marker("gpu") is None:
        folder = tmp_path_factory.getbasetemp() / f"cache-{next(CACHES)}"
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture(autouse=True)
def committed_reports(monkeypatch: Patch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Verbs run on this repository write its reports elsewhere: a stale one stays stale."""
    where, elsewhere = Workspace.reports, tmp_path_factory.getbasetemp() / "reports"

    def reports(workspace: Workspace, *given: Any) -> Path:
        found = where(workspace, *given)
        return elsewhere / found.relative_to(ROOT) if found.is_relative_to(ROOT) else found

    monkeypatch.setattr(Workspace, "reports", reports)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test of the other two rings measures nothing where there is a GPU, nor do its fixtures,
    whatever their scope. A signal that ends a verb ends the run: its test alone would fail.
    """
    failures, interrupted_at = item.session.testsfailed, main._interrupted_at
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("gpu") is None:
            patch.setenv(VISIBLE, "")
        machine.find_gpu.cache_clear()
        machine.nvidia_smi.cache_clear()
        result = yield
    if item.session.testsfailed > failures and main._interrupted_at > interrupted_at:
        item.session.shouldstop = "interrupted"
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test that leaves a lock's rank held would fail those after it in the same process."""
    result = yield
    files = sys.modules.get("workbench.study.files")
    assert not getattr(files and files._ranks, "last", 0), f"{item.nodeid} holds a lock still"
    return result


# The files that take longest begin: with two processes both end at about the same time.
LONGEST = (
    *("test_language.py", "test_gate.py", "test_referee.py", "test_sessions.py"),
    *("test_cuda_programs.py", "test_problems.py", "test_fault_streams.py", "test_strangers.py"),
    *("test_without_gpu.py", "test_ci.py", "test_agents.py", "test_brief.py", "test_foreign.py"),
    *("test_sass.py", "test_remote.py", "test_evidence.py", "test_try_files.py", "test_cli.py"),
    *("test_page.py", "test_examples.py", "test_terminal.py", "test_agent_arms.py"),
    "test_ship.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    if machine.can_measure():
        return
    reason = machine.why_not_measuring().message
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """From now on no process leaves compiled modules in a workspace of a test."""
    gc.enable()
    gc.freeze()
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the frozen one, to be changed; in no git repository."""
    return copy_of_fixture(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def told(root: Path, capsys: Capsys) -> Told:
    """The JSON of a verb in the workspace ``root`` of a test's own module."""

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        return dict(json_of(capsys, *arguments, project=root, code=code))

    return run


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("gpu", "quic", "sync", "background-networking", "component-update")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The machine's own Chromium without a window: a ``playwright.sync_api.Browser``."""
    api = pytest.importorskip("playwright.sync_api", reason="the test extra brings playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no chromium on this machine")
    options = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in QUIET)]
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=options)
        yield found
        found.close()
