// One token: gate/up (UP) and down projection (DOWN), in one kernel if both are set. Each warp
// streams rows of weights through its own circular buffer. After its last gate/up row, it refills
// the buffer with rows of the down projection, which load while the blocks wait for h.
#include "few.cuh"

constexpr bool kUp = UP, kDown = DOWN;
constexpr int kMaxTopk = 16, kMaxStages = 8;

// TMA bulk copy of contiguous bytes, a multiple of 16.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier)) : "memory");
}

// Dot products of rows a and a8 (optional) with b, by mma.sync. Lane i has every 32nd chunk of all
// three. The products of equal chunks are on the diagonal of the 8 x 8 result, and 8 rows below it
// for a8. All lanes get both sums.
__device__ __forceinline__ float2 dot(const Chunk* a, const Chunk* a8, const Chunk* b, int chunks) {
    constexpr int kSteps = 4;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float sum[kSteps][4] = {};
    for (int base = 0; base < chunks; base += 32 * kSteps) {
        Chunk a_chunk[kSteps], a8_chunk[kSteps], b_chunk[kSteps];
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            const int at = base + 32 * i + lane;
            const bool valid = at < chunks;
            a_chunk[i] = valid ? a[at] : Chunk{};
            a8_chunk[i] = valid && a8 ? a8[at] : Chunk{};
            b_chunk[i] = valid ? b[at] : Chunk{};
        }
#pragma unroll
        for (int i = 0; i < kSteps; ++i) mma(sum[i], a_chunk[i], a8_chunk[i], b_chunk[i]);
    }
    float2 total = {};
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        total.x += g % 2 ? sum[i][1] : sum[i][0];
        total.y += g % 2 ? sum[i][3] : sum[i][2];
    }
    if (t != g / 2) total = {};
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        total.x += __shfl_xor_sync(~0u, total.x, offset);
        total.y += __shfl_xor_sync(~0u, total.y, offset);
    }
    return total;
}

