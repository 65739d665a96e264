// One token, as `fix23`. Of the second product each block has some columns, a warp one, whose experts come one
// after the other; the others are dealt, a few of all experts at once, to who has room.
// LEAVE: weights are the first to leave L2.
#include "element.cuh"
#include "hopper.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
constexpr int kRows = ROWS;            // of gate and of up in a stage of the first product
constexpr int kWarps = 2 * kRows;      // that multiply, a row each, and have an own column each
constexpr int kFetches = kWarps, kPublishes = kWarps + 1, kListens = kWarps + 2;  // warps beside them
constexpr int kThreads = 32 * (kWarps + 3);
constexpr int kStages = STAGES;
constexpr int kPause = 300;  // nanoseconds between two looks at a number that is not the last
constexpr int kPart = 2 * kHidden * kRows;
constexpr int kRowBytes = 2 * kIntermediate;
constexpr int kSlots = SLOTS;  // whose own columns are in a stage of the second product
constexpr int kOwnStages = (kTopk + kSlots - 1) / kSlots, kOwnBytes = kWarps * kRowBytes;
constexpr int kDealt = DEALT, kDealtBytes = kDealt * kRowBytes;  // columns in a stage, and of a slot
constexpr int kStageBytes = 2 * kPart > kTopk * kDealtBytes ? 2 * kPart : kTopk * kDealtBytes;
constexpr int kPairs = kTopk * kIntermediate, kUnits = kPairs / kRows;
static_assert(kSlots * kOwnBytes <= kStageBytes && kTopk <= kWarps && kStages <= 32);
static_assert(kIntermediate % kRows == 0 && kHidden % kWarps == 0 && kWarps % kDealt == 0);

// Of all calls, one after the other, which is why nothing is ever set back.
struct State {
    unsigned long long blocks;  // that have begun
    unsigned units, columns;    // taken, and one too many by each block
    unsigned unused[28];
    // A number in the upper half, and its call in the lower. In turn, as a block may be late to read.
    uint4 h[2][kPairs / 4];
};

struct Shared {
    unsigned char ring[kStages][kStageBytes];
    Chunk h[kPairs / 8];
    Barrier full[kStages], empty[kStages], summed[kStages], ready[kTopk], known;
    float sum[kStages][kDealt * kWarps];
    int unit[kStages];  // -1: there are no more, of the first product and of columns that are dealt
    int expert[kTopk];
    unsigned call;
};

__device__ __forceinline__ unsigned long long first_to_leave() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// So many bytes, a multiple of 16, that follow each other on both sides.
__device__ __forceinline__ void copy_weights(void* to, const unsigned short* from, int bytes,
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

// sum += a b, in four parts.
__device__ __forceinline__ void add(float (&sum)[4], const Chunk& a, const Chunk& b) {
    const unsigned own[4] = {a.x, a.y, a.z, a.w}, other[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[i] = fmaf(low(own[i]), low(other[i]), sum[i]);
        sum[i] = fmaf(high(own[i]), high(other[i]), sum[i]);
    }
}

__device__ __forceinline__ float of_warp(const float (&sum)[4]) {
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) total += __shfl_xor_sync(~0u, total, apart);
    return total;
}

__device__ __forceinline__ uint4 as_it_is(const uint4* at) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ bool is_of(unsigned call, const uint4& h) {
    return (((h.x ^ call) | (h.y ^ call) | (h.z ^ call) | (h.w ^ call)) & 0xffff) == 0;
}

