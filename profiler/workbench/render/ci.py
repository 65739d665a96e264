"""Changes as JUnit XML, which CI systems show as tests: a case a variant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote
from xml.etree import ElementTree as xml

import workbench
from workbench.judge.commits import VariantChange
from workbench.render.document.checks import TIERS, shown
from workbench.render.document.sentences import difference_label, sentence
from workbench.render.numbers import printable, printable_lines
from workbench.words import Move


def junit(studies: Mapping[str, Sequence[VariantChange]], folders: Mapping[str, str]) -> str:
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
            skipped=str(sum(change.verdict == Move.CANNOT_TELL for change in changes)),
            errors="0",
        )
        for change in changes:
            _case(suite, study, change, folders[study])
    xml.indent(top)
    return xml.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: xml.Element, study: str, change: VariantChange, folder: str) -> None:
    case = xml.SubElement(suite, "testcase", classname=study, name=change.variant)
    place = f"{folder}/{change.spot.file}:{change.spot.line}: " if change.spot else ""
    why = sentence(change.why)
    if change.is_bad:
        failure = xml.SubElement(case, "failure", type=change.verdict)
        failure.set("message", printable(f"{place}{why}"))
        failure.text = printable_lines("\n".join(_lines(change)))
    elif change.verdict == Move.CANNOT_TELL:
        xml.SubElement(case, "skipped", message=printable(f"{place}{change.verdict}: {why}"))
    else:
        xml.SubElement(case, "system-out").text = printable(
            f"{change.verdict}: {sentence(change.why)}"
        )


def _lines(change: VariantChange) -> list[str]:
    cause = f", cause: {change.cause}" if change.cause else ""
    return [
        f"{change.verdict} by {TIERS[change.tier]}{cause}: {sentence(change.why)}",
        *(
            f"{difference_label(f.what)} {shown(f.before)} -> {shown(f.after)} {f.kernel}"
            for f in change.differences
        ),
    ]


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Move.SLOWER: "error", Move.BROKEN: "error", Move.CANNOT_TELL: "note"}
RULES = {
    Move.SLOWER: "A variant became slower",
    Move.BROKEN: "A variant does not compile any more, or is wrong",
    Move.CANNOT_TELL: "A variant changed, and what that did to its speed is not known",
}


def sarif(studies: Mapping[str, Sequence[VariantChange]], folders: Mapping[str, str]) -> str:
    """``folders`` are where the studies stand in the repository. What is the same, faster or new is
    no result.
    """
    results = [
        result
        for study, changes in studies.items()
        for result in _results(study, changes, folders[study])
    ]
    rules = [
        {"id": _id(move), "name": _id(move), "shortDescription": {"text": text}}
        for move, text in RULES.items()
    ]
    tool = {"driver": {"name": "workbench", "version": workbench.__version__, "rules": rules}}
    run = {"tool": tool, "results": results, "columnKind": "unicodeCodePoints"}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _id(move: Move) -> str:
    return f"workbench/{move.replace(' ', '-')}"


def _results(
    study: str, changes: Sequence[VariantChange], folder: str
) -> Iterator[Mapping[str, object]]:
    for change in changes:
        if change.verdict not in LEVELS or change.spot is None:
            continue
        why = f"{sentence(change.why)} ({change.spot.why})"
        text = f"{change.variant} of {study}: {change.verdict}: {why}"
        place = {
            "artifactLocation": {
                "uri": quote(f"{folder}/{change.spot.file}"),
                "uriBaseId": "%SRCROOT%",
            },
            "region": {"startLine": change.spot.line},
        }
        yield {
            "ruleId": _id(change.verdict),
            "level": LEVELS[change.verdict],
            "message": {"text": text},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"variant/v1": f"{study}/{change.variant}"},
        }
