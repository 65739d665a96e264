// Combine: the weighted sum of a token's experts' outputs, in the order of its slots. One block per
// token, eight columns per thread.
#include "element.cuh"

constexpr int kTopk = TOPK;

// rows: [slots][hidden], sorted by expert; row_of_slot, weights: [tokens][topk]; out:
// [tokens][hidden].
extern "C" __global__ void weigh(const Chunk* __restrict__ rows,
                                 const int* __restrict__ row_of_slot,
                                 const float* __restrict__ weights, Chunk* __restrict__ out) {
    const int token = blockIdx.x, column = threadIdx.x;
    Chunk row[kTopk];
    float weight[kTopk], sum[8] = {};
#pragma unroll
    for (int i = 0; i < kTopk; ++i) {
        const size_t at = row_of_slot[token * kTopk + i];
        row[i] = rows[at * blockDim.x + column];
        weight[i] = weights[token * kTopk + i];
    }
#pragma unroll
    for (int i = 0; i < kTopk; ++i) {
        const unsigned pairs[4] = {row[i].x, row[i].y, row[i].z, row[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sum[2 * j] += weight[i] * low(pairs[j]);
            sum[2 * j + 1] += weight[i] * high(pairs[j]);
        }
    }
    out[static_cast<size_t>(token) * blockDim.x + column] = Chunk{
        pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7])};
}
