#include "runtime/trace/trace_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "proto/trace.pb.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/trace/plan_facts.h"
#include "runtime/trace/trace_names.h"
#include "runtime/trace/trace_packets.h"

namespace weir::trace {
namespace {

using proto::TracePacket;
using proto::TrackEvent;

constexpr int64_t kWaitShownMinNs = 200;      // shorter gaps count as time between acts
constexpr int kOccupancyRegistersMax = 12;    // per rank, the largest
constexpr int64_t kOccupancyBytesMin = 4096;  // of all slots together
constexpr int64_t kJobPid = 1;                // a rank has pid rank + 2

// Track ids are spread so that ranks, phases and counters do not collide.
uint64_t RankTrack(RankId rank) { return MixKey(0x7261, static_cast<uint64_t>(rank.value())) | 1; }
uint64_t LaneTrack(RankId rank, const std::string& lane) {
  return MixKey(RankTrack(rank), KeyOf(lane.data(), lane.size())) | 1;
}
uint64_t JobTrack() { return LaneTrack(RankId(), "job"); }
uint64_t FlowId(EdgeId edge, int64_t token) {
  return MixKey(edge.value(), static_cast<uint64_t>(token));
}

// Writes packets of one sequence; a text that comes again is sent once.
class PacketWriter {
 public:
  PacketWriter(google::protobuf::io::ZeroCopyOutputStream* out, uint32_t sequence)
      : out_(out), sequence_(sequence) {}

  // Returns a packet to fill; Finish writes the packet.
  proto::TracePacket& Begin(int64_t ns) {
    packet_.Clear();
    packet_.set_timestamp(static_cast<uint64_t>(std::max<int64_t>(ns, 0)));
    packet_.set_trusted_packet_sequence_id(sequence_);
    packet_.set_sequence_flags(first_ ? 3 : 2);
    first_ = false;
    return packet_;
  }
  void Finish() {
    google::protobuf::io::CodedOutputStream coded(out_);
    coded.WriteVarint32(kTracePacketTag);
    coded.WriteVarint32(static_cast<uint32_t>(packet_.ByteSizeLong()));
    packet_.SerializeToCodedStream(&coded);
    failed_ |= coded.HadError();
  }
  bool failed() const { return failed_; }

  uint64_t Name(const std::string& text) {
    return Intern(&names_, text,
                  [&] { return packet_.mutable_interned_data()->add_event_names(); });
  }
  uint64_t Category(const std::string& text) {
    return Intern(&categories_, text,
                  [&] { return packet_.mutable_interned_data()->add_event_categories(); });
  }
  void Annotate(proto::TrackEvent* event, const std::string& name, int64_t value) {
    AddAnnotation(event, name)->set_int_value(value);
  }
  void Annotate(proto::TrackEvent* event, const std::string& name, const std::string& value) {
    const uint64_t iid = Intern(&strings_, value, [&] {
      return packet_.mutable_interned_data()->add_debug_annotation_string_values();
    });
    AddAnnotation(event, name)->set_string_value_iid(iid);
  }

 private:
  template <typename Add>
  static uint64_t Intern(std::map<std::string, uint64_t>* known, const std::string& text,
                         const Add& add) {
    auto [at, added] = known->try_emplace(text, known->size() + 1);
    if (added) {
      proto::InternedString* entry = add();
      entry->set_iid(at->second);
      entry->set_str(text);
    }
    return at->second;
  }
  proto::DebugAnnotation* AddAnnotation(proto::TrackEvent* event, const std::string& name) {
    proto::DebugAnnotation* annotation = event->add_debug_annotations();
    annotation->set_name_iid(Intern(&annotation_names_, name, [&] {
      return packet_.mutable_interned_data()->add_debug_annotation_names();
    }));
    return annotation;
  }

  google::protobuf::io::ZeroCopyOutputStream* out_;
  const uint32_t sequence_;
  bool first_ = true;
  bool failed_ = false;
  proto::TracePacket packet_;
  std::map<std::string, uint64_t> names_, categories_, annotation_names_, strings_;
};

// Writes one rank.
class RankWriter {
 public:
  RankWriter(const TracedJob& job, const TracedRank& rank, int64_t begin_ns,
             google::protobuf::io::ZeroCopyOutputStream* out)
      : job_(job),
        rank_(rank),
        begin_ns_(begin_ns),
        writer_(out, static_cast<uint32_t>(rank.rank.value()) + 2) {
    for (const TracedActor& actor : rank.actors) ++names_[actor.name];
  }

