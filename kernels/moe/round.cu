// Rounds the fp32 sums to bf16, eight elements per thread.
#include "element.cuh"

extern "C" __global__ void round_sums(const float4* __restrict__ sums, Chunk* __restrict__ out) {
    const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const float4 a = sums[2 * i], b = sums[2 * i + 1];
    out[i] = Chunk{pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w)};
}
