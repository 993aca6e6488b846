// The command line of Weir, as a function, so that tests run it without a process.
//
// Exit codes: 0 done, 2 wrong usage, 3 the loss or the gradients were not finite, 65 job rejected,
// 66 input missing or damaged, 69 the machine refused something (a limit) or was in the way (a
// stopped process, a cut connection), 70 internal error, 130 interrupted (after writing what was
// asked for). Thread rule: one call at a time; `train`, `eval` and `generate` handle SIGINT while
// they run.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace weir {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNonfinite = 3;
inline constexpr int kExitInterrupted = 130;

// Whether the verbs that only read (check, plan, sim, trace report) enter the sandbox of
// tools/sandbox and limit themselves. For a process that ends with the verb: nobody leaves the
// sandbox.
enum class CliSandbox : uint8_t { kOff, kOn };

// `args` without the program's name. Results go to `out`; errors, progress and warnings to `err`;
// both without control characters (runtime/base/printable_text.h), but for what `generate` writes
// elsewhere than to a terminal.
int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           CliSandbox sandbox = CliSandbox::kOff);

}  // namespace weir
