// As fix16.cu, with all sizes known when it is compiled: nothing is divided at run time, and no chunk is
// asked for that a row has not.
#include "few.cuh"

constexpr int kTopk = TOPK, kHidden = HIDDEN, kIntermediate = INTERMEDIATE;
constexpr int kRingBytes = RING_BYTES, kUpStages = UP_STAGES;  // of a warp
constexpr int kUpBytes = 4 * kHidden, kRowBytes = 2 * kIntermediate, kDownBytes = kTopk * kRowBytes;
constexpr int kDownStages = kRingBytes / kDownBytes;
constexpr int kBeforeUp = kRingBytes - kUpStages * kUpBytes;
constexpr int kPairs = kTopk * kIntermediate;
static_assert(kBeforeUp >= 0 && kDownStages > 0);

// So many bytes, a multiple of 16, that follow each other on both sides.
__device__ __forceinline__ void copy_row(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

// A lane has every 32nd chunk. The four lanes of row g of the fragments of a are those of column g of
// b and have the same chunks of both, so that what is wanted stands on the diagonal, and g + 8 rows
// down for a8. All lanes get both sums.
template <int kChunks, bool kTwo>
__device__ __forceinline__ float2 dot(const Chunk* a, const Chunk* a8, const Chunk* b) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int kSums = 4;
    float sum[kSums][4] = {};
#pragma unroll
    for (int from = 0; from < kChunks; from += 32) {
        const bool is = from + 32 <= kChunks || from + lane < kChunks;
        const Chunk none = {};
        mma(sum[from / 32 % kSums], is ? a[from + lane] : none, kTwo && is ? a8[from + lane] : none,
            is ? b[from + lane] : none);
    }
    float2 total = {};
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
        total.x += g % 2 ? sum[i][1] : sum[i][0];
        total.y += g % 2 ? sum[i][3] : sum[i][2];
    }
    if (t != g / 2) total = {};
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        total.x += __shfl_xor_sync(~0u, total.x, apart);
        total.y += __shfl_xor_sync(~0u, total.y, apart);
    }
    return total;
}

