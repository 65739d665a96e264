// Few tokens of an expert: both products in one kernel. A block has the tokens of an expert in
// registers, and rows of its weights come to them as they lie in memory, some that follow each other in
// a copy, through a ring. Experts are shared out to blocks in their order, and the last units of each
// product dealt to who has room. Sizes are known when it is compiled.
// As fix19.cu, but where some experts have so many tokens that too many of their weights would be
// multiplied several times over, the tiles of fix20.cu: all blocks sort, and so know it.
// KEEP: L2 is to keep what is written and read again in the same call, beside weights that are read once.
#include "few.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
// Warps beside those that multiply: one fetches weights, one tokens, and one adds up and writes.
constexpr int kFetches = kWarps, kBrings = kWarps + 1, kWrites = kWarps + 2;
constexpr int kAllWarps = kWarps + 4, kThreads = 32 * kAllWarps;  // the last is there for tiles
constexpr int kStages = STAGES;
constexpr int kMostSlots = 1024, kPieces = (kMostSlots + kThreads - 1) / kThreads;
constexpr int kMostJobs = kMostExperts + kMostSlots / kTokens;
constexpr int kSets = kGroups < 3 ? 2 : 1;  // of sums, so that one need not wait for another
constexpr int kBanks = 36;                  // from a part of a sum to the next, so that banks differ
constexpr int kTold = 4;                    // segments that are known to the warps
constexpr int kTake = TAKE;                 // units of the second product dealt at once
constexpr int kMostJobs12 = 13;             // jobs that it takes, of twelve experts with a token

__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }

// Rows that follow each other are a unit, and a stage of the ring: of gate and of up so many each, or
// of the second product.
constexpr int kUpRows = 4, kUpPart = kUpRows * kHidden * 2, kUpUnits = kIntermediate / kUpRows;
constexpr int kDownRows = 16 * kIntermediate > 8 * kHidden ? 8 : 16, kDownUnits = kHidden / kDownRows;
constexpr int kStageBytes = most(2 * kUpPart, kDownRows * kIntermediate * 2);
static_assert(kUpUnits % (2 * kTake) == 0 && kDownUnits % kTake == 0 && kTake % 4 == 0);
// Between rows of tokens, so that two that follow each other have other banks.
__host__ __device__ constexpr int pitch(int columns) { return 2 * columns + 64; }
constexpr int kTokenPitch = pitch(most(kHidden, kIntermediate));
static_assert(kHidden % 128 == 0 && kIntermediate % 128 == 0);

struct State {  // zeros at first
    int dealt[2];
    int done[kMostJobs];  // units of a job's first product
};

struct Segment {  // some units of a job, an expert and at most kTokens of its tokens
    int matrix, job, unit, units;  // matrix: 0, 1; 2: no more
};

struct Shared {
    unsigned char ring[kStages][kStageBytes];
    unsigned char tokens[kTokens * kTokenPitch];
    float part[2][kWarps][kGroups][kDownRows / 4][kBanks];
    alignas(16) unsigned short line[kTokens][16];  // columns, which are written out together
    Barrier full[kStages], empty[kStages], there, free, summed[2], written[2];
    Barrier told[kTold], done[kTold];
    Segment segments[kTold];
    unsigned short slot_at[kMostSlots];
    short expert[kMostJobs], first[kMostJobs], count[kMostJobs];
    int first_of[kMostExperts], count_of[kMostExperts], jobs, active;
};
static_assert(sizeof(Shared) + 64 <= SHARED_BYTES);
static_assert(kAllWarps * kMostExperts * 4 <= kStages * kStageBytes, "counts lie in the ring");

// So many bytes, a multiple of 16, that follow each other on both sides.
__device__ __forceinline__ void copy_line(void* to, const unsigned short* from, int bytes,
                                          Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

// Not moved by the compiler, which would have more of them in registers than there are.
__device__ __forceinline__ Chunk chunk_at(unsigned address) {
    Chunk c;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w) : "r"(address));
    return c;
}

__device__ __forceinline__ unsigned long long last_to_leave() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void put(void* to, uint2 v, unsigned long long policy) {
#if KEEP
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "l"(policy) : "memory");
#else
    *reinterpret_cast<uint2*>(to) = v;
#endif
}

struct Turn {
    int at = 0;
    unsigned parity = 0;

    template <int kCount>
    __device__ __forceinline__ void advance() {
        if (++at == kCount) {
            at = 0;
            parity ^= 1;
        }
    }
};

