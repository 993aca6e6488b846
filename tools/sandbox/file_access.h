// Which files a thread may open, by the kernel's Landlock.
// Thread rule: confines the calling thread.
#pragma once

#include <string>

#include "tools/sandbox/sandbox.h"

namespace weir {

// The version of Landlock that now confines the calling thread. 0: none; then *why says so. The
// thread must have no_new_privs.
int ConfineFiles(const SandboxRules& rules, std::string* why);

}  // namespace weir
