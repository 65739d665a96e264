// As fix19.cu, with the tiles of fix20.cu as a second path. fix19.cu reads the weights of an expert
// once per kMaxTokens tokens. If that makes too many jobs, all blocks take the second path; they
// agree because every block sorts all slots. Sizes are known at compile time.
// KEEP: h and rows are stored with an evict-last L2 policy, because the same call reads them again.
#include "few.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
// Besides kWarps math warps: one loads weights, one loads tokens, and one is the epilogue.
constexpr int kWeightWarp = kWarps, kTokenWarp = kWarps + 1, kEpilogueWarp = kWarps + 2;
constexpr int kBlockWarps = kWarps + 4;  // the last warp is only for tiles
constexpr int kThreads = 32 * kBlockWarps;
constexpr int kStages = STAGES;
constexpr int kMaxSlots = 1024, kSlotsPerThread = (kMaxSlots + kThreads - 1) / kThreads;
constexpr int kMaxJobs = kMaxExperts + kMaxSlots / kMaxTokens;
constexpr int kAccumulators = kGroups < 3 ? 2 : 1;  // two shorten the chain of dependent mmas
constexpr int kPartialPitch = 36;                   // padded from 32 to avoid bank conflicts
constexpr int kSegmentStages = 4;                   // segments in flight between the warps
constexpr int kUnitsPerClaim = TAKE;                // of the down projection; up: twice as many
constexpr int kMaxJobsPer12Experts = 13;  // above it, tiles are faster

__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }

// A unit is one pipeline stage of contiguous rows: kUpRows of gate and as many of up, or kDownRows
// of the down projection.
constexpr int kUpRows = 4, kUpMatrixBytes = kUpRows * kHidden * 2;
constexpr int kUpUnits = kIntermediate / kUpRows;
constexpr int kDownRows = 16 * kIntermediate > 8 * kHidden ? 8 : 16;
constexpr int kDownUnits = kHidden / kDownRows;
constexpr int kStageBytes = larger(2 * kUpMatrixBytes, kDownRows * kIntermediate * 2);
static_assert(kUpUnits % (2 * kUnitsPerClaim) == 0 && kDownUnits % kUnitsPerClaim == 0);
static_assert(kUnitsPerClaim % 4 == 0);
// Bytes from token to token in shared memory, padded to avoid bank conflicts.
__host__ __device__ constexpr int pitch(int columns) { return 2 * columns + 64; }
constexpr int kTokenPitch = pitch(larger(kHidden, kIntermediate));
static_assert(kHidden % 128 == 0 && kIntermediate % 128 == 0);

struct GlobalState {  // initially zero
    int next_claim[2];  // of each product
    int up_units_done[kMaxJobs];
};

// Units of a job. A job is an expert with up to kMaxTokens of its tokens.
struct Segment {
    int product, job, unit, units;  // product: 0 up, 1 down, 2 end
};

struct SharedStorage {
    unsigned char weights[kStages][kStageBytes];
    unsigned char tokens[kMaxTokens * kTokenPitch];
    float partial[2][kWarps][kGroups][kDownRows / 4][kPartialPitch];
    alignas(16) unsigned short out_tile[kMaxTokens][16];  // 16 columns, one 32-byte sector
    Barrier full[kStages], empty[kStages], tokens_full, tokens_empty, sums_full[2], sums_empty[2];
    Barrier segment_full[kSegmentStages], segment_empty[kSegmentStages];
    Segment segments[kSegmentStages];
    unsigned short sorted_slots[kMaxSlots];
    short expert[kMaxJobs], first[kMaxJobs], count[kMaxJobs];
    int expert_first[kMaxExperts], expert_count[kMaxExperts], jobs, active;
};
static_assert(sizeof(SharedStorage) + 64 <= SHARED_BYTES);
static_assert(kBlockWarps * kMaxExperts * 4 <= kStages * kStageBytes,
              "the counts of sort_slots do not fit into the stages");

// TMA bulk copy of contiguous bytes, a multiple of 16.
__device__ __forceinline__ void bulk_copy(void* to, const unsigned short* from, int bytes,
                                          Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

// Volatile: the compiler would hoist the loads and run out of registers.
__device__ __forceinline__ Chunk load_shared_chunk(unsigned address) {
    Chunk c;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w) : "r"(address));
    return c;
}

