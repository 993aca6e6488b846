// Limits the files that a thread may open, with the kernel's Landlock.
// Thread rule: confines the calling thread.
#pragma once

#include <string>

#include "tools/sandbox/sandbox.h"

namespace weir::sandbox {

// Confines the calling thread and returns the version of Landlock that now confines it. 0: none,
// and *why gives the reason. The thread must have no_new_privs.
int ConfineFiles(const SandboxRules& rules, std::string* why);

}  // namespace weir::sandbox
