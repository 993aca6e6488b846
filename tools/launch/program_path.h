// The paths of programs: that of this process, and those that a shell would run.
// Thread rule: any thread.
#pragma once

#include <string>

namespace weir::launch {

inline constexpr char kOwnProgramLink[] = "/proc/self/exe";

// Resolves a link to a program, for people who look at the list of processes, and for other hosts.
// If the program's file was replaced or removed since its start, the program has no path any more.
// Then the result is the link, which still leads to the same program on this host.
std::string ResolvedProgram(const std::string& link);

// Returns the path of the program that a shell runs for the word `program`, where `path` has the
// value of PATH; empty if there is none.
std::string FindInPath(const std::string& program, const std::string& path);

// The same with this process's own PATH, or the system's folders if there is no PATH.
std::string FindInOwnPath(const std::string& program);

// Returns the first file that FindInOwnPath passes over because this process may not execute it;
// empty if there is none. It tells a program that is missing from one that lacks a permission.
std::string FindNotExecutable(const std::string& program);

}  // namespace weir::launch