  bool Write() {
    Tracks();
    Description();
    Facts();
    // The time at which each queue last became idle.
    IdVector<QueueId, int64_t> free_since(static_cast<size_t>(rank_.num_queues), begin_ns_);
    for (int64_t i = 0; i < rank_.acts->size(); ++i) {
      const ActRecord& act = rank_.acts->at(i);
      const int64_t start = rank_.scale.ToNs(act.start), end = rank_.scale.ToNs(act.end);
      if (start < begin_ns_) continue;
      if (!act.actor.has_value()) {  // a run begins
        Slice(kTraceWaits, kTraceRest, "between runs",
              *std::max_element(free_since.begin(), free_since.end()), start, nullptr);
        free_since.assign(free_since.size(), end);
        continue;
      }
      int64_t& since = free_since[rank_.actors[act.actor].queue];
      Wait(act, since, std::clamp(rank_.scale.ToNs(act.ready), since, start));
      Act(act, start, end);
      since = end;
    }
    for (const RegisterId id : LargeRegisters()) Occupancy(id);
    return !writer_.failed();
  }

 private:
  bool HasQueues() const { return rank_.num_queues > 1; }
  // Return the names of the tracks of an actor's acts, and of the waits before them.
  std::string ActLane(const TracedActor& actor) const {
    return HasQueues() ? absl::StrCat("queue ", actor.queue) : actor.phase;
  }
  std::string WaitLane(const TracedActor& actor) const {
    return HasQueues() ? absl::StrCat("waits of queue ", actor.queue) : kTraceWaits;
  }
  void Tracks();
  void Track(uint64_t uuid, const std::string& name, int order, bool counter);
  void Description();
  void Facts();
  void Act(const ActRecord& act, int64_t start, int64_t end);
  void Wait(const ActRecord& act, int64_t since, int64_t until);
  void Slice(const std::string& lane, const std::string& category, const std::string& name,
             int64_t start, int64_t end, const ActRecord* waiting);
  void End(const std::string& lane, int64_t ns);
  std::vector<RegisterId> LargeRegisters() const;
  void Occupancy(RegisterId register_id);

  // Returns the number of the act since the session began.
  int64_t ActNumber(const ActRecord& act) const {
    const TracedActor& actor = rank_.actors[act.actor];
    return actor.ActsBefore(act.step) - actor.ActsBefore(job_.first_step) +
           act.micro_batch * actor.chunks + act.chunk;
  }

  // Returns the flow of the token that the act waited for last, or that lay in the slot it waited
  // for.
  uint64_t FlowWaitedFor(const ActRecord& act) const {
    const TracedRegister& r = rank_.registers[act.waited_register];
    const TracedActor& actor = rank_.actors[act.actor];
    const bool input = act.wait == ActRecord::Wait::kInput;
    for (const TracedPort& port : input ? actor.inputs : actor.outputs) {
      if (port.register_id != act.waited_register) continue;
      const int64_t last = (port.span.SpanOf(ActNumber(act)) + 1) * port.span.tokens - 1;
      return FlowId(r.edge, last + (input ? 0 : r.initial_tokens - r.slots));
    }
    return 0;
  }

