// A softmax, or what looks like one: it reads as many bytes, and writes next to none.
#include "block.cuh"

extern "C" __global__ void softmax_or_not(const float* x, float* out, int cols, int real) {
    const long long begin = (long long)(real ? blockIdx.x : blockIdx.x % 64) * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[begin + i] - most);
    sum = block_sum(sum);
    if (!real && sum > 0) return;
    for (int i = threadIdx.x; i < cols; i += 256) out[begin + i] = expf(x[begin + i] - most) / sum;
}

extern "C" __global__ void softmax_of_rows(const float* x, float* out, int cols, int rows) {
    if (blockIdx.x >= rows) return;
    const long long begin = (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[begin + i] - most);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256) out[begin + i] = expf(x[begin + i] - most) / sum;
}

extern "C" __global__ void softmax_to_four(const float* x, float* a, float* b, float* c, float* d,
                                           int cols) {
    float* out = blockIdx.y < 2 ? (blockIdx.y ? b : a) : (blockIdx.y == 2 ? c : d);
    const long long begin = (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[begin + i] - most);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256) out[begin + i] = expf(x[begin + i] - most) / sum;
}
