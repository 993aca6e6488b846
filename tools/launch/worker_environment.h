// The part of the starter's environment that a worker process inherits: the variables that the
// worker needs to find libraries and files, and the variables that tune the libraries for
// computation and communication. A worker inherits nothing else, because other variables may hold
// secrets (tokens of a cloud or of a version control) that no worker needs, and a worker reads
// messages from others.
//
//   PATH HOME USER LOGNAME SHELL TMPDIR TZ LANG LANGUAGE LC_*        the system's
//   LD_LIBRARY_PATH LD_PRELOAD LD_BIND_NOW MALLOC_* GLIBC_TUNABLES   the loader's and allocator's
//   OMP_* GOMP_* KMP_* MKL_* DNNL_* ONEDNN_* TBB_*                   kernels'
//   UCX_* NCCL_* CUDA_* NVIDIA_*                                     devices' and networks'
//   OPENSSL_CONF GRPC_VERBOSITY GRPC_TRACE                           the control plane's (no
//   proxies) ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS             sanitizers' WEIR_*
//   Weir's own, and its tests'
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir::launch {

// Returns whether a worker inherits the variable `name`.
bool IsInherited(absl::string_view name);

// Returns the entries of `environment` that a worker inherits, in their order. `environment` has
// "NAME=value" entries and a null at the end, as environ has.
std::vector<std::string> WorkerEnvironment(const char* const* environment);

// Returns the entries of `environment` that tune libraries in the same way on every host, for hosts
// whose own environment does not have them. CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES belong
// to one host, so they are not among them.
std::vector<std::string> SharedEnvironment(const char* const* environment);

}  // namespace weir::launch
