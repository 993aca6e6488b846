// Holders names the actors that hold up a register: the actor that must publish before a token
// comes, and the actors that must release before a slot is free, on any rank.
// Thread rule: values; immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/plan/plan.h"

namespace weir::actors {

class Holders {
 public:
  // The plans must outlive this object; they may be those of some ranks only.
  explicit Holders(const std::vector<const Plan*>& plans);

  struct Actor {
    RankId rank;
    ActorId id;        // none: its plan is not here
    int port = -1;     // of a reader: the input
    std::string name;  // empty: not even its name is known here
  };
  std::vector<Actor> ActorsOfToken(const Plan& plan, RegisterId register_id) const;
  std::vector<Actor> ActorsOfSlot(const Plan& plan, RegisterId register_id) const;

  // "actor 'x' on rank 0"; several are joined by " and "; "rank 3" if its plan is not here.
  std::string OfToken(const Plan& plan, RegisterId register_id) const;
  std::string OfSlot(const Plan& plan, RegisterId register_id) const;

 private:
  static std::vector<Actor> Far(const PlanRegister& r);
  using End = std::pair<const Plan*, const PlanRegister*>;
  std::map<EdgeId, End> senders_;
  std::map<EdgeId, End> receivers_;
};

}  // namespace weir::actors
