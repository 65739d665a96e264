// Templates in namespaces, of one file that has no main().
#include <cassert>
#include <cstdio>
#include <cuda_runtime.h>

namespace outer {
namespace inner {
template <typename T, int N = (3 > 2)>
__global__ void scale(const T *x, T *out, uint n) {
    uint at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) out[at] = x[at] * T(N);
}
}  // namespace inner
__global__ void add(float *x) { x[threadIdx.x] += 1; }
}  // namespace outer
namespace {
__global__ void hidden(float *x) { x[threadIdx.x] += 2; }
}  // namespace
extern "C" {
__global__ void plain(float *x) { x[threadIdx.x] += 3; }
}
