// weir worker and weir agent, the processes of a job. A starter or a launcher starts them, and
// --help hides them.
#include <iostream>
#include <memory>
#include <string>

#include "tools/cli/cli_verbs.h"
#include "tools/fleet/worker.h"
#include "tools/hosts/agent.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/parent_signals.h"

namespace weir::cli {
namespace {

void AddScheduledFlag(CLI::App* verb, bool* is_scheduled) {
  verb->add_flag("--scheduled", *is_scheduled,
                 "Take signals from the parent process alone; a scheduler sends them to all");
}

// The starter of a job calls this verb, so --help hides it. The label only shows in the list of
// processes.
void AddWorker(CLI::App* app, CliContext* context) {
  auto is_scheduled = std::make_shared<bool>(false);
  CLI::App* verb = AddVerb(
      app, context, "worker", "Hold some ranks of a job that weir train --processes started", "",
      [context, is_scheduled] {
        context->reader = Reader::kProgram;
        if (*is_scheduled) launch::TakeSignalsFromParentAlone();
        absl::Status status = fleet::RunWorker(std::cin, *context->err);
        if (!absl::IsAborted(status)) return status;
        context->exit_code = launch::kExitFollowing;  // the starter reports what happened
        return absl::OkStatus();
      });
  verb->group("");
  verb->add_option_function<std::string>(
      "LABEL", [](const std::string&) {}, "Ranks, for people");
  AddScheduledFlag(verb, is_scheduled.get());
}

// A launcher starts this verb on each host of a job, so --help hides it.
void AddAgent(CLI::App* app, CliContext* context) {
  auto task_from = std::make_shared<std::string>();
  auto is_scheduled = std::make_shared<bool>(false);
  CLI::App* verb =
      AddVerb(app, context, "agent",
              "Start, watch and end a job's processes on this host, as weir train orders", "",
              [context, task_from, is_scheduled] {
                context->reader = Reader::kProgram;
                if (*is_scheduled) launch::TakeSignalsFromParentAlone();
                context->exit_code = task_from->empty() ? hosts::RunAgentOnStandardStreams()
                                                        : hosts::RunInvitedAgent(*task_from);
                return absl::OkStatus();
              });
  verb->add_option("--task-from", *task_from,
                   "The variable with the number of this task; the starter's invitation is on "
                   "standard input")
      ->type_name("NAME");
  AddScheduledFlag(verb, is_scheduled.get());
  verb->group("");
}

}  // namespace

void AddWorkerVerbs(CLI::App* app, CliContext* context) {
  AddWorker(app, context);
  AddAgent(app, context);
}

}  // namespace weir::cli
