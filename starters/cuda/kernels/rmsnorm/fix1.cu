// To fill in: still a copy of baseline.
#include <cuda_fp16.h>

extern "C" __global__ void rmsnorm(const __half* __restrict__ x, const __half* __restrict__ weight,
                                   __half* __restrict__ out, int rows, int columns, float eps) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += static_cast<size_t>(row) * columns;
    out += static_cast<size_t>(row) * columns;

    // To change: a lane reads two bytes at a time in both loops. A row of 4096 begins at a multiple
    // of 16 bytes: read eight halves at a time there, and one at a time what is left.
    float sum = 0.0f;
    for (int c = lane; c < columns; c += 32) {
        const float value = __half2float(x[c]);
        sum += value * value;
    }
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    const float scale = rsqrtf(sum / columns + eps);
    for (int c = lane; c < columns; c += 32) {
        out[c] = __float2half(__half2float(x[c]) * scale * __half2float(weight[c]));
    }
}
