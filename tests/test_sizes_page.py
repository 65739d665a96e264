"""docs/sizes.md and docs/experts.md: made from what is on record at their shapes, by the commands
that they name, and nothing else.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from standin import Run, StandIn
from workbench.cli import main
from workbench.commands import measuring
from workbench.commands.target import find_target
from workbench.evidence import store
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import Timing
from workbench.render.numbers import microseconds
from workbench.run import machine
from workbench.study.workspace import find_workspace
from workbench.words import Regime
from workspaces import ROOT

sys.path.append(str(ROOT))  # where the benchmarks are imported from

from benchmarks import last_at, multiplying, reading, sizes
from benchmarks.card_steps import read_steps

VARIANT = sizes.ATTENTION.variant
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
REFERENCES = ["sdpa", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "fa4"]


def made_up(run: Run) -> float:
    found = re.search(r"S(\d+)", run.shape)
    length = int(found[1]) if found else 2048
    wide = 2 if re.search("[dD]128", run.shape) else 1
    return (3 + wide * length**2 / 8000) * {VARIANT: 1.0, "fa4": 1.1}.get(run.variant, 1.25)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The attention study without its evidence."""
    shutil.copytree(ROOT / "kernels" / "attention", tmp_path / "kernels" / "attention")
    ladder = tmp_path / "ablations" / "attention" / "ablation.toml"
    ladder.parent.mkdir(parents=True)
    shutil.copy(ROOT / ladder.relative_to(tmp_path), ladder)
    (tmp_path / "workbench.toml").write_text('study = "attention"\n')
    return tmp_path


@pytest.mark.parametrize("page", [sizes.ATTENTION, sizes.EXPERTS], ids=lambda page: page.study)
def test_a_page_is_as_it_is_written(page: sizes.Page) -> None:
    made = sizes.files(page, page.path.read_text(), find_workspace(ROOT))
    for name, text in made.items():
        written = (page.path.parent / name).read_text()
        assert written == text, "`python -m benchmarks.sizes` writes it"
    assert f"workbench sweep {page.variant} " in made[page.name]


def over_fastest(evidence: Evidence, variant: str) -> float:
    point = sizes.point_at(evidence, variant)
    assert point is not None
    assert point.over_fastest is not None
    return point.over_fastest.ratio


def test_the_aims_of_attention_are_told_of_what_is_on_record() -> None:
    notes = (ROOT / "docs" / "attention-notes.md").read_text("utf-8")
    workspace, known = find_workspace(ROOT), sizes.in_bfloat16(find_workspace(ROOT))
    study = workspace.study("attention")
    named = {
        ",".join(str(shape.parameters[part]) for part in "BHSD")
        + ", causal" * bool(shape.parameters["causal"]): name
        for name, shape in study.shapes.items()
        if shape.profiled
    }

    def at(shape: str, variant: str) -> float:
        return over_fastest(find_target(ROOT, "attention", shape).evidence(), variant)

    rows = re.findall(r"\| (\d+,\d+,\d+,\d+)(, causal)? \| [\d.]+x \| (.*?) \| (.*?) \|", notes)
    assert len(rows) == 6
    for shape, causal, *told in rows:
        shapes = [named[shape], *([named[f"{shape}{causal}"]] if causal else [])]
        inputs = [
            [at(each, "fix27") for each in shapes],
            [number(row_of(known, each)[4].split(" [")[0]) for each in shapes],
        ]
        for said, measured in zip(told, inputs, strict=True):
            for one, ratio in zip(said.split(", "), measured, strict=True):
                digits = len(one.removesuffix("x").partition(".")[2])
                assert number(one) == pytest.approx(ratio, abs=0.501 / 10**digits), (shape, said)
    again = [
        f"{at(shape, 'fix30'):.2f}x"
        for shape in ("b2h8s512d64", "b2h8s512d64-causal", "b1h8s128d64")
    ]
    assert "came to {}, {} and {} in fp16".format(*again) in plain(notes)


