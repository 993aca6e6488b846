// Writes the text and the JSON of `weir sim`.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "tools/sim/simulate.h"
#include "tools/trace/report_text.h"

namespace weir::sim {
namespace {

constexpr size_t kDevicesShown = 16;

std::string MemoryText(const SimulateReport::Device& device) {
  std::string text = BytesText(device.arena_bytes);
  if (device.memory_bytes <= 0) return text;
  absl::StrAppend(&text, " of ", BytesText(device.memory_bytes));
  if (device.arena_bytes > device.memory_bytes) absl::StrAppend(&text, ": DOES NOT FIT");
  return text;
}

const SimulateReport::Device& Fullest(const SimulateReport& report) {
  // Returns the device that overflows most, or has the least memory left.
  return *std::max_element(report.devices.begin(), report.devices.end(),
                           [](const auto& a, const auto& b) {
                             return a.arena_bytes - a.memory_bytes < b.arena_bytes - b.memory_bytes;
                           });
}

std::string DeviceRow(const std::string& name, const SimulateReport::Device& device) {
  return absl::StrFormat("  %-28s %7.1f %% %8.1f %% %8.1f %% %8.1f %%   %s\n", name,
                         device.compute * 100, device.transfer * 100, device.exposed * 100,
                         device.waiting * 100, MemoryText(device));
}

// For many devices, prints one row for each stage: means, and the fullest memory.
std::string DeviceTable(const SimulateReport& report) {
  std::string text = absl::StrFormat("  %-28s %9s %10s %10s %10s   %s\n", "", "compute",
                                     "transfers", "exposed", "waiting", "memory");
  if (report.devices.size() <= kDevicesShown) {
    for (const auto& device : report.devices) {
      text += DeviceRow(absl::StrCat("rank ", device.rank, " · ", device.device), device);
    }
    return text;
  }
  std::map<std::string, std::vector<const SimulateReport::Device*>> stages;
  for (const auto& device : report.devices) {
    stages[absl::StrFormat("%9s", device.device.substr(0, device.device.find(',')))].push_back(
        &device);
  }
  for (const auto& [stage, devices] : stages) {
    SimulateReport::Device mean = *devices[0];
    mean.compute = mean.transfer = mean.exposed = mean.waiting = 0;
    for (const SimulateReport::Device* device : devices) {
      const double share = 1.0 / static_cast<double>(devices.size());
      mean.compute += device->compute * share;
      mean.transfer += device->transfer * share;
      mean.exposed += device->exposed * share;
      mean.waiting += device->waiting * share;
      mean.arena_bytes = std::max(mean.arena_bytes, device->arena_bytes);
    }
    text += DeviceRow(absl::StrFormat("%s · %d ranks", stage.substr(stage.find_first_not_of(' ')),
                                      devices.size()),
                      mean);
  }
  return text;
}

std::string KernelsText(const ActCosts::Sources& kernels) {
  std::string text = absl::StrFormat("%d distinct", kernels.kernels);
  if (kernels.estimated == 0) return text + ", each as the cluster file says";
  if (kernels.estimated == kernels.kernels)
    return text + ", all estimated (interpolated, or from peaks)";
  absl::StrAppendFormat(
      &text, ", %d of them estimated (interpolated, or from peaks): %.1f %% of the work",
      kernels.estimated, 100 * kernels.estimated_ns / std::max(1.0, kernels.step_ns));
  return text;
}

// Names the part that takes most of a step, and a remedy.
std::string SimulationAdvice(const SimulateReport& report) {
  const SimulateReport::Device& fullest = Fullest(report);
  if (fullest.memory_bytes > 0 && fullest.arena_bytes > fullest.memory_bytes) {
    return absl::StrFormat(
        "rank %d has too little memory: split over more devices, or recompute "
        "(docs/how_to/save_memory.md)",
        fullest.rank.value());
  }
  const auto [least, most] =
      std::minmax_element(report.devices.begin(), report.devices.end(),
                          [](const auto& a, const auto& b) { return a.compute < b.compute; });
  const double communication = report.exposed + report.transfer;
  if (communication >= std::max(report.compute, report.waiting)) {
    return absl::StrFormat(
        "communication is in the way (%.1f %% of the step): another mesh or other rules, more "
        "micro-batches to hide it "
        "behind, or faster links; --trace and `weir trace report` name the exchange",
        communication * 100);
  }
  if (report.waiting > report.compute) {
    if (report.stages > 1 && report.bubble_formula > report.waiting / 2) {
      return absl::StrFormat(
          "the pipeline is in the way (its bubble is %.1f %%): more micro-batches, fewer stages or "
          "another schedule",
          report.bubble_formula * 100);
    }
    return absl::StrFormat(
        "uneven work is in the way: rank %d computes %.1f %% of the step, rank %d only %.1f %%",
        most->rank.value(), most->compute * 100, least->rank.value(), least->compute * 100);
  }
  return absl::StrFormat(
      "work is in the way: devices compute %.1f %% of the step; only more or faster devices, or "
      "less work, shorten it much",
      report.compute * 100);
}

// Returns a line of the head: a name and its text.
std::string HeadLine(const std::string& name, const std::string& about) {
  return WrapText(absl::StrFormat("  %-17s %s", name, about), kColumnsWithoutTerminal,
                  /*hanging=*/18) +
         "\n";
}

}  // namespace

std::string ToText(const SimulateReport& report) {
  std::string text = absl::StrCat(
      report.job.empty() ? "job" : report.job, " on ",
      report.cluster.empty() ? "the cluster" : report.cluster, ": ", Plural(report.ranks, "device"),
      report.mesh.empty() ? "" : " (" + report.mesh + ")", ", ", Plural(report.stages, "stage"),
      ", ", Plural(report.micro_batches, "micro-batch"), "\n");
  if (report.ranks_simulated < report.ranks) {
    absl::StrAppend(&text, "by symmetry: ", Plural(report.ranks_simulated, "rank"),
                    ", one of each stage, ", report.ranks_simulated == 1 ? "stands" : "stand",
                    " for all ", CountText(static_cast<double>(report.ranks)), "\n");
  }
  text = WrapText(text, kColumnsWithoutTerminal) + "\n";
  text += HeadLine("step", TimeText(report.step_ns));
  text += HeadLine(report.item + "/s", CountText(report.items_per_second));
  if (!report.costs.empty()) text += HeadLine("costs", report.costs);
  text += HeadLine("idle", absl::StrFormat("%.1f %% of the step: a device runs no act",
                                           (1 - report.compute - report.transfer) * 100));
  if (report.stages > 1 && report.bubble_formula > 0) {
    text += HeadLine(
        "bubble", absl::StrFormat("%.1f %% of the step is what the pipeline alone leaves idle, %s",
                                  report.bubble_formula * 100, report.bubble_formula_text));
  }
  text += HeadLine(
      "exposed",
      absl::StrFormat("%.1f %% waits for messages under way; %.1f %% more packs and fills them",
                      report.exposed * 100, report.transfer * 100));
  text += HeadLine("sent", absl::StrCat(BytesText(report.sent_bytes), " a step over all links"));
  text += HeadLine("kernels", KernelsText(report.kernels));
  text += HeadLine("memory", MemoryText(Fullest(report)));
  if (report.mfu > 0)
    text += HeadLine(
        "MFU", absl::StrFormat("%.1f %% (%.3g flop a step)", report.mfu * 100, report.model_flops));
  text += "\n" + DeviceTable(report);
  trace::AppendLine("  so: " + SimulationAdvice(report), 6, &text);
  return text;
}

std::string ToJson(const SimulateReport& report) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const auto& device : report.devices) {
    devices.push_back(
        {{"rank", device.rank.value()},
         {"device", device.device},
         {"compute", device.compute},
         {"transfers", device.transfer},
         {"exposed", device.exposed},
         {"waiting", device.waiting},
         {"arena_bytes", device.arena_bytes},
         {"memory_bytes", device.memory_bytes},
         {"fits", device.memory_bytes <= 0 || device.arena_bytes <= device.memory_bytes}});
  }
  nlohmann::ordered_json json = {
      {"job", report.job},
      {"cluster", report.cluster},
      {"costs", report.costs},
      {"mesh", report.mesh},
      {"plan_id", report.plan_id},
      {"ranks", report.ranks},
      {"ranks_simulated", report.ranks_simulated},
      {"by_symmetry", report.ranks_simulated < report.ranks},
      {"hosts", report.hosts},
      {"stages", report.stages},
      {"micro_batches", report.micro_batches},
      {"steps_simulated", report.steps},
      {"step_seconds", report.step_ns * 1e-9},
      {report.item + "_per_second", report.items_per_second},
      {"compute", report.compute},
      {"transfers", report.transfer},
      {"exposed", report.exposed},
      {"waiting", report.waiting},
      {"bubble", 1 - report.compute - report.transfer},
      {"bubble_formula", report.bubble_formula},
      {"sent_bytes", report.sent_bytes},
      {"kernels", report.kernels.kernels},
      {"kernels_estimated", report.kernels.estimated},
      {"estimated_share", report.kernels.estimated_ns / std::max(1.0, report.kernels.step_ns)},
      {"model_flops", report.model_flops},
      {"mfu", report.mfu},
      {"history_hash", absl::StrCat(absl::Hex(report.history_hash, absl::kZeroPad16))},
      {"devices", devices}};
  return json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace weir::sim