// Slots in the order of their experts, those of an expert in their own, and the jobs that they make.
__device__ __forceinline__ void sort_slots(Shared& s, const int* __restrict__ ids, int slots,
                                           int experts, int* __restrict__ place) {
    int(*counts)[kMostExperts] = reinterpret_cast<int(*)[kMostExperts]>(s.ring);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int pieces = (slots + kThreads - 1) / kThreads;
    int id[kPieces], rank[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const int slot = (warp * pieces + i) * 32 + lane;
        id[i] = i < pieces && slot < slots ? __ldg(ids + slot) : -1;
    }
    for (int i = lane; i < experts; i += 32) counts[warp][i] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        if (i >= pieces) break;
        const unsigned same = __match_any_sync(~0u, id[i]);
        const int before = id[i] < 0 ? 0 : counts[warp][id[i]];
        rank[i] = before + __popc(same & ((1u << lane) - 1));
        __syncwarp();
        if (id[i] >= 0 && __ffs(same) - 1 == lane) counts[warp][id[i]] = before + __popc(same);
        __syncwarp();
    }
    __syncthreads();
    for (int expert = threadIdx.x; expert < experts; expert += kThreads) {
        int before = 0;
#pragma unroll
        for (int i = 0; i < kAllWarps; ++i) {
            const int own = counts[i][expert];
            counts[i][expert] = before;
            before += own;
        }
        s.count_of[expert] = before;
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0, jobs = 0, active = 0;
        for (int base = 0; base < experts; base += 32) {
            const int expert = base + lane, count = expert < experts ? s.count_of[expert] : 0;
            const int own = (count + kTokens - 1) / kTokens;
            int both = count << 16 | own;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int below = __shfl_up_sync(~0u, both, step);
                if (lane >= step) both += below;
            }
            const int first = before + (both >> 16) - count, job = jobs + (both & 0xffff) - own;
            if (expert < experts) s.first_of[expert] = first;
            for (int i = 0; i < own; ++i) {
                s.expert[job + i] = expert;
                s.first[job + i] = first + i * kTokens;
                s.count[job + i] = min(kTokens, count - i * kTokens);
            }
            const int all = __shfl_sync(~0u, both, 31);
            before += all >> 16;
            jobs += all & 0xffff;
            active += __popc(__ballot_sync(~0u, count > 0));
        }
        if (lane == 0) {
            s.jobs = jobs;
            s.active = active;
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        const int slot = (warp * pieces + i) * 32 + lane;
        if (id[i] < 0) continue;
        const int at = s.first_of[id[i]] + counts[warp][id[i]] + rank[i];
        s.slot_at[at] = slot;
        if (blockIdx.x == 0) place[slot] = at;
    }
}

// The units of a segment by the tokens of its job, which are in registers all the while: each warp has
// every kWarps-th 64 of the columns.
template <int kColumns, int kRows>
__device__ __forceinline__ void multiply(Shared& s, Turn& at, Turn& sum_at, int units, int groups,
                                         int warp, int lane) {
    constexpr int kRowBytes = 2 * kColumns, kSteps = kColumns / 64;
    constexpr int kOwn = (kSteps + kWarps - 1) / kWarps;
    const int g = lane / 4, within = warp * 128 + lane % 4 * 16;
    auto has = [&](int i) { return kSteps % kWarps == 0 || warp + i * kWarps < kSteps; };
    Chunk b[kOwn][2][kGroups];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < kGroups; ++n)
                b[i][half][n] = has(i) ? *reinterpret_cast<const Chunk*>(
                                             s.tokens + (8 * n + g) * pitch(kColumns) + within +
                                             i * kWarps * 128 + half * 64)
                                       : Chunk{};
    // What has been asked for is there before the copy engine may overwrite it.
    auto release = [&](Barrier* barrier) {
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(barrier);
    };
    release(&s.free);

    constexpr int kHalf = (kOwn + 1) / 2;  // of a stage: while one is multiplied the next is read
    Chunk a[2][kHalf][2][kRows / 8];
    auto read = [&](int part) {
        if (part == 0) barrier_wait(&s.full[at.at], at.parity);
        const unsigned row = shared_address(s.ring[at.at]) + g * kRowBytes + within;
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
            const int own = part * kHalf + i;
            if (own >= kOwn || !has(own)) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int r = 0; r < kRows / 8; ++r)
                    a[part][i][half][r] =
                        chunk_at(row + r * 8 * kRowBytes + own * kWarps * 128 + half * 64);
        }
    };
    read(0);
    for (; units > 0; --units) {
        float sum[kSets][kGroups][4] = {};
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            if (part == 0)
                read(1);
            else if (units > 1)
                read(0);
#pragma unroll
            for (int i = 0; i < kHalf; ++i) {
                const int own = part * kHalf + i;
                if (own >= kOwn || !has(own)) continue;
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int n = 0; n < kGroups; ++n)
                        if (n < groups)
                            mma(sum[half % kSets][n], a[part][i][half][0],
                                kRows == 16 ? a[part][i][half][kRows / 8 - 1] : Chunk{},
                                b[own][half][n]);
            }
            if (part == 1) continue;
            release(&s.empty[at.at]);
            at.advance<kStages>();
        }
        barrier_wait(&s.written[sum_at.at], sum_at.parity ^ 1);
