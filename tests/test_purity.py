"""After the snapshot, judging and rendering open no file, start no process and see no GPU.

The whole recorded ladder is judged and given to every writer in a process of its own, under an
audit hook. Templates are loaded before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.judge.ladder import judge, judge_pair
from workbench.judge.line_costs import ladder_sources, pair_sources
from workbench.load import LadderEvidence
from workbench.render import answers, as_json, markdown, page, templates, terminal
from workbench.render.chart.charts import chart_files
from workbench.render.document import ladder_report, launches
from workbench.render.document.printed_ladder import screen, whole
from workbench.render.document.variant import variant
from workbench.study.config import Config
from workspaces import FIXTURE

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "profiler" / "workbench"
PURE = ("derive", "judge", "render")
GPU = ("torch", "cuda", "ncu_report", "pynvml", "cupy", "triton")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn")
CONNECTS = ("socket.connect", "socket.bind", "urllib.Request")
CODE = (".py", ".pyc", ".so")  # what an import opens
# Fonts, lexers and the like of installed libraries; nothing of the workspace lies there.
INSTALLED = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib"))


class Guard:
    """Notes what must not happen while it is on; a hook can never be taken away again."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and self._is_forbidden(event, arguments):
            self.on = False  # to say what was seen may raise events of its own
            self.seen.append(f"{event} {arguments[:1]!r}")
            self.on = True

    def _is_forbidden(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            return is_foreign(arguments[0])
        if event == "import":
            return str(arguments[0]).split(".")[0] in GPU
        return event in (*STARTS, *CONNECTS)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False


def is_foreign(path: object) -> bool:
    """Whether to open it is more than importing code or reading an installed library's own data."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False  # a descriptor that is open already
    name = os.fsdecode(path)
    return not name.endswith(CODE) and not name.startswith(INSTALLED)


def import_everything() -> None:
    """All pure rooms, with what they import where it is first needed, and all templates."""
    for room in PURE:
        for path in sorted((ENGINE / room).rglob("*.py")):
            parts = path.relative_to(ENGINE).with_suffix("").parts
            import_module(".".join(["workbench", *parts]).removesuffix(".__init__"))
    environment = templates.templates(html=True)
    for name in environment.list_templates():
        with suppress(jinja2.TemplateAssertionError):  # of another, which has more filters
            environment.get_template(name)


def outputs(evidence: LadderEvidence, config: Config) -> dict[str, object]:
    """Every output of judged evidence; a writer more is a line more."""
    found = judge(evidence, config)
    first, last = found.rows[0], found.rows[-1]
    sources = ladder_sources(evidence, found)
    pair = judge_pair(evidence, config, first, last)
    change = pair_sources(evidence, first.variant, last.variant)
    blocks = [
        *screen(found),
        *whole(found),
        *(variant(row, found) for row in found.everything),
        *launches.variants(pair, change, source=True),
    ]
    terminal.write(blocks, Console(file=StringIO(), width=100, force_terminal=True))
    every = [row.variant for row in found.everything]
    return {
        "report": markdown.document(ladder_report.summary(found)),
        "page": page.render_page(ladder_report.report(found, sources.diffs), found, sources),
        "charts": chart_files(found),
        "json": as_json.dumps(answers.ablation(found, full=every)),
        "json of a pair": as_json.dumps(answers.variant_pair(found, pair, change)),
        "markdown": markdown.blocks(blocks),
    }


def judge_and_render() -> None:
    """Prints as JSON what the guard saw, and the outputs that are empty."""
    import_everything()
    target = find_target(Local(), FIXTURE, None, None)
    evidence = target.load_ladder(target.steps([]), sources=True)
    guard = Guard()
    with guard.watching():
        made = outputs(evidence, target.workspace.config)
    print(json.dumps([guard.seen, [name for name, output in made.items() if not output]]))


def run(code: str) -> Any:
    paths = os.pathsep.join([str(ENGINE.parent), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_after_the_snapshot_nothing_is_opened_started_or_seen_of_a_gpu() -> None:
    assert run("import test_purity; test_purity.judge_and_render()") == [[], []]


def test_the_guard_sees_what_it_is_for() -> None:
    code = """
import json, subprocess, sys, test_purity
guard = test_purity.Guard()
open(test_purity.ROOT / "pyproject.toml").close()
with guard.watching():
    open(test_purity.ROOT / "pyproject.toml").close()
    subprocess.run([sys.executable, "-c", ""])
    try:
        import pynvml
    except ImportError:
        pass
print(json.dumps([seen.split()[0] for seen in guard.seen]))
"""
    assert {"open", "subprocess.Popen", "import"} <= set(run(code))
