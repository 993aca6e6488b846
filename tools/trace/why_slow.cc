#include "tools/trace/why_slow.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/replay.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

constexpr double kShareShownMin = 0.001;
constexpr double kErrorTrusted = 0.1;  // of the replay; above it, its figures are hints
// A rank whose acts take more than its peers' by this share of the step is the first thing to look
// at.
constexpr double kStragglerShareOfStep = 0.05;
constexpr double kUneven = 1.25;  // of the mean of the others: one rank has too much to do
// The share of the step from which a gain by slots or links is worth a look before the work itself.
constexpr double kChangeWorthIt = 0.1;
// The least share of what all slots save together that the slots of named registers must save.
constexpr double kOfAllSlotsMin = 0.5;
// The least share of a step that advice is about.
constexpr double kNamedMin = 0.03;
constexpr size_t kOutliersNamed = 3;
constexpr size_t kRowIndent = 24;

// A RankOrder sorts texts that begin with a rank by this rank, so that rank 8 comes before rank 16.
struct RankOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto digits = [](const std::string& text) {
      return std::min(text.size(), text.find_first_not_of("0123456789"));
    };
    return std::make_pair(digits(a), a) < std::make_pair(digits(b), b);
  }
};
using PlaceSet = std::set<std::string, RankOrder>;

std::string Places(const PlaceSet& places) {
  constexpr size_t kShown = 4;
  return Listed(std::vector<std::string>(places.begin(), places.end()), kShown);
}

// A Line is one line of the path: the work of ranks under one name, or one exchange between them,
// in all layers.
struct Line {
  double share = 0;
  double ns = 0;
  std::string before, family, after;  // of the name
  std::set<std::string> names;        // that the family stands for here
  PlaceSet places;                    // "1", or "0 to 1"

  // Returns "`backward layers.*` x4"; for one layer, that layer's own name.
  std::string Name() const {
    if (names.size() == 1) return absl::StrCat("`", *names.begin(), "`");
    return absl::StrCat("`", family, "` x", names.size());
  }
  // Returns "waits for `move layers.1.y` under way, rank 0 to 2, 1 to 3".
  std::string Text() const { return absl::StrCat(before, Name(), after, Places(places)); }
};

std::vector<Line> LinesOf(const CriticalPath& path) {
  struct Gathered {
    Line line;
    std::map<std::string, double> share_of_places;  // of all layers
  };
  std::map<std::tuple<std::string, std::string, std::string>, Gathered> lines_by_name;
  const auto add = [&lines_by_name](const char* before, const std::string& name, const char* after,
                                    const std::string& place, double share, double ns) {
    const std::string family = LayerFamily(name);
    auto& [line, share_of_places] = lines_by_name[{before, family, after}];
    line.before = before;
    line.family = family;
    line.after = after;
    line.share += share;
    line.ns += ns;
    line.names.insert(name);
    share_of_places[place] += share;
  };
  for (const PathActs& acts : path.acts) {
    add("", acts.function, " on rank ", absl::StrCat(acts.rank), acts.share, acts.ns_per_step);
  }
  for (const PathEdge& edge : path.edges) {
    const bool token = edge.kind == PathEdge::Kind::kToken;
    add(token ? "waits for " : "waits for a free slot of ", EdgeName(edge),
        token ? " under way, rank " : " given back but not there, rank ",
        absl::StrCat(edge.from, " to ", edge.to), edge.share, edge.ns_per_step);
  }
  std::vector<Line> lines;
  for (auto& [name, gathered] : lines_by_name) {
    auto& [line, share_of_places] = gathered;
    // A line whose places are all small has them all, because a line without any names nobody.
    const bool all_small =
        std::all_of(share_of_places.begin(), share_of_places.end(),
                    [](const auto& place) { return place.second < kShareShownMin; });
    for (const auto& [place, share] : share_of_places) {
      if (all_small || share >= kShareShownMin) line.places.insert(place);
    }
    lines.push_back(std::move(line));
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.share > b.share; });
  return lines;
}

template <typename Key>
std::string Shares(const std::map<Key, double>& shares, const char* before) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [key, share] : shares) {
    if (share >= kShareShownMin) order.emplace_back(-share, absl::StrCat(before, key));
  }
  std::sort(order.begin(), order.end());
  return absl::StrJoin(order, ", ", [](std::string* out, const auto& part) {
    absl::StrAppend(out, part.second, " ", PercentText(-part.first));
  });
}

