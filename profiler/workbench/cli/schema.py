"""``schema``: the contract of ``--brief`` and of the tools of MCP, as a JSON Schema for each verb.
That of ``--json`` is kept as ``tools.reference`` made it of the records.

A key means the same in all answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from workbench.cli.build import Builds
from workbench.cli.init import AGENTS_FOLDER, NewWorkspace, starters
from workbench.cli.new import NewStep
from workbench.cli.options import SchemaOptions
from workbench.cli.streams import show
from workbench.errors import unknown
from workbench.render.as_json import VERSION, Data, shown_names
from workbench.words import Change, CheckResult, Status, TryVerdict, Verdict


def run(options: SchemaOptions) -> None:
    if options.of_json:
        show(options, of_json(options.verb))
        return
    if options.verb not in VERBS:
        raise unknown("verb with --brief", options.verb, VERBS)
    show(options, schema(options.verb))


Ratio = tuple[float | None, float | None, float | None] | None
Anything = dict[str, msgspec.Raw]  # of any JSON
Keys = Mapping[str, tuple[Any, str]]  # type and meaning
Objects = list[Anything]
Texts = list[str]
Numbers = dict[str, float | None]


class NextKind(TypedDict, total=False):
    kind: Change
    how: str
    why: str
    at: str | None
    called_at: str
    tried_here: Objects


class Failure(TypedDict):
    code: str
    exit_code: int
    message: str
    hint: NotRequired[str]


def _words(*kinds: type[StrEnum]) -> Any:
    return Literal[tuple(dict.fromkeys(word.value for kind in kinds for word in kind))]


EVERY: Keys = {
    "schema_version": (Literal[VERSION], "of all answers"),
    "exit_code": (int, "of the verb, from MCP"),
    "left_out": (int, "list entries that were cut to fit"),
    "error": (Failure, "what failed"),
    "next_command": (str, "the command that goes on from here"),
    "stop": (bool, "nothing is left to try"),
    "why_stop": (str, "why"),
}
JUDGED: Keys = {
    "study": (str, "study"),
    "shape": (str, "the shape of every time, ratio and advice in the answer"),
    "gpu": (str, "GPU of the evidence"),
    "limit": (str, "what limits the kernel, as stage.resource"),
    "at": (str | None, "the line that shows the limit"),
    "called_at": (str, "the line of the kernel that calls it, if it is a helper of another file"),
    "evidence": (str | Texts, "evidence id for show; of check where results come from"),
}
STEP: Keys = {
    "variant": (str, "variant"),
    "parent": (str, "the variant that this one changes"),
    "verdict": (_words(Verdict, CheckResult, TryVerdict), "see the skill"),
    "microseconds": (float | None, "time per call inside a CUDA graph"),
    "speedup_over_parent": (Ratio, "ratio of times, with its 95 % interval; above 1 is faster"),
    "speedup_over_fastest": (Anything | None, "of: the fastest reference; regime; ratio"),
    "accuracy": (Anything | None, "error over the reference's, and where it is largest"),
    "memory": (Anything | None, "bandwidth of the busiest level"),
    "achieved_occupancy_pct": (float | None, "achieved occupancy"),
    "deciding_speedup": (Ratio, "the ratio that decides, if more sessions came for it"),
    "why": (str, "where a wrong step is wrong, or why a bug fix is kept"),
    "at_shape": (str, "the shape at which a check failed"),
    "input_kind": (str, "the inputs with which a check failed"),
    "max_error": (float, "largest error"),
    "hint": (str, "what to do about it"),
    "problem": (str, "why figures are missing"),
    "state": (_words(Status, CheckResult), "of the evidence, if it is not current"),
    "capture": (Status, "damaged or stale"),
    "judged": (Anything, "the verdict's own shape, ratio and gates, if it is another shape"),
    "failed": (Objects, "gates, checks or builds that did not pass, each with why"),
    "next": (list[NextKind] | None, "kinds of change, the best first; null: not profiled"),
    "notes": (int, "number of warnings"),
    "damage": (Texts, "files and lines of evidence that do not count, and why"),
}
LADDER: Keys = {
    "variants": (Objects, "rows of the ladder, or steps"),
    "best": (Anything, "the best step"),
    "references": (Numbers, "microseconds of each reference"),
    "warnings": (Texts, "warnings"),
    "provisional": (bool, "three sessions only: no result"),
    "seconds": (float, "until the first verdict"),
    "failures": (Objects, "what could not be measured"),
}
MORE: Keys = {
    "gates": (dict[str, str], "gates of the verdict"),
    "figures": (Numbers, "figures of the capture by their ids"),
    "top_stall": (str | None, "the largest stall reason"),
    "stalls": (Numbers, "stall reason to its share of samples"),
    "bottlenecks": (Objects, "limits that ncu's counters show"),
    "report": (str, "file"),
    "kernels": (Objects, "kernels of a report, each with its launches"),
}
PROGRAM: Keys = {
    "report": (str, "file"),
    "listed": (Objects, "kernels of a program by time, in microseconds, as its first run had them"),
    "kernels": (Objects, "kernels of a report, each with its launches"),
    "faults": (Texts, "what its timeline shows to be wrong"),
    "files": (Texts, "a trace for Perfetto, and a chart"),
}
PAIR: Keys = {
    "before": (str, "the first of two"),
    "after": (str, "the second of two"),
    "speedup": (Ratio, "time before over time after"),
    "factors": (Anything | None, "the ratio as a product of five"),
    "stalls_us": (Objects, "stall time before and after"),
    "warnings": (Texts, "warnings"),
    "kernels": (Objects, "kernels of a report, each with its launches"),
}
TRIED: Keys = {
    "file": (str, "what was tried"),
    "allowed": (float | None, "largest error that passes"),
    "workspace": (str, "where its study is"),
}
HERE: Keys = {
    "works": (dict[str, bool], "what works here"),
    "conclusion": (str, "the same in words"),
    "problems": (Objects, "what does not, each with a fix"),
    "host": (str, "the machine of --on"),
}
ANSWERS: Mapping[str, Keys] = {
    "ablate": {**JUDGED, **STEP, **LADDER},
    "advise": {**JUDGED, **STEP},
    "check": {**JUDGED, **STEP, "checks": (Objects, "each at each shape, wrong ones first")},
    "diff": {**JUDGED, **PAIR, "origin": (str, "of machine code: captures, reports or builds")},
    "doctor": HERE,
    "gate": {
        "base": (str, "older commit"),
        "head": (str, "newer commit"),
        "tier": (int, "0 compiled code, 1 counters, 2 times"),
        "verdicts": (dict[str, int], "number of variants with each verdict"),
        "changes": (Objects, "variants that are not the same, broken and slower ones first"),
    },
    "list": {"studies": (Objects, "studies with their variants")},
    "profile": {**JUDGED, **STEP, **LADDER, **PROGRAM},
    "show": {**JUDGED, **STEP, **MORE},
    "sweep": {**JUDGED, "sweeps": (Objects, "combinations of parameters, the fastest first")},
    "try": {**JUDGED, **STEP, **TRIED},
}
# What these answer is their whole record, cut to fit.
RECORDS: Mapping[str, type] = {"build": Builds, "init": NewWorkspace, "new": NewStep}
VERBS = (*ANSWERS, *RECORDS)


def schema(verb: str) -> Data:
    """The JSON Schema of what a verb answers, success or failure."""
    told = {**EVERY, **ANSWERS.get(verb, {})}
    kinds, defs = msgspec.json.schema_components(
        [kind for kind, _ in told.values()], ref_template="#/$defs/{name}"
    )
    typed = zip(told.items(), kinds, strict=True)
    record: Data = {key: {} for key in shown_names(RECORDS[verb])} if verb in RECORDS else {}
    keys = {name: {**kind, "description": text} for (name, (_, text)), kind in typed}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"workbench {verb} --brief",
        "type": "object",
        "properties": {**record, **keys},
        "required": ["schema_version"],
        "additionalProperties": False,
        "$defs": defs,
    }


REFERENCE = re.compile(r"#/\$defs/(\w+)")


def of_json(verb: str) -> Data:
    """As ``schema``, of ``--json``: with the records that the answer holds.

    Raises UsageError.
    """
    kept = json.loads((starters() / AGENTS_FOLDER / "schema.json").read_text("utf-8"))
    every, needed = kept.pop("$defs"), [verb]
    if verb not in (verbs := [name for name in every if name.islower() and name != "failed"]):
        raise unknown("verb with --json", verb, verbs)
    for name in needed:
        inside = REFERENCE.findall(json.dumps(every[name]))
        needed += [each for each in dict.fromkeys(inside) if each not in needed]
    head = {"title": f"workbench {verb} --json", "$ref": f"#/$defs/{verb}"}
    return {**kept, **head, "$defs": {name: every[name] for name in needed}}


def lines(found: Data) -> list[str]:
    return [json.dumps(found, indent=1)]