def test_the_aims_of_the_experts_are_told_of_what_is_on_record() -> None:
    """The same figures as in the lines about each model."""
    page = sizes.EXPERTS
    text = sizes.files(page, page.path.read_text(), find_workspace(ROOT))[page.name]
    table = text.split("<!-- targets -->\n")[1].split("<!-- /targets -->")[0]
    cases = table.splitlines()[0].strip("| ").split(" | ")[1:]
    assert cases == list(page.cases)
    rows = [line.strip("| ").split(" | ")[2:] for line in table.splitlines()[2:]]
    shown = 0
    for case, column in zip(cases, zip(*rows, strict=True), strict=True):
        part = text.split(f"<!-- sizes: {case} -->")[1].split("<!-- /sizes -->")[0]
        if "Not collected" in part:
            assert set(column) == {"not collected"}
            continue
        mean, worst, *shares = column
        assert f"is {mean} of the fastest reference in the geometric mean over 5 sizes" in part
        assert f"at worst {worst}" in part
        for tokens, share in zip((1, 16, 8192), shares, strict=True):
            assert re.search(rf"at T={tokens}: .*{share.replace(' of ', ' of measured ')}", part)
        shown += 1
    assert shown


def row_of(text: str, name: str) -> list[str]:
    """The cells behind the first one."""
    (row,) = (line for line in text.splitlines() if re.match(rf"\| `?{name}`? *\|", line))
    return [cell.strip() for cell in row.strip("| ").split("|")[1:]]


def test_what_reading_alone_takes_stands_beside_the_times() -> None:
    """Computed anew from the rounds on record and from what the page's other tables show."""
    text = sizes.EXPERTS.path.read_text()
    table = text.split("<!-- reading -->\n")[1].split("<!-- /reading -->")[0]
    record = json.loads(reading.RECORD.read_text())
    study = find_workspace(ROOT).study("moe")
    assert len(record["readings"]) == len(reading.MODELS) * len(reading.TOKENS)
    over: dict[int, list[float]] = {tokens: [] for tokens in reading.TOKENS}
    for one in record["readings"]:
        assert one["bytes_read"] == study.work(one["shape"]).bytes
        assert len(one["microseconds"]) == reading.ROUNDS
        model, tokens = one["shape"].split("-t")
        part = text.split(f"<!-- sizes: {model} -->")[1].split("<!-- /sizes -->")[0]
        times = part.split("| time, chained |")[1].split("\n\n")[0]
        column = reading.TOKENS.index(int(tokens))
        alone = median(one["microseconds"])
        _, told, own, of_it, fastest, factor = row_of(table, one["shape"])
        assert told == f"{microseconds(alone)}, {one['bytes_read'] / alone / 1e6:.2f} TB/s"
        shown = row_of(times, sizes.EXPERTS.variant)[column].split(" [")[0]
        assert own == f"{shown} µs"
        assert float(of_it.removesuffix(" %")) == pytest.approx(100 * alone / number(own), abs=0.6)
        name = fastest.split("`")[1]
        assert fastest.split(", ")[1] == f"{row_of(times, name)[column].split(' [')[0]} µs"
        over[int(tokens)].append(number(fastest.split(", ")[1]) / alone)
        assert number(factor) == pytest.approx(over[int(tokens)][-1], rel=0.01)
    few = [*over[16], *over[128]]
    assert f"takes {min(few):.2f} to {max(few):.2f} times what reading alone does" in plain(text)


def test_what_the_means_could_be_at_most_is_as_told() -> None:
    """From the tables, the ceiling on record, and clocks of timed graphs."""
    text = plain(sizes.EXPERTS.path.read_text())
    told = re.search(r"the means would be (.*?): the second", text)
    assert told is not None
    shown = {part.split("(")[1].rstrip(")"): part for part in told[1].split(", ")}
    assert list(shown) == list(reading.MODELS)
    readings, study = reading.recorded(), find_workspace(ROOT).study("moe")
    calibration = find_target(ROOT, "moe", "mixtral-t8192").evidence().calibration
    assert calibration is not None
    ceiling = calibration.ceilings["tensor bf16"]
    assert ceiling.sm_clock_mhz
    for model in reading.MODELS:
        page = sizes.EXPERTS.path.read_text().split(f"<!-- sizes: {model} -->")[1]
        times = page.split("| time, chained |")[1].split("\n\n")[0]
        references = [row_of(times, name) for name in ("fused", "compiled", "grouped")]
        most, held = 1.0, held_clock(model) * 1e3 / ceiling.sm_clock_mhz
        for column, tokens in enumerate((*reading.TOKENS, 8192)):
            shape = f"{model}-t{tokens}"
            fastest = min(number(cells[column].split(" [")[0]) for cells in references)
            least = study.work(shape).flops / ceiling.value * 1e6
            if shape in readings:
                least = max(least, readings[shape].time)
            most *= fastest / least
        first, second = map(number, re.findall(r"[\d.]+x", shown[model]))
        assert first == pytest.approx(most ** (1 / 5), abs=0.002)
        assert second == pytest.approx((most * held) ** (1 / 5), abs=0.002)
    assert "with that clock the limits together are 1.295x" in text
    assert "1.295x (mixtral)" in told[1]