void AppendOutliers(const WhySlow& why, std::string* text) {
  if (why.outliers.empty()) return;
  *text += "\n";
  for (size_t i = 0; i < std::min(why.outliers.size(), kOutliersNamed); ++i) {
    const OutlierStep& outlier = why.outliers[i];
    AppendLine(
        absl::StrFormat(
            "step %d is an outlier: it took %s, %.0f times the median of %s. What follows is "
            "of the other steps; --step %d shows its path",
            NumberOfStep(outlier.step), MillisecondsText(outlier.ns),
            outlier.ns / why.median_step_ns, MillisecondsText(why.median_step_ns),
            NumberOfStep(outlier.step)),
        2, text);
  }
  if (why.outliers.size() > kOutliersNamed)
    absl::StrAppend(text, "and ", why.outliers.size() - kOutliersNamed, " more outliers\n");
}

void AppendPath(const CriticalPath& path, size_t rows_max, std::string* text) {
  *text += "\n";
  AppendLine(
      absl::StrCat("critical path of ",
                   path.first_step == path.last_step
                       ? absl::StrCat("step ", NumberOfStep(path.first_step))
                       : absl::StrCat("a step, mean of steps ", NumberOfStep(path.first_step),
                                      " to ", NumberOfStep(path.last_step),
                                      path.left_out.empty() ? "" : " without outliers"),
                   ": what held the job at each moment of ", MillisecondsText(path.step_ns)),
      2, text);
  const std::vector<Line> lines = LinesOf(path);
  double left_out = 0;
  size_t num_left_out = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    if (i < rows_max && line.share >= kShareShownMin) {
      AppendLine(absl::StrFormat("  %8s  %9.3f ms  %s", PercentText(line.share), line.ns * 1e-6,
                                 line.Text()),
                 kRowIndent, text);
    } else {
      left_out += line.share;
      ++num_left_out;
    }
  }
  if (left_out >= kShareShownMin) {
    absl::StrAppendFormat(text, "  %8s  %9.3f ms  (%d more)\n", PercentText(left_out),
                          left_out * path.step_ns * 1e-6, num_left_out);
  }
  std::map<std::string, double> phases = path.phases;
  if (path.in_transfer > 0) phases["on the way between ranks"] = path.in_transfer;
  if (path.between_acts > 0) phases["between acts"] = path.between_acts;
  AppendLine("  by phase: " + Shares(phases, ""), 4, text);
  if (path.ranks.size() > 1) AppendLine("  by rank: " + Shares(path.ranks, "rank "), 4, text);
}

const DeviceSpeed* SpeedOf(const SpeedReport& speeds, RankId rank) {
  for (const DeviceSpeed& device : speeds.devices) {
    if (device.rank == rank) return &device;
  }
  return nullptr;
}

// Returns the reason why a rank is slow: whether its thread is kept from a core while it acts.
std::string SlowBecause(const SpeedReport& speeds, RankId rank) {
  const DeviceSpeed* device = SpeedOf(speeds, rank);
  if (device == nullptr || device->core_share < 0)
    return "its device or its core is slower, or shared";
  if (device->core_share >= kHasACoreMin)
    return "it has a core all the time, so its device is slower, or its memory is shared";
  return absl::StrFormat(
      "it has a core for only %.0f %% of that time: other programs use the core, or the process is "
      "stopped now and then",
      device->core_share * 100);
}

std::string RanksText(const std::vector<RankId>& ranks) {
  std::vector<std::string> names;
  for (const RankId rank : ranks) names.push_back(absl::StrCat(rank));
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", Listed(names, 4));
}

void AppendStragglers(const SpeedReport& speeds, size_t rows_max, std::string* text) {
  if (speeds.stragglers.empty()) return;
  *text += "\nslow ranks: the same acts, on other ranks\n";
  for (const Straggler& straggler : speeds.stragglers) {
    AppendLine(absl::StrFormat("  rank %d: its acts take %.2f times as long as the same acts of "
                               "%s, %s a step more; %s",
                               straggler.rank.value(), straggler.factor, RanksText(straggler.peers),
                               MillisecondsText(straggler.more_ns_per_step),
                               SlowBecause(speeds, straggler.rank)),
               4, text);
    for (size_t i = 0; i < straggler.functions.size() && i < rows_max; ++i) {
      const SlowFunction& function = straggler.functions[i];
      if (function.more_ns_per_step <= 0) break;
      AppendLine(
          absl::StrFormat("  %9.3f ms a step more  `%s`: an act takes %s, elsewhere %s",
                          function.more_ns_per_step * 1e-6, function.name,
                          MillisecondsText(function.own_ns), MillisecondsText(function.others_ns)),
          kRowIndent, text);
    }
  }
}

