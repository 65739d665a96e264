"""Recorded evidence: traceable, tied to its sources, and never shown when it is not sound."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, both_of, error_of, json_of, text_of
from workbench.cli.main import main
from workbench.errors import BadCapture
from workbench.evidence.records import Environment
from workbench.evidence.store import EvidenceFolder
from workbench.ncu.capture import load_capture
from workbench.run import recording
from workspaces import (
    CAUSAL,
    EVIDENCE,
    SHOWN,
    copy_of_fixture,
    output_of,
    put_in,
    recorded_range,
    told_in,
)

SHAPE = SHOWN
WRONG = "fix3"  # with outliers among its inputs: checked, and for that neither timed nor captured


def ablate(root: Path, capsys: Capsys) -> dict[str, Any]:
    data = json_of(capsys, "ablate", project=root)
    assert isinstance(data, dict)
    return data


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_of_fixture(tmp_path, "attention")


@pytest.fixture
def transpose(tmp_path: Path) -> Path:
    return copy_of_fixture(tmp_path, "transpose")


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """Of the evidence as it is on record."""
    data: dict[str, Any] = json.loads(output_of("ablate --json --full"))
    return data


def test_the_command_on_record_names_no_folder_of_the_machine() -> None:
    words = [
        "workbench",
        "ablate",
        "fix2[warps=8]",
        "--project",
        "/home/me/kernels",
        "--on=/etc/place.toml",
    ]
    found = recording.provenance(Environment(), command=[*words, "--shape", "S=128"])
    assert found.command == (
        "workbench ablate 'fix2[warps=8]' --project kernels --on=place.toml --shape S=128"
    )


def everything(data: dict[str, Any]) -> list[dict[str, Any]]:
    """But for references that were not collected."""
    references = [row for row in data["references"] if row["status"] != "missing"]
    return [*data["variants"], *references]


# By degrees of freedom, of scipy: at 95 % of five sessions, at 99 % where more were added.
QUANTILE = {4: 2.776, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250, 14: 2.977}


PLANNED = 5  # sessions with every variant, before others came for open verdicts


def recorded_logs(name: str) -> dict[str, dict[str, dict[int, float]]]:
    """Read past the product: mean logarithms of instances by regime, variant and session."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for session in told_in(EVIDENCE / SHAPE / "timings" / name)["sessions"]:
        if session.get("alone"):
            continue
        for series in session["series"]:
            if series.get("twin"):
                continue
            around = series.get("around") or [0] * len(series["microseconds"])
            added = [t - a for t, a in zip(series["microseconds"], around, strict=True)]
            instances = found.setdefault(series["regime"], {}).setdefault(series["variant"], {})
            log = math.log(statistics.median(added))
            instances.setdefault(session["number"], []).append(log)
    return {
        regime: {
            name: {number: statistics.fmean(logs) for number, logs in sessions.items()}
            for name, sessions in variants.items()
        }
        for regime, variants in found.items()
    }


def test_every_time_and_speedup_can_be_recomputed_from_the_timing_file(
    table: dict[str, Any],
) -> None:
    main_file = table["evidence"]["timings"]
    others = {p.name for p in (EVIDENCE / SHAPE / "timings").glob("*.zst")} - {main_file}
    every = [recorded_logs(name) for name in (main_file, *sorted(others, reverse=True))]
    own = more = 0
    for row in everything(table):
        # What the table's own timing lacks was timed later, with what it is compared with.
        logs = next((each for each in every if row["variant"] in each["chained"]), {})
        own += logs is every[0]
        regimes = {**row["regimes"], **({"chained": row} if row["microseconds"] else {})}
        assert set(regimes) == {r for r in logs if row["variant"] in logs[r]}
        for regime, known in regimes.items():
            whole = logs[regime][row["variant"]]
            planned = sorted({n for sessions in logs[regime].values() for n in sessions})[:PLANNED]
            mine = {number: whole[number] for number in planned}
            value = known["microseconds"]["value"]
            over_fastest = known["speedup_over_fastest"] or {}
            fastest = over_fastest.get("of") or known.get("fastest")
            assert value == pytest.approx(math.exp(statistics.fmean(mine.values())))
            for key, over in (
                ("speedup_over_baseline", "baseline"),
                ("speedup_over_parent", row["parent"]),
                ("speedup_over_reference", "sdpa"),
                ("speedup_over_fastest", fastest),
            ):
                theirs = logs[regime].get(over)
                if theirs is None:  # there is none, or it was not timed beside it
                    assert known[key] is None
                    continue
                shown = [(known[key], mine)]
                if (key, regime, row["judged_at"]) == ("speedup_over_parent", "chained", ""):
                    shown.append((row["deciding_speedup"], whole))
                for ratio, of in shown:
                    ratios = [theirs[n] - of[n] for n in of if n in theirs]
                    middle, count = statistics.fmean(ratios), len(ratios)
                    more += count > PLANNED
                    width = QUANTILE[count - 1] * statistics.stdev(ratios) / math.sqrt(count)
                    assert ratio["ratio"] == pytest.approx(math.exp(middle))
                    assert ratio["low"] == pytest.approx(math.exp(middle - width), rel=1e-4)
                    assert ratio["high"] == pytest.approx(math.exp(middle + width), rel=1e-4)
    assert (own > 20, more) == (True, 1)


