// One token: both products in one kernel, weights by copies of several rows that follow each other into a
// ring of the block. Each number of h says of which call it is, and who needs it looks until it is there.
// Sizes are known when it is compiled.
// TURNS: who comes first to the second product has the columns that are left over.
// EARLY: blocks begin while those of the call before end, and wait for what that has written.
#include "element.cuh"
#include "hopper.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
constexpr int kRows = ROWS;            // of gate and of up in a stage of the first product
constexpr int kWarps = 2 * kRows;      // that multiply, a row each
constexpr int kFetches = kWarps, kPublishes = kWarps + 1, kListens = kWarps + 2;  // warps beside them
constexpr int kThreads = 32 * (kWarps + 3);
constexpr int kStages = STAGES;
constexpr int kPart = 2 * kHidden * kRows, kStageBytes = 2 * kPart;
constexpr int kRowBytes = 2 * kIntermediate;
constexpr int kPer = PER;  // times so many rows as warps in a stage of the second product
constexpr int kMostParts = MOST_PARTS;
constexpr int kPairs = kTopk * kIntermediate, kUnits = kPairs / kRows;
static_assert(kPer * kWarps * kRowBytes <= kStageBytes && kMostParts % kPer == 0);
static_assert(kIntermediate % kRows == 0 && kTopk <= 32 && kStages <= 32);

// Of all calls, one after the other, which is why nothing is ever set back.
struct State {
    unsigned long long blocks;  // that have begun
    unsigned units;             // taken, and one too many by each block
    unsigned unused[29];
    // A number in the upper half, and its call in the lower. In turn, as a block may be late to read.
    uint4 h[2][kPairs / 4];
};

struct Shared {
    unsigned char ring[kStages][kStageBytes];
    Chunk h[kPairs / 8];
    Barrier full[kStages], empty[kStages], summed[kStages], ready[kTopk], known;
    float sum[kStages][kWarps];
    int unit[kStages];  // of the first product; -1: the second begins
    int expert[kTopk];
    int turn;  // of the block among all, in which they came to the second product
    unsigned call;
};

// So many bytes, a multiple of 16, that follow each other on both sides.
__device__ __forceinline__ void copy_piece(void* to, const unsigned short* from, int bytes,
                                           Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void add(float& sum, unsigned a, float b, float b1) {
    sum = fmaf(low(a), b, sum);
    sum = fmaf(high(a), b1, sum);
}

__device__ __forceinline__ float of_warp(float sum) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    return sum;
}