// Returns the name of the mesh axis along which two devices are neighbours, from "stage 0, dp=0,
// tp=0"; empty if they differ in more than one place or the trace does not say.
std::string AxisBetween(const WhySlow& why, RankId from, RankId to) {
  const auto a = why.devices.find(from), b = why.devices.find(to);
  if (a == why.devices.end() || b == why.devices.end()) return "";
  const std::vector<std::string> here = absl::StrSplit(a->second, ", "),
                                 there = absl::StrSplit(b->second, ", ");
  if (here.size() != there.size()) return "";
  std::string axis;
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i] == there[i]) continue;
    if (!axis.empty()) return "";
    axis = absl::StartsWith(here[i], "stage ") ? "pp" : here[i].substr(0, here[i].find('='));
  }
  return axis;
}

// `gain` is the gain of the best change that touches communication.
std::string AdviceOnExchanges(const WhySlow& why, double gain) {
  std::map<std::string, Line> exchanges;
  for (const PathEdge& edge : why.path.edges) {
    if (edge.serves_reports) continue;
    const std::string name = EdgeName(edge);
    Line& line = exchanges[LayerFamily(name)];
    line.family = LayerFamily(name);
    line.names.insert(name);
    line.share += edge.share;
    line.places.insert(AxisBetween(why, edge.from, edge.to));
  }
  const auto most = std::max_element(
      exchanges.begin(), exchanges.end(),
      [](const auto& a, const auto& b) { return a.second.share < b.second.share; });
  if (most == exchanges.end() || most->second.share < kNamedMin)
    return absl::StrCat("communication costs up to ", PercentText(gain),
                        " of a step, and no exchange stands out: try another layout");
  const Line& line = most->second;
  const std::string axis = line.places.size() == 1 ? *line.places.begin() : "";
  const std::string what = absl::StrCat(
      "communication costs up to ", PercentText(gain),
      " of a step and can be changed; the longest on the critical path is ", line.Name(),
      axis.empty() ? "" : absl::StrCat(" over axis ", axis), " (", PercentText(line.share), "): ");
  if (axis == "pp")
    return absl::StrCat(what,
                        "cut the stages elsewhere, or take more micro-batches to hide it behind");
  return absl::StrCat(
      what, axis.empty() ? "change the rules" : absl::StrCat("change the rules that name ", axis),
      " (`weir plan` names the rule behind each exchange and its bytes), or take more "
      "micro-batches to hide it behind");
}

// Returns the share of the path in exchanges that a change of layout could spare.
double ExchangesOf(const CriticalPath& path) {
  double share = 0;
  for (const PathEdge& edge : path.edges) share += edge.serves_reports ? 0 : edge.share;
  for (const PathActs& acts : path.acts)
    share += acts.phase == "boxing" && !acts.serves_reports ? acts.share : 0;
  return share;
}

std::string AdviceOnSlots(const WhySlow& why) {
  const SlotGain slots = FindSlotGain(why);
  const std::string solve = "runtime.registers=SOLVED lets the compiler choose their counts";
  if (slots.named == nullptr) {
    return absl::StrCat("registers are too few: more slots save up to ", PercentText(slots.most),
                        "; ", solve);
  }
  return absl::StrCat("registers are too few: ", slots.named->about, " saves ",
                      PercentText(slots.named->gain),
                      " (any number everywhere: ", PercentText(slots.most), "); ", solve);
}

