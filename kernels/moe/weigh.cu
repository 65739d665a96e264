// The rows of a token's experts, weighed and added in the order of its slots. A block a token, eight
// columns a thread.
#include "element.cuh"

constexpr int kTopk = TOPK;

// rows: [slots][hidden] by place; place, weights: [tokens][topk]; out: [tokens][hidden].
extern "C" __global__ void weigh(const Chunk* __restrict__ rows, const int* __restrict__ place,
                                 const float* __restrict__ weights, Chunk* __restrict__ out) {
    const int token = blockIdx.x, column = threadIdx.x;
    Chunk row[kTopk];
    float weight[kTopk], sum[8] = {};
#pragma unroll
    for (int i = 0; i < kTopk; ++i) {
        row[i] = rows[static_cast<size_t>(place[token * kTopk + i]) * blockDim.x + column];
        weight[i] = weights[token * kTopk + i];
    }
#pragma unroll
    for (int i = 0; i < kTopk; ++i) {
        const unsigned two[4] = {row[i].x, row[i].y, row[i].z, row[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sum[2 * j] += weight[i] * low(two[j]);
            sum[2 * j + 1] += weight[i] * high(two[j]);
        }
    }
    out[static_cast<size_t>(token) * blockDim.x + column] = Chunk{
        pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7])};
}
