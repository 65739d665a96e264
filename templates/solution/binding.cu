// Launches a kernel as a function of TVM FFI, which op.py's operator calls.
#include <tvm/ffi/tvm_ffi.h>

#include "launch.h"

namespace ffi = tvm::ffi;

static void launch(const ffi::String& key, const ffi::Array<int64_t>& where,
                   const ffi::Array<ffi::Any>& words) {
  std::vector<workbench_package::Word> values;
  for (const ffi::Any& word : words) {
    const auto number = word.as<double>();
    values.push_back({number ? 0 : word.cast<int64_t>(), number ? *number : 1.0 * word.cast<int64_t>()});
  }
  workbench_package::launch(key, where, std::move(values));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch, launch)
