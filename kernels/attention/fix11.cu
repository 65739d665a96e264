// As fix7.cu, but without a ring buffer: 512 keys of head dimension 64 fit into shared memory. Four
// warpgroups take up to 128 keys each for the same 64 rows and merge their partial outputs.
#include "attention.cuh"
#include "polynomial.cuh"

constexpr int kGroups = 4;
constexpr int kRows = 64;
constexpr int kKeys = 128;  // keys per warpgroup
// Every POLYNOMIAL-th group of four exponentials runs on the FMA units. 0: none.
constexpr int kPolynomial = POLYNOMIAL;
constexpr float kScaleLog2 = kPolynomial ? kPairScaleLog2 : 0.0f;

struct SharedStorage {
    Element k[kGroups][kKeys * 64], v[kGroups][kKeys * 64];
    Element q[kRows * 64];
    float2 softmax[kGroups][kRows];  // reference (log2) and sum of each row
    Barrier q_full, k_full[kGroups], v_full[kGroups];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

__device__ __forceinline__ float2 unpack(unsigned pair) {
#ifdef BF16
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
#else
    float2 result;
    asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(result.x), "=f"(result.y)
        : "r"(pair));
    return result;
#endif
}

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int seq_len, float scale) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, t = lane % 4, head = blockIdx.y;
    const int first_row = blockIdx.x * kRows, first_key = group * kKeys;
    const int warp_row = warp % 4 * 16, local_row = warp_row + lane / 4;  // and local_row + 8
    const int key_end = CAUSAL ? min(seq_len, first_row + kRows) : seq_len;

    auto load = [&](Element* dst, const TensorMap& map, int box_row, int rows, Barrier* full) {
        barrier_expect(full, rows * 128);
        tma_load(dst, map, 0, box_row, head, full);
    };
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
    // Load the keys of one warpgroup after the other. The warpgroups then stay in different phases:
    // one uses the tensor cores while another uses the special function units.
    if (warp == 15 && lane == 0) {
        if (EARLY) wait_for_previous_grid();
        load(s.q, q_map, first_row, kRows, &s.q_full);
#pragma unroll 1
        for (int i = 0; i * kKeys < key_end; ++i)
            load(s.k[i], k_map, i * kKeys, kKeys, &s.k_full[i]);
#pragma unroll 1
        for (int i = 0; i * kKeys < key_end; ++i)
            load(s.v[i], v_map, i * kKeys, kKeys, &s.v_full[i]);
    }
#else
    if (warp % 4 == 3 && lane == 0) {
        if (EARLY) wait_for_previous_grid();
        if (group == 3) load(s.q, q_map, first_row, kRows, &s.q_full);
        if (first_key < key_end) {
            load(s.k[group], k_map, first_key, kKeys, &s.k_full[group]);
            load(s.v[group], v_map, first_key, kKeys, &s.v_full[group]);
        }
    }
#endif
    __syncwarp();
    if (EARLY) launch_dependents();

    float score[kKeys / 2], acc[32];
    unsigned p[kKeys / 16][4];
    float reference[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
    const float to_log2 = scale * kLog2e;
    barrier_wait(&s.q_full, 0);
    if (first_key < key_end) {
        barrier_wait(&s.k_full[group], 0);
        fence_operand(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(score, descriptor(s.q) + i * 2, descriptor(s.k[group]) + i * 2, i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand(score);
        if (MASKED) mask_keys(score, first_key, first_row + local_row, seq_len);
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
            sum[0] += pair_sum(sums[0]);
            sum[1] += pair_sum(sums[1]);
        }
        barrier_wait(&s.v_full[group], 0);
        fence_operand(acc);
        fence_operand(p);
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

    // While the output products run, compute the weight of each warpgroup's partial output.
    if (t < 2)
        s.softmax[group][local_row + 8 * t] =
            t ? make_float2(reference[1], sum[1]) : make_float2(reference[0], sum[0]);
    __syncthreads();
    float weight[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float row_max = -1e38f, total = 0.0f;
        float2 part[kGroups];
#pragma unroll
        for (int source = 0; source < kGroups; ++source) {
            part[source] = s.softmax[source][local_row + 8 * half];
            row_max = fmaxf(row_max, part[source].x);
        }
#pragma unroll
        for (int source = 0; source < kGroups; ++source)
            total = fmaf(part[source].y, exp2_fast(part[source].x - row_max), total);
        weight[half] = exp2_fast(reference[half] - row_max) * reciprocal(total);
    }
    wgmma_wait<0>();
    fence_operand(acc);
    // Reuses the K tiles: this warpgroup's scores are complete.
    stage_output(s.k[group], kRows, warp_row, acc, weight);
    __syncthreads();

    // Sum the four partial outputs, 16 bytes per thread.
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const char* parts = reinterpret_cast<const char*>(s.k[0]) + swizzled(row, chunk);
    float2 merged[4] = {};
#pragma unroll
    for (int source = 0; source < kGroups; ++source) {
        const uint4 part = *reinterpret_cast<const uint4*>(parts + source * sizeof(s.k[0]));
        const unsigned pairs[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            merged[i].x += unpack(pairs[i]).x;
            merged[i].y += unpack(pairs[i]).y;
        }
    }
    const uint4 result = make_uint4(pack(merged[0].x, merged[0].y), pack(merged[1].x, merged[1].y),
                                    pack(merged[2].x, merged[2].y), pack(merged[3].x, merged[3].y));
    if (!MASKED || first_row + row < seq_len)
        reinterpret_cast<uint4*>(out + (static_cast<size_t>(head) * seq_len + first_row) * 64)
            [threadIdx.x] = result;
}