#pragma unroll
        for (int n = 0; n < kGroups; ++n)
#pragma unroll
            for (int i = 0; i < kRows / 4; ++i)
                if (n < groups)
                    s.part[sum_at.at][warp][n][i][lane] =
                        kSets == 2 ? sum[0][n][i] + sum[kSets - 1][n][i] : sum[0][n][i];
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.summed[sum_at.at]);
        sum_at.advance<2>();
    }
}

// What the warps have of a row of a unit and a token, added up.
__device__ __forceinline__ float add_up(const float (&part)[kWarps][kGroups][kDownRows / 4][kBanks],
                                        int group, int row, int token) {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
        sum += part[warp][group][row / 8 * 2 + token % 2][row % 8 * 4 + token / 2];
    return sum;
}

// The units of a segment, as they are multiplied: 16 columns of a row at once, so that no sector is
// written in parts. first: of places.
template <bool kActivates>
__device__ __forceinline__ void write_out(Shared& s, Turn& sum_at, const Segment& segment, int count,
                                          unsigned short* first, int lane) {
    constexpr int kColumns = kActivates ? kUpRows : kDownRows, kUnits = 16 / kColumns;
    constexpr int kOf = kActivates ? kIntermediate : kHidden, kOwn = kColumns / 4;
    const int token = lane / 4, q = lane % 4;
    const unsigned long long policy = last_to_leave();
    for (int unit = segment.unit; unit < segment.unit + segment.units; ++unit) {
        barrier_wait(&s.summed[sum_at.at], sum_at.parity);
        const auto& part = s.part[sum_at.at];
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
            if (8 * n >= count) break;
            unsigned short* to = s.line[8 * n + token] + unit % kUnits * kColumns + q * kOwn;
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                float sum = add_up(part, n, q * kOwn + i, token);
                if (kActivates) sum = silu(sum) * add_up(part, n, kUpRows + q, token);
                to[i] = pack(sum, 0.0f);
            }
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.written[sum_at.at]);
        sum_at.advance<2>();
        if (unit % kUnits < kUnits - 1) continue;
#pragma unroll
        for (int n = 0; n < kGroups; ++n)
            if (8 * n + token < count)
                put(first + (8 * n + token) * kOf + unit / kUnits * 16 + 4 * q,
                    *reinterpret_cast<const uint2*>(s.line[8 * n + token] + 4 * q), policy);
        __syncwarp();
    }
}

#undef STAGES
#define STAGES TILE_STAGES
namespace tiles {
// What is looked up is written by the kernel that reads it, and no constant.
__device__ __forceinline__ int __ldg(const int* at) { return *at; }

#include "experts.cuh"

struct Dealt : Shared {
    int number[kStages];  // of the tile that begins there; -1: no more
};
static_assert(sizeof(Dealt) + 1023 <= SHARED_BYTES);

__device__ __forceinline__ void fetch_dealt(Dealt& s, Ring& ring, const TensorMap& weights,
                                            const TensorMap& h, const Share& share, int* dealt,
                                            const int* done, int each_done) {
    int expert = 0, ready = -1;
    auto fetch = [&](int number) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, 0);
        expert = tile.expert;
        if (ready != expert) {
            wait_for_count(done + expert, each_done * (s.tiles[expert + 1] - s.tiles[expert]));
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < share.steps; ++step) {
            Barrier* full = &s.full[ring.stage];
            barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            if (step == 0) s.number[ring.stage] = number;
            barrier_arrive(full, kGatherArrivals);  // for the warps that do not copy here
            barrier_expect(full, 2 * kPartBytes + boxes * kBoxTokens * 128);
            copy_weights(s.weights[ring.stage], weights, step * 64, 0, 2 * tile.row_tile,
                         tile.expert, 0, full);
            for (int box = 0; box < boxes; ++box)
                copy_box(s.tokens[ring.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first + box * kBoxTokens, full);
            ring.advance();
        }
    };
    for (int number, next = atomicAdd(dealt, 1); (number = next) < share.all;) {
        next = atomicAdd(dealt, 1);
        fetch(number);
    }
    barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
    s.number[ring.stage] = -1;
    barrier_arrive(&s.full[ring.stage], 1 + kGatherArrivals);
}

