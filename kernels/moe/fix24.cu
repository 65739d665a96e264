// As fix23.cu, with another split of the second product. A warp has one static output column, for
// all experts in turn. Blocks with a free stage claim the other columns, a few for all experts.
// LEAVE: weights are loaded with the L2 policy evict_first.
#include "element.cuh"
#include "hopper.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
constexpr int kRows = ROWS;        // gate rows in a stage, and as many up rows
constexpr int kWarps = 2 * kRows;  // math warps, one row of a stage and one static column each
// Other roles: loading weights, writing results to global memory, and receiving all of h.
constexpr int kLoadWarp = kWarps, kPublishWarp = kWarps + 1, kReceiveWarp = kWarps + 2;
constexpr int kThreads = 32 * (kWarps + 3);
constexpr int kStages = STAGES;
constexpr int kPollInterval = 300;  // in nanoseconds, until the last slot
constexpr int kMatrixBytes = 2 * kHidden * kRows;
constexpr int kRowBytes = 2 * kIntermediate;
constexpr int kSlots = SLOTS;  // whose static columns are in one stage
constexpr int kStaticStages = (kTopk + kSlots - 1) / kSlots, kStaticBytes = kWarps * kRowBytes;
// Claimed columns in a stage, and their bytes for one slot.
constexpr int kClaimed = CLAIMED, kClaimedBytes = kClaimed * kRowBytes;
constexpr int kStageBytes =
    2 * kMatrixBytes > kTopk * kClaimedBytes ? 2 * kMatrixBytes : kTopk * kClaimedBytes;
constexpr int kPairs = kTopk * kIntermediate, kUnits = kPairs / kRows;
static_assert(kSlots * kStaticBytes <= kStageBytes && kTopk <= kWarps && kStages <= 32);
static_assert(kIntermediate % kRows == 0 && kHidden % kWarps == 0 && kWarps % kClaimed == 0);

// Persists across calls. Counters only grow: each block derives the call's number from them.
struct GlobalState {
    unsigned long long blocks;  // started
    unsigned units, columns;    // claimed; every block claims one too many
    unsigned unused[28];
    // bf16 value in the upper half, tag of the call in the lower. Double-buffered by call, because
    // a slow block may still read the previous h.
    uint4 h[2][kPairs / 4];
};

struct SharedStorage {
    unsigned char stages[kStages][kStageBytes];
    Chunk h[kPairs / 8];
    Barrier full[kStages], empty[kStages], sums_ready[kStages], h_ready[kTopk], call_known;
    float sum[kStages][kClaimed * kWarps];
    int unit[kStages];  // of the first product, or of claimed columns; -1: no more of its kind
    int expert[kTopk];
    unsigned call;
};

__device__ __forceinline__ unsigned long long evict_first_policy() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// TMA bulk copy of contiguous bytes, a multiple of 16.
__device__ __forceinline__ void bulk_copy(void* to, const unsigned short* from, int bytes,
                                          Barrier* barrier, unsigned long long policy) {
#if LEAVE
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)), "l"(policy) : "memory");
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
#endif
}

// sum += a b, in four partial sums.
__device__ __forceinline__ void fma_chunk(float (&sum)[4], const Chunk& a, const Chunk& b) {
    const unsigned a_words[4] = {a.x, a.y, a.z, a.w}, b_words[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[i] = fmaf(low(a_words[i]), low(b_words[i]), sum[i]);
        sum[i] = fmaf(high(a_words[i]), high(b_words[i]), sum[i]);
    }
}

__device__ __forceinline__ float warp_sum(const float (&sum)[4]) {
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(~0u, total, offset);
    return total;
}