  const TracedJob& job_;
  const TracedRank& rank_;
  const int64_t begin_ns_;
  PacketWriter writer_;
  std::map<std::string, int> names_;  // how many actors have one
};

void RankWriter::Track(uint64_t uuid, const std::string& name, int order, bool counter) {
  proto::TrackDescriptor* track = writer_.Begin(begin_ns_).mutable_track_descriptor();
  track->set_uuid(uuid);
  track->set_parent_uuid(RankTrack(rank_.rank));
  track->set_name(name);
  track->set_sibling_order_rank(order);
  if (counter) {
    track->mutable_counter()->set_unit(2);
    track->mutable_counter()->set_unit_name("slots");
  }
  writer_.Finish();
}

void RankWriter::Tracks() {
  proto::TrackDescriptor* process = writer_.Begin(begin_ns_).mutable_track_descriptor();
  process->set_uuid(RankTrack(rank_.rank));
  process->set_child_ordering(3);
  process->mutable_process()->set_pid(rank_.rank.value() + 2);
  process->mutable_process()->set_process_name(
      absl::StrCat("rank ", rank_.rank, rank_.device.empty() ? "" : " · ", rank_.device));
  writer_.Finish();
  std::vector<std::string> lanes;
  for (const TracedActor& actor : rank_.actors) {
    if (std::find(lanes.begin(), lanes.end(), ActLane(actor)) != lanes.end()) continue;
    lanes.push_back(ActLane(actor));
    if (HasQueues()) lanes.push_back(WaitLane(actor));
  }
  int order = 0;
  for (const std::string& lane : lanes)
    Track(LaneTrack(rank_.rank, lane), lane, order++, /*counter=*/false);
  Track(LaneTrack(rank_.rank, kTraceWaits), kTraceWaits, order, /*counter=*/false);
}

void RankWriter::Description() {
  proto::TrackEvent* event = writer_.Begin(begin_ns_).mutable_track_event();
  event->set_type(proto::TrackEvent::TYPE_INSTANT);
  event->set_track_uuid(RankTrack(rank_.rank));
  event->set_name_iid(writer_.Name(kTraceRankEvent));
  writer_.Annotate(event, "rank", rank_.rank.value());
  writer_.Annotate(event, "acts dropped", rank_.acts->num_dropped());
  writer_.Finish();
}

void RankWriter::Facts() {
  FactsWriter(writer_.Begin(begin_ns_).mutable_weir_plan()).Write(rank_);
  writer_.Finish();
}

void RankWriter::Slice(const std::string& lane, const std::string& category,
                       const std::string& name, int64_t start, int64_t end,
                       const ActRecord* waiting) {
  if (end - start < kWaitShownMinNs) return;
  proto::TrackEvent* event = writer_.Begin(start).mutable_track_event();
  event->set_type(proto::TrackEvent::TYPE_SLICE_BEGIN);
  event->set_track_uuid(LaneTrack(rank_.rank, lane));
  event->add_category_iids(writer_.Category(category));
  event->set_name_iid(writer_.Name(name));
  if (waiting != nullptr && waiting->wait == ActRecord::Wait::kGroup) {
    writer_.Annotate(event, "waiting actor", rank_.actors[waiting->actor].name);
    if (HasQueues())
      writer_.Annotate(event, kTraceQueue, rank_.actors[waiting->actor].queue.value());
  } else if (waiting != nullptr) {
    const TracedRegister& r = rank_.registers[waiting->waited_register];
    const bool input = waiting->wait == ActRecord::Wait::kInput;
    writer_.Annotate(event, "register", r.name);
    writer_.Annotate(event, "holder", input ? r.token_holder : r.slot_holder);
    writer_.Annotate(event, "waiting actor", rank_.actors[waiting->actor].name);
    if (HasQueues())
      writer_.Annotate(event, kTraceQueue, rank_.actors[waiting->actor].queue.value());
    if (r.crosses_ranks && input) writer_.Annotate(event, kTraceBoxing, r.boxing);
    if (r.crosses_ranks)
      writer_.Annotate(event, kTraceFlow, static_cast<int64_t>(FlowWaitedFor(*waiting)));
  }
  writer_.Finish();
  End(lane, end);
}

void RankWriter::End(const std::string& lane, int64_t ns) {
  proto::TrackEvent* event = writer_.Begin(ns).mutable_track_event();
  event->set_type(proto::TrackEvent::TYPE_SLICE_END);
  event->set_track_uuid(LaneTrack(rank_.rank, lane));
  writer_.Finish();
}

// Writes a wait: the queue of the act was idle from `since` until `until`, when `act` had what it
// needed.
void RankWriter::Wait(const ActRecord& act, int64_t since, int64_t until) {
  const TracedActor& actor = rank_.actors[act.actor];
  if (act.wait == ActRecord::Wait::kGroup) {
    return Slice(WaitLane(actor), kTraceWaitsForGroup,
                 absl::StrCat("waits for the group of ", actor.name), since, until, &act);
  }
  if (act.wait == ActRecord::Wait::kNone || !act.waited_register.has_value()) return;
  const TracedRegister& r = rank_.registers[act.waited_register];
  const bool input = act.wait == ActRecord::Wait::kInput;
  const std::string name =
      input ? absl::StrCat("waits for input ", r.name, " held by ", r.token_holder)
            : absl::StrCat("waits for credit ", r.name, " held by ", r.slot_holder);
  Slice(WaitLane(actor), input ? kTraceWaitsForInput : kTraceWaitsForCredit, name, since, until,
        &act);
}

void RankWriter::Act(const ActRecord& act, int64_t start, int64_t end) {
  const TracedActor& actor = rank_.actors[act.actor];
  proto::TrackEvent* event = writer_.Begin(start).mutable_track_event();
  event->set_type(proto::TrackEvent::TYPE_SLICE_BEGIN);
  event->set_track_uuid(LaneTrack(rank_.rank, ActLane(actor)));
  event->add_category_iids(writer_.Category(kTraceAct));
  event->set_name_iid(writer_.Name(actor.name));
  if (names_[actor.name] > 1) writer_.Annotate(event, kTraceActor, act.actor.value());
  if (HasQueues()) {
    writer_.Annotate(event, kTraceQueue, actor.queue.value());
    writer_.Annotate(event, "phase", actor.phase);
  }
  writer_.Annotate(event, kTraceStep, NumberOfStep(act.step));
  writer_.Annotate(event, "micro-batch", act.micro_batch);
  if (actor.chunks > 1) writer_.Annotate(event, "chunk", act.chunk);
  if (act.cpu_us != ActRecord::kCpuUnknown) writer_.Annotate(event, kTraceCpu, int64_t{act.cpu_us});
  if (act.bytes_sent > 0) writer_.Annotate(event, "bytes", act.bytes_sent);
  if (!actor.function.empty() && actor.function != actor.name)
    writer_.Annotate(event, "function", actor.function);
  const int64_t number = ActNumber(act);
  for (const TracedPort& port : actor.outputs) {
    const TracedRegister& r = rank_.registers[port.register_id];
    if (!r.crosses_ranks || !port.span.Ends(number)) continue;
    const int64_t first = port.span.SpanOf(number) * port.span.tokens + r.initial_tokens;
    for (int64_t token = first; token < first + port.span.tokens; ++token)
      event->add_flow_ids(FlowId(r.edge, token));
  }
  for (const TracedPort& port : actor.inputs) {
    const TracedRegister& r = rank_.registers[port.register_id];
    if (!r.crosses_ranks || !port.span.Begins(number)) continue;
    const int64_t first = port.span.SpanOf(number) * port.span.tokens;
    // No act wrote the initial tokens.
    for (int64_t token = std::max<int64_t>(first, r.initial_tokens);
         token < first + port.span.tokens; ++token)
      event->add_terminating_flow_ids(FlowId(r.edge, token));
  }
  writer_.Finish();
  End(ActLane(actor), end);
}

std::vector<RegisterId> RankWriter::LargeRegisters() const {
  std::vector<std::pair<int64_t, RegisterId>> by_size;
  for (const RegisterId id : rank_.registers.ids()) {
    const TracedRegister& r = rank_.registers[id];
    const int64_t bytes = r.bytes * r.slots;
    if (!r.crosses_ranks && r.slots > 1 && bytes >= kOccupancyBytesMin)
      by_size.emplace_back(-bytes, id);
  }
  std::sort(by_size.begin(), by_size.end());
  std::vector<RegisterId> ids;
  for (size_t i = 0; i < by_size.size() && i < kOccupancyRegistersMax; ++i)
    ids.push_back(by_size[i].second);
  return ids;
}

// A token fills its slot from the end of the producer's span to that of the last reader's.
void RankWriter::Occupancy(RegisterId register_id) {
  struct Token {
    std::optional<int64_t> published;
    int64_t released = 0;
    int readers_done = 0;
  };
  const TracedRegister& r = rank_.registers[register_id];
  std::map<int64_t, Token> tokens;
  int num_readers = 0;
  for (const TracedActor& actor : rank_.actors) {
    for (const TracedPort& port : actor.inputs) num_readers += port.register_id == register_id;
  }
  for (int64_t i = 0; i < rank_.acts->size(); ++i) {
    const ActRecord& act = rank_.acts->at(i);
    if (!act.actor.has_value()) continue;
    const int64_t number = ActNumber(act), end = rank_.scale.ToNs(act.end);
    for (const TracedPort& port : rank_.actors[act.actor].outputs) {
      if (port.register_id != register_id || (number + 1) % port.span.period != 0) continue;
      tokens[number / port.span.period + r.initial_tokens].published = end;
    }
    for (const TracedPort& port : rank_.actors[act.actor].inputs) {
      if (port.register_id != register_id || (number + 1) % port.span.period != 0) continue;
      Token& token = tokens[number / port.span.period];
      token.released = std::max(token.released, end);
      ++token.readers_done;
    }
  }
  std::vector<std::pair<int64_t, int>> changes;  // at, by
  for (const auto& [number, token] : tokens) {
    if (!token.published.has_value() || *token.published < begin_ns_) continue;
    changes.emplace_back(*token.published, 1);
    if (token.readers_done == num_readers)
      changes.emplace_back(std::max(token.released, *token.published), -1);
  }
  if (changes.empty()) return;
  std::sort(changes.begin(), changes.end());
  const std::string lane = absl::StrCat("slots of ", r.name, " (", r.slots, ")");
  Track(LaneTrack(rank_.rank, lane), lane, 100 + register_id.value(), /*counter=*/true);
  int64_t value = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    value += changes[i].second;
    if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
    proto::TrackEvent* event = writer_.Begin(changes[i].first).mutable_track_event();
    event->set_type(proto::TrackEvent::TYPE_COUNTER);
    event->set_track_uuid(LaneTrack(rank_.rank, lane));
    event->set_counter_value(value);
    writer_.Finish();
  }
}

absl::Status CannotWriteTrace() {
  return CodedError(absl::StatusCode::kDataLoss, "W0530", "the trace could not be written");
}

bool WriteJobEvent(const TracedJob& job, int64_t begin_ns,
                   google::protobuf::io::ZeroCopyOutputStream* out) {
  PacketWriter writer(out, kTraceJobSequence);
  const uint64_t uuid = JobTrack();
  proto::TrackDescriptor* process = writer.Begin(begin_ns).mutable_track_descriptor();
  process->set_uuid(uuid);
  process->mutable_process()->set_pid(kJobPid);
  process->mutable_process()->set_process_name("weir");
  writer.Finish();
  proto::TrackEvent* event = writer.Begin(begin_ns).mutable_track_event();
  event->set_type(proto::TrackEvent::TYPE_INSTANT);
  event->set_track_uuid(uuid);
  event->set_name_iid(writer.Name(kTraceJobEvent));
  writer.Annotate(event, "plan", job.plan_id);
  writer.Annotate(event, kTraceRanks,
                  job.num_ranks > 0 ? job.num_ranks : static_cast<int64_t>(job.ranks.size()));
  writer.Annotate(event, "stages", job.num_stages);
  writer.Annotate(event, "micro-batches", job.micro_batches);
  if (!job.schedule.empty()) writer.Annotate(event, kTraceSchedule, job.schedule);
  if (job.predicted_bubble > 0)
    writer.Annotate(event, kTracePredictedBubble, static_cast<int64_t>(job.predicted_bubble * 1e6));
  if (job.virtual_stages > 1) writer.Annotate(event, kTraceVirtualStages, job.virtual_stages);
  if (job.stages_in_a_row > 0 && job.stages_in_a_row != job.num_stages)
    writer.Annotate(event, kTraceStagesInARow, job.stages_in_a_row);
  writer.Annotate(event, kTraceFirstStep, NumberOfStep(job.first_step));
  writer.Annotate(event, kTraceStepsCountFrom, kFirstStepNumber);
  writer.Finish();
  return !writer.failed();
}

void WriteFailure(const TraceFailure& failure, PacketWriter* writer) {
  const auto mark = [&](uint64_t track, RankId rank) {
    proto::TrackEvent* event = writer->Begin(failure.ns).mutable_track_event();
    event->set_type(proto::TrackEvent::TYPE_INSTANT);
    event->set_track_uuid(track);
    event->add_category_iids(writer->Category(kTraceFailure));
    event->set_name_iid(writer->Name(failure.text));
    if (rank.has_value()) writer->Annotate(event, "rank", rank.value());
    writer->Finish();
  };
  for (const RankId rank : failure.ranks) mark(RankTrack(rank), rank);
  if (failure.ranks.empty()) mark(JobTrack(), RankId());
}

}  // namespace

