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
constexpr absl::string_view kLocalePrefix = "LC_";
constexpr absl::string_view kTuningPrefixes[] = {"MALLOC_", "OMP_",    "GOMP_", "KMP_", "MKL_",
                                                 "DNNL_",   "ONEDNN_", "TBB_",  "UCX_", "NCCL_",
                                                 "CUDA_",   "NVIDIA_", "WEIR_"};
constexpr absl::string_view kOfOneHost[] = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"};

bool IsTuning(absl::string_view name) {
  return std::any_of(std::begin(kTuningPrefixes), std::end(kTuningPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

bool IsShared(absl::string_view name) {
  return IsTuning(name) &&
         std::find(std::begin(kOfOneHost), std::end(kOfOneHost), name) == std::end(kOfOneHost);
}

// Returns the entries of `environment` whose names `is_wanted` takes.
std::vector<std::string> Entries(const char* const* environment,
                                 bool (*is_wanted)(absl::string_view name)) {
  std::vector<std::string> entries;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const absl::string_view variable = *environment;
    const size_t equals = variable.find('=');
    if (equals != absl::string_view::npos && is_wanted(variable.substr(0, equals)))
      entries.emplace_back(variable);
  }
  return entries;
}

}  // namespace

bool IsInherited(absl::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         absl::StartsWith(name, kLocalePrefix) || IsTuning(name);
}

std::vector<std::string> WorkerEnvironment(const char* const* environment) {
  return Entries(environment, &IsInherited);
}

std::vector<std::string> SharedEnvironment(const char* const* environment) {
  return Entries(environment, &IsShared);
}

}  // namespace weir::launch
