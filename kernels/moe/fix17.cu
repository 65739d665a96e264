// As fix16.cu, but with one pipeline per block, bulk copies of several rows, sizes known at compile
// time, and no grid barrier: each value of h carries the tag of its call, and blocks poll for it.
// MEET: blocks poll only after all blocks have published their part of h.
#include "element.cuh"
#include "hopper.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
constexpr int kRows = ROWS;        // gate rows in a stage, and as many up rows
constexpr int kWarps = 2 * kRows;  // math warps, one row of a stage each
// Other roles: loading weights, writing this block's part of h, and receiving all of h.
constexpr int kLoadWarp = kWarps, kPublishWarp = kWarps + 1, kReceiveWarp = kWarps + 2;
constexpr int kThreads = 32 * (kWarps + 3);
constexpr int kStages = STAGES;
constexpr int kMatrixBytes = 2 * kHidden * kRows, kStageBytes = 2 * kMatrixBytes;
constexpr int kRowBytes = 2 * kIntermediate;
// The down projection has groups of kWarps rows, one row per warp.
constexpr int kGroupsPerStage = GROUPS_PER_STAGE;
constexpr int kMaxRowGroups = MAX_ROW_GROUPS;  // of a block
constexpr int kPairs = kTopk * kIntermediate, kUnits = kPairs / kRows;
static_assert(kGroupsPerStage * kWarps * kRowBytes <= kStageBytes);
static_assert(kMaxRowGroups % kGroupsPerStage == 0);
static_assert(kIntermediate % kRows == 0 && kTopk <= 32 && kStages <= 32);

// Persists across calls. Counters only grow: each block derives the call's number from them.
struct GlobalState {
    unsigned long long blocks;  // started
    unsigned units;             // claimed; every block claims one too many
    unsigned blocks_published;  // MEET only
    unsigned unused[28];
    // bf16 value in the upper half, tag of the call in the lower. Double-buffered by call, because
    // a slow block may still read the previous h.
    uint4 h[2][kPairs / 4];
};

struct SharedStorage {
    unsigned char stages[kStages][kStageBytes];
    Chunk h[kPairs / 8];
    Barrier full[kStages], empty[kStages], sums_ready[kStages], h_ready[kTopk], call_known;
    float sum[kStages][kWarps];
    int unit[kStages];  // gate/up unit in a stage; -1: the down projection begins
    int expert[kTopk];
    unsigned call;
};

// TMA bulk copy of contiguous bytes, a multiple of 16.
__device__ __forceinline__ void bulk_copy(void* to, const unsigned short* from, int bytes,
                                          Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void fma_pair(float& sum, unsigned a, float b, float b1) {
    sum = fmaf(low(a), b, sum);
    sum = fmaf(high(a), b1, sum);
}

__device__ __forceinline__ float warp_sum(float sum) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
}

