#include "tools/trace/trace_reader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

using proto::TrackEvent;

constexpr uint64_t kTimeMaxNs = uint64_t{1} << 53;  // later is damage; sums in doubles stay exact
// Limits of the memory that is kept, without the slices themselves, and the approximate sizes of
// kept things beside their texts.
constexpr int64_t kKeptTimesMax = 6, kKeptBytesMin = 16 << 20;
constexpr int64_t kSequenceBytes = 300, kInternedBytes = 100, kTrackBytes = 300;
constexpr int64_t kFlowBytes = 64;
// The limit for one event; a slice of Weir has ten annotations, the job some fifty.
constexpr size_t kAnnotationsMax = 1000;

}  // namespace

absl::Status TraceReader::Read(absl::string_view file, absl::string_view name) {
  kept_bytes_max_ = kKeptTimesMax * static_cast<int64_t>(file.size()) + kKeptBytesMin;
  WEIR_RETURN_IF_ERROR(ForEachTracePacket(file, name, [this](proto::TracePacket& packet) {
    if (!IsFull()) OnPacket(packet);
  }));
  if (IsFull())
    return DamagedTrace(name, absl::StrCat("texts, tracks, flows and plans that take more than ",
                                           kept_bytes_max_, " bytes"));
  if (!has_job)
    return DamagedTrace(name, file.empty() ? "an empty file" : "no description of a job");
  return absl::OkStatus();
}

std::optional<int64_t> TraceReader::StepOf(const TraceSlice& slice) const {
  const auto found = slice.numbers.find(kTraceStep);
  if (found == slice.numbers.end()) return std::nullopt;
  const int64_t step = steps_count_from_0_ ? found->second : IndexOfStep(found->second);
  if (step < 0 || step >= plan_limits::kRecordedNumberMax) return std::nullopt;
  return step;
}

void TraceReader::OnPacket(const proto::TracePacket& packet) {
  const int64_t ns = static_cast<int64_t>(std::min(packet.timestamp(), kTimeMaxNs));
  const auto [at, is_new] = sequences_.try_emplace(packet.trusted_packet_sequence_id());
  Sequence& sequence = at->second;
  if (is_new) Keep(kSequenceBytes);
  if (packet.sequence_flags() & 1) sequence = {};
  if (packet.has_interned_data()) Learn(packet.interned_data(), &sequence);
  if (packet.has_weir_plan()) {
    Keep(static_cast<int64_t>(packet.weir_plan().SpaceUsedLong()));
    plans[RankId(packet.weir_plan().rank())] = packet.weir_plan();
  }
  if (packet.has_track_descriptor()) OnTrack(packet.track_descriptor());
  if (packet.has_track_event()) OnEvent(packet.track_event(), ns, sequence);
}

SharedText TraceReader::Share(const std::string& text) {
  const auto [at, is_new] = shared_.insert(text);
  if (is_new) Keep(kInternedBytes + static_cast<int64_t>(text.size()));
  return SharedText(&*at);
}

void TraceReader::Learn(const proto::InternedData& data, Sequence* sequence) {
  const auto learn = [this](const auto& entries, Texts* texts) {
    for (const auto& entry : entries) {
      Keep(kInternedBytes);
      (*texts)[entry.iid()] = Share(entry.str());
    }
  };
  learn(data.event_names(), &sequence->names);
  learn(data.event_categories(), &sequence->categories);
  learn(data.debug_annotation_names(), &sequence->annotations);
  learn(data.debug_annotation_string_values(), &sequence->strings);
}

void TraceReader::OnTrack(const proto::TrackDescriptor& track) {
  Keep(kTrackBytes);
  if (track.has_process()) {
    processes[track.uuid()].name = track.process().process_name();
    Keep(static_cast<int64_t>(track.process().process_name().size()));
  }
  if (track.has_parent_uuid()) parent_of_[track.uuid()] = track.parent_uuid();
}

