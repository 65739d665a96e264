// cuda/launch.h as a function of TVM FFI, which cuda.py calls in place of ctypes.
#include <tvm/ffi/tvm_ffi.h>

#include "launch.h"

namespace ffi = tvm::ffi;

static void launch(int64_t kernel, int64_t device, int64_t stream, const ffi::Bytes& where,
                   const ffi::Bytes& words) {
  const char* why = workbench_launch(
      reinterpret_cast<WorkbenchKernel*>(kernel), static_cast<int>(device),
      reinterpret_cast<cudaStream_t>(stream), reinterpret_cast<const int*>(where.data()),
      reinterpret_cast<const int64_t*>(words.data()));
  if (why) TVM_FFI_THROW(RuntimeError) << why;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch, launch)
