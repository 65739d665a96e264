"""The recipes of docs/contributing.md, followed in a copy of the engine, in every output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tools.folders import unpacked

from answers import python
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

pytestmark = pytest.mark.slow

RECIPES = unpacked(Path(__file__).with_name("recipes.txtar"))
REPORT = str(recorded_report(CAUSAL, "fix10"))
# What is run of the changed copy; what begins with "terminal" has one as its stdout.
RUNS = {
    "files": ["report", "--html"],
    "tally": ["tally"],
    "terminal tally": ["tally"],
    "tally, JSON": ["tally", "--json"],
    "help": ["--help"],
    "show": ["show", REPORT],
    "show, JSON": ["show", REPORT, "--json"],
    "recorded": ["show", "fused"],
    "advise": ["advise", "fused"],
    "advise, JSON": ["advise", "fused", "--json"],
    "advise, brief": ["show", "fused", "--brief"],
}


def recipe(name: str) -> str:
    return (RECIPES / name).read_text()


def insert(path: Path, text: str, *, before: str = "") -> None:
    """Insert before the anchor, which stands in the file once; without one at the end."""
    whole = path.read_text()
    assert not before or whole.count(before) == 1, (path.name, before)
    path.write_text(whole.replace(before, text.lstrip("\n") + before) if before else whole + text)


def changed_engine(root: Path) -> Path:
    """Copy the engine and follow all recipes in the copy. Return the folder to import from."""
    engine = root / "profiler" / "workbench"
    shutil.copytree(
        ROOT / "profiler" / "workbench", engine, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("templates", "starters"):  # which the engine takes beside itself
        (root / name).symlink_to(ROOT / name)
    insert(engine / "ncu/metrics.toml", recipe("metric.toml"))
    insert(
        engine / "render/document/variant.py",
        recipe("figures.py"),
        before='    "duration sm_clock ',
    )
    shutil.copy(RECIPES / "cli/tally.py", engine / "cli")
    insert(engine / "cli/options.py", recipe("options.py"))
    rules = engine / "judge/advice_rules.py"
    insert(rules, recipe("call_of_rule.py"), before="    yield from _global(subject)\n")
    insert(rules, recipe("rule.py"))
    insert(engine / "words.py", '    PAINT = "paint"\n', before='    TILE_SHARED = "tile-shared"')
    insert(
        engine / "render/document/advice.py",
        recipe("recipe.py"),
        before="        Change.TILE_SHARED: Rec",
    )
    charts = engine / "render/chart/charts.py"
    insert(charts, recipe("kind_of_chart.py"), before='    "stall-time": Kind(\n')
    insert(charts, recipe("chart.py"))
    report = engine / "render/document/ladder_report.py"
    insert(report, '_chart("errors", ablation), ', before='_chart("roofline", ablation)]')
    return root / "profiler"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the changed engine says, by the names of ``RUNS``, and the files of its report."""
    path = changed_engine(tmp_path_factory.mktemp("recipes"))
    workspace = copy_of_fixture(tmp_path_factory.mktemp("workspace"), "softmax")
    own = {"PYTHONPATH": str(path), "XDG_CACHE_HOME": str(path.parent / "cache")}
    done = python(
        "-c", recipe("child.py"), cwd=workspace, stdin=json.dumps(RUNS), COLUMNS="200", **own
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, tuple[int, str]] = json.loads(done.stdout)
    assert {name: code for name, (code, _) in results.items() if code} == {}, done.stderr
    files = (workspace / "reports").rglob("*.*")
    return {n: text for n, (_, text) in results.items()} | {f.name: f.read_text() for f in files}


ELSEWHERE = {
    "a column of the ladder": "test_a_column_is_one_entry_and_stands_in_every_output_that_it_names",
    "a problem format for `try`": "test_a_package_adds_a_format_by_its_entry_point",
}
FOLLOWED = {*ELSEWHERE, "a verb", "a metric of Nsight Compute", "a rule of advice", "a chart"}


def test_every_recipe_is_followed() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text()
    assert set(re.findall(r"^## Add (.+)$", page, re.M)) == FOLLOWED


def test_a_verb_has_its_help_and_its_formats(said: dict[str, str]) -> None:
    assert re.search(r"tally +Count the variants of every study", said["help"])
    assert re.search(r"\| softmax \| \d+ \|", said["tally"])
    assert re.search(r"softmax +\d+", said["terminal tally"])
    assert json.loads(said["tally, JSON"])["tallies"][0]["study"] == "softmax"


def test_a_metric_is_a_number_of_a_report_and_not_collected_of_a_table(
    said: dict[str, str],
) -> None:
    row = r"\| Threads of the grid \| {} \|"
    assert re.search(row.format(r"[\d.,e+ k]+"), said["show"])
    assert '"threads"' in said["show, JSON"]
    assert re.search(row.format("not collected"), said["recorded"])


def test_advice_of_a_rule_is_in_every_output(said: dict[str, str]) -> None:
    for name in ("advise", "recorded", "OPTIMIZATION_REPORT.md", "report.html"):
        assert "paint the kernel" in said[name], name
    for name in ("advise, JSON", "advise, brief"):
        assert '"paint"' in said[name], name


def test_a_chart_is_a_file_and_in_both_reports(said: dict[str, str]) -> None:
    assert "errors-light.svg" in said
    assert "errors-dark.svg" in said
    for name in ("OPTIMIZATION_REPORT.md", "report.html"):
        assert "Largest error of each step" in said[name], name