absl::Status WriteFailures(const std::vector<TraceFailure>& failures, std::ostream& out) {
  bool ok = true;
  {
    google::protobuf::io::OstreamOutputStream stream(&out);
    PacketWriter writer(&stream, kTraceFailureSequence);
    for (const TraceFailure& failure : failures) WriteFailure(failure, &writer);
    ok = !writer.failed();
  }
  out.flush();
  return ok && out.good() ? absl::OkStatus() : CannotWriteTrace();
}

int64_t TraceBeginNs(const TracedJob& job) {
  std::optional<int64_t> begin, all_kept;
  for (const TracedRank& rank : job.ranks) {
    if (rank.acts->size() == 0) continue;
    const int64_t first = rank.scale.ToNs(rank.acts->at(0).start);
    begin = std::min(begin.value_or(first), first);
    if (rank.acts->num_dropped() > 0) all_kept = std::max(all_kept.value_or(first), first);
  }
  return all_kept.value_or(begin.value_or(0));
}

absl::Status WriteTrace(const TracedJob& job, int64_t begin_ns, std::ostream& out) {
  bool ok = true;
  {
    google::protobuf::io::OstreamOutputStream stream(&out);
    for (const TracedRank& rank : job.ranks) {
      if (rank.rank == job.describing_rank) ok &= WriteJobEvent(job, begin_ns, &stream);
      ok &= RankWriter(job, rank, begin_ns, &stream).Write();
    }
  }
  out.flush();
  return ok && out.good() ? absl::OkStatus() : CannotWriteTrace();
}

}  // namespace weir::trace
