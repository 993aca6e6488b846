#include "actors/plan/shared_states.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "runtime/base/alignment.h"

namespace weir::actors {
namespace {

// A Gap is a range of the arena that the plan no longer needs.
struct Gap {
  int64_t begin = 0;
  int64_t end = 0;
};

bool Holds(const PlanRegister& r, const PlanState& state) {
  return state.arena_offset >= r.arena_offset &&
         state.arena_offset + state.slice.bytes() <= r.arena_offset + r.bytes;
}

// Sharing finds what a plan can share, and takes it out of the plan.
class Sharing {
 public:
  Sharing(const Plan& owner, Plan* plan) : plan_(*plan) {
    for (const PlanState& state : owner.states) states_of_owner_[state.name] = &state;
  }

  SharedStates Share() {
    FindStates();
    FindRegisters();
    DropWhatIsUsedOtherwise();
    Leave();
    return SharedStates(std::move(offsets_), std::move(parts_));
  }

 private:
  int64_t OffsetInOwner(const PlanState& state) const {
    const auto found = states_of_owner_.find(state.name);
    if (found == states_of_owner_.end()) return -1;
    const PlanState& theirs = *found->second;
    const bool is_fixed = !theirs.register_id.has_value() && !state.register_id.has_value();
    const bool is_same = theirs.slice.dtype == state.slice.dtype &&
                         theirs.slice.shape == state.slice.shape &&
                         theirs.slice.offset == state.slice.offset;
    const bool are_weights =
        state.state_class == StateClass::kWeight && theirs.state_class == StateClass::kWeight;
    return is_fixed && is_same && are_weights ? theirs.arena_offset : -1;
  }

  void FindStates() {
    for (const PlanState& state : plan_.states) {
      offsets_.push_back(OffsetInOwner(state));
      home_.emplace_back();
    }
  }

  // Returns whether nobody writes the register, which so keeps the bytes of before the first step:
  // its producer, if it has one, hands the same token on without a kernel.
  bool IsConstant(const PlanRegister& r) const {
    if (r.slots != 1 || r.initial_tokens != 1) return false;
    if (!r.producer.actor.has_value()) return true;
    const PlanActor& producer = plan_.actors[r.producer.actor];
    return producer.kind == ActorKind::kCompute && !producer.program.has_value();
  }

  void FindRegisters() {
    std::map<int64_t, RegisterId> constant;  // by offset in the arena
    for (const PlanRegister& r : plan_.registers) {
      parts_.emplace_back();
      if (r.side == RegisterSide::kLocal && r.bytes > 0) constant[r.arena_offset] = r.id;
    }
    for (const StateId id : plan_.states.ids()) {
      const PlanState& state = plan_.states[id];
      auto after = constant.upper_bound(state.arena_offset);
      if (after == constant.begin()) continue;
      const PlanRegister& r = plan_.registers[(--after)->second];
      if (!Holds(r, state)) continue;
      home_[id] = r.id;
      if (!IsConstant(r) || offsets_[id] < 0) kept_[r.id] = true;
      const int64_t begin = state.arena_offset - r.arena_offset;
      parts_[r.id].push_back({begin, begin + state.slice.bytes(), offsets_[id]});
    }
    for (std::vector<SharedStates::Part>& parts : parts_) {
      std::sort(parts.begin(), parts.end(),
                [](const auto& a, const auto& b) { return a.begin < b.begin; });
    }
  }

  // A plan shares no state that a kernel writes, and no register that somebody reads in another way
  // than weight by weight.
  void DropWhatIsUsedOtherwise() {
    for (const PlanActor& actor : plan_.actors) {
      if (!actor.program.has_value()) {
        for (const PlanPort& port : actor.inputs) kept_[port.register_id] = true;
        continue;
      }
      for (const PlanCall& call : plan_.programs[actor.program].calls) {
        for (const PlanOperand& operand : call.inputs) CheckRead(actor, operand);
        for (const PlanOperand& operand : call.outputs) {
          if (operand.place == PlanOperand::Place::kInput)
            kept_[actor.inputs[operand.index].register_id] = true;
          if (operand.place == PlanOperand::Place::kState)
            offsets_[actor.states[operand.index]] = -1;
        }
      }
    }
    for (const StateId id : plan_.states.ids()) {
      if (home_[id].has_value() && offsets_[id] < 0) kept_[home_[id]] = true;
    }
    for (const auto& [r, is_kept] : kept_) parts_[r].clear();
    for (const StateId id : plan_.states.ids()) {
      if (home_[id].has_value() && parts_[home_[id]].empty()) offsets_[id] = -1;
    }
  }

  void CheckRead(const PlanActor& actor, const PlanOperand& operand) {
    if (operand.place != PlanOperand::Place::kInput) return;
    const RegisterId r = actor.inputs[operand.index].register_id;
    if (parts_[r].empty()) return;
    const int64_t begin = operand.byte_offset, end = begin + operand.slice.bytes();
    const bool is_of_one = std::any_of(
        parts_[r].begin(), parts_[r].end(),
        [begin, end](const auto& part) { return part.begin <= begin && end <= part.end; });
    if (!is_of_one) kept_[r] = true;
  }

  void Leave() {
    std::vector<Gap> gaps;
    for (const PlanRegister& r : plan_.registers) {
      if (!parts_[r.id].empty()) gaps.push_back({r.arena_offset, r.arena_offset + r.stride});
    }
    for (const StateId id : plan_.states.ids()) {
      const PlanState& state = plan_.states[id];
      if (offsets_[id] >= 0 && !home_[id].has_value())
        gaps.push_back({state.arena_offset, state.arena_offset + AlignUp(state.slice.bytes())});
    }
    std::sort(gaps.begin(), gaps.end(),
              [](const Gap& a, const Gap& b) { return a.begin < b.begin; });
    const auto left_before = [&gaps](int64_t offset) {
      int64_t bytes = 0;
      for (const Gap& gap : gaps) {
        if (gap.begin >= offset) break;
        bytes += std::min(gap.end, offset) - gap.begin;
      }
      return bytes;
    };
    for (PlanRegister& r : plan_.registers) r.arena_offset -= left_before(r.arena_offset);
    for (PlanState& state : plan_.states) state.arena_offset -= left_before(state.arena_offset);
    plan_.arena_bytes -= left_before(plan_.arena_bytes);
  }

  Plan& plan_;
  std::map<std::string, const PlanState*> states_of_owner_;
  IdVector<StateId, int64_t> offsets_;  // in the owner's arena; -1: not shared
  IdVector<StateId, RegisterId> home_;  // none: the state lies alone
  IdVector<RegisterId, std::vector<SharedStates::Part>> parts_;
  std::map<RegisterId, bool> kept_;  // registers that stay in the arena
};

}  // namespace

int64_t SharedStates::OffsetOf(RegisterId r, int64_t byte) const {
  const std::vector<Part>& parts = parts_[r];
  const auto after = std::upper_bound(parts.begin(), parts.end(), byte,
                                      [](int64_t at, const Part& part) { return at < part.begin; });
  const Part& part = *(after - 1);
  return part.offset + byte - part.begin;
}

SharedStates ShareWeights(const Plan& owner, Plan* plan) { return Sharing(owner, plan).Share(); }

}  // namespace weir::actors