def check_multiplying(text: str, found: Sequence[Any]) -> None:
    """That the page shows these products: computed anew from their rounds and from what the page's
    other tables show.
    """
    block = text.split("<!-- multiplying -->\n")[1].split("<!-- /multiplying -->")[0]
    if not found:
        assert block == ""
        return
    names = [f"{model}-t{tokens}" for model in reading.MODELS for tokens in multiplying.TOKENS]
    assert [one["shape"] for one in found] == names
    assert re.findall(r"^\| ([\w-]+-t\d+) \|", block, re.MULTILINE) == names
    assert f"| `{sizes.EXPERTS.variant}` |" in block
    calibration = find_target(ROOT, "moe", "mixtral-t8192").evidence().calibration
    assert calibration is not None
    ceiling = calibration.ceilings["tensor bf16"].value
    study, alone_of = find_workspace(ROOT).study("moe"), {}
    for one in found:
        alone_of[one["shape"]] = median(one["microseconds"])
        shape, alone = study.shapes[one["shape"]], median(one["microseconds"])
        assert one["flops"] == 6 * shape.T * shape.k * shape.H * shape.I
        assert len(one["microseconds"]) == len(one["mhz"]) == multiplying.ROUNDS
        model, tokens = one["shape"].split("-t")
        part = text.split(f"<!-- sizes: {model} -->")[1].split("<!-- /sizes -->")[0]
        times = part.split("| time, chained |")[1].split("\n\n")[0]
        column = [*reading.TOKENS, 8192].index(int(tokens))
        rate, of_ceiling, clock, time, own, of_it = row_of(block, one["shape"])
        assert rate == f"{one['flops'] / alone / 1e6:.0f} TFLOP/s"
        share = 100 * one["flops"] / (alone * 1e-6 * ceiling)
        assert number(of_ceiling) == pytest.approx(share, abs=0.6)
        assert clock == f"{median(one['mhz']) / 1e3:.2f} GHz"
        assert time == microseconds(alone)
        assert own == f"{row_of(times, sizes.EXPERTS.variant)[column].split(' [')[0]} µs"
        assert number(of_it) == pytest.approx(100 * alone / number(own), abs=0.6)
    told = re.search(r"undercut them, the means would be (.*)\.", block)
    assert told is not None
    for model, shown in zip(reading.MODELS, told[1].split(", "), strict=True):
        part = text.split(f"<!-- sizes: {model} -->")[1].split("<!-- /sizes -->")[0]
        times = part.split("| time, chained |")[1].split("\n\n")[0]
        versions = ("fused", "compiled", "grouped", sizes.EXPERTS.variant)
        *references, ours = [row_of(times, name) for name in versions]
        most = 1.0
        for place, tokens in enumerate([*reading.TOKENS, 8192]):
            fastest = min(number(cells[place].split(" [")[0]) for cells in references)
            own_time = number(ours[place].split(" [")[0])
            shape_name = f"{model}-t{tokens}"
            known = reading.recorded().get(shape_name)
            limits = [known.time] if known else []
            if shape_name in alone_of and alone_of[shape_name] < own_time:
                limits.append(alone_of[shape_name])
            most *= fastest / max(limits, default=own_time)
        assert shown.endswith(f"({model})")
        assert number(shown.split("x")[0]) == pytest.approx(most ** (1 / 5), abs=0.003)


def test_what_the_products_alone_take_stands_beside_the_times() -> None:
    record = multiplying.RECORD
    found = json.loads(record.read_text())["products"] if record.exists() else []
    text = sizes.EXPERTS.path.read_text()
    check_multiplying(text, found)
    block = text.split("<!-- multiplying -->\n")[1].split("<!-- /multiplying -->")[0]
    rows = [row_of(block, f"{model}-t8192") for model in reading.MODELS]
    shares = [row[1].removesuffix(" %") for row in rows]
    assert f"has {shares[0]}, {shares[1]} and {shares[2]} % of the ceiling" in plain(text)
    clocks = [row[2].removesuffix(" GHz") for row in rows]
    assert f"at {clocks[0]}, {clocks[1]} and {clocks[2]} GHz" in plain(text)
    told = re.search(r"the means would be ([\d.]+x) \(mixtral\)", block)
    assert told is not None
    assert f"with the products as cuBLAS has them {told[1]}" in plain(text)
    most = re.search(r"\(mixtral\), ([\d.]+)x \(deepseek\), ([\d.]+)x \(qwen3\)", block)
    assert most is not None
    needed = "{:.0f} and {:.0f} % of its limit".format(*(130 / float(one) for one in most.groups()))
    assert f"deepseek and qwen3 it would take every size at {needed} at once" in plain(text)
    of_it = {row_of(block, f"{model}-t8192")[5] for model in ("deepseek", "qwen3")}
    assert of_it == {"95 %"}
    assert "are 95 % of cuBLAS's products alone at 8192" in plain(text)
    read = text.split("<!-- reading -->")[1].split("<!-- /reading -->")[0]
    for tokens, told_so in (
        (1, "With one token it is at {} and {} %"),
        (1024, "1024 at {} and {}."),
    ):
        shares = [row_of(read, f"{model}-t{tokens}")[3] for model in ("deepseek", "qwen3")]
        assert told_so.format(*(share.removesuffix(" %") for share in shares)) in plain(text)


