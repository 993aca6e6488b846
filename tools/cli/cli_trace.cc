// weir trace: reports the content of a trace file, compares two, or writes one for other tools.
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "runtime/trace/trace_names.h"
#include "tools/cli/cli_verbs.h"
#include "tools/trace/causes.h"
#include "tools/trace/chrome_events.h"
#include "tools/trace/diff_json.h"
#include "tools/trace/last_state.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/report_text.h"
#include "tools/trace/run_diff.h"
#include "tools/trace/trace_json.h"
#include "tools/trace/trace_reader.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/transfers.h"
#include "tools/trace/why_slow.h"

namespace weir::cli {
namespace {

struct ReportArguments {
  std::string path;
  int64_t rows = 5;
  std::optional<int64_t> step;  // its number
  std::vector<std::string> what_ifs;
  bool json = false;
};

struct DiffArguments {
  std::string a, b;
  int64_t rows = 8;
  bool json = false;
};

absl::Status Diff(const DiffArguments& arguments, const CliContext& context) {
  std::vector<std::unique_ptr<store::MappedFile>> files;
  for (const std::string& path : {arguments.a, arguments.b}) {
    WEIR_ASSIGN_OR_RETURN(auto file,
                          store::MappedFile::Open(path, "trace of `weir train --trace`"));
    files.push_back(std::move(file));
  }
  context.Confine({}, sandbox::CpuTime::kLimited);
  const auto read = [&files](size_t i,
                             const std::string& path) -> absl::StatusOr<trace::RecordedRun> {
    trace::TraceReader reader;
    WEIR_RETURN_IF_ERROR(reader.Read(files[i]->text(), path));
    files[i].reset();  // the reader has its own copy of the data that it keeps
    absl::StatusOr<trace::RecordedRun> run = trace::ReadRecordedRun(reader);
    if (!run.ok()) return OfTrace(path, run.status());
    return run;
  };
  WEIR_ASSIGN_OR_RETURN(const trace::RecordedRun a, read(0, arguments.a));
  WEIR_ASSIGN_OR_RETURN(const trace::RecordedRun b, read(1, arguments.b));
  const trace::RunDiff diff = trace::CompareRuns(a, b);
  if (arguments.json) {
    *context.out << trace::ToJson(diff, arguments.a, arguments.b);
  } else {
    *context.out << trace::ToText(diff, arguments.a, arguments.b,
                                  static_cast<size_t>(arguments.rows));
  }
  return absl::OkStatus();
}

void AddDiffVerb(CLI::App* trace, CliContext* context) {
  auto arguments = std::make_shared<DiffArguments>();
  CLI::App* verb =
      AddVerb(trace, context, "diff",
              "Compare two runs of a job, or a simulated and a recorded one: where the time of a "
              "step went in each",
              "  weir trace diff before.pftrace after.pftrace\n"
              "  weir sim job.textproto --cluster here.textproto --trace sim.pftrace\n"
              "  weir trace diff sim.pftrace run.pftrace",
              [arguments, context] { return Diff(*arguments, *context); });
  verb->add_option("A", arguments->a, "Trace written by weir train --trace or weir sim --trace")
      ->required();
  verb->add_option("B", arguments->b, "The trace to compare with it")->required();
  verb->add_option("--rows", arguments->rows, "Rows of each table")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "One JSON object, all rows");
}

absl::Status Report(const ReportArguments& arguments, const CliContext& context) {
  std::ostream& out = *context.out;
  WEIR_ASSIGN_OR_RETURN(auto file,
                        store::MappedFile::Open(arguments.path, "trace of `weir train --trace`"));
  context.Confine({}, sandbox::CpuTime::kLimited);
  trace::TraceReader reader;
  WEIR_RETURN_IF_ERROR(reader.Read(file->text(), arguments.path));
  file.reset();  // the reader has its own copy of the data that it keeps
  const trace::TraceReport report = trace::MakeTraceReport(reader);
  absl::StatusOr<trace::RecordedRun> run = trace::ReadRecordedRun(reader);
  std::optional<int64_t> step;
  if (arguments.step.has_value()) step = trace::IndexOfStep(*arguments.step);
  const absl::StatusOr<trace::WhySlow> why =
      run.ok() ? trace::FindWhySlow(*run, {step, arguments.what_ifs, nullptr})
               : absl::StatusOr<trace::WhySlow>(run.status());
  // A trace that lacks the data for a replay still has the rest of its report. A wrong argument is
  // an error.
  const bool asked = arguments.step.has_value() || !arguments.what_ifs.empty();
  if (!why.ok() && (asked || !absl::IsFailedPrecondition(why.status())))
    return OfTrace(arguments.path, why.status());
  std::optional<trace::LastState> last_state;
  if (!run.ok()) run = trace::ReadRunWithGaps(reader);
  if (run.ok()) last_state = trace::FindLastState(*run);
  if (arguments.json) {
    out << trace::ToJson(report, why, last_state);
    return absl::OkStatus();
  }
  const size_t rows = static_cast<size_t>(arguments.rows);
  out << trace::OverviewText(report);
  if (last_state.has_value() && !asked) out << trace::ToText(*last_state);
  if (why.ok()) {
    if (!asked) out << trace::ToText(trace::FindCauses(report, *why));
    out << ToText(*why, rows);
  } else {
    std::string line;
    trace::AppendLine(absl::StrCat("\nno critical path: ", why.status().message()), 2, &line);
    out << line;
  }
  if (why.ok() && !asked) out << trace::TransfersText(why->transfers, rows);
  if (!asked) out << trace::WaitsText(report, rows);
  return absl::OkStatus();
}

absl::Status Chrome(const std::string& path, const CliContext& context) {
  WEIR_ASSIGN_OR_RETURN(auto file, store::MappedFile::Open(path, "trace of `weir train --trace`"));
  context.Confine({}, sandbox::CpuTime::kLimited);
  return trace::WriteChromeEvents(file->text(), path, *context.out);
}

void AddChromeVerb(CLI::App* trace, CliContext* context) {
  auto path = std::make_shared<std::string>();
  CLI::App* verb = AddVerb(
      trace, context, "chrome",
      "Print the trace as trace events in JSON, the format of chrome://tracing and of other tools: "
      "acts, waits, arrows of tokens and slots in use",
      "  weir trace chrome run.pftrace > run.json",
      [path, context] { return Chrome(*path, *context); });
  verb->add_option("FILE", *path, "Trace written by weir train --trace or weir sim --trace")
      ->required();
}

}  // namespace

