// A worker process for tests: reads its options from its standard input, connects and serves.
// Commands: "echo" answers with its argument; "figures" answers with a line of the control plane's
// cost. The process ends with code 0 after an orderly end, 3 if it could not connect, 4 if the job
// ended otherwise.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/control/worker_link.h"

namespace weir::control {
namespace {

// Returns a number of /proc/self/status.
int64_t FigureOf(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t number = 0;
  while (file >> word) {
    if (word == name && file >> number) return number;
  }
  return 0;
}

int Work() {
  const std::string told{std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>()};
  const std::vector<std::string> fields = absl::StrSplit(told, '\0');
  WorkerLinkOptions options;
  int worker = 0;
  if (fields.size() != 8 || !absl::SimpleAtoi(fields[2], &worker) ||
      !absl::SimpleAtoi(fields[3], &options.heartbeat_ms) ||
      !absl::SimpleAtoi(fields[4], &options.coordinator_dead_after_ms)) {
    return 2;
  }
  options.worker = WorkerId(worker);
  options.coordinator_address = fields[0];
  options.job_id = fields[1];
  options.credentials = {fields[5], fields[6], fields[7], ""};
  options.build_id = "build-1";

  const int64_t before_kib = FigureOf("VmRSS:");
  const auto begin = std::chrono::steady_clock::now();
  auto link = WorkerLink::Connect(options);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::steady_clock::now() - begin)
                          .count();
  if (!link.ok()) {
    std::cerr << link.status().message() << "\n";
    return 3;
  }
  const absl::Status end =
      (*link)->Serve([&](const std::string& command) -> absl::StatusOr<std::string> {
        if (command != "figures") return command;
        return absl::StrCat("connected in ", micros, " us; resident ", before_kib, " KiB before, ",
                            FigureOf("VmRSS:"), " KiB now; threads ", FigureOf("Threads:"));
      });
  if (!end.ok()) std::cerr << end.message() << "\n";
  return end.ok() ? 0 : 4;
}

}  // namespace
}  // namespace weir::control

int main() { return weir::control::Work(); }