std::string AdviceOnWork(const WhySlow& why) {
  CriticalPath work = why.path;
  std::erase_if(work.acts, [](const PathActs& acts) { return acts.serves_reports; });
  const std::vector<Line> lines = LinesOf(work);
  const auto most = std::find_if(lines.begin(), lines.end(),
                                 [](const Line& line) { return line.before.empty(); });
  std::string text = "work is in the way";
  if (most != lines.end() && most->share >= kNamedMin) {
    absl::StrAppend(&text, ", most of all ", most->Name(), " on rank ", Places(most->places), " (",
                    PercentText(most->share), " of the step)");
  }
  double all = 0;
  for (const DeviceSpeed& device : why.speeds.devices) all += device.busy_ns_per_step;
  for (const DeviceSpeed& device : why.speeds.devices) {
    const double others = (all - device.busy_ns_per_step) /
                          static_cast<double>(std::max<size_t>(1, why.speeds.devices.size() - 1));
    if (why.speeds.devices.size() > 1 && device.busy_ns_per_step > kUneven * others) {
      return absl::StrFormat(
          "%s; rank %d works %s a step, the others %s: give it less (another cut or layout), or "
          "more threads",
          text, device.rank.value(), MillisecondsText(device.busy_ns_per_step),
          MillisecondsText(others));
    }
  }
  return absl::StrCat(
      text, ": make it faster, give devices more threads, or spread it over more devices");
}

void AppendWhatIfs(const WhySlow& why, size_t rows_max, std::string* text) {
  if (why.replayed_step_ns == 0) {
    absl::StrAppend(text,
                    "\nwhat if: the recorded run, replayed, came to a standstill, so nothing can "
                    "be predicted\n");
    return;
  }
  *text += "\n";
  AppendLine(
      absl::StrCat("what if: the recorded run replayed with one change. Without any it takes ",
                   MillisecondsText(why.replayed_step_ns), " per step, recorded ",
                   MillisecondsText(why.recorded_step_ns), ": ",
                   absl::StrFormat("%+.1f %%", why.replay_error() * 100),
                   std::abs(why.replay_error()) > kErrorTrusted
                       ? ", so take what follows as hints only"
                       : "",
                   why.steps_of_changes > 0 ? absl::StrCat("; changes are replayed over the last ",
                                                           why.steps_of_changes, " steps")
                                            : ""),
      2, text);
  if (why.what_ifs.empty()) {
    absl::StrAppend(
        text, "  nothing that was tried (slots, links, single ops for nothing) gains 0.2 %\n");
    return;
  }
  absl::StrAppend(text, "    saves    per step     memory  change\n");
  for (size_t i = 0; i < why.what_ifs.size() && i < rows_max; ++i) {
    const WhatIfRow& row = why.what_ifs[i];
    if (!row.finished) {
      AppendLine("    would come to a standstill: " + row.about, kRowIndent, text);
      continue;
    }
    const bool bound = absl::StrContains(row.spec, "*=+1000");
    const std::string memory =
        row.more_bytes == 0 || bound
            ? ""
            : absl::StrCat(row.more_bytes > 0 ? "+" : "-",
                           BytesText(static_cast<double>(std::abs(row.more_bytes))));
    AppendLine(absl::StrFormat("  %7s  %10s  %9s  %s", PercentText(row.gain),
                               MillisecondsText(row.step_ns), memory, row.about),
               34, text);
  }
  if (const std::string advice = Advice(why); !advice.empty())
    AppendLine("  so: " + advice, 6, text);
}

ActCost FindActCost(const RecordedRun& run) {
  constexpr size_t kShortestPart = 10;
  ActCost found;
  const auto steps = static_cast<double>(run.last_step - run.first_step + 1);
  for (const RecordedRank& rank : run.ranks) {
    std::vector<int64_t> ns;
    double sum = 0;
    for (const RecordedAct& act : rank.acts) {
      if (act.step < run.first_step || act.step > run.last_step) continue;
      ns.push_back(act.end - act.start);
      sum += static_cast<double>(act.end - act.start);
    }
    const double per_step = static_cast<double>(ns.size()) / steps;
    if (per_step <= found.acts_per_step) continue;
    const auto shortest = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / kShortestPart);
    std::nth_element(ns.begin(), shortest, ns.end());
    found = {sum / static_cast<double>(ns.size()), static_cast<double>(*shortest), per_step};
  }
  return found;
}

double BusiestQueue(const RecordedRun& run) {
  const size_t first = run.times.FirstSteady();
  double most = 0;
  for (const RecordedRank& rank : run.ranks) {
    std::vector<int64_t> busy(static_cast<size_t>(rank.num_queues), 0);
    for (const RecordedAct& act : rank.acts) {
      busy[run.actors[act.actor].queue.value() - rank.first_queue] +=
          run.times.Inside(act.start, act.end, first);
    }
    for (const int64_t ns : busy) most = std::max(most, static_cast<double>(ns));
  }
  return most / std::max(1.0, static_cast<double>(run.times.SumFrom(first)));
}

}  // namespace

