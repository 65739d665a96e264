"""Changes as JUnit XML, which CI systems show as tests: a case a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as xml

from workbench.judge.commits import VariantChange
from workbench.judge.comparison import difference_label
from workbench.judge.findings import sentence
from workbench.render.document.checks import TIERS, shown
from workbench.render.numbers import printable, printable_lines
from workbench.words import Move


def junit(studies: Mapping[str, Sequence[VariantChange]]) -> str:
    """Slower and broken ones have failed; those without an answer are skipped.

    A case has name and class alone, as the schema of Jenkins (junit-10.xsd) has it.
    """
    top = xml.Element("testsuites", name="workbench gate")
    for study, changes in studies.items():
        suite = xml.SubElement(
            top,
            "testsuite",
            name=study,
            tests=str(len(changes)),
            failures=str(sum(change.is_bad for change in changes)),
            skipped=str(sum(change.verdict == Move.CANNOT_TELL for change in changes)),
            errors="0",
        )
        for change in changes:
            _case(suite, study, change)
    xml.indent(top)
    return xml.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: xml.Element, study: str, change: VariantChange) -> None:
    case = xml.SubElement(suite, "testcase", classname=study, name=change.variant)
    why = sentence(change.why)
    if change.is_bad:
        failure = xml.SubElement(case, "failure", type=change.verdict)
        failure.set("message", printable(why))
        failure.text = printable_lines("\n".join(_lines(change)))
    elif change.verdict == Move.CANNOT_TELL:
        xml.SubElement(case, "skipped", message=printable(f"{change.verdict}: {why}"))
    else:
        xml.SubElement(case, "system-out").text = printable(f"{change.verdict}: {why}")


def _lines(change: VariantChange) -> list[str]:
    cause = f", cause: {change.cause}" if change.cause else ""
    return [
        f"{change.verdict} by {TIERS[change.tier]}{cause}: {sentence(change.why)}",
        *(
            f"{difference_label(f.what)} {shown(f.before)} -> {shown(f.after)} {f.kernel}"
            for f in change.differences
        ),
    ]
