"""The red team: the families of cheats in ``redteam/``, and what each must end with."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.folders import unpacked

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
    return Cheat(variant, family, "", verdicts=NOT_KEPT)


def late(family: str, variant: str) -> Cheat:
    return replace(not_kept(family, variant), late=True)


# What harms itself, or is found by another clock than its own: that decides what it ends with.
HARMFUL = {
    "patched": """
        patched_clock patched_event patched_check patched_code patched_modules
        patched_statistics patched_launch patched_replay patched_later
    """,
    "slowed reference": """
        slowed_reference slowed_parent slowed_by_a_thread slows_a_graph slows_an_executable
        slower_for_others
    """,
    "sleeping thread": "sleeps",
    "edited samples": "edits_samples",
    "changed number of calls": "changes_calls reports_more_calls",
    "harness changed": "changed_number stamps_inside zeroes_draws patched_helper more_rounds",
    "left-out work": "rights_the_sum",
    "lower precision": "half_in_a_graph",
    "referee": """
        reveals_expected reports_early begins_early says_fewer_calls sets_the_flag
        skips_the_neighbours writes_no_inputs all_in_one_stream_each fewer_rows_then_right
        garbles_layouts faster_for_the_referee
    """,
}
# Written when the bounds of the checks were fixed, on 2026-11-29.
LATE = {
    "telling checks apart": "skips_maximum_in_graphs",
    "left-out work": "sums_to_nan claims_a_tenth",
    "referee": """
        leaves_out_stamps widens_neighbours writes_its_inputs mends_the_digest leaves_gaps
        stops_the_referee starves_the_referee busy_for_others leaves_a_kernel_running
        writes_into_the_referee writes_what_is_lent kills_the_auditor kills_the_referee
        kills_from_behind never_arrives opens_its_gate sends_megabytes sends_half_a_message
        claims_gigabytes tells_another_type
    """,
}
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
    cheat("rewritten outputs", "rewrites_outputs", f"{WRONG}|not captured"),
    cheat("replaced source", "replaces_a_source", r"replaces|opens baseline\.", *FOUND_FIRST),
    cheat(
        "false bug fix",
        FALSE_FIX,
        "no recorded check shows the bug",
        "faster",
        verdict="slower no_gain",
    ),
    cheat("unseen source", "hidden_source", "opens registers.cu, which its fing", *FOUND_FIRST),
    *(not_kept(family, name) for family in HARMFUL for name in HARMFUL[family].split()),
    *(late(family, name) for family in LATE for name in LATE[family].split()),
)
VARIANTS = (*HONEST, *(each.variant for each in CHEATS))


def workspace_of(root: Path, variants: Sequence[str] = VARIANTS) -> Path:
    """A copy of the workspace, to be changed, with every variant measured against the baseline."""
    shutil.copytree(WORKSPACE, root, ignore=shutil.ignore_patterns("__pycache__"))
    text = "schema_version = 1\n"
    for name in dict.fromkeys(("baseline", *variants)):
        parent = "" if name == "baseline" else 'parent = "baseline"\n'
        parent += 'corrects = "it reads too early"\n' if name == FALSE_FIX else ""
        text += f'\n[[step]]\nvariant = "{name}"\n{parent}key_change = "{docstring(name)}"\n'
    text += f'\n[[reference]]\nvariant = "{REFERENCE}"\ntitle = "torch.softmax"\nprimary = true\n'
    (folder := root / "ablations" / "softmax").mkdir(parents=True, exist_ok=True)
    (folder / "ablation.toml").write_text(text)
    return root


def docstring(variant: str) -> str:
    return (KERNELS / f"{variant}.py").read_text().split('"""')[1].replace('"', "'")
