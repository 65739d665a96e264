// A process of CUDA alone, to be profiled or timed: prints seconds since the epoch at each stage.
//     two_ncu launch N      N launches of one kernel
//     two_ncu time SECONDS  launches on end; the median and the 95th percentile of their durations
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

static double now() {
    timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

static void say(const char* what) {
    printf("%s %.3f\n", what, now());
    fflush(stdout);
}

__global__ void work(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = x[i];
        for (int k = 0; k < 64; ++k) value = value * 1.0001f + 0.5f;
        x[i] = value;
    }
}

int main(int count, char** words) {
    say("main");
    cudaFree(nullptr);
    say("context");
    const int n = 16 << 20;
    float* x;
    if (count < 3 || cudaMalloc(&x, n * sizeof(float)) != cudaSuccess) return 1;
    cudaMemset(x, 0, n * sizeof(float));
    cudaDeviceSynchronize();
    if (!strcmp(words[1], "launch")) {
        for (int i = 0; i < atoi(words[2]); ++i) {
            work<<<1056, 256>>>(x, n);
            cudaDeviceSynchronize();
            say("launched");
        }
    } else {
        cudaEvent_t start, end;
        cudaEventCreate(&start);
        cudaEventCreate(&end);
        std::vector<float> all;
        for (double last = now() + atof(words[2]); now() < last;) {
            float milliseconds;
            cudaEventRecord(start);
            work<<<1056, 256>>>(x, n);
            cudaEventRecord(end);
            cudaEventSynchronize(end);
            cudaEventElapsedTime(&milliseconds, start, end);
            all.push_back(1e3f * milliseconds);
        }
        std::sort(all.begin(), all.end());
        printf("microseconds %.3f %.3f %zu\n", all[all.size() / 2], all[all.size() * 95 / 100],
               all.size());
    }
    say("end");
    return cudaGetLastError() != cudaSuccess;
}
