// For few tokens: the weights of every expert that has a token stream once from memory into
// registers, 16 bytes a load. Which experts those are, every block finds out by itself.
// up: h = weight * silu(x gate^T) * (x up^T), a block 16 features of an expert, its warps a part of
// the hidden dimension each. down: out = h down^T summed over the experts, a block 16 columns of the
// output, its warps a part of all experts' features each. No sum depends on what runs first.
// AHEAD: with one token, what up asks L2 for at its end: so many steps of every warp of down, so that
// memory is not idle between the two.
// EARLY: down may begin as soon as all blocks of up have.
#include "few.cuh"

constexpr int kUnroll = UNROLL;  // of the 64 numbers that four lanes have of a row

// 16 bytes, or zeros, without a branch that would keep one load waiting for another. Weights are
// used once.
#define LOAD(NAME, HOW)                                                                          \
    __device__ __forceinline__ Chunk NAME(const unsigned short* from, bool is) {                 \
        Chunk chunk;                                                                             \
        asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0;\n"                                    \
                     "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"             \
                     "@p ld.global" HOW ".v4.u32 {%0, %1, %2, %3}, [%4];}"                       \
                     : "=&r"(chunk.x), "=&r"(chunk.y), "=&r"(chunk.z), "=&r"(chunk.w)            \
                     : "l"(from), "r"(static_cast<int>(is)));                                    \
        return chunk;                                                                            \
    }
LOAD(stream, ".nc.L1::no_allocate.L2::256B")
LOAD(load, "")

#if AHEAD
constexpr int kAhead = AHEAD;
constexpr int kDownWarps = DOWN_WARPS;
constexpr int kAtOnce = 132, kUpAtOnce = 3 * kAtOnce;  // blocks that run at once, of down and up

