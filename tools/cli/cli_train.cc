// weir train.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/job/check_training.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/dry_run.h"
#include "tools/cli/job_weights.h"
#include "tools/cli/next_start.h"
#include "tools/cli/ongoing_run.h"
#include "tools/cli/run_outlook.h"
#include "tools/cli/run_viewer.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet_runner.h"
#include "tools/fleet/input_watch.h"
#include "tools/fleet/mesh_change.h"
#include "tools/fleet/rank_spread.h"
#include "tools/job/fewer_replicas.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/growth_policy.h"
#include "tools/launch/placement.h"
#include "tools/launch/program_path.h"
#include "tools/launch/restart_policy.h"
#include "tools/launch/signal_watch.h"
#include "tools/live/live_run.h"
#include "tools/sim/product_ways.h"
#include "tools/train/job_session.h"
#include "tools/train/prepare_training.h"
#include "tools/train/run_checkpoints.h"
#include "tools/train/run_folder.h"
#include "tools/train/run_so_far.h"
#include "tools/train/trainer.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

constexpr char kStaysSmall[] =
    "the mesh stays small from here on: to have that of the job again, end this run (Ctrl-C) and "
    "start it with --resume";

// Settles the rules, lays the axes of the mesh over hosts, and says what the job does not say
// itself.
absl::Status LayOutAndSay(const TrainArguments& arguments, const sim::JobCosts& costs,
                          proto::Job* job, console::Console* console) {
  if (search::IsSearched(*job)) console->Say("searching for rules (rules: AUTO)");
  WEIR_ASSIGN_OR_RETURN(const std::optional<search::SettledRules> settled,
                        SettleRulesConfined(costs, search::MachineMemory::kMust, job));
  if (settled.has_value()) console->Say(search::SettledText(*settled));

  WEIR_ASSIGN_OR_RETURN(const plan::PlacedAxes placed, plan::PlaceAxes(arguments.place, job));
  if (const std::string line = plan::PlacedText(placed, *job); !line.empty()) console->Say(line);
  WEIR_ASSIGN_OR_RETURN(
      const plan::SettledCollectives collectives,
      plan::SettleCollectives(
          costs.model(),
          train::ObstacleToNccl(*job, arguments.options.processes, arguments.options.hosts,
                                train::PrepareScope::Machine::kThis),
          job));
  if (!collectives.text.empty()) console->Say(collectives.text);
  return absl::OkStatus();
}

// Begins the record of the run, and shows it with --view.
void BeginRecord(const TrainArguments& arguments, const std::string& title, OngoingRun* run) {
  run->live = std::make_unique<live::LiveRun>(title, &run->clock);
  if (!arguments.view) return;
  const std::optional<std::string> address = StartViewer(::getpid(), arguments.view_port);
  run->console->Say(address.has_value() ? "view: " + *address
                                        : "WARNING: --view: the page is not served; the run goes "
                                          "on without it");
}

// Chooses the checkpoint that the run resumes, and says what the user should know of the choice.
absl::Status ChooseResume(TrainArguments* arguments, console::Console* console) {
  WEIR_ASSIGN_OR_RETURN(const ResumeNews news, arguments->ChooseResume());
  if (!news.note.empty()) console->Say(news.note);
  for (const std::string& warning : news.warnings) console->Say("WARNING: " + warning);
  return absl::OkStatus();
}

// Trains once. If a process of the job fails, returns the report of the failure, which is shown.
absl::StatusOr<train::TrainResult> TrainOnce(const proto::Job& job,
                                             const train::TrainOptions& options, OngoingRun* run,
                                             launch::FailureReport* report, CliContext* context) {
  absl::StatusOr<train::TrainResult> trained = train::Train(job, options);
  if (run->fleet == nullptr) return trained;
  *report = run->fleet->Finish(trained.status());
  *context->err << report->text << std::flush;
  run->fleet->AwaitRemaining();
  return trained;
}

// What followed the failures of processes of a run so far.
struct Failures {
  launch::RestartPolicy policy;
  int restarts = 0;    // of all processes
  int recoveries = 0;  // after which the other processes lived on
  // The last failure after which the others could live on; its text is empty if there was none.
  launch::FailureReport last;
  std::string refusal;            // why that failure ends the job; empty: it does not
  bool is_recovering = false;     // no step is done since
  std::vector<std::string> lost;  // the ranks of all processes lost since the last step
  // The reports of failures before the last one since the last step.
  std::vector<std::string> earlier_reports;
  int64_t lost_after_step = 0;      // steps done when the first of them was lost, and
  int64_t lost_ns = 0;              // the time
  bool is_replacing = false;        // the next loss is of a process that is slow
  bool is_ended_by_signal = false;  // and not by the failure
  // The job with another number of replicas with which the run goes on; nullopt once a step of it
  // is done.
  std::optional<proto::Job> changed;
};

