#include "tools/trace/trace_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/pipeline_bubble.h"
#include "tools/trace/report_text.h"
#include "tools/trace/step_times.h"
#include "tools/trace/trace_reader.h"

namespace weir::trace {
namespace {

constexpr size_t kExposedIndent = 46;
constexpr size_t kWaitIndent = 25;
// The name of the schedule whose backward passes are in two halves.
constexpr char kScheduleThatSplitsBackward[] = "zero-bubble";
// The least share of the time in acts that must be measured. With a smaller share, the acts whose
// CPU time is known are mainly acts that others interrupted.
constexpr double kMeasuredMin = 0.3;
constexpr double kCoreShareMin = 0.75;  // with less a device is kept from its work

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

// A Window is the steady steps of a trace.
struct Window {
  StepTimes times;
  size_t first = 0;  // of times.steps
  int64_t Inside(const TraceSlice& s) const { return Inside(s.begin, s.end); }
  int64_t Inside(int64_t from, int64_t to) const { return times.Inside(from, to, first); }
  int64_t ns() const { return times.SumFrom(first); }
};

Window SteadyWindow(const TraceReader& reader, TraceReport* report) {
  Window window{FindStepTimes(reader)};
  if (window.times.steps.empty()) return window;
  window.first = window.times.FirstSteady();
  report->first_step = window.times.steps[window.first].step;
  if (window.first > 0) report->left_out_step = window.times.steps[window.first - 1].step;
  report->last_step = window.times.steps.back().step;
  return window;
}

std::string TextOf(const TraceSlice& slice, const char* name) {
  auto at = slice.texts.find(name);
  return at == slice.texts.end() ? std::string() : at->second;
}

using FlowEnds = absl::flat_hash_map<uint64_t, const TraceFlowEnd*>;

// Returns the last end of each flow.
FlowEnds ByFlow(const std::vector<TraceFlowEnd>& ends) {
  FlowEnds by_flow;
  by_flow.reserve(ends.size());
  for (const TraceFlowEnd& end : ends) by_flow[end.flow] = &end;
  return by_flow;
}

// Returns the far end of the flow that a wait was for; null if the wait was for no other rank, or
// the end is not in the trace.
const TraceFlowEnd* FarEnd(const TraceSlice& wait, const FlowEnds& ends) {
  auto flow = wait.numbers.find(kTraceFlow);
  if (flow == wait.numbers.end()) return nullptr;
  auto end = ends.find(static_cast<uint64_t>(flow->second));
  return end == ends.end() ? nullptr : end->second;
}

// Splits "actor 'x' on rank 1" in two.
std::pair<std::string, RankId> HolderParts(const std::string& holder) {
  int rank = -1;
  const size_t at = holder.rfind("rank ");
  if (at == std::string::npos || !absl::SimpleAtoi(holder.substr(at + 5), &rank))
    return {holder, RankId()};
  const size_t begin = holder.find('\''), end = holder.rfind('\'');
  return {end > begin ? holder.substr(begin + 1, end - begin - 1) : std::string(),
          rank >= 0 ? RankId(rank) : RankId()};
}

// WaitSums adds up the waits of a trace.
class WaitSums {
 public:
  WaitSums(const TraceReader& reader, const Window& window, const std::vector<RankClass>& classes)
      : reader_(reader),
        window_(window),
        senders_(ByFlow(reader.senders)),
        takers_(ByFlow(reader.takers)) {
    for (const RankClass& of : classes) classes_[of.rank] = &of.ranks;
  }

  // Returns the ranks for which a rank of the trace stands.
  const RankRanges& ClassOf(RankId rank) const { return *classes_.at(rank); }

