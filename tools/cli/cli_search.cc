// weir search: finds rules for a job on a mesh, and writes the job with them.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/cli/planned_job.h"
#include "tools/job/job_text.h"
#include "tools/search/rank_layouts.h"
#include "tools/search/search_screen.h"
#include "tools/train/output_paths.h"

namespace weir::cli {
namespace {

constexpr char kSettings[] = "settings", kMicroBatches[] = "micro-batches", kZero[] = "zero",
               kRecompute[] = "recompute", kCut[] = "cut";

struct SearchArguments : PlannedJobArguments {
  uint64_t memory_bytes = 0;
  int top = 5;
  std::vector<std::string> fixed;
  std::string out;
  bool json = false;
};

compiler::FreeSettings FreeOf(const SearchArguments& arguments, const proto::Job& job) {
  compiler::FreeSettings free = compiler::SettingsLeftFree(job);
  for (const std::string& name : arguments.fixed) {
    const bool all = name == kSettings;
    if (all || name == kMicroBatches) free.micro_batches = false;
    if (all || name == kZero) free.zero = false;
    if (all || name == kRecompute) free.recompute = false;
    if (all || name == kCut) free.cut = false;
  }
  return free;
}

absl::Status WriteJob(const SearchArguments& arguments, const proto::Job& job) {
  std::ofstream file(arguments.out, std::ios::trunc);
  file << job::JobText(
      job, absl::StrCat(arguments.job.Title(job), ", its layouts found by `weir search`."));
  file.close();
  if (file) return absl::OkStatus();
  return Missing({"W0706", "-o " + arguments.out, "a file that can be written", "none",
                  "check that the folder exists"});
}

absl::Status RunSearch(const SearchArguments& arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(
      train::CheckOutputIsNoInput("-o", arguments.out, {arguments.job.path, arguments.cluster}));
  WEIR_ASSIGN_OR_RETURN(JobWithCosts read, arguments.ReadWithCosts());
  // The job that is written serves other machines, too.
  if (!read.products.empty()) read.job.mutable_runtime()->clear_product();
  sandbox::SandboxRules rules;
  if (!arguments.out.empty())
    rules.write_folders = {std::filesystem::absolute(arguments.out).parent_path().string()};
  context->Confine(rules, sandbox::CpuTime::kUnlimited);
  WEIR_ASSIGN_OR_RETURN(const plan::PlacedAxes placed, plan::PlaceAxes(arguments.place, &read.job));
  if (const std::string line = plan::PlacedText(placed, read.job); !line.empty())
    *context->err << line << "\n";
  search::RankOptions options;
  options.memory_bytes = static_cast<double>(
      arguments.memory_bytes > 0
          ? arguments.memory_bytes
          : static_cast<uint64_t>(std::max<int64_t>(0, read.job.runtime().memory_bytes_max())));
  options.memory_of = arguments.memory_bytes > 0 ? "--memory" : "runtime.memory_bytes_max";
  options.top = arguments.top;
  options.free = FreeOf(arguments, read.job);
  WEIR_ASSIGN_OR_RETURN(const search::RankedSearch found,
                        search::RankLayouts(read.job, read.costs, options));
  *context->out << (arguments.json ? search::SearchJson(found)
                                   : search::SearchScreen(found, read.job));
  if (!arguments.json) *context->err << "steps on " << read.costs.Text() << "\n";
  if (arguments.out.empty()) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(WriteJob(arguments, found.rows[0].found.job));
  if (!arguments.json) *context->out << "\nwrote     " << arguments.out << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddSearchVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<SearchArguments>();
  CLI::App* verb = AddVerb(
      app, context, "search", "Find layouts for a job on a mesh: rules, and free settings",
      "  weir search gpt.textproto --mesh dp=4,tp=8 -o found.textproto\n"
      "  weir search gpt.textproto --mesh dp=4,tp=8 --memory 80G --cluster c.textproto\n"
      "  weir search gpt.textproto --mesh dp=2,tp=4 --fix settings\n"
      "A setting is free if the job leaves it at its default: one micro-batch, ZeRO stage 0, "
      "everything kept for\nthe backward pass, a balanced cut of the pipeline. Explicit "
      "layouts of the job hold.",
      [arguments, context] { return RunSearch(*arguments, context); });
  arguments->AddTo(verb, context, JobArguments::Data::kNotOpened);
  verb->add_option("--memory", arguments->memory_bytes,
                   "Memory of a device, such as 80G or 512MiB [runtime.memory_bytes_max of the "
                   "job, else no bound]")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES");
  verb->add_option("--top", arguments->top, "Layouts to compare and print")
      ->check(CLI::Range(1, 20))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option(
          "--fix", arguments->fixed,
          "A setting that stays as it is: micro-batches, zero, recompute or cut; settings: "
          "all of these, so that only rules change; repeatable")
      ->check(CLI::IsMember({kSettings, kMicroBatches, kZero, kRecompute, kCut}))
      ->type_name("SETTING")
      ->allow_extra_args(false);
  verb->add_option("-o,--out", arguments->out, "Where to write the job with the best layouts")
      ->type_name("PATH");
  verb->add_flag("--json", arguments->json, "Print the table and the choices as JSON");
}

}  // namespace weir::cli