__device__ __forceinline__ uint4 load_relaxed(const uint4* at) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ bool from_call(unsigned call, const uint4& h) {
    return (((h.x ^ call) | (h.y ^ call) | (h.z ^ call) | (h.w ^ call)) & 0xffff) == 0;
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
    const int blocks = gridDim.x, static_columns = min(blocks * kWarps, kHidden);

    if (warp == kLoadWarp) {
        if (lane < kTopk) {
            s.expert[lane] = ids[lane];
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
        const unsigned long long policy = evict_first_policy();
        const int static_units = min(kStages, kUnits / blocks);
        auto load_unit = [&](int stage, int unit) {
            const int row = unit * kRows, slot = row / kIntermediate;
            const unsigned short* gate =
                w13 + (static_cast<size_t>(s.expert[slot]) * 2 * kIntermediate + row -
                       slot * kIntermediate) * kHidden;
            Barrier* full = &s.full[stage];
            s.unit[stage] = unit;
            barrier_expect(full, 2 * kMatrixBytes);
            bulk_copy(s.stages[stage], gate, kMatrixBytes, full, policy);
            bulk_copy(s.stages[stage] + kMatrixBytes, gate + kIntermediate * kHidden, kMatrixBytes,
                      full, policy);
        };
        if (lane < static_units) load_unit(lane, blockIdx.x + lane * blocks);
        __syncwarp();
        if (lane > 0) return;

        // Loads rows of an expert's w2, from output ``column`` on.
        auto load_columns = [&](unsigned char* to, int slot, int column, int bytes, Barrier* full) {
            const size_t row = static_cast<size_t>(s.expert[slot]) * kHidden + column;
            bulk_copy(to, w2 + row * kIntermediate, bytes, full, policy);
        };
        PipelineState pipe{static_units % kStages, static_units == kStages};
        barrier_wait(&s.call_known, 0);
        auto claim = [&](unsigned* counter, int claims_per_call) {
            return static_cast<int>(atomicAdd(counter, 1u) - s.call * (claims_per_call + blocks));
        };
        int next = claim(&state->units, kUnits - static_units * blocks);
        while (true) {
            barrier_wait(&s.empty[pipe.stage], pipe.parity ^ 1);
            const int unit = static_units * blocks + next;
            if (unit >= kUnits) break;
            next = claim(&state->units, kUnits - static_units * blocks);
            load_unit(pipe.stage, unit);
            pipe.advance();
        }

        const int claimed_units = (kHidden - static_columns) / kClaimed;
        next = claim(&state->columns, claimed_units);
        s.unit[pipe.stage] = -1;
        const int begin = blockIdx.x * kWarps;
        for (int slot = 0; slot < kTopk; slot += kSlots) {
            if (slot > 0) barrier_wait(&s.empty[pipe.stage], pipe.parity ^ 1);
            const int count = begin < static_columns ? min(kSlots, kTopk - slot) : 0;
            Barrier* full = &s.full[pipe.stage];
            barrier_expect(full, count * kStaticBytes);
            for (int i = 0; i < count; ++i)
                load_columns(s.stages[pipe.stage] + i * kStaticBytes, slot + i, begin,
                             kStaticBytes, full);
            pipe.advance();
        }
        while (true) {
            barrier_wait(&s.empty[pipe.stage], pipe.parity ^ 1);
            const int unit = next;
            if (unit >= claimed_units) break;
            next = claim(&state->columns, claimed_units);
            s.unit[pipe.stage] = unit;
            Barrier* full = &s.full[pipe.stage];
            barrier_expect(full, kTopk * kClaimedBytes);
            for (int slot = 0; slot < kTopk; ++slot)
                load_columns(s.stages[pipe.stage] + slot * kClaimedBytes, slot,
                             static_columns + unit * kClaimed, kClaimedBytes, full);
            pipe.advance();
        }
        s.unit[pipe.stage] = -1;
        barrier_arrive(&s.full[pipe.stage]);
        return;
    }

    if (warp == kPublishWarp) {
        barrier_wait(&s.call_known, 0);
        const unsigned call = s.call + 1;
        unsigned* h = reinterpret_cast<unsigned*>(state->h[call % 2]);
        PipelineState pipe, sums_pipe;
        for (;; pipe.advance()) {
            barrier_wait(&s.sums_ready[sums_pipe.stage], sums_pipe.parity);
            const int unit = s.unit[pipe.stage];
            const float* sum = s.sum[sums_pipe.stage] + lane;
            sums_pipe.advance();
            if (unit < 0) break;
            const int pair = unit * kRows + lane;
            if (lane < kRows) {
                const float weight = __ldg(weights + pair / kIntermediate);
                const unsigned tagged = pack(0.0f, weight * silu(sum[0]) * sum[kRows]);
                asm volatile("st.relaxed.gpu.global.u32 [%0], %1;"
                             ::"l"(h + pair), "r"(tagged | (call & 0xffff)) : "memory");
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[pipe.stage]);
        }
        if (lane == 0) barrier_arrive(&s.empty[pipe.stage]);
        for (int i = 0; i < kStaticStages; ++i) pipe.advance();
        for (;; pipe.advance()) {
            barrier_wait(&s.sums_ready[sums_pipe.stage], sums_pipe.parity);
            const int unit = s.unit[pipe.stage];
            const float* sum = s.sum[sums_pipe.stage] + lane * kWarps;
            sums_pipe.advance();
            if (unit < 0) break;
            if (lane < kClaimed) {
                float total = 0.0f;
#pragma unroll
                for (int slot = 0; slot < kTopk; ++slot) total += sum[slot];
                out[static_columns + unit * kClaimed + lane] = pack(total, 0.0f);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[pipe.stage]);
        }
        return;
    }

    if (warp == kReceiveWarp) {
        unsigned call = 0;
        if (lane == 0) {
            call = atomicAdd(&state->blocks, 1ull) / blocks;
            s.call = call;
            barrier_arrive(&s.call_known);
        }
        call = __shfl_sync(~0u, call, 0) + 1;
        constexpr int kQuads = kIntermediate / 4, kQuadsPerLane = (kQuads + 31) / 32;
        for (int slot = 0; slot < kTopk; ++slot) {
            const uint4* from = state->h[call % 2] + slot * kQuads;
            uint4 h[kQuadsPerLane];
            bool complete;
            auto in_range = [&](int i) { return kQuads % 32 == 0 || i * 32 + lane < kQuads; };
            // Before the last slot, poll only the slot's last value, and rarely.
            if (slot + 1 < kTopk)
                while (!from_call(call, load_relaxed(from + kQuads - 1)))
                    __nanosleep(kPollInterval);
            do {
                complete = true;
#pragma unroll
                for (int i = 0; i < kQuadsPerLane; ++i)
                    if (in_range(i)) h[i] = load_relaxed(from + i * 32 + lane);
#pragma unroll
                for (int i = 0; i < kQuadsPerLane; ++i)
                    if (in_range(i)) complete &= from_call(call, h[i]);
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

    PipelineState pipe, sums_pipe;
    {
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
        for (;; pipe.advance(), sums_pipe.advance()) {
            barrier_wait(&s.full[pipe.stage], pipe.parity);
            if (s.unit[pipe.stage] < 0) break;
            const Chunk* row =
                reinterpret_cast<const Chunk*>(s.stages[pipe.stage]) + warp * kChunks;
            Chunk c[kChunksPerLane];
#pragma unroll
            for (int i = 0; i < kChunksPerLane; ++i)
                c[i] = i * 32 + lane < kChunks ? row[i * 32 + lane] : Chunk{};
            float sum[4] = {};
#pragma unroll
            for (int i = 0; i < kChunksPerLane; ++i) {
                const unsigned words[4] = {c[i].x, c[i].y, c[i].z, c[i].w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sum[j] = fmaf(low(words[j]), x_values[i][2 * j], sum[j]);
                    sum[j] = fmaf(high(words[j]), x_values[i][2 * j + 1], sum[j]);
                }
            }
            const float total = warp_sum(sum);
            if (lane == 0) {
                s.sum[sums_pipe.stage][warp] = total;
                barrier_arrive(&s.sums_ready[sums_pipe.stage]);
                barrier_arrive(&s.empty[pipe.stage]);
            }
        }
        if (lane == 0) barrier_arrive(&s.sums_ready[sums_pipe.stage]);
        sums_pipe.advance();
    }

    constexpr int kChunks = kIntermediate / 8, kChunksPerLane = (kChunks + 31) / 32;
    auto in_range = [&](int i) { return (i + 1) * 32 <= kChunks || i * 32 + lane < kChunks; };
    float sum[4] = {};
#pragma unroll
    for (int slot = 0; slot < kTopk; slot += kSlots) {
        barrier_wait(&s.full[pipe.stage], pipe.parity);
#pragma unroll
        for (int i = 0; i < kSlots && slot + i < kTopk; ++i) {
            barrier_wait(&s.h_ready[slot + i], 0);
            const unsigned char* row = s.stages[pipe.stage] + i * kStaticBytes + warp * kRowBytes;
            const Chunk* from = reinterpret_cast<const Chunk*>(row);
            const Chunk* h = s.h + (slot + i) * kChunks;
#pragma unroll
            for (int j = 0; j < kChunksPerLane; ++j)
                if (in_range(j)) fma_chunk(sum, from[j * 32 + lane], h[j * 32 + lane]);
        }
        async_proxy_fence();  // reads must complete before the next bulk copy overwrites them
        __syncwarp();
        // Warp 0 also arrives for the publishing warp, which does not use these stages.
        if (lane == 0) barrier_arrive(&s.empty[pipe.stage], warp == 0 && slot > 0 ? 2 : 1);
        pipe.advance();
    }
    const float total = warp_sum(sum);
    const int column = blockIdx.x * kWarps + warp;
    if (lane == 0 && column < static_columns) out[column] = pack(total, 0.0f);

    Chunk h[kChunksPerLane];
#pragma unroll
    for (int i = 0; i < kChunksPerLane; ++i)
        h[i] = in_range(i) && warp < kTopk ? s.h[warp * kChunks + i * 32 + lane] : Chunk{};
    for (;; pipe.advance(), sums_pipe.advance()) {
        barrier_wait(&s.full[pipe.stage], pipe.parity);
        if (s.unit[pipe.stage] < 0) break;
        if (warp < kTopk) {
            const Chunk* from =
                reinterpret_cast<const Chunk*>(s.stages[pipe.stage] + warp * kClaimedBytes);
            float sum[kClaimed][4] = {};
#pragma unroll
            for (int i = 0; i < kChunksPerLane; ++i)
#pragma unroll
                for (int j = 0; j < kClaimed; ++j)
                    if (in_range(i)) fma_chunk(sum[j], from[j * kChunks + i * 32 + lane], h[i]);
#pragma unroll
            for (int j = 0; j < kClaimed; ++j) {
                const float total = warp_sum(sum[j]);
                if (lane == 0) s.sum[sums_pipe.stage][j * kWarps + warp] = total;
            }
        }
        if (lane == 0) {
            barrier_arrive(&s.sums_ready[sums_pipe.stage]);
            barrier_arrive(&s.empty[pipe.stage]);
        }
    }
    if (lane == 0) barrier_arrive(&s.sums_ready[sums_pipe.stage]);
}