struct Place {
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
// [experts][hidden][intermediate]; state: zero at first.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
experts(const unsigned short* __restrict__ x, const int* __restrict__ ids,
        const float* __restrict__ weights, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, unsigned short* __restrict__ out, State* state) {
    extern __shared__ __align__(128) unsigned char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int blocks = gridDim.x, own_columns = min(blocks * kWarps, kHidden);

    if (warp == kFetches) {
        if (lane < kTopk) {
            s.expert[lane] = ids[lane];
            barrier_init(&s.ready[lane], 32);
        }
        if (lane < kStages) {
            barrier_init(&s.full[lane], 1);
            barrier_init(&s.empty[lane], kWarps + 1);
            barrier_init(&s.summed[lane], kWarps);
        }
        if (lane == 0) barrier_init(&s.known, 1);
        barrier_init_fence();
    }
    __syncthreads();

    if (warp == kFetches) {
        const unsigned long long policy = first_to_leave();
        const int given = min(kStages, kUnits / blocks);  // units that a block does not have to take
        auto fetch = [&](int stage, int unit) {
            const int row = unit * kRows, slot = row / kIntermediate;
            const unsigned short* gate =
                w13 + (static_cast<size_t>(s.expert[slot]) * 2 * kIntermediate + row -
                       slot * kIntermediate) * kHidden;
            Barrier* full = &s.full[stage];
            s.unit[stage] = unit;
            barrier_expect(full, 2 * kPart);
            copy_weights(s.ring[stage], gate, kPart, full, policy);
            copy_weights(s.ring[stage] + kPart, gate + kIntermediate * kHidden, kPart, full, policy);
        };
        if (lane < given) fetch(lane, blockIdx.x + lane * blocks);
        __syncwarp();
        if (lane > 0) return;

        // Rows of the second product: so many columns from ``column`` on, of an expert.
        auto fetch_columns = [&](unsigned char* to, int slot, int column, int bytes, Barrier* full) {
            const size_t row = static_cast<size_t>(s.expert[slot]) * kHidden + column;
            copy_weights(to, w2 + row * kIntermediate, bytes, full, policy);
        };
        Place at{given % kStages, given == kStages};
        barrier_wait(&s.known, 0);
        auto take = [&](unsigned* taken, int of_a_call) {
            return static_cast<int>(atomicAdd(taken, 1u) - s.call * (of_a_call + blocks));
        };
        int next = take(&state->units, kUnits - given * blocks);
        while (true) {
            barrier_wait(&s.empty[at.stage], at.parity ^ 1);
            const int unit = given * blocks + next;
            if (unit >= kUnits) break;
            next = take(&state->units, kUnits - given * blocks);
            fetch(at.stage, unit);
            at.advance();
        }

        const int dealt = (kHidden - own_columns) / kDealt;
        next = take(&state->columns, dealt);
        s.unit[at.stage] = -1;
        const int begin = blockIdx.x * kWarps;
        for (int slot = 0; slot < kTopk; slot += kSlots) {
            if (slot > 0) barrier_wait(&s.empty[at.stage], at.parity ^ 1);
            const int count = begin < own_columns ? min(kSlots, kTopk - slot) : 0;
            Barrier* full = &s.full[at.stage];
            barrier_expect(full, count * kOwnBytes);
            for (int i = 0; i < count; ++i)
                fetch_columns(s.ring[at.stage] + i * kOwnBytes, slot + i, begin, kOwnBytes, full);
            at.advance();
        }
        while (true) {
            barrier_wait(&s.empty[at.stage], at.parity ^ 1);
            const int unit = next;
            if (unit >= dealt) break;
            next = take(&state->columns, dealt);
            s.unit[at.stage] = unit;
            Barrier* full = &s.full[at.stage];
            barrier_expect(full, kTopk * kDealtBytes);
            for (int slot = 0; slot < kTopk; ++slot)
                fetch_columns(s.ring[at.stage] + slot * kDealtBytes, slot, own_columns + unit * kDealt,
                              kDealtBytes, full);
            at.advance();
        }
        s.unit[at.stage] = -1;
        barrier_arrive(&s.full[at.stage]);
        return;
    }

    if (warp == kPublishes) {
        barrier_wait(&s.known, 0);
        const unsigned call = s.call + 1;
        unsigned* h = reinterpret_cast<unsigned*>(state->h[call % 2]);
        Place at, sums;
        for (;; at.advance()) {
            barrier_wait(&s.summed[sums.stage], sums.parity);
            const int unit = s.unit[at.stage];
            const float* sum = s.sum[sums.stage] + lane;
            sums.advance();
            if (unit < 0) break;
            const int pair = unit * kRows + lane;
            if (lane < kRows) {
                const float weight = __ldg(weights + pair / kIntermediate);
                const unsigned both = pack(0.0f, weight * silu(sum[0]) * sum[kRows]);
                asm volatile("st.relaxed.gpu.global.u32 [%0], %1;"
                             ::"l"(h + pair), "r"(both | (call & 0xffff)) : "memory");
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[at.stage]);
        }
        if (lane == 0) barrier_arrive(&s.empty[at.stage]);
        for (int i = 0; i < kOwnStages; ++i) at.advance();
        for (;; at.advance()) {
            barrier_wait(&s.summed[sums.stage], sums.parity);
            const int unit = s.unit[at.stage];
            const float* sum = s.sum[sums.stage] + lane * kWarps;
            sums.advance();
            if (unit < 0) break;
            if (lane < kDealt) {
                float total = 0.0f;
#pragma unroll
                for (int slot = 0; slot < kTopk; ++slot) total += sum[slot];
                out[own_columns + unit * kDealt + lane] = pack(total, 0.0f);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[at.stage]);
        }
        return;
    }

    if (warp == kListens) {
        unsigned call = 0;
        if (lane == 0) {
            call = atomicAdd(&state->blocks, 1ull) / blocks;
            s.call = call;
            barrier_arrive(&s.known);
        }
        call = __shfl_sync(~0u, call, 0) + 1;
        constexpr int kQuads = kIntermediate / 4, kOwn = (kQuads + 31) / 32;
        for (int slot = 0; slot < kTopk; ++slot) {
            const uint4* from = state->h[call % 2] + slot * kQuads;
            uint4 h[kOwn];
            bool is_there;
            auto has = [&](int i) { return kQuads % 32 == 0 || i * 32 + lane < kQuads; };
            // Of a slot that is not the last one number, now and then: there is time.
            if (slot + 1 < kTopk)
                while (!is_of(call, as_it_is(from + kQuads - 1))) __nanosleep(kPause);
            do {
                is_there = true;
#pragma unroll
                for (int i = 0; i < kOwn; ++i)
                    if (has(i)) h[i] = as_it_is(from + i * 32 + lane);
#pragma unroll
                for (int i = 0; i < kOwn; ++i)
                    if (has(i)) is_there &= is_of(call, h[i]);
            } while (!__all_sync(~0u, is_there));
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
                if (has(i))
                    reinterpret_cast<uint2*>(s.h)[slot * kQuads + i * 32 + lane] = {
                        __byte_perm(h[i].x, h[i].y, 0x7632), __byte_perm(h[i].z, h[i].w, 0x7632)};
            barrier_arrive(&s.ready[slot]);
        }
        return;
    }

    Place at, sums;
    {
        constexpr int kChunks = kHidden / 8, kOwn = (kChunks + 31) / 32;  // of a lane
        float own[kOwn][8];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const int at = i * 32 + lane;
            const Chunk c = at < kChunks ? reinterpret_cast<const Chunk*>(x)[at] : Chunk{};
            const unsigned two[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                own[i][2 * j] = low(two[j]);
                own[i][2 * j + 1] = high(two[j]);
            }
        }
        for (;; at.advance(), sums.advance()) {
            barrier_wait(&s.full[at.stage], at.parity);
            if (s.unit[at.stage] < 0) break;
            const Chunk* row = reinterpret_cast<const Chunk*>(s.ring[at.stage]) + warp * kChunks;
            Chunk c[kOwn];
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
                c[i] = i * 32 + lane < kChunks ? row[i * 32 + lane] : Chunk{};
            float sum[4] = {};
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                const unsigned two[4] = {c[i].x, c[i].y, c[i].z, c[i].w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sum[j] = fmaf(low(two[j]), own[i][2 * j], sum[j]);
                    sum[j] = fmaf(high(two[j]), own[i][2 * j + 1], sum[j]);
                }
            }
            const float total = of_warp(sum);
            if (lane == 0) {
                s.sum[sums.stage][warp] = total;
                barrier_arrive(&s.summed[sums.stage]);
                barrier_arrive(&s.empty[at.stage]);
            }
        }
        if (lane == 0) barrier_arrive(&s.summed[sums.stage]);
        sums.advance();
    }

    constexpr int kChunks = kIntermediate / 8, kOwn = (kChunks + 31) / 32;
    auto has = [&](int i) { return (i + 1) * 32 <= kChunks || i * 32 + lane < kChunks; };
    float sum[4] = {};
