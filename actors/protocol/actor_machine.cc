#include "actors/protocol/actor_machine.h"

namespace weir {

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

ActorMachine::ActorMachine(ActorId id, absl::Span<const PortSpec> inputs, absl::Span<const PortSpec> outputs)
    : id_(id), num_inputs_(static_cast<int32_t>(inputs.size())) {
  ports_.reserve(inputs.size() + outputs.size());
  for (const PortSpec& spec : inputs) {
    Port& port = ports_.emplace_back();
    port.available = Planted(PlantedBug::kInitialTokenForgotten) ? 0 : spec.initial_tokens;
    port.register_id = spec.register_id;
    port.period = spec.period;
    port.slots = spec.slots;
  }
  for (const PortSpec& spec : outputs) {
    Port& port = ports_.emplace_back();
    port.available = spec.slots - spec.initial_tokens + Planted(PlantedBug::kCreditTooManyAtStart);
    port.next_slot = spec.initial_tokens == spec.slots ? 0 : spec.initial_tokens;
    port.spans = spec.initial_tokens;
    port.register_id = spec.register_id;
    port.period = spec.period;
    port.slots = spec.slots;
  }
  for (Port& port : ports_) {
    port.wanted = port.available == 0;
    missing_ += port.wanted;
  }
}

bool ActorMachine::RaiseLimit(int64_t acts) {
  const bool was_ready = ready();
  limit_ += acts + Planted(PlantedBug::kLimitOffByOne);
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
    if (port.wanted) return RegisterId(port.register_id);
  }
  return RegisterId();
}

}  // namespace weir
