"""What a shell may offer behind Tab: cheap, and silent whatever goes wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

Parameters = Mapping[str, Any]


def names(kind: str, parameters: Parameters, incomplete: str) -> list[str]:
    """Those of a kind that begin with what is typed; none where they cannot be told."""
    with contextlib.suppress(Exception):
        return [name for name in KINDS[kind](parameters, incomplete) if name.startswith(incomplete)]
    return []


def _studies(parameters: Parameters, _: str) -> list[str]:
    from workbench.study.workspace import find_workspace

    return find_workspace(parameters.get("project")).studies()


def _variants(parameters: Parameters, _: str) -> list[str]:
    """From ``ablation.toml`` alone: the study's Python is not run."""
    from workbench.study.ladder import read_ladder
    from workbench.study.workspace import find_workspace

    workspace = find_workspace(parameters.get("project"))
    only = [*workspace.studies(), ""] if not workspace.config.study else [""]
    study = parameters.get("study") or workspace.config.study or only[0]
    folder = workspace.ablations / study
    return read_ladder(folder / "ablation.toml", study, workspace.kernels / study).names


def _shapes(parameters: Parameters, _: str) -> Iterable[str]:
    from workbench.study.workspace import find_workspace

    study = find_workspace(parameters.get("project")).study(parameters.get("study"))
    return (name for name, shape in study.shapes.items() if shape.profiled)


def _gpus(parameters: Parameters, _: str) -> Iterable[str]:
    from workbench.evidence.layout import evidence_folders
    from workbench.study.workspace import find_workspace

    workspace = find_workspace(parameters.get("project"))
    study = workspace.study(parameters.get("study"))
    return (folder.gpu for folder in evidence_folders(workspace.ablations, study.name))


def _metrics(_: Parameters, __: str) -> Iterable[str]:
    """The ncu metrics behind the figures: those that most are after, of thousands."""
    from workbench.ncu.catalog import catalog

    return dict.fromkeys(name for spec in catalog().values() for name in spec.names)


def _variants_or_files(parameters: Parameters, incomplete: str) -> list[str]:
    folder = Path(incomplete).parent if "/" in incomplete else Path()
    reports = [str(path) for path in folder.glob("*.ncu-rep*")]
    with contextlib.suppress(Exception):
        return [*_variants(parameters, incomplete), *sorted(reports)]
    return sorted(reports)


KINDS: Mapping[str, Callable[[Parameters, str], Iterable[str]]] = {
    "study": _studies,
    "variant": _variants,
    "variant or file": _variants_or_files,
    "shape": _shapes,
    "gpu": _gpus,
    "metric": _metrics,
}
