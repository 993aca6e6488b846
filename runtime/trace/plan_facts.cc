#include "runtime/trace/plan_facts.h"

#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/rate_codec.h"
#include "runtime/base/transfer/transfer_note_codec.h"

namespace weir::trace {
namespace {

void AddPort(const TracedPort& from, proto::PortFacts* to) {
  to->set_register_id(from.register_id.value());
  if (from.span != Span()) *to->mutable_span() = ToProto(from.span);
}

std::vector<TracedPort> PortsOf(const google::protobuf::RepeatedPtrField<proto::PortFacts>& facts) {
  std::vector<TracedPort> ports;
  for (const proto::PortFacts& from : facts)
    ports.push_back({RegisterId(from.register_id()), FromProto(from.span())});
  return ports;
}

}  // namespace

uint32_t FactsWriter::Text(const std::string& text) {
  const auto [at, added] = texts_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (added) facts_->add_text(text);
  return at->second;
}

void FactsWriter::Write(const TracedRank& rank) {
  facts_->set_rank(rank.rank.value());
  if (rank.num_queues != 1) facts_->set_num_queues(rank.num_queues);
  if (rank.depth != 1) facts_->set_depth(rank.depth);
  if (rank.arena_bytes > 0) facts_->set_arena_bytes(rank.arena_bytes);
  if (rank.scratch_bytes > 0) facts_->set_scratch_bytes(rank.scratch_bytes);
  for (const RankRanges::Range& from : rank.stands_for.ranges()) {
    proto::RankRange* to = facts_->add_stands_for();
    to->set_first(static_cast<int32_t>(from.first));
    if (from.stride != 1) to->set_stride(static_cast<int32_t>(from.stride));
    to->set_count(static_cast<int32_t>(from.count));
  }
  for (const TracedState& from : rank.states) {
    proto::StateFacts* to = facts_->add_state();
    to->set_name_text(Text(from.name));
    to->set_class_text(Text(from.state_class));
    to->set_bytes(from.bytes);
    to->set_arena_offset(from.arena_offset);
  }
  for (const TracedActor& actor : rank.actors) AddActor(actor);
  std::map<const TransferNote*, int> notes;  // their places among the facts
  for (const TracedRegister& from : rank.registers) {
    proto::RegisterFacts* to = AddRegister(from);
    if (!from.crosses_ranks || from.note == nullptr) continue;
    const auto [at, added] = notes.try_emplace(from.note.get(), facts_->note_size());
    if (added) *facts_->add_note() = ToProto(*from.note);
    to->set_note(static_cast<uint32_t>(at->second));
  }
}

void FactsWriter::AddActor(const TracedActor& from) {
  proto::ActorFacts* to = facts_->add_actor();
  to->set_name_text(Text(from.name));
  to->set_function_text(Text(from.function));
  to->set_phase_text(Text(from.phase));
  to->set_priority(from.priority);
  *to->mutable_rate() = ToProto(Rate(from));
  if (from.planned_ns > 0) to->set_planned_ns(from.planned_ns);
  if (!from.precedence.always_zero()) *to->mutable_precedence() = ToProto(from.precedence);
  if (from.queue != QueueId(0)) to->set_queue(from.queue.value());
  for (const TracedPort& port : from.inputs) AddPort(port, to->add_input());
  for (const TracedPort& port : from.outputs) AddPort(port, to->add_output());
}

proto::RegisterFacts* FactsWriter::AddRegister(const TracedRegister& from) {
  proto::RegisterFacts* to = facts_->add_registers();
  to->set_name_text(Text(from.name));
  to->set_bytes(from.bytes);
  if (from.slots != 1) to->set_slots(from.slots);
  if (from.initial_tokens != 0) to->set_initial_tokens(from.initial_tokens);
  if (from.arena_offset >= 0) to->set_arena_offset(from.arena_offset);
  if (!from.crosses_ranks) return to;
  to->set_crosses_ranks(true);
  to->set_edge(from.edge.value());
  to->set_boxing_text(Text(from.boxing));
  if (from.planned_way_ns > 0) to->set_planned_way_ns(from.planned_way_ns);
  if (from.other_rank.has_value()) to->set_other_rank(from.other_rank.value());
  if (from.on_time) to->set_on_time(true);
  return to;
}

TracedRank RankOfFacts(const proto::PlanFacts& facts) {
  const auto text = [&facts](uint32_t index) {
    const int at = static_cast<int>(index);
    return at < facts.text_size() ? facts.text(at) : std::string();
  };
  TracedRank rank;
  rank.rank = RankId(facts.rank());
  rank.num_queues = facts.num_queues();
  rank.depth = facts.depth();
  rank.arena_bytes = facts.arena_bytes();
  rank.scratch_bytes = facts.scratch_bytes();
  for (const proto::StateFacts& from : facts.state()) {
    rank.states.push_back(
        {text(from.name_text()), text(from.class_text()), from.bytes(), from.arena_offset()});
  }
  for (const proto::ActorFacts& from : facts.actor()) {
    rank.actors.push_back({FromProto(from.rate()), text(from.name_text()),
                           text(from.function_text()), text(from.phase_text()),
                           PortsOf(from.input()), PortsOf(from.output()), from.priority(),
                           FromProto(from.precedence()), from.planned_ns(), QueueId(from.queue())});
  }
  std::vector<std::shared_ptr<const TransferNote>> notes;
  for (const proto::TransferNote& note : facts.note())
    notes.push_back(std::make_shared<const TransferNote>(FromProto(note)));
  for (const proto::RegisterFacts& from : facts.registers()) {
    TracedRegister to;
    to.name = text(from.name_text());
    to.bytes = from.bytes();
    to.slots = static_cast<int32_t>(from.slots());
    to.initial_tokens = static_cast<int32_t>(from.initial_tokens());
    to.edge = EdgeId(from.edge());
    to.crosses_ranks = from.crosses_ranks();
    if (to.crosses_ranks) to.boxing = text(from.boxing_text());
    if (from.has_other_rank()) to.other_rank = RankId(from.other_rank());
    if (from.has_arena_offset()) to.arena_offset = from.arena_offset();
    to.planned_way_ns = from.planned_way_ns();
    if (from.has_note() && from.note() < notes.size()) to.note = notes[from.note()];
    to.on_time = from.on_time();
    rank.registers.push_back(std::move(to));
  }
  return rank;
}

}  // namespace weir::trace
