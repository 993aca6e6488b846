// A sandbox for work that reads input from unknown authors: jobs, clusters, traces.
//
// A thread that enters the sandbox keeps its memory, its open files and the clock. These actions
// are forbidden, each by the mechanism after the dash:
//   - open a socket, or use the network -- system calls
//   - start a program or a process; threads are free -- system calls
//   - signal or look into other processes -- system calls; Landlock from ABI 6 on
//   - make memory executable, load a library -- system calls
//   - make, change or remove files outside write_folders -- Landlock; system calls if there are no
//     write_folders
//   - read files, except those in `read`, and a few of /proc and /sys that tell of memory and cores
//     -- Landlock
//
// "System calls" is a seccomp filter with a list of allowed calls; every other call returns EPERM.
// Landlock is part of the kernel from 5.13 on. A kernel or a container that lacks one or both of
// these is no error: the work continues with the available mechanisms, and SandboxFacts names them.
// A build with a sanitizer has neither, because sanitizers make system calls of their own.
// Thread rule: EnterSandbox confines the calling thread and everything that it starts afterwards,
// for ever. Threads that run already stay free, so a process is fully confined only if its first
// thread entered while it was alone.
#pragma once

#include <string>
#include <vector>

namespace weir::sandbox {

struct SandboxRules {
  // Files, or folders with their whole content. Paths that do not exist are left out.
  std::vector<std::string> read;
  // Folders in which files may be made, written, replaced and read.
  std::vector<std::string> write_folders;
};

struct SandboxFacts {
  int landlock_abi = 0;       // 0: files are not confined
  bool system_calls = false;  // a filter is in place
  std::string missing;        // what is not in place, and why; empty: everything is

  // Returns "sandbox: system calls and files (Landlock ABI 7)".
  std::string Text() const;
};

SandboxFacts EnterSandbox(const SandboxRules& rules);

// Serves a process that needs files and the network, but never a program. The process and all its
// threads may no longer start a program, trace others, mount, load modules or use the kernel's more
// dangerous interfaces. Returns true if that is in place.
bool ForbidPrograms();

}  // namespace weir::sandbox