// How a run whose mesh has become smaller gets its own mesh again.
struct Growths {
  launch::GrowthPolicy policy;
  int count = 0;         // so far
  int64_t begun_ns = 0;  // the time of the last one
  // Lost hosts are sought since the last turn, and at this time somebody looks whether they have
  // come.
  std::optional<int64_t> look_ms;
};

// Makes the job of the run smaller, because these processes do not come back. Returns how, for
// people; an empty text: the job stays.
using ShrinkJob = std::function<absl::StatusOr<std::string>(const fleet::Fleet::Replacement& lost)>;

// Returns with which processes the others live on, for people; an empty text: they cannot, and a
// line has said why.
std::string WhoReplaces(const fleet::Fleet::Replacement& replacement, const ShrinkJob& shrink,
                        Failures* failures, OngoingRun* run) {
  const bool is_refused = !failures->refusal.empty();
  const fleet::MeshAfterLoss mesh =
      fleet::ChooseMesh({.may_start_anew = !is_refused,
                         .have_places = replacement.status.ok(),
                         .is_changing = failures->changed.has_value()});
  if (mesh == fleet::MeshAfterLoss::kStays) {
    return absl::StrCat(replacement.text, replacement.num_others > 0 ? ", and the others live on"
                                                                     : ", and no other lives on");
  }
  const absl::StatusOr<std::string> smaller = shrink(replacement);
  if (smaller.ok() && !smaller->empty()) {
    const std::string why = is_refused                 ? failures->refusal
                            : !replacement.status.ok() ? "no host takes its place"
                                                       : "the mesh was about to change";
    return absl::StrCat(replacement.lost, replacement.num_lost == 1 ? " does" : " do",
                        " not come back (", why, "), and the others go on with ", *smaller);
  }
  if (is_refused && smaller.ok()) return "";
  const bool have_places = is_refused || replacement.status.ok();
  const absl::Status& why = have_places ? smaller.status() : replacement.status;
  Tell(absl::StrCat("WARNING: the other processes cannot live on: ",
                    why.ok() ? "the job cannot become smaller" : why.message()),
       run);
  return "";
}

// Decides after a failure of a process whether the others live on, and says so. If a signal has
// asked the job to end, then they live on to save what the run has.
bool GoesOn(int64_t steps_done, const ShrinkJob& shrink, Failures* failures, OngoingRun* run,
            CliContext* context) {
  const launch::FailureReport report = run->fleet->ReportLoss();
  if (report.text.empty()) return false;
  const launch::FailureReport before = std::exchange(failures->last, report);
  if (failures->is_recovering) failures->earlier_reports.push_back(before.text);
  const std::string who = absl::StrJoin(report.everyone, " and ");
  const bool is_replaced =
      std::exchange(failures->is_replacing, false) && report.what == launch::kSlowProcess;
  failures->refusal =
      is_replaced ? "" : failures->policy.Note(launch::FailureOf(report, who, steps_done));
  const bool is_changing = failures->changed.has_value();
  const std::string who_replaces =
      WhoReplaces(run->fleet->ForeseeReplacement(), shrink, failures, run);
  if (who_replaces.empty()) return false;
  *context->err << report.text << std::flush;
  ++failures->recoveries;
  std::string line = absl::StrCat("WARNING: recovery ", failures->recoveries, " after step ",
                                  steps_done, ": ", who_replaces);
  if (failures->is_recovering) {
    absl::StrAppend(&line, "; no step is done since the loss of ",
                    absl::StrJoin(failures->lost, " and "),
                    is_changing ? " (ranks are those of the last step)" : "");
  } else {
    failures->lost.clear();
    failures->earlier_reports.clear();
    failures->lost_after_step = steps_done;
    failures->lost_ns = report.time_ns;
  }
  if (run->signals->interrupted().load())
    absl::StrAppend(&line, "; then the job ends, because a signal asks it to");
  failures->is_recovering = true;
  for (const std::string& one : report.everyone) {
    if (std::count(failures->lost.begin(), failures->lost.end(), one) == 0)
      failures->lost.push_back(one);
  }
  Tell(line, run);
  run->live->BeginRecovery(absl::StrJoin(failures->lost, " and "));
  return true;
}

