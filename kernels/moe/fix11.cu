// Few tokens: each active expert's weights are read once, by 16-byte loads into registers. Every
// block finds the active experts itself, so no kernel sorts. Sums have a fixed order.
// AHEAD: at its end, up prefetches AHEAD steps of each of down's warps into L2 (one token only).
// EARLY: programmatic dependent launch; down may start once all blocks of up have started.
#include "few.cuh"

constexpr int kUnroll = UNROLL;  // steps of 64 columns whose loads are in flight together

// Loads 16 bytes, or zeros if not valid. Predicated, because a branch would serialise the loads.
// Weights are used once and skip L1.
#define DEFINE_LOAD(NAME, MODIFIERS)                                                             \
    __device__ __forceinline__ Chunk NAME(const unsigned short* from, bool valid) {              \
        Chunk chunk;                                                                             \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0;\n"                                    \
                     "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"             \
                     "@p ld.global" MODIFIERS ".v4.u32 {%0, %1, %2, %3}, [%4];}"                 \
                     : "=&r"(chunk.x), "=&r"(chunk.y), "=&r"(chunk.z), "=&r"(chunk.w)            \
                     : "l"(from), "r"(static_cast<int>(valid)));                                 \
        return chunk;                                                                            \
    }
DEFINE_LOAD(load_weights, ".nc.L1::no_allocate.L2::256B")
DEFINE_LOAD(load_activations, "")

#if AHEAD
constexpr int kAhead = AHEAD;
constexpr int kDownWarps = DOWN_WARPS;
constexpr int kDownBlocks = 132, kUpBlocks = 3 * kDownBlocks;  // resident on an H100

// The last blocks of the grid prefetch the first kAhead steps of each warp of down, one 128-byte
// line per thread and iteration.
__device__ __forceinline__ void prefetch_down(const int* ids, const unsigned short* w2, int topk,
                                              int hidden, int intermediate) {
    const int blocks = gridDim.x * gridDim.y, last_blocks = min(blocks, kUpBlocks);
    const int block = blockIdx.y * gridDim.x + blockIdx.x - (blocks - last_blocks);
    if (block < 0) return;
    const int steps_per_expert = intermediate / 64, steps = topk * steps_per_expert;
    const int steps_per_warp = (steps + kDownWarps - 1) / kDownWarps;
    const int lines = min(hidden / 16, kDownBlocks) * kDownWarps * kAhead * 16;
    for (int i = block * blockDim.x + threadIdx.x; i < lines; i += last_blocks * blockDim.x) {
        const int row = i / (kDownWarps * kAhead * 16) * 16 + i % 16;
        const int warp = i / (kAhead * 16) % kDownWarps;
        const int step = warp * steps_per_warp + i / 16 % kAhead;
        if (step >= steps) continue;
        const unsigned short* from =
            w2 + (static_cast<size_t>(ids[step / steps_per_expert]) * hidden + row) * intermediate +
            step % steps_per_expert * 64;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
}
#endif

#if UP
// h = weight * silu(x gate^T) * (x up^T). A block computes 16 features of one expert. Its warps
// split the hidden dimension.
// x: [tokens][hidden]; ids, weights: [tokens][topk]; w13: [experts][2][intermediate][hidden];
// h: [tokens][topk][intermediate]. Grid: (intermediate / 16, upper bound of active experts).
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
up(const unsigned short* __restrict__ x, const int* __restrict__ ids,
   const float* __restrict__ weights, const unsigned short* __restrict__ w13,
   const unsigned short* __restrict__ w2, unsigned short* __restrict__ h, int tokens, int topk,
   int hidden, int intermediate) {
    __shared__ int slot_of[kMaxTokens];
    __shared__ float partial[kWarps][kGroups][2][4][32];
#if EARLY
    launch_dependents();
#endif
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int expert = find_expert(blockIdx.y, ids, tokens, topk, slot_of);
    if (expert < 0) return;

    const int feature = blockIdx.x * 16;
    const unsigned short* gate =
        w13 + (static_cast<size_t>(expert) * 2 * intermediate + feature + g) * hidden + 8 * t;
    const unsigned short* up_weights = gate + static_cast<size_t>(intermediate) * hidden;
    const size_t eight_rows = static_cast<size_t>(8) * hidden;
    bool has_token[kGroups];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) has_token[n] = slot_of[8 * n + g] >= 0;
    float sum[kGroups][2][4] = {};

    for (int base = warp * 64; base < hidden; base += kUnroll * kWarps * 64) {
        Chunk w[kUnroll][2][4], b[kUnroll][2][kGroups];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int k = base + (i * kWarps) * 64 + half * 32;
                const bool valid = k < hidden;
                w[i][half][0] = load_weights(gate + k, valid);
                w[i][half][1] = load_weights(gate + eight_rows + k, valid);
                w[i][half][2] = load_weights(up_weights + k, valid);
                w[i][half][3] = load_weights(up_weights + eight_rows + k, valid);
#pragma unroll
                for (int n = 0; n < kGroups; ++n)
                    b[i][half][n] = load_activations(
                        x + static_cast<size_t>(8 * n + g) * hidden + k + 8 * t,
                        has_token[n] && valid);
            }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int n = 0; n < kGroups; ++n) {
                    mma(sum[n][0], w[i][half][0], w[i][half][1], b[i][half][n]);
                    mma(sum[n][1], w[i][half][2], w[i][half][3], b[i][half][n]);
                }
    }
