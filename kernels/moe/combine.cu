// Combine: the weighted sum of a token's experts' outputs, in the order of its slots.
#include "chunks.cuh"

extern "C" __global__ void __launch_bounds__(kRowThreads)
combine(const __nv_bfloat16* __restrict__ projected, const int* __restrict__ row_of_slot,
        const float* __restrict__ weights, __nv_bfloat16* __restrict__ out, int topk, int hidden) {
    const int column = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (column >= hidden) return;
    float2 sums[4] = {};
    for (int choice = 0; choice < topk; ++choice) {
        const int slot = blockIdx.x * topk + choice;
        const size_t row = row_of_slot[slot];
        const Chunk values = load_chunk(projected + row * hidden + column);
        for (int i = 0; i < 4; ++i) {
            const float2 value = __bfloat1622float2(values.pairs[i]);
            sums[i].x = fmaf(weights[slot], value.x, sums[i].x);
            sums[i].y = fmaf(weights[slot], value.y, sums[i].y);
        }
    }
    Chunk sum;
    for (int i = 0; i < 4; ++i) sum.pairs[i] = __floats2bfloat162_rn(sums[i].x, sums[i].y);
    store_chunk(out + static_cast<size_t>(blockIdx.x) * hidden + column, sum);
}
