"""The sentence of every finding that ``judge`` may return.

In a sentence ``{name}`` is a value, "not collected" where there is none. What stands between two
``|`` is left out where one of its values is not there. Behind the colon stands a format of Python,
or one of ours: ``.1%`` a share in percent, ``+.1~`` the change in percent that a ratio is, ``.2k``
thousands, ``#kernel`` a number of kernels, ``[; ]`` what stands between several.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.derive.figures import figure_label, stall_label
from workbench.judge.advice.subject import PIPES
from workbench.judge.findings import Finding
from workbench.study.front_ends import front_end
from workbench.words import ABSENT

AT = "| at {shape}|"
ALONE = "alone, at the power limit, {ratio:.3f}x| [{low:.3f}, {high:.3f}]| of its parent"
INTERFERENCE = (
    "{reference} takes {alone_us:.4g} µs alone and {together_us:.4g} µs beside the steps, "
    "{ratio:+.1~} %| [{low:+.1~}, {high:+.1~}]| in {unit}"
    f"|, {{ratio_in_time:+.1~}} % in time, at another clock|{AT}"
)
ERROR = "{times_reference:.3g}x the error of {reference} at {shape}|, {kind}|| in '{output}'|"
VARIES = "|; results differ from run to run at {varies}|"
LIMITED = "{limits:[ and ]}| ({reasons})|"
ROUNDS = (
    "in {share:.0%} % of the rounds: SM clock "
    "|{sm_clock_mhz:.2k} GHz of {most_mhz:.2k} ({variant})||{clock}|"
)
A_CALL = "a call takes {microseconds:.2f} µs, and its launches {ncu_us:.2f} µs under ncu"
CLOCKS = "{microseconds:.3g} µs by stamps, {by_events:.3g} µs by events"

ADVICE = {
    "waits": "{reasons} stalls take {share:.0%} % of the duration"
    "|, for {times_bytes:.3g} times the bytes that the work needs|"
    "|, those of the barriers around a copy included{with_barriers}|",
    "few_warps": "{warps_per_scheduler:.1f} warps a scheduler; twice as many could hide half of "
    "the stalls",
    "bytes_again": "{times_bytes:.3g} times the bytes that the work needs",
    "half_the_bytes": "at most half of the bytes",
    "stays_on_gpu": "if its input or output stayed on the GPU: at most half of the bytes",
    "wasted_sectors": "{share:.0%} % of the sectors are more than its data needs"
    "|, most of them {mostly}|",
    "bank_conflicts": "shared memory serves conflicts for {share:.0%} % of the cycles",
    "no_tensor_cores": "{flop_per_byte:.0f} FLOP a byte, none on the tensor cores"
    "|, which take TF32, where the error allows it{tf32}|"
    "|; if these are products of matrices{assumed}|",
    "mma_sync": "mma.sync, its fragment loads and their waits, where wgmma reads shared memory "
    "itself",
    "busy": "the {pipe} is busy for {share:.0%} % of the time, and waits for it take "
    "{share_waited:.0%} %",
    "turns": "{pipe} and {other_pipe} seem to take turns",
    "half_the_instructions": "if every second instruction went, and what waits for it",
    "head_and_tail": "no SM works in its head and tail",
    "spills": "{share:.0%} % of the bytes that threads load and store are spilled registers",
    "atomics": "{megabytes:.0f} MB of atomics reach L2: sum in registers or shared memory first",
    "few_blocks": "{blocks:.0f} blocks for {sms:.0f} SMs",
    "last_wave": "most SMs are idle while the last wave of blocks runs",
    "imbalance": "an average SM is done before the busiest one",
}

BUG_FIX = (
    "over the parent|, which fails its check at {fails_at}|"
    "|; a bug fix, but no recorded check shows the bug{unfounded}|"
)
SPEED = "{ratio:.3f}x [{low:.3f}, {high:.3f}]| at {level} %| of its speed before"

SENTENCES: Mapping[str, str] = {
    **{
        f"advice.{code}": f"{text}|; {{next_limit}} would be the next limit|"
        for code, text in ADVICE.items()
    },
    "not_collected": ABSENT,
    "variant": "{variant}| over {over}|| at {shape}|| at {sm_clock_ghz:.3f} GHz|",
    # why there are no figures
    "stopped": "{text}",
    "stale": "its sources changed since ({evidence}); measure it again",
    "missing.damaged": "its capture is damaged",
    "missing.unmeasured": "not measured",
    "missing.package": "not collected: it needs {package}",
    "untimed.wrong_outputs": "the outputs of timed calls of {variant} were wrong: it has no time",
    "untimed.adds_nothing": "a call of {variant} adds no time to its neighbours",
    "lines.none": "no source lines: {why}",
    "lines.generated": "no source lines of its own files: those shown are of code generated {by}",
    # gates
    "check.failed": f"{{status}}{AT}: {{text}}",
    "correct.undeclared": "no longer supports {shapes}, which the ladder does not declare (drops)",
    "unseen.correct": "correct at shapes drawn with seed {seed}",
    "unseen.speed": "correct at shapes drawn with seed {seed}; {ratio:.3f}x the parent's speed at "
    "{shape}",
    "correct.due": "not collected at {shapes}",
    "correct.everywhere": "max error {max_error:.2g} over {shapes_checked} shapes"
    "|, not checked at {shapes_not_checked} others|",
    "compiler.error": "{text}",
    "compiler.warning": "{text}",
    "compiler.spills": "{spill_bytes} bytes of register spills",
    "compiler.nothing_compiled": "nothing of it was compiled here",
    "compiler.allowed": "allowed here: {findings:[; ]}",
    "compiler.clean": "no warning, no spill|, by {by:[, ]}|",
    "compiler.of_several": "{here}; of the others: {others}",
    "compiler.not_captured": "not collected: compiled {by}, and not captured",
    "compiler.captured": "|{least_registers} to ||{registers} registers, |"
    "|{shared_bytes} bytes of shared memory, |{spills} in the capture; compiled {by}",
    "made_by.torch": "by torch's makers",
    "made_by.front_ends": "by {front_ends:[ and ]}",
    "made_by.unknown": "elsewhere",
    "faster.one_session": "one session: its interval is not collected",
    "faster.parent_untimed": "{parent}, which fails its check at {fails_at}, has no time",
    "faster.reached": f"lower end| at {{level}} %| {{low:.3f}}x ≥ {{least:.4g}}x {BUG_FIX}",
    "faster.below": f"lower end| at {{level}} %| {{low:.3f}}x < {{least:.4g}}x {BUG_FIX}",
    "faster.not_alone": f"{ALONE}: not faster",
    "faster.alone_open": f"{ALONE}: too uncertain to call it faster",
    "accurate.not_collected": f"no error of the reference to compare with{VARIES}",
    "accurate.within": f"{ERROR} ≤ {{most:g}}x|; not collected at {{not_collected}}|{VARIES}",
    "accurate.beyond": f"{ERROR} > {{most:g}}x|; not collected at {{not_collected}}|{VARIES}",
    "interference.not_timed": "not collected: {reference} was not timed beside it",
    "interference.not_alone": "{reference} alone: not collected",
    "interference.slowed": f"something in these sessions slows the reference down: {INTERFERENCE}",
    "interference.sped_up": f"something in these sessions speeds the reference up: {INTERFERENCE}",
    "interference.uncertain": f"too uncertain to say: {INTERFERENCE}",
    "interference.undisturbed": INTERFERENCE,
    "compared": "{variant} has a wrong time: {why}",
    "kernel": "|{times} times |{kernel} ({grid:[ x ]} blocks of {block:[ x ]} threads)",
    "kernels.empty_graph": "the timed graph is empty: it launched nothing",
    "kernels.unchecked": "no CUDA graph can capture a call|, which waits for the GPU at {line}|: "
    "its time, in a stream, is unchecked",
    "kernels.differ": "|timed and not captured: {not_captured}||{both}|"
    "|captured and not timed: {not_timed}|",
    "kernels.as_captured": "{kernels:#kernel} timed as captured|, and {memcpys:#memcpy}|"
    "|, and {memsets:#memset}||, and {others:#other}||, one of {ways} ways that instances chose|",
    "outputs.wrong": "wrong while it was timed: {text}",
    "outputs.right": "{outputs:#output} of timed calls were right",
    "clocks.agree": CLOCKS,
    "clocks.disagree": f"the measurement failed, not the kernel: {CLOCKS}",
    "duration.below": f"{A_CALL}: at least {{least_us:.2f}} µs it must be",
    "duration.accounted": A_CALL,
    "work.done": "{findings}",
    "work.operations": "{ratio:.2f} times the operations that it needs",
    "work.operations_missing": "{done:.3g} FLOP of {needed:.3g} that one call needs: operations "
    "are missing",
    "work.bytes": "{ratio:.2f} times the bytes through L2 that it needs",
    "work.bytes_missing": "{done:.3g} B of {needed:.3g} that one call needs: bytes through L2 are "
    "missing",
    "work.bytes_unseen": "{ratio:.2f} times the bytes through L2 that it needs; copies or memsets "
    "may do the others, and ncu does not see them",
    "work.reads": "{ratio:.2f} times its inputs from DRAM",
    "work.reads_missing": "{done:.3g} B from DRAM, of {inputs:.3g} of inputs of which L2 can hold "
    "all but {needed:.3g}: reads are missing",
    "work.floor": "the GPU's floor is {least_us:.3g} µs",
    "work.too_fast": "{microseconds:.3g} µs, where the GPU needs {least_us:.3g} µs for its {unit} "
    "alone",
    # why a run may not begin
    "budget.spent": "all of the budget is spent: {spent_s:.4g} of {limit_s:g} GPU seconds",
    "budget.exceeded": "this run would pass the budget: {spent_s:.4g} of {limit_s:g} GPU seconds "
    "are spent, and such a run takes about {expected_s:.4g}",
    # what a commit did
    "commit.gone": "is not there any more",
    "commit.study_gone": "its study is not there any more",
    "commit.study_broken": "{text}",
    "commit.study_unread": "could not be read before: {text}",
    "commit.new": "was not there before|; it {text}|",
    "commit.broken": "{text}",
    "commit.failed_before": "failed before, too: {text}",
    "commit.control_moved": "{variant}, which is unchanged, moved as well ({cause})",
    "commit.control": "the A/A control of {variant}, the same kernel, is {ratio:.3f}x of it",
    "commit.one_session": "one session has no interval",
    "commit.time": SPEED,
    "commit.time_within": f"{SPEED}: within {{margin:g%}} %",
    "commit.time_too_wide": f"{SPEED}: too wide to say",
    "commit.no_counter_moved": "no counter moved: only a time can tell",
    "commit.counter": "{what} {change}",
    "commit.counters": "by its counters: {counters}",
    "commit.counters_both_ways": "counters moved both ways: {counters}",
    "commit.same_code": "its machine code is the same: nothing needs measuring",
    "commit.comments_only": "only comments and blanks are others: nothing needs measuring",
    "commit.same_sources": "its sources are the same: nothing needs measuring",
    "commit.same_but_study": "{why}; but study.py checks and times it in another way",
    "commit.lacks": "it {text}",
    "commit.code_unknown": "its machine code is not known here",
    "commit.other_host_code": "the same kernels are launched by other code",
    "commit.other_code": "its machine code is another",
    "commit.unmeasured": "{why}|; counters of tables without their report do not count"
    "{without_report}|: it needs measuring| ({differences})|",
    "commit.fact": "{what} {before:g} → {after:g}| of {kernel}|",
    "commit.rules": "{rules:[; ]}|; and {more} more|",
    "rule": "{field}: {before} → {after}",
    "rule.code": "code of study.py (inputs, reference, work)",
    "differs.study_code": "also differs: the study's code",
    "differs.ncu": "also differs: ncu, or its flags",
    "differs.field": "also differs: {field}, {before} and {after}",
    "differs.clock": "also differs: SM clock, {low_ghz:.3f} and {high_ghz:.3f} GHz",
    # what makes times and captures not quite comparable
    "timing.wrong_outputs": f"outputs of timed calls were wrong{AT}, so that there is no time: "
    "{variants}",
    "timing.clocks": f"the measurement failed{AT}, and not the kernel: stamps and events disagree. "
    "There is no time; measure again: {variants}",
    "timing.control": f"the A/A control of {{variant}}, {{regime}}{AT}, is {{ratio:.3f}} "
    "[{low:.3f}, {high:.3f}] and not 1: differences of this size mean nothing here",
    "timing.throttled": f"the GPU was {LIMITED} at {{shapes}}, |at most {{several}}|{ROUNDS}",
    "timing.throttling": f"{LIMITED} {ROUNDS}",
    "timing.other_file": f"times or ratios of another run ({{file}}){AT}: {{variants}}",
    "captures.above_roof": f"{{variant}} stands above its roof{AT}: an error in the data",
    "captures.damaged": "{text}: no capture of {variants}; profile again, or restore the file",
    "captures.clocks": f"captures ran at different SM clocks{AT}: {{variants}}",
    "captures.differ": f"captures differ in {{field}}{AT}: {{values}}",
    "evidence.damaged": "{text}",
    "ceilings.above_theory": "the measured {ceiling} ceiling is {share:.0%} % of the theoretical "
    "one: an error in the data; run `workbench calibrate` again",
    "choice.slower": f"{{variant}} does not choose the fastest{AT}: it is {{ratio:.3f}}x "
    "[{low:.3f}, {high:.3f}] of {chosen}",
    "reports.several_gpus": "{report} holds launches of several GPUs: {gpus}",
    "reports.differ": "the reports differ in {field}: {before} and {after}",
    "reports.clocks": "SM clocks are up to {ratio:.1~} % apart ({kernel}: {before_ghz:.3f} and "
    "{after_ghz:.3f} GHz): compare cycles too",
    "reports.other_names": "kernels of different names are compared, since they are {matched_by}: "
    "{before} and {after}",
}


def sentence(found: Finding | None) -> str:
    """Without an end; "" for None."""
    if found is None:
        return ""
    values = {**found.values, **_more(found)}
    parts = SENTENCES[found.code].split("|")
    return "".join(
        WORDS.vformat(part, (), values)
        for place, part in enumerate(parts)
        if place % 2 == 0 or all(name in values for _, name, _, _ in WORDS.parse(part) if name)
    )


def sentences(found: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(map(sentence, found))


def _more(found: Finding) -> dict[str, str]:
    """What a sentence says in other words than the finding has it."""
    known: Mapping[str, Any] = found.values
    named = {k: resource(known[k]) for k in ("pipe", "other_pipe", "next_limit") if k in known}
    match found.code:
        case "timing.other_file":
            rows = known.get("variants", ())
            return {"variants": ", ".join(dict.fromkeys(row.values["variant"] for row in rows))}
        case "reports.other_names":
            return {"matched_by": MATCHED.get(known.get("matched_by", ""), ABSENT)}
        case "lines.none":
            return {"why": why_no_lines(known.get("front_ends", ()))}
        case "compiler.captured":
            spilled = known.get("spill_instructions")
            some = f"{spilled} instructions that spill" if spilled else f"spills {ABSENT}"
            return {"spills": "no spills" if spilled == 0 else some}
        case "kernels.differ":
            return {"both": "; "} if {"not_captured", "not_timed"} <= known.keys() else {}
        case "advice.waits":
            reasons = known["reasons"]
            assert isinstance(reasons, tuple)
            labels = [stall_label(str(each)).removesuffix(" stall") for each in reasons]
            return named | {"reasons": " and ".join(labels)}
        case "commit.counter" | "commit.fact":
            return {
                "what": difference_label(known["what"]),
                "change": _change(known["before"], known["after"]),
            }
    return named


DIFFERENCES = {
    "time": "time, chained (µs)",
    "registers": "registers",
    "shared_bytes": "shared memory, bytes",
    "stack_bytes": "stack, bytes",
    "spill_bytes": "spills, bytes",
    "machine_code": "machine code",
    "host_code": "host code",
    "global_load_sectors": "Sectors of global loads",
}


def difference_label(what: str) -> str:
    """Of what is another at two commits."""
    return DIFFERENCES.get(what) or figure_label(what)[0]


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else f"{before:.4g} → {after:.4g}"


LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def resource(name: str) -> str:
    """A level of memory or a pipe."""
    if name in PIPES:
        return f"{name.upper() if name != 'tensor' else name} pipe"
    return LEVELS.get(name, name.replace("_", " "))


MATCHED = {
    "range": "the workbench's range, and name",
    "signature": "name and launch shape",
    "name_and_shape": "name without template arguments, and launch shape",
    "name": "name",
    "rest": "the only kernel left on either side",
    "asked_for": "the launches that were asked for",
}
NO_COSTS = {
    "missing": "it has no capture",
    "no_capture": "no capture",
    "no_lines": "its capture has no source lines",
    "no_text": "the report has no text of its sources",
}


def why_no_costs(why: str) -> str:
    """Why a side of a diff has no costs by line."""
    return NO_COSTS.get(why) or f"its capture is {why}"


def why_no_lines(front_ends: Sequence[str]) -> str:
    """Why a capture has no source lines, with what gives them where that is known."""
    first = next(filter(None, map(front_end, front_ends)), None)
    if first is None:
        return "its kernels were built without line information"
    return f"{first.no_lines}: {first.lines} gives it" if first.lines else first.no_lines


class _Words(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), ABSENT)

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, tuple):
            between = spec[1:-1] if spec.startswith("[") else ", "
            return between.join(self.format_field(each, "") for each in value)
        if isinstance(value, Finding):
            return sentence(value)
        if isinstance(value, str):
            return value
        if value is True:  # it is said in the sentence
            return ""
        if spec.endswith("%"):
            return "under 1" if 0 < value < 0.01 else format(100 * value, _fixed(spec))
        if spec.endswith("~"):
            return format(100 * (value - 1), _fixed(spec))
        if spec.endswith("k"):
            return format(value / 1e3, _fixed(spec))
        if spec.startswith("#"):
            return f"{value} {spec[1:]}{'' if value == 1 else 's'}"
        return format(value, spec)


def _fixed(spec: str) -> str:
    return f"{spec[:-1]}f" if "." in spec else "g"


WORDS = _Words()
