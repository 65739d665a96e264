// As fix16.cu, but with mma.sync, 16 query rows per block and four times as many blocks. Q, K and
// V go from global memory to registers, and all loads are issued before the first wait. Up to 128
// keys, head dimension 64.
#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif
constexpr int kWarps = WARPS;
constexpr int kKeys = KEYS;  // per warp

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

// The columns of a row are spread over four lanes.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
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
// of Q and K. This permutes the columns that a product sums over, in Q as in K. Each lane loads
// vector g of rows 2t, 2t + 1, 2t + 8 and 2t + 9 of V: column c of product n is column 8c + n of V.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
attention_forward(const uint4* __restrict__ q, const uint4* __restrict__ k,
                  const uint4* __restrict__ v, uint4* __restrict__ out, int seq_len,
                  float to_log2) {
    __shared__ float4 partial_out[kWarps][8][32];  // [warp][product][lane]
    __shared__ float2 softmax[kWarps][16];         // scaled maximum and sum of each row
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = blockIdx.x * 16 + g, first_key = warp * kKeys;
    const long long head = static_cast<long long>(blockIdx.y) * seq_len * 8;

    const uint4* q_source = q + (head + row * 8 + 2 * t);
    const uint4* k_source = k + (head + (first_key + g) * 8 + 2 * t);
    const uint4* v_source = v + (head + (first_key + 2 * t) * 8 + g);
    uint4 qa[2][2], ka[kKeys / 8][2], va[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        qa[i / 2][i % 2] = load(q_source + (i / 2 * 64 + i % 2), row + i / 2 * 8 < seq_len);
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

    float score[kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) score[n][i] = __uint_as_float(zero);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            mma(score[n], qa[0][j].x, qa[1][j].x, qa[0][j].y, qa[1][j].y, ka[n][j].x, ka[n][j].y);
            mma(score[n], qa[0][j].z, qa[1][j].z, qa[0][j].w, qa[1][j].w, ka[n][j].z, ka[n][j].w);
        }
    }
    if (MASKED) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int key = first_key + 8 * n + 2 * t + i % 2;
                if (key >= seq_len || CAUSAL && key > row + i / 2 * 8)
                    score[n][i] = __int_as_float(0xff800000);  // -infinity
            }
    }
    float row_max[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) row_max[i / 2] = fmaxf(row_max[i / 2], score[n][i]);
    row_max[0] = quad_max(row_max[0]) * to_log2;
    row_max[1] = quad_max(row_max[1]) * to_log2;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            score[n][i] = exp2_fast(fmaf(score[n][i], to_log2, -row_max[i / 2]));
            sum[i / 2] += score[n][i];
        }
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
    if (t < 2)
        softmax[warp][g + 8 * t] =
            t ? make_float2(row_max[1], sum[1]) : make_float2(row_max[0], sum[0]);

    float acc[8][4] = {};
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) {
        unsigned a[4], rows[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = pack(score[2 * m + i / 2][i % 2 * 2], score[2 * m + i / 2][i % 2 * 2 + 1]);
            rows[i][0] = va[m][i].x;
            rows[i][1] = va[m][i].y;
            rows[i][2] = va[m][i].z;
            rows[i][3] = va[m][i].w;
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            // Pairs the elements of two rows that are in the same column.
            const unsigned selector = n % 2 ? 0x7632 : 0x5410;
            mma(acc[n], a[0], a[1], a[2], a[3],
                __byte_perm(rows[0][n / 2], rows[1][n / 2], selector),
                __byte_perm(rows[2][n / 2], rows[3][n / 2], selector));
        }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
        partial_out[warp][n][lane] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    __syncthreads();

    // Each of four warps merges two products: columns 16t + 2 warp, 16t + 8 + 2 warp, and the next
    // column of each.
    if (warp >= 4) return;
    float weight[2][kWarps];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float max_of_warps = -1e38f, total = 0.0f;
        float2 stats[kWarps];
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            stats[w] = softmax[w][g + 8 * half];
            max_of_warps = fmaxf(max_of_warps, stats[w].x);
        }
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            weight[half][w] = exp2_fast(stats[w].x - max_of_warps);
            total = fmaf(stats[w].y, weight[half][w], total);
        }
        const float inverse = reciprocal(total);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) weight[half][w] *= inverse;
    }
    float4 merged[2] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 partial = partial_out[w][2 * warp + i][lane];
            merged[i].x = fmaf(partial.x, weight[0][w], merged[i].x);
            merged[i].y = fmaf(partial.y, weight[0][w], merged[i].y);
            merged[i].z = fmaf(partial.z, weight[1][w], merged[i].z);
            merged[i].w = fmaf(partial.w, weight[1][w], merged[i].w);
        }
    unsigned* to = reinterpret_cast<unsigned*>(out + head) + row * 32 + 8 * t + warp;
    if (!MASKED || row < seq_len) {
        to[0] = pack(merged[0].x, merged[1].x);
        to[4] = pack(merged[0].y, merged[1].y);
    }
    if (!MASKED || row + 8 < seq_len) {
        to[256] = pack(merged[0].z, merged[1].z);
        to[260] = pack(merged[0].w, merged[1].w);
    }
}
