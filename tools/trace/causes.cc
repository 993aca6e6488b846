#include "tools/trace/causes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

constexpr double kNamedMin = 0.03;        // of a step
constexpr double kUnevenMin = 1.25;       // of the mean of the other devices
constexpr double kBubbleMin = 0.2;        // of a step, of a pipeline of even stages
constexpr double kOfOnePairMin = 0.6;     // of the time under way
constexpr double kFixedPartMin = 0.5;     // of the mean act, below which acts are not short
constexpr size_t kRowIndent = 24;         // of the lines of a cause after its first
constexpr double kFixedActNsMax = 200e3;  // what an act takes as such; longer ones are work

class CauseFinder {
 public:
  CauseFinder(const TraceReport& report, const WhySlow& why) : report_(report), why_(why) {}

  std::vector<Cause> Find() {
    AddSlowRanks();
    AddSlots();
    AddCommunication();
    AddBubble();
    AddUnevenWork();
    AddPhase("data", "reading data",
             "give the reader more registers, threads or a faster disk, or make samples smaller");
    AddPhase("update", "the update of the weights",
             "update more rarely (training.update_every), with larger batches, or split it over dp "
             "(ZeRO)");
    AddShortActs();
    std::stable_sort(causes_.begin(), causes_.end(),
                     [](const Cause& a, const Cause& b) { return a.share > b.share; });
    PutMissingCoresFirst();
    return std::move(causes_);
  }

 private:
  // `view` and `find` are those of Cause.
  Cause Make(double share, const std::string& text, const std::string& view,
             const std::string& find = "") const {
    const double of_step = std::min(share, 1.0);
    return {of_step, of_step * why_.recorded_step_ns, text, view, find};
  }
  void Add(const Cause& cause) {
    if (cause.share >= kNamedMin) causes_.push_back(cause);
  }

  // Where no device has a core, the other causes tell of the machine as much as of the job.
  void PutMissingCoresFirst() {
    const std::string text = AdviceOnCores(why_.speeds);
    if (text.empty()) return;
    double lost_ns = 0;
    for (const DeviceSpeed& device : why_.speeds.devices)
      lost_ns += device.core_share < 0 ? 0 : device.busy_ns_per_step * (1 - device.core_share);
    const double devices = static_cast<double>(why_.speeds.devices.size());
    const double share = lost_ns / devices / std::max(1.0, why_.recorded_step_ns);
    causes_.insert(causes_.begin(), Make(share, text, "devices"));
  }

  void AddSlowRanks() {
    for (const Straggler& slow : why_.speeds.stragglers) {
      const double share = slow.more_ns_per_step / std::max(1.0, why_.recorded_step_ns);
      Add(Make(share,
               absl::StrFormat("rank %d is slow: its acts take %.1f times as long as the same "
                               "acts elsewhere; look at its machine",
                               slow.rank.value(), slow.factor),
               "skew"));
    }
  }

  void AddSlots() {
    const SlotGain slots = FindSlotGain(why_);
    const std::string named =
        slots.named == nullptr ? "" : absl::StrCat(", first of all ", slots.named->about);
    Add(Make(slots.most,
             absl::StrCat("registers are too few: more slots save up to ", PercentText(slots.most),
                          named, "; runtime.registers=SOLVED lets the compiler choose"),
             "registers"));
  }

  double GainOf(absl::string_view spec) const {
    for (const WhatIfRow& row : why_.what_ifs) {
      if (row.finished && row.spec == spec) return row.gain;
    }
    return 0;
  }

