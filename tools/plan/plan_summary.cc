#include "tools/plan/plan_summary.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/explain/memory_view.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/precision_rules.h"
#include "proto/job.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/plan/plan_sections.h"
#include "tools/plan/trained_text.h"
#include "tools/train/buddy_memory.h"
#include "tools/train/shared_cores.h"

namespace weir::plan {
namespace {

// A device is named if it computes less than this share of the busiest device's work.
constexpr double kMuchLessBusy = 0.5;
constexpr double kLargeBubble = 0.3;

class Summarizer {
 public:
  Summarizer(const compiler::LogicalPlan& plan, const sim::JobCosts& costs,
             const sim::StepPrediction& prediction, const train::NeedAndPlans& memory,
             const PlacedAxes& placed)
      : plan_(plan), costs_(costs), prediction_(prediction), memory_(memory), placed_(placed) {}

  absl::StatusOr<PlanSummary> Run() const {
    PlanSummary summary;
    WEIR_ASSIGN_OR_RETURN(summary.boxings, CostsOfBoxings(plan_));
    for (const BoxingCost& boxing : summary.boxings) summary.bytes_per_step += boxing.bytes;
    Fit(&summary);
    summary.job = JobText();
    summary.precision = compiler::PrecisionText(plan_);
    summary.step = StepText();
    if (prediction_.report.has_value()) summary.time = TimeText();
    summary.memory = MemoryText();
    summary.bytes = BytesLine(summary.bytes_per_step);
    summary.hosts = HostsText(plan_, summary.boxings, placed_);
    summary.devices = Devices();
    summary.warnings = Warnings();
    return summary;
  }

 private:
  // If a cluster gives the memory of its devices, that memory decides; else the memory of this
  // machine decides.
  void Fit(PlanSummary* summary) const {
    const double device_bytes = DeviceBytes();
    if (device_bytes <= 0) {
      const train::MemoryBudget budget = train::BudgetOf(*plan_.job);
      const std::string shared = train::SharedCoresText(DevicesOfHost(), train::NumCores());
      summary->fits = train::Fits(memory_.need, budget);
      summary->device_bytes_max = static_cast<double>(budget.device_bytes);
      summary->fit = absl::StrCat(train::NeedText(plan_, memory_.need, budget),
                                  shared.empty() ? "" : "; ", shared);
      return;
    }
    const double bytes = static_cast<double>(memory_.need.bytes);
    summary->fits = bytes <= device_bytes;
    summary->device_bytes_max = device_bytes;
    summary->fit =
        absl::StrCat(summary->fits ? "fits: " : "DOES NOT FIT: ", "rank ", memory_.need.rank,
                     plan_.places.num_ranks() > 1 ? " needs most, " : " needs ", BytesText(bytes),
                     " of the ", BytesText(device_bytes), " of a device of the cluster");
  }

  // Returns the number of devices that would be on this machine.
  int64_t DevicesOfHost() const {
    const int64_t all = plan_.places.num_ranks(), of_host = plan_.job->mesh().devices_per_host();
    return of_host > 0 ? std::min(all, of_host) : all;
  }

  double DeviceBytes() const {
    double least = 0;
    if (!prediction_.report.has_value() || costs_.source() != sim::JobCosts::Source::kFile)
      return 0;
    for (const sim::SimulateReport::Device& device : prediction_.report->devices) {
      if (device.memory_bytes > 0 && (least == 0 || device.memory_bytes < least))
        least = device.memory_bytes;
    }
    return least;
  }

  std::string JobText() const {
    int64_t elements = 0;
    for (const compiler::Variable& variable : plan_.module.variables)
      elements += variable.slot_of.empty() ? variable.type.num_elements() : 0;
    const std::string& name =
        plan_.job->name().empty() ? plan_.job->graph().name() : plan_.job->name();
    std::string text =
        absl::StrCat(name, name.empty() ? "" : ": ", ShortCount(static_cast<double>(elements)),
                     " parameters on ", Plural(plan_.places.num_ranks(), "device"));
    if (plan_.mesh.num_axes() > 0) absl::StrAppend(&text, " (", plan_.mesh_text, ")");
    absl::StrAppend(&text, ", ", Plural(plan_.micro_batches, "micro-batch"), " a step");
    if (plan_.settings.training.zero_stage > 0)
      absl::StrAppend(&text, ", ZeRO ", plan_.settings.training.zero_stage);
    if (plan_.updates.every > 1)
      absl::StrAppend(&text, ", weights updated every ", plan_.updates.every, " steps");
    if (plan_.updates.delay > 0)
      absl::StrAppend(&text, ", gradients ", Plural(plan_.updates.delay, "update"), " old");
    if (const std::string trained = TrainedText(plan_); !trained.empty())
      absl::StrAppend(&text, "; ", trained);
    return text;
  }

