"""The red team: the families of cheats in ``redteam/``, and what each must end with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from folders import unpacked

WORKSPACE = unpacked(Path(__file__).parent / "redteam" / "workspace.txtar")
KERNELS = WORKSPACE / "kernels" / "softmax"
HONEST = ("baseline", "registers", "early", "two_kernels", "library")
REFERENCE = "torch_softmax"
FALSE_FIX = "false_bug_fix"
FOUND_FIRST = ("compiler", "correct")  # where a variant fails before it is judged by numbers
GATES = (*FOUND_FIRST, "timed outputs", "kernels", "duration", "work")

WRONG = r"max error|signed sum|NaN|shape \("
NOT_KEPT = ("wrong", "inaccurate", "unseen_shape", "inconclusive", "slower", "no_gain")
NOT_IN_THE_GRAPH = r"launched nothing|nodes|cannot be captured"


@dataclass(frozen=True)
class Cheat:
    """A variant of the workspace, with one of ``verdicts``. ``told`` is found in the reason of one
    of ``gates``, failed; "" where any reason will do. ``late``: it was written when the bounds of
    the checks were fixed, on 2026-11-29.
    """

    variant: str
    family: str
    told: str
    gates: tuple[str, ...] = GATES
    verdicts: tuple[str, ...] = ("wrong",)
    late: bool = False

    def finds(self, text: str) -> bool:
        return re.search(self.told, text, re.IGNORECASE) is not None


def cheat(family: str, variant: str, told: str, *gates: str, verdict: str = "wrong") -> Cheat:
    return Cheat(variant, family, told, gates or GATES, tuple(verdict.split()))


def without_effect(family: str, variant: str) -> Cheat:
    return cheat(family, variant, "over the parent", "faster", verdict="slower no_gain")


def not_kept(family: str, variant: str) -> Cheat:
    """It harms itself, or another clock than its own finds it: that decides what it ends with."""
    return Cheat(variant, family, "", verdicts=NOT_KEPT)


def late(family: str, variant: str) -> Cheat:
    return replace(not_kept(family, variant), late=True)


CHEATS = (
    cheat("cached by object", "cached_by_object", f"{NOT_IN_THE_GRAPH}|{WRONG}"),
    cheat("cached by address", "cached_by_address", WRONG),
    cheat("cached by shape", "cached_by_shape", WRONG, "correct"),
    # Both are right in every call: they gain nothing where the inputs change from call to call.
    # The first one reads the GPU from the host, so that its time is of a stream.
    without_effect("cached by contents", "cached_by_contents"),
    without_effect("cached by contents", "cached_on_the_gpu"),
    cheat("work at another time", "at_import", WRONG, "correct"),
    cheat("work at another time", "at_first_call", f"{NOT_IN_THE_GRAPH}|{WRONG}"),
    cheat("skipped calls", "knows_the_harness", f"at least .* it must be|{WRONG}"),
    cheat("built up over calls", "built_up", WRONG),
    cheat("skipped calls", "skips_calls", f"{NOT_IN_THE_GRAPH}|{WRONG}|not captured"),
    cheat("skipped calls", "last_call_only", f"{NOT_IN_THE_GRAPH}|{WRONG}"),
    cheat("side stream", "side_stream", f"{WRONG}|{NOT_IN_THE_GRAPH}"),
    cheat("side stream", "late_stream", f"{WRONG}|cannot be captured"),
    cheat("empty graph", "empty_graph", "launched nothing"),
    cheat("lazy result", "lazy", "returned Later, not a tensor", "correct"),
    cheat("copied out of memory", "finds_expected", f"{WRONG}|{NOT_IN_THE_GRAPH}"),
    cheat("copied out of memory", "walks_the_stack", f"{WRONG}|{NOT_IN_THE_GRAPH}"),
    cheat("copied out of memory", "copies_an_output", WRONG),
    cheat("copied out of memory", "uninitialised", WRONG, "correct"),
    not_kept("patched", "patched_clock"),
    not_kept("patched", "patched_event"),
    not_kept("patched", "patched_check"),
    not_kept("patched", "patched_code"),
    not_kept("patched", "patched_modules"),
    not_kept("patched", "patched_statistics"),
    not_kept("patched", "patched_launch"),
    not_kept("patched", "patched_replay"),
    not_kept("patched", "patched_later"),
    not_kept("slowed reference", "slowed_reference"),
    not_kept("slowed reference", "slowed_parent"),
    not_kept("slowed reference", "slowed_by_a_thread"),
    cheat("telling checks apart", "tells_capturing", WRONG),
    cheat("telling checks apart", "tells_checking", WRONG),
    cheat("telling checks apart", "tells_profiling", "timed and not captured", "kernels"),
    cheat("special values", "skips_maximum", WRONG, "correct"),
    cheat("special shapes", "one_shape", WRONG, "correct"),
    cheat("lower precision", "half_precision", WRONG, "correct"),
    cheat("inputs changed", "changes_input", "changes its input 'x'", "correct"),
    cheat("output aliases an input", "in_place", "shares memory with its input 'x'", "correct"),
    cheat("persistent L2", "sets_l2_aside", "persisting L2|not permitted", *FOUND_FIRST),
    cheat("early start", "early_without_waiting", "starts early and never waits", *FOUND_FIRST),
    cheat("left-out work", "leaves_out_rows", f"{WRONG}|not captured"),
    cheat("traffic without work", "reads_for_nothing", f"{WRONG}|not captured"),
    cheat("all calls at once", "all_calls_at_once", f"{WRONG}|{NOT_IN_THE_GRAPH}"),
    # What these set holds while their own code runs: it slows and hears nobody else.
    without_effect("settings", "slowed_by_settings"),
    without_effect("hooks", "hooks_calls"),
    without_effect("hooks", "hooks_monitoring"),
    without_effect("signals", "hears_signals"),
    not_kept("sleeping thread", "sleeps"),
    not_kept("edited samples", "edits_samples"),
    not_kept("changed number of calls", "changes_calls"),
    cheat("rewritten outputs", "rewrites_outputs", f"{WRONG}|not captured"),
    not_kept("slowed reference", "slows_a_graph"),
    cheat("replaced source", "replaces_a_source", r"replaces|opens baseline\.", *FOUND_FIRST),
    cheat(
        "false bug fix",
        FALSE_FIX,
        "no recorded check shows the bug",
        "faster",
        verdict="slower no_gain",
    ),
    cheat("unseen source", "hidden_source", "opens registers.cu, which its fing", *FOUND_FIRST),
    not_kept("harness changed", "changed_number"),
    not_kept("harness changed", "stamps_inside"),
    not_kept("harness changed", "zeroes_draws"),
    not_kept("harness changed", "patched_helper"),
    not_kept("harness changed", "more_rounds"),
    not_kept("slowed reference", "slows_an_executable"),
    not_kept("changed number of calls", "reports_more_calls"),
    not_kept("left-out work", "rights_the_sum"),
    not_kept("lower precision", "half_in_a_graph"),
    not_kept("referee", "reveals_expected"),
    not_kept("referee", "reports_early"),
    not_kept("referee", "begins_early"),
    not_kept("referee", "says_fewer_calls"),
    not_kept("referee", "sets_the_flag"),
    not_kept("referee", "skips_the_neighbours"),
    not_kept("referee", "writes_no_inputs"),
    not_kept("referee", "all_in_one_stream_each"),
    not_kept("referee", "fewer_rows_then_right"),
    not_kept("referee", "garbles_layouts"),
    not_kept("referee", "faster_for_the_referee"),
    not_kept("slowed reference", "slower_for_others"),
    late("telling checks apart", "skips_maximum_in_graphs"),
    late("left-out work", "sums_to_nan"),
    late("left-out work", "claims_a_tenth"),
    late("referee", "leaves_out_stamps"),
    late("referee", "widens_neighbours"),
    late("referee", "writes_its_inputs"),
    late("referee", "mends_the_digest"),
    late("referee", "leaves_gaps"),
    late("referee", "stops_the_referee"),
    late("referee", "starves_the_referee"),
    late("referee", "busy_for_others"),
    late("referee", "leaves_a_kernel_running"),
    late("referee", "writes_into_the_referee"),
    late("referee", "writes_what_is_lent"),
    late("referee", "kills_the_auditor"),
    late("referee", "kills_the_referee"),
    late("referee", "kills_from_behind"),
    late("referee", "never_arrives"),
    late("referee", "opens_its_gate"),
    late("referee", "sends_megabytes"),
    late("referee", "sends_half_a_message"),
    late("referee", "claims_gigabytes"),
    late("referee", "tells_another_type"),
)


VARIANTS = (*HONEST, *(each.variant for each in CHEATS))


def ladder(variants: Sequence[str] = VARIANTS) -> str:
    """``ablation.toml``: every variant is measured against the baseline."""
    text = "schema_version = 1\n"
    for name in dict.fromkeys(("baseline", *variants)):
        parent = "" if name == "baseline" else 'parent = "baseline"\n'
        parent += 'corrects = "it reads too early"\n' if name == FALSE_FIX else ""
        text += f'\n[[step]]\nvariant = "{name}"\n{parent}key_change = "{docstring(name)}"\n'
    return (
        text
        + f'\n[[reference]]\nvariant = "{REFERENCE}"\ntitle = "torch.softmax"\nprimary = true\n'
    )


def docstring(variant: str) -> str:
    return (KERNELS / f"{variant}.py").read_text().split('"""')[1].replace('"', "'")
