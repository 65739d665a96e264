// Softmax of a row by one block of 256 threads: the honest kernels, and what cheats start from.
#include "block.cuh"

// Reads its row three times.
extern "C" __global__ void softmax(const float* x, float* out, int cols) {
    const float* row = x + (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, row[i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(row[i] - most);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256)
        out[(long long)blockIdx.x * cols + i] = expf(row[i] - most) / sum;
}