  std::string StepText() const {
    if (prediction_.step_ns <= 0) return absl::StrCat("not predicted: ", prediction_.why_not);
    std::string text = weir::TimeText(prediction_.step_ns);
    if (prediction_.report.has_value()) {
      absl::StrAppend(&text, ", ", CountText(prediction_.report->items_per_second), " ",
                      prediction_.report->item, "/s, simulated with ", costs_.Text());
    } else {
      absl::StrAppend(&text, " by the planned times and ", costs_.Text(),
                      "; not simulated: ", prediction_.why_not);
    }
    if (costs_.source() == sim::JobCosts::Source::kDefaults)
      absl::StrAppend(&text, " (`weir calibrate JOB --keep` measures this machine)");
    return text;
  }

  std::string TimeText() const {
    const sim::SimulateReport& report = *prediction_.report;
    const bool has_collectives = plan_.job->runtime().collectives() != proto::Runtime::EXCHANGES;
    return absl::StrFormat(
        "%.0f %% computing, %.0f %% %spacking and filling messages, %.0f %% waiting for messages "
        "under way, %.0f %% waiting for others%s",
        100 * report.compute, 100 * report.transfer, has_collectives ? "collectives, " : "",
        100 * report.exposed, 100 * report.waiting,
        report.devices.size() > 1 ? " (means over devices)" : "");
  }

  std::string MemoryText() const {
    const auto at = memory_.plans.find(memory_.need.rank);
    if (at == memory_.plans.end()) return BytesText(static_cast<double>(memory_.need.bytes));
    const compiler::MemoryView view =
        compiler::ViewMemory(at->second, /*columns_max=*/0, /*tensors_max=*/0);
    const auto bytes = [](int64_t count) { return BytesText(static_cast<double>(count)); };
    std::vector<std::string> parts = {
        absl::StrCat("weights ", bytes(view.weight_bytes)),
        absl::StrCat("optimiser ", bytes(view.optimiser_bytes)),
        absl::StrCat("activations and gradients ", bytes(view.register_bytes + view.landing_bytes)),
        absl::StrCat("scratch ", bytes(view.scratch_bytes))};
    const int64_t workspace = memory_.need.bytes - memory_.need.beside_bytes -
                              memory_.need.driver_bytes - memory_.need.graph_bytes -
                              at->second.arena_bytes();
    if (workspace > 0) parts.push_back(absl::StrCat("workspace of kernels ", bytes(workspace)));
    if (memory_.need.beside_bytes > 0)
      parts.push_back(absl::StrCat("evaluation ", bytes(memory_.need.beside_bytes)));
    if (memory_.need.graph_bytes > 0)
      parts.push_back(absl::StrCat("graphs about ", bytes(memory_.need.graph_bytes)));
    if (memory_.need.driver_bytes > 0)
      parts.push_back(absl::StrCat("driver and libraries ", bytes(memory_.need.driver_bytes)));
    return absl::StrCat("rank ", memory_.need.rank, ": ", absl::StrJoin(parts, ", "), CopyText(),
                        train::BuddyText(plan_, memory_.plans));
  }

  // Says what checkpoints need beside the plan.
  std::string CopyText() const {
    if (plan_.mode != compiler::PlanMode::kTrain) return "";
    const double bytes = train::CheckpointCopyBytes(memory_.plans);
    const int64_t devices = plan_.places.num_ranks();
    return absl::StrCat("; a run with --checkpoint DIR/ also copies ", BytesText(bytes),
                        " of states into the memory of its hosts",
                        devices > 1
                            ? absl::StrCat(", ", BytesText(bytes / static_cast<double>(devices)),
                                           " for each device on average")
                            : "");
  }

  std::string BytesLine(double sum) const {
    if (sum == 0) return "0 B a step between devices";
    return absl::StrCat(BytesText(sum), " a step over all links, ",
                        BytesText(sum / static_cast<double>(plan_.places.num_ranks())),
                        " from each device on average");
  }

