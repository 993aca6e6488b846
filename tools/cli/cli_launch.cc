// weir launch: runs any program on the hosts of a job, with ranks in its environment.
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/dry_run.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/hosts/find_hosts.h"
#include "tools/hosts/program_launch.h"
#include "tools/launch/placement.h"
#include "tools/launch/program_path.h"
#include "tools/launch/signal_watch.h"
#include "tools/train/output_paths.h"

namespace weir::cli {
namespace {

struct LaunchArguments {
  hosts::HostsRequest hosts;
  hosts::ProgramLaunch program;
  std::vector<std::string> variables;  // "NAME=VALUE", or "NAME"
  std::string ranks;
  double grace_seconds = 5;
  bool dry_run = false;
};

// Returns the variables as "NAME=VALUE": a name alone has the value that it has here.
absl::StatusOr<std::vector<std::string>> VariablesOf(const std::vector<std::string>& given) {
  std::vector<std::string> variables;
  for (const std::string& variable : given) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const char* const value = std::getenv(name.c_str());
    if (name.empty() || (equals == std::string::npos && value == nullptr)) {
      return Rejected({"W0882", "--env", "NAME=VALUE, or the name of a variable that is set here",
                       absl::StrCat("'", variable, "'"), ""});
    }
    variables.push_back(equals == std::string::npos ? absl::StrCat(name, "=", value) : variable);
  }
  return variables;
}

// Returns what would be started, without the address and the port, which the hosts tell.
DryRun DryRunOf(const hosts::ProgramLaunch& program,
                const IdVector<RankId, hosts::RankPlace>& places) {
  DryRun run;
  run.work = places.empty() ? "launch one process for each task"
                            : absl::StrCat("launch ", places.size(),
                                           places.size() == 1 ? " process" : " processes");
  run.log_base = program.log_base;
  run.variables = program.variables;
  run.variables.push_back(absl::StrCat("MASTER_ADDR=", program.master_address.empty()
                                                           ? "<an address of the first host>"
                                                           : program.master_address));
  run.variables.push_back(absl::StrCat("MASTER_PORT=", program.master_port == 0
                                                           ? "<a free port>"
                                                           : absl::StrCat(program.master_port)));
  for (const hosts::RankPlace& place : places) {
    run.processes.push_back({launch::RankLabel({place.rank}), place.agent, program.command,
                             hosts::RankVariables(place, places.size())});
  }
  return run;
}

absl::Status RunLaunch(LaunchArguments arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(train::CheckOutsideOfCheckpoints("--logs", arguments.program.log_base));
  WEIR_ASSIGN_OR_RETURN(arguments.program.variables, VariablesOf(arguments.variables));
  arguments.program.grace_ms = std::max<int64_t>(1, std::llround(arguments.grace_seconds * 1e3));
  console::Console console(console::Console::Style::kPlain, context->raw_err,
                           [] { return console::TerminalColumns(STDERR_FILENO); });
  console::ConsoleLines lines(&console);
  arguments.hosts.starts_nothing = arguments.dry_run;
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found, hosts::FindHosts(arguments.hosts, &lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (!found.line.empty()) console.Say(found.line);
  if (arguments.dry_run && found.listed.empty() && found.backend != hosts::Backend::kLocal) {
    *context->out << DryRunText(DryRunOf(arguments.program, {}), found);
    return absl::OkStatus();
  }
  if (found.agents.empty()) {
    found.listed.push_back({"localhost", 0, "this machine"});
    found.agents.push_back(
        {"localhost", {launch::ResolvedProgram(launch::kOwnProgramLink), "agent"}, "", nullptr});
  }
  absl::StatusOr<launch::FailureReport> report = absl::InternalError("the program has not run");
  {
    WEIR_ASSIGN_OR_RETURN(const auto places,
                          hosts::PlacePrograms(found.listed, arguments.program.processes));
    if (!arguments.ranks.empty()) {
      WEIR_ASSIGN_OR_RETURN(arguments.program.ranks_shown,
                            launch::ParseRanks(arguments.ranks, static_cast<int>(places.size())));
    }
    if (arguments.dry_run) {
      *context->out << DryRunText(DryRunOf(arguments.program, places), found);
      return absl::OkStatus();
    }
    launch::SignalWatch signals(launch::SecondSignal::kIsAnEvent);
    signals.NoteUserSignals();
    report = hosts::RunProgram(arguments.program, found, &signals, context->raw_out, &console);
  }
  if (!report.ok()) {
    found.TellEnd(ExitCodeOf(*context, report.status()));
    return report.status();
  }
  *context->err << report->text << std::flush;
  context->exit_code = report->exit_code;
  return absl::OkStatus();
}

}  // namespace

void AddLaunchVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* verb = AddVerb(
      app, context, "launch",
      "Run any program on this machine or on several hosts, with its rank in its environment",
      "  weir launch --processes 4 -- python3 train.py --lr 0.1\n"
      "  weir launch --hosts a:2,b:2 -- ./program             two processes on each host, over "
      "ssh\n"
      "  srun -N2 weir launch -- ./program                    one process for each task of Slurm\n"
      "Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, "
      "GROUP_WORLD_SIZE,\n"
      "MASTER_ADDR and MASTER_PORT in its environment, as PyTorch's programs expect them. Its\n"
      "standard input is empty. The first process that fails ends the others, and its exit code "
      "is\n"
      "that of weir.",
      [arguments, context] { return RunLaunch(*arguments, context); });
  verb->add_option("--processes", arguments->program.processes,
                   "Start N processes [one for each slot of the hosts; here, one]")
      ->type_name("N")
      ->check(CLI::Range(1, 65536))
      ->group("Processes");
  verb->add_option("--env", arguments->variables,
                   "Set a variable in every process, or hand on one that is set here; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false)
      ->group("Processes");
  verb->add_option("--master-addr", arguments->program.master_address,
                   "MASTER_ADDR [an address of the first host that all hosts reach]")
      ->type_name("ADDRESS")
      ->group("Processes");
  verb->add_option("--master-port", arguments->program.master_port,
                   "MASTER_PORT [one that is free on the first host]")
      ->type_name("N")
      ->check(CLI::Range(1, 65535))
      ->group("Processes");
  arguments->program.log_base = launch::kLogBaseDefault;
  verb->add_option("--logs", arguments->program.log_base,
                   "Folder of the processes' logs; a folder per run is made in it")
      ->type_name("DIR")
      ->capture_default_str()
      ->group("Processes");
  verb->add_option("--ranks", arguments->ranks,
                   "Show only what these ranks print, such as 0,3-5; logs have all [all]")
      ->type_name("LIST")
      ->group("Processes");
  verb->add_option("--grace", arguments->grace_seconds,
                   "Between asking a process to end and killing it")
      ->type_name("SECONDS")
      ->check(IsSeconds(0.01))
      ->capture_default_str()
      ->group("Processes");
  AddDryRunFlag(verb, &arguments->dry_run);
  AddHostOptions(verb, &arguments->hosts);
  verb->add_option("COMMAND", arguments->program.command, "The program and its arguments, after --")
      ->required();
  verb->positionals_at_end();
}

}  // namespace weir::cli