__device__ __forceinline__ uint4 as_it_is(const uint4* at) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ unsigned as_it_is(const unsigned* at) {
    unsigned v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ bool is_of(unsigned call, unsigned a, unsigned b) {
    return (((a ^ call) | (b ^ call)) & 0xffff) == 0;
}

// Programmatic dependent launch: lets the next kernel begin, and waits for the end of the last one.
__device__ __forceinline__ void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_last() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
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
    // The first column of the output that is the block's which comes so many-th.
    auto column_of = [&](int turn) {
        const int blocks = gridDim.x;
#if TURNS
        return kHidden / blocks * turn + min(turn, kHidden % blocks);
#else
        return kHidden * turn / blocks;
#endif
    };
    auto parts_of = [&](int begin, int end) { return (end - begin + kWarps - 1) / kWarps; };

#if EARLY
    let_next_begin();
#endif
    if (warp == kFetches) {
        if (lane < kTopk) barrier_init(&s.ready[lane], 32);
        if (lane < kStages) {
            barrier_init(&s.full[lane], 1);
            barrier_init(&s.empty[lane], kWarps + 1);
            barrier_init(&s.summed[lane], kWarps);
        }
        if (lane == 0) barrier_init(&s.known, 1);
        barrier_init_fence();
    }
    __syncthreads();
#if EARLY
    wait_for_last();
#endif

    if (warp == kFetches) {
        if (lane < kTopk) s.expert[lane] = ids[lane];
        __syncwarp();
        if (lane > 0) return;
        const unsigned given = min(kStages, kUnits / static_cast<int>(gridDim.x));
        Place at;
        unsigned next = blockIdx.x, base = 0;
        for (unsigned n = 0;; ++n) {  // each block has some units, and then takes one when it has room
            barrier_wait(&s.empty[at.stage], at.parity ^ 1);
            const unsigned unit = next;
            if (unit >= kUnits) break;
            if (n + 1 < given) {
                next = unit + gridDim.x;
            } else {
                if (n + 1 == given) {
                    barrier_wait(&s.known, 0);
                    base = given * gridDim.x - s.call * (kUnits - (given - 1) * gridDim.x);
                }
                next = base + atomicAdd(&state->units, 1u);
            }
            const int row = unit * kRows, slot = row / kIntermediate;
            const unsigned short* gate =
                w13 + (static_cast<size_t>(s.expert[slot]) * 2 * kIntermediate + row -
                       slot * kIntermediate) * kHidden;
            Barrier* full = &s.full[at.stage];
            s.unit[at.stage] = unit;
            barrier_expect(full, kStageBytes);
            copy_piece(s.ring[at.stage], gate, kPart, full);
            copy_piece(s.ring[at.stage] + kPart, gate + kIntermediate * kHidden, kPart, full);
            at.advance();
        }
        s.unit[at.stage] = -1;
        s.turn = TURNS ? next - kUnits : blockIdx.x;
        const int begin = column_of(s.turn), end = column_of(s.turn + 1), parts = parts_of(begin, end);
        for (int slot = 0; slot < kTopk; ++slot)
            for (int part = 0; part < parts; part += kPer) {
                if (slot + part > 0) barrier_wait(&s.empty[at.stage], at.parity ^ 1);
                const int row = begin + part * kWarps;
                const int bytes = min(kPer * kWarps, end - row) * kRowBytes;
                barrier_expect(&s.full[at.stage], bytes);
                copy_piece(s.ring[at.stage],
                           w2 + (static_cast<size_t>(s.expert[slot]) * kHidden + row) * kIntermediate,
                           bytes, &s.full[at.stage]);
                at.advance();
            }
        return;
    }

    if (warp == kPublishes) {
        barrier_wait(&s.known, 0);
        const unsigned call = s.call + 1;
        unsigned* h = reinterpret_cast<unsigned*>(state->h[call % 2]);
        for (Place at;; at.advance()) {
            barrier_wait(&s.summed[at.stage], at.parity);
            const int unit = s.unit[at.stage];
            if (unit < 0) break;
            const int pair = unit * kRows + lane;
            if (lane < kRows) {
                const float* sum = s.sum[at.stage] + lane;
                const float weight = __ldg(weights + pair / kIntermediate);
                const unsigned both = pack(0.0f, weight * silu(sum[0]) * sum[kRows]);
                asm volatile("st.relaxed.gpu.global.u32 [%0], %1;"
                             ::"l"(h + pair), "r"(both | (call & 0xffff)) : "memory");
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[at.stage]);
        }
        return;
    }

    if (warp == kListens) {
        unsigned call = 0;
        if (lane == 0) {
            call = atomicAdd(&state->blocks, 1ull) / gridDim.x;
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
            do {
                is_there = true;
#pragma unroll
                for (int i = 0; i < kOwn; ++i)
                    if (has(i)) h[i] = as_it_is(from + i * 32 + lane);
#pragma unroll
                for (int i = 0; i < kOwn; ++i)
                    if (has(i)) is_there &= is_of(call, h[i].x, h[i].y) && is_of(call, h[i].z, h[i].w);
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
    Place at;
    for (;; at.advance()) {
        barrier_wait(&s.full[at.stage], at.parity);
        if (s.unit[at.stage] < 0) break;
        const Chunk* row = reinterpret_cast<const Chunk*>(s.ring[at.stage]) + warp * kChunks;
        Chunk c[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) c[i] = i * 32 + lane < kChunks ? row[i * 32 + lane] : Chunk{};
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            add(sum[0], c[i].x, own[i][0], own[i][1]);
            add(sum[1], c[i].y, own[i][2], own[i][3]);
            add(sum[2], c[i].z, own[i][4], own[i][5]);
            add(sum[3], c[i].w, own[i][6], own[i][7]);
        }
        const float total = of_warp((sum[0] + sum[1]) + (sum[2] + sum[3]));
        if (lane == 0) {
            s.sum[at.stage][warp] = total;
            barrier_arrive(&s.summed[at.stage]);
            barrier_arrive(&s.empty[at.stage]);
        }
    }
    if (lane == 0) barrier_arrive(&s.summed[at.stage]);

    const int begin = column_of(s.turn), end = column_of(s.turn + 1), parts = parts_of(begin, end);
    constexpr int kRowChunks = kIntermediate / 8, kRowOwn = (kRowChunks + 31) / 32;
    float sum[kMostParts][4] = {};
    for (int slot = 0; slot < kTopk; ++slot) {
        barrier_wait(&s.ready[slot], 0);
#pragma unroll
        for (int part = 0; part < kMostParts; part += kPer) {
            if (part >= parts) break;
            barrier_wait(&s.full[at.stage], at.parity);
            // A row that is not there is what lay in the stage before.
            const Chunk* from = reinterpret_cast<const Chunk*>(s.ring[at.stage]) + warp * kRowChunks;
            const Chunk* by = s.h + slot * kRowChunks;
#pragma unroll
            for (int i = 0; i < kRowOwn; ++i) {
                if ((i + 1) * 32 > kRowChunks && i * 32 + lane >= kRowChunks) break;
                const Chunk b = by[i * 32 + lane];
#pragma unroll
                for (int j = 0; j < kPer; ++j) {
                    const Chunk a = from[j * kWarps * kRowChunks + i * 32 + lane];
                    add(sum[part + j][0], a.x, low(b.x), high(b.x));
                    add(sum[part + j][1], a.y, low(b.y), high(b.y));
                    add(sum[part + j][2], a.z, low(b.z), high(b.z));
                    add(sum[part + j][3], a.w, low(b.w), high(b.w));
                }
            }
            async_proxy_fence();  // what has been asked for is there before the copy engine may overwrite it
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.empty[at.stage], warp == 0 ? 2 : 1);
            at.advance();
        }
    }
#pragma unroll
    for (int part = 0; part < kMostParts; ++part) {
        const int row = begin + part * kWarps + warp;
        const float total =
            of_warp((sum[part][0] + sum[part][1]) + (sum[part][2] + sum[part][3]));
        if (lane == 0 && row < end) out[row] = pack(total, 0.0f);
    }
}
