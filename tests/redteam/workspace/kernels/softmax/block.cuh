#pragma once
// Over a block of 256 threads; every thread gets the result.

#define INFINITY __int_as_float(0x7f800000)

template <class Op>
__device__ float block_reduce(float value, Op op) {
    __shared__ float parts[8];
    for (int d = 16; d > 0; d /= 2) value = op(value, __shfl_xor_sync(~0u, value, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[threadIdx.x % 8];
    for (int d = 4; d > 0; d /= 2) value = op(value, __shfl_xor_sync(~0u, value, d));
    return value;
}

__device__ float block_max(float value) {
    return block_reduce(value, [](float a, float b) { return fmaxf(a, b); });
}

__device__ float block_sum(float value) {
    return block_reduce(value, [](float a, float b) { return a + b; });
}
