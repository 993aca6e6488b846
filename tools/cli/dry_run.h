// Tells people what a run on processes and hosts would start (--dry-run). Starts nothing.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "runtime/base/ids.h"
#include "tools/hosts/find_hosts.h"

namespace weir::cli {

void AddDryRunFlag(CLI::App* verb, bool* dry_run);

struct DryProcess {
  std::string label;  // "ranks 2-3"
  HostId host = HostId(0);
  std::vector<std::string> command;
  std::vector<std::string> variables;  // of this process: "RANK=2"
};

struct DryRun {
  std::string work;                    // "train gpt (dp=2) for 100 steps"
  std::vector<DryProcess> processes;   // empty: this process does the work, or they are not known
  std::vector<std::string> variables;  // of all processes, on every host
  std::string log_base;
};

// Returns whole lines: the way to each host, the processes with their hosts and logs, and variables
// that hosts get where they do not set them.
std::string DryRunText(const DryRun& run, const hosts::FoundHosts& found);

}  // namespace weir::cli
