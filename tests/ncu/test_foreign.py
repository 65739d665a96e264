"""``show`` and ``diff`` on reports alone: no workspace, any ncu, errors that say what to do."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from answers import Capsys, Patch, both_of, error_of, json_of, not_none, text_of
from workbench.app import show
from workbench.derive.figures import Figure
from workbench.derive.matching import groups, match
from workbench.judge.comparison import warnings
from workbench.judge.findings import sentences
from workbench.ncu.report_file import Launch, Report, parse_options, read_report
from workbench.render import markdown
from workbench.render.doc import Paragraph, line
from workbench.render.doc import factor as times
from workbench.render.document.launches import extent, figure_pairs, kernel, limiters, unmatched
from workbench.run import machine
from workspaces import CAUSAL, RAW, recorded_index, recorded_report

PACKED, LAUNCHES = recorded_report(CAUSAL, "fix10"), 3  # fix10, fix9, and cuDNN's
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128"
CUDNN += "_4x1x1_cga1x1x1_kernel0_0"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same report as ncu writes it, not compressed."""
    path = tmp_path_factory.mktemp("reports") / "plain.ncu-rep"
    with PACKED.open("rb") as source, path.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    return path


def test_show_lists_every_launch_with_its_kernel_shape_and_duration(capsys: Capsys) -> None:
    found = json_of(capsys, "show", PACKED)
    assert found["gpus"] == ["NVIDIA H200"]
    assert (found["compute_capability"], found["ncu"]) == ("9.0", "2025.3.1")
    assert found["ncu_options"]["--clock-control"] == "none"
    assert len(found["launches"]) == LAUNCHES
    first = found["launches"][0]
    assert (first["kernel"], first["grid"], first["block"]) == (
        "attention_forward",
        [132, 1, 1],
        [384, 1, 1],
    )
    assert first["microseconds"] == pytest.approx(124.992)
    assert found["ncu"] == recorded_index(CAUSAL, "fix10")["ncu"]
    covered = sorted(i for group in found["kernels"] for i in group["launches"])
    assert covered == list(range(LAUNCHES))
    for group in found["kernels"]:
        assert group["figures"]["duration"]["value"] > 0
        assert group["rules_collected"]
        assert group["bottlenecks"]


def test_a_plain_report_reads_as_the_compressed_one(plain: Path, capsys: Capsys) -> None:
    one, other = json_of(capsys, "show", PACKED), json_of(capsys, "show", plain)
    assert {**one, "name": ""} == {**other, "name": ""}


def test_show_groups_launches_and_shows_the_longest_in_full(capsys: Capsys) -> None:
    text = text_of(capsys, "show", RAW)
    assert text.splitlines()[0].endswith("; 28 launches")
    assert text.count("\n## launch ") == 3
    assert "--kernel NAME or --launch N chooses others" in text
    assert "Top bottlenecks:" in text
    text = text_of(capsys, "show", PACKED, "--kernel", CUDNN)
    assert text.count("\n## launch ") == 1
    assert "attention_forward" not in text
    assert "chooses others" not in text