// Barrier of the whole grid (cooperative launch). The top bit of the counter flips when the last
// block arrives, so the counter needs no reset. Later reads of the data have to bypass L1.
__device__ __forceinline__ void grid_barrier(unsigned* barrier_counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const unsigned increment = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
        const unsigned before = atomicAdd(barrier_counter, increment);
        unsigned after;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(after) : "l"(barrier_counter) : "memory");
        } while (((before ^ after) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// x, out: [hidden]; ids, weights: [topk]; w13: [experts][2][intermediate][hidden]; w2:
// [experts][hidden][intermediate]; h: [topk][intermediate]; barrier_counter: initially zero. A
// warp's buffer holds up_stages pairs of rows of w13, or at least one row of w2 for every slot.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
experts(const unsigned short* __restrict__ x, const int* __restrict__ ids,
        const float* __restrict__ weights, const unsigned short* __restrict__ w13,
        const unsigned short* __restrict__ w2, unsigned short* h, unsigned short* __restrict__ out,
        unsigned* barrier_counter, int topk, int hidden, int intermediate, int buffer_bytes,
        int up_stages) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ Barrier full[2][kWarps][kMaxStages];
    __shared__ int expert_of[kMaxTopk];
    __shared__ float routing_weight[kMaxTopk];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < topk) {
        expert_of[threadIdx.x] = ids[threadIdx.x];
        routing_weight[threadIdx.x] = weights[threadIdx.x];
    }
    for (int i = threadIdx.x; i < 2 * kWarps * kMaxStages; i += 32 * kWarps)
        barrier_init(&full[0][0][i], 1);
    barrier_init_fence();
    __syncthreads();

    const int up_bytes = 4 * hidden, row_bytes = 2 * intermediate, down_bytes = topk * row_bytes;
    unsigned char* buffer = raw + warp * buffer_bytes;
    const int up_offset = buffer_bytes - up_stages * up_bytes;
    Chunk* x_shared = reinterpret_cast<Chunk*>(raw + kWarps * buffer_bytes);
    Chunk* h_shared = x_shared + hidden / 8;

    // Pairs of gate and up rows are distributed round-robin over all warps of the grid. Output
    // columns are split into one range per block, and round-robin over its warps.
    const int pairs = topk * intermediate, stride = kWarps * gridDim.x;
    const int first = warp * gridDim.x + blockIdx.x;
    const int up_count = kUp ? max(0, (pairs - first + stride - 1) / stride) : 0;
    // Puts the last pair into the last stage: at the end, the buffer empties from front to back.
    const int stage_shift = (up_stages - up_count % up_stages) % up_stages;
    const int begin = blockIdx.x * hidden / gridDim.x + warp;
    const int end = (blockIdx.x + 1) * hidden / gridDim.x;
    const int down_count = kDown ? max(0, (end - begin + kWarps - 1) / kWarps) : 0;
    const int down_stages = min(kMaxStages, buffer_bytes / down_bytes);
    int down_loaded = 0;  // rows of the down projection, so far

    auto load_up = [&](int n) {
        const int pair = first + n * stride, slot = pair / intermediate;
        const int stage = (n + stage_shift) % up_stages;
        const unsigned short* gate =
            w13 + (static_cast<size_t>(expert_of[slot]) * 2 * intermediate + pair -
                   slot * intermediate) * hidden;
        unsigned char* to = buffer + up_offset + stage * up_bytes;
        Barrier* barrier = &full[0][warp][stage];
        barrier_expect(barrier, up_bytes);
        bulk_copy(to, gate, up_bytes / 2, barrier);
        bulk_copy(to + up_bytes / 2, gate + static_cast<size_t>(intermediate) * hidden,
                  up_bytes / 2, barrier);
    };
    auto load_down = [&](int n) {
        const int stage = n % down_stages;
        Barrier* barrier = &full[1][warp][stage];
        barrier_expect(barrier, down_bytes);
        for (int slot = 0; slot < topk; ++slot)
            bulk_copy(buffer + stage * down_bytes + slot * row_bytes,
                      w2 + (static_cast<size_t>(expert_of[slot]) * hidden + begin + n * kWarps) *
                               intermediate,
                      row_bytes, barrier);
    };
    auto load_down_below = [&](int bytes) {  // of the buffer, which are free
        const int fits = min(down_stages, down_count);
        for (; down_loaded < fits && (down_loaded + 1) * down_bytes <= bytes; ++down_loaded)
            load_down(down_loaded);
    };
    if (lane == 0) {
        for (int n = 0; n < min(up_stages, up_count); ++n) load_up(n);
        if (up_count <= up_stages) load_down_below(buffer_bytes - up_count * up_bytes);
    }
    for (int i = threadIdx.x; kUp && i < hidden / 8; i += 32 * kWarps)
        x_shared[i] = reinterpret_cast<const Chunk*>(x)[i];
    __syncthreads();

    for (int n = 0; n < up_count; ++n) {
        const int stage = (n + stage_shift) % up_stages, pair = first + n * stride;
        const Chunk* gate =
            reinterpret_cast<const Chunk*>(buffer + up_offset + stage * up_bytes);
        barrier_wait(&full[0][warp][stage], n / up_stages % 2);
        const float2 sum = dot(gate, gate + hidden / 8, x_shared, hidden / 8);
        __syncwarp();
        if (lane == 0) {
            if (n + up_stages < up_count)
                load_up(n + up_stages);
            else
                load_down_below(up_offset + (stage + 1) * up_bytes);
            h[pair] = pack(routing_weight[pair / intermediate] * silu(sum.x) * sum.y, 0.0f);
        }
    }
    if (!kDown) return;
    if (kUp) grid_barrier(barrier_counter);
    for (int i = threadIdx.x; i < pairs / 8; i += 32 * kWarps)
        h_shared[i] = __ldcg(reinterpret_cast<const Chunk*>(h) + i);
    __syncthreads();

    for (int n = 0; n < down_count; ++n) {
        const int stage = n % down_stages;
        const Chunk* row = reinterpret_cast<const Chunk*>(buffer + stage * down_bytes);
        barrier_wait(&full[1][warp][stage], n / down_stages % 2);
        const float2 sum = dot(row, nullptr, h_shared, pairs / 8);
        __syncwarp();
        if (lane == 0) {
            if (n + down_stages < down_count) load_down(n + down_stages);
            out[begin + n * kWarps] = pack(sum.x, 0.0f);
        }
    }
}
