#include "ops/kernels/cpu/processor_kernels.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/kernels/cpu/simd_targets.h"

// This header comes last, because simd_targets.h must come before it.
#include "hwy/targets.h"

namespace weir::kernels {
namespace {

std::string InstructionsOfDnnl() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41: return "SSE41";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2_VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx: return "AVX512_CORE_AMX";
    default: break;
  }
  return absl::StrCat("instructions ", static_cast<int>(dnnl::get_effective_cpu_isa()));
}

// Highway's dispatch takes the best of its compiled targets, which has the lowest bit.
std::string TargetOfHighway() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

int64_t CacheKib(int which) { return std::max<int64_t>(0, ::sysconf(which)) / 1024; }

}  // namespace

std::string ProcessorKernels() {
  const dnnl_version_t& version = *dnnl_version();
  return absl::StrCat("oneDNN ", version.major, ".", version.minor, ".", version.patch, " with ",
                      InstructionsOfDnnl(), ", Highway ", TargetOfHighway(), ", caches of ",
                      CacheKib(_SC_LEVEL1_DCACHE_SIZE), " and ", CacheKib(_SC_LEVEL2_CACHE_SIZE),
                      " KiB");
}

std::string ProcessorModel() {
  std::map<std::string, std::string> facts;  // of the first processor
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    facts.emplace(absl::StripAsciiWhitespace(line.substr(0, colon)),
                  absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  const auto joined = [&facts](const std::vector<std::string>& names, const char* separator) {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      if (const auto fact = facts.find(name); fact != facts.end()) found.push_back(fact->second);
    }
    return absl::StrJoin(found, separator);
  };
  // An x86 tells the first names, and an Arm the others.
  std::string number = joined({"cpu family", "model", "stepping"}, ".");
  if (number.empty()) number = joined({"CPU architecture", "CPU variant", "CPU part"}, ".");
  std::string text = joined({"vendor_id", "CPU implementer"}, " ");
  if (!number.empty()) absl::StrAppend(&text, text.empty() ? "" : " ", number);
  if (const std::string name = joined({"model name"}, ""); !name.empty())
    absl::StrAppend(&text, text.empty() ? "" : ", ", name);
  return text.empty() ? "unknown" : text;
}

}  // namespace weir::kernels
