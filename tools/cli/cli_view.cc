// weir view: shows a run, or a plan before any run, in a browser, or writes the page that shows it.
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "compiler/job/mesh_use.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/whole_file.h"
#include "tools/cli/planned_job.h"
#include "tools/job/data_paths.h"
#include "tools/launch/signal_watch.h"
#include "tools/live/live_reader.h"
#include "tools/plan/plan_json.h"
#include "tools/sandbox/run_confined.h"
#include "tools/sim/predict_step.h"
#include "tools/sim/simulate.h"
#include "tools/trace/trace_reader.h"
#include "tools/train/memory_budget.h"
#include "tools/train/output_paths.h"
#include "tools/view/growing_run.h"
#include "tools/view/plan_file.h"
#include "tools/view/run_bundle.h"
#include "tools/view/view_page.h"
#include "tools/view/view_server.h"

extern char** environ;

namespace weir::cli {
namespace {

constexpr int kRunsMax = 2;
constexpr int kLookMs = 500;
constexpr int kLooksAfterEnd = 6;
constexpr int64_t kQuickMs = 300;
// A page of many more acts is slow to make, and to use.
constexpr int64_t kSimulatedActsMax = 400'000;

struct ViewArguments {
  std::vector<std::string> paths;  // one trace, or two to compare, or a job
  PlannedJobArguments plan;        // of a job; without its path
  std::vector<CLI::Option*> plan_options;
  const CLI::Option* attach = nullptr;
  const CLI::Option* exported = nullptr;
  std::string run;   // of --attach; empty: the only one
  std::string page;  // --export
  int port = 0;
  bool no_open = false;
  bool ends_with_run = false;
};

// Does work that reads input of any author, in the sandbox.
absl::Status Confined(CliSandbox sandbox, const std::function<absl::Status()>& work) {
  return sandbox == CliSandbox::kOn ? sandbox::RunConfined(work) : work();
}

// The traces of a page, mapped and not read yet.
class Traces {
 public:
  static absl::StatusOr<Traces> Open(const std::vector<std::string>& paths) {
    Traces traces;
    traces.paths_ = paths;
    for (const std::string& path : paths) {
      WEIR_ASSIGN_OR_RETURN(traces.files_.emplace_back(),
                            store::MappedFile::Open(path, "trace of `weir train --trace`"));
    }
    return traces;
  }

