// weir doctor: examines the hosts of a job before the job.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/build_id.h"
#include "runtime/base/status.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/hosts/address_probe.h"
#include "tools/hosts/doctor.h"
#include "tools/hosts/find_hosts.h"
#include "tools/hosts/hosts_supervisor.h"
#include "tools/launch/program_path.h"

namespace weir::cli {
namespace {

constexpr int64_t kProbeMs = 1'000;
constexpr int kExitMend = 69;

struct DoctorArguments {
  hosts::HostsRequest hosts;
  std::string interface;  // for tensors; empty: any
  bool shows_commands = false;
};

absl::Status RunDoctor(const DoctorArguments& arguments, CliContext* context) {
  const hosts::HostsRequest& request = arguments.hosts;
  console::Console console(console::Console::Style::kPlain, context->raw_err,
                           [] { return console::TerminalColumns(STDERR_FILENO); });
  console::ConsoleLines lines(&console);
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found, hosts::FindHosts(request, &lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (found.agents.empty()) {
    found.line = "hosts: this machine alone; --hosts a,b names others";
    found.agents.push_back(
        {"localhost", {launch::ResolvedProgram(launch::kOwnProgramLink), "agent"}, "", nullptr});
  }
  *context->out << found.line << "\n";
  if (arguments.shows_commands) *context->out << hosts::CommandsText(found.agents) << std::flush;
  const IdVector<HostId, std::string> names = hosts::NamesOf(found.agents);
  hosts::HostsSupervisorOptions options;
  options.workers.console = &lines;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<hosts::HostsSupervisor> supervisor,
                        hosts::HostsSupervisor::Reach(found.agents, options));
  std::vector<std::string> own =
      request.address.empty() ? hosts::OwnAddresses() : std::vector<std::string>{request.address};
  if (own.empty()) own.emplace_back("127.0.0.1");
  const hosts::ProbeTargets targets = hosts::OpenProbeTargets(own);
  const hosts::Examination examination =
      hosts::Examine(supervisor.get(), names, targets.addresses(), kProbeMs, arguments.interface);
  *context->out << hosts::ExaminationText(examination);
  const std::vector<std::string> complaints = hosts::Complaints(examination, BuildId());
  *context->out << (complaints.empty() ? "Nothing to mend.\n" : "To mend:\n");
  for (const std::string& complaint : complaints) *context->out << "  - " << complaint << "\n";
  context->exit_code = complaints.empty() ? 0 : kExitMend;
  supervisor->TellEnd(context->exit_code);
  return absl::OkStatus();
}

}  // namespace

void AddDoctorVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* verb =
      AddVerb(app, context, "doctor",
              "Examine hosts before a job: builds, clocks, memory, GPUs, and who reaches whom",
              "  weir doctor --hosts a,b\n  srun -N2 weir doctor",
              [arguments, context] { return RunDoctor(*arguments, context); });
  verb->add_flag("--commands", arguments->shows_commands,
                 "Show the whole command that leads to each host");
  AddHostOptions(verb, &arguments->hosts);
  AddInterfaceOption(verb, &arguments->interface);
}

}  // namespace weir::cli
