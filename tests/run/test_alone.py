"""What a variant changes in its process reaches no other: each is checked in one of its own.

The worker is the real one; builds and checks are on the CPU.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from answers import Patch
from workbench.errors import ToolFailed
from workbench.evidence import store
from workbench.evidence.records import CheckOutcome, Environment
from workbench.evidence.store import EvidenceFolder
from workbench.run import compilation, machine, measurement
from workbench.run.measurement import MeasuredPlan, Measurement, Plan
from workbench.run.process import WorkerEnd
from workbench.run.protocol import CURRENT, EVENTS, Done, VariantsJob, decode
from workbench.run.worker import correctness, device
from workbench.run.worker.correctness import CallsMade, ShownCalls
from workbench.run.worker.device import on_cpu
from workbench.run.worker.event_log import EventLog, or_broken
from workbench.run.worker.job_worker import JobWorker
from workbench.run.worker.output import Outputs
from workbench.study.config import Config
from workbench.study.workspace import find_workspace
from workbench.words import CheckResult
from workspaces import make

TWICE = "def run(x):\n    return 2 * x\n"
HONEST = {
    "baseline": TWICE,
    "joins": "import threading\n\ndef run(x):\n    one = threading.Thread(target=x.sum)\n"
    "    one.start()\n    one.join()\n    return 2 * x\n",
    "reads": "from pathlib import Path\n\ndef run(x):\n"
    "    return int(Path(__file__).with_name('two.txt').read_text()) * x\n",
    "keeps": "kept = {}\n\ndef run(x):\n    return kept.setdefault(len(x), 2) * x\n",
    "sets": "import signal, sys, torch\ntorch.set_grad_enabled(False)\n"
    "torch.backends.cudnn.benchmark = True\nsys.setprofile(lambda *given: None)\n"
    "signal.signal(signal.SIGUSR1, lambda *given: None)\n" + TWICE,
}
# Module, and what is found in the reason why it fails; "" where it harms itself at the most.
VIOLATING = {
    "patches": ("import torch\ntorch.equal = lambda *given: False\n" + TWICE, ""),
    "at a call": ("import torch\n\ndef run(x):\n    torch.arange = print\n    return 2 * x\n", ""),
    "thread": (
        "import threading, time\n\ndef late():\n    while True:\n        time.sleep(0.01)\n\n"
        "def run(x):\n    threading.Thread(target=late, daemon=True).start()\n    return 2 * x\n",
        "",
    ),
    "replaces": (
        "import os\nfrom pathlib import Path\n\ndef run(x):\n    own = Path(__file__).parent\n"
        "    (own / 'slow').write_text('def run(x):\\n    return 0 * x\\n')\n"
        "    os.replace(own / 'slow', own / 'joins.py')\n    return 2 * x\n",
        "opens slow",
    ),
    "opens": (
        "from pathlib import Path\n\ndef run(x):\n    name = 'hid' + 'den.txt'\n"
        "    Path(__file__).with_name(name).read_text()\n    return 2 * x\n",
        "opens hidden.txt",
    ),
}


def call_on_cpu(study: Any, run: Any, shape: Any, *given: Any) -> CallsMade:
    *_, show = given
    x = torch.arange(64.0 - shape.n % 2)
    show(Outputs({"": run(x=x)}, frozenset()))
    return CallsMade("", 0)


def check_on_cpu(study: Any, calls: Any, shape: Any, *given: Any) -> CheckOutcome:
    shown = ShownCalls()
    calls("", 0, {}, False, shown.take)
    right = torch.equal(shown.kept.tensors[""], 2 * torch.arange(64.0 - shape.n % 2))
    return CheckOutcome(status=CheckResult.CORRECT if right else CheckResult.WRONG)


class OnCpu:
    """Stands in for the worker's process: a fork of this one."""

    jobs: list[VariantsJob]
    check = staticmethod(check_on_cpu)

    def __init__(self, scratch: Path, job: VariantsJob, cubins: Path | None = None) -> None:
        self.scratch, self.job = scratch, job
        self.jobs.append(job)

    def watch(self, limit: float, on_event: Any) -> WorkerEnd:
        (self.scratch / EVENTS).unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            try:
                self.work()
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        events = [decode(line) for line in (self.scratch / EVENTS).read_text().splitlines()]
        for event in events:
            on_event(event)
        current = (self.scratch / CURRENT).read_text().strip()
        return WorkerEnd(events, os.waitstatus_to_exitcode(status), current=current)

    def work(self) -> None:
        for name in [name for name in sys.modules if name.endswith("_baseline")]:
            del sys.modules[name]  # of other tests
        os.chdir(self.scratch)
        faulthandler.disable()  # pytest's, whose lines are for nobody
        device.environment = lambda: Environment(gpu="made")
        device.device_arch = lambda: "sm_90a"
        correctness.check_variant = self.check  # type: ignore[assignment]
        correctness.make_calls = call_on_cpu  # type: ignore[assignment]
        with on_cpu(), EventLog(self.scratch) as journal, or_broken(journal):
            JobWorker(self.job, journal).run()
            journal.write(Done())
        os._exit(0)

    def kill(self) -> None:
        pass


