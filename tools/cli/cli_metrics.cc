// weir metrics: writes the metrics of a run for other tools.
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "tools/cli/cli_verbs.h"
#include "tools/train/metrics_csv.h"

namespace weir::cli {
namespace {

absl::Status Csv(const std::string& path, const CliContext& context) {
  WEIR_ASSIGN_OR_RETURN(auto file,
                        store::MappedFile::Open(path, "metrics of `weir train --metrics`"));
  context.Confine({}, sandbox::CpuTime::kLimited);
  return train::WriteMetricsCsv(file->text(), path, *context.out);
}

}  // namespace

void AddMetricsVerbs(CLI::App* app, CliContext* context) {
  CLI::App* metrics = app->add_subcommand("metrics", "Write the metrics of a run for other tools");
  metrics->footer("Examples:\n  weir metrics csv m.jsonl > m.csv");
  metrics->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* verb = AddVerb(
      metrics, context, "csv",
      "Print a metrics file as comma-separated values: a header, and a row per step",
      "  weir metrics csv m.jsonl > m.csv", [path, context] { return Csv(*path, *context); });
  verb->add_option("FILE", *path, "Metrics written by weir train --metrics")->required();
}

}  // namespace weir::cli
