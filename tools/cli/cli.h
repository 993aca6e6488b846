// The command line of Weir as a function, so that tests can run it without a process.
//
// Exit codes: 0 done; 2 wrong usage; 3 the loss or the gradients were not finite; 65 job rejected;
// 66 input missing or damaged; 69 the machine refused a request (a limit) or hindered the job (a
// stopped process, a cut connection); 70 internal error; 130 interrupted (after the requested files
// were written); 128 + N: signal N ended the process of the job that failed first. Thread rule: one
// call at a time; `train`, `eval` and `generate` handle SIGINT while they run.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace weir::cli {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNonfinite = 3;

// kOn: the verbs that only read (check, plan, sim, trace report) enter the sandbox of tools/sandbox
// and limit themselves. Use kOn only in a process that ends with the verb, because nothing can
// leave the sandbox.
enum class CliSandbox : uint8_t { kOff, kOn };

// Runs the command line `args`, which does not include the program's name; `program` is that name
// as the user has typed it, for commands that Weir advises. Results go to `out`;
// errors, progress and warnings go to `err`. Both are free of control characters
// (runtime/base/printable_text.h), except for the output of `generate` if `out` is not a terminal.
int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           CliSandbox sandbox = CliSandbox::kOff, const std::string& program = "weir");

}  // namespace weir::cli
