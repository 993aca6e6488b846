#include "tools/sandbox/sandbox.h"

#include <sys/prctl.h>

#include "absl/strings/str_cat.h"
#include "tools/sandbox/file_access.h"
#include "tools/sandbox/system_calls.h"

namespace weir::sandbox {

std::string SandboxFacts::Text() const {
  std::string text = "sandbox: ";
  const std::string files = absl::StrCat("files (Landlock ABI ", landlock_abi, ")");
  if (system_calls) absl::StrAppend(&text, "system calls", landlock_abi > 0 ? " and " : "");
  if (landlock_abi > 0) text += files;
  if (!system_calls && landlock_abi == 0) text += "none";
  return missing.empty() ? text : absl::StrCat(text, "; ", missing);
}

SandboxFacts EnterSandbox(const SandboxRules& rules) {
  SandboxFacts facts;
  // Neither mechanism confines a thread that could still gain rights from a program that has them.
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    facts.missing = "the kernel has no no_new_privs";
    return facts;
  }
  std::string no_files, no_calls;
  facts.landlock_abi = ConfineFiles(rules, &no_files);
  facts.system_calls = FilterSystemCalls(
      rules.write_folders.empty() ? FileWrites::kNone : FileWrites::kWhereFilesAreConfined,
      &no_calls);
  facts.missing =
      absl::StrCat(no_files, no_files.empty() || no_calls.empty() ? "" : "; ", no_calls);
  return facts;
}

bool ForbidPrograms() {
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ForbidProgramsByFilter();
}

}  // namespace weir::sandbox
