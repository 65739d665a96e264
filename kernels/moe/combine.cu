// The weighted sum of what the experts of a token gave, in the order of its choices.
#include "pieces.cuh"

extern "C" __global__ void __launch_bounds__(kRowThreads)
combine(const __nv_bfloat16* __restrict__ projected, const int* __restrict__ place,
        const float* __restrict__ weights, __nv_bfloat16* __restrict__ out, int topk, int hidden) {
    const int at = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (at >= hidden) return;
    float2 sums[4] = {};
    for (int slot = 0; slot < topk; ++slot) {
        const int row = blockIdx.x * topk + slot;
        const Piece own = piece_at(projected + static_cast<size_t>(place[row]) * hidden + at);
        for (int i = 0; i < 4; ++i) {
            const float2 value = __bfloat1622float2(own.pairs[i]);
            sums[i].x = fmaf(weights[row], value.x, sums[i].x);
            sums[i].y = fmaf(weights[row], value.y, sums[i].y);
        }
    }
    Piece sum;
    for (int i = 0; i < 4; ++i) sum.pairs[i] = __floats2bfloat162_rn(sums[i].x, sums[i].y);
    put_piece(out + static_cast<size_t>(blockIdx.x) * hidden + at, sum);
}
