// Softmax of a row by one block of 256 threads, with exponentials in half precision.
#include <cuda_fp16.h>

#include "block.cuh"

extern "C" __global__ void softmax(const float* x, float* out, int cols) {
    const long long begin = (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[begin + i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < cols; i += 256)
        sum += __half2float(hexp(__float2half(x[begin + i] - most)));
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < cols; i += 256)
        out[begin + i] = __half2float(hexp(__float2half(x[begin + i] - most))) / sum;
}
