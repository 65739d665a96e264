// Launches a kernel by the CUDA runtime, as an operator of torch that op.py's operator calls.
#include <torch/library.h>

#include <vector>

#include "../cuda/launch.h"
#include "registration.h"

namespace {

void check(cudaError_t status) { TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status)); }

// where: device, stream, grid, block, bytes of shared memory. words: the arguments. A pointer is an
// integer, and a struct the address of its bytes on the host.
void launch(const std::string& key, at::IntArrayRef where, at::ArrayRef<at::Scalar> words) {
  auto& entries = workbench_package::entries();
  const auto place = entries.find(key);
  TORCH_CHECK_NOT_IMPLEMENTED(place != entries.end(), "the extension has no kernel ", key);
  auto& entry = place->second;
  TORCH_CHECK_VALUE(words.size() == entry.kinds.size(), key, " takes ", entry.kinds.size(),
                    " arguments, not ", words.size());
  union Value {
    int64_t integer;
    float narrow;
    double wide;
  };
  std::vector<Value> values(words.size());
  std::vector<void*> arguments(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (entry.kinds[i] == 'f') values[i].narrow = words[i].to<float>();
    else if (entry.kinds[i] == 'd') values[i].wide = words[i].to<double>();
    else values[i].integer = words[i].to<int64_t>();
    arguments[i] =
        entry.kinds[i] == 's' ? reinterpret_cast<void*>(values[i].integer) : &values[i];
  }
  const int device = static_cast<int>(where[0]), bytes = static_cast<int>(where[8]);
  check(cudaSetDevice(device));
  auto [allowed, is_first] = entry.shared.try_emplace(device, 0);
  if (is_first && entry.carveout >= 0)
    check(cudaFuncSetAttribute(entry.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                               entry.carveout));
  if (bytes > allowed->second) {
    check(cudaFuncSetAttribute(entry.function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    allowed->second = bytes;
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(where[2], where[3], where[4]);
  config.blockDim = dim3(where[5], where[6], where[7]);
  config.dynamicSmemBytes = bytes;
  config.stream = reinterpret_cast<cudaStream_t>(where[1]);
  config.attrs = attributes;
  if (entry.early_start) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (entry.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  check(cudaLaunchKernelExC(&config, entry.function, arguments.data()));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [key, entry] : workbench_package::entries()) all.push_back(key + entry.kinds);
  return all;
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("launch(str key, int[] where, Scalar[] words) -> ()", &launch);
  ops.def("names() -> str[]", &names);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
