// Small kernels in the usual styles, none of them fast.
#include <cuda_fp16.h>

#define INFINITY __int_as_float(0x7f800000)

__device__ float silu(float x) { return x / (1.0f + __expf(-x)); }

extern "C" __global__ void silu_scalar(const float* x, float* out, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) out[i] = silu(x[i]);
}

extern "C" __global__ void silu_vectors(const float4* x, float4* out, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n / 4) return;
    const float4 v = x[i];
    out[i] = make_float4(silu(v.x), silu(v.y), silu(v.z), silu(v.w));
}

extern "C" __global__ void silu_strided(const float* x, float* out, long long n) {
    const long long step = gridDim.x * 256ll;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += step) out[i] = silu(x[i]);
}

extern "C" __global__ void silu_half2(const __half2* x, __half2* out, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n / 2) return;
    const float2 v = __half22float2(x[i]);
    out[i] = __floats2half2_rn(silu(v.x), silu(v.y));
}

template <typename Combine>
__device__ float of_block(float value, Combine combine) {
    __shared__ float parts[32];
    for (int lane = 16; lane; lane /= 2)
        value = combine(value, __shfl_xor_sync(~0u, value, lane));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int i = 1; i < blockDim.x / 32; ++i) value = combine(value, parts[i]);
    __syncthreads();
    return value;
}

__device__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ float sum_of(float a, float b) { return a + b; }

// A block a row, whatever its number of threads.
extern "C" __global__ void softmax_block(const float* x, float* out, int cols) {
    x += (long long)blockIdx.x * cols;
    out += (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) most = fmaxf(most, x[i]);
    most = of_block(most, larger);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += __expf(x[i] - most);
    sum = of_block(sum, sum_of);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) out[i] = __expf(x[i] - most) / sum;
}

extern "C" __global__ void softmax_sums(const float* x, float2* sums, int cols) {
    x += (long long)blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) most = fmaxf(most, x[i]);
    most = of_block(most, larger);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += __expf(x[i] - most);
    sum = of_block(sum, sum_of);
    if (threadIdx.x == 0) sums[blockIdx.x] = make_float2(most, sum);
}

extern "C" __global__ void softmax_quotients(const float* x, const float2* sums, float* out,
                                             int cols) {
    const float2 known = sums[blockIdx.x];
    const long long row = (long long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[row + i] = __expf(x[row + i] - known.x) / known.y;
}

extern "C" __global__ void sum_block(const float* x, float* out, int cols) {
    x += (long long)blockIdx.x * cols;
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += x[i];
    sum = of_block(sum, sum_of);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Several blocks a row add to what a memset has set to zero.
extern "C" __global__ void sum_atomics(const float* x, float* out, int cols) {
    x += (long long)blockIdx.y * cols;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x)
        sum += x[i];
    sum = of_block(sum, sum_of);
    if (threadIdx.x == 0) atomicAdd(out + blockIdx.y, sum);
}

extern "C" __global__ void transpose_tiles(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (row + i < rows && col < cols)
            tile[threadIdx.y + i][threadIdx.x] = x[(long long)(row + i) * cols + col];
    __syncthreads();
    const int other = blockIdx.y * 32 + threadIdx.x, its = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (its + i < cols && other < rows)
            out[(long long)(its + i) * rows + other] = tile[threadIdx.x][threadIdx.y + i];
}

// A part of the products, by blockIdx.z: [parts, n, n].
extern "C" __global__ void matmul_tiles(const float* a, const float* b, float* out, int n) {
    __shared__ float left[16][16], right[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    const int share = n / gridDim.z, first = blockIdx.z * share;
    float sum = 0;
    for (int k = first; k < first + share; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[(long long)row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(long long)(k + threadIdx.y) * n + col];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    out[((long long)blockIdx.z * n + row) * n + col] = sum;
}

extern "C" __global__ void add_parts(const float* parts, float* out, int count, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += parts[part * n + i];
    out[i] = sum;
}

extern "C" __global__ void add_in_place(float* x, const float* y, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) x[i] += y[i];
}

extern "C" __global__ void gather_rows(const float* table, const long long* index, float* out,
                                       int cols) {
    const float* row = table + index[blockIdx.x] * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(long long)blockIdx.x * cols + i] = row[i];
}

// Blocks take pieces of 1024 elements from a queue until it is empty: queue[0] has been set to zero.
extern "C" __global__ void silu_queue(const float* x, float* out, int* queue, long long n) {
    __shared__ int piece;
    while (true) {
        if (threadIdx.x == 0) piece = atomicAdd(queue, 1);
        __syncthreads();
        const long long first = piece * 1024ll;
        __syncthreads();
        if (first >= n) return;
        for (int i = threadIdx.x; i < 1024 && first + i < n; i += blockDim.x)
            out[first + i] = silu(x[first + i]);
    }
}

// The last block leaves the queue as it was: no memset between two calls.
extern "C" __global__ void silu_refilled(const float* x, float* out, int* queue, long long n) {
    __shared__ int piece;
    while (true) {
        if (threadIdx.x == 0) piece = atomicAdd(queue, 1);
        __syncthreads();
        const long long first = piece * 1024ll;
        __syncthreads();
        if (first >= n) break;
        for (int i = threadIdx.x; i < 1024 && first + i < n; i += blockDim.x)
            out[first + i] = silu(x[first + i]);
    }
    if (threadIdx.x == 0 && atomicAdd(queue + 1, 1) == (int)gridDim.x - 1) queue[0] = queue[1] = 0;
}

// Written as columns.
extern "C" __global__ void silu_columns(const float* x, float* out, int rows, int cols) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < rows && col < cols)
        out[(long long)col * rows + row] = silu(x[(long long)row * cols + col]);
}

