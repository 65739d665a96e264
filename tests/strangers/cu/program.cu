// A whole program: headers of the host, a main(), and names that only nvcc has.
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <float.h>
#include <algorithm>
#include <iostream>
#include <vector>
#include <cublas_v2.h>
#include <torch/extension.h>
#include "helper_cuda.h"
#include "lanes.cuh"

struct Options {
    std::vector<int> sizes;
    std::string name;
};
static cublasHandle_t handle;
#define CHECK(call) check((call), __FILE__, __LINE__)

void check(cudaError_t error, const char *file, int line) {
    if (error != cudaSuccess) printf("%s:%d \"}\" %s\n", file, line, cudaGetErrorString(error));
}

__global__ void __launch_bounds__(WARP *(8 * (1)))
    softened(const float *x, float *out, int n) {
    assert(n >= 0);
    const uint at = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t last = std::numeric_limits<int32_t>::max();
    if (at < last && at < n) out[at] = x[at] > -INFINITY ? fminf(sqrtf(x[at] * x[at]), FLT_MAX) : 0;
}

int main(int argc, char **argv) {
    std::vector<float> made(argc);
    float *x = nullptr;
    CHECK(cudaMalloc(&x, made.size() * sizeof(float)));
    softened<<<1, 256>>>(x, x, argc);
    std::cout << std::max(argc, 1) << '{' << std::endl;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("check", &check); }
