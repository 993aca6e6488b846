// weir trace: what a trace file says.
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "runtime/trace/trace_report.h"
#include "tools/cli_verbs.h"

namespace weir {
namespace {

struct ReportArguments {
  std::string path;
  int64_t waits = 5;
};

absl::Status Report(const ReportArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(auto file, MappedFile::Open(arguments.path, "trace of `weir train --trace`"));
  absl::string_view bytes(reinterpret_cast<const char*>(file->data()), static_cast<size_t>(file->size()));
  WEIR_ASSIGN_OR_RETURN(TraceReport report, ReadTraceReport(bytes));
  out << ToText(report, static_cast<size_t>(arguments.waits));
  return absl::OkStatus();
}

}  // namespace

void AddTraceVerbs(CLI::App* app, CliContext* context) {
  CLI::App* trace = app->add_subcommand("trace", "Read the trace of a run");
  trace->footer("Examples:\n  weir trace report run.pftrace");
  trace->require_subcommand(1);
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* verb = AddVerb(trace, context, "report", "Say how busy the devices were, what they waited for, and how large the bubble is",
                           "  weir trace report run.pftrace\n  weir trace report run.pftrace --waits 20",
                           [arguments, context] { return Report(*arguments, *context->out); });
  verb->add_option("FILE", arguments->path, "Trace written by weir train --trace")->required();
  verb->add_option("--waits", arguments->waits, "Waits to show")->check(CLI::NonNegativeNumber)->capture_default_str();
}

}  // namespace weir
