#include "runtime/trace/trace_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/trace/pipeline_bubble.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_reader.h"

namespace weir {
namespace {

// The part of [begin, end) that lies in the window.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t Inside(const TraceSlice& s) const { return Inside(s.begin, s.end); }
  int64_t Inside(int64_t from, int64_t to) const { return std::max<int64_t>(0, std::min(to, end) - std::max(from, begin)); }
};

// Finds the steady window and the steps in it.
Window SteadyWindow(const std::map<uint64_t, TraceProcess>& processes, TraceReport* report) {
  std::map<int64_t, Window> steps;
  for (const auto& [track, process] : processes) {
    for (const TraceSlice& slice : process.slices) {
      auto step = slice.numbers.find("step");
      if (slice.category != kTraceAct || step == slice.numbers.end()) continue;
      auto [at, added] = steps.try_emplace(step->second, Window{slice.begin, slice.end});
      at->second.begin = std::min(at->second.begin, slice.begin);
      at->second.end = std::max(at->second.end, slice.end);
    }
  }
  if (steps.empty()) return {};
  const auto first = steps.begin(), last = std::prev(steps.end());
  report->last_step = last->first;
  Window window{first->second.begin, last->second.end};
  report->first_step = first->first;
  if (steps.size() > 1) {
    window.begin = first->second.end;
    report->first_step = std::next(first)->first;
  }
  return window;
}

std::string TextOf(const TraceSlice& slice, const char* name) {
  auto at = slice.texts.find(name);
  return at == slice.texts.end() ? std::string() : at->second;
}

// The far end of what a wait was for; null if that is no other rank, or not in the trace.
const TraceFlowEnd* FarEnd(const TraceSlice& wait, const TraceFlowEnds& ends) {
  auto flow = wait.numbers.find(kTraceFlow);
  if (flow == wait.numbers.end()) return nullptr;
  auto end = ends.find(static_cast<uint64_t>(flow->second));
  return end == ends.end() ? nullptr : &end->second;
}

// Sums the waits of a trace.
class WaitSums {
 public:
  WaitSums(const TraceReader& reader, const Window& window) : reader_(reader), window_(window) {}

  // A wait of `rank`, `ns` of it in the window.
  void Add(int rank, const TraceSlice& slice, double ns) {
    const bool input = slice.category == kTraceWaitsForInput;
    const WaitReport::Kind kind = input ? WaitReport::Kind::kInput : WaitReport::Kind::kCredit;
    const TraceFlowEnd* far = FarEnd(slice, input ? reader_.senders : reader_.takers);
    const std::string holder = Holder(slice, far);
    WaitReport& wait = waits_[{rank, kind, TextOf(slice, "register"), holder}];
    wait.rank = rank;
    wait.kind = kind;
    wait.register_name = TextOf(slice, "register");
    wait.holder = holder;
    wait.total_ns += ns;
    ++wait.times;
    if (!input || slice.texts.count(kTraceBoxing) == 0) return;
    Exposed& exposed = exposed_[TextOf(slice, kTraceBoxing)];
    exposed.total_ns += ns;
    ++exposed.times;
    if (far != nullptr) {
      exposed.sent_ns += static_cast<double>(window_.Inside(std::max(far->end, slice.begin), slice.end));
    }
  }

  // `length_of` rank's window; the report has its devices and steps already.
  void Report(const std::map<int, double>& length_of, TraceReport* report) const {
    double all_lengths = 0;
    for (const auto& [rank, length] : length_of) all_lengths += length;
    for (auto [key, wait] : waits_) {
      wait.share = wait.total_ns / length_of.at(wait.rank);
      report->waits.push_back(std::move(wait));
    }
    for (const auto& [boxing, exposed] : exposed_) {
      const double share = exposed.total_ns / all_lengths;
      report->exposed.push_back(
          {boxing, share * report->step_ns, share, exposed.sent_ns / exposed.total_ns, exposed.times});
    }
    std::sort(report->waits.begin(), report->waits.end(), [](const WaitReport& a, const WaitReport& b) {
      return std::tie(b.total_ns, a.rank, a.register_name) < std::tie(a.total_ns, b.rank, b.register_name);
    });
    std::sort(report->exposed.begin(), report->exposed.end(), [](const ExposedReport& a, const ExposedReport& b) {
      return std::tie(b.share, a.boxing) < std::tie(a.share, b.boxing);
    });
  }

