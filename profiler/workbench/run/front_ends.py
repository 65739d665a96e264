"""What workers tell the front ends that compile for variants, through their environment: line
information, and where to keep what they build.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Variables that name a folder, and the folder below the measurement's own. Its workers share what
# is built there: what was checked is what is timed and profiled, and an autotuner chooses once.
# They are no earlier run's, since what is kept there has the paths of the sources of that run.
EXTENSIONS_DIR, EXTENSIONS = "TORCH_EXTENSIONS_DIR", "extensions"  # may be shared: ``scratch``
FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    EXTENSIONS_DIR: EXTENSIONS,
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "HELION_CACHE_DIR": "helion",
}
SETTINGS = {
    "TRITON_DISABLE_LINE_INFO": "0",
    "TRITON_CACHE_AUTOTUNING": "1",
    "CUTE_DSL_LINEINFO": "1",
    "CUPY_CACHE_SAVE_CUDA_SOURCE": "1",
}
NVCC_FLAGS = "NVCC_APPEND_FLAGS"


def compiler_environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Beside what is ``given``: nvcc has line information after the user's own flags. Folders are
    those that links lead to: an extension is built anew where its path is another.
    """
    flags = f"{given.get(NVCC_FLAGS, '')} -lineinfo".strip()
    folders = {name: str((folder / below).resolve()) for name, below in FOLDERS.items()}
    return {**folders, **SETTINGS, NVCC_FLAGS: flags}
