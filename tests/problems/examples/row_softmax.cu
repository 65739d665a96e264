// Softmax of every row: one block a row, three passes over it.
__global__ void softmax(const float* x, float* out, int cols) {
    __shared__ float part[256];
    const float* row = x + (long long)blockIdx.x * cols;
    float* to = out + (long long)blockIdx.x * cols;

    float largest = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, row[i]);
    part[threadIdx.x] = largest;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + step]);
        __syncthreads();
    }
    largest = part[0];
    __syncthreads();

    float total = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) total += expf(row[i] - largest);
    part[threadIdx.x] = total;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    total = part[0];
    for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = expf(row[i] - largest) / total;
}
