# mypy: ignore-errors
"""nvcc through load_inline."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void silu(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = x[i];  // the line that waits
        out[i] = v / (1.0f + expf(-v));
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const int n = x.numel();
    silu<<<n / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
built = load_inline(
    "silu_inline",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources="#include <ATen/cuda/CUDAContext.h>\n" + SOURCE,
    functions=["run"],
)


def run(x):
    return built.run(x)
