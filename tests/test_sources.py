"""What a fingerprint covers: with anything else that is compiled or run it is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.study.sources import Fingerprints, source_files
from workbench.study.workspace import find_workspace
from workspaces import GOOD, make


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ('kernel = cuda.kernel("a b.cu", "scale")', {"a b.cu": ""}),
        ('kernel = cuda.kernel("[x]+é.cu", "scale")', {"[x]+é.cu": ""}),
        ('x = ["a"]; kernel = cuda.kernel("k.cu", "scale")', {"k.cu": ""}),
        ('kernel = cuda.kernel("k.cu", "scale")', {"k.cu": '#include"h.cuh"\n', "h.cuh": ""}),
        (
            'kernel = cuda.kernel("k.cu", "scale")',
            {"k.cu": '#include "in/a.cuh"\n', "in/a.cuh": ' # include "b.cuh"\n', "in/b.cuh": ""},
        ),
        (
            'kernel = cuda.kernel("k.cu", "scale")',
            {"k.cu": '#include "a.inc"\n', "a.inc": '#include "b.inl"\n', "b.inl": ""},
        ),
    ],
)
def test_every_file_that_is_compiled_counts(
    tmp_path: Path, module: str, files: dict[str, str]
) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    folder = root / "kernels" / "scale"
    (folder / "baseline.py").write_text(module)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    study = find_workspace(root).study()
    found = source_files(study, study.variants["baseline"])
    assert {p.relative_to(folder).as_posix() for p in found} == {"baseline.py", *files}
    seen = {Fingerprints(study).of("baseline", "large")}
    for name, text in files.items():
        (folder / name).write_text(f"{text}// other\n")
        seen.add(Fingerprints(study).of("baseline", "large"))
    assert len(seen) == len(files) + 1


def test_words_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    (root / "kernels" / "scale" / "baseline.py").write_text(
        f'"{"word " * 100}end.of"\nx = "../y.z"\n'
    )
    study = find_workspace(root).study()
    assert [p.name for p in source_files(study, study.variants["baseline"])] == ["baseline.py"]