def measured(
    root: Path, monkeypatch: Patch, modules: dict[str, str]
) -> tuple[MeasuredPlan, EvidenceFolder, list[tuple[str, ...]]]:
    """What came of it, the evidence, and the variants of each process."""
    make(root / "ws", {}, modules)
    for name, text in (("two", "2"), ("hidden", "0")):
        (root / "ws" / "kernels" / "scale" / f"{name}.txt").write_text(text)
    monkeypatch.setattr(OnCpu, "jobs", [], raising=False)
    monkeypatch.setattr(measurement, "Worker", OnCpu)
    monkeypatch.setattr(
        measurement, "run_worker", lambda s, job, limit, take: OnCpu(s, job).watch(limit, take)
    )
    monkeypatch.setattr(machine, "require_gpu", lambda *gpu: None)
    monkeypatch.setattr(compilation, "MOST_COMPILERS", 0)
    study = find_workspace(root / "ws").study()
    folder = EvidenceFolder(root / "evidence" / "gpu")
    plan = Plan("large", checked=tuple(modules))
    result = Measurement(study, Config(), folder, plan, lambda event: None).run()
    return result, folder, [job.variants for job in OnCpu.jobs]


def checked(folder: EvidenceFolder, name: str) -> dict[str, str]:
    record = store.variant_record(folder, name)
    return {shape: check.status.value for shape, check in record.checks.items()}


RIGHT = {"large": "correct", "odd": "correct"}


def test_what_five_variants_change_reaches_no_honest_one(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    bad = {kind.replace(" ", "_"): text for kind, (text, _) in VIOLATING.items()}
    result, folder, jobs = measured(tmp_path, monkeypatch, {**bad, **HONEST})
    assert jobs == [(*bad, *HONEST)]
    for kind, (_, told) in VIOLATING.items():
        why = result.failures.get(kind.replace(" ", "_"), "")
        assert told in why, (kind, why)
        assert bool(told) == bool(why) or kind == "at a call", (kind, why)
    assert {*result.failures} <= {*bad}
    assert {name: checked(folder, name) for name in HONEST} == dict.fromkeys(HONEST, RIGHT)


DIES = "import os\n\ndef run(x):\n    os._exit(3) if len(x) % 2 else None\n    return 2 * x\n"


def test_who_ends_its_process_costs_no_other_its_check(tmp_path: Path, monkeypatch: Patch) -> None:
    """Nor the process that compares: what it had found by then counts."""
    modules = {"baseline": TWICE, "dies": DIES, "joins": HONEST["joins"]}
    result, folder, jobs = measured(tmp_path, monkeypatch, modules)
    assert jobs == [(*modules,), ("joins",)]
    assert result.failures == {"dies": "crashed its process (check, exit 3)"}
    assert checked(folder, "dies") == {"large": "crashed"}
    assert [checked(folder, name) for name in ("baseline", "joins")] == [RIGHT] * 2


def killed(number: int) -> None:
    os.kill(os.getpid(), number)


ENDS: list[tuple[Any, str, str]] = [
    (partial(killed, signal.SIGKILL), "ended (signal 9, Killed)", "smaller shapes"),
    (partial(killed, signal.SIGSEGV), "ended (signal 11, Segmentation fault)", "call reference()"),
    (partial(signal.setitimer, signal.ITIMER_REAL, 0.1), "ended (signal 14, Alarm clock)", "call"),
    (partial(os._exit, 5), "ended (exit 5)", "call reference()"),
    (partial(sys.exit, 3), "SystemExit: 3", "take out"),
]


@pytest.mark.parametrize(("ends", "how", "hint"), ENDS)
def test_for_the_process_that_compares_no_variant_fails(
    ends: Any, how: str, hint: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """What it had found before is kept."""

    def ending(study: Any, calls: Any, shape: Any, *given: Any) -> CheckOutcome:
        name, _ = calls.args
        if name == "slow" and shape.n % 2:
            ends()
        return check_on_cpu(study, calls, shape, *given)

    monkeypatch.setattr(OnCpu, "check", staticmethod(ending))
    slow = "import time\n\ndef run(x):\n    time.sleep(len(x) % 2)\n    return 2 * x\n"
    modules = {"baseline": TWICE, "slow": slow, "reads": HONEST["reads"]}
    with pytest.raises(ToolFailed) as told:
        measured(tmp_path, monkeypatch, modules)
    assert how in told.value.message
    assert "comparing slow at odd" in told.value.message
    assert hint in str(told.value.hint)
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    assert checked(folder, "baseline") == RIGHT
    assert checked(folder, "slow") == {"large": "correct"}
    assert checked(folder, "reads") == {}


def test_who_ends_the_process_that_compares_before_it_begins_is_named(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(JobWorker, "load_reference", lambda self: killed(signal.SIGKILL))
    with pytest.raises(ToolFailed, match="while loading study"):
        measured(tmp_path, monkeypatch, {"baseline": TWICE})