  // Returns the bundle of one run, or of two.
  absl::StatusOr<std::string> Bundle() const {
    WEIR_ASSIGN_OR_RETURN(const std::vector<trace::TraceReader> readers, Read());
    return Named(readers.size() == 1
                     ? view::MakeRunBundle(readers[0], Title(0))
                     : view::MakeRunBundle(readers[0], Title(0), readers[1], Title(1)));
  }
  // Gives the same bundle to a page in two parts.
  absl::Status Give(view::GrowingRun* to) const {
    WEIR_ASSIGN_OR_RETURN(const std::vector<trace::TraceReader> readers, Read());
    const bool two = readers.size() > 1;
    const view::BundleTaker taker = {[to](std::string bundle) { to->GiveRun(std::move(bundle)); },
                                     [to](const std::string& doing) { to->Tell(doing); }};
    WEIR_ASSIGN_OR_RETURN(
        std::string analysis,
        Named(view::MakeRunBundleInParts(readers[0], Title(0), two ? &readers[1] : nullptr,
                                         two ? Title(1) : "", taker)));
    to->GiveAnalysis(std::move(analysis));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<trace::TraceReader>> Read() const {
    std::vector<trace::TraceReader> readers(files_.size());
    for (size_t i = 0; i < files_.size(); ++i)
      WEIR_RETURN_IF_ERROR(readers[i].Read(files_[i]->text(), paths_[i]));
    return readers;
  }
  std::string Title(size_t i) const { return std::filesystem::path(paths_[i]).filename().string(); }
  absl::StatusOr<std::string> Named(absl::StatusOr<std::string> made) const {
    if (made.ok()) return made;
    return OfTrace(absl::StrJoin(paths_, " or "), made.status());
  }

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<store::MappedFile>> files_;
};

absl::StatusOr<std::string> ReadRun(const ViewArguments& arguments, CliSandbox sandbox) {
  WEIR_ASSIGN_OR_RETURN(const Traces traces, Traces::Open(arguments.paths));
  std::string bundle;
  WEIR_RETURN_IF_ERROR(Confined(sandbox, [&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(bundle, traces.Bundle());
    return absl::OkStatus();
  }));
  return bundle;
}

// Returns whether a file is text, as jobs are. Traces are binary: each packet has small numbers.
bool IsText(absl::string_view file) {
  constexpr size_t kLookedAt = 4096;
  const absl::string_view begin = file.substr(0, kLookedAt);
  return std::none_of(begin.begin(), begin.end(),
                      [](char c) { return absl::ascii_iscntrl(c) && !absl::ascii_isspace(c); });
}

// The thing that a page shows.
enum class Shown : uint8_t { kTraces, kJob, kPlanFile };

// Returns what a file is.
absl::StatusOr<Shown> KindOf(const std::string& path) {
  if (path == "-") return Shown::kJob;
  WEIR_ASSIGN_OR_RETURN(const auto file,
                        store::MappedFile::Open(path, "trace of `weir train --trace`, or job"));
  if (file->text().empty()) {
    return Damaged({"W0531", path, "a trace written by weir, or a job", "an empty file",
                    "weir train --trace FILE, or weir zoo for a job"});
  }
  if (!IsText(file->text())) return Shown::kTraces;
  const bool is_json = absl::StripLeadingAsciiWhitespace(file->text()).substr(0, 1) == "{";
  return is_json ? Shown::kPlanFile : Shown::kJob;
}

// Reads the output of `weir plan --json`, which has the plan and no acts.
absl::StatusOr<std::string> ReadPlanBundle(const std::string& path, CliSandbox sandbox) {
  WEIR_ASSIGN_OR_RETURN(const auto file, store::MappedFile::Open(path, "output of `weir plan`"));
  std::string bundle;
  WEIR_RETURN_IF_ERROR(Confined(sandbox, [&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(const nlohmann::ordered_json plan,
                          view::ReadPlanFile(file->text(), path));
    bundle = view::MakePlanBundle(
        plan,
        "the file has a plan and no acts; `weir view JOB`, with the flags of `weir plan`, "
        "shows the simulated step, too",
        std::filesystem::path(path).filename().string());
    return absl::OkStatus();
  }));
  return bundle;
}

// Returns why the page cannot show the acts of the simulated steps; empty: it can.
std::string WhyNoRun(const sim::StepPrediction& prediction) {
  if (!prediction.report.has_value()) return prediction.why_not;
  const sim::SimulateReport& report = *prediction.report;
  if (report.acts <= kSimulatedActsMax) return "";
  return absl::StrCat("the simulation has ", report.acts, " acts, more than the ",
                      kSimulatedActsMax, " of a page; `weir sim JOB --trace FILE` records them");
}

// Plans the job as `weir plan` does, and simulates the plan for the views of a run.
absl::StatusOr<std::string> PlanPage(const std::string& place, JobWithCosts read,
                                     const std::string& title) {
  WEIR_ASSIGN_OR_RETURN(const PlannedJob planned, PlanJob(place, {}, &read));
  const compiler::LogicalPlan& plan = *planned.plan;
  WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(plan));
  const sim::StepPrediction prediction = sim::PredictStep(plan, read.costs);
  WEIR_ASSIGN_OR_RETURN(const train::NeedAndPlans memory, NeedWithDriver(plan, read.costs));
  WEIR_ASSIGN_OR_RETURN(nlohmann::ordered_json json,
                        plan::PlanJson(plan, read.costs, prediction, memory, planned.placed,
                                       plan::RanksInJson::kLookedAt));
  AddFoundRules(planned, &json);
  if (const std::string why = WhyNoRun(prediction); !why.empty())
    return view::MakePlanBundle(json, why, title);
  std::ostringstream trace;
  sim::SimulateOptions options;
  options.trace_to = &trace;
  WEIR_RETURN_IF_ERROR(
      sim::SimulatePlan(plan, read.costs.ClusterFor(plan.places.num_ranks()), options).status());
  trace::TraceReader simulated;
  WEIR_RETURN_IF_ERROR(simulated.Read(trace.str(), title));
  return view::MakePlanBundle(json, simulated, title);
}

absl::StatusOr<std::string> ReadPlan(const ViewArguments& arguments, CliSandbox sandbox) {
  PlannedJobArguments of = arguments.plan;
  of.job.path = arguments.paths[0];
  WEIR_ASSIGN_OR_RETURN(const JobWithCosts read, of.ReadWithCosts());
  WEIR_RETURN_IF_ERROR(
      train::CheckOutputIsNoInput("--export", arguments.page, job::DataFilesOf(read.job)));
  std::string bundle;
  WEIR_RETURN_IF_ERROR(Confined(sandbox, [&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(bundle, PlanPage(of.place, read, of.job.Title(read.job)));
    return absl::OkStatus();
  }));
  return bundle;
}

// Returns what the arguments name. Throws if they have flags of a job and name none.
absl::StatusOr<Shown> WhatToShow(const ViewArguments& arguments) {
  Shown shown = Shown::kTraces;
  if (arguments.paths.size() == 1) {
    WEIR_ASSIGN_OR_RETURN(shown, KindOf(arguments.paths[0]));
  }
  for (const CLI::Option* option : arguments.plan_options) {
    if (shown == Shown::kJob || option->count() == 0) continue;
    throw CLI::ValidationError(option->get_name(),
                               absl::StrCat("is for a job, and FILE is a ",
                                            shown == Shown::kTraces ? "trace" : "plan as JSON"));
  }
  return shown;
}

// Returns the whole bundle of what the arguments name.
absl::StatusOr<std::string> ReadBundle(const ViewArguments& arguments, Shown shown,
                                       CliSandbox sandbox) {
  switch (shown) {
    case Shown::kTraces: break;
    case Shown::kJob: return ReadPlan(arguments, sandbox);
    case Shown::kPlanFile: return ReadPlanBundle(arguments.paths[0], sandbox);
  }
  return ReadRun(arguments, sandbox);
}

absl::Status Export(const ViewArguments& arguments, const std::string& bundle, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(const std::string page, view::WholePage(bundle));
  WEIR_RETURN_IF_ERROR(store::WriteWholeText(arguments.page, page));
  out << "page written to " << arguments.page << " (" << BytesText(static_cast<double>(page.size()))
      << "); any browser opens it, without a network\n";
  return absl::OkStatus();
}

// Opens the address in the user's browser, where there is a desktop.
void OpenBrowser(const std::string& address) {
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return;
  std::string program = "xdg-open", argument = address;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t process = -1;
  if (::posix_spawnp(&process, words[0], nullptr, nullptr, words, environ) == 0)
    ::waitpid(process, nullptr, 0);
}

// Ends the process at once, because a connection that sends slowly would hold the server's end up.
[[noreturn]] void EndNow(std::ostream& out) {
  out.flush();
  std::_Exit(0);
}

// Serves until Ctrl-C, which ends the process, or until `is_over` says so.
void Serve(const ViewArguments& arguments, const view::ViewServer& server, const std::string& what,
           const std::function<bool()>& is_over, std::ostream& out) {
  launch::SignalWatch watch(launch::SecondSignal::kEndsTheProcess);
  out << server.address() << "\n"
      << "shows " << what << " to browsers of this machine; Ctrl-C ends it" << std::endl;
  if (!arguments.no_open) OpenBrowser(server.address());
  pollfd signal = {watch.descriptor(), POLLIN, 0};
  while (!watch.interrupted()) {
    if (is_over()) return;
    (void)::poll(&signal, 1, kLookMs);
  }
  EndNow(out);
}

absl::Status Attach(const ViewArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(auto reader, live::FindRun(arguments.run));
  WEIR_ASSIGN_OR_RETURN(const live::LiveState state, reader->State());
  const std::string what = absl::StrCat("the run of ", state.title, ", process ", reader->pid());
  // The page asks once a second, and may learn the end before the server goes.
  const std::shared_ptr<const live::LiveReader> run = std::move(reader);
  int looks_left = kLooksAfterEnd;
  const auto is_over = [&] { return !run->IsAlive() && looks_left-- == 0; };
  WEIR_ASSIGN_OR_RETURN(const auto server, view::ViewServer::StartLive(run, arguments.port));
  Serve(
      arguments, *server, what,
      arguments.ends_with_run ? std::function<bool()>(is_over) : [] { return false; }, out);
  EndNow(out);
}

// Serves traces. A page shows a large one before it is analysed.
absl::Status ServeTraces(const ViewArguments& arguments, const CliContext& context) {
  const auto opened = Traces::Open(arguments.paths);
  WEIR_RETURN_IF_ERROR(opened.status());
  const Traces& traces = *opened;
  const auto run = std::make_shared<view::GrowingRun>();
  WEIR_ASSIGN_OR_RETURN(const auto server, view::ViewServer::Start(run, arguments.port));
  // The end of the process ends the thread, unless the traces cannot be shown.
  std::thread reader([&] {
    absl::Status status;
    try {
      status = Confined(context.sandbox, [&] { return traces.Give(run.get()); });
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    if (!status.ok()) run->Fail(status);
  });
  // Of a small file that is no trace, the error alone is told.
  if (!run->WaitUntilOver(kQuickMs) || run->status().ok()) {
    int looks_left = kLooksAfterEnd;  // for the page, to tell of a failure too
    const auto has_failed = [&] { return !run->status().ok() && looks_left-- == 0; };
    Serve(arguments, *server, absl::StrJoin(arguments.paths, " and "), has_failed, *context.out);
  }
  reader.join();
  return run->status();
}

absl::Status View(const ViewArguments& arguments, const CliContext& context) {
  if (arguments.attach->count() > 0) return Attach(arguments, *context.out);
  if (arguments.paths.empty())
    throw CLI::RequiredError("FILE, or --attach for a run that goes on,");
  if (arguments.paths.size() > kRunsMax)
    throw CLI::ArgumentMismatch::AtMost("FILE", kRunsMax, arguments.paths.size());
  const bool exports = arguments.exported->count() > 0;
  if (exports && arguments.page.empty())
    throw CLI::ValidationError("--export",
                               "needs the name of the page to write; the name is empty");
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("--export", arguments.page, arguments.paths));
  WEIR_ASSIGN_OR_RETURN(const Shown shown, WhatToShow(arguments));
  if (!exports && shown == Shown::kTraces) return ServeTraces(arguments, context);
  WEIR_ASSIGN_OR_RETURN(std::string bundle, ReadBundle(arguments, shown, context.sandbox));
  if (exports) return Export(arguments, bundle, *context.out);
  WEIR_ASSIGN_OR_RETURN(const auto server,
                        view::ViewServer::Start(std::move(bundle), arguments.port));
  Serve(
      arguments, *server, arguments.paths[0], [] { return false; }, *context.out);
  return absl::OkStatus();
}

}  // namespace

void AddViewVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ViewArguments>();
  CLI::App* verb = AddVerb(
      app, context, "view", "Show a run in a browser, act by act, or a job's plan before any run",
      "  weir view run.pftrace\n  weir view run.pftrace --export run.html\n"
      "  weir view gpt.textproto --mesh dp=2,tp=2  what weir plan says, and its predicted step\n"
      "  weir view plan.json         the same without its step, from weir plan JOB --json\n"
      "  weir view before.pftrace after.pftrace    two runs side by side\n"
      "  weir view --attach          the run of yours that goes on on this machine\n"
      "  weir view --attach 4711     one of several, by its process id or its name\n"
      "The page is served on this machine alone, under an address with a secret. From another "
      "machine:\n  ssh -L 8080:127.0.0.1:8080 HOST weir view run.pftrace --port 8080",
      [arguments, context] { return View(*arguments, *context); });
  CLI::Option* files =
      verb->add_option(
              "FILE", arguments->paths,
              "Trace written by weir train --trace or weir sim --trace; with a second "
              "one, the page compares them. Or a job file, whose plan the page shows, or the "
              "output of weir plan --json")
          ->expected(-1);
  arguments->plan_options =
      arguments->plan.AddFlagsTo(verb, context, JobArguments::Data::kNotOpened);
  arguments->plan_options.push_back(arguments->plan.job.AddRulesFlag(verb));
  CLI::Option* attach = verb->add_option("--attach", arguments->run,
                                         "Show a run of this user on this machine as it goes on")
                            ->type_name("[RUN]")
                            ->expected(0, 1)
                            ->excludes(files);
  arguments->attach = attach;
  for (CLI::Option* option : arguments->plan_options) option->excludes(attach);
  arguments->exported =
      verb->add_option("--export", arguments->page,
                       "Write one page that any browser opens from disk, and serve nothing")
          ->excludes(attach);
  verb->add_option("--port", arguments->port, "Port of the loopback interface [any free one]")
      ->check(CLI::Range(1, 65535));
  verb->add_flag("--no-open", arguments->no_open, "Print the address, and open no browser");
  verb->add_flag("--ends-with-run", arguments->ends_with_run,
                 "End a few seconds after the run of --attach, as weir train --view wants it")
      ->needs(attach);
}

}  // namespace weir::cli
