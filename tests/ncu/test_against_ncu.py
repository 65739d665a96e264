"""Shares and counts that advice and ``show`` state, against what ncu says of the same launch in the
messages of its own rules: of every recorded capture, launch by launch.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import median

import pytest

from workbench.derive.factors import duration_parts
from workbench.derive.figures import Figure, figures, stall_samples
from workbench.evidence.store import captures_at, evidence_folders
from workbench.judge.advice_rules import Advice, AdvisedKernel, advise, subject
from workbench.judge.bottlenecks import NO_STALL, ROOF, Bottleneck, bottlenecks_of
from workbench.judge.findings import sentence
from workbench.load import load
from workbench.ncu.capture import Capture, load_capture
from workbench.render import markdown
from workbench.render.document import advice, variant
from workbench.study.workspace import find_workspace
from workspaces import RAW, ROOT

pytestmark = pytest.mark.slow

MEGA = 1e6
PIPES = {"Tensor": "tensor_pipe", "FMA": "fma_pipe", "XU": "xu_pipe", "LSU": "lsu_pipe"}
THROUGHPUTS = {
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory_pct",
    "launch__waves_per_multiprocessor": "waves",
}


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch of a recorded capture: what the workbench makes of it, and ncu's rules."""

    name: str
    capture: Capture
    figures: dict[str, Figure]
    kernel: AdvisedKernel
    advice: tuple[Advice, ...]

    def said(self, rule: str, pattern: str, title: str = "") -> Iterator[re.Match[str]]:
        """Where the messages of a rule have some words."""
        rows = self.capture.rules.rows("rule", "title", "message")
        messages = (text for name, head, text in rows if name == rule and head.startswith(title))
        return filter(None, (re.search(pattern, text) for text in messages))

    @cached_property
    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        return bottlenecks_of(self.capture, self.figures)

    @property
    def shown(self) -> str:
        """What ``show`` and ``advise`` print of it in sentences."""
        look = advice.first_look(self.advice, self.kernel.hottest)
        blocks = [*look, *advice.listed(self.advice), variant.bottlenecks(self.bottlenecks)]
        return markdown.blocks(blocks).replace("under 1 %", "0 %")

    def lines(self, *counters: str) -> Counter[str]:
        """File and line to its sum of some counters, or of all stalls; "" for what has no line."""
        sums: Counter[str] = Counter()
        rows = self.capture.lines.rows("file", "line", "counter", "value")
        for file, line, counter, value in rows:
            if counter in counters or (not counters and counter not in NO_STALL):
                sums[f"{str(file).rsplit('/', 1)[-1]}:{line}" if line else ""] += value
        return sums

    def value(self, figure: str) -> float:
        """Raises KeyError for what was not collected."""
        return self.figures[figure].value

    def advised(self, code: str) -> Iterator[Advice]:
        return (one for one in self.advice if one.why.code == f"advice.{code}")


@cache
def launches() -> tuple[Launch, ...]:
    return tuple(_launches())


def _launches() -> Iterator[Launch]:
    yield from _of_capture(RAW.name, load_capture(RAW))
    workspace = find_workspace(ROOT)
    for name in workspace.studies():
        study = workspace.study(name)
        for folder in evidence_folders(workspace.ablations, name):
            wanted: dict[str, list[str]] = {}
            for path in folder.capture_files():
                shape = path.parent.name
                wanted[shape] = list(captures_at(folder, shape))
            for shape, evidence in load(study, folder, wanted, captures=wanted).items():
                for step, known in evidence.variants.items():
                    where = f"{name}/{shape}/{step}"
                    yield from _of_capture(where, known.capture) if known.capture else ()


def _of_capture(where: str, capture: Capture) -> Iterator[Launch]:
    for number, launch in enumerate(capture.launches):
        one = Capture(capture.path, (launch,))
        kernel = subject(one)
        yield Launch(
            f"{where} launch {number}", one, figures(one.metrics), kernel, advise(kernel) or ()
        )


Pair = tuple[str, float, float]  # where, ours, ncu's


def apart(pairs: list[Pair], least: int, within: float) -> list[Pair]:
    """Those that differ by more, of at ``least`` so many."""
    assert len(pairs) >= least
    return [pair for pair in pairs if not abs(pair[1] - pair[2]) <= within]


