# mypy: ignore-errors
"""CuPy, on torch's stream."""

import cupy
import torch

SOURCE = r"""
extern "C" __global__ void silu(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = x[i];  // the line that waits
        out[i] = v / (1.0f + expf(-v));
    }
}
"""
silu = cupy.RawKernel(SOURCE, "silu", options=("-lineinfo",))


def run(x):
    out = torch.empty_like(x)
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        n = x.numel()
        silu((n // 256,), (256,), (x.data_ptr(), out.data_ptr(), cupy.int32(n)))
    return out