__device__ __forceinline__ void multiply_dealt(Dealt& s, Ring& ring, unsigned short* out, int columns,
                                               const Share& share, int group) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    while (true) {
        barrier_wait(&s.full[ring.stage], ring.parity);
        const int number = s.number[ring.stage];
        if (number < 0) break;
        const Tile tile = tile_of(s, number, share.row_tiles, expert, 0);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, ring, share.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kTokens>(a, b, s, ring, share.steps, group, lane);
#undef CASE
        }
        const int column = tile.row_tile * 256 + group * 64;
        write_out(a, s.out[group], tile, out, columns, column, group);
        if (column + 128 < columns)
            write_out(b, s.out[group], tile, out, columns, column + 128, group);
    }
}

__device__ __forceinline__ void products(Dealt& s, const TensorMap& up, const TensorMap& down,
                                         const TensorMap& h_map, const unsigned short* x,
                                         const int* token, const int* first, int* done,
                                         unsigned short* h, unsigned short* rows, int experts) {
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(s, first, experts);
    Share one, two;
    one.row_tiles = kIntermediate / 128;
    one.start = blockIdx.x;
    one.all = s.tiles[experts] * one.row_tiles;
    one.steps = kHidden / 64;
    one.stride = gridDim.x;
    two.row_tiles = (kHidden + 255) / 256;
    two.all = s.tiles[experts] * two.row_tiles;
    two.steps = kIntermediate / 64;
    one.block = 0;
    Ring ring;
    if (group == 2) {
        give_registers_down_to<88>();
        fetch_gathered(s, ring, up, x, token, one);
        if (threadIdx.x == 256)
            fetch_dealt(s, ring, down, h_map, two, done + experts, done, 2 * one.row_tiles);
        return;
    }
    take_registers_up_to<208>();
    multiply_all<true>(s, ring, h, kIntermediate, one, group, done);
    multiply_dealt(s, ring, rows, kHidden, two, group);
}

}  // namespace tiles