@pytest.mark.parametrize("measured", [False, True], ids=["not measured", "measured"])
def test_the_page_tells_of_the_products_alone_where_they_were_measured(
    measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "multiplying.json"
    monkeypatch.setattr(multiplying, "RECORD", record)
    study = find_workspace(ROOT).study("moe")
    found: list[dict[str, Any]] = []
    if measured:
        for model in reading.MODELS:
            for tokens in multiplying.TOKENS:
                flops = multiplying.flops(study.shapes[f"{model}-t{tokens}"])
                rounds = [flops / 7e8 * (1 + at / 100) for at in range(multiplying.ROUNDS)]
                one = {"shape": f"{model}-t{tokens}", "flops": flops, "microseconds": rounds}
                found.append({**one, "mhz": [1500.0] * multiplying.ROUNDS})
        record.write_text(json.dumps({"products": found}))
    page = sizes.EXPERTS
    made = sizes.files(page, page.path.read_text(), find_workspace(ROOT))[page.name]
    check_multiplying(made, found)
    again = sizes.files(page, made, find_workspace(ROOT))[page.name]
    assert again == made


def held_clock(model: str) -> float:
    """GHz, of the version whose time at 8192 tokens stands in the row."""
    evidence = ROOT / "ablations" / "moe" / "evidence" / "nvidia-h200"
    file = max((evidence / f"{model}-t8192" / "timings").glob("*.bz2"))
    together = store.read(file, Timing).together
    every = [s for session in together for s in session.series if s.regime == Regime.CHAINED]
    by_name = {name: [s for s in every if s.variant == name] for name in sizes.EXPERTS.versions}
    own = next(filter(None, by_name.values()))
    return median(mhz for s in own for mhz in s.mhz) / 1e3


def plain(text: str) -> str:
    return " ".join(text.split())


def number(shown: str) -> float:
    return float(shown.split()[0].rstrip("x").replace(",", ""))


def test_what_power_leaves_of_the_matrix_rate_is_as_told() -> None:
    """In words on the page of the experts, from clocks of timed graphs and of the ceiling."""
    clocks = {name: held_clock(name) for name in ("mixtral", "qwen3", "deepseek")}
    found = find_target(ROOT, "moe", "mixtral-t8192").evidence().calibration
    assert found is not None
    ceiling = found.ceilings["tensor bf16"]
    rate, at = ceiling.value / 1e12, (ceiling.sm_clock_mhz or 0.0) / 1e3
    text = " ".join(sizes.EXPERTS.path.read_text().split())
    assert f"The ceiling, {rate:.0f} TFLOP/s" in text
    assert f"in short rounds at {at:.2f} GHz" in text
    low, high = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
    assert f"{clocks[low]:.2f} ({low}) to {clocks[high]:.2f} GHz ({high})" in text
    alone = [round(rate * round(clocks[name], 2) / round(at, 2)) for name in (low, high)]
    assert "would have {} to {} TFLOP/s".format(*alone) in text


def test_one_command_measures_what_the_page_shows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, text = sizes.ATTENTION, sizes.ATTENTION.path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(machine, "find_gpu", lambda: None)
        nothing = sizes.files(page, text, find_workspace(root))
    assert list(nothing) == ["sizes.md"]
    assert nothing["sizes.md"].count("Not collected.") == 4
    gpu = StandIn(monkeypatch, made_up, noise=0.05)
    monkeypatch.setattr(measuring, "collectable", lambda study, variants: variants)
    monkeypatch.setattr(machine, "package_version", lambda name: "4")
    (line,) = re.findall("^workbench sweep .*$", nothing["sizes.md"], re.MULTILINE)
    _, *command = shlex.split(line)
    assert main([*command, "--project", str(root)]) == 0
    assert [sorted(names) for names in gpu.timed] == [sorted([VARIANT, *REFERENCES])] * 32
    made = sizes.files(page, text, find_workspace(root))
    text = made["sizes.md"]
    assert "Not collected" not in text
    assert sizes.files(page, text, find_workspace(root)) == made
    assert len(made) == 1 + 2 * 4
    for case in page.cases:
        found = sizes.over(find_workspace(root), page, case)
        assert found is not None
        assert list(found.sizes.values()) == LENGTHS
        assert {line.variant for line in found.timed} == {VARIANT, *REFERENCES}
        drawn = made[f"sizes/{case}-light.svg"]
        assert "TFLOP/s" in drawn
        assert "fa4" in drawn
        part = text.split(f"<!-- sizes: {case} -->")[1].split("<!-- /sizes -->")[0]
        assert f'src="sizes/{case}-light.svg"' in part
        assert f"D={128 if '128' in case else 64}" in part
        assert ("causal" in part) == ("causal" in case)
        told = rf"^- fastest variant at S=\d+: `{VARIANT}`"
        assert len(re.findall(told, part, re.MULTILINE)) == 8
        row = next(line for line in part.splitlines() if line.startswith("| `fa4`"))
        assert len(re.findall(r"\[[\d.,]+, [\d.,]+\]", row)) == 8
    shown = re.search(rf"fastest variant at S=16384: `{VARIANT}` ([\d,]+) µs, (\d+) TFLOP/s", text)
    assert shown is not None
    flops = 4 * 4 * 16 * 16384**2 * 64
    time = float(shown[1].replace(",", "")) * 1e-6
    assert float(shown[2]) == pytest.approx(flops / time / 1e12, rel=0.01)


def test_what_is_asked_for_in_bf16_is_every_shape_of_the_study(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = StandIn(monkeypatch, made_up, noise=0.01)
    monkeypatch.setattr(last_at, "ROOT", root)
    monkeypatch.setattr(measuring, "collectable", lambda study, variants: variants)
    monkeypatch.setattr(machine, "package_version", lambda name: "4")
    assert sizes.in_bfloat16(find_workspace(root)).count("| not collected |") == 14
    for step in read_steps():
        if step.name.startswith("bf16-"):
            _, _, module, *patterns = shlex.split(step.commands[0])
            assert module == "benchmarks.last_at"
            assert last_at.main(patterns) == 0
    assert [sorted(names) for names in gpu.timed] == [sorted([VARIANT, *REFERENCES])] * 14
    text = sizes.in_bfloat16(find_workspace(root))
    assert "not collected" not in text
    assert len(re.findall(r"\| fa4 \| 1\.\d+x \[1", text)) == 14
    row = next(line for line in text.splitlines() if line.startswith("| b2h16s8192d128 |"))
    time, rate = (float(cell.split()[0].replace(",", "")) for cell in row.split(" | ")[2:4])
    assert rate == pytest.approx(4 * 2 * 16 * 8192**2 * 128 / time / 1e6, rel=0.01)


def test_shapes_are_taken_by_a_pattern_and_with_what_is_set() -> None:
    study = find_workspace(ROOT).study("attention")
    wanted = ["b2h8*", "b1h8s128d64,dtype=bfloat16", "b4h16s2048d64,S=256|512,causal=0|1"]
    found = last_at.shapes_at(study, wanted)
    assert [picked.name for picked in found] == [
        "b2h8s512d64", "b2h8s512d64-causal", "b1h8s128d64-dtype-bfloat16", "b4h16s2048d64-S256",
        "b4h16s2048d64-S256-causal", "b4h16s512d64", "b4h16s2048d64-S512-causal",
    ]  # fmt: skip


def test_the_last_step_at_no_shape_ends_in_a_hint(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(last_at, "ROOT", root)
    assert last_at.main(["ragged*"]) == 2
    assert "'ragged*'\nhint: b2h8s512d64, " in capsys.readouterr().err
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    assert last_at.main(["b2h8*"]) == 3


def test_a_case_of_which_a_length_is_missing_is_not_shown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch, made_up)
    short = sizes.ATTENTION.cases["d64"].replace("16384", "8192")
    assert main(["sweep", VARIANT, "--shape", short, "--project", str(root)]) == 0
    assert sizes.over(find_workspace(root), sizes.ATTENTION, "d64") is None
