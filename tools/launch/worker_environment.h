// What a worker process inherits of the starter's environment: what it needs to find libraries and
// files and what tunes the libraries that it computes and communicates with. Nothing else: the rest
// may hold secrets (tokens of a cloud, of a version control) that no worker needs, and a worker
// reads what others send.
//
//   PATH HOME USER LOGNAME SHELL TMPDIR TZ LANG LANGUAGE LC_*      the system's
//   LD_LIBRARY_PATH LD_PRELOAD LD_BIND_NOW MALLOC_* GLIBC_TUNABLES   the loader's and the
//   allocator's OMP_* GOMP_* KMP_* MKL_* DNNL_* ONEDNN_* TBB_*                 kernels' UCX_*
//   NCCL_* CUDA_* NVIDIA_*                                   devices' and networks' OPENSSL_CONF
//   GRPC_VERBOSITY GRPC_TRACE                         the control plane's, without its proxies
//   ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS           sanitizers'
//   WEIR_*                                                         Weir's own, and its tests'
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir {

// Whether a worker inherits the variable `name`.
bool IsInherited(absl::string_view name);

// Those of `environment` ("NAME=value", a null at the end, as environ has them) that a worker
// inherits, in their order.
std::vector<std::string> WorkerEnvironment(const char* const* environment);

}  // namespace weir
