"""The rooms of the engine import one way, without a circle, and the pure ones nothing of a GPU."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ENGINE = Path(__file__).parents[1] / "profiler" / "workbench"
ROOMS = (
    *("errors", "words", "bounds", "children", "cuda", "study", "problems"),
    *("evidence", "ncu", "run", "derive", "load", "judge", "render", "app", "remote"),
    *("cli", "library", "__main__"),
)
MOST_UNTYPED = 11  # places with dict[str, Any] or Mapping[str, Any]
MOST_FRAGMENTS = 40  # docstrings that begin so, and are often no sentence
FRAGMENT = re.compile(r"(?:Of|As|Those|By|With|Without|Its|That|In|Where|What|Which|For)\b(?!\.)")
PURE = ("derive", "judge", "render")
# What opens files, starts processes or knows a GPU.
FORBIDDEN = (
    *("subprocess", "torch", "cuda", "ncu_report", "pynvml", "tempfile", "workbench.run"),
    *("workbench.evidence.store", "workbench.ncu.captures", "workbench.ncu.reader"),
)
LOADS = {"load", "load_ladder"}


@cache
def modules() -> Mapping[str, ast.Module]:
    """Every module of the engine by its dotted name."""
    found = {}
    for path in sorted(ENGINE.rglob("*.py")):
        parts = ["workbench", *path.relative_to(ENGINE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def imports(name: str, *, typing: bool = True) -> frozenset[str]:
    """Modules that a module imports anywhere; ``typing``: those for annotations alone, too."""
    return frozenset(map(_module, _imported(modules()[name], typing=typing)))


def _imported(tree: ast.AST, *, typing: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING" and not typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imported(node, typing=typing)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _module(dotted: str) -> str:
    """The module of the engine that a name is imported from; others as they are."""
    if not dotted.startswith("workbench"):
        return dotted
    return dotted if dotted in modules() else dotted.rpartition(".")[0]


def room(name: str) -> str:
    """Empty for what is in none: the package itself, and other people's packages."""
    return name.split(".")[1] if name.startswith("workbench.") else ""


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_imports_are_seen_wherever_they_stand() -> None:
    assert {"workbench.load", "workbench.study.config"} <= imports("workbench.judge.ladder")
    assert "workbench.run.side_jobs" in imports("workbench.app.executor")
    assert "workbench.evidence.records" in imports("workbench.derive.speedup")
    assert "workbench.evidence.records" not in imports("workbench.derive.speedup", typing=False)


def test_a_room_imports_only_from_rooms_before_it() -> None:
    wrong = [
        (name, other)
        for name in modules()
        for other in imports(name)
        if room(name) and room(other) in ROOMS[ROOMS.index(room(name)) + 1 :]
    ]
    assert wrong == []


def test_no_import_goes_round_in_a_circle() -> None:
    known = {name: imports(name) & modules().keys() for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for other in sorted(known[name] - {"workbench"}):
            visit(other, (*path, name))
        done.add(name)

    for name in known:
        visit(name, ())


def test_pure_rooms_import_nothing_that_opens_runs_or_measures() -> None:
    wrong = [
        (name, other)
        for name in modules()
        if room(name) in PURE
        for other in imports(name, typing=False)
        if any(is_within(other, bad) for bad in FORBIDDEN)
    ]
    assert wrong == []


def test_the_rooms_are_those_of_the_design() -> None:
    assert {room(name) for name in modules() if room(name)} == set(ROOMS)


def test_use_cases_and_three_verbs_load() -> None:
    """The stages after it take types from ``load``, and never read with it."""
    users = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "workbench.load"
        if LOADS & {alias.name for alias in node.names}
    }
    assert {room(name) for name in users} == {"app", "cli"}
    verbs = {name.rpartition(".")[2] for name in users if room(name) == "cli"}
    assert verbs == {"list", "ship", "weigh"}


def test_only_the_command_line_knows_of_options_and_the_terminal() -> None:
    """The library and a remote worker call the same use cases."""
    users = {
        package: {
            room(name)
            for name in modules()
            for o in imports(name)
            if o.partition(".")[0] == package
        }
        for package in ("typer", "click", "rich")
    }
    assert users == {"typer": {"cli"}, "click": set(), "rich": {"cli", "render"}}
    callers = {room(name) for name in modules() for o in imports(name) if room(o) == "app"}
    assert callers == {"app", "remote", "cli", "library"}


def test_use_cases_print_nothing_and_choose_no_exit_code() -> None:
    called = {"print", "exit", "say", "SystemExit"}
    found = [
        (name, node.id)
        for name in modules()
        if room(name) == "app"
        for node in ast.walk(modules()[name])
        if isinstance(node, ast.Name) and node.id in called
    ]
    assert found == []


def twice(named: Mapping[str, Iterable[str]]) -> set[str]:
    """The names that stand in more than one module."""
    found = Counter(name for names in named.values() for name in set(names))
    return {name for name, times in found.items() if times > 1}


def test_no_class_name_stands_twice() -> None:
    classes = {
        module: [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for module, tree in modules().items()
    }
    assert twice(classes) == set()


def test_no_module_name_stands_twice_but_that_of_a_verb() -> None:
    names = {
        name: [name.rpartition(".")[2]]
        for name in modules()
        if room(name) != "app" or f"workbench.cli.{name.rpartition('.')[2]}" not in modules()
    }
    packages = {name.rpartition(".")[0] for name in modules()}
    assert twice({n: k for n, k in names.items() if n not in packages}) == set()


def test_untyped_mappings_stand_only_where_foreign_data_enters() -> None:
    texts = (path.read_text(encoding="utf-8") for path in ENGINE.rglob("*.py"))
    places = sum(len(re.findall(r"\b(?:dict|Mapping)\[str, Any\]", text)) for text in texts)
    assert places <= MOST_UNTYPED


def test_docstrings_are_sentences() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (n for tree in modules().values() for n in ast.walk(tree) if isinstance(n, documented))
    texts = (ast.get_docstring(node) or "" for node in nodes)
    fragments = [text for text in texts if FRAGMENT.match(text)]
    assert len(fragments) <= MOST_FRAGMENTS, fragments
