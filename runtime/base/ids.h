// Identifiers, each with a type of its own, so that two kinds of number cannot mix.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <functional>

namespace weir {

// An Id is an integer that equals only integers of its own kind. Use `.value()` at the edges.
template <typename Tag, typename Int = int32_t>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Int value_ = -1;
};

using ActorId = Id<struct ActorTag>;          // within one rank's plan
using RegisterId = Id<struct RegisterTag>;    // within one rank's plan
using RankId = Id<struct RankTag>;            // a logical rank of the job: one device
using EdgeId = Id<struct EdgeTag, uint64_t>;  // a remote edge, the same on both ranks

}  // namespace weir
