// Eight halves a lane at a time, where a row begins at a multiple of 16 bytes.
#include <cuda_fp16.h>

extern "C" __global__ void rmsnorm(const __half* __restrict__ x, const __half* __restrict__ weight,
                                   __half* __restrict__ out, int rows, int columns, float eps) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += static_cast<size_t>(row) * columns;
    out += static_cast<size_t>(row) * columns;
    const size_t places = reinterpret_cast<size_t>(x) | reinterpret_cast<size_t>(weight) |
                          reinterpret_cast<size_t>(out);
    const int eights = columns % 8 == 0 && places % 16 == 0 ? columns / 8 : 0;
    const uint4* from = reinterpret_cast<const uint4*>(x);
    const uint4* gains = reinterpret_cast<const uint4*>(weight);
    uint4* to = reinterpret_cast<uint4*>(out);

    float sum = 0.0f;
    for (int c = lane; c < eights; c += 32) {
        const uint4 eight = from[c];
        const __half2* pairs = reinterpret_cast<const __half2*>(&eight);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 value = __half22float2(pairs[i]);
            sum += value.x * value.x + value.y * value.y;
        }
    }
    for (int c = 8 * eights + lane; c < columns; c += 32) {
        const float value = __half2float(x[c]);
        sum += value * value;
    }
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    const float scale = rsqrtf(sum / columns + eps);
    for (int c = lane; c < eights; c += 32) {
        const uint4 eight = from[c], gain = gains[c];
        uint4 result;
        const __half2* pairs = reinterpret_cast<const __half2*>(&eight);
        const __half2* by = reinterpret_cast<const __half2*>(&gain);
        __half2* results = reinterpret_cast<__half2*>(&result);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 value = __half22float2(pairs[i]), times = __half22float2(by[i]);
            results[i] = __floats2half2_rn(value.x * scale * times.x, value.y * scale * times.y);
        }
        to[c] = result;
    }
    for (int c = 8 * eights + lane; c < columns; c += 32) {
        out[c] = __float2half(__half2float(x[c]) * scale * __half2float(weight[c]));
    }
}
