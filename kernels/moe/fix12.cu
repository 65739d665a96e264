// As fix11.cu, but operands go through a pipeline of shared memory stages, filled by cp.async. A
// thread reads only the bytes that it copied itself, so the main loop needs no barrier.
// EARLY: programmatic dependent launch; down loads its first weights while up still runs.
#include "few.cuh"

constexpr int kStages = STAGES;

// A circular buffer of kStages stages. A stage has kChunks 16-byte chunks of every thread.
template <int kChunks>
struct CopyPipeline {
    unsigned char* thread_base;

    __device__ __forceinline__ CopyPipeline(unsigned char* raw)
        : thread_base(raw + threadIdx.x * 16) {}

    __device__ __forceinline__ unsigned char* address(int step, int chunk) const {
        return thread_base + (step % kStages * kChunks + chunk) * (32 * kWarps * 16);
    }
    __device__ __forceinline__ void copy(int step, int chunk, const unsigned short* from,
                                         bool valid = true) const {
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                     ::"r"(shared_address(address(step, chunk))), "l"(from), "r"(valid ? 16 : 0)
                     : "memory");
    }
    __device__ __forceinline__ Chunk read(int step, int chunk) const {
        return *reinterpret_cast<const Chunk*>(address(step, chunk));
    }
};

#if UP
// x: [tokens][hidden]; ids, weights: [tokens][topk]; w13: [experts][2][intermediate][hidden];
// h: [tokens][topk][intermediate]. Grid: (intermediate / 16, upper bound of active experts).
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
up(const unsigned short* __restrict__ x, const int* __restrict__ ids,
   const float* __restrict__ weights, const unsigned short* __restrict__ w13,
   unsigned short* __restrict__ h, int tokens, int topk, int hidden, int intermediate) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ int slot_of[kMaxTokens];
    __shared__ float partial[kWarps][kGroups][2][4][32];
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

    CopyPipeline<8 + 2 * kGroups> pipeline(raw);
    const int steps = max(0, (hidden / 64 - warp + kWarps - 1) / kWarps);
    auto load_stage = [&](int step) {
        const int k = (step * kWarps + warp) * 64;
        if (step < steps) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                pipeline.copy(step, 4 * half, gate + k + 32 * half);
                pipeline.copy(step, 4 * half + 1, gate + eight_rows + k + 32 * half);
                pipeline.copy(step, 4 * half + 2, up_weights + k + 32 * half);
                pipeline.copy(step, 4 * half + 3, up_weights + eight_rows + k + 32 * half);
#pragma unroll
                for (int n = 0; n < kGroups; ++n)
                    pipeline.copy(step, 8 + 2 * n + half,
                                  has_token[n] ? x + static_cast<size_t>(8 * n + g) * hidden + k +
                                                     8 * t + 32 * half
                                               : x,
                                  has_token[n]);
            }
        }
        cp_async_commit();
    };
    for (int step = 0; step < kStages - 1; ++step) load_stage(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<kStages - 2>();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Chunk w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) w[i] = pipeline.read(step, 4 * half + i);
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const Chunk b = pipeline.read(step, 8 + 2 * n + half);
                mma(sum[n][0], w[0], w[1], b);
                mma(sum[n][1], w[2], w[3], b);
            }
        }
        load_stage(step + kStages - 1);
    }
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
// h: [tokens][topk][intermediate]; w2: [experts][hidden][intermediate]; out: [tokens][hidden].
// Grid: hidden / 16.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
down(const unsigned short* __restrict__ h, const int* __restrict__ ids,
     const unsigned short* __restrict__ w2, unsigned short* __restrict__ out, int tokens, int topk,
     int hidden, int intermediate) {
    extern __shared__ __align__(16) unsigned char raw[];
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

    CopyPipeline<4 + 2 * kGroups> pipeline(raw);
    const int begin = min(steps, warp * steps_per_warp);
    auto position = [&](int step) {  // the expert's rank, and the lane's first column
        const int rank = step / steps_per_expert;
        return make_int2(rank, (step - rank * steps_per_expert) * 64 + 8 * t);
    };
    auto load_weights = [&](int step) {
        if (step >= end) return;
        const int2 at = position(step);
        const unsigned short* from =
            w2 + (static_cast<size_t>(expert_of[at.x]) * hidden + row + g) * intermediate + at.y;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            pipeline.copy(step, 2 * half, from + 32 * half);
            pipeline.copy(step, 2 * half + 1, from + eight_rows + 32 * half);
        }
    };
    auto load_h = [&](int step) {
        if (step < end) {
            const int2 at = position(step);
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
                const int slot = slot_of[at.x][8 * n + g];
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    pipeline.copy(step, 4 + 2 * n + half,
                                  slot >= 0 ? h + static_cast<size_t>(slot) * intermediate + at.y +
                                                  32 * half
                                            : h,
                                  slot >= 0);
            }
        }
        cp_async_commit();
    };
#if EARLY
    for (int step = begin; step < begin + kStages - 1; ++step) load_weights(step);
    wait_for_previous_grid();
    for (int step = begin; step < begin + kStages - 1; ++step) load_h(step);
#else
    for (int step = begin; step < begin + kStages - 1; ++step) {
        load_weights(step);
        load_h(step);
    }
#endif
    for (int step = begin; step < end; ++step) {
        cp_async_wait<kStages - 2>();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const Chunk w = pipeline.read(step, 2 * half), w8 = pipeline.read(step, 2 * half + 1);
#pragma unroll
            for (int n = 0; n < kGroups; ++n)
                mma(sum[n], w, w8, pipeline.read(step, 4 + 2 * n + half));
        }
        load_weights(step + kStages - 1);
        load_h(step + kStages - 1);
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
