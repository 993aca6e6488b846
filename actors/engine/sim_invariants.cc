#include "actors/engine/sim_invariants.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

using Carries = transport::SimNetwork::Lane::Carries;

absl::Status Broken(const char* invariant, const Plan& plan, const PlanRegister& r,
                    const std::string& expected, const std::string& found) {
  return ErrorOf(
      absl::StatusCode::kInternal,
      {"W0518", absl::StrCat(invariant, ", rank ", plan.rank, ", register '", r.name, "'"),
       expected, found, ""});
}

}  // namespace

void SimInvariants::MakeTables() {
  made_ = true;
  std::map<RankId, int> position;  // of a rank
  for (size_t i = 0; i < ranks_.size(); ++i) position[ranks_[i]->plan().rank] = static_cast<int>(i);
  row_of_register_.resize(ranks_.size());
  rows_of_actor_.resize(ranks_.size());
  row_of_lane_.assign(network_.num_lanes(), -1);
  for (size_t i = 0; i < ranks_.size(); ++i)
    row_of_register_[i].assign(ranks_[i]->plan().registers.size(), -1);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (const PlanRegister& r : ranks_[i]->plan().registers) {
      if (r.side == RegisterSide::kInbound) continue;
      const int index = static_cast<int>(rows_.size());
      Row& row = rows_.emplace_back();
      row.producer = row.holder = static_cast<int>(i);
      row.producer_register = row.holder_register = r.id;
      row_of_register_[i][r.id] = index;
      if (r.side == RegisterSide::kLocal) continue;
      row.holder = position.at(r.peer);
      for (const PlanRegister& other : ranks_[row.holder]->plan().registers) {
        if (other.edge != r.edge || other.side != RegisterSide::kInbound) continue;
        row.holder_register = other.id;
        row_of_register_[row.holder][other.id] = index;
      }
      row.token_lane = network_.LaneOf(r.edge, Carries::kTokens);
      row.credit_lane = network_.LaneOf(r.edge, Carries::kCredits);
      row_of_lane_[row.token_lane] = row_of_lane_[row.credit_lane] = index;
    }
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (const PlanActor& actor : ranks_[i]->plan().actors) {
      std::vector<int>& rows = rows_of_actor_[i].emplace_back();
      for (const PlanPort& port : actor.inputs)
        rows.push_back(row_of_register_[i][port.register_id]);
      for (const PlanPort& port : actor.outputs)
        rows.push_back(row_of_register_[i][port.register_id]);
    }
    FindOverlaps(static_cast<int>(i));
  }
}

void SimInvariants::FindOverlaps(int rank) {
  struct Slot {
    int64_t begin, end;
    const PlanRegister* r;
    int32_t slot;
  };
  const Plan& plan = ranks_[rank]->plan();
  std::vector<Slot> slots;
  for (const PlanRegister& r : plan.registers) {
    if (r.side == RegisterSide::kOutbound || r.bytes == 0) continue;
    for (int32_t k = 0; k < r.slots; ++k) {
      const int64_t begin = r.arena_offset + k * r.stride;
      slots.push_back({begin, begin + r.bytes, &r, k});
    }
  }
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& a = slots[i];
    if (a.end > plan.arena_bytes && outside_arena_.ok()) {
      outside_arena_ =
          Broken("I4", plan, *a.r, "slots inside the arena", absl::StrCat("end at ", a.end));
    }
    for (size_t j = i + 1; j < slots.size() && slots[j].begin < a.end; ++j) {
      const int index = static_cast<int>(overlaps_.size());
      overlaps_.push_back({rank, a.r->id, a.slot, slots[j].r->id, slots[j].slot});
      for (const PlanRegister* r : {a.r, slots[j].r})
        rows_[row_of_register_[rank][r->id]].overlaps.push_back(index);
    }
  }
}

absl::Status SimInvariants::CheckAll() {
  if (!made_) MakeTables();
  WEIR_RETURN_IF_ERROR(outside_arena_);
  for (const Row& row : rows_) WEIR_RETURN_IF_ERROR(CheckRow(row));
  for (const Overlap& overlap : overlaps_) WEIR_RETURN_IF_ERROR(CheckOverlap(overlap));
  return CheckStrangers();
}

absl::Status SimInvariants::CheckActor(int rank, ActorId actor) {
  if (!made_ || DueForAll()) return CheckAll();
  for (int index : rows_of_actor_[rank][actor]) {
    const Row& row = rows_[index];
    WEIR_RETURN_IF_ERROR(CheckRow(row));
    for (int overlap : row.overlaps) WEIR_RETURN_IF_ERROR(CheckOverlap(overlaps_[overlap]));
  }
  return absl::OkStatus();
}

