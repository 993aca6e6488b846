#include "runtime/trace/trace_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir {
namespace {

using trace::TrackEvent;

constexpr uint64_t kTimeMaxNs = uint64_t{1} << 53;  // later is damage; sums in doubles stay exact

}  // namespace

absl::Status TraceReader::Read(absl::string_view file, absl::string_view name) {
  WEIR_RETURN_IF_ERROR(ForEachTracePacket(file, name, [this](trace::TracePacket& packet) { OnPacket(packet); }));
  if (!has_job) return DamagedTrace(name, "no description of a job");
  return absl::OkStatus();
}

void TraceReader::OnPacket(const trace::TracePacket& packet) {
  const int64_t ns = static_cast<int64_t>(std::min(packet.timestamp(), kTimeMaxNs));
  Sequence& sequence = sequences_[packet.trusted_packet_sequence_id()];
  if (packet.sequence_flags() & 1) sequence = {};
  if (packet.has_interned_data()) Learn(packet.interned_data(), &sequence);
  if (packet.has_weir_plan()) plans[packet.weir_plan().rank()] = packet.weir_plan();
  if (packet.has_track_descriptor()) OnTrack(packet.track_descriptor());
  if (packet.has_track_event()) OnEvent(packet.track_event(), ns, sequence);
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

void TraceReader::ReadAnnotations(const TrackEvent& event, const Sequence& sequence, TraceSlice* out) {
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
    TraceSlice& slice = open_[event.track_uuid()] = {};
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
    TraceSlice instant;
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

}  // namespace weir
