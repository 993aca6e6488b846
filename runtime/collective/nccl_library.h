// Opens NCCL when a job asks for it, so that a program needs no file of NVIDIA to start. The
// library is looked for in this order:
//   1. the folders of $WEIR_CUDA_LIBRARIES, separated by ':'
//   2. where the system finds libnccl.so.2
//   3. the CUDA Toolkit: $CUDA_HOME/lib64, /usr/local/cuda/lib64
//   4. NVIDIA's packages for Python: nvidia/nccl/lib below $VIRTUAL_ENV, /usr and /usr/local
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collective/nccl_api.h"

namespace weir::collective {

// Versions that have what Weir uses. A later one of the same major version has it, too.
constexpr int kNcclVersionMin = kNcclConfigVersion;
constexpr int kNcclVersionEnd = NcclVersion(3, 0, 0);

class NcclLibrary {
 public:
  // Opens the library, which stays open to the end of the program. W0950 if there is none, or if
  // the first that is found has another version or lacks functions: says what was found where.
  static absl::StatusOr<NcclLibrary> Open();
  // Opens the first of `candidates`, which are paths or names that the system finds.
  static absl::StatusOr<NcclLibrary> OpenFirst(const std::vector<std::string>& candidates);
  // Returns the candidates in the order above. `variable` returns an environment variable, or "".
  static std::vector<std::string> Candidates(std::string (*variable)(const char* name));

  const NcclFunctions& functions() const { return functions_; }
  int version() const { return version_; }
  const std::string& path() const { return path_; }  // as it was asked for

 private:
  NcclLibrary() = default;
  NcclFunctions functions_;
  int version_ = 0;
  std::string path_;
};

// "2.28.9"
std::string NcclVersionText(int version);

}  // namespace weir::collective