__device__ __forceinline__ unsigned long long evict_last_policy() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void store_with_policy(void* to, uint2 v, unsigned long long policy) {
#if KEEP
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "l"(policy) : "memory");
#else
    *reinterpret_cast<uint2*>(to) = v;
#endif
}

struct PipelineState {
    int index = 0;
    unsigned parity = 0;

    template <int kCount>
    __device__ __forceinline__ void advance() {
        if (++index == kCount) {
            index = 0;
            parity ^= 1;
        }
    }
};

// Stable counting sort of the slots by expert, and the list of jobs. Every block sorts for itself.
__device__ __forceinline__ void sort_slots(SharedStorage& s, const int* __restrict__ ids, int slots,
                                           int experts, int* __restrict__ sorted_row) {
    int(*counts)[kMaxExperts] = reinterpret_cast<int(*)[kMaxExperts]>(s.weights);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int slots_per_thread = (slots + kThreads - 1) / kThreads;
    int id[kSlotsPerThread], rank[kSlotsPerThread];
#pragma unroll
    for (int i = 0; i < kSlotsPerThread; ++i) {
        const int slot = (warp * slots_per_thread + i) * 32 + lane;
        id[i] = i < slots_per_thread && slot < slots ? __ldg(ids + slot) : -1;
    }
    for (int i = lane; i < experts; i += 32) counts[warp][i] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSlotsPerThread; ++i) {
        if (i >= slots_per_thread) break;
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
        for (int i = 0; i < kBlockWarps; ++i) {
            const int warp_count = counts[i][expert];
            counts[i][expert] = before;
            before += warp_count;
        }
        s.expert_count[expert] = before;
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0, jobs = 0, active = 0;
        for (int base = 0; base < experts; base += 32) {
            const int expert = base + lane, count = expert < experts ? s.expert_count[expert] : 0;
            const int own_jobs = (count + kMaxTokens - 1) / kMaxTokens;
            int scan = count << 16 | own_jobs;  // one prefix sum for both
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int below = __shfl_up_sync(~0u, scan, step);
                if (lane >= step) scan += below;
            }
            const int first = before + (scan >> 16) - count;
            const int job = jobs + (scan & 0xffff) - own_jobs;
            if (expert < experts) s.expert_first[expert] = first;
            for (int i = 0; i < own_jobs; ++i) {
                s.expert[job + i] = expert;
                s.first[job + i] = first + i * kMaxTokens;
                s.count[job + i] = min(kMaxTokens, count - i * kMaxTokens);
            }
            const int all = __shfl_sync(~0u, scan, 31);
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
    for (int i = 0; i < kSlotsPerThread; ++i) {
        const int slot = (warp * slots_per_thread + i) * 32 + lane;
        if (id[i] < 0) continue;
        const int row = s.expert_first[id[i]] + counts[warp][id[i]] + rank[i];
        s.sorted_slots[row] = slot;
        if (blockIdx.x == 0) sorted_row[slot] = row;
    }
}

