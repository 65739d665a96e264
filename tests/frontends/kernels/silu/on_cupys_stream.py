# mypy: ignore-errors
"""CuPy on its own stream, which a call may not be on."""

import cupy
import torch

SOURCE = r"""
extern "C" __global__ void silu(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] / (1.0f + expf(-x[i]));
}
"""
silu = cupy.RawKernel(SOURCE, "silu")
stream = cupy.cuda.Stream(non_blocking=True)


def run(x):
    out = torch.empty_like(x)
    with stream:
        n = x.numel()
        silu((n // 256,), (256,), (x.data_ptr(), out.data_ptr(), cupy.int32(n)))
    return out
