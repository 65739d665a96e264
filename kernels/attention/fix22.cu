// As fix17.cu, but with transposed products, K Q^T and V^T P^T. The 8 columns of mma.sync are
// queries, so a block has 8 queries, and there are twice as many blocks. Up to 128 keys, head
// dimension 64.
#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif
constexpr int kWarps = WARPS;
constexpr int kKeys = KEYS;  // per warp
constexpr int kQueries = 8;

// d += a b; a is 16 x 16, b is 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned pair;
#ifdef BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// Transposes an 8 x 8 matrix of 16-bit elements. Each lane holds two of them.
__device__ __forceinline__ unsigned transpose(unsigned pair) {
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}

// The rows of a column are spread over eight lanes.
__device__ __forceinline__ float column_max(float x) {
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}

__device__ __forceinline__ float column_sum(float x) {
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}

// Returns zeros if out of bounds. Only MASKED builds check.
__device__ __forceinline__ uint4 load(const uint4* from, bool in_bounds) {
    uint4 to;
    if (MASKED)
        asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0;\n"
                     "mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
                     "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];}"
                     : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                     : "l"(from), "r"(int(in_bounds)) : "memory");
    else
        asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(from) : "memory");
    return to;
}

// A row of 64 elements is eight 16-byte vectors. Each lane loads vectors 2t and 2t + 1 of its rows
// of K and Q. This permutes the columns that a product sums over, in K as in Q. Each lane loads
// vector g of rows 2t, 2t + 1, 2t + 8 and 2t + 9 of V: rows g and g + 8 of product n are columns
// 8g + 2n and 8g + 2n + 1 of V.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
attention_forward(const uint4* __restrict__ q, const uint4* __restrict__ k,
                  const uint4* __restrict__ v, uint4* __restrict__ out, int seq_len,
                  float to_log2) {
    __shared__ float4 partial_out[kWarps][4][32];    // [warp][product][lane]
    __shared__ float2 softmax[kWarps][kQueries];     // scaled maximum and sum of each query
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int query = blockIdx.x * kQueries, first_key = warp * kKeys;
    const long long head = static_cast<long long>(blockIdx.y) * seq_len * 8;

    const uint4* q_source = q + (head + (query + g) * 8 + 2 * t);
    const uint4* k_source = k + (head + (first_key + g) * 8 + 2 * t);
    const uint4* v_source = v + (head + (first_key + 2 * t) * 8 + g);
    uint4 qb[2], ka[kKeys / 8][2], va[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) qb[i] = load(q_source + i, query + g < seq_len);
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i)
        ka[i / 2][i % 2] =
            load(k_source + (i / 2 * 64 + i % 2), first_key + i / 2 * 8 + g < seq_len);
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
        const int key = i / 2 * 8 + i % 2;
        va[i / 4][i % 4] = load(v_source + key * 8, first_key + 2 * t + key < seq_len);
    }
    // The barrier returns zero, but ptxas cannot know that. The first products depend on the zero,
    // and ptxas moves no load across a barrier. Otherwise it would move the loads of V behind the
    // wait for K to save registers.
    unsigned zero;
    asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 0; bar.red.popc.u32 %0, 1, %2, p;}"
                 : "=r"(zero) : "r"(seq_len), "n"(32 * kWarps) : "memory");

    // Adds the products of vectors 2t + j to the scores of 16 keys.
    auto multiply = [&](float (&score)[4], const uint4& upper, const uint4& lower, int j) {
        mma(score, upper.x, lower.x, upper.y, lower.y, qb[j].x, qb[j].y);
        mma(score, upper.z, lower.z, upper.w, lower.w, qb[j].z, qb[j].w);
    };
    auto mask = [&](float (&score)[4], int tile_key) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = tile_key + g + i / 2 * 8;
            if (MASKED && (key >= seq_len || CAUSAL && key > query + 2 * t + i % 2))
                score[i] = __int_as_float(0xff800000);  // -infinity
        }
    };
    constexpr int kTiles = kKeys / 16;
    float score[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[n][i] = __uint_as_float(zero);
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
            multiply(score[n], ka[2 * n][j], ka[2 * n + 1][j], j);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) mask(score[n], first_key + 16 * n);
    float query_max[2] = {-1e30f, -1e30f};
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) query_max[i % 2] = fmaxf(query_max[i % 2], score[n][i]);
    const float scaled_max[2] = {column_max(query_max[0]) * to_log2,
                                 column_max(query_max[1]) * to_log2};
    float sum[2] = {0.0f, 0.0f};
    unsigned p[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            score[n][i] = exp2_fast(fmaf(score[n][i], to_log2, -scaled_max[i % 2]));
            sum[i % 2] += score[n][i];
        }
        p[n][0] = transpose(pack(score[n][0], score[n][1]));
        p[n][1] = transpose(pack(score[n][2], score[n][3]));
    }
    sum[0] = column_sum(sum[0]);
    sum[1] = column_sum(sum[1]);
    if (g == 0) {
        softmax[warp][2 * t] = make_float2(scaled_max[0], sum[0]);
        softmax[warp][2 * t + 1] = make_float2(scaled_max[1], sum[1]);
    }

    float acc[4][4] = {};
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
        unsigned rows[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            rows[i][0] = va[m][i].x;
            rows[i][1] = va[m][i].y;
            rows[i][2] = va[m][i].z;
            rows[i][3] = va[m][i].w;
        }
        // Selectors that pair the elements of two rows in the same column. The added zero keeps
        // the permutations, which wait for V, from moving up across the barrier.
        const unsigned even = 0x5410 + zero, odd = 0x7632 + zero;
#pragma unroll
        for (int n = 0; n < 4; ++n)
            mma(acc[n], __byte_perm(rows[0][n], rows[1][n], even),
                __byte_perm(rows[0][n], rows[1][n], odd), __byte_perm(rows[2][n], rows[3][n], even),
                __byte_perm(rows[2][n], rows[3][n], odd), p[m][0], p[m][1]);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
        partial_out[warp][n][lane] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    __syncthreads();

    // Each of four warps merges one product: columns 8g + 2 warp and 8g + 2 warp + 1 of queries 2t
    // and 2t + 1.
    if (warp >= 4) return;
    float total[2] = {}, weight[2][kWarps];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float2 stats[kWarps];
        float max_of_warps = -1e38f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            stats[w] = softmax[w][2 * t + i];
            max_of_warps = fmaxf(max_of_warps, stats[w].x);
        }
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            weight[i][w] = exp2_fast(stats[w].x - max_of_warps);
            total[i] = fmaf(stats[w].y, weight[i][w], total[i]);
        }
    }
    float4 merged = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        const float4 partial = partial_out[w][warp][lane];
        merged.x = fmaf(partial.x, weight[0][w], merged.x);
        merged.y = fmaf(partial.y, weight[1][w], merged.y);
        merged.z = fmaf(partial.z, weight[0][w], merged.z);
        merged.w = fmaf(partial.w, weight[1][w], merged.w);
    }
    const float scale[2] = {reciprocal(total[0]), reciprocal(total[1])};
    unsigned* to = reinterpret_cast<unsigned*>(out + head) + (query + 2 * t) * 32 + 4 * g + warp;
    if (!MASKED || query + 2 * t < seq_len) to[0] = pack(merged.x * scale[0], merged.z * scale[0]);
    if (!MASKED || query + 2 * t + 1 < seq_len)
        to[32] = pack(merged.y * scale[1], merged.w * scale[1]);
}
