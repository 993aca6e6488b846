// The path of the program that this process runs. Thread rule: any thread.
#pragma once

#include <string>

namespace weir::launch {

inline constexpr char kOwnProgramLink[] = "/proc/self/exe";

// Resolves a link to a program, for people who look at the list of processes, and for other hosts.
// If the program's file was replaced or removed since its start, the program has no path any more.
// Then the result is the link, which still leads to the same program on this host.
std::string ResolvedProgram(const std::string& link);

}  // namespace weir::launch
