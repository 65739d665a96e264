"""What docs say that scripts, records and signatures say: now, and of the recorded evidence."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from benchmarks import agreement, between, carried, claims, effects, models
from benchmarks.effects import Effect
from benchmarks.models import FA4, NONE, OURS, SDPA, Recording, launched
from tools import lessons, reference, sizes
from tools.pages import with_part

import workbench as wb
from answers import Capsys, Patch, not_none
from workbench import library
from workbench.study.config import Config
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

SLOW = (lessons, between, agreement, claims, models, sizes)


@pytest.mark.parametrize(
    "script",
    [
        *(reference, effects),
        *(pytest.param(script, marks=pytest.mark.slow) for script in SLOW),
        pytest.param(
            carried,
            marks=pytest.mark.skipif(not carried.RECORDED.is_file(), reason="it is not recorded"),
        ),
    ],
    ids=lambda script: script.__name__,
)
def test_a_script_writes_what_stands_in_its_files(script: ModuleType) -> None:
    made: dict[Path, str] = script.written()
    assert made
    for path, text in made.items():
        assert path.read_text("utf-8") == text, f"`python -m {script.__name__}` writes it"


def test_the_settings_of_the_reference_are_the_defaults() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", reference.PAGE.read_text("utf-8"), re.DOTALL)
    assert msgspec.toml.decode(text, type=Config) == Config()


def test_a_part_of_a_page_is_written_again() -> None:
    page = "head\n<!-- a: b -->\nold\n<!-- /a -->\nfoot\n"
    assert with_part(page, "a: b", "new\n") == page.replace("old", "new")


def test_times_of_two_toolchains_become_a_part_of_their_page(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    def row(variant: str, low: float, high: float, **more: object) -> dict[str, object]:
        times = {"ratio": (low + high) / 2, "low": low, "high": high, "old_us": 2.0, "new_us": 1.9}
        facts = {"study": "moe", "gpu": "NVIDIA H200", "date": "2026-01-01"}
        return {"variant": variant, "control": False, "sessions": 6, **facts, **times, **more}

    before = (ROOT / "docs" / "gate.md").read_text("utf-8")
    monkeypatch.setattr(carried, "RECORDED", tmp_path / "toolchains.json")
    monkeypatch.setattr(carried, "PAGE", tmp_path / "gate.md")
    (tmp_path / "gate.md").write_text(before, "utf-8")
    rows = [row("fast", 1.04, 1.06), row("same", 0.99, 1.01), row("wide", 0.9, 1.1)]
    others = [row("same", 1.0, 1.002, control=True), row("cut", 0.5, 0.5, sessions=1)]
    for name, timed in (("a", rows), ("b", others)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "out.json").write_text(json.dumps(timed))
    carried.record([tmp_path / "a", tmp_path / "b"])
    assert json.loads((tmp_path / "toolchains.json").read_text()) == [*rows, *others]
    after = (tmp_path / "gate.md").read_text("utf-8")
    part = carried.as_text([*rows, *others])
    assert after == with_part(before, "toolchains", part) != before
    assert "NVIDIA H200, 2026-01-01, 6 sessions in each environment: 1 of 3 variants" in part
    assert "±1.0 % in the median, and ±11.1 % at worst, of `wide` of moe" in part
    assert (
        "A change of 5.0 % would have been named in half of the variants, and one of 25.2 %" in part
    )
    assert "Of 1 A/A control 0 did: with 95 % confidence, at most 95 % do. Left out: 1 row" in part
    assert "| moe | `fast` | 2 | 1.9 | 1.050x [1.040, 1.060] |" in part
    assert "`same` |" not in part


# ---- library.md
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def test_its_first_examples_run_on_the_recorded_evidence(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    root = copy_of_fixture(tmp_path)
    (root / "theirs.ncu-repz").symlink_to(recorded_report(CAUSAL, "fix10"))
    monkeypatch.chdir(root)
    script = root / "example.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", LIBRARY, re.DOTALL)))
    bound = runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("baseline baseline []\nfix1 kept []\n")
    assert len(bound["lines"])
    assert len(bound["evidence"].variants["fix2"].state) == 4


def test_every_call_is_in_its_table_with_its_options() -> None:
    calls = dict(re.findall(r"^\| `wb\.(\w+)\((.*?)\)", LIBRARY, re.MULTILINE))
    assert set(calls) == {name for name in wb.__all__ if name.islower() and name[0] != "_"}
    for name, options in calls.items():
        known = inspect.signature(getattr(wb, name) if name != "study" else library.study)
        assert set(re.findall(r"(\w+)=", options)) <= set(known.parameters), name


# ---- models.md
def made_up_models(sessions: int = 3) -> Recording:
    made = Recording(sources="of then", gpu="a card", driver="1", date="2026-11-22T03:00:00Z")
    made.packages = {"torch": "2.11", "flash-attn-4": ""}
    made.parameters = {"bert": 950_000_000}
    eager = {launched(SDPA): 20.0, launched(OURS): 25.0}
    graphs = {FA4: 12.0, OURS: 8.0, NONE: 6.0}
    short = [eager | graphs | {SDPA: 10.0 * (1 + number / 100)} for number in range(sessions)]
    long = [{SDPA: 100.0, OURS: 80.0, NONE: 60.0}] * sessions
    made.times = {"bert": {512: short, 8192: long}}
    made.errors = {"bert": {512: {SDPA: 1e-3, OURS: 1.1e-3, FA4: 1e-3}}}
    return made


def test_a_row_has_times_the_ratio_with_its_interval_and_the_shares() -> None:
    first, second = (models.row(made_up_models(), "bert", tokens) for tokens in (512, 8192))
    assert first[:4] == ("512", "10.1", "12.0", "8.00")
    assert first[4].startswith("1.26x [1.2")
    assert first[4].endswith("(SDPA)")
    assert first[5:] == ("41 % → 25 %", "0.800x [0.800, 0.800]", "1.100x")
    assert second[0] == "16 × 512"
    assert second[2] == "not collected"
    assert second[4] == "1.25x [1.250, 1.250] (SDPA)"
    assert second[6:] == ("not collected", "not collected")
    one_session = models.row(made_up_models(sessions=1), "bert", 512)
    assert one_session[4] == "1.25x (SDPA)"


PART = "<!-- models: passes -->\nold\n<!-- /models -->\n"


def test_the_page_names_what_was_not_collected() -> None:
    recording = made_up_models()
    made = models.page(PART, recording, "")
    assert "0.95 billion parameters, 3 sessions" in made
    assert (
        "Llama-like: 16 layers, 16 heads of 128 over 8 of keys, causal, bf16: not collected" in made
    )
    assert "| `bert` | 512 | 10.1 | 12.0 | 8.00 |" in made
    assert "old" not in made
    assert models.page(made, recording, "") == made


def test_a_record_of_other_sources_is_named_so() -> None:
    recording = made_up_models()
    assert "changed" not in models.page(PART, recording, recording.sources)
    assert "sources have changed since" in models.page(PART, recording, "others")


def test_the_worst_error_is_a_multiple_of_sdpas() -> None:
    made = made_up_models()
    assert made.worst_error() == pytest.approx(1.1)
    made.errors["llama"] = {512: {SDPA: 1e-3, OURS: float("nan")}}
    assert made.worst_error() != made.worst_error()


def made_up_effect(pairs: list[tuple[float, float]]) -> Effect:
    return Effect(
        kernel="chosen", milliseconds=10.0, replaced=2.0, calls=16, extents="", alone=1.25,
        largest=2.0, at="chunk", error=1e-3, pairs=pairs,
    )  # fmt: skip


def test_a_measured_gain_stands_beside_the_predicted_one() -> None:
    cells = effects.row("llama-512", made_up_effect([(10.0, 9.5), (10.2, 9.7), (9.9, 9.4)]))
    assert cells[3:8] == ("10.0", "16, 20.00 %", "10.00 %", "1.25x", "4.00 %")
    assert re.fullmatch(r"4\.98 % \[4\.\d\d, 5\.\d\d\]", cells[8])
    assert cells[9:] == ("0.1 %",)


def test_an_unresolved_gain_names_the_pairs_that_it_needs() -> None:
    pairs = [(10.0, 9.8), (10.0, 10.1), (10.0, 9.9), (10.0, 10.0)]
    few, many = made_up_effect(pairs), made_up_effect(pairs * 12)
    needed = not_none(effects.needed(few.logarithms))
    assert len(pairs) < needed <= len(pairs * 12)
    assert f"cannot be resolved with fewer than {needed} pairs" in effects.measured(few)
    assert "resolved" not in effects.measured(many)
