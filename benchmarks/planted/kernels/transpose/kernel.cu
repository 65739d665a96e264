// out[c, r] = x[r, c], square, in tiles of 32 x 32.
#if BANK_CONFLICTS
[[maybe_unused]] constexpr int kPitch = 32;
#else
[[maybe_unused]] constexpr int kPitch = 33;
#endif

extern "C" __global__ void __launch_bounds__(256) transpose(const float* __restrict__ x, float* __restrict__ out, int n) {
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;
#if UNCOALESCED
#pragma unroll
    for (int y = threadIdx.y; y < 32; y += 8)
        out[static_cast<size_t>(column + threadIdx.x) * n + row + y] =  // fault: uncoalesced
            x[static_cast<size_t>(row + y) * n + column + threadIdx.x];
#else
    __shared__ float tile[32][kPitch];
#pragma unroll
    for (int y = threadIdx.y; y < 32; y += 8)
        tile[y][threadIdx.x] = x[static_cast<size_t>(row + y) * n + column + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int y = threadIdx.y; y < 32; y += 8)
        out[static_cast<size_t>(column + y) * n + row + threadIdx.x] = tile[threadIdx.x][y];  // fault: bank_conflicts
#endif
}
