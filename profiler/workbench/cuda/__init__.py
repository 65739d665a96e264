"""Everything that a variant imports to compile and launch a CUDA C++ kernel.

    kernel = cuda.kernel("fix1.cu", "attention_forward")
    kernel[grid, block, shared_bytes](*args)

Compiled by NVRTC through cuda-core on the first launch, for the device at hand; ``compile``
builds for a named architecture and needs no GPU. Torch tensors are passed as pointers; Python
ints and floats take the width of the kernel's own parameter.
"""

from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.cuda.declare import kernel, overridden, params, take_declared, variant
from workbench.cuda.launch import Kernel, tensor_map

__all__ = [
    "CUBIN_FOLDER",
    "Kernel",
    "kernel",
    "overridden",
    "params",
    "take_declared",
    "tensor_map",
    "variant",
]
