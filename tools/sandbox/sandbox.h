// A sandbox for work that reads what somebody else wrote: jobs, clusters, traces.
//
// Whoever enters it keeps its memory, its open files and the clock, and may no longer
//
//   | may not                                            | kept so by                           |
//   |----------------------------------------------------|--------------------------------------|
//   | open a socket, or use the network                  | system calls                         |
//   | start a program or a process; threads are free     | system calls                         |
//   | signal or look into other processes                | system calls; Landlock from ABI 6 on |
//   | make memory executable, load a library             | system calls                         |
//   | make, change or remove files outside write_folders | system calls if there are none; Landlock
//   | | read files but those in `read`, and a few of /proc and /sys that tell of memory and cores |
//   Landlock |
//
// "System calls" is a seccomp filter that knows what is allowed; everything else answers EPERM.
// Landlock is the kernel's own, from 5.13 on. A kernel or a container that lacks one of them, or
// both, is no error: the work goes on with what there is, and SandboxFacts says so. A build with a
// sanitizer has neither, since those make system calls of their own. Thread rule: EnterSandbox
// confines the calling thread and what it starts afterwards, for ever. Threads that run already
// stay free; so a process is only as confined as the first thread that entered while it was alone.
#pragma once

#include <string>
#include <vector>

namespace weir {

struct SandboxRules {
  std::vector<std::string>
      read;  // files, or folders with all that they hold; what does not exist is left out
  std::vector<std::string> write_folders;  // in which files may be made, written, replaced and read
};

struct SandboxFacts {
  int landlock_abi = 0;       // 0: files are not confined
  bool system_calls = false;  // a filter is in place
  std::string missing;        // what is not in place, and why; empty: all is

  // "sandbox: system calls and files (Landlock ABI 7)".
  std::string Text() const;
};

SandboxFacts EnterSandbox(const SandboxRules& rules);

// For a process that does need files and the network, but never a program: it, and all its threads,
// may no longer start one, trace others, mount, load modules or take part in the kernel's more
// dangerous interfaces. True if that is in place.
bool ForbidPrograms();

}  // namespace weir
