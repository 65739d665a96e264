// As fix11, for calls as lengths takes them: views, a head of keys for several of queries, and other
// lengths, with the last query seeing all keys under a causal mask.
#include "served.cuh"
#include "polynomial.cuh"

constexpr int kGroups = 4;
constexpr int kRows = 64;
constexpr int kKeys = 128;  // of a warpgroup
// Every POLYNOMIAL-th fragment of exponentials is made on the FMA units; 0 for none.
constexpr int kPolynomial = POLYNOMIAL;
constexpr float kScaleLog2 = kPolynomial ? kPairScaleLog2 : 0.0f;

struct Shared {
    Element k[kGroups][kKeys * 64], v[kGroups][kKeys * 64];
    Element q[kRows * 64];
    float2 softmax[kGroups][kRows];  // reference (log2) and sum of each row
    Barrier q_full, k_full[kGroups], v_full[kGroups];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

// Two elements in fp32.
__device__ __forceinline__ float2 widened(unsigned pair) {
#ifdef BF16
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
#else
    float2 wide;
    asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(wide.x), "=f"(wide.y)
        : "r"(pair));
    return wide;
#endif
}

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int length, int key_count, int group_size, float scale) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, t = lane % 4, head = blockIdx.y, batch = blockIdx.z;
    const int first_row = blockIdx.x * kRows, first_key = group * kKeys;
    const int warp_row = warp % 4 * 16, local = warp_row + lane / 4;  // and local + 8
    const int offset = key_count - length;  // from a query to its own key
    const int keys = CAUSAL ? min(key_count, first_row + kRows + offset) : key_count;

    auto fetch = [&](Element* to, const TensorMap& map, int first, int rows, int from,
                     Barrier* full) {
        barrier_expect(full, rows * 128);
        copy_box(to, map, 0, first, from, batch, full);
    };
    const int key_head = head / group_size;
    if (warp == 15 && lane < 3) prefetch(lane == 0 ? q_map : lane == 1 ? k_map : v_map);
    if (warp == 15 && lane == 0) {
        barrier_init(&s.q_full, 1);
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
            barrier_init(&s.k_full[i], 1);
            barrier_init(&s.v_full[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
#if STAGGER
    // One warpgroup's keys after the other's: so they start a step apart and stay so, and one has
    // the tensor cores while another has the special function units.
    if (warp == 15 && lane == 0) {
        if (EARLY) wait_for_previous_grid();
        fetch(s.q, q_map, first_row, kRows, head, &s.q_full);
#pragma unroll 1
        for (int i = 0; i * kKeys < keys; ++i)
            fetch(s.k[i], k_map, i * kKeys, kKeys, key_head, &s.k_full[i]);
#pragma unroll 1
        for (int i = 0; i * kKeys < keys; ++i)
            fetch(s.v[i], v_map, i * kKeys, kKeys, key_head, &s.v_full[i]);
    }
#else
    if (warp % 4 == 3 && lane == 0) {
        if (EARLY) wait_for_previous_grid();
        if (group == 3) fetch(s.q, q_map, first_row, kRows, head, &s.q_full);
        if (first_key < keys) {
            fetch(s.k[group], k_map, first_key, kKeys, key_head, &s.k_full[group]);
            fetch(s.v[group], v_map, first_key, kKeys, key_head, &s.v_full[group]);
        }
    }
#endif
    __syncwarp();
    if (EARLY) let_next_grid_start();

    float score[kKeys / 2], acc[32];
    unsigned p[kKeys / 16][4];
    float reference[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
    const float to_log2 = scale * kLog2e;
    barrier_wait(&s.q_full, 0);
    if (first_key < keys) {
        barrier_wait(&s.k_full[group], 0);
        pin(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(score, descriptor(s.q) + i * 2, descriptor(s.k[group]) + i * 2, i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(score);
        if (MASKED) mask_keys(score, first_key, first_row + local + offset, key_count);
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i)
            reference[i / 2 % 2] = fmaxf(reference[i / 2 % 2], score[i]);
        reference[0] = quad_max(reference[0]) * to_log2;
        reference[1] = quad_max(reference[1]) * to_log2;
        unsigned sums[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < kKeys / 2; i += 2) {
            const int half = i / 2 % 2;
            unsigned& pair = p[i / 8][i / 2 % 4];
            if (kPolynomial && i / 4 % kPolynomial == kPolynomial - 1) {
                pair = exp2_pair(fmaf(score[i], to_log2, -reference[half]),
                                 fmaf(score[i + 1], to_log2, -reference[half]));
                sums[half] = add_pair(sums[half], pair);
            } else {
                const float shift = kScaleLog2 - reference[half];
                const float low = exp2_fast(fmaf(score[i], to_log2, shift));
                const float high = exp2_fast(fmaf(score[i + 1], to_log2, shift));
                sum[half] += low;
                sum[half] += high;
                pair = pack(low, high);
            }
        }
        if (kPolynomial) {
            sum[0] += total_of_pairs(sums[0]);
            sum[1] += total_of_pairs(sums[1]);
        }
        barrier_wait(&s.v_full[group], 0);
        pin(acc);
        pin(p);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kKeys / 16; ++i)
            wgmma(acc, p[i], descriptor(s.v[group]) + i * 128, i > 0);
        wgmma_commit();
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
    } else {
#pragma unroll
        for (int i = 0; i < 32; ++i) acc[i] = 0.0f;
    }

    // While the last products run: what each warpgroup's part counts for in the whole.
    if (t < 2)
        s.softmax[group][local + 8 * t] =
            t ? make_float2(reference[1], sum[1]) : make_float2(reference[0], sum[0]);
    __syncthreads();
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float largest = -1e38f, total = 0.0f;
        float2 part[kGroups];
#pragma unroll
        for (int from = 0; from < kGroups; ++from) {
            part[from] = s.softmax[from][local + 8 * half];
            largest = fmaxf(largest, part[from].x);
        }
#pragma unroll
        for (int from = 0; from < kGroups; ++from)
            total = fmaf(part[from].y, exp2_fast(part[from].x - largest), total);
        share[half] = exp2_fast(reference[half] - largest) * reciprocal(total);
    }
    wgmma_wait<0>();
    pin(acc);
    // Over the K tiles, which nobody reads any more.
    stage_output(s.k[group], kRows, warp_row, acc, share);
    __syncthreads();

    // Whole rows, 16 bytes a thread.
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const char* parts = reinterpret_cast<const char*>(s.k[0]) + swizzled(row, chunk);
    float2 whole[4] = {};
#pragma unroll
    for (int from = 0; from < kGroups; ++from) {
        const uint4 part = *reinterpret_cast<const uint4*>(parts + from * sizeof(s.k[0]));
        const unsigned pairs[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            whole[i].x += widened(pairs[i]).x;
            whole[i].y += widened(pairs[i]).y;
        }
    }
    const uint4 result = make_uint4(pack(whole[0].x, whole[0].y), pack(whole[1].x, whole[1].y),
                                    pack(whole[2].x, whole[2].y), pack(whole[3].x, whole[3].y));
    const size_t to = (static_cast<size_t>(batch) * length + first_row + row) * gridDim.y + head;
    if (first_row + row < length) reinterpret_cast<uint4*>(out + to * 64)[chunk] = result;
}