 private:
  struct Exposed {
    double total_ns = 0;
    double sent_ns = 0;
    int64_t times = 0;
  };
  // A process does not know the actors of others, but the trace of the job does.
  std::string Holder(const TraceSlice& slice, const TraceFlowEnd* far) const {
    if (far != nullptr) {
      auto process = reader_.processes.find(far->process);
      if (process != reader_.processes.end() && process->second.rank >= 0) {
        return absl::StrCat("actor '", far->actor, "' on rank ", process->second.rank);
      }
    }
    return TextOf(slice, "holder");
  }

  const TraceReader& reader_;
  const Window window_;
  std::map<std::tuple<int, WaitReport::Kind, std::string, std::string>, WaitReport> waits_;
  std::map<std::string, Exposed> exposed_;  // by boxing
};

// Adds the device of a process and its waits; returns the length of its window.
double ReportDevice(const TraceProcess& process, const Window& window, WaitSums* waits, TraceReport* report) {
  double busy = 0, rest = 0, input = 0, credit = 0;
  for (const TraceSlice& slice : process.slices) {
    const double ns = static_cast<double>(window.Inside(slice));
    if (ns == 0) continue;
    if (slice.category == kTraceAct) busy += ns;
    if (slice.category == kTraceRest) rest += ns;
    const bool for_input = slice.category == kTraceWaitsForInput;
    if (!for_input && slice.category != kTraceWaitsForCredit) continue;
    (for_input ? input : credit) += ns;
    waits->Add(process.rank, slice, ns);
  }
  const double length = std::max(static_cast<double>(window.end - window.begin) - rest, 1.0);
  DeviceReport& device = report->devices.emplace_back();
  device.rank = process.rank;
  device.name = process.name;
  device.acts_dropped = process.acts_dropped;
  device.busy = busy / length;
  device.waits_for_input = input / length;
  device.waits_for_credit = credit / length;
  device.between_acts = std::max(0.0, 1 - device.busy - device.waits_for_input - device.waits_for_credit);
  report->window_ns = std::max(report->window_ns, static_cast<int64_t>(length));
  return length;
}

std::string Milliseconds(double ns) { return absl::StrFormat("%.3f ms", ns * 1e-6); }
std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }

void AppendExposed(const TraceReport& report, size_t rows_max, std::string* text) {
  absl::StrAppend(text, "\nexposed communication, mean of ", report.devices.size(),
                  " devices: waiting for another rank with nothing else to do, and how much of that after it had sent\n",
                  "  ms per step  share of step  after sending  boxing\n");
  const auto row = [text](const ExposedReport& e) {
    absl::StrAppendFormat(text, "  %11.3f  %13s  %13s  %s\n", e.ns_per_step * 1e-6, Percent(e.share),
                          Percent(e.share_sent), e.boxing);
  };
  ExposedReport all, left_out;
  for (size_t i = 0; i < report.exposed.size(); ++i) {
    const ExposedReport& e = report.exposed[i];
    if (i < rows_max) row(e);
    for (ExposedReport* sum : {&all, &left_out}) {
      if (sum == &left_out && i < rows_max) continue;
      sum->ns_per_step += e.ns_per_step;
      sum->share += e.share;
      sum->share_sent += e.share * e.share_sent;  // weighted; divided below
    }
  }
  for (ExposedReport* sum : {&all, &left_out}) sum->share_sent /= std::max(sum->share, 1e-12);
  if (report.exposed.size() > rows_max) {
    left_out.boxing = absl::StrCat("(", report.exposed.size() - rows_max, " more)");
    row(left_out);
  }
  all.boxing = "(all)";
  row(all);
}

}  // namespace

absl::StatusOr<TraceReport> ReadTraceReport(absl::string_view file) {
  TraceReader reader;
  WEIR_RETURN_IF_ERROR(reader.Read(file));
  return MakeTraceReport(reader);
}

