"""``workbench adopt``: a capture made elsewhere into a study, as evidence without timing."""

from __future__ import annotations

from workbench.commands.options import AdoptOptions
from workbench.commands.printing import say, show_json
from workbench.commands.progress import note
from workbench.commands.target import find_study, latest, profiled_shape
from workbench.derive.matching import groups
from workbench.errors import UsageError, nearest
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, evidence_folders, gpu_slug, is_there
from workbench.evidence.records import Adopted, CaptureIndex, Environment
from workbench.ncu.report import (
    PERSONAL,
    SUFFIXES,
    Launch,
    Report,
    paths_in,
    pick_kernel,
    pick_launch,
    read_report,
)
from workbench.render.document.launches import extent, kernel
from workbench.run import origin, recording
from workbench.study.model import Study
from workbench.study.sources import fingerprint
from workbench.words import ABSENT

PATHS_SHOWN = 5
LARGE = 20_000_000  # bytes: what this repository allows all its evidence together


def require_variant(study: Study, name: str) -> None:
    """Raises UsageError saying how a capture gets a name of its own in the study."""
    if name in study.variants:
        return
    entry = f'[[reference]]\nvariant = "{name}"\ntitle = "what it is"\ncaptured = true'
    raise UsageError(
        f"'{name}' is no variant or reference of the study '{study.name}'",
        hint=f"{nearest(name, study.variants)}; or add it to {study.ladder.path.name} as a "
        f"reference without code:\n\n{entry}",
    )


def choose(report: Report, names: list[str], numbers: list[int]) -> tuple[Launch, ...]:
    """The launches that make one call of the variant: those numbered, else one of each kernel.

    Of several launches of one kernel and shape the one of median duration stands for all. Raises
    UsageError where it is not clear which kernels belong to the variant.
    """
    if numbers:
        picked = [launch for n in dict.fromkeys(numbers) for launch in pick_launch(report, n)]
        return tuple(sorted(picked, key=lambda launch: launch.index))
    chosen = [pick_kernel(report, name) for name in names] or [report.launches]
    result = []
    for launches in chosen:
        found = groups(launches)
        if len(found) > 1:
            listed = "; ".join(
                f"{kernel(g.typical)} {extent(g.typical.grid)} / {extent(g.typical.block)}: "
                f"launch {g.launches[0].index}"
                for g in found[:6]
            )
            raise UsageError(
                f"{report.name} holds {len(found)} kernels or launch shapes: which of them make "
                "one call of the variant is not clear",
                hint=f"name them with --kernel or --launch, which may be repeated: {listed}",
            )
        result.append(found[0].typical)
    return tuple(sorted(dict.fromkeys(result), key=lambda launch: launch.index))


def only_gpu(report: Report, launches: tuple[Launch, ...]) -> str:
    names = {launch.gpu for launch in launches}
    gpu = next(iter(names))
    if len(names) > 1 or not gpu:
        what = "are of several GPUs" if len(names) > 1 else "do not say which GPU they ran on"
        raise UsageError(
            f"the launches of {report.name} {what}", hint="evidence belongs to one GPU"
        )
    return gpu


def require_free(folder: EvidenceFolder, shape: str, variant: str) -> None:
    """Raises UsageError where a capture measured here would be hidden."""
    path = folder.capture_index(shape, variant)
    if is_there(path) and store.read(path, CaptureIndex).adopted is None:
        raise UsageError(
            f"{variant} has a measured capture at {shape} on {folder.gpu}; an adopted one would "
            "hide it",
            hint="give the foreign one a name of its own: a [[reference]] with captured = true",
        )


def warn_of_paths(report: Report) -> list[str]:
    """Say which machine's paths travel in the report: nothing can be taken out of it."""
    found = paths_in(report.path)
    if found:
        personal = sum(any(word in path for word in PERSONAL) for path in found)
        home = f", {personal} of them in a home folder" if personal else ""
        note(
            f"warning: the report carries {len(found)} absolute paths of the machine it was "
            f"made on{home}:"
        )
        for path in found[:PATHS_SHOWN]:
            note(f"  {path}")
        note(
            "hint: look at them before you share the evidence; to be without, profile again "
            "from a neutral folder"
        )
    return found


def run(options: AdoptOptions) -> None:
    file, name = options.report, options.name
    report = read_report(file)
    workspace, found = find_study(options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to adopt a capture into",
            hint="go to a folder with a workbench.toml, or name one with --project",
        )
    require_variant(found, name)
    picked = profiled_shape(found, options.shape)
    found, place = picked.study, picked.name
    if place in found.derived:
        raise UsageError(
            f"'{place}' is no shape of the study, so no capture is adopted there",
            hint="list it in the shapes of study.py",
        )
    launches = choose(report, options.kernel or [], options.launch or [])
    gpu = only_gpu(report, launches)
    folder = EvidenceFolder(workspace.evidence_base(found.name) / gpu_slug(gpu))
    require_free(folder, place, name)
    shown = latest(evidence_folders(workspace.ablations, found.name), place)
    given = file.read_bytes()
    data, original = recording.compressed(given), recording.digest(given)
    index = CaptureIndex(
        variant=name,
        shape=place,
        fingerprint=fingerprint(found, name, place),
        report=f"{place}-adopted-{name}-{original[:8]}{SUFFIXES[1]}",
        sha256=recording.digest(data),
        range="",
        launches=len(launches),
        ncu=report.ncu or ABSENT,
        ncu_flags=tuple(word for pair in report.options.items() for word in pair),
        adopted=Adopted(
            file=file.name,
            sha256=original,
            launches=tuple(launch.index for launch in launches),
            kernels=tuple(launch.kernel for launch in launches),
            timing=ABSENT,
            correctness=ABSENT,
            absolute_paths=len(warn_of_paths(report)),
        ),
        provenance=origin.provenance(
            Environment(gpu=gpu, compute_capability=report.compute_capability or ABSENT),
            command=["workbench", "adopt", file.name, "--as", name],
        ),
    )
    recording.write_captures(folder, index.report, data, [index])
    if shown is not None and shown.gpu != folder.gpu:
        note(
            f"warning: the study's evidence at {place} is of {shown.gpu}; this capture is of "
            f"{folder.gpu} and is kept beside it, not compared with it"
        )
    if len(data) > LARGE:
        note(f"warning: the report takes {len(data) / 1e6:.0f} MB; profile fewer kernels")
    if options.json:
        return show_json(store.content(index))
    return say(
        f"adopted {file.name} as {name} of {found.name} at {place}, {gpu}",
        f"  launches {', '.join(str(launch.index) for launch in launches)}: "
        f"{', '.join(launch.kernel for launch in launches)}",
        f"  ncu {index.ncu}; timing and correctness: {ABSENT}",
        f"  that it is {name} at {place} is your word: a report does not say",
    )