__device__ __forceinline__ uint4 load_relaxed(const uint4* at) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ unsigned load_relaxed(const unsigned* at) {
    unsigned v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ bool from_call(unsigned call, unsigned a, unsigned b) {
    return (((a ^ call) | (b ^ call)) & 0xffff) == 0;
}

struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// x, out: [hidden]; ids, weights: [topk]; w13: [experts][2][intermediate][hidden]; w2:
// [experts][hidden][intermediate]; state: initially zero.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
experts(const unsigned short* __restrict__ x, const int* __restrict__ ids,
        const float* __restrict__ weights, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, unsigned short* __restrict__ out,
        GlobalState* state) {
    extern __shared__ __align__(128) unsigned char raw[];
    SharedStorage& s = *reinterpret_cast<SharedStorage*>(raw);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int begin = blockIdx.x * kHidden / gridDim.x;
    const int end = (blockIdx.x + 1) * kHidden / gridDim.x;
    const int row_groups = (end - begin + kWarps - 1) / kWarps;

    if (warp == kLoadWarp) {
        const int expert = lane < kTopk ? ids[lane] : 0;
        if (lane < kTopk) {
            s.expert[lane] = expert;
            barrier_init(&s.h_ready[lane], 32);
        }
        if (lane < kStages) {
            barrier_init(&s.full[lane], 1);
            barrier_init(&s.empty[lane], kWarps + 1);
            barrier_init(&s.sums_ready[lane], kWarps);
        }
        if (lane == 0) barrier_init(&s.call_known, 1);
        barrier_init_fence();
    }
    __syncthreads();

    if (warp == kLoadWarp) {
        if (lane > 0) return;
        const unsigned static_units = min(kStages, kUnits / static_cast<int>(gridDim.x));
        PipelineState pipe;
        unsigned next = blockIdx.x, base = 0;
        // The first units are static; the block claims one more whenever a stage is free.
        for (unsigned n = 0;; ++n) {
            barrier_wait(&s.empty[pipe.stage], pipe.parity ^ 1);
            const unsigned unit = next;
            if (unit >= kUnits) break;
            if (n + 1 < static_units) {
                next = unit + gridDim.x;
            } else {
                if (n + 1 == static_units) {
                    barrier_wait(&s.call_known, 0);
                    base = static_units * gridDim.x -
                           s.call * (kUnits - (static_units - 1) * gridDim.x);
                }
                next = base + atomicAdd(&state->units, 1u);
            }
            const int row = unit * kRows, slot = row / kIntermediate;
            const unsigned short* gate =
                w13 + (static_cast<size_t>(s.expert[slot]) * 2 * kIntermediate + row -
                       slot * kIntermediate) * kHidden;
            Barrier* full = &s.full[pipe.stage];
            s.unit[pipe.stage] = unit;
            barrier_expect(full, kStageBytes);
            bulk_copy(s.stages[pipe.stage], gate, kMatrixBytes, full);
            bulk_copy(s.stages[pipe.stage] + kMatrixBytes, gate + kIntermediate * kHidden,
                      kMatrixBytes, full);
            pipe.advance();
        }
        s.unit[pipe.stage] = -1;
        for (int slot = 0; slot < kTopk; ++slot)
            for (int group = 0; group < row_groups; group += kGroupsPerStage) {
                if (slot + group > 0) barrier_wait(&s.empty[pipe.stage], pipe.parity ^ 1);
                const int row = begin + group * kWarps;
                const int bytes = min(kGroupsPerStage * kWarps, end - row) * kRowBytes;
                barrier_expect(&s.full[pipe.stage], bytes);
                bulk_copy(
                    s.stages[pipe.stage],
                    w2 + (static_cast<size_t>(s.expert[slot]) * kHidden + row) * kIntermediate,
                    bytes, &s.full[pipe.stage]);
                pipe.advance();
            }
        return;
    }

    if (warp == kPublishWarp) {
        barrier_wait(&s.call_known, 0);
        const unsigned call = s.call + 1;
        unsigned* h = reinterpret_cast<unsigned*>(state->h[call % 2]);
        for (PipelineState pipe;; pipe.advance()) {
            barrier_wait(&s.sums_ready[pipe.stage], pipe.parity);
            const int unit = s.unit[pipe.stage];
            if (unit < 0) break;
            const int pair = unit * kRows + lane;
            if (lane < kRows) {
                const float* sum = s.sum[pipe.stage] + lane;
                const float weight = __ldg(weights + pair / kIntermediate);
                const unsigned tagged = pack(0.0f, weight * silu(sum[0]) * sum[kRows]);
                asm volatile("st.relaxed.gpu.global.u32 [%0], %1;"
                             ::"l"(h + pair), "r"(tagged | (call & 0xffff)) : "memory");
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[pipe.stage]);
        }
#if MEET
        if (lane == 0) {
            __threadfence();
            atomicAdd(&state->blocks_published, 1u);
        }
#endif
        return;
    }

    if (warp == kReceiveWarp) {
        unsigned call = 0;
        if (lane == 0) {
            call = atomicAdd(&state->blocks, 1ull) / gridDim.x;
            s.call = call;
            barrier_arrive(&s.call_known);
        }
        call = __shfl_sync(~0u, call, 0) + 1;
#if MEET
        while (static_cast<int>(load_relaxed(&state->blocks_published) - call * gridDim.x) < 0) {
        }
#endif
        constexpr int kQuads = kIntermediate / 4, kQuadsPerLane = (kQuads + 31) / 32;
        for (int slot = 0; slot < kTopk; ++slot) {
            const uint4* from = state->h[call % 2] + slot * kQuads;
            uint4 h[kQuadsPerLane];
            bool complete;
            auto in_range = [&](int i) { return kQuads % 32 == 0 || i * 32 + lane < kQuads; };
            do {
                complete = true;
#pragma unroll
                for (int i = 0; i < kQuadsPerLane; ++i)
                    if (in_range(i)) h[i] = load_relaxed(from + i * 32 + lane);
#pragma unroll
                for (int i = 0; i < kQuadsPerLane; ++i)
                    if (in_range(i))
                        complete &= from_call(call, h[i].x, h[i].y) &&
                                    from_call(call, h[i].z, h[i].w);
            } while (!__all_sync(~0u, complete));
#pragma unroll
            for (int i = 0; i < kQuadsPerLane; ++i)
                if (in_range(i))
                    reinterpret_cast<uint2*>(s.h)[slot * kQuads + i * 32 + lane] = {
                        __byte_perm(h[i].x, h[i].y, 0x7632), __byte_perm(h[i].z, h[i].w, 0x7632)};
            barrier_arrive(&s.h_ready[slot]);
        }
        return;
    }

    constexpr int kChunks = kHidden / 8, kChunksPerLane = (kChunks + 31) / 32;
    float x_values[kChunksPerLane][8];
#pragma unroll
    for (int i = 0; i < kChunksPerLane; ++i) {
        const int chunk = i * 32 + lane;
        const Chunk c = chunk < kChunks ? reinterpret_cast<const Chunk*>(x)[chunk] : Chunk{};
        const unsigned words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            x_values[i][2 * j] = low(words[j]);
            x_values[i][2 * j + 1] = high(words[j]);
        }
    }
    PipelineState pipe;
    for (;; pipe.advance()) {
        barrier_wait(&s.full[pipe.stage], pipe.parity);
        if (s.unit[pipe.stage] < 0) break;
        const Chunk* row = reinterpret_cast<const Chunk*>(s.stages[pipe.stage]) + warp * kChunks;
        Chunk c[kChunksPerLane];
#pragma unroll
        for (int i = 0; i < kChunksPerLane; ++i)
            c[i] = i * 32 + lane < kChunks ? row[i * 32 + lane] : Chunk{};
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < kChunksPerLane; ++i) {
            fma_pair(sum[0], c[i].x, x_values[i][0], x_values[i][1]);
            fma_pair(sum[1], c[i].y, x_values[i][2], x_values[i][3]);
            fma_pair(sum[2], c[i].z, x_values[i][4], x_values[i][5]);
            fma_pair(sum[3], c[i].w, x_values[i][6], x_values[i][7]);
        }
        const float total = warp_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
        if (lane == 0) {
            s.sum[pipe.stage][warp] = total;
            barrier_arrive(&s.sums_ready[pipe.stage]);
            barrier_arrive(&s.empty[pipe.stage]);
        }
    }
    if (lane == 0) barrier_arrive(&s.sums_ready[pipe.stage]);

    constexpr int kRowChunks = kIntermediate / 8, kRowChunksPerLane = (kRowChunks + 31) / 32;
    float sum[kMaxRowGroups][4] = {};
    for (int slot = 0; slot < kTopk; ++slot) {
        barrier_wait(&s.h_ready[slot], 0);
#pragma unroll
        for (int group = 0; group < kMaxRowGroups; group += kGroupsPerStage) {
            if (group >= row_groups) break;
            barrier_wait(&s.full[pipe.stage], pipe.parity);
            // Rows past the end are stale data of the stage; their sums are not stored.
            const Chunk* from =
                reinterpret_cast<const Chunk*>(s.stages[pipe.stage]) + warp * kRowChunks;
            const Chunk* h = s.h + slot * kRowChunks;
#pragma unroll
            for (int i = 0; i < kRowChunksPerLane; ++i) {
                if ((i + 1) * 32 > kRowChunks && i * 32 + lane >= kRowChunks) break;
                const Chunk b = h[i * 32 + lane];
#pragma unroll
                for (int j = 0; j < kGroupsPerStage; ++j) {
                    const Chunk a = from[j * kWarps * kRowChunks + i * 32 + lane];
                    fma_pair(sum[group + j][0], a.x, low(b.x), high(b.x));
                    fma_pair(sum[group + j][1], a.y, low(b.y), high(b.y));
                    fma_pair(sum[group + j][2], a.z, low(b.z), high(b.z));
                    fma_pair(sum[group + j][3], a.w, low(b.w), high(b.w));
                }
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[pipe.stage], warp == 0 ? 2 : 1);
            pipe.advance();
        }
    }
#pragma unroll
    for (int group = 0; group < kMaxRowGroups; ++group) {
        const int row = begin + group * kWarps + warp;
        const float total =
            warp_sum((sum[group][0] + sum[group][1]) + (sum[group][2] + sum[group][3]));
        if (lane == 0 && row < end) out[row] = pack(total, 0.0f);
    }
}
