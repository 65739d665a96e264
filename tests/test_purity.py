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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateAssertionError

if TYPE_CHECKING:
    import jinja2

    from workbench.derive.diff.model import Sources
    from workbench.judge.rows import Ablation

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
    for name in ("numpy", "pandas", "matplotlib.font_manager", "matplotlib.backends.backend_svg"):
        import_module(name)


def loaded(environment: jinja2.Environment) -> jinja2.Environment:
    """With all templates that are its own: those of another lack its filters."""
    for name in environment.list_templates():
        with suppress(TemplateAssertionError):
            environment.get_template(name)
    return environment


Writer = Callable[["Ablation", "Sources"], object]


def writers() -> Mapping[str, Writer]:
    """Every output of a judged ladder by its name."""
    from workbench.render import (
        charts,
        diff_terminal,
        jsonable,
        narrative,
        page,
        report,
        sections,
        tables,
        terminal,
    )

    templates = [ROOT / "templates"]
    markdown = loaded(report.template_environment(templates))
    html = loaded(page.page_environment(templates))
    return {
        "report": lambda found, sources: report.render_report(found, sources.diffs, markdown),
        "page": lambda found, sources: page.render_page(found, sources, html),
        "charts": lambda found, _: charts.chart_files(found),
        "json": lambda found, _: json.dumps(jsonable.ablation(found, full=True)),
        "table": lambda found, _: tables.ablation_table(found),
        "across": lambda found, _: (sections.across(found), narrative.across(found)),
        "variants": lambda found, _: [terminal.variant(row, found) for row in found.everything],
        "diffs": lambda _, sources: [
            list(diff_terminal.source_lines(diff, ("before", "after"), 100))
            for diff in sources.diffs.values()
        ],
    }


def judge_and_render() -> None:
    """Prints as JSON what the guard saw, and which outputs there were."""
    import_everything()
    every = writers()
    guard = Guard()

    from workbench.commands.target import find_target
    from workbench.judge.ladder import judge
    from workbench.judge.pairs import judge_pair
    from workbench.judge.snapshot import snapshot
    from workbench.judge.sources import ladder_sources, pair_sources

    target = find_target(ROOT, None, None)
    evidence = snapshot(target.evidence(), target.steps([]), sources=True)
    config = target.workspace.config
    outputs = []
    with guard.watching():
        found = judge(evidence, config)
        sources = ladder_sources(evidence, found)
        first, last = found.rows[0], found.rows[-1]
        judge_pair(evidence, config, first, last)
        pair_sources(evidence, first.variant, last.variant)
        for name, write in every.items():
            if write(found, sources):
                outputs.append(name)
    print(json.dumps({"seen": guard.seen, "outputs": outputs, "rows": len(found.everything)}))


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
    assert told["rows"] > 20


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
