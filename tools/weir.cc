// The program `weir`. Everything is in tools/cli/cli.h, except for the settings of the whole
// process here.
//
// WEIR_SANDBOX=off in the environment switches off the sandbox of the verbs that only read
// (tools/sandbox/sandbox.h).
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/limits/process_limits.h"
#include "tools/cli/cli.h"

namespace {

// The UCX library replaces the handling of SIGHUP while it is loaded, which is before main. This
// variable keeps the handling that the process had from a shell or from nohup, before any library
// starts, and main puts it back.
struct sigaction hangup_of_parent = {};

void KeepHangup(int, char**, char**) { ::sigaction(SIGHUP, nullptr, &hangup_of_parent); }

__attribute__((section(".preinit_array"), used)) void (*const kKeepHangup)(int, char**,
                                                                           char**) = KeepHangup;

}  // namespace

int main(int argc, char** argv) {
  weir::limits::RaiseOwnLimits();
  if (absl::Status status = weir::limits::CheckLimits(); !status.ok()) {
    std::cerr << "weir: " << std::string(status.message()) << "\n";
    return weir::limits::kExitRefused;
  }
  const bool is_worker = argc > 1 && absl::string_view(argv[1]) == "worker";
  weir::limits::ReportLimitsAtTheEnd(is_worker ? weir::limits::OnTimeUp::kEndAtOnce
                                               : weir::limits::OnTimeUp::kEndInOrder);
  ::sigaction(SIGHUP, &hangup_of_parent, nullptr);
  const std::string program = argc > 0 ? argv[0] : "weir";
  const char* sandbox = std::getenv("WEIR_SANDBOX");
  const bool off = sandbox != nullptr && absl::string_view(sandbox) == "off";
  return weir::cli::RunCli(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr,
                           off ? weir::cli::CliSandbox::kOff : weir::cli::CliSandbox::kOn, program);
}
