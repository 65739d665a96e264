"""The process that a block is carried out in: what it is given, and how it ends."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from onplaces import Cards, alive, card, install
from workbench.evidence import frames
from workbench.evidence.layout import EvidenceFolder
from workbench.places import blocks, execute
from workbench.places.blocks import Answer, Block, Failed, Lacking, Left
from workbench.places.carry import files_of, hashes
from workbench.places.plan import Errand
from workbench.run.plan import Plan
from workbench.study.config import Config
from workbench.study.workspace import find_workspace
from workspaces import make

MODULE = "def run(x):\n    return x\n"


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    return install(tmp_path, monkeypatch, [card(0)])


def sent(root: Path, tmp_path: Path) -> tuple[bytes, dict[str, bytes]]:
    """A block of a small study, and its sources."""
    make(root, {}, {"baseline": MODULE, "fix": MODULE})
    study = find_workspace(root).study()
    plan = Plan("large", timed=("baseline", "fix"))
    block = Errand(study, Config(), EvidenceFolder(tmp_path / "e"), plan).block(
        ["workbench", "ablate"]
    )
    files = files_of(study)
    by_hash = {digest: files[name].read_bytes() for name, digest in hashes(files).items()}
    return blocks.encode(block), by_hash


def carried(data: bytes, blobs: dict[str, bytes], **how: Any) -> Answer:
    return execute.carry_out(data, blobs, card(0).kind, **how)


def test_a_block_is_carried_out_in_a_process_of_its_own(one: Cards, tmp_path: Path) -> None:
    data, blobs = sent(tmp_path / "ws", tmp_path)
    lacking = carried(data, {})
    assert isinstance(lacking, Lacking)
    assert set(lacking.sha256) == set(blobs)
    events: list[bytes] = []
    left = carried(data, blobs, tell=events.append)
    assert isinstance(left, Left)
    assert (left.card, left.gpu, left.block) == (card(0), "nvidia-h200", blocks.id_of(data))
    assert {json.loads(line)["event"] for line in events} >= {"built", "checked", "timed"}
    ((_, seen, tmpdir),) = one.ran
    assert seen == "GPU-0"
    assert Path(tmpdir) == tmp_path / "own" / "cards" / "GPU-0"
    assert list(Path(tmpdir).iterdir()) == []  # nothing is left
    (timing,) = (frames.whole(d) for name, d in left.files.items() if "/timings/" in name)
    assert json.loads(timing)["provenance"]["command"] == "workbench ablate"


def test_a_card_that_is_lost_is_not_blamed_on_variants(one: Cards, tmp_path: Path) -> None:
    data, blobs = sent(tmp_path / "ws", tmp_path)
    one.fault("lost")
    failed = carried(data, blobs)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.again) == ("CardLost", True)
    after = carried(data, blobs)
    assert isinstance(after, Failed)
    assert after.unequal


def test_a_block_that_hangs_is_ended(
    one: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, blobs = sent(tmp_path / "ws", tmp_path)
    monkeypatch.setattr(Block, "silence", 0.5)
    one.fault("hang")
    failed = carried(data, blobs)
    assert isinstance(failed, Failed)
    assert failed.message == "hangs: nothing came for 0.5 s"
    assert failed.again
    assert not alive(one)


def test_what_nobody_wants_any_more_is_ended(one: Cards, tmp_path: Path) -> None:
    data, blobs = sent(tmp_path / "ws", tmp_path)
    one.fault("hang")
    failed = carried(data, blobs, is_wanted=lambda: not one.ran)
    assert isinstance(failed, Failed)
    assert not alive(one)


def test_a_block_without_a_card_of_its_kind_is_refused(one: Cards, tmp_path: Path) -> None:
    data, blobs = sent(tmp_path / "ws", tmp_path)
    failed = execute.carry_out(data, blobs, card(0, driver="590").kind)
    assert isinstance(failed, Failed)
    assert failed.unequal
    assert not one.ran


def test_a_study_that_cannot_be_read_is_tried_once(one: Cards, tmp_path: Path) -> None:
    root = tmp_path / "ws"
    data, blobs = sent(root, tmp_path)
    study = root / "kernels" / "scale" / "study.py"
    block = blocks.decode(data)
    text = study.read_bytes() + b"raise ValueError('here')\n"
    sha256 = hashlib.sha256(text).hexdigest()
    sources = {**block.sources, "kernels/scale/study.py": sha256}
    failed = carried(
        blocks.encode(structs.replace(block, sources=sources)), {**blobs, sha256: text}
    )
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.again) == ("UsageError", False)
    assert "study.py" in failed.message