absl::Status SimInvariants::CheckLane(int lane) {
  if (!made_ || DueForAll()) return CheckAll();
  const Row& row = rows_[row_of_lane_[lane]];
  WEIR_RETURN_IF_ERROR(CheckRow(row));
  for (int overlap : row.overlaps) WEIR_RETURN_IF_ERROR(CheckOverlap(overlaps_[overlap]));
  return CheckStrangers();
}

// I1 and I3.
absl::Status SimInvariants::CheckRow(const Row& row) const {
  const RankExecutor& producer = *ranks_[row.producer];
  const PlanRegister& r = producer.plan().registers[row.producer_register];
  const ActorMachine::Port& port = producer.machine(r.producer.actor).output(r.producer.port);
  const SlotLedger& ledger = ranks_[row.holder]->ledger(row.holder_register);
  const int64_t under_way =
      row.token_lane < 0 ? 0
                         : network_.UnderWay(row.token_lane) + network_.UnderWay(row.credit_lane);
  const int64_t held = port.held_slot >= 0 ? port.tokens : 0;
  const int64_t leaving = producer.NumLeaving(row.producer_register);
  const int64_t in_use = ledger.num_in_use();
  if (port.available + held + leaving + under_way + in_use != r.slots) {
    return Broken("I1", producer.plan(), r, absl::StrCat(r.slots, " slots"),
                  absl::StrCat(port.available, " free, ", held, " held, ", leaving, " leaving, ",
                               under_way, " under way, ", in_use, " in use"));
  }
  for (int32_t k = 0; k < held; ++k) {
    if (ledger.is_free(port.slot(k))) continue;
    return Broken("I3", producer.plan(), r,
                  absl::StrCat("nobody reading slot ", port.slot(k), ", which is written"),
                  absl::StrCat(ledger.readers(port.slot(k)), " readers"));
  }
  return absl::OkStatus();
}

bool SimInvariants::InUse(int rank, const PlanRegister& r, int32_t slot) const {
  if (!ranks_[rank]->ledger(r.id).is_free(slot)) return true;
  const Row& row = rows_[row_of_register_[rank][r.id]];
  if (row.token_lane >= 0 && network_.UnderWay(row.token_lane) > 0) return true;
  const PortRef& writer = ranks_[row.producer]->plan().registers[row.producer_register].producer;
  return ranks_[row.producer]->machine(writer.actor).output(writer.port).Holds(slot);
}

// The actor that writes `out` holds `in` for reading and is its last reader.
bool SimInvariants::WrittenInPlace(const RankExecutor& rank, RegisterId in, int32_t in_slot,
                                   RegisterId out, int32_t out_slot) const {
  const PortRef& producer = rank.plan().registers[out].producer;
  if (!producer.actor.has_value()) return false;
  const ActorMachine& writer = rank.machine(producer.actor);
  if (!writer.output(producer.port).Holds(out_slot) || rank.ledger(in).readers(in_slot) != 1)
    return false;
  for (int i = 0; i < writer.num_inputs(); ++i) {
    if (writer.input(i).register_id == in && writer.input(i).Holds(in_slot)) return true;
  }
  return false;
}

// I4.
absl::Status SimInvariants::CheckOverlap(const Overlap& o) const {
  const RankExecutor& rank = *ranks_[o.rank];
  const PlanRegister& a = rank.plan().registers[o.a];
  const PlanRegister& b = rank.plan().registers[o.b];
  if (!InUse(o.rank, a, o.a_slot) || !InUse(o.rank, b, o.b_slot) ||
      WrittenInPlace(rank, o.a, o.a_slot, o.b, o.b_slot) ||
      WrittenInPlace(rank, o.b, o.b_slot, o.a, o.a_slot)) {
    return absl::OkStatus();
  }
  return Broken("I4", rank.plan(), a,
                absl::StrCat("memory of slot ", o.a_slot, " for it alone while it is in use"),
                absl::StrCat("slot ", o.b_slot, " of '", b.name, "' there, in use too"));
}

// I2 and I5.
absl::Status SimInvariants::CheckStrangers() const {
  if (network_.counts().wrongly_accepted == 0) return absl::OkStatus();
  return ErrorOf(
      absl::StatusCode::kInternal,
      {"W0518", "I2 and I5, simulated network", "messages as they were sent, once",
       absl::StrCat(network_.counts().wrongly_accepted,
                    " accepted that came twice, cut short, or from another epoch or job"),
       ""});
}

}  // namespace weir::actors
