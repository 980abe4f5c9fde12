// What racecheck makes of a stage of shared memory that is filled by a bulk copy, read by a warp
// and handed back for the next copy: by one lane's arrival after __syncwarp (variant 1), or by
// every lane's own (variant 32). Both are ordered; prints the sums, which must be equal.
//   cmake --build --preset cuda --target racecheck_arrival
//   compute-sanitizer --tool racecheck racecheck_arrival 1
// Found (one H200, CUDA 13.0): hazards for 1, none for 32. So what racecheck reports between a
// producer's copies and the reads of a stage that release() has handed back says nothing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

__device__ uint32_t address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void wait(uint64_t* barrier, int parity) {
  uint32_t done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(address(barrier))
               : "memory");
}

template <int kArrivals>
__global__ void stream(const float* from, int turns, float* sum) {
  __shared__ alignas(128) float stage[256];
  __shared__ uint64_t full, empty;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(&full)) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&empty)), "r"(kArrivals)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warp == 1) {
    for (int i = 0; i < turns; ++i) {
      if (i > 0) wait(&empty, (i - 1) & 1);
      if (lane != 0) continue;
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(address(&full))
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, "
          "[%2];" ::"r"(address(stage)),
          "l"(from + i * 256), "r"(address(&full))
          : "memory");
    }
    return;
  }
  float total = 0;
  for (int i = 0; i < turns; ++i) {
    wait(&full, i & 1);
    for (int j = 0; j < 256; j += 32) total += stage[j + lane];
    if (kArrivals == 1) {
      __syncwarp();
      if (lane == 0) arrive(&empty);
    } else {
      arrive(&empty);
    }
  }
  sum[lane] = total;
}

int main(int argc, char** argv) {
  const int turns = 20;
  float *from, *sum;
  cudaMallocManaged(&from, turns * 1024);
  cudaMallocManaged(&sum, 128);
  for (int i = 0; i < turns * 256; ++i) from[i] = static_cast<float>(i % 7);
  if (argc > 1 && std::atoi(argv[1]) == 1)
    stream<1><<<1, 64>>>(from, turns, sum);
  else
    stream<32><<<1, 64>>>(from, turns, sum);
  const cudaError_t status = cudaDeviceSynchronize();
  float total = 0;
  for (int i = 0; i < 32; ++i) total += sum[i];
  std::printf("%s %g\n", cudaGetErrorString(status), total);
}