std::vector<PathLine> PathLines(const CriticalPath& path) {
  std::vector<PathLine> lines;
  for (const Line& line : LinesOf(path)) lines.push_back({line.share, line.ns, line.Text()});
  return lines;
}

absl::StatusOr<WhySlow> FindWhySlow(const TraceReader& trace, const WhySlowOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const RecordedRun run, ReadRecordedRun(trace));
  return FindWhySlow(run, options);
}

absl::StatusOr<WhySlow> FindWhySlow(const RecordedRun& run, const WhySlowOptions& options) {
  int64_t first = std::min(run.first_step + 1, run.last_step), last = run.last_step;
  if (options.step.has_value()) {
    if (*options.step < run.first_step || *options.step > run.last_step) {
      const int64_t asked = NumberOfStep(*options.step);
      return Rejected({"W0534", absl::StrCat("--step ", asked),
                       absl::StrCat("a step from ", NumberOfStep(run.first_step), " to ",
                                    NumberOfStep(run.last_step), ", which the trace holds in full"),
                       absl::StrCat(asked), ""});
    }
    first = last = *options.step;
  }
  const auto tell = [&options](const char* doing) {
    if (options.tell) options.tell(doing);
  };
  tell("replays the run");
  const Replayer replayer(&run);
  WhySlow why;
  tell("replays a step as it was planned");
  why.as_planned = replayer.PlayAsPlanned();
  tell("follows the critical paths of steps");
  why.steps = FindStepPaths(run);
  tell("divides the time of a step by cause");
  why.parts = FindStepParts(run);
  tell("looks for the roots of waits");
  why.roots = FindWaitRoots(run);
  tell("finds what holds actors up");
  why.pressure = FindBackPressure(run);
  tell("measures transfers, memory and ranks");
  why.transfers = FindTransfers(run);
  why.memory = FindMemoryUse(run, options.step.value_or(why.steps.typical_step));
  why.speeds = CompareRanks(run);
  why.act_cost = FindActCost(run);
  why.busiest_queue = BusiestQueue(run);
  for (const RecordedRank& rank : run.ranks) {
    constexpr absl::string_view kBeforeDevice = " · ";
    if (const size_t at = rank.name.find(kBeforeDevice.data()); at != std::string::npos) {
      why.devices[rank.rank] = rank.name.substr(at + kBeforeDevice.size());
    }
  }
  std::vector<int64_t> left_out;
  for (const size_t place : run.times.Outliers()) {
    const StepTime& step = run.times.steps[place];
    why.outliers.push_back({step.step, static_cast<double>(step.ns())});
    if (!options.step.has_value()) left_out.push_back(step.step);
  }
  std::stable_sort(why.outliers.begin(), why.outliers.end(),
                   [](const OutlierStep& a, const OutlierStep& b) { return a.ns > b.ns; });
  why.median_step_ns = static_cast<double>(run.times.MedianNs());
  why.path = FindCriticalPath(run, first, last, left_out);
  if (options.step.has_value()) why.segments = NameSegments(run, why.path.segments);
  why.recorded_step_ns = replayer.recorded().step_ns;
  why.replayed_step_ns = replayer.as_it_was().finished ? replayer.as_it_was().step_ns : 0;
  if (replayer.sample_first_step() != run.first_step)
    why.steps_of_changes = run.last_step + 1 - replayer.sample_first_step();
  if (options.what_ifs.empty()) {
    why.what_ifs = TryWhatIfs(replayer, run, why.path, why.speeds.stragglers, options.tell);
    return why;
  }
  for (const std::string& spec : options.what_ifs) {
    WEIR_ASSIGN_OR_RETURN(WhatIfRow row, TryWhatIf(replayer, run, spec));
    why.what_ifs.push_back(std::move(row));
  }
  std::stable_sort(why.what_ifs.begin(), why.what_ifs.end(),
                   [](const WhatIfRow& a, const WhatIfRow& b) { return a.gain > b.gain; });
  return why;
}

std::string EdgeName(const PathEdge& edge) {
  return std::string(
      absl::StripSuffix(edge.name, absl::StrCat(" rank ", edge.from, " to ", edge.to)));
}