def test_excess_sectors_are_the_share_that_ncu_says() -> None:
    words = r"total of (\d+) excessive sectors \((\d+)% of the total (\d+)"
    counts: list[Pair] = []
    shares: list[Pair] = []
    stated = 0
    for launch in launches():
        for match in launch.said("UncoalescedGlobalAccess", words):
            excess = launch.kernel.total("excess_global_sectors")
            counts += [(launch.name, excess, float(match[1]))]
            shares += [(launch.name, 100 * excess / (launch.kernel.sectors or 0), float(match[2]))]
            for one in launch.advised("wasted_sectors"):
                told = one.why.values["share"]
                assert isinstance(told, float)
                assert 100 * told == pytest.approx(shares[-1][1])
                stated += 1
    assert stated >= 10
    assert apart(counts, 100, 0.5) == []
    assert apart(shares, 100, 0.5) == []


def test_sectors_are_mostly_written_or_read_where_ncu_says_the_same() -> None:
    seen = []
    for launch in launches():
        for one in launch.advised("wasted_sectors"):
            titles = {
                str(title)
                for rule, title in launch.capture.rules.rows("rule", "title")
                if rule == "MemoryCacheAccessPattern"
            }
            if mostly := one.why.values.get("mostly"):
                kind = {"written": "Global Store", "read": "Global Load"}[str(mostly)]
                assert any(kind in title for title in titles), launch.name
                seen.append(mostly)
    assert {kind: seen.count(kind) > 5 for kind in seen} == {"written": True, "read": True}


def test_few_blocks_and_few_warps_are_those_that_ncu_counts() -> None:
    blocks: list[Pair] = []
    warps: list[Pair] = []
    for launch in launches():
        words = r"only (\d+) blocks?, which is less than the GPU's (\d+) multiprocessors"
        for match in launch.said("LaunchConfiguration", words):
            for one in launch.advised("few_blocks"):
                told = one.why.values
                blocks += [(launch.name, float(str(told["blocks"])), float(match[1]))]
                assert told["sms"] == float(match[2])
        for match in launch.said("IssueSlotUtilization", r"average of ([\d.]+) active warps"):
            for one in launch.advised("few_warps"):
                told_warps = float(str(one.why.values["warps_per_scheduler"]))
                warps += [(launch.name, told_warps, float(match[1]))]
    assert apart(blocks, 20, 0) == []
    assert apart(warps, 100, 0.006) == []


def test_the_imbalance_of_the_sms_is_that_of_ncu() -> None:
    """Its percentages are of the busiest one, whatever the message calls them."""
    pairs = []
    for launch in launches():
        words = r"Maximum instance value is ([\d.]+)% above"
        for match in launch.said("WorkloadImbalance", words, "SMSPs"):
            parts = duration_parts(launch.capture.metrics)
            if parts and parts.balance:
                pairs.append((launch.name, 100 * parts.balance, 100 - float(match[1])))
    assert apart(pairs, 100, 0.01) == []


def test_the_tail_of_the_grid_is_no_more_than_ncu_allows_for() -> None:
    """Its share assumes that all blocks take as long as another, and is of the whole duration."""
    found = []
    for launch in launches():
        words = r"partial wave may account for up to ([\d.]+)% of the total runtime"
        for match in launch.said("LaunchConfiguration", words):
            found += [(one.saved, float(match[1]) / 100) for one in launch.advised("last_wave")]
    assert found
    assert all(ours <= most for ours, most in found)


def test_more_blocks_gain_no_more_than_ncu_estimates() -> None:
    found = []
    for launch in launches():
        for rule, estimate in launch.capture.rules.rows("title", "estimated_speedup_pct"):
            if rule == "Small Grid":
                found += [(100 * one.saved, estimate) for one in launch.advised("few_blocks")]
    assert len(found) > 100
    assert [one for one in found if one[0] > one[1] + 0.01] == []