def test_the_ladder_reaches_ten_times_and_every_step_was_predicted(table: dict[str, Any]) -> None:
    (choice,) = (row for row in table["variants"] if row["variant"] == "fix15")
    assert choice["speedup_over_baseline"]["low"] >= 10
    for row in table["variants"][1:]:
        assert row["predictions"]
        assert row["verdict"] in ("kept", "slower", "wrong", "inconclusive")


def test_a_wrong_variant_has_a_check_and_neither_a_time_nor_a_capture(
    table: dict[str, Any],
) -> None:
    recorded = told_in(EvidenceFolder(EVIDENCE).variant(WRONG))["checks"]
    row = next(r for r in table["variants"] if r["variant"] == WRONG)
    assert recorded[SHAPE]["status"] == "wrong"
    assert (row["status"], row["verdict"]) == ("failed", "wrong")
    assert row["problem"]["message"] == f"wrong: {recorded[SHAPE]['why']}"
    assert row["gates"]["correct"]["passed"] is False
    assert (row["microseconds"], row["regimes"]) == (None, {})
    assert {row[key] for key in ("memory", "dram_gb_per_s", "achieved_occupancy_pct")} == {None}
    assert (row["kernels"], row["capture"], row["stalls"]) == ([], "", {})
    for path in EVIDENCE.glob("*/timings/*.json.zst"):
        assert WRONG not in told_in(path)["fingerprints"]
    assert not any(WRONG in told_in(path)["captures"] for path in EVIDENCE.glob("*/captures.json"))


def test_editing_one_line_makes_evidence_stale_and_the_verbs_say_so(
    copy: Path, capsys: Capsys
) -> None:
    source = copy / "kernels" / "attention" / "fix2.cu"
    source.write_text(source.read_text().replace("kTile = 64;", "kTile = 32;"))
    here = ["--project", str(copy)]
    rows = {r["variant"]: r for r in everything(ablate(copy, capsys))}
    assert rows["fix2"]["status"] == "stale"
    assert rows["fix2"]["microseconds"] is None
    assert rows["fix2"]["dram_gb_per_s"] is None
    assert rows["fix1"]["status"] == "current"
    assert rows["fix4"]["parent"] == "fix2"
    assert rows["fix4"]["microseconds"] is not None
    assert rows["fix4"]["speedup_over_parent"] is None
    out = text_of(capsys, "ablate", "--all", *here)
    assert " stale " in next(x for x in out.splitlines() if x.startswith("| fix2"))
    assert "stale, not shown: `fix2`" in out
    for verb in (["ablate", "fix2"], ["diff", "fix1", "fix2"]):
        said = both_of(capsys, *verb, *here, code=5)
        assert "error: all recorded evidence of fix2 is stale: the sources changed" in said.err
        assert said.out
    assert main(["list", *here]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("| fix2 "))
    assert " stale" in line
    for verb in (
        ["show", "fix2", "--source"],
        ["show", "fix2", "--metric", "a"],
        ["advise", "fix2"],
    ):
        assert "only a stale capture" in error_of(capsys, *verb, *here, code=5)
    assert "verdict" not in json_of(capsys, "check", "fix2", "--brief", *here, code=5)
    report = (copy / "reports" / "attention" / "OPTIMIZATION_REPORT.md").read_text()
    row = next(x for x in report.splitlines() if x.startswith("| fix2"))
    assert "| stale |" in row
    assert not any(character.isdigit() for character in row.replace("fix2", ""))


