# mypy: ignore-errors
"""nvcc through load_inline, with as few headers as it can do with: it builds in seconds."""

import torch
from torch.utils.cpp_extension import load_inline

KERNEL = r"""
__global__ void silu(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = x[i];  // the line that waits
        out[i] = v / (1.0f + expf(-v));
    }
}

void launch(size_t x, size_t out, int n, size_t stream) {
    silu<<<n / 256, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
        reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), n);
}
"""
BINDING = r"""
#include <pybind11/pybind11.h>

void launch(size_t x, size_t out, int n, size_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("launch", &launch); }
"""
built = load_inline(
    "silu_inline",
    cpp_sources=BINDING,
    cuda_sources="#include <cstddef>\n" + KERNEL,
    no_implicit_headers=True,
)


def run(x):
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    built.launch(x.data_ptr(), out.data_ptr(), x.numel(), stream)
    return out
