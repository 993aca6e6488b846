#include "actors/protocol/actor_machine.h"

namespace weir::actors {

const char* Name(ActorState state) {
  switch (state) {
    case ActorState::kRunning: return "running";
    case ActorState::kWaitsForInput: return "waits for input";
    case ActorState::kWaitsForCredit: return "waits for credit";
    case ActorState::kWaitsForStream: return "waits for stream";
    case ActorState::kDone: return "done";
  }
  return "?";
}

ActorMachine::ActorMachine(ActorId id, absl::Span<const PortSpec> inputs,
                           absl::Span<const PortSpec> outputs)
    : id_(id), num_inputs_(static_cast<int32_t>(inputs.size())) {
  ports_.reserve(inputs.size() + outputs.size());
  for (const PortSpec& spec : inputs) AddPort(spec);
  for (const PortSpec& spec : outputs) AddPort(spec);
}

void ActorMachine::AddPort(const PortSpec& spec) {
  Port& port = ports_.emplace_back();
  port.register_id = spec.register_id;
  port.period = spec.period;
  port.slots = spec.slots;
  port.tokens = spec.tokens;
  port.position = spec.position;
  port.available = spec.available;
  port.next_token = spec.next_token;
  port.next_slot = static_cast<int32_t>(spec.next_token % spec.slots);
  if (spec.span == PortSpec::Span::kBegun) {
    port.held_slot = static_cast<int32_t>((spec.next_token - spec.tokens) % spec.slots);
  } else {
    port.wanted = port.available < port.tokens;
    missing_ += port.wanted;
  }
}

bool ActorMachine::RaiseLimit(int64_t acts) {
  const bool was_ready = ready();
  limit_ += acts;
  return !was_ready && ready();
}

ActorState ActorMachine::state() const {
  if (running_) return ActorState::kRunning;
  if (acts_done_ == limit_) return ActorState::kDone;
  if (missing_ == 0) return ActorState::kWaitsForStream;
  for (int i = 0; i < num_inputs_; ++i) {
    if (ports_[i].wanted) return ActorState::kWaitsForInput;
  }
  return ActorState::kWaitsForCredit;
}

RegisterId ActorMachine::waits_for() const {
  if (running_ || acts_done_ == limit_) return RegisterId();
  for (const Port& port : ports_) {
    if (port.wanted) return port.register_id;
  }
  return RegisterId();
}

}  // namespace weir::actors