def test_a_new_shape_leaves_evidence_current_and_a_changed_study_does_not(
    copy: Path, capsys: Capsys
) -> None:
    study = copy / "kernels" / "attention" / "study.py"
    text = study.read_text()
    new = '    "new": Shape(B=1, H=1, S=64, D=64, causal=False, dtype="float16"),\n    "ragged"'
    study.write_text(text.replace('    "ragged"', new))
    states = {r["variant"]: r["status"] for r in everything(ablate(copy, capsys))}
    assert {states.pop(name) for name in (WRONG,)} == {"failed"}
    assert set(states.values()) == {"current"}
    study.write_text(text.replace("absolute=5e-3", "absolute=6e-3"))
    here = ["--json", "--project", str(copy)]
    assert main(["ablate", *here]) == 5
    assert all(r["status"] == "stale" for r in everything(json.loads(capsys.readouterr().out)))
    assert main(["check", *here]) == 5
    assert {c["status"] for c in json.loads(capsys.readouterr().out)["checks"]} <= {
        "stale",
        "not collected",
    }
    assert main(["check", "fix1", *here]) == 5


def test_a_deleted_capture_is_missing_and_times_stay(transpose: Path, capsys: Capsys) -> None:
    for path in (*transpose.rglob("*.ncu-repz"), *transpose.rglob("tables/*")):
        path.unlink()
    row = ablate(transpose, capsys)["variants"][0]
    assert row["microseconds"]["value"] > 0
    assert row["dram_gb_per_s"] is None
    assert row["stalls"] == {}


def timing_of_ladder(root: Path) -> Path:
    """That of most variants; others, of some variants alone, are removed."""
    paths = list(root.glob(f"ablations/attention/evidence/*/{SHAPE}/timings/*.json.zst"))
    path = max(paths, key=lambda p: len(told_in(p)["fingerprints"]))
    for each in set(paths) - {path}:
        each.unlink()
    return path


def test_a_capture_without_the_range_is_refused() -> None:
    path, _ = recorded_range(CAUSAL, "fix9")
    with pytest.raises(BadCapture, match="holds no launch of workbench:other"):
        load_capture(path, "workbench:other")


def test_no_path_of_a_machine_travels_in_evidence() -> None:
    import zstandard

    for path in EVIDENCE.rglob("*"):
        if path.is_dir():
            continue
        data = path.read_bytes()
        if path.suffix in (".ncu-repz", ".zst"):
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 30)
        for word in (b"/home/", b"/root/", b"/Users/"):
            assert word not in data, path
    size = sum(p.stat().st_size for p in EVIDENCE.rglob("*") if p.is_file())
    assert size < 20e6


def test_a_variant_timed_in_another_session_keeps_its_time_and_ratios(
    copy: Path, capsys: Capsys
) -> None:
    path = timing_of_ladder(copy)
    data = told_in(path)
    keep = {"fix2", "fix4"}
    sessions = [
        {**session, "series": [s for s in session["series"] if s["variant"] in keep]}
        for session in data["sessions"]
    ]
    later = {
        **data,
        "fingerprints": {k: v for k, v in data["fingerprints"].items() if k in keep},
        "sessions": [session for session in sessions if session["series"]],
    }
    put_in(path.with_name("29990101T000000Z.json.zst"), later)
    data["fingerprints"]["fix4"] = "of sources that are gone"
    put_in(path, data)
    found = {r["variant"]: r for r in ablate(copy, capsys)["variants"]}
    assert found["fix4"]["microseconds"]["value"] > 0
    assert found["fix4"]["speedup_over_parent"]["ratio"] > 1
    assert found["fix4"]["speedup_over_baseline"] is None
