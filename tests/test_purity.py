"""After the snapshot, judging and rendering open no file, start no process and see no GPU.

The whole recorded ladder is judged and given to every writer in a process of its own, under an
audit hook. A writer more is a line more in ``writers``; templates are loaded before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.source_diff import SourceDiff, Sources
from workbench.judge.ladder import (
    Ablation,
    VariantPair,
    judge,
    judge_pair,
    ladder_sources,
    pair_sources,
)
from workbench.load import LadderEvidence
from workbench.render import answers as diff_json
from workbench.render import answers as ladder_json
from workbench.render import as_json, markdown, page, templates, terminal
from workbench.render.chart.charts import chart_files
from workbench.render.document import ladder_report as document
from workbench.render.document import ladder_view, launches
from workbench.render.document.blocks import Block
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
    """All pure rooms, with what they import where it is first needed."""
    for room in PURE:
        for path in sorted((ENGINE / room).rglob("*.py")):
            parts = path.relative_to(ENGINE).with_suffix("").parts
            import_module(".".join(["workbench", *parts]).removesuffix(".__init__"))


def loaded(environment: jinja2.Environment) -> jinja2.Environment:
    """With all templates that are its own: those of another lack its filters."""
    for name in environment.list_templates():
        with suppress(jinja2.TemplateAssertionError):
            environment.get_template(name)
    return environment


@dataclass(frozen=True)
class Judged:
    """All that a writer may want, from one snapshot."""

    ablation: Ablation
    sources: Sources
    pair: VariantPair
    change: SourceDiff


Writer = Callable[[Judged], object]


def rows_of(found: Ablation) -> list[str]:
    return [row.variant for row in found.everything]


def writers() -> Mapping[str, Writer]:
    """Every output of judged evidence by its name; their templates are loaded."""
    loaded(templates.templates(html=True))
    return {
        "report": lambda x: markdown.document(document.summary(x.ablation)),
        "page": lambda x: page.render_page(
            document.report(x.ablation, x.sources.diffs), x.ablation, x.sources
        ),
        "charts": lambda x: chart_files(x.ablation),
        "json": lambda x: as_json.dumps(ladder_json.ablation(x.ablation, full=rows_of(x.ablation))),
        "json of a pair": lambda x: as_json.dumps(
            diff_json.variant_pair(x.ablation, x.pair, x.change)
        ),
        "terminal": lambda x: printed(blocks_of(x)),
        "markdown": lambda x: markdown.blocks(blocks_of(x)),
    }


def blocks_of(judged: Judged) -> list[Block]:
    """What ``ablate``, ``show`` and ``diff`` print."""
    found = judged.ablation
    return [
        *ladder_view.screen(found),
        *ladder_view.whole(found),
        *(variant(row, found) for row in found.everything),
        *launches.variants(judged.pair, judged.change, source=True),
    ]


def printed(blocks: Sequence[Block]) -> str:
    console = Console(file=StringIO(), width=100, force_terminal=True)
    terminal.write(blocks, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def judge_and_render() -> None:
    """Prints as JSON what the guard saw, and the outputs that there were."""
    import_everything()
    every = writers()
    target = find_target(Local(), FIXTURE, None, None)
    evidence = target.load_ladder(target.steps([]), sources=True)
    guard = Guard()
    with guard.watching():
        judged = judge_all(evidence, target.workspace.config)
        outputs = [name for name, write in every.items() if write(judged)]
    print(json.dumps({"seen": guard.seen, "outputs": outputs}))


def judge_all(evidence: LadderEvidence, config: Config) -> Judged:
    found = judge(evidence, config)
    first, last = found.rows[0], found.rows[-1]
    return Judged(
        ablation=found,
        sources=ladder_sources(evidence, found),
        pair=judge_pair(evidence, config, first, last),
        change=pair_sources(evidence, first.variant, last.variant),
    )


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
    told = run("import test_purity; test_purity.judge_and_render()")
    assert told["seen"] == []
    assert told["outputs"] == list(writers())


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
    seen = run(code)
    assert {"open", "subprocess.Popen", "import"} <= set(seen)
