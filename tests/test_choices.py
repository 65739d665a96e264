"""Which kernel a choice takes, without a GPU: as docs/attention-notes.md tells of it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.study.workspace import load_module
from workspaces import ROOT

NOTES = (ROOT / "docs" / "attention-notes.md").read_text()
ROW = re.compile(r"^\| (\d+), (\d+) \|.*\| `(fix\d+)` \| `(fix\d+)` \|$", re.MULTILINE)


def taken(choice: str, heads: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """By an H200, at head dimension 64."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    module: Any = load_module(ROOT / "kernels" / "attention" / f"{choice}.py", f"choice_{choice}")
    parts: list[Any] = [part for part in vars(module).values() if hasattr(part, "run")]
    called: list[str] = []
    for part in parts:
        name = re.sub(r"workbench_part_(fix\d+)_.*", r"\1", str(part.__name__).rsplit(".", 1)[-1])
        monkeypatch.setattr(part, "run", lambda *inputs, name=name: called.append(name))
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    q = torch.empty((1, heads, keys, 64), dtype=torch.float16)
    module.run(q, q, q, False)
    (name,) = called
    return name


def test_there_are_rows_on_both_sides_of_every_bound() -> None:
    rows = {(int(heads), int(keys)): later for heads, keys, _, later in ROW.findall(NOTES)}
    assert len(rows) == 13
    assert set(rows.values()) == {"fix22", "fix17", "fix16"}


@pytest.mark.parametrize(("heads", "keys", "before", "after"), ROW.findall(NOTES))
def test_a_choice_takes_what_is_told(
    heads: str, keys: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    assert taken("fix24", int(heads), int(keys), monkeypatch) == before
    assert taken("fix25", int(heads), int(keys), monkeypatch) == after


@pytest.mark.parametrize(
    ("heads", "keys", "kernel"), [(64, 256, "fix23"), (64, 512, "fix18"), (16, 512, "fix23")]
)
def test_with_more_keys_it_takes_what_was_taken_before(
    heads: int, keys: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    assert taken("fix25", heads, keys, monkeypatch) == kernel