def test_figures_are_those_of_the_messages_of_ncu() -> None:
    """As far as a message has digits."""
    pairs: dict[str, list[Pair]] = {}

    def put(name: str, launch: Launch, ours: float, theirs: float) -> None:
        pairs.setdefault(name, []).append((launch.name, ours, theirs))

    for launch in launches():
        for m in launch.said("IssueSlotUtilization", r"average of ([\d.]+) warps were eligible"):
            put("eligible_warps", launch, launch.value("eligible_warps"), float(m[1]))
        for m in launch.said("AchievedOccupancy", r"\(([\d.]+)%\).*occupancy \(([\d.]+)%\)"):
            put("theoretical", launch, launch.value("theoretical_occupancy"), float(m[1]))
            put("achieved", launch, launch.value("achieved_occupancy"), float(m[2]))
        words = r"^(\w+) is the highest-utilized pipeline \(([\d.]+)%\)"
        for m in launch.said("HighPipeUtilization", words):
            if m[1] in PIPES:
                put("pipe", launch, launch.value(PIPES[m[1]]), float(m[2]))
        rows = launch.capture.rules.rows("rule", "title", "focus")
        for rule, title, focus in rows:
            if rule == "SOLBottleneck" and title != "High Compute Throughput":
                for metric, value in focus:
                    if metric in THROUGHPUTS:
                        name = THROUGHPUTS[metric]
                        put(name, launch, launch.value(name), value)
        if launch.kernel.used.get("dram") and "dram_pct" in launch.figures:
            ours = 100 * launch.kernel.used["dram"].share
            put("dram", launch, ours, launch.value("dram_pct"))
    least = {"eligible_warps": 100, "pipe": 10, "dram": 300, "memory_pct": 100, "waves": 100}
    for name, known in pairs.items():
        digits = {"eligible_warps": 0.00501}.get(name, 0.0501)
        assert apart(known, least.get(name, 100), digits) == [], name


def test_bank_conflicts_are_at_least_those_of_loads_and_stores() -> None:
    """The rule of ncu leaves out those of asynchronous copies and of wgmma; its counters are of
    other passes over the kernel.
    """
    found = []
    for launch in launches():
        words = r"results in (\d+) bank conflicts"
        if known := [float(m[1]) for m in launch.said("SharedMemoryConflicts", words)]:
            found.append((launch.name, MEGA * launch.value("shared_conflicts"), sum(known)))
    assert len(found) > 50
    assert [one for one in found if one[1] < 0.85 * one[2]] == []
    told = [
        (one.limit.value, 0.01 * launch.figures["cycles"].value)
        for launch in launches()
        for one in launch.advised("bank_conflicts")
    ]
    assert told
    assert all(conflicts > least for conflicts, least in told)


def busiest(launch: Launch) -> float:
    """The share of the cycles in which the busiest SM is active, over all launches of the call."""
    every = launch.capture.metrics.by_launch.values()
    active = sum(known["smsp__cycles_active.max"] for known in every)
    return active / sum(known["gpc__cycles_elapsed.avg"] for known in every)


def test_every_sentence_with_a_share_is_audited() -> None:
    """Each share is one of figures that other tests here compare with what ncu says. Stalls take at
    most their share of the samples: SMs that do nothing have none.
    """
    stated: dict[str, int] = {}
    for launch in launches():
        for one in launch.advice:
            told, code = one.why.values, one.why.code.removeprefix("advice.")
            assert 0 <= one.saved < 1, launch.name
            if "%" not in sentence(one.why):
                continue
            stated[code] = stated.get(code, 0) + 1
            if code == "rest_of_bandwidth":  # few launches are streams with narrow loads
                left = float(sentence(one.why).split(" % of DRAM's bandwidth")[0])
                levels = launch.kernel.used.values()
                assert any(abs(left - 100 * (1 - level.share)) < ROUNDING for level in levels)
                del stated[code]
                continue
            share = told["share"]
            assert isinstance(share, float)
            if code == "busy":
                assert 100 * share == pytest.approx(launch.value(f"{told['pipe']}_pipe"))
                waits = PIPE_WAITS.get(str(told["pipe"]), ("math_pipe_throttle",))
                waited = float(str(told["share_waited"]))
                assert waited <= ROUNDED + sampled(launch, waits), launch.name
            elif code == "waits":
                assert share <= ROUNDED + sampled(launch, one.limit.counters), launch.name
                assert one.limit.value == pytest.approx(100 * sampled(launch, one.limit.reasons))
            elif code == "bank_conflicts":
                passes = MEGA * launch.value("shared_conflicts") / (launch.kernel.sms or 0)
                assert share == pytest.approx(min(1, passes / launch.value("cycles")))
            elif code == "spills":
                local, others = (
                    launch.value(f"{where}_read") + launch.value(f"{where}_write")
                    for where in ("local", "global")
                )
                assert share == pytest.approx(local / (local + others))
                del stated[code]  # few launches spill
            elif code == "head_and_tail":  # the factor is in test_agreement.py
                assert share == pytest.approx(1 - busiest(launch))
            else:
                assert code == "wasted_sectors", sentence(one.why)  # tested above
    assert {code: count > 5 for code, count in stated.items()} == dict.fromkeys(
        ("busy", "waits", "bank_conflicts", "wasted_sectors", "head_and_tail"), True
    )


ROUNDED = 5e-4  # counters of one pass beside samples of another
PIPE_WAITS = {"lsu": ("lg_throttle", "mio_throttle")}