SlotGain FindSlotGain(const WhySlow& why) {
  SlotGain slots;
  for (const WhatIfRow& row : why.what_ifs) {
    if (!row.finished || !absl::StartsWith(row.spec, "slots:")) continue;
    slots.most = std::max(slots.most, row.gain);
    if (!absl::StrContains(row.spec, "*=+1000") &&
        (slots.named == nullptr || row.gain > slots.named->gain))
      slots.named = &row;
  }
  slots.most = std::min(slots.most, why.most_by_slots());
  // A change that saves a small part of it would mislead: then many registers need slots.
  if (slots.named != nullptr && slots.named->gain < kOfAllSlotsMin * slots.most)
    slots.named = nullptr;
  return slots;
}

std::string AdviceOnCores(const SpeedReport& speeds) {
  const DeviceSpeed *least = nullptr, *most = nullptr;
  for (const DeviceSpeed& device : speeds.devices) {
    if (device.core_share < 0) continue;
    if (least == nullptr || device.core_share < least->core_share) least = &device;
    if (most == nullptr || device.core_share > most->core_share) most = &device;
  }
  if (most == nullptr || most->core_share >= kHasACoreMin) return "";
  const std::string from = absl::StrFormat("%.0f", least->core_share * 100);
  const std::string to = absl::StrFormat("%.0f", most->core_share * 100);
  const std::string shares =
      most->core_share < kStragglerFactorMin * least->core_share
          ? absl::StrCat("a device has one for ", from == to ? "" : absl::StrCat(from, " to "), to,
                         " %")
          : absl::StrFormat(
                "rank %d has one for only %.0f %%, and rank %d, the best off, for %.0f "
                "%%,",
                least->rank.value(), least->core_share * 100, most->rank.value(),
                most->core_share * 100);
  return absl::StrCat("cores are missing: ", shares,
                      " of the time that it works. Take fewer devices or --threads, or end the "
                      "programs beside it; what the job itself could do better shows once each "
                      "device has a core");
}

std::string Advice(const WhySlow& why) {
  if (why.what_ifs.empty() || why.what_ifs[0].gain <= 0) return "";
  if (const std::string cores = AdviceOnCores(why.speeds); !cores.empty()) return cores;
  if (!why.speeds.stragglers.empty() &&
      why.speeds.stragglers[0].more_ns_per_step >= kStragglerShareOfStep * why.recorded_step_ns) {
    const Straggler& slow = why.speeds.stragglers[0];
    return absl::StrFormat(
        "rank %d is slow: its acts take %.1f times as long as the same acts of %s; %s. Look at its "
        "machine first",
        slow.rank.value(), slow.factor, RanksText(slow.peers), SlowBecause(why.speeds, slow.rank));
  }
  // No change makes an op take no time, but slots and layouts can be changed, so changes of these
  // come first if they gain enough.
  double slots = 0, exchanges = 0, work = 0;
  for (const WhatIfRow& row : why.what_ifs) {
    const bool exchange = absl::StartsWith(row.spec, "link:") || row.spec == "free:boxing";
    double& gain = absl::StartsWith(row.spec, "slots:") ? slots : exchange ? exchanges : work;
    gain = std::max(gain, row.gain);
  }
  if (ExchangesOf(why.path) < kNamedMin) exchanges = 0;
  slots = std::min(slots, why.most_by_slots());
  if (std::max({slots, exchanges, work}) < kNamedMin) {
    return absl::StrFormat(
        "nothing that was tried and that can be changed saves %.0f %% of a step or more",
        kNamedMin * 100);
  }
  if (slots >= std::max(exchanges, kChangeWorthIt) || (slots >= exchanges && slots >= work))
    return AdviceOnSlots(why);
  if (exchanges >= kChangeWorthIt || exchanges > work) return AdviceOnExchanges(why, exchanges);
  return AdviceOnWork(why);
}

std::string ToText(const WhySlow& why, size_t rows_max) {
  std::string text;
  AppendOutliers(why, &text);
  AppendPath(why.path, rows_max, &text);
  if (!why.pressure.chain.empty()) {
    text += "\n";
    AppendLine(PressureText(why.pressure), 2, &text);
  }
  AppendStragglers(why.speeds, rows_max, &text);
  AppendWhatIfs(why, rows_max, &text);
  return text;
}

}  // namespace weir::trace