// Of all threads of the grid, whose blocks all run. The upper bit of ``turn`` flips when the last block
// is there, and stays until the next time; what was written before is seen by all, past L1.
__device__ __forceinline__ void wait_for_all(unsigned* turn) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const unsigned one = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
        const unsigned before = atomicAdd(turn, one);
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(turn) : "memory");
        } while (((before ^ seen) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// x, out: [hidden]; ids, weights: [topk]; w13: [experts][2][intermediate][hidden]; w2:
// [experts][hidden][intermediate]; h: [topk][intermediate]; turn: zero at first.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
experts(const unsigned short* __restrict__ x, const int* __restrict__ ids,
        const float* __restrict__ weights, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, unsigned short* h, unsigned short* __restrict__ out,
        unsigned* turn) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ Barrier up_full[kWarps][kUpStages], down_full[kWarps][kDownStages];
    __shared__ int expert_of[kTopk];
    __shared__ float weight_of[kTopk];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < kTopk) {
        expert_of[threadIdx.x] = ids[threadIdx.x];
        weight_of[threadIdx.x] = weights[threadIdx.x];
    }
    if (lane < kUpStages) barrier_init(&up_full[warp][lane], 1);
    if (lane < kDownStages) barrier_init(&down_full[warp][lane], 1);
    barrier_init_fence();
    __syncthreads();

    unsigned char* ring = raw + warp * kRingBytes;
    Chunk* x_part = reinterpret_cast<Chunk*>(raw + kWarps * kRingBytes);
    Chunk* h_part = x_part + kHidden / 8;

    // Pairs of rows are dealt to the warps of all blocks in turn; columns of the output in a piece to
    // each block, and there in turn.
    const int stride = kWarps * gridDim.x;
    const int first = warp * gridDim.x + blockIdx.x;
    const int ups = max(0, (kPairs - first + stride - 1) / stride);
    const int shift = (kUpStages - ups % kUpStages) % kUpStages;  // the last one is at the end
    const int begin = blockIdx.x * kHidden / gridDim.x + warp;
    const int end = (blockIdx.x + 1) * kHidden / gridDim.x;
    const int downs = max(0, (end - begin + kWarps - 1) / kWarps);
    int filled = 0;  // of the second product, before its first is multiplied

    auto fill_up = [&](int n) {
        const int pair = first + n * stride, slot = pair / kIntermediate;
        const int stage = (n + shift) % kUpStages;
        const unsigned short* gate =
            w13 + (static_cast<size_t>(expert_of[slot]) * 2 * kIntermediate + pair -
                   slot * kIntermediate) * kHidden;
        unsigned char* to = ring + kBeforeUp + stage * kUpBytes;
        Barrier* barrier = &up_full[warp][stage];
        barrier_expect(barrier, kUpBytes);
        copy_row(to, gate, kUpBytes / 2, barrier);
        copy_row(to + kUpBytes / 2, gate + kIntermediate * kHidden, kUpBytes / 2, barrier);
    };
    auto fill_down = [&](int n) {
        const int stage = n % kDownStages;
        Barrier* barrier = &down_full[warp][stage];
        barrier_expect(barrier, kDownBytes);
        for (int slot = 0; slot < kTopk; ++slot)
            copy_row(ring + stage * kDownBytes + slot * kRowBytes,
                     w2 + (static_cast<size_t>(expert_of[slot]) * kHidden + begin + n * kWarps) *
                              kIntermediate,
                     kRowBytes, barrier);
    };
    auto fill_down_to = [&](int bytes) {  // of the ring, which nothing of the first product needs
        for (; filled < min(kDownStages, downs) && (filled + 1) * kDownBytes <= bytes; ++filled)
            fill_down(filled);
    };
    if (lane == 0) {
        for (int n = 0; n < min(kUpStages, ups); ++n) fill_up(n);
        if (ups <= kUpStages) fill_down_to(kRingBytes - ups * kUpBytes);
    }
    for (int i = threadIdx.x; i < kHidden / 8; i += 32 * kWarps)
        x_part[i] = reinterpret_cast<const Chunk*>(x)[i];
    __syncthreads();

    for (int n = 0; n < ups; ++n) {
        const int stage = (n + shift) % kUpStages, pair = first + n * stride;
        const Chunk* gate = reinterpret_cast<const Chunk*>(ring + kBeforeUp + stage * kUpBytes);
        barrier_wait(&up_full[warp][stage], n / kUpStages % 2);
        const float2 sum = dot<kHidden / 8, true>(gate, gate + kHidden / 8, x_part);
        __syncwarp();
        if (lane == 0) {
            if (n + kUpStages < ups)
                fill_up(n + kUpStages);
            else
                fill_down_to(kBeforeUp + (stage + 1) * kUpBytes);
            h[pair] = pack(weight_of[pair / kIntermediate] * silu(sum.x) * sum.y, 0.0f);
        }
    }
    wait_for_all(turn);
    for (int i = threadIdx.x; i < kPairs / 8; i += 32 * kWarps)
        h_part[i] = __ldcg(reinterpret_cast<const Chunk*>(h) + i);
    __syncthreads();

    for (int n = 0; n < downs; ++n) {
        const int stage = n % kDownStages;
        const Chunk* row = reinterpret_cast<const Chunk*>(ring + stage * kDownBytes);
        barrier_wait(&down_full[warp][stage], n / kDownStages % 2);
        const float2 sum = dot<kPairs / 8, false>(row, nullptr, h_part);
        __syncwarp();
        if (lane == 0) {
            if (n + kDownStages < downs) fill_down(n + kDownStages);
            out[begin + n * kWarps] = pack(sum.x, 0.0f);
        }
    }
}
