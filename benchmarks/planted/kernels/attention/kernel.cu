// Attention of heads of 64 in fp32, a thread a row of queries, K and V in tiles of 32 rows.
#define kInfinity __int_as_float(0x7f800000)
constexpr int kHead = 64, kRows = 128, kTile = 32;
constexpr float kLog2e = 1.4426950408889634f;

extern "C" __global__ void __launch_bounds__(kRows)
attention(const float4* __restrict__ q, const float4* __restrict__ k, const float4* __restrict__ v,
          float4* __restrict__ out, int length) {
    [[maybe_unused]] __shared__ float4 keys[kTile][kHead / 4], values[kTile][kHead / 4];
    const size_t head = static_cast<size_t>(blockIdx.y) * length * (kHead / 4);
    q += head, k += head, v += head, out += head;
#if FEW_BLOCKS
    for (int block = 0; block < length / kRows; ++block) {
#else
    {
        const int block = blockIdx.x;
#endif
        const int row = block * kRows + threadIdx.x;
        float4 query[kHead / 4], sum[kHead / 4] = {};
#pragma unroll
        for (int d = 0; d < kHead / 4; ++d) query[d] = q[row * (kHead / 4) + d];
        float largest = -kInfinity, weight = 0.0f;
        for (int first = 0; first < length; first += kTile) {
#if !NO_TILES
            __syncthreads();
            for (int i = threadIdx.x; i < kTile * kHead / 4; i += kRows) {
                keys[0][i] = k[first * (kHead / 4) + i];
                values[0][i] = v[first * (kHead / 4) + i];
            }
            __syncthreads();
#endif
#pragma unroll 1
            for (int j = 0; j < kTile; ++j) {
#if NO_TILES
                const float4 *key = k + (first + j) * (kHead / 4), *value = v + (first + j) * (kHead / 4);
#else
                const float4 *key = keys[j], *value = values[j];
#endif
                float4 part = {};
#pragma unroll
                for (int d = 0; d < kHead / 4; ++d) {
                    const float4 one = key[d];  // fault: no_tiles
                    part.x += query[d].x * one.x;
                    part.y += query[d].y * one.y;
                    part.z += query[d].z * one.z;
                    part.w += query[d].w * one.w;
                }
                const float score = (part.x + part.y + part.z + part.w) * (0.125f * kLog2e);
                const float above = fmaxf(largest, score);
                const float old = exp2f(largest - above), p = exp2f(score - above);
                largest = above;
#if DIVISION
                const float total = weight * old + p;
#pragma unroll
                for (int d = 0; d < kHead / 4; ++d) {
                    const float4 one = value[d];
                    sum[d].x = (sum[d].x * weight * old + p * one.x) / total;  // fault: division
                    sum[d].y = (sum[d].y * weight * old + p * one.y) / total;  // fault: division
                    sum[d].z = (sum[d].z * weight * old + p * one.z) / total;  // fault: division
                    sum[d].w = (sum[d].w * weight * old + p * one.w) / total;  // fault: division
                }
                weight = total;
#else
                weight = weight * old + p;
#pragma unroll
                for (int d = 0; d < kHead / 4; ++d) {
                    const float4 one = value[d];  // fault: no_tiles
                    sum[d].x = sum[d].x * old + p * one.x;
                    sum[d].y = sum[d].y * old + p * one.y;
                    sum[d].z = sum[d].z * old + p * one.z;
                    sum[d].w = sum[d].w * old + p * one.w;
                }
#endif
            }
        }
#if DIVISION
        const float scale = 1.0f;
#else
        const float scale = 1.0f / weight;
#endif
#pragma unroll
        for (int d = 0; d < kHead / 4; ++d)
            out[row * (kHead / 4) + d] = make_float4(sum[d].x * scale, sum[d].y * scale, sum[d].z * scale, sum[d].w * scale);
    }
}