// Math warps: multiplies the units of a segment by the tokens of its job, which stay in registers.
// The warps split the summed dimension: each has every kWarps-th step of 64 columns.
template <int kColumns, int kRows>
__device__ __forceinline__ void multiply(SharedStorage& s, PipelineState& pipe, PipelineState& sums,
                                         int units, int groups, int warp, int lane) {
    constexpr int kRowBytes = 2 * kColumns, kSteps = kColumns / 64;
    constexpr int kStepsPerWarp = (kSteps + kWarps - 1) / kWarps;
    const int g = lane / 4, lane_offset = warp * 128 + lane % 4 * 16;
    auto in_range = [&](int i) { return kSteps % kWarps == 0 || warp + i * kWarps < kSteps; };
    Chunk b[kStepsPerWarp][2][kGroups];
#pragma unroll
    for (int i = 0; i < kStepsPerWarp; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < kGroups; ++n)
                b[i][half][n] =
                    in_range(i) ? *reinterpret_cast<const Chunk*>(
                                      s.tokens + (8 * n + g) * pitch(kColumns) + lane_offset +
                                      i * kWarps * 128 + half * 64)
                                : Chunk{};
    // The fence orders the reads before the copy that overwrites the buffer.
    auto release = [&](Barrier* barrier) {
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(barrier);
    };
    release(&s.tokens_empty);

    constexpr int kHalf = (kStepsPerWarp + 1) / 2;  // one half loads while the other multiplies
    Chunk a[2][kHalf][2][kRows / 8];
    auto load_half = [&](int stage_half) {
        if (stage_half == 0) barrier_wait(&s.full[pipe.index], pipe.parity);
        const unsigned row = shared_address(s.weights[pipe.index]) + g * kRowBytes + lane_offset;
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
            const int step = stage_half * kHalf + i;
            if (step >= kStepsPerWarp || !in_range(step)) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int r = 0; r < kRows / 8; ++r)
                    a[stage_half][i][half][r] =
                        load_shared_chunk(row + r * 8 * kRowBytes + step * kWarps * 128 +
                                          half * 64);
        }
    };
    load_half(0);
    for (; units > 0; --units) {
        float sum[kAccumulators][kGroups][4] = {};
#pragma unroll
        for (int stage_half = 0; stage_half < 2; ++stage_half) {
            if (stage_half == 0)
                load_half(1);
            else if (units > 1)
                load_half(0);
#pragma unroll
            for (int i = 0; i < kHalf; ++i) {
                const int step = stage_half * kHalf + i;
                if (step >= kStepsPerWarp || !in_range(step)) continue;
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int n = 0; n < kGroups; ++n)
                        if (n < groups)
                            mma(sum[half % kAccumulators][n], a[stage_half][i][half][0],
                                kRows == 16 ? a[stage_half][i][half][kRows / 8 - 1] : Chunk{},
                                b[step][half][n]);
            }
            if (stage_half == 1) continue;
            release(&s.empty[pipe.index]);
            pipe.advance<kStages>();
        }
        barrier_wait(&s.sums_empty[sums.index], sums.parity ^ 1);
#pragma unroll
        for (int n = 0; n < kGroups; ++n)
#pragma unroll
            for (int i = 0; i < kRows / 4; ++i)
                if (n < groups)
                    s.partial[sums.index][warp][n][i][lane] =
                        kAccumulators == 2 ? sum[0][n][i] + sum[kAccumulators - 1][n][i]
                                           : sum[0][n][i];
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_full[sums.index]);
        sums.advance<2>();
    }
}

// Sum of the math warps' partial results for one row and token.
__device__ __forceinline__ float sum_warps(
    const float (&partial)[kWarps][kGroups][kDownRows / 4][kPartialPitch], int group, int row,
    int token) {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
        sum += partial[warp][group][row / 8 * 2 + token % 2][row % 8 * 4 + token / 2];
    return sum;
}

// Epilogue warp: stores the units of a segment, 16 columns at a time, so that every store fills a
// sector. first: the job's first row of the output.
template <bool kIsUp>
__device__ __forceinline__ void store_output(SharedStorage& s, PipelineState& sums,
                                             const Segment& segment, int count,
                                             unsigned short* first, int lane) {
    constexpr int kColumns = kIsUp ? kUpRows : kDownRows, kUnits = 16 / kColumns;
    constexpr int kRowLength = kIsUp ? kIntermediate : kHidden, kColumnsPerLane = kColumns / 4;
    const int token = lane / 4, q = lane % 4;
    const unsigned long long policy = evict_last_policy();
    for (int unit = segment.unit; unit < segment.unit + segment.units; ++unit) {
        barrier_wait(&s.sums_full[sums.index], sums.parity);
        const auto& partial = s.partial[sums.index];
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
            if (8 * n >= count) break;
            unsigned short* to =
                s.out_tile[8 * n + token] + unit % kUnits * kColumns + q * kColumnsPerLane;
#pragma unroll
            for (int i = 0; i < kColumnsPerLane; ++i) {
                float sum = sum_warps(partial, n, q * kColumnsPerLane + i, token);
                if (kIsUp) sum = silu(sum) * sum_warps(partial, n, kUpRows + q, token);
                to[i] = pack(sum, 0.0f);
            }
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_empty[sums.index]);
        sums.advance<2>();
        if (unit % kUnits < kUnits - 1) continue;
#pragma unroll
        for (int n = 0; n < kGroups; ++n)
            if (8 * n + token < count)
                store_with_policy(
                    first + (8 * n + token) * kRowLength + unit / kUnits * 16 + 4 * q,
                    *reinterpret_cast<const uint2*>(s.out_tile[8 * n + token] + 4 * q), policy);
        __syncwarp();
    }
}

