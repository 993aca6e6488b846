// Lets a plan read its weights where another plan of the same rank, the owner, has them. An
// evaluation beside a training reads the weights that the training updates, so the weights take
// memory once.
//
// A weight is shared if the owner has the same shard of it at a place that never changes, and no
// kernel of the plan writes it. The weights of a register are shared together or not at all. What
// is shared leaves the arena of the plan, and what lies behind it moves up.
// Not here: the order between the two plans. They never run at the same time (Session).
// Thread rule: values.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "actors/plan/plan.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::actors {

// SharedStates tells where the shared states and registers of a plan lie in the owner's arena.
class SharedStates {
 public:
  // The bytes [begin, end) of a register lie at `offset` of the owner's arena.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t offset = 0;
  };

  SharedStates() = default;  // nothing is shared
  // `states`: by state, the offset in the owner's arena, -1 for one that is not shared. `parts`: by
  // register, ascending, empty for one that is not shared.
  SharedStates(IdVector<StateId, int64_t> states, IdVector<RegisterId, std::vector<Part>> parts)
      : states_(std::move(states)), parts_(std::move(parts)) {}

  bool Has(StateId state) const { return states_.Has(state) && states_[state] >= 0; }
  bool Has(RegisterId r) const { return parts_.Has(r) && !parts_[r].empty(); }
  // Return the offset in the owner's arena of a state, and of a byte of a register that lies in a
  // state. Precondition: Has.
  int64_t OffsetOf(StateId state) const { return states_[state]; }
  int64_t OffsetOf(RegisterId r, int64_t byte) const;

 private:
  IdVector<StateId, int64_t> states_;
  IdVector<RegisterId, std::vector<Part>> parts_;
};

// Takes the weights that `owner` has out of the arena of `plan`. Precondition: both are plans of
// one rank.
SharedStates ShareWeights(const Plan& owner, Plan* plan);

}  // namespace weir::actors