  // Adds a wait of `rank`, `ns` of it in the window. `busy` is when queues of the rank worked
  // meanwhile, merged and in order.
  void Add(RankId rank, const TraceSlice& slice, double ns, const Intervals& busy) {
    if (slice.category == kTraceWaitsForGroup) {
      AddGroup(rank, slice, ns);
      // The wait ends when the last rank comes, so no part of the wait is after sending.
      return AddExposed(TextOf(slice, "waiting actor"), slice, ns, nullptr, busy);
    }
    const bool input = slice.category == kTraceWaitsForInput;
    const WaitReport::Kind kind = input ? WaitReport::Kind::kInput : WaitReport::Kind::kCredit;
    const TraceFlowEnd* far = FarEnd(slice, input ? senders_ : takers_);
    const std::string holder = Holder(slice, far);
    WaitReport& wait = waits_[{rank, kind, TextOf(slice, "register"), holder}];
    wait.rank = rank;
    wait.kind = kind;
    wait.register_name = TextOf(slice, "register");
    wait.holder = holder;
    wait.total_ns += ns;
    ++wait.times;
    if (input && slice.texts.count(kTraceBoxing) > 0)
      AddExposed(TextOf(slice, kTraceBoxing), slice, ns, far, busy);
  }

  // Precondition: the report has its devices and steps already.
  void Report(TraceReport* report) const {
    const double length = std::max(static_cast<double>(window_.ns()), 1.0);
    for (auto [key, wait] : waits_) {
      wait.share = wait.total_ns / length;
      report->waits.push_back(std::move(wait));
    }
    for (const auto& [boxing, exposed] : exposed_) {
      const double share =
          exposed.total_ns / (length * static_cast<double>(report->NumRanksHere()));
      report->exposed.push_back({boxing, share * report->step_ns, share,
                                 exposed.sent_ns / exposed.total_ns, exposed.times});
    }
    std::sort(report->waits.begin(), report->waits.end(),
              [](const WaitReport& a, const WaitReport& b) {
                return std::tie(b.total_ns, a.rank, a.register_name) <
                       std::tie(a.total_ns, b.rank, b.register_name);
              });
    std::sort(report->exposed.begin(), report->exposed.end(),
              [](const ExposedReport& a, const ExposedReport& b) {
                return std::tie(b.share, a.boxing) < std::tie(a.share, b.boxing);
              });
  }

 private:
  // A collective needs the inputs of all ranks of its group.
  void AddGroup(RankId rank, const TraceSlice& slice, double ns) {
    const std::string name = absl::StrCat("collective '", TextOf(slice, "waiting actor"), "'");
    WaitReport& wait =
        waits_[{rank, WaitReport::Kind::kInput, name, "the other ranks of its group"}];
    wait.rank = rank;
    wait.kind = WaitReport::Kind::kInput;
    wait.register_name = name;
    wait.holder = "the other ranks of its group";
    wait.total_ns += ns;
    ++wait.times;
  }
  struct Exposed {
    double total_ns = 0;
    double sent_ns = 0;
    int64_t times = 0;
  };
  // Adds the part of a wait that no work hid. `far` is the act that sent the token, or null.
  void AddExposed(const std::string& boxing, const TraceSlice& slice, double ns,
                  const TraceFlowEnd* far, const Intervals& busy) {
    const double exposed_ns = ns - Hidden(slice.begin, slice.end, busy);
    if (exposed_ns <= 0) return;
    Exposed& exposed = exposed_[boxing];
    exposed.total_ns += exposed_ns;
    ++exposed.times;
    if (far == nullptr) return;
    const int64_t sent = std::max(far->end, slice.begin);
    exposed.sent_ns +=
        static_cast<double>(window_.Inside(sent, slice.end)) - Hidden(sent, slice.end, busy);
  }
  // Returns the part of [from, to) in the window in which queues of the rank worked.
  double Hidden(int64_t from, int64_t to, const Intervals& busy) const {
    int64_t ns = 0;
    auto at = std::upper_bound(busy.begin(), busy.end(), from,
                               [](int64_t t, const auto& interval) { return t < interval.second; });
    for (; at != busy.end() && at->first < to; ++at)
      ns += window_.Inside(std::max(from, at->first), std::min(to, at->second));
    return static_cast<double>(ns);
  }
  // A process does not know the actors of others, but the trace of the job does. A rank that
  // another one stands for keeps its own name.
  std::string Holder(const TraceSlice& slice, const TraceFlowEnd* far) const {
    const std::string told = TextOf(slice, "holder");
    if (far == nullptr) return told;
    const auto process = reader_.processes.find(far->process);
    if (process == reader_.processes.end() || !process->second.rank.has_value()) return told;
    RankId rank = process->second.rank;
    if (const RankId named = HolderParts(told).second;
        named.has_value() && classes_.at(rank)->Has(named))
      rank = named;
    return absl::StrCat("actor '", far->actor.text(), "' on rank ", rank);
  }