void TraceReader::ReadAnnotations(const proto::TrackEvent& event, const Sequence& sequence,
                                  TraceSlice* out) {
  using Kind = proto::DebugAnnotation;
  size_t num_texts = 0, num_numbers = 0;
  for (const Kind& a : event.debug_annotations()) {
    if (a.value_case() == Kind::kIntValue || a.value_case() == Kind::kUintValue) ++num_numbers;
    if (a.value_case() == Kind::kStringValue || a.value_case() == Kind::kStringValueIid)
      ++num_texts;
  }
  if (num_texts + num_numbers > kAnnotationsMax) return;  // not ours
  out->numbers.Reserve(num_numbers);
  out->texts.Reserve(num_texts);
  for (const Kind& a : event.debug_annotations()) {
    const SharedText name =
        a.has_name() ? Share(a.name()) : Find(sequence.annotations, a.name_iid());
    switch (a.value_case()) {
      case Kind::kIntValue: out->numbers.Set(name, a.int_value()); break;
      case Kind::kUintValue: out->numbers.Set(name, static_cast<int64_t>(a.uint_value())); break;
      case Kind::kStringValue: out->texts.Set(name, Share(a.string_value())); break;
      case Kind::kStringValueIid:
        out->texts.Set(name, Find(sequence.strings, a.string_value_iid()));
        break;
      default: break;
    }
  }
}

void TraceReader::OnEvent(const proto::TrackEvent& event, int64_t ns, Sequence& sequence) {
  const auto parent = parent_of_.find(event.track_uuid());
  const uint64_t process = parent == parent_of_.end() ? event.track_uuid() : parent->second;
  if (event.type() == proto::TrackEvent::TYPE_SLICE_BEGIN) {
    OpenSlice& open = open_[event.track_uuid()] = {};
    open.slice.begin = ns;
    open.slice.name =
        event.has_name() ? Share(event.name()) : Find(sequence.names, event.name_iid());
    if (event.category_iids_size() > 0)
      open.slice.category = Find(sequence.categories, event.category_iids(0));
    ReadAnnotations(event, sequence, &open.slice);
    open.sends.assign(event.flow_ids().begin(), event.flow_ids().end());
    open.takes.assign(event.terminating_flow_ids().begin(), event.terminating_flow_ids().end());
  } else if (event.type() == proto::TrackEvent::TYPE_SLICE_END) {
    OnSliceEnd(event.track_uuid(), process, ns);
  } else if (event.type() == proto::TrackEvent::TYPE_INSTANT) {
    OnInstant(event, process, ns, sequence);
  }
}

void TraceReader::OnSliceEnd(uint64_t track, uint64_t process, int64_t ns) {
  auto at = open_.find(track);
  if (at == open_.end()) return;
  OpenSlice& open = at->second;
  open.slice.end = std::max(ns, open.slice.begin);
  Keep(kFlowBytes * static_cast<int64_t>(open.sends.size() + open.takes.size()));
  for (uint64_t flow : open.sends)
    senders.push_back({flow, open.slice.name, process, open.slice.end});
  for (uint64_t flow : open.takes)
    takers.push_back({flow, open.slice.name, process, open.slice.end});
  const auto [to, is_new] = processes.try_emplace(process);
  if (is_new) Keep(kTrackBytes);
  to->second.slices.push_back(std::move(open.slice));
  open_.erase(at);
}

void TraceReader::OnInstant(const proto::TrackEvent& event, uint64_t process, int64_t ns,
                            const Sequence& sequence) {
  TraceSlice instant;
  ReadAnnotations(event, sequence, &instant);
  const SharedText name = Find(sequence.names, event.name_iid());
  if (name == kTraceJobEvent) {
    has_job = true;
    job_texts.clear();
    job_numbers.clear();
    for (const auto& [key, text] : instant.texts) job_texts[key.text()] = text.text();
    for (const auto& [key, number] : instant.numbers) job_numbers[key.text()] = number;
    steps_count_from_0_ = JobNumber(kTraceStepsCountFrom) != kFirstStepNumber;
  } else if (name == kTraceRankEvent) {
    const auto number = [&instant](const char* key) {
      const auto found = instant.numbers.find(key);
      return found == instant.numbers.end() ? int64_t{0} : found->second;
    };
    const int rank = static_cast<int>(number("rank"));
    processes[process].rank = rank >= 0 ? RankId(rank) : RankId();
    processes[process].acts_dropped = number("acts dropped");
  } else if (event.category_iids_size() > 0 &&
             Find(sequence.categories, event.category_iids(0)) == kTraceFailure) {
    const auto rank = instant.numbers.find("rank");
    const bool is_of_rank =
        rank != instant.numbers.end() && rank->second >= 0 && rank->second < plan_limits::kRanksMax;
    Keep(kTrackBytes + static_cast<int64_t>(name.text().size()));
    failures.push_back(
        {ns, is_of_rank ? RankId(static_cast<int32_t>(rank->second)) : RankId(), name.text()});
  }
}

}  // namespace weir::trace
