#include "actors/engine/sim_invariants.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

absl::Status Broken(const char* invariant, const Plan& plan, const PlanRegister& r, const std::string& expected,
                    const std::string& found) {
  return absl::InternalError(
      Format({"W0518", absl::StrCat(invariant, ", rank ", plan.rank, ", register '", r.name, "'"), expected, found, ""}));
}

const PlanRegister* OtherEnd(const RankExecutor& peer, const PlanRegister& r) {
  for (const PlanRegister& other : peer.plan().registers) {
    if (other.edge == r.edge && other.side == RegisterSide::kInbound) return &other;
  }
  return nullptr;
}

// I1 and I3 for a register and the rank that produces it.
absl::Status CheckProduced(absl::Span<RankExecutor* const> ranks, const SimNetwork& network, const RankExecutor& rank,
                           const PlanRegister& r) {
  const ActorMachine::Port& port = rank.machine(r.producer.actor).output(r.producer.port);
  const SlotLedger* ledger = &rank.ledger(r.id);
  int64_t under_way = 0;
  if (r.side == RegisterSide::kOutbound) {
    const PlanRegister* other = OtherEnd(*ranks[r.peer], r);
    if (other == nullptr) return Broken("I1", rank.plan(), r, "a receiving end", "none");
    ledger = &ranks[r.peer]->ledger(other->id);
    under_way = network.TokensUnderWay(r.edge) + network.CreditsUnderWay(r.edge);
  }
  const int64_t held = port.held_slot >= 0;
  const int64_t in_use = ledger->num_in_use();
  if (port.available + held + under_way + in_use != r.slots) {
    return Broken("I1", rank.plan(), r, absl::StrCat(r.slots, " slots"),
                  absl::StrCat(port.available, " free, ", held, " held, ", under_way, " under way, ", in_use, " in use"));
  }
  if (port.held_slot >= 0 && !ledger->is_free(port.held_slot)) {
    return Broken("I3", rank.plan(), r, absl::StrCat("nobody reading slot ", port.held_slot, ", which is written"),
                  absl::StrCat(ledger->readers(port.held_slot), " readers"));
  }
  return absl::OkStatus();
}

struct LiveSlot {
  int64_t begin;
  int64_t end;
  const PlanRegister* r;
  int32_t slot;
};

// The actor that writes `out` holds `in` for reading and is its last reader.
bool WrittenInPlace(const RankExecutor& rank, const LiveSlot& in, const LiveSlot& out) {
  if (out.r->producer.actor < 0) return false;
  const ActorMachine& writer = rank.machine(out.r->producer.actor);
  if (writer.output(out.r->producer.port).held_slot != out.slot) return false;
  if (rank.ledger(in.r->id).readers(in.slot) != 1) return false;
  for (int i = 0; i < writer.num_inputs(); ++i) {
    if (writer.input(i).register_id == in.r->id && writer.input(i).held_slot == in.slot) return true;
  }
  return false;
}

absl::Status CheckMemory(const RankExecutor& rank) {
  std::vector<LiveSlot> live;
  for (const PlanRegister& r : rank.plan().registers) {
    if (r.side == RegisterSide::kOutbound || r.bytes == 0) continue;
    const int32_t held =
        r.producer.actor >= 0 ? rank.machine(r.producer.actor).output(r.producer.port).held_slot : -1;
    for (int32_t k = 0; k < r.slots; ++k) {
      // A landing slot may be written at any time once its credit has been given.
      const bool in_use = r.side == RegisterSide::kInbound || k == held || !rank.ledger(r.id).is_free(k);
      const int64_t begin = r.arena_offset + k * r.stride;
      if (in_use) live.push_back({begin, begin + r.bytes, &r, k});
    }
  }
  std::sort(live.begin(), live.end(), [](const LiveSlot& a, const LiveSlot& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i].end > rank.plan().arena_bytes) {
      return Broken("I4", rank.plan(), *live[i].r, "slots inside the arena", absl::StrCat("end at ", live[i].end));
    }
    for (size_t j = i + 1; j < live.size() && live[j].begin < live[i].end; ++j) {
      if (WrittenInPlace(rank, live[i], live[j]) || WrittenInPlace(rank, live[j], live[i])) continue;
      return Broken("I4", rank.plan(), *live[i].r,
                    absl::StrCat("memory of slot ", live[i].slot, " for it alone while it is in use"),
                    absl::StrCat("slot ", live[j].slot, " of '", live[j].r->name, "' there, in use too"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSimInvariants(absl::Span<RankExecutor* const> ranks, const SimNetwork& network) {
  for (const RankExecutor* rank : ranks) {
    for (const PlanRegister& r : rank->plan().registers) {
      if (r.side == RegisterSide::kInbound) continue;
      WEIR_RETURN_IF_ERROR(CheckProduced(ranks, network, *rank, r));
    }
    WEIR_RETURN_IF_ERROR(CheckMemory(*rank));
  }
  return absl::OkStatus();
}

}  // namespace weir