  const TraceReader& reader_;
  const Window window_;
  const FlowEnds senders_, takers_;
  std::map<RankId, const RankRanges*> classes_;  // by the rank that stands for them
  std::map<std::tuple<RankId, WaitReport::Kind, std::string, std::string>, WaitReport> waits_;
  std::map<std::string, Exposed> exposed_;  // by boxing
};

// Returns the time of all acts of a process, merged and in order.
Intervals BusyIntervals(const TraceProcess& process) {
  Intervals acts, busy;
  for (const TraceSlice& slice : process.slices) {
    if (slice.category == kTraceAct) acts.emplace_back(slice.begin, slice.end);
  }
  std::sort(acts.begin(), acts.end());
  for (const auto& [begin, end] : acts) {
    if (!busy.empty() && begin <= busy.back().second) {
      busy.back().second = std::max(busy.back().second, end);
    } else {
      busy.emplace_back(begin, end);
    }
  }
  return busy;
}

// Adds the device of a process, or one of its queues (none: all acts), and the waits there. Returns
// the busy share.
double ReportDevice(const TraceProcess& process, QueueId queue, const Window& window,
                    const Intervals& others, WaitSums* waits, TraceReport* report) {
  double busy = 0, input = 0, credit = 0, measured = 0, cpu = 0;
  for (const TraceSlice& slice : process.slices) {
    if (const auto on = slice.numbers.find(kTraceQueue);
        queue.has_value() && (on == slice.numbers.end() || on->second != queue.value()))
      continue;
    const double ns = static_cast<double>(window.Inside(slice));
    if (ns == 0) continue;
    if (slice.category == kTraceAct) busy += ns;
    if (auto at = slice.numbers.find(kTraceCpu); at != slice.numbers.end() && at->second >= 0) {
      measured += static_cast<double>(slice.end - slice.begin);
      cpu += static_cast<double>(at->second) * 1e3;
    }
    const bool for_input =
        slice.category == kTraceWaitsForInput || slice.category == kTraceWaitsForGroup;
    if (!for_input && slice.category != kTraceWaitsForCredit) continue;
    (for_input ? input : credit) += ns;
    waits->Add(process.rank, slice, ns, others);
  }
  const double length = std::max(static_cast<double>(window.ns()), 1.0);
  DeviceReport& device = report->devices.emplace_back();
  device.rank = process.rank;
  device.queue = queue;
  const std::string name = NameOfClass(process.name, waits->ClassOf(process.rank));
  device.name = queue.has_value() ? absl::StrCat(name, ", queue ", queue) : name;
  if (queue.value() <= 0) device.acts_dropped = process.acts_dropped;
  if (measured > kMeasuredMin * busy) device.core_share = std::min(1.0, cpu / measured);
  device.busy = busy / length;
  device.waits_for_input = input / length;
  device.waits_for_credit = credit / length;
  device.between_acts =
      std::max(0.0, 1 - device.busy - device.waits_for_input - device.waits_for_credit);
  return device.busy;
}

// Adds the device of a process, or each of its queues. Returns the share of the time in which it
// worked.
double ReportRank(const TraceProcess& process, int num_queues, const Window& window,
                  WaitSums* waits, TraceReport* report) {
  if (num_queues <= 1 || num_queues > plan_limits::kQueuesMax)
    return ReportDevice(process, QueueId(), window, {}, waits, report);
  const Intervals busy = BusyIntervals(process);
  for (const QueueId queue : IdRange<QueueId>(num_queues))
    ReportDevice(process, queue, window, busy, waits, report);
  int64_t ns = 0;
  for (const auto& [begin, end] : busy) ns += window.Inside(begin, end);
  return static_cast<double>(ns) / std::max(static_cast<double>(window.ns()), 1.0);
}

// Returns the name of one row of equal things in many layers: "move layers.*.y x4".
std::string NameOfAll(const std::string& family, const std::set<std::string>& names) {
  return names.size() == 1 ? *names.begin() : absl::StrCat(family, " x", names.size());
}

void AppendExposed(const TraceReport& report, size_t rows_max, std::string* text) {
  struct Row {
    double ns_per_step = 0, share = 0, sent = 0;
    std::set<std::string> names;
  };
  std::map<std::string, Row> by_family;
  Row all, left_out;
  const auto add = [](double ns, double share, double sent, Row* row) {
    row->ns_per_step += ns;
    row->share += share;
    row->sent += sent;
  };
  for (const ExposedReport& e : report.exposed) {
    Row& row = by_family[LayerFamily(e.boxing)];
    add(e.ns_per_step, e.share, e.share * e.share_sent, &row);
    add(e.ns_per_step, e.share, e.share * e.share_sent, &all);
    row.names.insert(e.boxing);
  }
  std::vector<std::pair<std::string, Row>> rows(by_family.begin(), by_family.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.share > b.second.share; });
  AppendLine(
      absl::StrCat("\nexposed communication, mean of ", Counted(report.NumRanksHere(), "device"),
                   ": waiting for another rank with nothing else to do, because a message is on "
                   "its way or that rank is late, and how much of that after it had sent"),
      2, text);
  absl::StrAppend(text, "  ms per step  share of step  after sending  boxing\n");
  const auto append = [text](const Row& row, const std::string& name) {
    AppendLine(
        absl::StrFormat("  %11.3f  %13s  %13s  %s", row.ns_per_step * 1e-6, PercentText(row.share),
                        PercentText(row.sent / std::max(row.share, 1e-12)), name),
        kExposedIndent, text);
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i].second;
    if (i < rows_max) append(row, NameOfAll(rows[i].first, row.names));
    if (i >= rows_max) add(row.ns_per_step, row.share, row.sent, &left_out);
  }
  if (rows.size() > rows_max) append(left_out, absl::StrCat("(", rows.size() - rows_max, " more)"));
  append(all, "(all)");
}

