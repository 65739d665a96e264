"""Changes as SARIF 2.1.0 (OASIS), which code hosts show at the line that is meant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import workbench
from workbench.judge.commits import Change
from workbench.words import Move

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Move.SLOWER: "error", Move.BROKEN: "error", Move.CANNOT_TELL: "note"}
RULES = {
    Move.SLOWER: "A variant became slower",
    Move.BROKEN: "A variant does not compile any more, or is wrong",
    Move.CANNOT_TELL: "A variant changed, and what that did to its speed is not known",
}


def sarif(studies: Mapping[str, Sequence[Change]], folders: Mapping[str, str]) -> str:
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


def _results(study: str, changes: Sequence[Change], folder: str) -> Iterator[dict[str, Any]]:
    for change in changes:
        if change.move not in LEVELS or change.spot is None:
            continue
        text = f"{change.variant} of {study}: {change.move}: {change.why} ({change.spot.why})"
        place = {
            "artifactLocation": {
                "uri": quote(f"{folder}/{change.spot.file}"),
                "uriBaseId": "%SRCROOT%",
            },
            "region": {"startLine": change.spot.line},
        }
        yield {
            "ruleId": _id(change.move),
            "level": LEVELS[change.move],
            "message": {"text": text},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"variant/v1": f"{study}/{change.variant}"},
        }
