"""README says what the product says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from benchmarks import claims
from benchmarks.honest.corpus import points

from answers import Capsys, Patch, json_of, not_none, python, text_of
from guide import cells
from reward_hacks import CHEATS
from workbench.cli.main import VERBS, command
from workbench.evidence.store import evidence_folders
from workbench.load import load
from workbench.study.model import base_name
from workbench.study.sources import source_files
from workbench.study.workspace import find_workspace
from workspaces import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def tables(text: str) -> list[dict[str, dict[str, str]]]:
    """Every Markdown table of a text: first cell of a row to its cells by header."""
    found: list[dict[str, dict[str, str]]] = []
    header: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells(line)
            found.append({})
        elif set(line) - set("|-: "):
            row = dict(zip(header, cells(line), strict=True))
            found[-1][row[header[0]]] = row
    return found


@pytest.mark.slow
def test_its_rows_are_rows_of_the_table_that_ablate_prints(capsys: Capsys) -> None:
    command, _, shown = README.split("<!-- rows: workbench ")[1].partition(" -->\n")
    shown = shown.split("<!-- /rows -->")[0]
    printed = tables(text_of(capsys, *command.split(), project=ROOT))[0]
    rows = tables(shown)[0]
    assert len(rows) == 6
    for version, row in rows.items():
        assert row.items() <= printed[version].items(), version


def test_its_sentence_about_sizes_is_that_of_the_page() -> None:
    sentence = README.split("<!-- sentence: ")[1].split("-->\n")[1].split("\n<!--")[0]
    page = (ROOT / "docs" / "sizes.md").read_text().split("<!-- shapes -->\n")[1]
    cells = {shape: row["float16"] for shape, row in tables(page)[0].items()}
    ratios = re.findall(
        r"(\d\S*x \[.*?\])(?: the speed of the fastest reference)? at (D=\w+(?: c\w+)?) \((.*?)\)",
        sentence,
    )
    assert len(ratios) == 3
    for ratio, shape, alone in ratios:
        found = rf"[\d.]+ µs, {re.escape(ratio)} \w+{re.escape(alone and f', {alone}')}"
        assert re.fullmatch(found, cells[f"B=4 H=16 S=2048 {shape}"]), shape
    short, long = re.findall(r"(\S+) up to 512 keys, (\S+) from 2048 \(geo", README)[0]
    assert cells["geometric mean, up to 512 keys"] == short
    assert cells["geometric mean, from 2048 keys"] == long


def test_its_bounds_are_those_of_what_was_tried() -> None:
    fakes, *late, honest, new = claims.tried()
    text = " ".join(README.split())
    assert f"Of {fakes.of} kernels that fake speed {fakes.came} were kept ({fakes.bound} of" in text
    assert f"of {honest.of} honest ones {honest.came} rejected ({honest.bound})" in text
    (after,) = late
    assert f"of {after.of} written later [{after.came}](docs/trust.md#the-red-team)" in text
    assert (new.came, new.of) == (0, 9)
    assert fakes.of <= sum(not cheat.late for cheat in CHEATS)
    assert sum(one.of for one in late) <= sum(cheat.late for cheat in CHEATS)
    assert honest.of <= len([*points()])


@pytest.mark.slow
def test_it_counts_the_gpus_of_the_evidence() -> None:
    """README, and what docs/measuring.md has of it, which `benchmarks.claims` writes."""
    kinds = claims.gpus()
    timed, _, h100, *_ = kinds.gpus
    told = f"Times are of {timed} H100s on one day, medians of {h100} on two."
    assert told in " ".join(README.split())
    assert [*kinds.days[:3]] == [1, 1, 2]
    assert kinds.index[2].endswith("nvidia-h100-80gb-hbm3")


@pytest.mark.slow
def test_it_says_what_selection_and_bf16_add() -> None:
    chance = claims.chance()
    text = " ".join(README.split())
    by_chance = f"{100 * chance.selected[1]:.1f} %"
    assert f"The best of {chance.steps} equal steps gains {by_chance} by [chance]" in text
    assert f"[up to {by_chance}](trust.md#error-rates)" in (ROOT / "docs/sizes.md").read_text()
    assert f"In bf16 `fix30`'s error is {claims.errors_in_bf16():.2f}x." in text


def own_kernel(root: Path) -> Path:
    """The workspace of docs/variants.md: each block names its file in its first line."""
    page = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    text = page.split("## A whole workspace")[1].split("\n## ")[0]
    for block in re.findall(r"```(?:toml|python|cuda)\n(.*?)```", text, re.DOTALL):
        name = not_none(re.match(r"(?:#|//) ([\w./]+)", block))
        path = root / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)
    (root / "workbench.toml").write_text("")
    return root


def test_the_whole_workspace_builds_as_written(
    tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    root = own_kernel(tmp_path / "mine")
    assert len([path for path in root.rglob("*") if path.is_file()]) == 7
    study = json_of(capsys, "list", project=root)["studies"][0]
    assert [v["variant"] for v in study["variants"]] == ["baseline", "vector", "eager"]
    builds = json_of(capsys, "build", project=root)["builds"]
    assert [b["variant"] for b in builds] == ["baseline", "vector"]
    assert all(b["kernels"] and not b["warnings"] and not b["error"] for b in builds)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_and_its_parameters_have_a_short_help(verb: str) -> None:
    found = command().commands[verb]
    told = {p.name: p.help or "" for p in found.params}
    told["verb"] = found.help.partition("\n")[0]
    assert [name for name, text in told.items() if not 0 < len(text) <= 60] == []


DOCS = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
OUTPUT = r"<!-- output: workbench (.*?) -->\n```text\n(.*?)\n```"
OUTPUTS = re.findall(OUTPUT, f"{README}\n{DOCS}", re.DOTALL)
CAPTURED = re.findall(r"```toml\n(\[\[reference\]\].*?)```", DOCS, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), OUTPUTS, ids=[o[0].split()[0] for o in OUTPUTS])
def test_its_outputs_are_what_the_commands_print(
    command: str, shown: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    root = tmp_path
    for name in ("kernels", "ablations", "templates"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "workbench.toml", root)
    ladder = root / "ablations" / "attention" / "ablation.toml"
    ladder.write_text("\n".join([ladder.read_text(), *CAPTURED]))
    monkeypatch.chdir(root)
    said = text_of(capsys, *command.split())
    for part in shown.split("\n...\n"):
        assert f"{part}\n" in said
        said = said.split(part, 1)[1]


LINKS = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def anchors(page: str) -> set[str]:
    """What a link may name: GitHub's slug of each heading, and ids that are written out."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    slugs = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    }
    return slugs | set(re.findall(r'<a id="([^"]+)">', prose))


