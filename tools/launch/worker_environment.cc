#include "tools/launch/worker_environment.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"

namespace weir::launch {
namespace {

constexpr absl::string_view kNames[] = {
    "PATH",       "HOME",         "USER",           "LOGNAME",      "SHELL",
    "TMPDIR",     "TZ",           "LANG",           "LANGUAGE",     "LD_LIBRARY_PATH",
    "LD_PRELOAD", "LD_BIND_NOW",  "GLIBC_TUNABLES", "OPENSSL_CONF", "GRPC_VERBOSITY",
    "GRPC_TRACE", "ASAN_OPTIONS", "LSAN_OPTIONS",   "TSAN_OPTIONS", "UBSAN_OPTIONS"};
constexpr absl::string_view kPrefixes[] = {"LC_",   "MALLOC_", "OMP_",    "GOMP_", "KMP_",
                                           "MKL_",  "DNNL_",   "ONEDNN_", "TBB_",  "UCX_",
                                           "NCCL_", "CUDA_",   "NVIDIA_", "WEIR_"};

}  // namespace

bool IsInherited(absl::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

std::vector<std::string> WorkerEnvironment(const char* const* environment) {
  std::vector<std::string> inherited;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const absl::string_view variable = *environment;
    const size_t equals = variable.find('=');
    if (equals != absl::string_view::npos && IsInherited(variable.substr(0, equals)))
      inherited.emplace_back(variable);
  }
  return inherited;
}

}  // namespace weir::launch
