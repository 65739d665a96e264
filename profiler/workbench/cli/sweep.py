"""``sweep``: combinations of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from workbench.app.report import write_files
from workbench.app.sweep import space_of, sweep
from workbench.app.target import find_study, target_at
from workbench.cli.options import SweepOptions
from workbench.cli.streams import executor, show
from workbench.errors import UsageError
from workbench.judge.findings import sentence, sentences
from workbench.judge.sweeps import Sweep
from workbench.render import as_table, doc, in_short, markdown
from workbench.render.as_json import Data, shown_fields
from workbench.render.document.combinations import sweep_view
from workbench.study.files import shown_path
from workbench.study.params import Picked, is_space, profiled_shape

if TYPE_CHECKING:
    from pandas import DataFrame

REPORT = "SWEEP.md"


def run(options: SweepOptions) -> int:
    here = executor(options.on)
    workspace, study = find_study(here, options.project, options.study)
    shape = profiled_shape(study, options.shape)
    if fixed := [name for name in options.variants if not is_space(name)]:
        raise UsageError(
            f"there is nothing to sweep: '{fixed[0]}' is one variant",
            hint="give parameters several values: 'NAME[a=1|2]'",
        )
    timed: list[bool] = []

    def swept() -> Iterator[Sweep]:
        for text in options.variants:
            whole, space = space_of(shape.study, text)
            target = target_at(here, workspace, Picked(whole, shape.name))
            result = sweep(target, space, fresh=options.fresh)
            timed.append(bool(result.timed))
            yield result
            folder = workspace.reports(target.study, target.shape, ("sweep", space.text))
            title, table = markdown.literal(f"Sweep: {text}"), markdown.blocks(sweep_view(result))
            write_files(workspace, folder, {REPORT: f"# {title}\n\n{table}\n"})
            here.note(f"wrote {shown_path(folder / REPORT)}")

    show(options, swept())
    return int(not all(timed))


def data(result: Iterable[Sweep]) -> dict[str, object]:
    return {"sweeps": list(result)}


def brief(result: Iterable[Sweep]) -> dict[str, object]:
    """The combinations by time."""
    every = list(result)
    first = every[0]
    best = first.best.variant if first.best else first.variant
    going_on = in_short.command(first.study, "profile", best, "--shape", first.shape)
    return {"sweeps": list(map(_sweep, every)), **going_on}


def _sweep(sweep: Sweep) -> Data:
    timed = [
        {
            "variant": one.variant,
            "microseconds": one.microseconds.value if one.microseconds else None,
            "over_default": in_short.ratio(one.over_default),
            "may_be_best": one.may_be_best,
        }
        for one in sweep.timed
    ]
    failed = {one.variant: sentence(one.why) for one in sweep.combinations if one.why}
    named = {"study": sweep.study, "shape": sweep.shape, "gpu": sweep.gpu, "variant": sweep.variant}
    return {**named, "combinations": timed, "failed": in_short.failed(failed)}


def frame(result: Iterable[Sweep], note: Callable[[str], None]) -> DataFrame:
    """The combinations by time."""
    every = list(result)
    for text in dict.fromkeys(text for each in every for text in sentences(each.warnings)):
        note(text)
    return as_table.frame((shown_fields(c) for each in every for c in each.combinations), "variant")


def blocks(result: Iterable[Sweep], _: object) -> Iterator[doc.Block]:
    for each in result:
        yield from sweep_view(each)