// Says why a run has ended with this error, if the report of the processes that failed does not say
// so: the others did not go on, or something else failed as well. Without a report of its own the
// end follows from the last failure.
void SayWhyItEnded(const absl::Status& status, const Failures& failures,
                   launch::FailureReport* report, OngoingRun* run) {
  const bool is_recovering = failures.is_recovering;
  if (report->text.empty() && !is_recovering) return;  // the status is what people see
  const bool is_of_last = report->text.empty() || report->time_ns == failures.last.time_ns;
  if (report->text.empty()) *report = failures.last;
  if (is_recovering && is_of_last) {
    Tell(absl::StrCat("WARNING: the other processes could not go on: ", status.message()), run);
  } else if (!train::RanksAreGone(status)) {
    Tell(absl::StrCat("WARNING: the run has also met this error: ", status.message()), run);
  }
}

// Says how the job goes on once a step is done again. Returns the seconds since the failure.
double SayRecovered(const train::RunRecovery& recovery, Failures* failures, OngoingRun* run) {
  failures->is_recovering = false;
  failures->changed.reset();
  const double seconds = static_cast<double>(run->clock.NowNs() - failures->lost_ns) * 1e-9;
  Tell(absl::StrFormat(recovery.has_step
                           ? "a step is done again, %.2f s after the failure: %s"
                           : "all ranks are back %.2f s after the failure, and the run ends: %s",
                       seconds, recovery.text),
       run);
  run->live->ReportRecovery({failures->recoveries, absl::StrJoin(failures->lost, " and "),
                             failures->lost_after_step, recovery.step, seconds, failures->last.text,
                             failures->earlier_reports});
  return seconds;
}

// Says when the mesh, which becomes smaller, grows again.
void SayGrowthOutlook(const proto::Job& job, const Failures& failures, const Growths& growths,
                      OngoingRun* run) {
  Tell(compiler::UpdateRateOf(job.training()).delay > 0
           ? "the mesh does not grow again by itself, because of gradient_delay"
           : GrowthOutlook(growths.policy, failures.policy, run->clock.NowNs() / 1'000'000),
       run);
}

// Decides whether the mesh grows now.
bool GrowsNow(const Failures& failures, Growths* growths, OngoingRun* run) {
  constexpr int64_t kLookMs = 1000;
  const int64_t now_ms = run->clock.NowNs() / 1'000'000;
  if (!failures.policy.HasRoom(now_ms)) return false;
  const bool takes_turn = growths->policy.TakesTurn(now_ms);
  if (!takes_turn && (!growths->look_ms.has_value() || now_ms < *growths->look_ms)) return false;
  growths->look_ms.reset();
  if (run->fleet->CanGrow()) return true;
  if (takes_turn) run->fleet->SeekLostHosts();
  growths->look_ms = now_ms + kLookMs;
  return false;
}

// Begins to grow to the job as it was started.
void BeginGrowth(const proto::Job& job, Failures* failures, Growths* growths, OngoingRun* run) {
  failures->changed = job;
  growths->begun_ns = run->clock.NowNs();
  growths->policy.NoteBegun(growths->begun_ns / 1'000'000, run->fleet->WorkersAway());
  run->live->BeginGrowth();
}

// Says that a step is done on the mesh that has grown. Returns the seconds since it began to grow.
double SayGrown(const train::RunRecovery& recovery, Failures* failures, Growths* growths,
                OngoingRun* run) {
  failures->changed.reset();
  ++growths->count;
  const double seconds = static_cast<double>(run->clock.NowNs() - growths->begun_ns) * 1e-9;
  Tell(absl::StrFormat("the mesh has grown after step %d, and the steps have waited %.2f s: %s",
                       recovery.step, seconds, recovery.text),
       run);
  run->live->ReportGrowth({growths->count, recovery.step, seconds, recovery.text});
  return seconds;
}

// Decides whether the process of a slow rank is replaced, and says so if it is not.
bool IsReplaced(RankId rank, Failures* failures, OngoingRun* run) {
  const std::string name = launch::RankLabel({rank});
  const std::string refusal =
      failures->policy.NoteReplacement(name, run->clock.NowNs() / 1'000'000);
  if (!refusal.empty()) {
    Tell(absl::StrCat(name, " keeps its process: ", refusal), run);
    return false;
  }
  failures->is_replacing = true;
  return true;
}