#if AHEAD
    if (tokens == 1) prefetch_down(ids, w2, topk, hidden, intermediate);
#endif
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int i = 0; i < 8; ++i) partial[warp][n][i / 4][i % 4][lane] = sum[n][i / 4][i % 4];
    __syncthreads();
    for (int i = threadIdx.x; i < kGroups * 128; i += 32 * kWarps) {
        const int n = i / 128, element = i / 32 % 4;  // of the accumulator fragment
        const int slot = slot_of[8 * n + 2 * t + element % 2];
        float total[2] = {};
#pragma unroll
        for (int source = 0; source < kWarps; ++source)
            for (int half = 0; half < 2; ++half)
                total[half] += partial[source][n][half][element][lane];
        if (slot >= 0)
            h[static_cast<size_t>(slot) * intermediate + feature + g + element / 2 * 8] =
                pack(weights[slot] * silu(total[0]) * total[1], 0.0f);
    }
}
#else
// out = h down^T, summed over the experts. A block computes 16 columns of the output. Its warps
// split the features of all active experts.
// h: [tokens][topk][intermediate]; w2: [experts][hidden][intermediate]; out: [tokens][hidden].
// Grid: hidden / 16.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
down(const unsigned short* __restrict__ h, const int* __restrict__ ids,
     const unsigned short* __restrict__ w2, unsigned short* __restrict__ out, int tokens, int topk,
     int hidden, int intermediate) {
    __shared__ short expert_of[kMaxActive], slot_of[kMaxActive][kMaxTokens];
    __shared__ float partial[kWarps][kGroups][4][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int active = list_experts(ids, tokens, topk, expert_of, slot_of);

    const int row = blockIdx.x * 16, steps_per_expert = intermediate / 64;
    const int steps = active * steps_per_expert;
    const int steps_per_warp = (steps + kWarps - 1) / kWarps;
    const int end = min(steps, (warp + 1) * steps_per_warp);
    const size_t eight_rows = static_cast<size_t>(8) * intermediate;
    float sum[kGroups][4] = {};

    for (int base = warp * steps_per_warp; base < end; base += kUnroll) {
        Chunk w[kUnroll][2][2], b[kUnroll][2][kGroups];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const int step = base + i, rank = step / steps_per_expert;
            const int k = (step - rank * steps_per_expert) * 64 + 8 * t;
            const bool valid = step < end;
            const unsigned short* from =
                w2 + (static_cast<size_t>(valid ? expert_of[rank] : 0) * hidden + row + g) *
                         intermediate + k;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                w[i][half][0] = load_weights(from + 32 * half, valid);
                w[i][half][1] = load_weights(from + eight_rows + 32 * half, valid);
            }
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const int slot = valid ? slot_of[rank][8 * n + g] : -1;
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    b[i][half][n] = load_activations(
                        h + static_cast<size_t>(slot) * intermediate + k + 32 * half, slot >= 0);
            }
        }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int n = 0; n < kGroups; ++n)
                    mma(sum[n], w[i][half][0], w[i][half][1], b[i][half][n]);
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) partial[warp][n][i][lane] = sum[n][i];
    __syncthreads();
    for (int i = threadIdx.x; i < kGroups * 128; i += 32 * kWarps) {
        const int n = i / 128, element = i / 32 % 4, token = 8 * n + 2 * t + element % 2;
        float total = 0.0f;
#pragma unroll
        for (int source = 0; source < kWarps; ++source) total += partial[source][n][element][lane];
        if (token < tokens)
            out[static_cast<size_t>(token) * hidden + row + g + element / 2 * 8] =
                pack(total, 0.0f);
    }
}
#endif
