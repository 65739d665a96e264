"""``diff``: two variants, two reports, or with ``--sass`` their machine code, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from workbench.app.ablate import PairResult, compared
from workbench.app.show import (
    MachineCodeResult,
    ReportPairResult,
    code_of_builds,
    compared_reports,
    current_capture,
    instructions_of,
    listing_of,
    paired_code,
    require_pairs,
)
from workbench.app.target import find_study
from workbench.children import temporary_folder
from workbench.cli.options import DiffOptions
from workbench.cli.streams import executor, show
from workbench.derive.code_diff import (
    MEANINGS,
    CodeChange,
    CodeDiff,
    CodeRow,
    KindCount,
    machine_code_diff,
    summary,
)
from workbench.derive.figures import summed
from workbench.derive.matching import Matching
from workbench.derive.source_diff import SourceDiff, base
from workbench.errors import CannotTell, EnvironmentLacks, UsageError
from workbench.judge.findings import sentence, sentences
from workbench.ncu.capture import load_capture
from workbench.ncu.disassembly import disassembled
from workbench.ncu.report_file import Report, is_report, read_report
from workbench.render import answers, doc, in_short
from workbench.render.doc import Line, Piece, count, number
from workbench.render.document import hunks, launches
from workbench.render.document.hunks import BLANK, STYLES, gutter
from workbench.render.document.printed_ladder import origin
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.files import contents, for_shell
from workbench.study.params import including
from workbench.words import NONE, Status

CUBIN, ARCH = ".cubin", "sm_90a"


def run(options: DiffOptions) -> None:
    options = options.identified("before", "after")
    names = [options.before, options.after]
    if all(name.endswith(CUBIN) for name in names):
        return show(options, code_of_binaries(*map(Path, names)))
    files = [name for name in names if is_report(name) or name.endswith(CUBIN)]
    if all(map(is_report, names)):
        first, second = (read_report(Path(name)) for name in names)
        matched = compared_reports(first, second, options.kernel, options.launch)
        code = options.sass and code_of_reports(first, second, matched.matching)
        show(options, code or matched)
        return require_pairs(matched.matching)
    if files:
        takes = "`diff` takes two reports, two cubin files or two variants"
        shows = f"`workbench show {for_shell(files[0])}` shows it; " * is_report(files[0])
        message = f"{files[0]} is a file, the other is none of its kind"
        raise UsageError(message, hint=f"{shows}{takes}")
    if options.sass:
        return machine_code(options, names)
    target = options.target(names)
    before, after = target.variants(names)
    require_two(before, after)
    result = compared(target, [before, after])
    ladder, pair = result.ladder, result.pair
    rows = pair.before, pair.after
    # Of a stale or a wrong variant the sources can be compared all the same.
    is_absent = any(row.is_unsupported or row.status == Status.MISSING for row in rows)
    if is_absent and pair.speedup is None and pair.comparison is None:
        why = "; ".join(f"{row.variant}: {sentence(row.problem)}" for row in rows if row.problem)
        raise CannotTell(
            f"nothing of both is recorded at {ladder.shape}" + f" ({why})" * bool(why),
            hint="name a shape that both have: --shape",
        )
    show(options, result)
    target.executor.require_current(ladder.stale([before, after]))


def machine_code(options: DiffOptions, names: list[str]) -> None:
    try:
        target = options.target(names)
        before, after = target.variants(names)
        require_two(before, after)
        codes = ({n: instructions_of(current_capture(target, n)[2], n)} for n in (before, after))
        origin = f"captures at {target.shape} on {target.folder.gpu}"
        result = paired_code(before, after, origin, *codes)
    except (EnvironmentLacks, CannotTell) as error:  # there are no captures: they are compiled now
        require_two(*names)
        here = executor()
        workspace, study = find_study(here, options.project, options.study)
        study, names = including(study, names)
        with temporary_folder() as cubins, here.reporter.progress() as hear:
            limit = workspace.config.limits.seconds_per_step
            events = build_only(study, names, ARCH, limit, hear, cubins)
            for event in events:
                if isinstance(event, Failed):
                    message = f"{event.variant} cannot be compiled here: {event.error.message}"
                    raise UsageError(message, hint=event.error.hint) from None
            old, new = (event for event in events if isinstance(event, Built))
            result = code_of_builds(old, new, cubins, f"compiled for {ARCH}: {error.message}")
    show(options, result)


def code_of_binaries(before: Path, after: Path) -> MachineCodeResult:
    """Compare the code of two cubin files: functions of one name belong together, or the only one
    of each.
    """
    codes = (disassembled(contents(path), path.name) for path in (before, after))
    sides = ({name: listing_of(code) for name, code in side.items()} for side in codes)
    return paired_code(before.name, after.name, "cubin files", *sides)


def code_of_reports(before: Report, after: Report, matching: Matching) -> MachineCodeResult:
    """Compare the code of the launches that match; raises UsageError where a report has no
    instructions.
    """
    kernels = []
    for pair in (group.typical for group in matching.groups):
        sides = ((before.path, pair.before), (after.path, pair.after))
        old, new = (instructions_of(load_capture(p, (x.index,)), x.kernel) for p, x in sides)
        kernels.append(machine_code_diff(old, new, pair.before.kernel, pair.after.kernel))
    return MachineCodeResult(before.name, after.name, "reports", tuple(kernels))


def require_two(before: str, after: str) -> None:
    if before == after:
        raise UsageError(f"'{before}' is compared with itself", hint="name two variants")


def data(result: PairResult | ReportPairResult | MachineCodeResult) -> object:
    if isinstance(result, MachineCodeResult):
        kernels = [
            msgspec.structs.replace(_short(diff), kinds=diff.kinds, changed=diff.changed.rows)
            for diff in result.kernels
        ]
        return answers.answer(answers.MachineCode, result, kernels=kernels)
    if isinstance(result, PairResult):
        return answers.variant_pair(result.ladder, result.pair, result.changes)
    return answers.ReportPair(
        before=result.before,
        after=result.after,
        warnings=list(result.warnings),
        kernels=[
            answers.kernel_pair(result.read(group.typical), group)
            for group in result.matching.groups
        ],
        only_before=result.matching.only_before,
        only_after=result.matching.only_after,
    )


def brief(result: PairResult | ReportPairResult | MachineCodeResult) -> dict[str, object]:
    if isinstance(result, MachineCodeResult):
        return {
            "before": result.before,
            "after": result.after,
            "origin": result.origin,
            "kernels": [_short(kernel) for kernel in result.kernels],
            "stop": True,
            "why_stop": "machine code has no times: diff without --sass compares them",
        }
    if isinstance(result, PairResult):
        return in_short.pair(result.ladder, result.pair)
    few = result.matching.groups[: launches.DETAILED]
    both = [result.read(group.typical) for group in few]
    return {
        "before": result.before.name,
        "after": result.after.name,
        "kernels": [in_short.kernel_pair(each.comparison, each.after.advice) for each in both],
        "warnings": [*sentences(result.warnings)],
        **in_short.command("", "show", str(result.after.path)),
    }


def _short(diff: CodeDiff) -> answers.CodeKernel:
    before, after = diff.numbers
    return answers.CodeKernel(
        kernel=diff.kernel,
        same=diff.is_same,
        instructions_before=sum(before.values()),
        instructions_after=sum(after.values()),
        summary=summary(before, after),
        counts=diff.counts,
    )


def blocks(
    result: PairResult | ReportPairResult | MachineCodeResult, options: Any
) -> Iterator[doc.Block]:
    if isinstance(result, MachineCodeResult):
        title = doc.strong(f"machine code of {result.before} → {result.after}")
        yield doc.paragraph(title, f" ({result.origin})")
        for kernel in result.kernels:
            yield doc.section("kernel", doc.code(kernel.kernel), *_kernel(kernel))
        only = ((result.before, result.only_before), (result.after, result.only_after))
        for name, kernels in only:
            if kernels:
                yield doc.paragraph(f"only in {name}: {', '.join(kernels)}")
        return
    if isinstance(result, ReportPairResult):
        yield from _reports(result, options)
        return
    names = (result.pair.before.variant, result.pair.after.variant)
    yield origin(result.ladder)
    yield from launches.variants(result.pair, result.changes, source=options.source)
    if options.source:
        yield from _source(result.changes, names, result.paths)


def _reports(result: ReportPairResult, options: Any) -> Iterator[doc.Block]:
    before, after, matching = result.before, result.after, result.matching
    for report, side in zip((before, after), launches.SIDES, strict=True):
        yield launches.about(report, side)
    yield from doc.warned(sentences(result.warnings))
    yield from launches.unmatched(matching, (before.name, after.name))
    if not matching.groups:
        return
    yield doc.table(
        "pairs", launches.PAIRS, matching.groups, key=lambda g: str(g.typical.before.index)
    )
    every = options.kernel is not None or options.launch is not None
    shown = matching.groups if every else matching.groups[: launches.DETAILED]
    for group in shown:
        read = result.read(group.typical)
        source = options.source and read.lines.has_costs
        yield launches.kernels(group.typical, read, launches.SIDES, source=source)
        if source:
            yield from _source(read.lines, launches.SIDES)
    if len(matching.groups) > len(shown):
        yield launches.left_out("compared", "--kernel NAME or --launch A:B chooses others")


def _source(
    changes: SourceDiff, names: tuple[str, str], paths: Mapping[str, str] = hunks.NO_PATHS
) -> Iterator[doc.Block]:
    """Every hunk with its costs, or why there are none."""
    if absent := hunks.absences(changes, names):
        yield doc.paragraph(absent)
    yield doc.LinesBlock(list(hunks.diff(changes, names, paths)))


KINDS, HUNKS = 12, 8  # the most that are shown
# In a hunk of so many rows, more than four that cost less than the share are one line.
LONG, FOLDED, SHOWN_SHARE = 24, 4, 0.005
NAMED = (CodeChange.CONSTANT, CodeChange.TARGET, CodeChange.MOVED)  # beside its instruction


def shown(value: float | None, as_text: Any = count) -> str:
    return NONE if value is None else as_text(value)


STATIC: list[doc.Field[KindCount]] = [
    doc.Field("kind", "instruction", lambda k: doc.code(k.kind)),
    doc.Field("meaning", "what it is", lambda k: MEANINGS.get(k.kind, ""), rank=2),
    doc.numeric("before", "before", lambda k: f"{k.before:,}"),
    doc.numeric("after", "after", lambda k: f"{k.after:,}"),
]
COUNTED: list[doc.Field[KindCount]] = [
    doc.numeric("executed_before", "warps ran before", lambda k: shown(k.executed_before), rank=1),
    doc.numeric("executed_after", "warps ran after", lambda k: shown(k.executed_after), rank=1),
    doc.numeric(
        "us_before", "stall µs before", lambda k: shown(k.microseconds_before, number), rank=1
    ),
    doc.numeric(
        "us_after", "stall µs after", lambda k: shown(k.microseconds_after, number), rank=1
    ),
]


def _kernel(diff: CodeDiff) -> Iterator[doc.Block]:
    yield doc.paragraph(doc.strong(diff.sentence()))
    if diff.is_same:
        return
    yield doc.paragraph(diff.in_words())
    kinds = [k for k in diff.kinds if k.before != k.after]
    if kinds:
        has_costs = any(kind.executed_before is not None for kind in diff.kinds)
        fields = [*STATIC, *(COUNTED if has_costs else ())]
        yield doc.table("kinds", fields, kinds[:KINDS], key=lambda k: k.kind)
    # The costliest first; without costs, in the order of the code.
    if hunks := sorted(diff.hunks, key=lambda hunk: -max(time or 0.0 for time in _times(hunk))):
        yield doc.LinesBlock(list(_hunks(hunks)))


def _hunks(hunks: Sequence[CodeDiff]) -> Iterator[Line]:
    for hunk in hunks[:HUNKS]:
        yield BLANK
        times = " → ".join(shown(time, number) for time in _times(hunk))
        yield [Piece(f"{_place(hunk)}: stall time {times} µs", "bold")]
        for is_shown, run in groupby(hunk.rows, _is_costly):
            rows = tuple(run)
            if is_shown or len(hunk.rows) <= LONG or len(rows) <= FOLDED:
                yield from (line for row in rows for line in _lines(row))
            else:
                yield [Piece(f"{'':19}{replace(hunk, rows=rows).sentence()}", "dim")]
    if len(hunks) > HUNKS:
        yield [Piece(f"{len(hunks) - HUNKS} more places changed: --json shows all", "dim")]


def _is_costly(row: CodeRow) -> bool:
    return any((cost.share or 0.0) >= SHOWN_SHARE for cost in (row.before, row.after) if cost)


def _times(hunk: CodeDiff) -> list[float | None]:
    """Stall time of each side's changed rows; None is not collected."""
    return [summed(cost.microseconds for cost in costs) for costs in hunk.changed.sides]


def _place(hunk: CodeDiff) -> str:
    """Both addresses, and the source line that most of its changed instructions belong to."""
    addresses = " → ".join(f"{code[0].address:#06x}" if code else NONE for code in hunk.sides)
    places = Counter(cost.place for costs in hunk.changed.sides for cost in costs)
    ((file, line), _), *_ = places.most_common(1)
    return f"{addresses}, {base(file)}:{line}" if file else addresses


def _lines(row: CodeRow) -> Iterator[Line]:
    """An unchanged instruction is a line; another is one of each side, with what changed."""
    is_kept = row.change in (CodeChange.SAME, CodeChange.REGISTER)
    for sign, cost in [(" ", row.after)] if is_kept else [("-", row.before), ("+", row.after)]:
        if cost is not None:
            word = row.change if row.change in NAMED else ""
            head = f"{gutter(cost).text}  {cost.address:#06x} {word:<9}"
            yield [Piece(head, "dim"), Piece(f"{sign} {cost.sass}", STYLES[sign])]