  // Returns the memory of a device as PlanSummary::memory counts it: with the evaluation and the
  // workspace of kernels. Both are those of the rank of its stage that needs most.
  // `most_of_stage`: the largest arena of each stage.
  double BytesOf(const sim::SimulateReport::Device& device,
                 const std::map<int64_t, double>& most_of_stage) const {
    const int64_t stage = plan_.places.PlaceOf(device.rank);
    const auto need = memory_.need.bytes_of_stage.find(stage);
    if (need == memory_.need.bytes_of_stage.end()) return device.arena_bytes;
    return static_cast<double>(need->second) - (most_of_stage.at(stage) - device.arena_bytes);
  }

  std::vector<PlanSummary::Device> Devices() const {
    std::vector<PlanSummary::Device> devices;
    if (!prediction_.report.has_value()) return devices;
    std::map<int64_t, double> most_of_stage;
    for (const sim::SimulateReport::Device& device : prediction_.report->devices) {
      double& most = most_of_stage[plan_.places.PlaceOf(device.rank)];
      most = std::max(most, device.arena_bytes);
    }
    for (const sim::SimulateReport::Device& device : prediction_.report->devices) {
      devices.push_back({device.rank, device.device, device.compute, device.transfer,
                         device.exposed + device.waiting, BytesOf(device, most_of_stage)});
    }
    return devices;
  }

  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings = compiler::DevicesWithoutWork(plan_);
    if (warnings.empty()) AddUnevenWork(&warnings);
    AddMissingDevices(&warnings);
    if (std::string text = train::BuddyWarning(plan_, memory_, train::BudgetOf(*plan_.job));
        !text.empty())
      warnings.push_back(std::move(text));
    for (std::string& sentence : compiler::PrecisionRulesWithoutUse(plan_))
      warnings.push_back(std::move(sentence));
    AddCostlyRules(&warnings);
    if (plan_.predicted_bubble > kLargeBubble) {
      warnings.push_back(absl::StrFormat(
          "a bubble of %.0f %%: more micro-batches (training.micro_batches=%d) make it smaller",
          100 * plan_.predicted_bubble, 2 * plan_.micro_batches));
    }
    return warnings;
  }

  void AddMissingDevices(std::vector<std::string>* warnings) const {
    if (std::string text = costs_.MissingDevicesText(plan_.places.num_ranks()); !text.empty())
      warnings->insert(warnings->begin(), std::move(text));
  }

  void AddUnevenWork(std::vector<std::string>* warnings) const {
    if (!prediction_.report.has_value()) return;
    double most = 0;
    for (const sim::SimulateReport::Device& device : prediction_.report->devices)
      most = std::max(most, device.compute);
    std::vector<int64_t> idle;
    for (const sim::SimulateReport::Device& device : prediction_.report->devices) {
      if (device.compute < kMuchLessBusy * most) idle.push_back(device.rank.value());
    }
    if (idle.empty()) return;
    warnings->push_back(absl::StrCat(idle.size() == 1 ? "rank " : "ranks ", RangesText(idle),
                                     idle.size() == 1 ? " has" : " have",
                                     " less than half the work of the busiest: the parts of the "
                                     "model that they hold are uneven"));
  }

  void AddCostlyRules(std::vector<std::string>* warnings) const {
    const auto step_ns_of = [this](const compiler::LogicalPlan& plan) {
      return &plan == &plan_ ? prediction_.step_ns : sim::PredictStep(plan, costs_).step_ns;
    };
    for (const CostlyRule& rule : FindCostlyRules(plan_, costs_.model(), step_ns_of)) {
      std::string text = absl::StrCat(
          "rule ", rule.rule, " costs more than it brings: without it a step sends ",
          BytesText(rule.bytes_without), " instead of ", BytesText(rule.bytes), " and takes ",
          weir::TimeText(rule.step_ns_without), " instead of ", weir::TimeText(rule.step_ns));
      if (rule.arena_bytes_without > rule.arena_bytes) {
        absl::StrAppend(&text, "; rank 0 then needs ",
                        BytesText(static_cast<double>(rule.arena_bytes_without)), " instead of ",
                        BytesText(static_cast<double>(rule.arena_bytes)));
      }
      warnings->push_back(std::move(text));
    }
  }

  const compiler::LogicalPlan& plan_;
  const sim::JobCosts& costs_;
  const sim::StepPrediction& prediction_;
  const train::NeedAndPlans& memory_;
  const PlacedAxes& placed_;
};

}  // namespace

absl::StatusOr<PlanSummary> Summarize(const compiler::LogicalPlan& plan, const sim::JobCosts& costs,
                                      const sim::StepPrediction& prediction,
                                      const train::NeedAndPlans& memory, const PlacedAxes& placed) {
  return Summarizer(plan, costs, prediction, memory, placed).Run();
}

}  // namespace weir::plan
