"""A CUDA extension that torch compiles when the file is loaded."""

from torch.utils.cpp_extension import load_inline

source = """
__global__ void scale_kernel(const float* x, float* out, float by, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * x[i];
}

torch::Tensor scale(torch::Tensor x, double by) {
    auto out = torch::empty_like(x);
    long long n = x.numel();
    auto stream = at::cuda::getCurrentCUDAStream();
    scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), (float)by, n);
    return out;
}
"""

extension = load_inline(
    "workbench_example_scale",
    cpp_sources="torch::Tensor scale(torch::Tensor x, double by);",
    cuda_sources="#include <ATen/cuda/CUDAContext.h>\n" + source,
    functions=["scale"],
)


def scale(x, by):
    return extension.scale(x, by)
