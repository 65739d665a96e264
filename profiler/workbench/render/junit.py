"""Changes as JUnit XML, which CI systems show as tests: a case a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as xml

from workbench.judge.commits import Change
from workbench.render.document.commits import TIERS, shown
from workbench.render.plain import printable, printable_lines
from workbench.words import Move


def junit(studies: Mapping[str, Sequence[Change]], folders: Mapping[str, str]) -> str:
    """Slower and broken ones have failed; those of which nothing can be told are skipped.

    ``folders`` are where the studies stand in the repository. A case has name and class alone: the
    schema that some readers hold it against (junit-10.xsd of Jenkins) knows no file and no line.
    """
    top = xml.Element("testsuites", name="workbench gate")
    for study, changes in studies.items():
        suite = xml.SubElement(
            top,
            "testsuite",
            name=study,
            tests=str(len(changes)),
            failures=str(sum(change.is_bad for change in changes)),
            skipped=str(sum(change.move == Move.CANNOT_TELL for change in changes)),
            errors="0",
        )
        for change in changes:
            _case(suite, study, change, folders[study])
    xml.indent(top)
    return xml.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: xml.Element, study: str, change: Change, folder: str) -> None:
    case = xml.SubElement(suite, "testcase", classname=study, name=change.variant)
    place = f"{folder}/{change.spot.file}:{change.spot.line}: " if change.spot else ""
    if change.is_bad:
        failure = xml.SubElement(case, "failure", type=change.move)
        failure.set("message", printable(f"{place}{change.why}"))
        failure.text = printable_lines("\n".join(_lines(change)))
    elif change.move == Move.CANNOT_TELL:
        xml.SubElement(case, "skipped", message=printable(f"{place}{change.move}: {change.why}"))
    else:
        xml.SubElement(case, "system-out").text = printable(f"{change.move}: {change.why}")


def _lines(change: Change) -> list[str]:
    cause = f", cause: {change.cause}" if change.cause else ""
    return [
        f"{change.move} by {TIERS[change.tier]}{cause}: {change.why}",
        *(f"{f.what} {shown(f.before)} -> {shown(f.after)} {f.kernel}" for f in change.findings),
    ]
