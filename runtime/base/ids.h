// Identifiers, each with a type of its own, so that two kinds of number cannot mix. An id costs
// what its integer costs. Not here: counts, and places in a list that has no ids of its own
// (stages, ports, slots, lanes), which are plain integers.
// Thread rule: values.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

// An Id is an integer that mixes only with integers of its own kind. Messages, files and people
// have the integer: use `.value()` and the constructor at those edges. An Id without a value is
// kNone, which names nothing.
template <typename Tag, typename Int = int32_t, Int kNone = -1>
class Id {
 public:
  using Value = Int;

  constexpr Id() = default;
  constexpr explicit Id(Int value) : value_(value) {}

  constexpr Int value() const { return value_; }
  constexpr bool has_value() const { return value_ != kNone; }

  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value_);
  }
  // These two are the text of an id, for absl::StrCat and for streams.
  operator absl::AlphaNum() const { return absl::AlphaNum(value_); }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.value_; }

 private:
  Int value_ = kNone;
};

using RankId = Id<struct RankTag>;                // a logical rank of the job: one device
using WorkerId = Id<struct WorkerTag>;            // a process of the job, from 0
using HostId = Id<struct HostTag>;                // a host of the job: a place in its list, from 0
using HostProcessId = Id<struct HostProcessTag>;  // a process of a host's agent, from 0 on the host
using TaskId = Id<struct TaskTag>;                // a task that a scheduler has started, from 0
using EdgeId = Id<struct EdgeTag, uint64_t, 0>;   // a remote edge, the same on both ranks
using EdgeHandle = Id<struct EdgeHandleTag>;      // the same edge at one endpoint of a transport

// These number the parts of the plan of one rank, each kind from 0. The compiler numbers the parts
// of its graphs with them, too.
using ActorId = Id<struct ActorTag>;
using RegisterId = Id<struct RegisterTag>;
using StateId = Id<struct StateTag>;
using StreamId = Id<struct StreamTag>;
using ProgramId = Id<struct ProgramTag>;
using QueueId = Id<struct QueueTag>;  // a queue of the rank's device

}  // namespace weir