#undef STAGES
#define STAGES TILE_STAGES
namespace tiles {
// Replaces the intrinsic in experts.cuh: this kernel writes the data, so it is not read-only.
__device__ __forceinline__ int __ldg(const int* at) { return *at; }

#include "experts.cuh"

struct TileStorage : SharedStorage {
    int number[kStages];  // of the tile that begins in a stage; -1: none left
};
static_assert(sizeof(TileStorage) + 1023 <= SHARED_BYTES);

// Loads tiles of the second product, claimed from a counter, once all of their h has been written.
__device__ __forceinline__ void load_claimed_tiles(TileStorage& s, PipelineState& pipeline,
                                                   const TensorMap& weights, const TensorMap& h,
                                                   const TileSchedule& schedule, int* next_tile,
                                                   const int* done, int writes_per_tile) {
    int expert = 0, ready = -1;
    auto load_tile = [&](int number) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        if (ready != expert) {
            const int token_tiles = s.tiles_before[expert + 1] - s.tiles_before[expert];
            wait_for_counter(done + expert, writes_per_tile * token_tiles);
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < schedule.steps; ++step) {
            Barrier* full = &s.full[pipeline.stage];
            barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
            if (step == 0) s.number[pipeline.stage] = number;
            barrier_arrive(full, kGatherArrivals);  // for the gathering threads
            barrier_expect(full, 2 * kWeightHalfBytes + boxes * kBoxTokens * 128);
            load_weights(s.weights[pipeline.stage], weights, step * 64, 0, 2 * tile.weight_tile,
                         tile.expert, 0, full);
            for (int box = 0; box < boxes; ++box)
                tma_load(s.tokens[pipeline.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first_row + box * kBoxTokens, full);
            pipeline.advance();
        }
    };
    for (int number, next = atomicAdd(next_tile, 1); (number = next) < schedule.end;) {
        next = atomicAdd(next_tile, 1);
        load_tile(number);
    }
    barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
    s.number[pipeline.stage] = -1;
    barrier_arrive(&s.full[pipeline.stage], 1 + kGatherArrivals);
}

// Multiplies the claimed tiles and stores them to out: [slots][columns].
__device__ __forceinline__ void multiply_claimed_tiles(TileStorage& s, PipelineState& pipeline,
                                                       unsigned short* out, int columns,
                                                       const TileSchedule& schedule, int group) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    while (true) {
        barrier_wait(&s.full[pipeline.stage], pipeline.parity);
        const int number = s.number[pipeline.stage];
        if (number < 0) break;
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, pipeline, schedule.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kMaxTokens>(a, b, s, pipeline, schedule.steps, group, lane);
#undef CASE
        }
        const int column = tile.weight_tile * 256 + group * 64;
        store_output(a, s.out[group], tile, out, columns, column, group);
        if (column + 128 < columns)
            store_output(b, s.out[group], tile, out, columns, column + 128, group);
    }
}

