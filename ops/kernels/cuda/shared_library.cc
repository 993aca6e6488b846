#include "ops/kernels/cuda/shared_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr char kVariable[] = "WEIR_CUDA_LIBRARIES";
constexpr char kToolkit[] = "/usr/local/cuda/lib64";

// Returns the folders that match a pattern of the shell, in order of their names.
std::vector<std::string> FoldersLike(const std::string& pattern) {
  std::vector<std::string> folders;
  glob_t matches{};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) folders.emplace_back(matches.gl_pathv[i]);
  }
  ::globfree(&matches);
  return folders;
}

// Returns where Python keeps the packages of NVIDIA.
std::vector<std::string> PythonFolders(const std::vector<std::string>& below_nvidia) {
  std::vector<std::string> roots = {"/usr/local/lib", "/usr/lib", "/opt/*/lib"};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(variable);
    if (root != nullptr && *root != '\0') roots.insert(roots.begin(), absl::StrCat(root, "/lib"));
  }
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') roots.push_back(absl::StrCat(home, "/.local/lib"));
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    for (const std::string& below : below_nvidia) {
      for (std::string& folder :
           FoldersLike(absl::StrCat(root, "/python3*/*-packages/nvidia/", below))) {
        folders.push_back(std::move(folder));
      }
    }
  }
  return folders;
}

void* Open(const std::string& path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

}  // namespace

absl::StatusOr<void*> OpenSharedLibrary(const std::string& file, const std::string& unfit,
                                        const std::vector<std::string>& python_folders) {
  std::vector<std::string> folders;
  const char* own = std::getenv(kVariable);
  if (own != nullptr && *own != '\0') folders = absl::StrSplit(own, ':', absl::SkipEmpty());
  const size_t num_own = folders.size();
  folders.push_back("");  // the loader's own search
  if (const char* toolkit = std::getenv("CUDA_HOME"); toolkit != nullptr && *toolkit != '\0')
    folders.push_back(absl::StrCat(toolkit, "/lib64"));
  folders.emplace_back(kToolkit);
  for (std::string& folder : PythonFolders(python_folders)) folders.push_back(std::move(folder));
  const auto path_of = [](const std::string& folder, const std::string& name) {
    return folder.empty() ? name : absl::StrCat(folder, "/", name);
  };
  std::string reason;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (void* library = Open(path_of(folders[i], file))) return library;
    const char* error = ::dlerror();
    // The user named the first folders, so what is wrong with those says most.
    if (error != nullptr && (reason.empty() || i < num_own)) reason = error;
  }
  for (const std::string& folder : folders) {
    void* library = unfit.empty() ? nullptr : Open(path_of(folder, unfit));
    if (library == nullptr) continue;
    ::dlclose(library);
    absl::StrAppend(&reason, "; ", path_of(folder, unfit), " is there, and is the wrong version");
    break;
  }
  folders[num_own] = "the loader's search";
  return absl::NotFoundError(absl::StrCat("W0565: the library ", file,
                                          " cannot be opened: ", reason,
                                          ". Searched: ", absl::StrJoin(folders, ", "), ". Set ",
                                          kVariable, " to the folder that has the library"));
}

absl::StatusOr<void*> FunctionOf(void* library, const std::string& file, const std::string& name) {
  if (void* function = ::dlsym(library, name.c_str())) return function;
  return absl::FailedPreconditionError(
      absl::StrCat("W0566: the library ", file, " has no function ", name,
                   ". Install the version of the library that belongs to CUDA 13"));
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
