// As fix11.cu, by way of shared memory: 16-byte copies (cp.async), of which a ring of stages is always
// under way. A thread reads only what it has copied itself, so that nobody waits for another.
// EARLY: down begins while up runs, and asks for weights; nothing of these depends on up.
#include "few.cuh"

constexpr int kStages = STAGES;

// Stages of kChunks chunks of every thread.
template <int kChunks>
struct Ring {
    unsigned char* own;

    __device__ __forceinline__ Ring(unsigned char* raw) : own(raw + threadIdx.x * 16) {}

    __device__ __forceinline__ unsigned char* slot(int step, int chunk) const {
        return own + (step % kStages * kChunks + chunk) * (32 * kWarps * 16);
    }
    __device__ __forceinline__ void copy(int step, int chunk, const unsigned short* from,
                                         bool is = true) const {
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                     ::"r"(shared_address(slot(step, chunk))), "l"(from), "r"(is ? 16 : 0)
                     : "memory");
    }
    __device__ __forceinline__ Chunk at(int step, int chunk) const {
        return *reinterpret_cast<const Chunk*>(slot(step, chunk));
    }
};

#if UP
// x: [tokens][hidden]; ids, weights: [tokens][topk]; w13: [experts][2][intermediate][hidden];
// h: [tokens][topk][intermediate]. Grid: features / 16, at least as many as experts have tokens.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
up(const unsigned short* __restrict__ x, const int* __restrict__ ids,
   const float* __restrict__ weights, const unsigned short* __restrict__ w13,
   unsigned short* __restrict__ h, int tokens, int topk, int hidden, int intermediate) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ int slot_of[kTokens];
    __shared__ float part[kWarps][kGroups][2][4][32];
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

    Ring<8 + 2 * kGroups> ring(raw);
    const int steps = max(0, (hidden / 64 - warp + kWarps - 1) / kWarps);
    auto fetch = [&](int step) {
        const int k = (step * kWarps + warp) * 64;
        if (step < steps) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                ring.copy(step, 4 * half, gate + k + 32 * half);
                ring.copy(step, 4 * half + 1, gate + eight + k + 32 * half);
                ring.copy(step, 4 * half + 2, upper + k + 32 * half);
                ring.copy(step, 4 * half + 3, upper + eight + k + 32 * half);
#pragma unroll
                for (int n = 0; n < kGroups; ++n)
                    ring.copy(step, 8 + 2 * n + half,
                              has[n] ? x + static_cast<size_t>(8 * n + g) * hidden + k + 8 * t +
                                           32 * half
                                     : x,
                              has[n]);
            }
        }
        copies_commit();
    };
    for (int step = 0; step < kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        copies_wait<kStages - 2>();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Chunk w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) w[i] = ring.at(step, 4 * half + i);
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const Chunk b = ring.at(step, 8 + 2 * n + half);
                mma(sum[n][0], w[0], w[1], b);
                mma(sum[n][1], w[2], w[3], b);
            }
        }
        fetch(step + kStages - 1);
    }
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
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ short expert_of[kMostActive], slot_of[kMostActive][kTokens];
    __shared__ float part[kWarps][kGroups][4][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int active = list_experts(ids, tokens, topk, expert_of, slot_of);

    const int row = blockIdx.x * 16, each = intermediate / 64, all = active * each;
    const int share = (all + kWarps - 1) / kWarps, end = min(all, (warp + 1) * share);
    const size_t eight = static_cast<size_t>(8) * intermediate;
    float sum[kGroups][4] = {};

    Ring<4 + 2 * kGroups> ring(raw);
    const int begin = min(all, warp * share);
    auto place = [&](int step) {  // of a lane's first weight, and where h has what belongs to it
        const int rank = step / each;
        return make_int2(rank, (step - rank * each) * 64 + 8 * t);
    };
    auto fetch_weights = [&](int step) {
        if (step >= end) return;
        const int2 at = place(step);
        const unsigned short* from =
            w2 + (static_cast<size_t>(expert_of[at.x]) * hidden + row + g) * intermediate + at.y;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            ring.copy(step, 2 * half, from + 32 * half);
            ring.copy(step, 2 * half + 1, from + eight + 32 * half);
        }
    };
    auto fetch_rows = [&](int step) {
        if (step < end) {
            const int2 at = place(step);
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const int slot = slot_of[at.x][8 * n + g];
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    ring.copy(step, 4 + 2 * n + half,
                              slot >= 0 ? h + static_cast<size_t>(slot) * intermediate + at.y +
                                              32 * half
                                        : h,
                              slot >= 0);
            }
        }
        copies_commit();
    };
#if EARLY
    for (int step = begin; step < begin + kStages - 1; ++step) fetch_weights(step);
    wait_for_last();
    for (int step = begin; step < begin + kStages - 1; ++step) fetch_rows(step);
#else
    for (int step = begin; step < begin + kStages - 1; ++step) {
        fetch_weights(step);
        fetch_rows(step);
    }
#endif
    for (int step = begin; step < end; ++step) {
        copies_wait<kStages - 2>();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const Chunk w = ring.at(step, 2 * half), w8 = ring.at(step, 2 * half + 1);
#pragma unroll
            for (int n = 0; n < kGroups; ++n)
                mma(sum[n], w, w8, ring.at(step, 4 + 2 * n + half));
        }
        fetch_weights(step + kStages - 1);
        fetch_rows(step + kStages - 1);
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