void AddTraceVerbs(CLI::App* app, CliContext* context) {
  CLI::App* trace = app->add_subcommand("trace", "Read the trace of a run");
  trace->footer(
      "Examples:\n  weir trace report run.pftrace\n  weir trace diff a.pftrace b.pftrace\n"
      "  weir trace chrome run.pftrace > run.json");
  trace->require_subcommand(1);
  AddDiffVerb(trace, context);
  AddChromeVerb(trace, context);
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* verb = AddVerb(
      trace, context, "report",
      "Say how busy the devices were, what they waited for, where the critical path of a step "
      "goes, "
      "and what a change would gain",
      "  weir trace report run.pftrace\n  weir trace report run.pftrace --step 7 --rows 20\n"
      "  weir trace report run.pftrace --what-if 'slots:activation=2' --what-if 'free:forward "
      "layers.3'\n"
      "Changes for --what-if, several at once joined by `;`, a `*` in a NAME stands for anything:\n"
      "  slots:NAME=N or =+N   as many, or more slots of a register\n"
      "  free:NAME             a function, actor or phase takes no time\n"
      "  link:A-B=F            messages from rank A to rank B are F times as fast; link:all=F\n"
      "  rank:R=F              acts of rank R are F times as fast; rank:all=F",
      [arguments, context] { return Report(*arguments, *context); });
  verb->add_option("FILE", arguments->path,
                   "Trace written by weir train --trace or weir sim --trace")
      ->required();
  verb->add_option("--rows,--waits", arguments->rows, "Rows of each table")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--step", arguments->step,
                   "Critical path of this step alone, which counts from 1 as in the metrics");
  verb->add_option("--what-if", arguments->what_ifs,
                   "Replay the run with this change; may be given again")
      ->allow_extra_args(false);
  verb->add_flag("--json", arguments->json, "One JSON object, all rows");
}

}  // namespace weir::cli
