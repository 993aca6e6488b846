// The program `weir`. Everything is in tools/cli.h.
//
// WEIR_SANDBOX=off in the environment leaves the sandbox of the verbs that only read out (tools/sandbox/sandbox.h).
#include <cstdlib>
#include <iostream>

#include "absl/strings/string_view.h"
#include "tools/cli.h"

int main(int argc, char** argv) {
  const char* sandbox = std::getenv("WEIR_SANDBOX");
  const bool off = sandbox != nullptr && absl::string_view(sandbox) == "off";
  return weir::RunCli(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr,
                      off ? weir::CliSandbox::kOff : weir::CliSandbox::kOn);
}