// x: [tokens][hidden]; ids: [slots]; w13: [experts][2][intermediate][hidden]; w2:
// [experts][hidden][intermediate], and maps of these and of h; place: [slots]; h:
// [places][intermediate]; rows: [places][hidden]; order: [blocks][each], a block's own of the token at
// every place and, ``slots_up`` behind it, the first place of every expert.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
experts(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
        const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
        const int* __restrict__ ids, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, int* __restrict__ place, unsigned short* h,
        unsigned short* __restrict__ rows, State* state, int* order, int each, int slots_up, int slots,
        int experts) {
    extern __shared__ unsigned char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 63));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    sort_slots(s, ids, slots, experts, place);
    if (12 * s.jobs > kMostJobs12 * s.active) {
        int *token = order + blockIdx.x * each, *first = token + slots_up;
        __syncthreads();  // slot_at is written by all
        for (int i = threadIdx.x; i < slots; i += kThreads) token[i] = s.slot_at[i] / kTopk;
        for (int i = threadIdx.x; i < experts; i += kThreads) first[i] = s.first_of[i];
        if (threadIdx.x == 0) first[experts] = slots;
        async_proxy_fence();  // copies come to where all this was
        __syncthreads();
        tiles::Dealt& dealt =
            *reinterpret_cast<tiles::Dealt*>(raw + (-shared_address(raw) & 1023));
        tiles::products(dealt, up, down, h_map, x, token, first, state->done, h, rows, experts);
        return;
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], kWarps);
        }
        barrier_init(&s.there, 1);
        barrier_init(&s.free, kWarps);
        for (int i = 0; i < 2; ++i) {
            barrier_init(&s.summed[i], kWarps);
            barrier_init(&s.written[i], 1);
        }
        for (int i = 0; i < kTold; ++i) {
            barrier_init(&s.told[i], 1);
            barrier_init(&s.done[i], kWarps + 2);
        }
        barrier_init_fence();
    }
    async_proxy_fence();  // copies come to where the counts were
    __syncthreads();

    const int blocks = gridDim.x, block = blockIdx.x;
    Turn told;
    if (warp == kFetches) {
        if (lane > 0) return;
        Turn at;
        auto fetch = [&](int matrix, int job, int unit, int units) {
            barrier_wait(&s.done[told.at], told.parity ^ 1);
            s.segments[told.at] = {matrix, job, unit, units};
            barrier_arrive(&s.told[told.at]);
            told.advance<kTold>();
            if (matrix == 2) return;
            const size_t expert = s.expert[job];
            const unsigned short* from =
                matrix ? w2 + (expert * kHidden + unit * kDownRows) * kIntermediate
                       : w13 + (expert * 2 * kIntermediate + unit * kUpRows) * kHidden;
            for (; units > 0; --units) {
                barrier_wait(&s.empty[at.at], at.parity ^ 1);
                Barrier* full = &s.full[at.at];
                if (matrix) {
                    barrier_expect(full, kDownRows * kIntermediate * 2);
                    copy_line(s.ring[at.at], from, kDownRows * kIntermediate * 2, full);
                    from += kDownRows * kIntermediate;
                } else {
                    barrier_expect(full, 2 * kUpPart);
                    copy_line(s.ring[at.at], from, kUpPart, full);
                    copy_line(s.ring[at.at] + kUpPart, from + kIntermediate * kHidden, kUpPart, full);
                    from += kUpRows * kHidden;
                }
                at.advance<kStages>();
            }
        };
        auto fetch_all = [&](int matrix, int each, int begin, int end) {
            while (begin < end) {
                const int job = begin / each, unit = begin - job * each;
                const int units = min(end - begin, each - unit);
                fetch(matrix, job, unit, units);
                begin += units;
            }
        };
        // A share of the units each, and the rest, so many at once, to who has room.
        auto fetch_share = [&](int matrix, int each, int percent, int take) {
            const int all = s.jobs * each, fixed = all / take * percent / 100;
            int next = atomicAdd(&state->dealt[matrix], 1);
            fetch_all(matrix, each, fixed * block / blocks * take,
                      fixed * (block + 1) / blocks * take);
            for (int begin; (begin = (fixed + next) * take) < all;) {
                next = atomicAdd(&state->dealt[matrix], 1);
                fetch_all(matrix, each, begin, begin + take);
            }
        };
        fetch_share(0, kUpUnits, UP_STATIC, 2 * kTake);
        fetch_share(1, kDownUnits, DOWN_STATIC, kTake);
        fetch(2, 0, 0, 0);
        return;
    }
    if (warp > kWrites) return;

    Turn at, sum_at;
    for (unsigned parity = 0;; told.advance<kTold>(), parity ^= 1) {  // that of the tokens
        barrier_wait(&s.told[told.at], told.parity);
        const Segment segment = s.segments[told.at];
        if (segment.matrix == 2) break;
        const int count = s.count[segment.job], first = s.first[segment.job];
        const int groups = (count + 7) / 8;

        if (warp == kBrings) {
            const int bytes = 2 * (segment.matrix ? kIntermediate : kHidden);
            barrier_wait(&s.free, parity ^ 1);
            if (segment.matrix) {
                wait_for_count(&state->done[segment.job], kUpUnits);
                async_proxy_fence_all();
            }
            if (lane == 0) barrier_expect(&s.there, count * bytes);
            __syncwarp();
            if (lane < count)
                copy_line(s.tokens + lane * (segment.matrix ? pitch(kIntermediate) : pitch(kHidden)),
                          segment.matrix ? h + (first + lane) * kIntermediate
                                         : x + s.slot_at[first + lane] / kTopk * kHidden,
                          bytes, &s.there);
        } else if (warp == kWrites) {
            if (segment.matrix)
                write_out<false>(s, sum_at, segment, count, rows + first * kHidden, lane);
            else
                write_out<true>(s, sum_at, segment, count, h + first * kIntermediate, lane);
            if (!segment.matrix) {
                async_proxy_fence_all();
                __syncwarp();
                if (lane == 0) {
                    __threadfence();
                    atomicAdd(&state->done[segment.job], segment.units);
                }
            }
        } else {
            barrier_wait(&s.there, parity);
            if (segment.matrix)
                multiply<kIntermediate, kDownRows>(s, at, sum_at, segment.units, groups, warp, lane);
            else
                multiply<kHidden, 8>(s, at, sum_at, segment.units, groups, warp, lane);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.done[told.at]);
    }
}