def sampled(launch: Launch, reasons: Iterable[str]) -> float:
    """The share of the stall samples that some reasons have."""
    known = (launch.figures.get(f"stall.{reason}") for reason in reasons)
    return sum(figure.value for figure in known if figure) / 100


WITHIN = 15  # points: samples of one pass beside counters of another


def stall_shares() -> list[tuple[str, float, float, float]]:
    """Launch, the share of the samples, that by the counters of ncu, both in percent, and the
    number of samples.
    """
    found = []
    for launch in launches():
        rows = launch.capture.rules.rows("rule", "title", "message")
        for rule, title, text in rows:
            match = re.search(r"about ([\d.]+)% of the total average", text)
            if rule == "CPIStall" and match and "stall_samples" in launch.figures:
                reason = str(title).removesuffix(" Stalls").lower().replace(" ", "_")
                ours = launch.figures.get(f"stall.{reason}")
                samples = launch.value("stall_samples")
                share = ours.value if ours else 0.0
                found.append((launch.name, share, float(match[1]), samples))
    return found


def test_shares_of_stall_samples_are_near_those_that_ncu_counts() -> None:
    found = [(name, a, b) for name, a, b, samples in stall_shares() if samples >= 1000]
    assert apart(found, 150, WITHIN) == []
    differences = sorted(abs(ours - theirs) for _, ours, theirs in found)
    page = " ".join((ROOT / "docs" / "captures.md").read_text("utf-8").split())
    most = f"by {differences[-1]:.0f} at most, in all recorded launches with 1,000 samples or more"
    assert f"differ by {median(differences):.1f} points in the median and {most}" in page


def test_the_samples_of_all_lines_are_those_of_the_launch() -> None:
    shares = 0
    for launch in launches():
        (values,) = launch.capture.metrics.by_launch.values()
        for reason, count in stall_samples(values).items():
            assert launch.kernel.total(reason) == count, launch.name
            shares += 1
    assert shares > 1000


def test_values_of_bottlenecks_are_those_of_the_figures() -> None:
    """Of ncu's rule for a high compute throughput the value is that of the memory."""
    seen = 0
    for launch in launches():
        by_metric = {one.metric: one.value for one in launch.figures.values()}
        for one in launch.bottlenecks:
            if one.metric in by_metric and math.isfinite(one.value):
                value = by_metric[one.metric]
                assert one.value in (pytest.approx(value), pytest.approx(value * MEGA)), launch.name
                seen += 1
    assert seen > 300


ROUNDING = 0.51  # of whole percent
PRINTED = re.compile(
    r"(?:`(\S+:\d+)`(?:, called at `\S+`)?, )?([\d.]+) %(?= (\w+(?: \w+)*)| ?[;.,)])"
)
STATED = re.compile("of (the (time|cycles|sectors|duration|busiest|bytes)|samples|peak|DRAM)|$")


def test_every_share_that_show_prints_is_audited() -> None:
    """Each is recomputed of what ncu has of the launch, or is ncu's own. Those that are ``STATED``
    are values of advice, and tested above.
    """
    seen: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []
    for launch in launches():
        estimates = launch.capture.rules["estimated_speedup_pct"]
        known = {f"{estimate:.0f}" for estimate in estimates if math.isfinite(estimate)}
        for m in PRINTED.finditer(launch.shown):
            place, share, what = m[1], float(m[2]), m[3] or ""
            stated = None if place else STATED.match(what)
            kind = "of a line" if place else stated[0] if stated else what
            seen[kind] += 1
            if place:
                reason = what.removeprefix("of its ").removesuffix(" samples")
                every = what in ("of the stall time", "of its stall samples")
                sums = launch.lines() if every else launch.lines(reason.replace(" ", "_"))
                is_true = abs(share - 100 * sums[place] / sums.total()) < ROUNDING
            elif kind in ("of the runtime", "of the part that the rule covers"):
                is_true = m[2] in known
            elif kind == "of its peak":
                near = [one.value for one in launch.bottlenecks if one.scope == ROOF]
                is_true = any(abs(share - value) < ROUNDING for value in near)
            elif kind == "of the theoretical bandwidth":
                near = [100 * level.share for level in launch.kernel.used.values()]
                is_true = any(abs(share - value) < ROUNDING for value in near)
            else:
                is_true = stated is not None
            wrong += [] if is_true else [(launch.name, m[0])]
    assert wrong == []
    del seen["of the bytes"]  # few launches spill
    assert min(seen.values()) > 5, seen