def test_its_links_and_those_of_the_docs_lead_somewhere() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link, anchor in LINKS.findall(prose):
            file = path.parent / link if link else path
            assert file.exists(), f"{path.name}: {link}"
            if anchor and file.suffix == ".md":
                known = anchors(file.read_text(encoding="utf-8"))
                assert anchor in known, f"{path.name}: {link}#{anchor}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    reports = (path.relative_to(ROOT).as_posix() for path in (ROOT / "reports").glob("*/*.md"))
    assert named == {"index.md", *(path.name for path in (ROOT / "docs").glob("*.md")), *reports}


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """Every page is in its navigation, and every link and anchor of it leads somewhere."""
    build = ("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path)
    done = python(*build, cwd=ROOT, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="guide.html"' in home
    assert 'href="reports/attention/OPTIMIZATION_REPORT.html"' in home
    for page in (*tmp_path.glob("*.html"), *tmp_path.glob("reports/*/*.html")):
        for picture in re.findall(r'src(?:set)?="([^":]+\.svg)"', page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page.name}: {picture}"
    assert "Known fakes are rejected" in (tmp_path / "search" / "search_index.json").read_text()


def test_the_files_that_the_docs_name_are_there() -> None:
    roots = (ROOT, ROOT / "docs", ROOT / "profiler" / "workbench")
    for name in ("architecture.md", "contributing.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|toml|json))?)`", text):
            assert any((root / path).exists() for root in roots), f"{name}: {path}"
        for word, path in re.findall(r"`(\w+)`\s+(?:in|of|from)\s+`([a-z_/]+\.py)`", text):
            (file,) = [root / path for root in roots if (root / path).exists()]
            assert re.search(rf"\b{word}\b", file.read_text(encoding="utf-8")), f"{word}: {path}"


def test_ci_runs_its_second_command() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    script = (ROOT / ".ci" / "run").read_text().replace("install -q", "install").splitlines()
    places = [script.index(command) for command in commands[1].split(" && ")]
    assert places == sorted(places)


def test_the_files_of_a_study_are_the_variants_of_its_ladder() -> None:
    workspace = find_workspace(ROOT)
    for name in workspace.studies():
        study = workspace.study(name)
        modules = {p.stem for p in study.folder.glob("*.py")} - {"study"}
        sources = (p for v in study.variants.values() for p in source_files(study, v))
        called = {path.stem for path in sources if path.suffix == ".py"}
        assert set(map(base_name, study.variants)) <= modules
        later = workspace.ablations / name / "next.toml"
        text = later.read_text() if later.exists() else ""
        waiting = set(re.findall(r'^variant = "(\w+)', text, re.M))
        assert modules == called | waiting, "a module is a variant, or one calls it"


def test_recorded_evidence_is_current() -> None:
    workspace = find_workspace(ROOT)
    study = workspace.study()
    folder = evidence_folders(workspace.ablations, study.name)[0]
    elsewhere = {step.variant: step.shape for step in study.ladder.steps if step.shape}
    for name, variant in study.variants.items():
        shape = elsewhere.get(name, study.default_shape)
        evidence = load(study, folder, {shape: [name]}, samples=False)[shape].variants[name]
        states = set(evidence.state.values())
        optional = bool(variant.needs) and states == {"missing"}
        check = evidence.checks.get(shape)
        if check is not None and check.status in ("wrong", "unsupported"):
            # It is neither timed nor captured.
            states.discard("missing")
        assert optional or states == {"current"}, name