#pragma unroll
    for (int slot = 0; slot < kTopk; slot += kSlots) {
        barrier_wait(&s.full[at.stage], at.parity);
#pragma unroll
        for (int i = 0; i < kSlots && slot + i < kTopk; ++i) {
            barrier_wait(&s.ready[slot + i], 0);
            const unsigned char* row = s.ring[at.stage] + i * kOwnBytes + warp * kRowBytes;
            const Chunk *from = reinterpret_cast<const Chunk*>(row), *by = s.h + (slot + i) * kChunks;
#pragma unroll
            for (int j = 0; j < kOwn; ++j)
                if (has(j)) add(sum, from[j * 32 + lane], by[j * 32 + lane]);
        }
        async_proxy_fence();  // what has been asked for is there before the copy engine may overwrite it
        __syncwarp();
        // For the warp that publishes, where it has nothing to say.
        if (lane == 0) barrier_arrive(&s.empty[at.stage], warp == 0 && slot > 0 ? 2 : 1);
        at.advance();
    }
    const float total = of_warp(sum);
    const int column = blockIdx.x * kWarps + warp;
    if (lane == 0 && column < own_columns) out[column] = pack(total, 0.0f);

    Chunk h[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        h[i] = has(i) && warp < kTopk ? s.h[warp * kChunks + i * 32 + lane] : Chunk{};
    for (;; at.advance(), sums.advance()) {
        barrier_wait(&s.full[at.stage], at.parity);
        if (s.unit[at.stage] < 0) break;
        if (warp < kTopk) {
            const Chunk* from = reinterpret_cast<const Chunk*>(s.ring[at.stage] + warp * kDealtBytes);
            float sum[kDealt][4] = {};
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
#pragma unroll
                for (int j = 0; j < kDealt; ++j)
                    if (has(i)) add(sum[j], from[j * kChunks + i * 32 + lane], h[i]);
#pragma unroll
            for (int j = 0; j < kDealt; ++j) {
                const float total = of_warp(sum[j]);
                if (lane == 0) s.sum[sums.stage][j * kWarps + warp] = total;
            }
        }
        if (lane == 0) {
            barrier_arrive(&s.summed[sums.stage]);
            barrier_arrive(&s.empty[at.stage]);
        }
    }
    if (lane == 0) barrier_arrive(&s.summed[sums.stage]);
}
