// Who holds up a register: the actor that must publish before a token comes, the
// actors that must release before a slot is free, on whichever rank they are.
// Thread rule: values; immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/plan.h"

namespace weir {

class Holders {
 public:
  // The plans must outlive this; they may be those of some ranks only.
  explicit Holders(const std::vector<const Plan*>& plans);

  // "actor 'x' on rank 0"; several are joined by " and "; "rank 3" if its plan is not here.
  std::string OfToken(const Plan& plan, int register_id) const;
  std::string OfSlot(const Plan& plan, int register_id) const;

 private:
  using End = std::pair<const Plan*, const PlanRegister*>;
  std::map<uint64_t, End> senders_;    // by edge
  std::map<uint64_t, End> receivers_;  // by edge
};

}  // namespace weir