extern "C" __global__ void add_vectors(const float4* x, const float4* y, float4* out, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= n / 4) return;
    const float4 a = x[i], b = y[i];
    out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ float of_warp(float value) {
    for (int lane = 16; lane; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
    return value;
}

// A warp a row.
extern "C" __global__ void rms_warp(const float* x, float* out, int rows, int cols) {
    const long long row = blockIdx.x * 8ll + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    float sum = 0;
    for (int i = lane; i < cols; i += 32) sum += x[row * cols + i] * x[row * cols + i];
    const float scale = rsqrtf(of_warp(sum) / cols + 1e-6f);
    for (int i = lane; i < cols; i += 32) out[row * cols + i] = x[row * cols + i] * scale;
}

extern "C" __global__ void gemv_warp(const float* x, const float* v, float* out, int rows,
                                     int cols) {
    const long long row = blockIdx.x * 8ll + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < cols; i += 32) sum += x[row * cols + i] * v[i];
    sum = of_warp(sum);
    if (threadIdx.x % 32 == 0) out[row] = sum;
}

// Maximum and sum in one pass.
extern "C" __global__ void logsumexp_online(const float* x, float* out, int rows, int cols) {
    const long long row = blockIdx.x * 8ll + threadIdx.x / 32;
    if (row >= rows) return;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x % 32; i < cols; i += 32) {
        const float value = x[row * cols + i], now = fmaxf(most, value);
        sum = sum * __expf(most - now) + __expf(value - now);
        most = now;
    }
    for (int lane = 16; lane; lane /= 2) {
        const float other = __shfl_xor_sync(~0u, most, lane), now = fmaxf(most, other);
        const float its = __shfl_xor_sync(~0u, sum, lane);
        sum = sum * __expf(most - now) + its * __expf(other - now);
        most = now;
    }
    if (threadIdx.x % 32 == 0) out[row] = most + logf(sum);
}

// 256 counters in shared memory, then atomics to what a memset has set to zero.
extern "C" __global__ void histogram_shared(const long long* index, unsigned long long* out,
                                            long long n) {
    __shared__ unsigned int counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
        atomicAdd(counts + index[i], 1u);
    __syncthreads();
    atomicAdd(out + threadIdx.x, (unsigned long long)counts[threadIdx.x]);
}

extern "C" __global__ void stencil_shared(const float* x, float* out, int cols) {
    __shared__ float row[1026];
    x += (long long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) row[i + 1] = x[i];
    if (threadIdx.x == 0) row[0] = row[cols + 1] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(long long)blockIdx.x * cols + i] = (row[i] + row[i + 1] + row[i + 2]) / 3.0f;
}

extern "C" __global__ void transpose_naive(const float* x, float* out, int rows, int cols) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < rows && col < cols)
        out[(long long)col * rows + row] = x[(long long)row * cols + col];
}
