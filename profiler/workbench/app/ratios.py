"""The recorded times of a variant beside its reference, which `ship` and `weigh` quote."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from workbench.derive.speedup import LEVEL, ratio_of, time_of
from workbench.evidence.records import ShippedTime
from workbench.load import ShapeEvidence, fullest_timing
from workbench.study.files import readable_text
from workbench.study.front_ends import imported, is_compiling, package_of
from workbench.study.model import Study, Variant
from workbench.study.sources import source_files
from workbench.words import HEADLINE


def times_of(
    every: Mapping[str, ShapeEvidence], variant: str, reference: str
) -> Iterator[ShippedTime]:
    """At every shape where a call of it takes time, beside the reference where that was timed."""
    for shape, evidence in every.items():
        timing = fullest_timing(evidence, filter(None, [variant, reference]))
        if timing is None or variant not in timing.chained:
            continue
        beside = reference if reference in timing.chained else ""
        mine, its = (timing.times.get((n, HEADLINE, False), {}) for n in (variant, beside))
        time, check = time_of(mine, HEADLINE), evidence.variants[variant].checks.get(shape)
        if time is None:
            continue
        ratio = ratio_of(its, mine, timing.timing.first_planned) if its else None
        yield ShippedTime(
            shape=shape,
            microseconds=time.value,
            sessions=time.sessions,
            file=f"{shape}/timings/{timing.file}",
            reference=beside if ratio else "",
            ratio=ratio.ratio if ratio else None,
            low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            level=ratio.level if ratio else LEVEL,
            times_reference=check.times_reference if check else None,
        )


def reference_of(study: Study) -> Variant | None:
    """The reference that is torch alone, the primary one where it is: everybody who has the package
    has torch. None where there is no such reference.
    """
    plain = [variant for variant in study.ladder.references if is_plain(study, variant)]
    primary = [variant for variant in plain if variant.name == study.ladder.primary_reference]
    return next(iter([*primary, *plain]), None)


def is_plain(study: Study, reference: Variant) -> bool:
    """Whether torch alone runs it, and nothing of it is compiled. A reference that ``try`` names
    with dots calls nothing of the files that it names.
    """
    text = readable_text(reference.module)
    is_dotted = "given.Dotted(" in text and "given.File(" not in text
    paths = [reference.module] if is_dotted else source_files(study, reference)
    texts = [readable_text(path) for path in paths]
    return (
        bool(paths)
        and not reference.needs
        and all(path.suffix == ".py" for path in paths)
        and not any("cuda.kernel" in text for text in texts)
        and not is_compiling(paths)
        and not needed_by(texts)
    )


def needed_by(texts: Sequence[str]) -> list[str]:
    """The packages beside torch that some Python sources import."""
    modules = sorted({name for text in texts for name in imported(text)[0]})
    others = (*sys.stdlib_module_names, "torch", "workbench")
    packages = (package_of(name) for name in modules if name.partition(".")[0] not in others)
    return list(dict.fromkeys(packages))