  void AddCommunication() {
    const double gain = GainOf("link:all=inf");
    std::map<std::string, double> exchanges;
    std::map<std::pair<RankId, RankId>, double> by_pair;  // of ranks, the lower first
    double in_transfer = 0;
    for (const PathEdge& edge : why_.path.edges) {
      if (edge.serves_reports) continue;
      in_transfer += edge.share;
      by_pair[{std::min(edge.from, edge.to), std::max(edge.from, edge.to)}] += edge.share;
      exchanges[LayerFamily(EdgeName(edge))] += edge.share;
    }
    const auto longest =
        std::max_element(exchanges.begin(), exchanges.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (longest == exchanges.end()) return;
    const auto worst =
        std::max_element(by_pair.begin(), by_pair.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    std::string text = absl::StrCat("messages on their way cost up to ", PercentText(gain),
                                    " of a step, most of all `", longest->first, "` (",
                                    PercentText(longest->second), ")");
    if (by_pair.size() > 1 && worst->second > kOfOnePairMin * in_transfer) {
      absl::StrAppend(&text, "; the link between ranks ", worst->first.first, " and ",
                      worst->first.second, " has ", PercentText(worst->second / in_transfer),
                      " of it");
    }
    Add(Make(gain,
             absl::StrCat(text,
                          ": take another layout (`weir plan` names the rule behind each "
                          "exchange and its bytes), or a faster link"),
             "timeline", longest->first));
  }

  void AddBubble() {
    if (report_.num_stages < 2 || report_.bubble_formula < kBubbleMin) return;
    const double share = std::min(report_.pipeline_bubble, report_.bubble_formula);
    Add(Make(
        share,
        absl::StrFormat("the pipeline has few micro-batches, %d for %d stages: a stage has no work "
                        "for %s of a step even if all stages take the same time (here %s); take "
                        "more micro-batches",
                        report_.micro_batches, report_.num_stages, PercentText(share),
                        PercentText(report_.pipeline_bubble)),
        "pipeline"));
  }

  void AddUnevenWork() {
    const std::vector<DeviceSpeed>& devices = why_.speeds.devices;
    if (devices.size() < 2 || !why_.speeds.stragglers.empty()) return;
    double all = 0;
    for (const DeviceSpeed& device : devices) all += device.busy_ns_per_step;
    const auto most = std::max_element(devices.begin(), devices.end(),
                                       [](const DeviceSpeed& a, const DeviceSpeed& b) {
                                         return a.busy_ns_per_step < b.busy_ns_per_step;
                                       });
    const double others = (all - most->busy_ns_per_step) / static_cast<double>(devices.size() - 1);
    if (most->busy_ns_per_step < kUnevenMin * others) return;
    const double mean = all / static_cast<double>(devices.size());
    Add(Make(
        (most->busy_ns_per_step - mean) / std::max(1.0, why_.recorded_step_ns),
        absl::StrCat("work is uneven: rank ", most->rank, " works ",
                     MillisecondsText(most->busy_ns_per_step), " a step, the others ",
                     MillisecondsText(others), "; ",
                     report_.num_stages > 1 ? "cut the stages elsewhere" : "take another layout"),
        "devices"));
  }

  void AddPhase(const std::string& phase, const std::string& what, const std::string& advice) {
    const auto at = why_.path.phases.find(phase);
    if (at == why_.path.phases.end()) return;
    Add(Make(at->second,
             absl::StrCat(what, " takes ", PercentText(at->second),
                          " of a step on its critical path: ", advice),
             "timeline", phase));
  }

  void AddShortActs() {
    const ActCost& cost = why_.act_cost;
    if (cost.mean_ns <= 0 || cost.fixed_ns > kFixedActNsMax ||
        cost.fixed_ns < kFixedPartMin * cost.mean_ns)
      return;
    Add(Make(
        cost.fixed_ns * cost.acts_per_step / std::max(1.0, why_.recorded_step_ns),
        absl::StrFormat("acts are too short: of the %s that an act takes on average, %s are the "
                        "same for the smallest work, %.0f times a step; take fewer and larger "
                        "operations, larger micro-batches or fewer devices",
                        MillisecondsText(cost.mean_ns), MillisecondsText(cost.fixed_ns),
                        cost.acts_per_step),
        "timeline"));
  }

  const TraceReport& report_;
  const WhySlow& why_;
  std::vector<Cause> causes_;
};

}  // namespace

std::vector<Cause> FindCauses(const TraceReport& report, const WhySlow& why, size_t most) {
  std::vector<Cause> causes = CauseFinder(report, why).Find();
  if (causes.size() > most) causes.resize(most);
  return causes;
}

std::string ToText(const std::vector<Cause>& causes) {
  if (causes.empty()) return "";
  std::string text = "\ncauses, the costliest first; some tell of the same time\n";
  for (const Cause& cause : causes)
    AppendLine(absl::StrFormat("  %8s  %9.3f ms  %s", PercentText(cause.share),
                               cause.ns_per_step * 1e-6, cause.text),
               kRowIndent, &text);
  return text;
}

}  // namespace weir::trace
