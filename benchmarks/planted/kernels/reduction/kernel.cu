// out[row] = sum of the row.
__device__ __forceinline__ float warp_sum(float sum) {
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256)
sums(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    __shared__ float parts[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#if LAST_WAVE
    const int first = blockIdx.x * LAST_WAVE, last = min(rows, first + LAST_WAVE);
#else
    const int first = blockIdx.x, last = first + 1;
#endif
    for (int row = first; row < last; ++row) {
        const float4* values = reinterpret_cast<const float4*>(x + static_cast<size_t>(row) * columns);
        float sum = 0.0f;
#if ATOMICS
        for (int c = threadIdx.x; c < columns / 4; c += 256) {
            const float4 v = values[c];
            atomicAdd(out + row, v.x + v.y + v.z + v.w);  // fault: atomics
        }
        continue;
#elif BARRIER
#pragma unroll 1
        for (int c = threadIdx.x; c < columns / 4; c += 256) {
            const float4 v = values[c];
            sum += v.x + v.y + v.z + v.w;
            parts[warp] = sum;
            __syncthreads();  // fault: barrier
        }
#else
#pragma unroll 8
        for (int c = threadIdx.x; c < columns / 4; c += 256) {
            const float4 v = values[c];
            sum += v.x + v.y + v.z + v.w;
        }
#endif
        sum = warp_sum(sum);
        __syncthreads();
        if (lane == 0) parts[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            sum = warp_sum(lane < 8 ? parts[lane] : 0.0f);
            if (lane == 0) out[row] = sum;
        }
    }
}
