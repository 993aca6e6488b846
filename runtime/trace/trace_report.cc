#include "runtime/trace/trace_report.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/trace.pb.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"

namespace weir {
namespace {

using trace::TrackEvent;

constexpr int64_t kPacketBytesMax = 1 << 24;
constexpr uint64_t kTimeMaxNs = uint64_t{1} << 53;  // later is damage; sums in doubles stay exact

struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  std::string category;
  std::string name;
  std::map<std::string, std::string> texts;
  std::map<std::string, int64_t> numbers;
  std::vector<uint64_t> sends, takes;  // flows of tokens
};

// The slices of every process, as far as the report needs them.
struct Process {
  std::string name;
  int rank = -1;
  int64_t acts_dropped = 0;
  std::vector<Slice> slices;
};

// An act that sent or took a token of another rank.
struct FlowEnd {
  std::string actor;
  uint64_t process = 0;
  int64_t end = 0;
};
using FlowEnds = std::unordered_map<uint64_t, FlowEnd>;  // by flow

// Reads the packets one by one and resolves interned texts per sequence.
class TraceReader {
 public:
  absl::Status Read(absl::string_view file);

  std::map<uint64_t, Process> processes;  // by track
  FlowEnds senders, takers;
  std::map<std::string, std::string> job_texts;
  std::map<std::string, int64_t> job_numbers;
  bool has_job = false;

 private:
  using Texts = std::unordered_map<uint64_t, std::string>;
  struct Sequence {
    Texts names, categories, annotations, strings;
  };
  static absl::Status Damage(const std::string& found) {
    return Damaged({"W0531", "trace file", "a trace written by weir", found, "weir run --trace=FILE"});
  }
  void OnPacket(const trace::TracePacket& packet);
  void OnTrack(const trace::TrackDescriptor& track);
  void OnEvent(const TrackEvent& event, int64_t ns, Sequence& sequence);
  static void Learn(const trace::InternedData& data, Sequence* sequence);
  static void ReadAnnotations(const TrackEvent& event, const Sequence& sequence, Slice* out);
  static std::string Find(const Texts& texts, uint64_t iid) {
    auto at = texts.find(iid);
    return at == texts.end() ? "" : at->second;
  }

  std::map<uint32_t, Sequence> sequences_;
  std::map<uint64_t, uint64_t> parent_of_;     // track -> process
  std::map<uint64_t, Slice> open_;             // by track
};

absl::Status TraceReader::Read(absl::string_view file) {
  if (file.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return Damage("more than 2 GiB");
  google::protobuf::io::ArrayInputStream array(file.data(), static_cast<int>(file.size()));
  google::protobuf::io::CodedInputStream in(&array);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  trace::TracePacket packet;
  while (uint32_t tag = in.ReadTag()) {
    uint32_t length = 0;
    if (tag != ((1u << 3) | 2u) || !in.ReadVarint32(&length) || length > kPacketBytesMax) return Damage("other bytes");
    const auto limit = in.PushLimit(static_cast<int>(length));
    if (!packet.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) return Damage("a damaged packet");
    in.PopLimit(limit);
    OnPacket(packet);
  }
  if (!has_job) return Damage("no description of a job");
  return absl::OkStatus();
}

void TraceReader::OnPacket(const trace::TracePacket& packet) {
  Sequence& sequence = sequences_[packet.trusted_packet_sequence_id()];
  if (packet.sequence_flags() & 1) sequence = {};
  if (packet.has_interned_data()) Learn(packet.interned_data(), &sequence);
  if (packet.has_track_descriptor()) OnTrack(packet.track_descriptor());
  if (packet.has_track_event()) OnEvent(packet.track_event(), static_cast<int64_t>(std::min(packet.timestamp(), kTimeMaxNs)), sequence);
}

void TraceReader::Learn(const trace::InternedData& data, Sequence* sequence) {
  for (const auto& entry : data.event_names()) sequence->names[entry.iid()] = entry.str();
  for (const auto& entry : data.event_categories()) sequence->categories[entry.iid()] = entry.str();
  for (const auto& entry : data.debug_annotation_names()) sequence->annotations[entry.iid()] = entry.str();
  for (const auto& entry : data.debug_annotation_string_values()) sequence->strings[entry.iid()] = entry.str();
}

void TraceReader::OnTrack(const trace::TrackDescriptor& track) {
  if (track.has_process()) processes[track.uuid()].name = track.process().process_name();
  if (track.has_parent_uuid()) parent_of_[track.uuid()] = track.parent_uuid();
}

void TraceReader::ReadAnnotations(const TrackEvent& event, const Sequence& sequence, Slice* out) {
  for (const trace::DebugAnnotation& a : event.debug_annotations()) {
    const std::string name = a.has_name() ? a.name() : Find(sequence.annotations, a.name_iid());
    switch (a.value_case()) {
      case trace::DebugAnnotation::kIntValue: out->numbers[name] = a.int_value(); break;
      case trace::DebugAnnotation::kUintValue: out->numbers[name] = static_cast<int64_t>(a.uint_value()); break;
      case trace::DebugAnnotation::kStringValue: out->texts[name] = a.string_value(); break;
      case trace::DebugAnnotation::kStringValueIid: out->texts[name] = Find(sequence.strings, a.string_value_iid()); break;
      default: break;
    }
  }
}

void TraceReader::OnEvent(const TrackEvent& event, int64_t ns, Sequence& sequence) {
  const auto parent = parent_of_.find(event.track_uuid());
  const uint64_t process = parent == parent_of_.end() ? event.track_uuid() : parent->second;
  if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
    Slice& slice = open_[event.track_uuid()] = {};
    slice.begin = ns;
    slice.name = event.has_name() ? event.name() : Find(sequence.names, event.name_iid());
    if (event.category_iids_size() > 0) slice.category = Find(sequence.categories, event.category_iids(0));
    ReadAnnotations(event, sequence, &slice);
    slice.sends.assign(event.flow_ids().begin(), event.flow_ids().end());
    slice.takes.assign(event.terminating_flow_ids().begin(), event.terminating_flow_ids().end());
  } else if (event.type() == TrackEvent::TYPE_SLICE_END) {
    auto at = open_.find(event.track_uuid());
    if (at == open_.end()) return;
    at->second.end = std::max(ns, at->second.begin);
    for (uint64_t flow : at->second.sends) senders[flow] = {at->second.name, process, at->second.end};
    for (uint64_t flow : at->second.takes) takers[flow] = {at->second.name, process, at->second.end};
    processes[process].slices.push_back(std::move(at->second));
    open_.erase(at);
  } else if (event.type() == TrackEvent::TYPE_INSTANT) {
    Slice instant;
    ReadAnnotations(event, sequence, &instant);
    const std::string name = Find(sequence.names, event.name_iid());
    if (name == kTraceJobEvent) {
      has_job = true;
      job_texts = std::move(instant.texts);
      job_numbers = std::move(instant.numbers);
    } else if (name == kTraceRankEvent) {
      processes[process].rank = static_cast<int>(instant.numbers["rank"]);
      processes[process].acts_dropped = instant.numbers["acts dropped"];
    }
  }
}

// The part of [begin, end) that lies in the window.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t Inside(const Slice& s) const { return Inside(s.begin, s.end); }
  int64_t Inside(int64_t from, int64_t to) const { return std::max<int64_t>(0, std::min(to, end) - std::max(from, begin)); }
};

