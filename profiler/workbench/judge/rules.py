"""What a commit changes of the rules by which its kernels are judged. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from workbench.judge.commits import SourceSpot, VariantChange
from workbench.judge.findings import Finding, finding
from workbench.study.config import Config
from workbench.study.model import Study, tolerance_at
from workbench.study.workspace import CONFIG_FILE
from workbench.words import Cause, Move

CODE = "code"
MOST_SHOWN = 4


@dataclass(frozen=True)
class Rules:
    """Those of a study at one commit: settings of the workspace, what ``study.py`` says, and what
    the ladder says beside its texts and predictions. ``code`` is the digest of the study's code.
    """

    study: Study
    config: Config
    code: str

    @property
    def files(self) -> dict[str, dict[str, object]]:
        """Key to value, by file from the study's folder."""
        study, ladder = self.study, self.study.ladder
        tables = {k: v for k, v in msgspec.to_builtins(self.config).items() if isinstance(v, dict)}
        said = {f"shape {name}": shape for name, shape in study.shapes.items()}
        bounds = {
            f"tolerance at {name}": f"{bound.absolute:g}, relative {bound.relative:g}"
            for name, shape in study.shapes.items()
            for bound in [tolerance_at(study.tolerance, shape)]
        }
        top: dict[str, object] = {
            key: getattr(ladder, key)
            for key in ("max_error", "cache_control", "partial", "primary_reference")
        }
        for step in ladder.steps:
            for key in ("parent", "shape", "drops", "chooses", "corrects"):
                top[f"{step.variant}.{key}"] = getattr(step, key)
        return {
            f"../../{CONFIG_FILE}": {
                f"{t}.{k}": v for t, of in tables.items() for k, v in of.items()
            },
            "study.py": {**bounds, **said, "default_shape": study.default_shape, CODE: self.code},
            f"../../ablations/{study.name}/ablation.toml": top,
        }


def changed_rules(before: Rules, after: Rules) -> Iterator[VariantChange]:
    """A change for each file whose rules are others. Nobody can tell from figures whether that is
    meant: it is never the same. Steps that only one side has are no change of rules.
    """
    for (file, old), new in zip(before.files.items(), after.files.values(), strict=True):
        found = tuple(_differing(old, new))
        if found:
            more = len(found) - MOST_SHOWN
            why = finding("commit.rules", rules=found[:MOST_SHOWN], more=more if more > 0 else None)
            name = file.rpartition("/")[2]
            spot = SourceSpot(file, 1, "the rules")
            yield VariantChange(name, Move.CANNOT_TELL, why, cause=Cause.METHOD, spot=spot)


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Finding]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        one_sided = key not in old or key not in new
        if before == after or (one_sided and not key.startswith("shape ")):
            continue
        if key == CODE:
            yield Finding("rule.code")
        else:
            yield finding("rule", field=key, before=_said(before), after=_said(after))


def _said(value: object) -> str:
    if isinstance(value, Mapping) or value in (None, "", ()):
        return str(value) if value else "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
