#include "tools/cli/dry_run.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/hosts/doctor.h"
#include "tools/hosts/ssh_command.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/worker_environment.h"

namespace weir::cli {
namespace {

std::string CommandText(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(hosts::Quoted(word));
  return absl::StrJoin(quoted, " ");
}

// Returns a list of indented lines under a title; empty if there are none.
std::string Section(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  return absl::StrCat(title, ":\n  ", absl::StrJoin(lines, "\n  "), "\n");
}

}  // namespace

void AddDryRunFlag(CLI::App* verb, bool* dry_run) {
  verb->add_flag("--dry-run", *dry_run,
                 "Show the commands, processes and variables, and start nothing")
      ->group("Processes");
}

std::string DryRunText(const DryRun& run, const hosts::FoundHosts& found) {
  std::string text = absl::StrCat("Would ", run.work, "\n", hosts::CommandsText(found.agents));
  if (!found.fan_out_command.empty())
    text += Section("The command that starts an agent on each node",
                    {CommandText(found.fan_out_command)});
  std::vector<std::string> lines;
  for (const DryProcess& process : run.processes) {
    const std::string host =
        found.agents.empty() ? "" : absl::StrCat(" on ", found.agents[process.host].host);
    lines.push_back(absl::StrCat(process.label, host, ": ", absl::StrJoin(process.variables, " "),
                                 process.variables.empty() ? "" : " ", CommandText(process.command),
                                 "\n    log ", run.log_base, "/<time>-<pid>/",
                                 launch::LogFileName(process.label)));
  }
  text += Section("Processes", lines);
  text += Section("Variables of every process", run.variables);
  if (!found.agents.empty())
    text +=
        Section("Variables for hosts that do not set them", launch::SharedEnvironment(::environ));
  return absl::StrCat(text, "Nothing was started.\n");
}

}  // namespace weir::cli