void AppendWaits(const TraceReport& report, size_t rows_max, std::string* text) {
  struct Row {
    double share = 0;
    std::string before, family, after;
    std::set<std::string> names;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Row> by_name;
  for (const WaitReport& wait : report.waits) {
    const bool input = wait.kind == WaitReport::Kind::kInput;
    const auto [actor, rank] = HolderParts(wait.holder);
    std::string name(absl::StripSuffix(
        wait.register_name,
        absl::StrCat(" rank ", input ? rank : wait.rank, " to ", input ? wait.rank : rank)));
    Row row;
    row.before = absl::StrCat("rank ", wait.rank, " for ", input ? "" : "a free slot of ");
    row.family = LayerFamily(name);
    row.after = absl::StrCat(input ? " from " : ", held by ",
                             rank.has_value() && rank != wait.rank ? absl::StrCat("rank ", rank)
                             : actor.empty()                       ? wait.holder
                                             : absl::StrCat("`", LayerFamily(actor), "`"));
    Row& sum = by_name.try_emplace({row.before, row.family, row.after}, row).first->second;
    sum.share += wait.share;
    sum.names.insert(std::move(name));
  }
  std::vector<Row> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.share > b.share; });
  absl::StrAppend(
      text, rows.empty() ? "\nno waits worth a name\n" : "\nworst waits, per step of that rank\n");
  for (size_t i = 0; i < rows.size() && i < rows_max; ++i) {
    AppendLine(absl::StrFormat("  %7s  %9.3f ms  %s%s%s", PercentText(rows[i].share),
                               rows[i].share * report.step_ns * 1e-6, rows[i].before,
                               NameOfAll(rows[i].family, rows[i].names), rows[i].after),
               kWaitIndent, text);
  }
}

