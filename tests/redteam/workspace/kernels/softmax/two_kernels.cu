// Softmax in two launches, a block of 256 threads a row.
#include "block.cuh"

extern "C" __global__ void exponentials(const float* x, float* out, float* sums, int cols) {
    const long long begin = (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += out[begin + i] = expf(x[begin + i] - most);
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void divide(float* out, const float* sums, int cols) {
    for (int i = threadIdx.x; i < cols; i += 256)
        out[(long long)blockIdx.x * cols + i] /= sums[blockIdx.x];
}
