"""Kernels for few keys are right on the CPU, lane by lane, in both ways through them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks import lanes

from workspaces import ROOT

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

CHOSEN = ("fix17", "fix22", "fix28", "fix29")  # by the last step of the ladder
RELATIVE = {False: 3.5e-4, True: 2.6e-3}  # by bf16: a little more than rounding P and the output


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("bf16", [False, True], ids=["fp16", "bf16"])
def test_they_are_right_where_scores_vary_little_and_much(
    name: str, bf16: bool, tmp_path: Path
) -> None:
    kernel = lanes.KERNELS[name]
    program = lanes.compiled(kernel, tmp_path, bf16=bf16, masked=True, causal=True)
    keys = 150 if kernel.bulk else 77
    ordinary, large = (lanes.run(program, keys, scale) for scale in (1, 120 if bf16 else 30))
    assert ordinary.relative < RELATIVE[bf16]
    assert large.relative < RELATIVE[bf16]
    assert ordinary.repeated == 0
    assert (large.repeated > 0) == kernel.bulk


@pytest.mark.parametrize(("bf16", "causal"), [(False, False), (True, True)])
def test_of_head_dimension_128_any_number_of_keys_is_right(
    bf16: bool, causal: bool, tmp_path: Path
) -> None:
    program = lanes.compiled(
        lanes.KERNELS["fix29"], tmp_path, bf16=bf16, masked=True, causal=causal
    )
    for keys in (1, 63, 129, 193):
        assert lanes.run(program, keys, 1).relative < RELATIVE[bf16], keys


def test_all_keys_at_once(tmp_path: Path) -> None:
    kernel = lanes.KERNELS["fix28"]
    program = lanes.compiled(kernel, tmp_path, bf16=False, masked=False, causal=False)
    assert lanes.run(program, 512, 1).relative < RELATIVE[False]
    again = lanes.run(program, 256, 30)
    assert again.relative < RELATIVE[False]
    assert again.repeated == again.blocks


@pytest.mark.parametrize("name", lanes.KERNELS)
def test_what_a_half_leaves_out_beside_a_key_with_nearly_all_of_the_weight_is_as_the_notes_tell(
    name: str, tmp_path: Path
) -> None:
    kernel = lanes.KERNELS[name]
    program = lanes.compiled(kernel, tmp_path, bf16=False, masked=False, causal=False)
    found = lanes.run(program, kernel.keys, 1, 12)
    notes = (ROOT / "docs" / "attention-notes.md").read_text("utf-8")
    assert f"| `{name}` | {100 * found.relative:.2g} % |" in notes
    assert (found.relative > 0.01) == (name in ("fix23", "fix26"))


def test_a_kernel_that_takes_a_wrong_row_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lanes.translated

    def wrong(source: str, *, bf16: bool) -> str:
        text = right(source, bf16=bf16)
        assert text.count("const int key = i / 2 * 8 + i % 2;") == 1
        return text.replace(
            "const int key = i / 2 * 8 + i % 2;", "const int key = i / 2 * 8 + (i + 1) % 2;"
        )

    monkeypatch.setattr(lanes, "translated", wrong)
    program = lanes.compiled(
        lanes.KERNELS["fix22"], tmp_path, bf16=False, masked=False, causal=False
    )
    assert lanes.run(program, 128, 1).relative > 0.1


def test_ptx_that_nothing_stands_in_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "BODIES", {})
    with pytest.raises(lanes.NotOnCpu, match=r"fix22\.cu: asm"):
        lanes.translated("fix22.cu", bf16=False)
