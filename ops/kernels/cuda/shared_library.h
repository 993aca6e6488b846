// Opens a shared library of NVIDIA when a kernel first needs it, so that the program starts on
// machines that have none. Thread rule: pure, but for the process's table of libraries.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/cuda_mode.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Opens the library `file`, such as "libcublasLt.so.13", and returns the handle of dlopen. The
// library stays open until the process ends. The first of these places that has the file decides:
// the folders of $WEIR_CUDA_LIBRARIES (separated by colons), the loader's own search, lib64 of
// $CUDA_HOME and of /usr/local/cuda, and `python_folders`, such as "cu13/lib", below nvidia/ of
// Python's packages.
// W0565, kNotFound, names the places. If the other file `unfit` is there, the message says so.
absl::StatusOr<void*> OpenSharedLibrary(const std::string& file, const std::string& unfit,
                                        const std::vector<std::string>& python_folders);

// Returns the function `name` of the library. W0566, kFailedPrecondition: there is none.
absl::StatusOr<void*> FunctionOf(void* library, const std::string& file, const std::string& name);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
