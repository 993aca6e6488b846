#include "tools/trace/chrome_events.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "proto/trace.pb.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

using Json = nlohmann::ordered_json;
using proto::TrackEvent;

constexpr int64_t kExactMax = int64_t{1} << 53;  // of a number that every reader of JSON keeps

std::string Microseconds(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

Json NumberJson(int64_t number) {
  if (number > kExactMax || number < -kExactMax)
    return absl::StrFormat("0x%016x", static_cast<uint64_t>(number));
  return number;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

class ChromeWriter {
 public:
  explicit ChromeWriter(std::ostream* out) : out_(*out) {}

  void Begin() { out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["; }
  void OnPacket(const proto::TracePacket& packet);
  void End() { out_ << "\n],\"otherData\":" << Dump(job_) << "}\n"; }
  bool has_job() const { return !job_.empty(); }

 private:
  using Texts = std::unordered_map<uint64_t, std::string>;
  struct Sequence {
    Texts names, categories, annotations, strings;
  };
  // A Track is a process or a thread of the output, or a counter.
  struct Track {
    int32_t pid = 0, tid = 0;
    std::string name;
    // The slice that has begun; the tracks of Weir have no slice in a slice.
    bool is_open = false;
    int64_t begin = 0;
    std::string slice;  // the fields of the event that do not depend on its end
    std::vector<uint64_t> sends, takes;
  };

  void OnTrack(const proto::TrackDescriptor& from);
  void OnEvent(const TrackEvent& event, int64_t ns, const Sequence& sequence);
  void OnSliceBegin(const TrackEvent& event, int64_t ns, const Sequence& sequence, Track* track);
  void OnSliceEnd(int64_t ns, Track* track);
  static Json Annotations(const TrackEvent& event, const Sequence& sequence);
  static std::string Find(const Texts& texts, uint64_t iid) {
    const auto at = texts.find(iid);
    return at == texts.end() ? std::string() : at->second;
  }
  // Writes an event. `fields` is the inner part of an object.
  void Write(absl::string_view fields) {
    out_ << (is_first_ ? "\n{" : ",\n{") << fields << "}";
    is_first_ = false;
  }
  void WriteName(const char* what, const Track& track, const Json& args) {
    Write(absl::StrCat("\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", track.pid,
                       ",\"tid\":", track.tid, ",\"args\":", Dump(args)));
  }

  std::ostream& out_;
  bool is_first_ = true;
  int32_t tids_ = 0;
  std::unordered_map<uint32_t, Sequence> sequences_;
  std::unordered_map<uint64_t, Track> tracks_;
  Json job_ = Json::object();
};

void ChromeWriter::OnPacket(const proto::TracePacket& packet) {
  Sequence& sequence = sequences_[packet.trusted_packet_sequence_id()];
  if (packet.sequence_flags() & 1) sequence = {};
  const auto learn = [](const auto& entries, Texts* texts) {
    for (const proto::InternedString& entry : entries) (*texts)[entry.iid()] = entry.str();
  };
  const proto::InternedData& data = packet.interned_data();
  learn(data.event_names(), &sequence.names);
  learn(data.event_categories(), &sequence.categories);
  learn(data.debug_annotation_names(), &sequence.annotations);
  learn(data.debug_annotation_string_values(), &sequence.strings);
  if (packet.has_track_descriptor()) OnTrack(packet.track_descriptor());
  if (packet.has_track_event()) {
    const auto ns = static_cast<int64_t>(
        std::min<uint64_t>(packet.timestamp(), static_cast<uint64_t>(kExactMax)));
    OnEvent(packet.track_event(), ns, sequence);
  }
}

void ChromeWriter::OnTrack(const proto::TrackDescriptor& from) {
  Track& track = tracks_[from.uuid()];
  if (from.has_process()) {
    track.pid = from.process().pid();
    track.name = from.process().process_name();
    WriteName("process_name", track, {{"name", track.name}});
    WriteName("process_sort_index", track, {{"sort_index", track.pid}});
    return;
  }
  if (const auto parent = tracks_.find(from.parent_uuid()); parent != tracks_.end())
    track.pid = parent->second.pid;
  track.name = from.name();
  if (from.has_counter()) return;
  track.tid = ++tids_;
  WriteName("thread_name", track, {{"name", track.name}});
  WriteName("thread_sort_index", track, {{"sort_index", from.sibling_order_rank()}});
}

void ChromeWriter::OnEvent(const TrackEvent& event, int64_t ns, const Sequence& sequence) {
  Track& track = tracks_[event.track_uuid()];
  switch (event.type()) {
    case TrackEvent::TYPE_SLICE_BEGIN: return OnSliceBegin(event, ns, sequence, &track);
    case TrackEvent::TYPE_SLICE_END: return OnSliceEnd(ns, &track);
    case TrackEvent::TYPE_COUNTER:
      return Write(absl::StrCat("\"ph\":\"C\",\"name\":", Dump(track.name), ",\"pid\":", track.pid,
                                ",\"ts\":", Microseconds(ns),
                                ",\"args\":{\"slots\":", event.counter_value(), "}"));
    case TrackEvent::TYPE_INSTANT:
      if (Find(sequence.names, event.name_iid()) == kTraceJobEvent)
        job_ = Annotations(event, sequence);
      if (event.category_iids_size() > 0 &&
          Find(sequence.categories, event.category_iids(0)) == kTraceFailure) {
        Write(absl::StrCat("\"ph\":\"i\",\"s\":\"p\",\"cat\":\"", kTraceFailure,
                           "\",\"name\":", Dump(Find(sequence.names, event.name_iid())),
                           ",\"pid\":", track.pid, ",\"tid\":0,\"ts\":", Microseconds(ns)));
      }
      return;
    default: return;
  }
}

void ChromeWriter::OnSliceBegin(const TrackEvent& event, int64_t ns, const Sequence& sequence,
                                Track* track) {
  const std::string name = event.has_name() ? event.name() : Find(sequence.names, event.name_iid());
  const std::string category = event.category_iids_size() > 0
                                   ? Find(sequence.categories, event.category_iids(0))
                                   : std::string();
  track->is_open = true;
  track->begin = ns;
  track->slice =
      absl::StrCat("\"ph\":\"X\",\"name\":", Dump(name), ",\"cat\":", Dump(category),
                   ",\"pid\":", track->pid, ",\"tid\":", track->tid, ",\"ts\":", Microseconds(ns),
                   ",\"args\":", Dump(Annotations(event, sequence)));
  track->sends.assign(event.flow_ids().begin(), event.flow_ids().end());
  track->takes.assign(event.terminating_flow_ids().begin(), event.terminating_flow_ids().end());
}

// An arrow begins within the slice that sends, as late as can be, and ends where the slice that
// takes begins.
void ChromeWriter::OnSliceEnd(int64_t ns, Track* track) {
  if (!std::exchange(track->is_open, false)) return;
  const int64_t end = std::max(ns, track->begin);
  Write(absl::StrCat(track->slice, ",\"dur\":", Microseconds(end - track->begin)));
  const auto flow = [this, track](absl::string_view end_of_flow, uint64_t id, int64_t at) {
    Write(
        absl::StrFormat("\"ph\":%s,\"name\":\"token\",\"cat\":\"token\",\"id\":\"0x%016x\","
                        "\"pid\":%d,\"tid\":%d,\"ts\":%s",
                        end_of_flow, id, track->pid, track->tid, Microseconds(at)));
  };
  for (const uint64_t id : track->sends) flow("\"s\"", id, std::max(track->begin, end - 1));
  for (const uint64_t id : track->takes) flow("\"f\",\"bp\":\"e\"", id, track->begin);
}

Json ChromeWriter::Annotations(const TrackEvent& event, const Sequence& sequence) {
  using Kind = proto::DebugAnnotation;
  Json json = Json::object();
  for (const Kind& a : event.debug_annotations()) {
    const std::string name = a.has_name() ? a.name() : Find(sequence.annotations, a.name_iid());
    switch (a.value_case()) {
      case Kind::kIntValue: json[name] = NumberJson(a.int_value()); break;
      case Kind::kUintValue: json[name] = NumberJson(static_cast<int64_t>(a.uint_value())); break;
      case Kind::kDoubleValue: json[name] = a.double_value(); break;
      case Kind::kStringValue: json[name] = a.string_value(); break;
      case Kind::kStringValueIid: json[name] = Find(sequence.strings, a.string_value_iid()); break;
      default: break;
    }
  }
  return json;
}

}  // namespace

absl::Status WriteChromeEvents(absl::string_view file, absl::string_view name, std::ostream& out) {
  ChromeWriter writer(&out);
  writer.Begin();
  WEIR_RETURN_IF_ERROR(ForEachTracePacket(
      file, name, [&writer](proto::TracePacket& packet) { writer.OnPacket(packet); }));
  if (!writer.has_job()) return DamagedTrace(name, "no description of a job");
  writer.End();
  return absl::OkStatus();
}

}  // namespace weir::trace