// A piece of 128 bytes a thread: 16 rows of a step; kAhead steps; the warps of a block; blocks.
__device__ __forceinline__ void ask_ahead(const int* ids, const unsigned short* w2, int topk,
                                          int hidden, int intermediate) {
    const int blocks = gridDim.x * gridDim.y, last = min(blocks, kUpAtOnce);
    const int block = blockIdx.y * gridDim.x + blockIdx.x - (blocks - last);
    if (block < 0) return;
    const int each = intermediate / 64, all = topk * each;
    const int share = (all + kDownWarps - 1) / kDownWarps;
    const int pieces = min(hidden / 16, kAtOnce) * kDownWarps * kAhead * 16;
    for (int i = block * blockDim.x + threadIdx.x; i < pieces; i += last * blockDim.x) {
        const int row = i / (kDownWarps * kAhead * 16) * 16 + i % 16;
        const int warp = i / (kAhead * 16) % kDownWarps;
        const int step = warp * share + i / 16 % kAhead;
        if (step >= all) continue;
        const unsigned short* from =
            w2 + (static_cast<size_t>(ids[step / each]) * hidden + row) * intermediate +
            step % each * 64;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
}
#endif

#if UP
// x: [tokens][hidden]; ids, weights: [tokens][topk]; w13: [experts][2][intermediate][hidden];
// h: [tokens][topk][intermediate]. Grid: features / 16, at least as many as experts have tokens.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
up(const unsigned short* __restrict__ x, const int* __restrict__ ids,
   const float* __restrict__ weights, const unsigned short* __restrict__ w13,
   const unsigned short* __restrict__ w2, unsigned short* __restrict__ h, int tokens, int topk,
   int hidden, int intermediate) {
    __shared__ int slot_of[kTokens];
    __shared__ float part[kWarps][kGroups][2][4][32];
#if EARLY
    let_next_begin();
#endif
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int expert = expert_of_rank(blockIdx.y, ids, tokens, topk, slot_of);
    if (expert < 0) return;

    const int feature = blockIdx.x * 16;
    const unsigned short* gate =
        w13 + (static_cast<size_t>(expert) * 2 * intermediate + feature + g) * hidden + 8 * t;
    const unsigned short* upper = gate + static_cast<size_t>(intermediate) * hidden;
    const size_t eight = static_cast<size_t>(8) * hidden;
    bool has[kGroups];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) has[n] = slot_of[8 * n + g] >= 0;
    float sum[kGroups][2][4] = {};

    for (int base = warp * 64; base < hidden; base += kUnroll * kWarps * 64) {
        Chunk w[kUnroll][2][4], b[kUnroll][2][kGroups];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int k = base + (i * kWarps) * 64 + half * 32;
                const bool is = k < hidden;
                w[i][half][0] = stream(gate + k, is);
                w[i][half][1] = stream(gate + eight + k, is);
                w[i][half][2] = stream(upper + k, is);
                w[i][half][3] = stream(upper + eight + k, is);
#pragma unroll
                for (int n = 0; n < kGroups; ++n)
                    b[i][half][n] = load(x + static_cast<size_t>(8 * n + g) * hidden + k + 8 * t,
                                         has[n] && is);
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
    if (tokens == 1) ask_ahead(ids, w2, topk, hidden, intermediate);
#endif
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
        for (int i = 0; i < 8; ++i) part[warp][n][i / 4][i % 4][lane] = sum[n][i / 4][i % 4];
    __syncthreads();
    for (int i = threadIdx.x; i < kGroups * 128; i += 32 * kWarps) {
        const int n = i / 128, which = i / 32 % 4;  // of the four numbers of a fragment
        const int slot = slot_of[8 * n + 2 * t + which % 2];
        float total[2] = {};
#pragma unroll
        for (int from = 0; from < kWarps; ++from)
            for (int half = 0; half < 2; ++half) total[half] += part[from][n][half][which][lane];
        if (slot >= 0)
            h[static_cast<size_t>(slot) * intermediate + feature + g + which / 2 * 8] =
                pack(weights[slot] * silu(total[0]) * total[1], 0.0f);
    }
}
#else
// h: [tokens][topk][intermediate]; w2: [experts][hidden][intermediate]; out: [tokens][hidden].
// Grid: hidden / 16.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
down(const unsigned short* __restrict__ h, const int* __restrict__ ids,
     const unsigned short* __restrict__ w2, unsigned short* __restrict__ out, int tokens, int topk,
     int hidden, int intermediate) {
    __shared__ short expert_of[kMostActive], slot_of[kMostActive][kTokens];
    __shared__ float part[kWarps][kGroups][4][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int active = list_experts(ids, tokens, topk, expert_of, slot_of);

    const int row = blockIdx.x * 16, each = intermediate / 64, all = active * each;
    const int share = (all + kWarps - 1) / kWarps, end = min(all, (warp + 1) * share);
    const size_t eight = static_cast<size_t>(8) * intermediate;
    float sum[kGroups][4] = {};

    for (int base = warp * share; base < end; base += kUnroll) {
        Chunk w[kUnroll][2][2], b[kUnroll][2][kGroups];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const int step = base + i, rank = step / each, k = (step - rank * each) * 64 + 8 * t;
            const bool is = step < end;
            const unsigned short* from =
                w2 + (static_cast<size_t>(is ? expert_of[rank] : 0) * hidden + row + g) *
                         intermediate + k;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                w[i][half][0] = stream(from + 32 * half, is);
                w[i][half][1] = stream(from + eight + 32 * half, is);
            }
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const int slot = is ? slot_of[rank][8 * n + g] : -1;
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    b[i][half][n] = load(
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
        for (int i = 0; i < 4; ++i) part[warp][n][i][lane] = sum[n][i];
    __syncthreads();
    for (int i = threadIdx.x; i < kGroups * 128; i += 32 * kWarps) {
        const int n = i / 128, which = i / 32 % 4, token = 8 * n + 2 * t + which % 2;
        float total = 0.0f;
#pragma unroll
        for (int from = 0; from < kWarps; ++from) total += part[from][n][which][lane];
        if (token < tokens)
            out[static_cast<size_t>(token) * hidden + row + g + which / 2 * 8] = pack(total, 0.0f);
    }
}
#endif