void AppendDevices(const TraceReport& report, std::string* text) {
  size_t columns = 0;  // of the longest name; " · " is one byte longer than its columns
  for (const DeviceReport& device : report.devices) columns = std::max(columns, device.name.size());
  bool cores = false;
  for (const DeviceReport& device : report.devices) cores = cores || device.core_share >= 0;
  absl::StrAppend(text, std::string(columns, ' '),
                  "    busy   waits for: input   credit   between acts",
                  cores ? "   has a core" : "", "\n");
  for (const DeviceReport& device : report.devices) {
    const bool wide = absl::StrContains(device.name, "·");
    absl::StrAppendFormat(text, "%s%s  %6s   %16s   %6s   %12s", device.name,
                          std::string(columns - device.name.size() + (wide ? 0 : 1), ' '),
                          PercentText(device.busy), PercentText(device.waits_for_input),
                          PercentText(device.waits_for_credit), PercentText(device.between_acts));
    if (cores)
      absl::StrAppendFormat(text, "   %10s",
                            device.core_share < 0 ? "" : PercentText(device.core_share));
    absl::StrAppend(text, "\n");
    if (device.acts_dropped > 0)
      absl::StrAppend(text, "  ", Counted(device.acts_dropped, "older act"), " not kept\n");
  }
  const bool short_of_cores = cores && std::all_of(report.devices.begin(), report.devices.end(),
                                                   [](const DeviceReport& device) {
                                                     return device.core_share < kCoreShareMin;
                                                   });
  if (!short_of_cores) return;
  AppendLine(
      "no device has a core all the time that it works: there are more threads than cores, or "
      "other programs use them, and the "
      "figures below tell of that as much as of the job",
      2, text);
}

// Returns the ranks of the job that the trace lacks.
std::vector<std::string> MissingRanks(const TraceReport& report) {
  std::vector<std::string> missing;
  for (const RankId rank : RanksInNoClass(report.num_ranks, report.classes))
    missing.push_back(absl::StrCat(rank));
  return missing;
}

// Returns the classes of the ranks that the trace holds, ascending.
std::vector<RankClass> ClassesOf(const TraceReader& reader) {
  std::map<RankId, RankClass> classes;
  for (const auto& [track, process] : reader.processes) {
    if (!process.rank.has_value()) continue;
    const auto facts = reader.plans.find(process.rank);
    classes[process.rank] = facts == reader.plans.end() ? ClassOfItself(process.rank)
                                                        : ClassOf(process.rank, facts->second);
  }
  std::vector<RankClass> sorted;
  for (auto& [rank, of] : classes) sorted.push_back(std::move(of));
  return sorted;
}

// Sets the bubble of even stages by the formula of the schedule. There is none for stages side by
// side, whose bubble depends on how the ways through them meet.
void SetBubbleFormula(const TraceReader& reader, TraceReport* report) {
  report->stages_in_a_row = reader.JobNumber(kTraceStagesInARow);
  if (report->stages_in_a_row <= 0) report->stages_in_a_row = report->num_stages;
  if (report->stages_in_a_row != report->num_stages) return;
  const bool splits = report->schedule == kScheduleThatSplitsBackward;
  report->virtual_stages = std::max<int64_t>(1, reader.JobNumber(kTraceVirtualStages));
  const double p = static_cast<double>(report->num_stages),
               m = static_cast<double>(report->micro_batches),
               v = splits ? 3 : static_cast<double>(report->virtual_stages);
  report->bubble_formula = (p - 1) / (m * v + p - 1);
  report->bubble_formula_text = splits                       ? "(p-1)/(3m+p-1)"
                                : report->virtual_stages > 1 ? "(p-1)/(mv+p-1)"
                                                             : "(p-1)/(m+p-1)";
}

}  // namespace

bool TraceReport::by_symmetry() const {
  return std::any_of(classes.begin(), classes.end(),
                     [](const RankClass& of) { return of.ranks.size() > 1; });
}

absl::StatusOr<TraceReport> ReadTraceReport(absl::string_view file) {
  TraceReader reader;
  WEIR_RETURN_IF_ERROR(reader.Read(file));
  return MakeTraceReport(reader);
}