def test_metric_and_source_take_a_launch(capsys: Capsys) -> None:
    name = "launch__registers_per_thread"
    (row,) = json_of(capsys, "show", PACKED, "--launch", 1, "--metric", name)["metrics"]
    assert (row["launch"], row["value"]) == (1, 168)
    found = json_of(capsys, "show", PACKED, "--launch", 1, "--source")
    assert "/workbench/kernels/attention/fix9.cu" in found["files"]
    text = text_of(capsys, "show", RAW, "--launch", 4, "--source")
    assert text.index("fix3.cu: stall samples") < text.index("cuda_fp16.h: no instruction")


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (["show", "nothing.ncu-rep"], 2, "there is no file nothing.ncu-rep", "no report in that"),
        (["show", "empty.ncu-rep"], 4, "holds no profiled kernel", "profile it again"),
        (["show", "empty.ncu-repz"], 4, "holds no profiled kernel", "profile it again"),
        (["show", "text.txt"], 4, "is no Nsight Compute report", "an .ncu-rep file or a variant"),
        (
            ["show", PACKED, "--kernel", "atention_forward"],
            2,
            "no launch of a kernel",
            "'attention_forward'",
        ),
        (
            ["show", PACKED, "--launch", str(LAUNCHES)],
            2,
            f"has no launch {LAUNCHES}",
            f"0 to {LAUNCHES - 1}",
        ),
        (
            ["show", PACKED, "--metric", "gpu__time_duration.summ"],
            2,
            "unknown metric",
            "'gpu__time_duration.sum'",
        ),
        (["show", PACKED, "--source"], 2, " kernels or launch shapes", "--launch N"),
        (["show", PACKED, "--launch", "2", "--source"], 2, "has no source lines", "-lineinfo"),
        (["diff", PACKED, "fix1"], 2, "is none of its kind", "`diff` takes two reports"),
        (["diff", PACKED, "empty.ncu-rep"], 4, "holds no profiled kernel", "profile it again"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(
    arguments: list[object], code: int, message: str, hint: str, nowhere: Path, capsys: Capsys
) -> None:
    if "nothing.ncu-rep" not in arguments:
        for name in ("empty.ncu-rep", "empty.ncu-repz"):
            (nowhere / name).touch()
        (nowhere / "text.txt").write_text("no report at all\n")
    out, err = both_of(capsys, *arguments, code=code)
    assert out == ""
    assert message in err.splitlines()[0]
    assert hint in err.split("hint:")[1]


@pytest.mark.parametrize(
    ("name", "data", "what", "hint"),
    [
        ("a.ncu-rep", b"version https://git-lfs.github.com/spec/v1\n", "git LFS", "git lfs pull"),
        ("a.ncu-rep.gz", b"\x1f\x8b\x08", "gzip", "gunzip -k a.ncu-rep.gz"),
        ("a.sqlite", b"SQLite format 3\0", "an SQLite database", "no counters"),
        ("a.nsys-rep", b"anything", "Nsight Systems", "workbench profile -- PROGRAM"),
        ("a.qdrep", b"anything", "Nsight Systems", "workbench profile -- PROGRAM"),
        ("b.csv", b"Time (%),Total Time (ns)\n", "a table that nsys printed", "no counters"),
        ("a.json.1", b'{"schemaVersion": 1}', "a trace of torch.profiler", "no counters"),
        ("a.ncu-rep", b"<!DOCTYPE html><html>", "a web page", "the raw file"),
        ("a.csv", b'"ID","Process ID","Process Name"\n', "text that ncu printed", "-o NAME"),
        ("a.txt", b"hello\n==PROF== Connected\n", "text that ncu printed", "-o NAME"),
        ("./a", b"\x7fELF" + bytes(12) + b"\3\0\x3e\0", "a program", "profile -- ./a"),
        ("a.so.1", b"\x7fELF" + bytes(12) + b"\3\0\x3e\0", "a compiled library", "script.py"),
        ("a.o", b"\x7fELF" + bytes(12) + b"\1\0\x3e\0", "compiled code", "link it"),
        ("a.elf", b"\x7fELF" + bytes(12) + b"\2\0\xbe\0", "compiled CUDA code", "workbench diff"),
        ("./a.sh", b"#!/bin/sh\n", "a script", "workbench profile -- ./a.sh"),
        ("a.cu", b"__global__", "CUDA source", "workbench try a.cu"),
    ],
)
def test_another_tools_file_is_named_with_the_way_out(
    name: str, data: bytes, what: str, hint: str, nowhere: Path, capsys: Capsys
) -> None:
    (nowhere / name).write_bytes(data)
    (nowhere / name).chmod(0o755)
    err = both_of(capsys, "show", name, code=2).err
    assert what in err.splitlines()[0]
    assert hint in err.split("hint:")[1]
    if name != "a.cu":
        err = both_of(capsys, "try", name, code=2).err
        assert what in err.splitlines()[0]


def test_a_folder_and_an_empty_file_are_named(nowhere: Path, capsys: Capsys) -> None:
    for name in ("folder", "folder.ncu-rep"):
        (nowhere / name).mkdir()
        told = both_of(capsys, "show", name, code=2).err
        assert f"{name} is a folder" in told
        assert "there is no report in that folder" in told
    (nowhere / "empty").touch()
    (nowhere / "annexed").write_text("/annex/objects/SHA256E-s1--1")
    assert "git annex get annexed" in both_of(capsys, "show", "annexed", code=2).err
    assert "empty" in both_of(capsys, "show", "./empty", code=4).err


def test_a_link_of_git_annex_is_named(nowhere: Path, capsys: Capsys) -> None:
    (nowhere / "a.ncu-rep").symlink_to(".git/annex/objects/1")
    assert "git annex get a.ncu-rep" in both_of(capsys, "show", "a.ncu-rep", code=2).err


SHARES = [0.05, 0.2, 0.5, 0.9, 0.95, 0.999]
SHOWN = """
import io, json, sys
from contextlib import redirect_stderr
from workbench.cli.main import main

told = []
for path in sys.argv[1:]:
    with redirect_stderr(io.StringIO()) as err:
        code = main(["show", path])
    told.append((code, err.getvalue()))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def refused(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[float, tuple[int, str]]:
    """What ``show`` says of parts of it, in a process of their own: ncu_report keeps a gigabyte."""
    whole, folder = plain.read_bytes(), tmp_path_factory.mktemp("cut")
    cuts = [folder / f"{share}.ncu-rep" for share in SHARES]
    for share, cut in zip(SHARES, cuts, strict=True):
        cut.write_bytes(whole[: int(share * len(whole))])
    command = [sys.executable, "-c", SHOWN, *map(str, cuts)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return dict(zip(SHARES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("share", SHARES)
def test_a_report_cut_anywhere_is_refused(
    share: float, refused: dict[float, tuple[int, str]]
) -> None:
    """ncu_report reads what is whole, and a launch without metrics after it."""
    code, err = refused[share]
    assert code == 4
    assert "cut short" in err
    assert "hint: profile it again" in err


def test_diff_of_a_report_with_itself_moves_nothing(plain: Path, capsys: Capsys) -> None:
    found = json_of(capsys, "diff", PACKED, plain)
    assert found["warnings"] == []
    assert (found["only_before"], found["only_after"]) == ([], [])
    for item in found["kernels"]:
        assert all(one == other for one, other in item["launches"])
        assert all(f["before"] == f["after"] for f in item["figures"].values())
        assert item["source"]["hunks"] == []
        told = item["comparison"]
        assert told["decomposition"]["ratio"] == 1
        assert told["largest_changes"]["figures"] == told["largest_changes"]["launch"] == []


def test_diff_tells_how_two_kernels_multiply_out(capsys: Capsys) -> None:
    found = json_of(capsys, "diff", PACKED, RAW, "--kernel", "attention_forward")
    text = text_of(capsys, "diff", PACKED, RAW, "--kernel", "attention_forward")
    assert found["kernels"]
    for item in found["kernels"]:
        made = item["comparison"]["decomposition"]
        product = math.prod(factor["gain"] for factor in made["factors"])
        assert made["ratio"] == pytest.approx(product * made["residual"])
        assert made["ratio"] == pytest.approx(
            item["before"]["microseconds"] / item["after"]["microseconds"]
        )
        assert f"Against before: {times(made['ratio'])} = " in text
        before = sum(t["before"] for t in item["comparison"]["stall_microseconds"])
        assert before == pytest.approx(item["before"]["microseconds"])


def test_diff_matches_by_name_and_lists_the_rest(capsys: Capsys) -> None:
    found = json_of(capsys, "diff", PACKED, RAW)
    for item in found["kernels"]:
        before, after = item["before"], item["after"]
        if item["matched_by"] != "rest":
            assert before["kernel"] == after["kernel"]
    matched = sum(len(item["launches"]) for item in found["kernels"])
    assert matched + len(found["only_before"]) == LAUNCHES
    text = text_of(capsys, "diff", PACKED, RAW, "--kernel", "attention_forward")
    assert "flash_fwd" not in text
    clocks = [(i["before"]["sm_clock_ghz"], i["after"]["sm_clock_ghz"]) for i in found["kernels"]]
    apart = any(max(pair) > 1.02 * min(pair) for pair in clocks)
    assert any("SM clocks are up to" in w["message"] for w in found["warnings"]) == apart


def launch(index: int, signature: str, **changes: Any) -> Launch:
    name = signature.split("(")[0].split("<")[0].split()[-1]
    values: dict[str, Any] = {
        "index": index,
        "kernel": name,
        "signature": signature,
        "kind": "kernel",
        "grid": (8, 1, 1),
        "block": (128, 1, 1),
        "microseconds": 10.0,
        "sm_clock_ghz": 1.5,
        "gpu": "NVIDIA H200",
        **changes,
    }
    return Launch(**values)


def how(before: list[Launch], after: list[Launch]) -> list[tuple[int, int, str]]:
    return [(p.before.index, p.after.index, p.how) for p in match(before, after).pairs]


def test_launches_match_by_signature_and_shape_then_by_less() -> None:
    before = [launch(0, "void f<int>(int)"), launch(1, "g(int)"), launch(2, "h(int)")]
    others = [("h(int)", (9, 1, 1)), ("void f<float>(float)", (8, 1, 1)), ("g(int)", (8, 1, 1))]
    after = [launch(i, name, grid=grid) for i, (name, grid) in enumerate(others)]
    pairs = [(0, 1, "name_and_shape"), (1, 2, "signature"), (2, 0, "name")]
    assert how(before, after) == pairs


def test_launches_of_the_workbench_match_by_their_ranges_first() -> None:
    """Kernels of many variants have one name: in other orders they were taken for each other."""
    before = [launch(i, "f(int)", range=name) for i, name in enumerate(("one", "two", ""))]
    after = [launch(i, "f(int)", range=name) for i, name in enumerate(("", "two", "one"))]
    assert how(before, after) == [(0, 2, "range"), (1, 1, "range"), (2, 0, "signature")]
    assert len(match(before, after).groups) == 3
    retuned = [launch(0, "f(int)", range="two"), launch(1, "f(int)", range="one", grid=(4, 1, 1))]
    assert how(before[:2], retuned) == [(0, 1, "range"), (1, 0, "range")]
    assert how([before[0]], [after[1]]) == [(0, 1, "signature")]


def test_diff_takes_the_launches_that_it_is_told(capsys: Capsys) -> None:
    found = json_of(capsys, "diff", PACKED, RAW, "--launch", "1:5")
    (item,) = found["kernels"]
    assert item["launches"] == [[1, 5]]
    assert found["only_before"] == found["only_after"] == []
    assert item["matched_by"] == "asked_for"
    assert text_of(capsys, "diff", PACKED, RAW, "--launch", "1:5").count("\n## ") == 1


def test_diff_shows_no_sources_where_a_side_has_no_lines(capsys: Capsys) -> None:
    text = text_of(capsys, "diff", PACKED, PACKED, "--launch", "0:2", "--source")
    assert (
        text.count("Costs by line are not collected (after: its capture has no source lines)") == 1
    )
    assert "hunk 1" not in text
    assert "hunk 1" in text_of(capsys, "diff", PACKED, PACKED, "--launch", "0:1", "--source")


@pytest.mark.parametrize("given", ["1", "1:", "a:b", "-1:0", "1:9999", "9999:0", "٣:٣", "1:0:1"])
def test_launches_that_there_are_not_are_refused(given: str, capsys: Capsys) -> None:
    told = error_of(capsys, "diff", str(PACKED), str(RAW), f"--launch={given}")
    assert ("is no pair of launches" in told) == ("9999" not in given)
    assert "hint: " in told


def test_a_diff_of_whole_reports_is_read_in_a_few_screens(capsys: Capsys) -> None:
    """It was 7,585 lines: every kernel in full, with all of its source."""
    text = text_of(capsys, "diff", RAW, RAW)
    assert len(text.splitlines()) < 460
    assert text.count("\n## ") <= 3
    assert "--kernel NAME or --launch A:B chooses others" in text


def test_equal_launches_match_in_order_and_the_extra_one_is_left() -> None:
    before = [launch(i, "f(int)") for i in range(3)]
    found = match(before, [launch(i, "f(int)") for i in range(2)])
    assert [(p.before.index, p.after.index) for p in found.pairs] == [(0, 0), (1, 1)]
    assert [x.index for x in found.only_before] == [2]
    (left,) = unmatched(found, ("a", "b"))
    assert left == Paragraph(line("only in a: f(int) (8 / 128), launch 2"))


def test_a_renamed_kernel_matches_only_where_nothing_else_is_left() -> None:
    one, other = launch(0, "slow(int)"), launch(0, "fast(int)")
    assert how([one], [other]) == [(0, 0, "rest")]
    assert how([one, launch(1, "third(int)")], [other]) == []


def test_a_group_is_shown_by_its_launch_of_median_duration() -> None:
    times = [30.0, 10.0, 20.0]
    (group,) = groups([launch(i, "f(int)", microseconds=t) for i, t in enumerate(times)])
    assert group.typical.index == 2
    assert group.microseconds == 60.0
    (unknown,) = groups([launch(0, "f(int)", microseconds=None)])
    assert unknown.microseconds is None


def report(name: str, launches: tuple[Launch, ...], ncu: str = "2025.3.1") -> Report:
    gpus = tuple(dict.fromkeys(x.gpu for x in launches))
    return Report(Path(name), launches, gpus, "9.0", ncu, {"--clock-control": "base"})


def test_differences_of_gpu_ncu_options_and_clock_are_called_out() -> None:
    before = report("a", (launch(0, "f(int)"),))
    after = report("b", (launch(0, "f(int)", sm_clock_ghz=1.54, gpu="NVIDIA A100"),), "2024.1.0")
    after.ncu_options.clear()
    said = "\n".join(sentences(warnings(before, after, match(before.launches, after.launches))))
    assert "differ in GPU: NVIDIA H200 and NVIDIA A100" in said
    assert "differ in ncu version: 2025.3.1 and 2024.1.0" in said
    assert "differ in ncu --clock-control: base and not collected" in said
    assert "SM clocks are up to 2.7 % apart" in said
    close = report("b", (launch(0, "f(int)", sm_clock_ghz=1.52),))
    assert warnings(before, close, match(before.launches, close.launches)) == []


def test_metrics_that_a_report_lacks_are_not_collected() -> None:
    one = {"duration": Figure("duration", "Duration", 10.0, "µs", "m", "lower")}
    text = markdown.table(figure_pairs(("a", "b"), one, {}))
    row = next(line for line in text.splitlines() if "Duration (µs)" in line)
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["10.0", "not collected", "—"]
    row = next(line for line in text.splitlines() if "L2 hit" in line)
    assert row.count("not collected") == 2
    assert limiters(("a", "b"), ("registers",), ()) == Paragraph(
        line("occupancy limited by: a registers; b not collected")
    )


def test_dimensions_and_names_are_short() -> None:
    assert extent((4, 1, 1)) == "4"
    assert extent((4, 1, 2)) == "4x1x2"
    assert extent(None) == "not collected"
    assert kernel(launch(0, "f(int)", kind="graph")) == "f(int) (graph)"


def test_options_of_a_command_line_are_read_in_both_spellings() -> None:
    command = '--set full --clock-control=base --cache-control none ./app "an argument'
    assert parse_options(command) == {
        "--set": "full",
        "--clock-control": "base",
        "--cache-control": "none",
    }


def samples() -> Path | None:
    """NVIDIA's own before and after reports, which every ncu brings along."""
    tool = machine.find_ncu()
    above = Path(tool).resolve().parents if tool else []
    found = next((p / "extras" / "samples" for p in above if (p / "extras/samples").is_dir()), None)
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/extras/samples"))
    return found or (installed[-1] if installed else None)


@pytest.mark.skipif(samples() is None, reason="Nsight Compute's samples are not installed")
@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ("uncoalescedGlobalAccesses/addConstDouble3", "addConstDouble", (0.99, 1.01)),
        ("sharedBankConflicts/transposeCoalesced", "transposeNoBankConflicts", (0.68, 0.72)),
        ("instructionMix/sobelDouble", "sobelFloat", (0.045, 0.055)),
    ],
)
def test_nvidias_own_pairs(
    before: str, after: str, factor: tuple[float, float], capsys: Capsys
) -> None:
    folder = not_none(samples())
    one = folder / f"{before}.ncu-rep"
    other = one.with_name(f"{after}.ncu-rep")
    found = json_of(capsys, "diff", one, other)
    (item,) = found["kernels"]
    duration = item["figures"]["duration"]
    assert factor[0] < duration["factor"] < factor[1]
    costs = item["source"]["total"]
    assert costs["before"]["samples"] > 0
    assert costs["before"]["instructions"] > 0
    text = text_of(capsys, "diff", one, other)
    assert "Costs by line are not collected" not in text
    if "transpose" in before:
        # The two kernels stand in one file: the padded declaration is the change between them.
        changed = [h for h in item["source"]["hunks"] if not h["comments_only"]]
        assert "TILE_DIM + 1" in json.dumps(changed)
        assert costs["before"]["excess_shared_wavefronts"] == 65011712
        assert costs["after"]["excess_shared_wavefronts"] == 0
    assert read_report(one).gpus == read_report(other).gpus


def test_metrics_that_are_nan_are_counted(plain: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    """A launch that failed under ncu has names of metrics, and no numbers."""
    monkeypatch.setattr(show, "figures", lambda metrics: {})
    monkeypatch.setattr(show, "without_number", lambda action: (837, 901))
    text = text_of(capsys, "show", plain, "--launch", 0)
    assert "837 of 901 metrics are NaN: the launch failed under ncu" in text
    monkeypatch.setattr(show, "without_number", lambda action: (1, 2243))
    assert "NaN" not in text_of(capsys, "show", plain, "--launch", 0)