// Finds the steady window and the steps in it.
Window SteadyWindow(const std::map<uint64_t, Process>& processes, TraceReport* report) {
  std::map<int64_t, Window> steps;
  for (const auto& [track, process] : processes) {
    for (const Slice& slice : process.slices) {
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

std::string TextOf(const Slice& slice, const char* name) {
  auto at = slice.texts.find(name);
  return at == slice.texts.end() ? std::string() : at->second;
}

// The far end of what a wait was for; null if that is no other rank, or not in the trace.
const FlowEnd* FarEnd(const Slice& wait, const FlowEnds& ends) {
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
  void Add(int rank, const Slice& slice, double ns) {
    const bool input = slice.category == kTraceWaitsForInput;
    const WaitReport::Kind kind = input ? WaitReport::Kind::kInput : WaitReport::Kind::kCredit;
    const FlowEnd* far = FarEnd(slice, input ? reader_.senders : reader_.takers);
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
  std::string Holder(const Slice& slice, const FlowEnd* far) const {
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
double ReportDevice(const Process& process, const Window& window, WaitSums* waits, TraceReport* report) {
  double busy = 0, rest = 0, input = 0, credit = 0;
  for (const Slice& slice : process.slices) {
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
  TraceReport report;
  report.plan_id = reader.job_texts["plan"];
  report.num_stages = std::max<int64_t>(1, reader.job_numbers["stages"]);
  report.micro_batches = std::max<int64_t>(1, reader.job_numbers["micro-batches"]);
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
  waits.Report(length_of, &report);
  return report;
}

std::string ToText(const TraceReport& report, size_t waits_max) {
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
    absl::StrAppend(&text, "\npipeline bubble: ", Percent(report.bubble), " measured, ", Percent(report.bubble_formula),
                    " by the formula (p-1)/(m+p-1) with p = ", report.num_stages, ", m = ", report.micro_batches, "\n");
  }
  if (!report.exposed.empty()) AppendExposed(report, waits_max, &text);
  absl::StrAppend(&text, report.waits.empty() ? "\nno waits worth a name\n" : "\nworst waits:\n");
  for (size_t i = 0; i < report.waits.size() && i < waits_max; ++i) {
    const WaitReport& wait = report.waits[i];
    const bool input = wait.kind == WaitReport::Kind::kInput;
    absl::StrAppend(&text, "  rank ", wait.rank, " waited ", Milliseconds(wait.total_ns), " (",
                    Percent(wait.share), ", ", wait.times, wait.times == 1 ? " time" : " times", ") for ",
                    input ? "" : "a free slot of ", "register ", wait.register_name,
                    input ? " from " : ", held by ", wait.holder, "\n");
  }
  return text;
}

}  // namespace weir
