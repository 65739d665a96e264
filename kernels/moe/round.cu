// Sums in fp32 as bf16, eight a thread.
#include "element.cuh"

extern "C" __global__ void round_sums(const float4* __restrict__ sums, Chunk* __restrict__ out) {
    const size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const float4 a = sums[2 * at], b = sums[2 * at + 1];
    out[at] = Chunk{pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w)};
}
