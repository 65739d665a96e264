// One token: the weights of its experts stream through shared memory. A warp has a ring of its own. It
// fills a stage that it has multiplied with the next rows of the first product (UP), and once there are
// no more, the room of several with rows of the second (DOWN), where both are in one kernel: these are
// on their way while blocks wait for each other's part of h.
#include "few.cuh"

constexpr bool kUp = UP, kDown = DOWN;
constexpr int kMostTopk = 16, kMostStages = 8;

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
__device__ __forceinline__ float2 dot(const Chunk* a, const Chunk* a8, const Chunk* b, int chunks) {
    constexpr int kSteps = 4;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float sum[kSteps][4] = {};
    for (int base = 0; base < chunks; base += 32 * kSteps) {
        Chunk of_a[kSteps], of_a8[kSteps], of_b[kSteps];
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            const int at = base + 32 * i + lane;
            const bool is = at < chunks;
            of_a[i] = is ? a[at] : Chunk{};
            of_a8[i] = is && a8 ? a8[at] : Chunk{};
            of_b[i] = is ? b[at] : Chunk{};
        }
#pragma unroll
        for (int i = 0; i < kSteps; ++i) mma(sum[i], of_a[i], of_a8[i], of_b[i]);
    }
    float2 total = {};
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
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
// [experts][hidden][intermediate]; h: [topk][intermediate]; turn: zero at first. A ring has room for
// up_stages of two rows of w13, and for one row of w2 of every expert of the token.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
experts(const unsigned short* __restrict__ x, const int* __restrict__ ids,
        const float* __restrict__ weights, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, unsigned short* h, unsigned short* __restrict__ out,
        unsigned* turn, int topk, int hidden, int intermediate, int ring_bytes, int up_stages) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ Barrier full[2][kWarps][kMostStages];
    __shared__ int expert_of[kMostTopk];
    __shared__ float weight_of[kMostTopk];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < topk) {
        expert_of[threadIdx.x] = ids[threadIdx.x];
        weight_of[threadIdx.x] = weights[threadIdx.x];
    }
    for (int i = threadIdx.x; i < 2 * kWarps * kMostStages; i += 32 * kWarps)
        barrier_init(&full[0][0][i], 1);
    barrier_init_fence();
    __syncthreads();

    const int up_bytes = 4 * hidden, row_bytes = 2 * intermediate, down_bytes = topk * row_bytes;
    unsigned char* ring = raw + warp * ring_bytes;
    const int before_up = ring_bytes - up_stages * up_bytes;
    Chunk* x_part = reinterpret_cast<Chunk*>(raw + kWarps * ring_bytes);
    Chunk* h_part = x_part + hidden / 8;

    // Pairs of rows are dealt to the warps of all blocks in turn; columns of the output in a piece to
    // each block, and there in turn.
    const int pairs = topk * intermediate, stride = kWarps * gridDim.x;
    const int first = warp * gridDim.x + blockIdx.x;
    const int ups = kUp ? max(0, (pairs - first + stride - 1) / stride) : 0;
    const int shift = (up_stages - ups % up_stages) % up_stages;  // the last one is at the end
    const int begin = blockIdx.x * hidden / gridDim.x + warp;
    const int end = (blockIdx.x + 1) * hidden / gridDim.x;
    const int downs = kDown ? max(0, (end - begin + kWarps - 1) / kWarps) : 0;
    const int down_stages = min(kMostStages, ring_bytes / down_bytes);
    int filled = 0;  // of the second product, before its first is multiplied

    auto fill_up = [&](int n) {
        const int pair = first + n * stride, slot = pair / intermediate;
        const int stage = (n + shift) % up_stages;
        const unsigned short* gate =
            w13 + (static_cast<size_t>(expert_of[slot]) * 2 * intermediate + pair -
                   slot * intermediate) * hidden;
        unsigned char* to = ring + before_up + stage * up_bytes;
        Barrier* barrier = &full[0][warp][stage];
        barrier_expect(barrier, up_bytes);
        copy_row(to, gate, up_bytes / 2, barrier);
        copy_row(to + up_bytes / 2, gate + static_cast<size_t>(intermediate) * hidden, up_bytes / 2,
                 barrier);
    };
    auto fill_down = [&](int n) {
        const int stage = n % down_stages;
        Barrier* barrier = &full[1][warp][stage];
        barrier_expect(barrier, down_bytes);
        for (int slot = 0; slot < topk; ++slot)
            copy_row(ring + stage * down_bytes + slot * row_bytes,
                     w2 + (static_cast<size_t>(expert_of[slot]) * hidden + begin + n * kWarps) *
                              intermediate,
                     row_bytes, barrier);
    };
    auto fill_down_to = [&](int bytes) {  // of the ring, which nothing of the first product needs
        for (; filled < min(down_stages, downs) && (filled + 1) * down_bytes <= bytes; ++filled)
            fill_down(filled);
    };
    if (lane == 0) {
        for (int n = 0; n < min(up_stages, ups); ++n) fill_up(n);
        if (ups <= up_stages) fill_down_to(ring_bytes - ups * up_bytes);
    }
    for (int i = threadIdx.x; kUp && i < hidden / 8; i += 32 * kWarps)
        x_part[i] = reinterpret_cast<const Chunk*>(x)[i];
    __syncthreads();

    for (int n = 0; n < ups; ++n) {
        const int stage = (n + shift) % up_stages, pair = first + n * stride;
        const Chunk* gate =
            reinterpret_cast<const Chunk*>(ring + before_up + stage * up_bytes);
        barrier_wait(&full[0][warp][stage], n / up_stages % 2);
        const float2 sum = dot(gate, gate + hidden / 8, x_part, hidden / 8);
        __syncwarp();
        if (lane == 0) {
            if (n + up_stages < ups)
                fill_up(n + up_stages);
            else
                fill_down_to(before_up + (stage + 1) * up_bytes);
            h[pair] = pack(weight_of[pair / intermediate] * silu(sum.x) * sum.y, 0.0f);
        }
    }
    if (!kDown) return;
    if (kUp) wait_for_all(turn);
    for (int i = threadIdx.x; i < pairs / 8; i += 32 * kWarps)
        h_part[i] = __ldcg(reinterpret_cast<const Chunk*>(h) + i);
    __syncthreads();

    for (int n = 0; n < downs; ++n) {
        const int stage = n % down_stages;
        const Chunk* row = reinterpret_cast<const Chunk*>(ring + stage * down_bytes);
        barrier_wait(&full[1][warp][stage], n / down_stages % 2);
        const float2 sum = dot(row, nullptr, h_part, pairs / 8);
        __syncwarp();
        if (lane == 0) {
            if (n + down_stages < downs) fill_down(n + down_stages);
            out[begin + n * kWarps] = pack(sum.x, 0.0f);
        }
    }
}