__device__ __forceinline__ void run(TileStorage& s, const TensorMap& up, const TensorMap& down,
                                    const TensorMap& h_map, const unsigned short* x,
                                    const int* token, const int* first_row, int* done,
                                    unsigned short* h, unsigned short* rows, int experts) {
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    init_shared_storage(s, first_row, experts);
    TileSchedule up_schedule, down_schedule;
    up_schedule.weight_tiles = kIntermediate / 128;
    up_schedule.start = blockIdx.x;
    up_schedule.end = s.tiles_before[experts] * up_schedule.weight_tiles;
    up_schedule.steps = kHidden / 64;
    up_schedule.stride = gridDim.x;
    down_schedule.weight_tiles = (kHidden + 255) / 256;
    down_schedule.end = s.tiles_before[experts] * down_schedule.weight_tiles;
    down_schedule.steps = kIntermediate / 64;
    up_schedule.block = 0;
    PipelineState pipeline;
    if (group == 2) {
        decrease_registers<88>();
        load_gathered(s, pipeline, up, x, token, up_schedule);
        if (threadIdx.x == 256)
            load_claimed_tiles(s, pipeline, down, h_map, down_schedule, done + experts, done,
                               2 * up_schedule.weight_tiles);
        return;
    }
    increase_registers<208>();
    multiply_tiles<true>(s, pipeline, h, kIntermediate, up_schedule, group, done);
    multiply_claimed_tiles(s, pipeline, rows, kHidden, down_schedule, group);
}

}  // namespace tiles

