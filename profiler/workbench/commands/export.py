"""``workbench export``: a table of the evidence for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING

from workbench.commands.options import ExportOptions
from workbench.commands.printing import say
from workbench.commands.progress import note
from workbench.commands.target import Target, find_recorded, find_study, shown_path
from workbench.errors import BadCapture, EnvironmentLacks, UsageError, unknown
from workbench.evidence.store import write_bytes
from workbench.judge.ladder import judge
from workbench.judge.snapshot import snapshot
from workbench.ncu.captures import Captures
from workbench.render.as_json import dumps
from workbench.render.as_table import KINDS, TABLES, Flat, Held, as_csv, as_data, flat
from workbench.words import Status

if TYPE_CHECKING:
    from workbench.judge.rows import Ablation
    from workbench.ncu.capture import Capture

CAPTURED = ("figures", "metrics", "lines", "sass", "rules")
FORMATS = (".csv", ".json", ".parquet")


def run(options: ExportOptions) -> None:
    if options.table not in TABLES:
        raise unknown("table", options.table, TABLES)
    form = format_of(options)
    if form == ".parquet" and options.output is None and sys.stdout.isatty():
        raise UsageError("Parquet is nothing for a terminal", hint="-o FILE names a file for it")
    held = [each for target in targets(options) for each in of_target(target, options)]
    table = flat(options.table, held)
    content = written(table, form)
    if options.output is None and sys.stdout.isatty():
        return say(content.decode().rstrip("\n"))  # with what could steer a terminal spelt out
    if options.output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return None
    write_bytes(options.output, content)
    note(f"wrote {shown_path(options.output)}: {len(table.rows)} rows")
    return None


def format_of(options: ExportOptions) -> str:
    """Of the options, else of the file's name, else CSV. Raises UsageError for several."""
    flags = (options.csv, options.json, options.parquet)
    chosen = [form for form, given in zip(FORMATS, flags, strict=True) if given]
    if len(chosen) > 1:
        raise UsageError("--csv, --json and --parquet exclude each other", hint="leave one")
    if chosen:
        return chosen[0]
    if options.output is None:
        return ".csv"
    if options.output.suffix not in FORMATS:
        raise UsageError(
            f"{options.output} does not say which format it is to have",
            hint="name it .csv, .json or .parquet, or add --csv, --json or --parquet",
        )
    return options.output.suffix


def targets(options: ExportOptions) -> Iterator[Target]:
    """The shape that is named, or every one with evidence of the same GPU: of that which the
    study's own shape is told of.
    """
    if not options.all_shapes:
        yield find_recorded(options.project, options.study, options.shape, gpu=options.gpu)
        return
    if options.shape is not None:
        raise UsageError("--shape and --all-shapes exclude each other", hint="leave one out")
    gpu = options.gpu
    with suppress(EnvironmentLacks):
        own = find_recorded(options.project, options.study, None, gpu=gpu)
        gpu = own.folder.gpu
    _, study = find_study(options.project, options.study, tell=False)
    found = 0
    for name in study.shapes:
        if study.shapes[name].profiled:
            try:
                target = find_recorded(options.project, options.study, name, gpu=gpu, tell=False)
            except EnvironmentLacks:
                continue
            found += 1
            yield target
    if not found:
        # Says what is missing.
        yield find_recorded(options.project, options.study, None, gpu=options.gpu, tell=False)


def of_target(target: Target, options: ExportOptions) -> Iterator[Held]:
    """Every variant that is wanted, with what the table needs of it."""
    evidence, table = target.evidence(), options.table
    judged: Ablation | None = None
    names = target.variants(options.variants or [])
    if table == "ladder":
        steps = target.study.ladder.chain([])
        judged = judge(snapshot(target.evidence(), steps), target.workspace.config)
    captures, without = Captures(evidence), []
    for name in names:
        capture = capture_of(captures, name) if table in CAPTURED else None
        if table in CAPTURED and capture is None:
            without.append(name)
        timings = evidence.timings if table == "timings" else ()
        yield Held(
            study=target.study.name,
            variant=name,
            shape=target.shape,
            gpu=target.folder.gpu,
            capture=capture,
            timings=[(f.name, f.timing) for f in timings if name in evidence.timed(f.timing)],
            build=evidence.build(name).current if table == "builds" else None,
            check=evidence.check(name).current if table == "checks" else None,
            row=next((row for row in judged.everything if row.variant == name), None)
            if judged
            else None,
        )
    if without and len(without) < len(names):
        note(f"no current capture at {target.shape}: {', '.join(without)}")
    elif without and table in CAPTURED and not options.all_shapes:
        note(f"no variant has a current capture at {target.shape}: the table is empty")


def capture_of(captures: Captures, name: str) -> Capture | None:
    try:
        return captures.of(name)
    except BadCapture as error:
        note(f"{name}: {Status.DAMAGED}: {error.message}")
        return None


def written(table: Flat, form: str) -> bytes:
    """Raises EnvironmentLacks where Parquet is wanted and pyarrow is not there."""
    if form == ".csv":
        return as_csv(table).encode()
    if form == ".json":
        return (dumps(as_data(table)) + "\n").encode()
    return parquet(table)


def parquet(table: Flat) -> bytes:
    try:
        pyarrow, writer = map(import_module, ("pyarrow", "pyarrow.parquet"))
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "Parquet needs the Python package pyarrow",
            hint="`pip install pyarrow`, or --csv or --json, which need nothing",
        ) from None
    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
    }
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    arrays = [
        pyarrow.array(values, kinds[KINDS[kind]])
        for values, kind in zip(columns, table.columns.values(), strict=True)
    ]
    held = BytesIO()
    writer.write_table(pyarrow.table(dict(zip(table.columns, arrays, strict=True))), held)
    return held.getvalue()