TraceReport MakeTraceReport(const TraceReader& reader) {
  TraceReport report;
  report.plan_id = reader.JobText("plan");
  report.num_stages = std::max<int64_t>(1, reader.JobNumber("stages"));
  report.micro_batches = std::max<int64_t>(1, reader.JobNumber("micro-batches"));
  const Window window = SteadyWindow(reader.processes, &report);
  WaitSums waits(reader, window);
  std::map<int, double> length_of;
  for (const auto& [track, process] : reader.processes) {
    if (process.rank >= 0) length_of[process.rank] = ReportDevice(process, window, &waits, &report);
  }
  std::sort(report.devices.begin(), report.devices.end(),
            [](const DeviceReport& a, const DeviceReport& b) { return a.rank < b.rank; });
  for (const DeviceReport& device : report.devices) {
    report.bubble += std::max(0.0, 1 - device.busy) / static_cast<double>(report.devices.size());
  }
  const double p = static_cast<double>(report.num_stages), m = static_cast<double>(report.micro_batches);
  report.bubble_formula = (p - 1) / (m + p - 1);
  report.step_ns = static_cast<double>(report.window_ns) /
                   std::max(1.0, static_cast<double>(report.last_step) - static_cast<double>(report.first_step) + 1);
  report.schedule = reader.JobText(kTraceSchedule);
  report.predicted_bubble = static_cast<double>(reader.JobNumber(kTracePredictedBubble)) * 1e-6;
  if (report.num_stages > 1) report.pipeline_bubble = MeasurePipelineBubble(reader, report.first_step, report.last_step);
  waits.Report(length_of, &report);
  return report;
}

std::string ToText(const TraceReport& report, size_t waits_max) {
  return absl::StrCat(OverviewText(report), WaitsText(report, waits_max));
}

std::string OverviewText(const TraceReport& report) {
  std::string text = absl::StrFormat(
      "plan %s: %d devices, %d stages, %d micro-batches; steps %d to %d, %s, %s per step\n\n", report.plan_id,
      report.devices.size(), report.num_stages, report.micro_batches, report.first_step, report.last_step,
      Milliseconds(static_cast<double>(report.window_ns)), Milliseconds(report.step_ns));
  for (const DeviceReport& device : report.devices) {
    absl::StrAppend(&text, device.name, ": busy ", Percent(device.busy), ", waits for input ",
                    Percent(device.waits_for_input), ", waits for credit ", Percent(device.waits_for_credit),
                    ", between acts ", Percent(device.between_acts));
    if (device.acts_dropped > 0) absl::StrAppend(&text, " (", device.acts_dropped, " older acts not kept)");
    absl::StrAppend(&text, "\n");
  }
  if (report.num_stages > 1) {
    const std::string expected =
        report.predicted_bubble > 0
            ? absl::StrCat(Percent(report.predicted_bubble), " predicted when it was planned")
            : absl::StrCat(Percent(report.bubble_formula), " by the formula (p-1)/(m+p-1)");
    absl::StrAppend(&text, "\npipeline", report.schedule.empty() ? "" : absl::StrCat(", ", report.schedule), ": bubble ",
                    Percent(report.pipeline_bubble), " measured between the first forward and the last backward act of a step, ", expected, "\n");
  }
  return text;
}

std::string WaitsText(const TraceReport& report, size_t waits_max) {
  std::string text;
  if (!report.exposed.empty()) AppendExposed(report, waits_max, &text);
  absl::StrAppend(&text, report.waits.empty() ? "\nno waits worth a name\n" : "\nworst waits, per step of that rank\n");
  for (size_t i = 0; i < report.waits.size() && i < waits_max; ++i) {
    const WaitReport& wait = report.waits[i];
    const bool input = wait.kind == WaitReport::Kind::kInput;
    absl::StrAppendFormat(&text, "  %7s  %9.3f ms  rank %d for %sregister %s%s%s\n", Percent(wait.share),
                          wait.share * report.step_ns * 1e-6, wait.rank, input ? "" : "a free slot of ",
                          wait.register_name, input ? " from " : ", held by ", wait.holder);
  }
  return text;
}

}  // namespace weir