// x: [tokens][hidden]; ids: [slots]; w13: [experts][2][intermediate][hidden]; w2:
// [experts][hidden][intermediate]; up, down, h_map: tensor maps of w13, w2 and h; sorted_row:
// [slots], a slot's position in the order sorted by expert; h: [slots][intermediate] and rows:
// [slots][hidden], in that order; order: [blocks][stride], the block's own token of each row and,
// from padded_slots on, the first row of each expert.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
experts(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
        const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
        const int* __restrict__ ids, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, int* __restrict__ sorted_row, unsigned short* h,
        unsigned short* __restrict__ rows, GlobalState* state, int* order, int stride,
        int padded_slots, int slots, int experts) {
    extern __shared__ unsigned char raw[];
    SharedStorage& s = *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 63));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    sort_slots(s, ids, slots, experts, sorted_row);
    if (12 * s.jobs > kMaxJobsPer12Experts * s.active) {
        int *token = order + blockIdx.x * stride, *first_row = token + padded_slots;
        __syncthreads();  // all threads have written sorted_slots
        for (int i = threadIdx.x; i < slots; i += kThreads) token[i] = s.sorted_slots[i] / kTopk;
        for (int i = threadIdx.x; i < experts; i += kThreads) first_row[i] = s.expert_first[i];
        if (threadIdx.x == 0) first_row[experts] = slots;
        async_proxy_fence();  // copies will overwrite the sorted slots
        __syncthreads();
        tiles::TileStorage& storage =
            *reinterpret_cast<tiles::TileStorage*>(raw + (-shared_address(raw) & 1023));
        tiles::run(storage, up, down, h_map, x, token, first_row, state->up_units_done, h, rows,
                   experts);
        return;
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], kWarps);
        }
        barrier_init(&s.tokens_full, 1);
        barrier_init(&s.tokens_empty, kWarps);
        for (int i = 0; i < 2; ++i) {
            barrier_init(&s.sums_full[i], kWarps);
            barrier_init(&s.sums_empty[i], 1);
        }
        for (int i = 0; i < kSegmentStages; ++i) {
            barrier_init(&s.segment_full[i], 1);
            barrier_init(&s.segment_empty[i], kWarps + 2);
        }
        barrier_init_fence();
    }
    async_proxy_fence();  // bulk copies will overwrite the counts
    __syncthreads();

    const int blocks = gridDim.x, block = blockIdx.x;
    PipelineState segment_state;
    if (warp == kWeightWarp) {
        if (lane > 0) return;
        PipelineState pipe;
        auto load_segment = [&](int product, int job, int unit, int units) {
            barrier_wait(&s.segment_empty[segment_state.index], segment_state.parity ^ 1);
            s.segments[segment_state.index] = {product, job, unit, units};
            barrier_arrive(&s.segment_full[segment_state.index]);
            segment_state.advance<kSegmentStages>();
            if (product == 2) return;
            const size_t expert = s.expert[job];
            const unsigned short* from =
                product ? w2 + (expert * kHidden + unit * kDownRows) * kIntermediate
                       : w13 + (expert * 2 * kIntermediate + unit * kUpRows) * kHidden;
            for (; units > 0; --units) {
                barrier_wait(&s.empty[pipe.index], pipe.parity ^ 1);
                Barrier* full = &s.full[pipe.index];
                if (product) {
                    barrier_expect(full, kDownRows * kIntermediate * 2);
                    bulk_copy(s.weights[pipe.index], from, kDownRows * kIntermediate * 2, full);
                    from += kDownRows * kIntermediate;
                } else {
                    barrier_expect(full, 2 * kUpMatrixBytes);
                    bulk_copy(s.weights[pipe.index], from, kUpMatrixBytes, full);
                    bulk_copy(s.weights[pipe.index] + kUpMatrixBytes,
                              from + kIntermediate * kHidden, kUpMatrixBytes, full);
                    from += kUpRows * kHidden;
                }
                pipe.advance<kStages>();
            }
        };
        auto load_units = [&](int product, int units_per_job, int begin, int end) {
            while (begin < end) {
                const int job = begin / units_per_job, unit = begin - job * units_per_job;
                const int units = min(end - begin, units_per_job - unit);
                load_segment(product, job, unit, units);
                begin += units;
            }
        };
        // A static share of the units, then dynamic claims until none is left.
        auto load_product = [&](int product, int units_per_job, int static_percent,
                                int units_per_claim) {
            const int total = s.jobs * units_per_job;
            const int static_claims = total / units_per_claim * static_percent / 100;
            int next = atomicAdd(&state->next_claim[product], 1);
            load_units(product, units_per_job, static_claims * block / blocks * units_per_claim,
                       static_claims * (block + 1) / blocks * units_per_claim);
            for (int begin; (begin = (static_claims + next) * units_per_claim) < total;) {
                next = atomicAdd(&state->next_claim[product], 1);
                load_units(product, units_per_job, begin, begin + units_per_claim);
            }
        };
        load_product(0, kUpUnits, UP_STATIC, 2 * kUnitsPerClaim);
        load_product(1, kDownUnits, DOWN_STATIC, kUnitsPerClaim);
        load_segment(2, 0, 0, 0);
        return;
    }
    if (warp > kEpilogueWarp) return;

    PipelineState pipe, sums;
    // parity: that of the tokens' barriers.
    for (unsigned parity = 0;; segment_state.advance<kSegmentStages>(), parity ^= 1) {
        barrier_wait(&s.segment_full[segment_state.index], segment_state.parity);
        const Segment segment = s.segments[segment_state.index];
        if (segment.product == 2) break;
        const int count = s.count[segment.job], first = s.first[segment.job];
        const int groups = (count + 7) / 8;

        if (warp == kTokenWarp) {
            const int bytes = 2 * (segment.product ? kIntermediate : kHidden);
            barrier_wait(&s.tokens_empty, parity ^ 1);
            if (segment.product) {
                wait_for_counter(&state->up_units_done[segment.job], kUpUnits);
                async_proxy_fence_all();
            }
            if (lane == 0) barrier_expect(&s.tokens_full, count * bytes);
            __syncwarp();
            if (lane < count)
                bulk_copy(
                    s.tokens + lane * (segment.product ? pitch(kIntermediate) : pitch(kHidden)),
                    segment.product ? h + (first + lane) * kIntermediate
                                    : x + s.sorted_slots[first + lane] / kTopk * kHidden,
                    bytes, &s.tokens_full);
        } else if (warp == kEpilogueWarp) {
            if (segment.product)
                store_output<false>(s, sums, segment, count, rows + first * kHidden, lane);
            else
                store_output<true>(s, sums, segment, count, h + first * kIntermediate, lane);
            if (!segment.product) {
                async_proxy_fence_all();
                __syncwarp();
                if (lane == 0) {
                    __threadfence();
                    atomicAdd(&state->up_units_done[segment.job], segment.units);
                }
            }
        } else {
            barrier_wait(&s.tokens_full, parity);
            if (segment.product)
                multiply<kIntermediate, kDownRows>(s, pipe, sums, segment.units, groups, warp,
                                                   lane);
            else
                multiply<kHidden, 8>(s, pipe, sums, segment.units, groups, warp, lane);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.segment_empty[segment_state.index]);
    }
}
