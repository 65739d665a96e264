"""Steps that wait for a GPU fit the ladder as it is."""

from __future__ import annotations

from pathlib import Path

from workbench.study.ladder import read_ladder
from workbench.study.ladder_text import with_step

ROOT = Path(__file__).resolve().parents[1]
NEXT = ROOT / "ablations" / "attention" / "next.toml"


def test_what_is_not_recorded_yet_can_go_behind_the_last_step(tmp_path: Path) -> None:
    ladder = NEXT.with_name("ablation.toml")
    steps = NEXT.read_text(encoding="utf-8").split("[[step]]", 1)[1]
    both = tmp_path / "ablation.toml"
    text = ladder.read_text(encoding="utf-8")
    both.write_text(with_step(ladder, text, f"[[step]]{steps}"), encoding="utf-8")
    folder = ROOT / "kernels" / "attention"
    recorded = [step.variant for step in read_ladder(ladder, "attention", folder).steps]
    found = read_ladder(both, "attention", folder).steps
    assert [step.variant for step in found[: len(recorded)]] == recorded
    waiting = found[len(recorded) :]
    assert waiting[-1].variant == "fix19"
    for step in waiting:
        assert step.predictions
        assert step.kind is not None
        name = step.variant.partition("[")[0]
        assert (folder / f"{name}.py").is_file()
        assert step.variant not in recorded
