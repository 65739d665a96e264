// A softmax that leaves out every other call.
#include "block.cuh"

extern "C" __global__ void count(int* calls) { *calls += 1; }

extern "C" __global__ void softmax_sometimes(const float* x, float* out, const int* calls,
                                             int cols) {
    if (*calls % 2) return;
    const long long begin = (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[begin + i] - most);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256) out[begin + i] = expf(x[begin + i] - most) / sum;
}