TraceReport MakeTraceReport(const TraceReader& reader) {
  TraceReport report;
  report.plan_id = reader.JobText("plan");
  report.num_ranks = static_cast<int>(
      std::clamp<int64_t>(reader.JobNumber(kTraceRanks), 0, plan_limits::kRanksMax));
  report.classes = ClassesOf(reader);
  report.num_stages = std::max<int64_t>(1, reader.JobNumber("stages"));
  report.micro_batches = std::max<int64_t>(1, reader.JobNumber("micro-batches"));
  const Window window = SteadyWindow(reader, &report);
  report.window_ns = window.ns();
  WaitSums waits(reader, window, report.classes);
  double idle = 0;
  for (const auto& [track, process] : reader.processes) {
    if (!process.rank.has_value()) continue;
    const auto facts = reader.plans.find(process.rank);
    const int queues = facts == reader.plans.end() ? 1 : facts->second.num_queues();
    idle += std::max(0.0, 1 - ReportRank(process, queues, window, &waits, &report));
  }
  std::sort(report.devices.begin(), report.devices.end(),
            [](const DeviceReport& a, const DeviceReport& b) {
              return std::tie(a.rank, a.queue) < std::tie(b.rank, b.queue);
            });
  report.bubble = idle / std::max(1.0, static_cast<double>(report.NumRanksHere()));
  report.step_ns = static_cast<double>(report.window_ns) /
                   std::max(1.0, static_cast<double>(report.last_step) -
                                     static_cast<double>(report.first_step) + 1);
  report.schedule = reader.JobText(kTraceSchedule);
  SetBubbleFormula(reader, &report);
  report.predicted_bubble = static_cast<double>(reader.JobNumber(kTracePredictedBubble)) * 1e-6;
  if (report.num_stages > 1)
    report.pipeline_bubble = MeasurePipelineBubble(reader, report.first_step, report.last_step);
  waits.Report(&report);
  return report;
}

std::string ToText(const TraceReport& report, size_t waits_max) {
  return absl::StrCat(OverviewText(report), WaitsText(report, waits_max));
}

std::string OverviewText(const TraceReport& report) {
  const int64_t devices = std::max<int64_t>(report.num_ranks, report.NumRanksHere());
  std::string text;
  std::string steps = "no step is whole in the trace";
  if (report.window_ns > 0) {
    steps =
        absl::StrCat(report.first_step == report.last_step
                         ? absl::StrCat("step ", NumberOfStep(report.first_step))
                         : absl::StrCat("steps ", NumberOfStep(report.first_step), " to ",
                                        NumberOfStep(report.last_step), ", ",
                                        MillisecondsText(static_cast<double>(report.window_ns))),
                     ", ", MillisecondsText(report.step_ns), " per step");
    if (report.left_out_step.has_value()) {
      absl::StrAppend(&steps, "; step ", NumberOfStep(*report.left_out_step),
                      ", the first whole one, is left out: it may fill pipelines and caches");
    }
  }
  AppendLine(
      absl::StrCat("plan ", report.plan_id, ": ", Counted(devices, "device"), ", ",
                   Counted(report.num_stages, "stage"), ", ",
                   Counted(report.micro_batches, "micro-batch", "micro-batches"), "; ", steps),
      2, &text);
  if (const std::vector<std::string> missing = MissingRanks(report); !missing.empty()) {
    AppendLine(absl::StrCat(
                   "the trace lacks ", missing.size() == 1 ? "rank " : "ranks ", Listed(missing, 8),
                   missing.size() == 1 ? ": its process ended before it could write it"
                                       : ": their processes ended before they could write it"),
               2, &text);
  }
  if (report.by_symmetry()) AppendLine(SymmetryText(report.classes), 2, &text);
  text += "\n";
  AppendDevices(report, &text);
  if (report.num_stages > 1) {
    const std::string expected =
        report.predicted_bubble > 0
            ? absl::StrCat(PercentText(report.predicted_bubble), " predicted when it was planned")
        : report.bubble_formula > 0
            ? absl::StrCat(PercentText(report.bubble_formula), " by the formula ",
                           report.bubble_formula_text)
            : absl::StrCat("no formula for ", report.num_stages, " stages, ",
                           report.stages_in_a_row, " of them in a row");
    absl::StrAppend(
        &text, "\npipeline", report.schedule.empty() ? "" : absl::StrCat(", ", report.schedule),
        ": bubble ", PercentText(report.pipeline_bubble),
        " of a step, from its first forward act to its last backward act\n  ", expected, "\n");
  }
  return text;
}

std::string WaitsText(const TraceReport& report, size_t waits_max) {
  std::string text;
  if (!report.exposed.empty()) AppendExposed(report, waits_max, &text);
  AppendWaits(report, waits_max, &text);
  return text;
}

}  // namespace weir::trace