// Names the command that takes up a run that has ended for good, if there is a checkpoint that is
// whole.
void SayHowToGoOn(const CliContext& context, const TrainArguments& arguments, OngoingRun* run) {
  const std::string last = CheckpointToGoOnFrom(run);
  if (last.empty()) return;
  Tell(HowToGoOn({context.program, context.arguments, arguments.job.path}, last), run);
}

// Decides after a failure of a process whether all processes start again, and says so. If they do,
// then the next start resumes the last checkpoint of the run, or begins as this start has begun.
bool StartsAgain(const launch::FailureReport& report, int64_t steps_done, Failures* failures,
                 train::TrainOptions* options, OngoingRun* run) {
  if (run->signals->interrupted().load()) {
    failures->is_ended_by_signal = true;
    const std::string last = CheckpointToGoOnFrom(run);
    Tell(absl::StrCat("the job does not start again, because a signal asks it to end; ",
                      last.empty() ? "there is no checkpoint of it"
                                   : absl::StrCat("its last checkpoint is ", last)),
         run);
    return false;
  }
  const bool is_noted = report.time_ns == failures->last.time_ns;
  const std::string refusal =
      is_noted ? failures->refusal
               : failures->policy.Note(launch::FailureOf(report, report.who, steps_done));
  if (!refusal.empty()) {
    Tell(absl::StrCat("the job does not start again: ", refusal), run);
    return false;
  }
  ChooseNextStart(options, run);
  ++failures->restarts;
  std::vector<std::string> earlier_reports;
  if (failures->is_recovering) {
    earlier_reports = failures->earlier_reports;
    if (!is_noted) earlier_reports.push_back(failures->last.text);
  }
  failures->is_recovering = false;
  failures->changed.reset();  // all processes start on the mesh that the job has now
  Tell(absl::StrCat("WARNING: restart ", failures->restarts, " after step ", steps_done,
                    ": the job goes on from ", StartText(*options)),
       run);
  if (run->live != nullptr)
    run->live->ReportRestart(
        {failures->restarts, steps_done, report.text, std::move(earlier_reports)});
  const int64_t failed_ns = report.time_ns;
  run->has_loaded = false;
  options->before_steps = [run, failed_ns] {
    run->has_loaded = true;
    run->signals->KeepGoing();
    Tell(absl::StrFormat("all processes are ready again, %.2f s after the failure",
                         static_cast<double>(run->clock.NowNs() - failed_ns) * 1e-9),
         run);
  };
  return true;
}

// Makes the job smaller, to replicas that fit so many devices. `written` is the job as it was
// before hosts were told, and `before` the job of whose replicas the text tells. Returns how, for
// people; an empty text: the job stays, because it would have fewer devices than --min-devices.
absl::StatusOr<std::string> MakeSmaller(const TrainArguments& arguments, const proto::Job& written,
                                        const proto::Job& before, int devices_left,
                                        fleet::FleetOptions* processes, JobToTrain* read,
                                        OngoingRun* run) {
  std::optional<job::FewerReplicas> smaller =
      job::WithFewerReplicas(written, devices_left, arguments.min_devices);
  if (!smaller.has_value()) {
    Tell(absl::StrCat("WARNING: the job does not become smaller: of its devices, ", devices_left,
                      devices_left == 1 ? " is" : " are", " left, and --min-devices is ",
                      arguments.min_devices),
         run);
    return "";
  }
  processes->processes = fleet::NumProcessesFor(smaller->devices, run->fleet->num_workers(),
                                                run->fleet->num_ranks_at_start());
  processes->lost = fleet::FleetOptions::Lost::kLeftOut;
  std::string text = job::FewerReplicasText(before, smaller->job);
  read->job = std::move(smaller->job);
  fleet::TellHosts(*processes, &read->job);
  read->costs.TellHosts(&read->job);
  WEIR_RETURN_IF_ERROR(LayOutAndSay(arguments, read->rule_costs, &read->job, run->console));
  return text;
}

