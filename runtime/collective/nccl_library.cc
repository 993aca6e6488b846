#include "runtime/collective/nccl_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/problem.h"

namespace weir::collective {
namespace {

constexpr char kSoname[] = "libnccl.so.2";
constexpr char kHint[] =
    "install NCCL 2 of the CUDA Toolkit, name its folder in WEIR_CUDA_LIBRARIES, or use Weir's own "
    "exchanges";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void AppendMatches(const std::string& pattern, std::vector<std::string>* paths) {
  glob_t matches = {};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    paths->insert(paths->end(), matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
}

template <typename Function>
void Find(void* library, const char* name, Function* function, std::vector<std::string>* missing) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) missing->push_back(name);
}

// Returns the names of the functions that the library lacks.
std::vector<std::string> FindAll(void* library, NcclFunctions* f) {
  std::vector<std::string> missing;
  Find(library, "ncclGetVersion", &f->GetVersion, &missing);
  Find(library, "ncclGetUniqueId", &f->GetUniqueId, &missing);
  Find(library, "ncclCommInitRankConfig", &f->CommInitRankConfig, &missing);
  Find(library, "ncclCommFinalize", &f->CommFinalize, &missing);
  Find(library, "ncclCommDestroy", &f->CommDestroy, &missing);
  Find(library, "ncclCommAbort", &f->CommAbort, &missing);
  Find(library, "ncclCommGetAsyncError", &f->CommGetAsyncError, &missing);
  Find(library, "ncclGetErrorString", &f->GetErrorString, &missing);
  Find(library, "ncclGetLastError", &f->GetLastError, &missing);
  Find(library, "ncclAllReduce", &f->AllReduce, &missing);
  Find(library, "ncclReduceScatter", &f->ReduceScatter, &missing);
  Find(library, "ncclAllGather", &f->AllGather, &missing);
  Find(library, "ncclSend", &f->Send, &missing);
  Find(library, "ncclRecv", &f->Recv, &missing);
  Find(library, "ncclGroupStart", &f->GroupStart, &missing);
  Find(library, "ncclGroupEnd", &f->GroupEnd, &missing);
  return missing;
}

absl::Status Unfit(const std::string& where, const std::string& found) {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0950",
                  .where = where,
                  .expected = absl::StrCat("NCCL ", NcclVersionText(kNcclVersionMin),
                                           " or a later version of NCCL 2"),
                  .found = found,
                  .hint = kHint});
}

}  // namespace

std::string NcclVersionText(int version) {
  // Versions before 2.9 were 1000 * major + 100 * minor + patch.
  const int unit = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / unit, ".", version % unit / 100, ".", version % 100);
}

std::vector<std::string> NcclLibrary::Candidates(std::string (*variable)(const char* name)) {
  std::vector<std::string> candidates;
  for (const auto folder : absl::StrSplit(variable("WEIR_CUDA_LIBRARIES"), ':', absl::SkipEmpty()))
    candidates.push_back(absl::StrCat(folder, "/", kSoname));
  candidates.push_back(kSoname);
  if (const std::string toolkit = variable("CUDA_HOME"); !toolkit.empty())
    candidates.push_back(absl::StrCat(toolkit, "/lib64/", kSoname));
  candidates.push_back(absl::StrCat("/usr/local/cuda/lib64/", kSoname));
  std::vector<std::string> roots = {"/usr/local", "/usr"};
  if (const std::string venv = variable("VIRTUAL_ENV"); !venv.empty())
    roots.insert(roots.begin(), venv);
  for (const std::string& root : roots)
    AppendMatches(absl::StrCat(root, "/lib/python3*/*-packages/nvidia/nccl/lib/", kSoname),
                  &candidates);
  return candidates;
}

absl::StatusOr<NcclLibrary> NcclLibrary::Open() { return OpenFirst(Candidates(&Variable)); }

absl::StatusOr<NcclLibrary> NcclLibrary::OpenFirst(const std::vector<std::string>& candidates) {
  std::vector<std::string> failures;
  for (const std::string& candidate : candidates) {
    void* const library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      failures.push_back(::dlerror());
      continue;
    }
    NcclLibrary nccl;
    nccl.path_ = candidate;
    const std::vector<std::string> missing = FindAll(library, &nccl.functions_);
    if (nccl.functions_.GetVersion == nullptr ||
        nccl.functions_.GetVersion(&nccl.version_) != NcclResult::kSuccess)
      return Unfit(candidate, "a library that does not tell its version");
    const std::string version = absl::StrCat("NCCL ", NcclVersionText(nccl.version_));
    if (nccl.version_ < kNcclVersionMin || nccl.version_ >= kNcclVersionEnd)
      return Unfit(candidate, version);
    if (!missing.empty())
      return Unfit(candidate, absl::StrCat(version, " without ", absl::StrJoin(missing, ", ")));
    return nccl;
  }
  return Unfit("the libraries of this machine",
               absl::StrCat("no ", kSoname, ": ", absl::StrJoin(failures, "; ")));
}

}  // namespace weir::collective
