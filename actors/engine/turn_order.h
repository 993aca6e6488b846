// Actors of a rank that act in a fixed order (a StreamOrder of the plan), and whose turn it is.
// Thread rule: the rank's thread.
#pragma once

#include <cstdint>

#include "actors/plan/plan.h"
#include "runtime/base/ids.h"

namespace weir::actors {

struct TurnOrder {
  const PlanStream* plan = nullptr;
  int32_t acts_per_step = 1;
  int32_t lead = 0;  // the most that an entry is ahead: rounds before round 0
  int32_t round = 0;
  int32_t entry = 0;

  ActorId actor() const { return plan->entries[entry].actor; }
  // Goes to the first act at or after (round, entry).
  void Seek() {
    for (;; ++entry) {
      if (entry == static_cast<int32_t>(plan->entries.size())) {
        entry = 0;
        if (++round == acts_per_step) round = -lead;
      }
      const int32_t act = round + plan->entries[entry].ahead;
      if (act >= 0 && act < acts_per_step) return;
    }
  }
  void Advance() {
    ++entry;
    Seek();
  }
};

}  // namespace weir::actors