// Makes the job smaller for its next start, if a host is lost whose place no other takes and
// --min-devices allows that.
absl::Status MakeSmallerForRestart(const TrainArguments& arguments, const proto::Job& written,
                                   fleet::FleetOptions* processes, JobToTrain* read,
                                   OngoingRun* run) {
  if (arguments.min_devices == 0 || !run->fleet->LacksHosts()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(
      const std::string text,
      MakeSmaller(arguments, written, written, run->fleet->num_ranks_left(), processes, read, run));
  if (!text.empty()) {
    Tell(absl::StrCat("WARNING: no host takes the place of a lost one, so the job goes on with ",
                      text),
         run);
  }
  return absl::OkStatus();
}

// Returns "; 2 restarts; 1 recovery; 1 growth", as far as there were any.
std::string FailuresText(const Failures& failures, const Growths& growths) {
  std::string text;
  if (failures.restarts > 0)
    absl::StrAppend(&text, "; ", failures.restarts,
                    failures.restarts == 1 ? " restart" : " restarts");
  if (failures.recoveries > 0)
    absl::StrAppend(&text, "; ", failures.recoveries,
                    failures.recoveries == 1 ? " recovery" : " recoveries");
  if (growths.count > 0)
    absl::StrAppend(&text, "; ", growths.count, growths.count == 1 ? " growth" : " growths");
  return text;
}

// Trains in this process, or on the hosts found; then run->fleet becomes the processes there.
absl::Status TrainOn(const hosts::FoundHosts& found, TrainArguments arguments, OngoingRun* run,
                     CliContext* context) {
  WEIR_RETURN_IF_ERROR(arguments.CheckRestarts(found));
  WEIR_ASSIGN_OR_RETURN(JobToTrain read, arguments.Read());
  WEIR_RETURN_IF_ERROR(arguments.CheckReplicas(read.job));
  proto::Job& job = read.job;
  const proto::Job written = job;
  console::Console* const console = run->console;
  // The checks that read no checkpoint come first.
  WEIR_RETURN_IF_ERROR(train::CheckPlaceOfCheckpoints(arguments.options.checkpoint));
  WEIR_RETURN_IF_ERROR(ChooseResume(&arguments, console));
  launch::SignalWatch* const signals = run->signals;
  BeginRecord(arguments, arguments.job.Title(job), run);
  train::TrainOptions& options = arguments.options;
  const bool restarts = arguments.on_failure != "stop";
  run->folder.emplace(options.checkpoint, restarts ? train::RunFolder::Loads::kAfterFailures
                                                   : train::RunFolder::Loads::kOnce);
  options.folder = &*run->folder;
  // The path stays that of a folder if somebody renames the folder.
  if (run->folder->is_folder()) {
    options.checkpoint = run->folder->path() + "/";
    // The run makes the folder before its first step.
    std::error_code error;
    if (!std::filesystem::exists(run->folder->path(), error))
      signals->RemoveAtThatEnd(run->folder->path());
  }
  run->first_init = options.init;
  options.on_nonfinite = arguments.on_nonfinite == "stop"   ? train::OnNonfinite::kStop
                         : arguments.on_nonfinite == "skip" ? train::OnNonfinite::kSkip
                                                            : train::OnNonfinite::kContinue;
  options.before_steps = [signals] { signals->KeepGoing(); };
  options.console = console;
  options.live = run->live.get();
  options.interrupted = &signals->interrupted();
  options.checkpoints_asked = &signals->checkpoints_asked();
  if (!read.note.empty()) console->Say(read.note);
  if (!read.products.empty()) console->Say(read.products);
  options.costs = &read.costs.model();
  options.driver_bytes = read.rule_costs.DriverBytes(read.job);
  options.find_peak = [&read](const train::DevicesInUse& devices) {
    return read.costs.PeakFor(read.job, devices);
  };
  if (read.costs.source() != sim::JobCosts::Source::kDefaults)
    console->Say(absl::StrCat("planned with ", read.costs.Text()));
  const bool has_processes = arguments.fleet.processes > 0 || !found.agents.empty();
  fleet::FleetOptions processes;  // of every start, but for the epoch and the files of the start
  if (has_processes) {
    options.processes = arguments.fleet.processes;
    WEIR_ASSIGN_OR_RETURN(processes, arguments.fleet.Options(job, found, console));
    processes.trace = options.trace;
    processes.live = run->live.get();
    if (const std::string line = fleet::TellHosts(processes, &job); !line.empty())
      console->Say(line);
    options.hosts = static_cast<int>(processes.hosts.size());
  }
  read.costs.TellHosts(&job);
  WEIR_RETURN_IF_ERROR(LayOutAndSay(arguments, read.rule_costs, &job, console));

  processes.recovers = arguments.on_failure == "elastic";
  processes.loss = arguments.Loss();
  if (restarts && has_processes) {
    std::vector<std::string> of_start;
    if (!options.init.empty()) of_start = InputsOfWeights(options.init, options.job_file);
    processes.inputs = &run->inputs.emplace(processes.input_files, std::move(of_start));
  }
  if (restarts && options.checkpoint.empty()) {
    console->Say(absl::StrCat("WARNING: --on-failure ", arguments.on_failure,
                              " without --checkpoint starts the job from its beginning",
                              processes.recovers ? " if states are lost" : ""));
  }
  if (job.runtime().buddy_every() > 0 && !processes.recovers)
    console->Say("no buddy copies are made: processes do not live on when another is lost");
  Failures failures{
      launch::RestartPolicy({.restarts_max = arguments.max_restarts,
                             .window_ms = std::llround(arguments.restart_window_seconds * 1e3)})};
  Growths growths{launch::GrowthPolicy(arguments.Growth())};
  // The job as this start of the processes has begun it, as it was before its mesh changed, and as
  // it was before the mesh last began to grow.
  proto::Job started, before, smaller;
  fleet::FleetOptions started_on, smaller_on;
  train::RunSoFar so_far;
  options.so_far = &so_far;
  const ShrinkJob shrink =
      [&](const fleet::Fleet::Replacement& lost) -> absl::StatusOr<std::string> {
    if (arguments.min_devices == 0) return "";
    processes.lost_hosts = lost.lost_hosts;
    if (!failures.changed.has_value()) before = read.job;
    WEIR_ASSIGN_OR_RETURN(
        const std::string text,
        MakeSmaller(arguments, written, before, lost.ranks_left, &processes, &read, run));
    if (text.empty()) return text;
    failures.changed = read.job;
    growths.look_ms.reset();
    growths.policy.NoteSmaller(run->clock.NowNs() / 1'000'000, lost.workers);
    if (options.processes > 0) options.processes = processes.processes;
    return text;
  };
  if (processes.recovers) {
    options.may_recover = [&](int64_t steps_done) {
      const bool goes_on = GoesOn(steps_done, shrink, &failures, run, context);
      if (goes_on && failures.changed.has_value()) SayGrowthOutlook(job, failures, growths, run);
      return goes_on;
    };
    options.smaller_job = [&failures]() -> const proto::Job* {
      return failures.changed.has_value() ? &*failures.changed : nullptr;
    };
    options.recovered = [&](const train::RunRecovery& recovery) {
      return recovery.is_growth ? SayGrown(recovery, &failures, &growths, run)
                                : SayRecovered(recovery, &failures, run);
    };
    options.may_grow = [&] { return GrowsNow(failures, &growths, run); };
    options.larger_job = [&] {
      smaller = std::exchange(read.job, started);
      smaller_on = std::exchange(processes, started_on);
      if (options.processes > 0) options.processes = processes.processes;
      BeginGrowth(started, &failures, &growths, run);
      return &*failures.changed;
    };
    options.growth_refused = [&] {
      read.job = smaller;
      processes = smaller_on;
      if (options.processes > 0) options.processes = processes.processes;
      failures.changed.reset();
      growths.policy.NoteRefused(run->clock.NowNs() / 1'000'000);
      SayGrowthOutlook(job, failures, growths, run);
    };
    if (arguments.on_slow == "replace") {
      options.may_replace = [&](RankId rank) { return IsReplaced(rank, &failures, run); };
    }
  }
  absl::StatusOr<train::TrainResult> trained;
  for (uint32_t epoch = 1;; epoch = run->fleet->epoch() + 1) {
    if (has_processes) {
      fleet::FleetOptions of_start = processes;
      of_start.epoch = epoch;
      AddFilesOfStart(options, &of_start.input_files);
      started = job;
      started_on = processes;
      growths.policy.NoteStart();
      growths.look_ms.reset();
      options.runner = [run, of_start](const proto::Job& of_run,
                                       const train::RunnerOptions& runner_options) {
        return fleet::FleetRunner::Open(of_start, of_run, runner_options, &run->fleet);
      };
    }
    if (failures.restarts > 0) {
      const absl::Status same =
          run->inputs->Check(options.init.empty() ? fleet::InputWatch::Use::kData
                                                  : fleet::InputWatch::Use::kDataAndStart);
      if (!same.ok()) {
        trained = same;
        break;
      }
    }
    launch::FailureReport report;
    trained = TrainOnce(job, options, run, &report, context);
    // Every step is done and every file is written, whatever ends after that.
    if (trained.ok()) {
      if (!report.text.empty()) Tell(EndedAfterTheWork(trained->incomplete), run);
      break;
    }
    SayWhyItEnded(trained.status(), failures, &report, run);
    if (report.text.empty()) {
      const bool may_start = failures.restarts > 0 && !signals->interrupted().load();
      if (may_start && ChooseAnotherStart(trained.status(), &options, run)) continue;
      break;
    }
    processes.lost_hosts = run->fleet->LostHosts();
    if (restarts && StartsAgain(report, so_far.Whole().steps_done, &failures, &options, run)) {
      const absl::Status fits = MakeSmallerForRestart(arguments, written, &processes, &read, run);
      if (!fits.ok()) {
        trained = fits;
        break;
      }
      if (processes.lost == fleet::FleetOptions::Lost::kLeftOut) Tell(kStaysSmall, run);
      if (options.processes > 0) options.processes = processes.processes;
      continue;
    }
    SayHowToGoOn(*context, arguments, run);
    run->failure = report.text;
    context->exit_code = failures.is_ended_by_signal ? launch::kExitInterrupted : report.exit_code;
    return absl::OkStatus();
  }
  // A run that has not begun has nothing to go on from. A signal may come while the processes start
  // again, and then the run has begun from the checkpoint with which they start.
  const bool has_begun = run->folder->Last().has_value() || failures.restarts > 0;
  // The error says why the run ends.
  if (!trained.ok() && has_begun) SayHowToGoOn(*context, arguments, run);
  WEIR_ASSIGN_OR_RETURN(train::TrainResult result, std::move(trained));
  *context->out << Plural(result.steps_done, "step");
  if (const std::optional<double> loss = so_far.last_loss(); loss.has_value()) {
    *context->out << absl::StrFormat(", loss %.6f", *loss);
  } else if (result.steps_here == 0) {
    *context->out << ", none of them in this run";
  }
  if (result.evaluation.has_value())
    *context->out << ", " << train::EvaluationText(job, *result.evaluation);
  if (const std::string speed = train::SpeedText(job, result); !speed.empty())
    *context->out << "; " << speed;
  *context->out << train::CheckpointsText(result);
  *context->out << FailuresText(failures, growths);
  *context->out << "\n";
  if (!result.interrupted) return absl::OkStatus();
  if (has_begun) SayHowToGoOn(*context, arguments, run);
  context->exit_code = launch::kExitInterrupted;
  return absl::OkStatus();
}

// Says what a run of this job would start, once the job is known to be sound.
absl::Status SayWhatWouldRun(const hosts::FoundHosts& found, TrainArguments arguments,
                             console::Console* console, CliContext* context) {
  WEIR_RETURN_IF_ERROR(arguments.CheckRestarts(found));
  WEIR_ASSIGN_OR_RETURN(JobToTrain read, arguments.Read());
  WEIR_RETURN_IF_ERROR(arguments.CheckReplicas(read.job));
  WEIR_RETURN_IF_ERROR(train::CheckPlaceOfCheckpoints(arguments.options.checkpoint));
  WEIR_RETURN_IF_ERROR(ChooseResume(&arguments, console));
  arguments.options.costs = &read.costs.model();
  arguments.options.driver_bytes = read.rule_costs.DriverBytes(read.job);
  arguments.options.processes = arguments.fleet.processes;
  const bool has_processes = arguments.fleet.processes > 0 || !found.agents.empty();
  WEIR_ASSIGN_OR_RETURN(const fleet::FleetOptions options,
                        arguments.fleet.Options(read.job, found, console));
  arguments.options.hosts = static_cast<int>(options.hosts.size());
  if (has_processes) {
    if (const std::string line = fleet::TellHosts(options, &read.job); !line.empty())
      console->Say(line);
  }
  read.costs.TellHosts(&read.job);
  WEIR_RETURN_IF_ERROR(LayOutAndSay(arguments, read.rule_costs, &read.job, console));
  WEIR_ASSIGN_OR_RETURN(const train::PreparedTraining prepared,
                        train::PrepareTraining(read.job, arguments.options, {}));
  const compiler::LogicalPlan& plan = *prepared.plans.training;
  // The tasks of a scheduler are not known before they meet.
  const bool is_in_tasks = found.listed.empty() && found.backend != hosts::Backend::kLocal;
  DryRun run;
  run.work = absl::StrCat("train ", arguments.job.Title(read.job), " on ",
                          plan.places.num_ranks() == 1 ? "one device" : plan.mesh_text,
                          " up to step ", read.job.training().steps(),
                          is_in_tasks     ? ", spread evenly over the tasks, in one process in each"
                          : has_processes ? ""
                                          : ", in this process");
  run.log_base = arguments.fleet.logs;
  if (has_processes && !is_in_tasks) {
    WEIR_ASSIGN_OR_RETURN(const fleet::RankSpread spread,
                          fleet::SpreadRanks(options, static_cast<int>(plan.places.num_ranks())));
    const std::string program = launch::ResolvedProgram(options.program);
    for (const WorkerId worker : spread.ranks_of.ids()) {
      const std::string label = launch::RankLabel(spread.ranks_of[worker]);
      run.processes.push_back({label,
                               spread.host_of.empty() ? HostId(0) : spread.host_of[worker],
                               {program, "worker", label},
                               {}});
    }
  }
  *context->out << DryRunText(run, found);
  return absl::OkStatus();
}

absl::Status RunTrain(TrainArguments arguments, bool dry_run, CliContext* context) {
  console::Console console(::isatty(STDERR_FILENO) ? console::Console::Style::kTerminal
                                                   : console::Console::Style::kPlain,
                           context->raw_err,
                           [] { return console::TerminalColumns(STDERR_FILENO); });
  console::ConsoleLines agent_lines(&console);
  context->results_are_files = true;
  arguments.fleet.hosts.starts_nothing = dry_run;
  // The agents come before the job is read: tasks of a scheduler must not wait for a starter that
  // refuses its job.
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found,
                        hosts::FindHosts(arguments.fleet.hosts, &agent_lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (!found.line.empty()) console.Say(found.line);
  if (dry_run) return SayWhatWouldRun(found, arguments, &console, context);
  launch::SignalWatch signals(launch::SecondSignal::kEndsTheProcess);
  signals.EndAtOnce("weir: interrupted before the first step: no file is written or changed\n",
                    launch::kExitInterrupted);
  signals.NoteUserSignals();
  OngoingRun run;
  run.console = &console;
  run.signals = &signals;
  const absl::Status status = TrainOn(found, arguments, &run, context);
  const int exit_code = ExitCodeOf(*context, status);
  if (run.live != nullptr) run.live->End(exit_code, status.ok() ? run.failure : status.message());
  if (run.fleet != nullptr) run.fleet->TellEnd(exit_code);
  run.fleet.reset();
  found.TellEnd(exit_code);
  return status;
}

}  // namespace

void AddTrainVerb(CLI::App* app, CliContext* context) {
  auto train = std::make_shared<TrainArguments>();
  auto dry_run = std::make_shared<bool>(false);
  CLI::App* verb = AddVerb(
      app, context, "train", "Train a job on this machine or on several hosts",
      "  weir train gpt.textproto --save gpt.safetensors\n"
      "  weir train gpt.textproto --mesh dp=2,tp=2 --steps 100 --metrics m.jsonl --trace "
      "t.pftrace\n"
      "  weir train gpt.textproto --checkpoint c.safetensors --checkpoint-every 100\n"
      "  weir train gpt.textproto --resume c.safetensors --mesh tp=4    any mesh may resume it\n"
      "  weir train gpt.textproto --checkpoint run/ --checkpoint-every 60s --keep 3   a folder of "
      "checkpoints, written beside the steps\n"
      "  weir train gpt.textproto --mesh dp=2,tp=2 --processes 2      two devices in each process\n"
      "  weir train gpt.textproto --mesh dp=2,tp=2 --hosts a,b        on two hosts, over ssh\n"
      "  srun -N2 weir train gpt.textproto --mesh dp=2,tp=2           on two nodes of Slurm\n"
      "Ctrl-C, SIGTERM or a closed terminal (SIGHUP) ends after the step and still writes --save, "
      "--checkpoint and\n"
      "--trace; before the first step it ends at once and writes nothing. A second one ends at "
      "once, too. SIGUSR1 writes --checkpoint after the next update, and the run goes on.\n"
      "--on-failure restart starts all processes again when one ends, hangs or is lost, and goes "
      "on "
      "from the last\ncheckpoint of the run. --on-failure elastic starts that process anew; the "
      "others live on. --on-slow replace does the\nsame with a process that stays slower than its "
      "peers.\n"
      "A disk that is full costs no step: metrics and checkpoints on the way are warned of and "
      "tried again.",
      [train, dry_run, context] { return RunTrain(*train, *dry_run, context); });
  train->AddTo(verb, context);
  AddDryRunFlag(verb, dry_run.get());
}

}  // namespace weir::cli
