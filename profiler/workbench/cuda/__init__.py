"""What a variant imports to compile and launch a CUDA C++ kernel.

    kernel = cuda.kernel("fix1.cu", "attention_forward")
    kernel[grid, block, shared_bytes](*args)

Compiled by NVRTC through cuda-core on the first launch, for the device at hand; ``compile``
builds for a named architecture and needs no GPU. Torch tensors are passed as pointers; Python
ints and floats take the width of the kernel's own parameter.
"""

from workbench.cuda.compiler import CUBIN_FOLDER, Compiled, KernelBuild, parse_log
from workbench.cuda.declare import Part, kernel, overridden, params, take_declared, variant
from workbench.cuda.includes import expand_includes, header_folders
from workbench.cuda.launch import Extent, Kernel, tensor_map
from workbench.cuda.programs import CompileError
from workbench.words import Parameter

__all__ = [
    "CUBIN_FOLDER",
    "CompileError",
    "Compiled",
    "Extent",
    "Kernel",
    "KernelBuild",
    "Parameter",
    "Part",
    "expand_includes",
    "header_folders",
    "kernel",
    "overridden",
    "params",
    "parse_log",
    "take_declared",
    "tensor_map",
    "variant",
]
