// KeptStates is a copy of the states of the ranks of one process, as of the end of a step. If
// another process of the job is lost in the middle of a later step, some ranks have updated their
// weights and others have not; the copies are of one step everywhere, and the job goes on from
// them.
//
// All states are copied whole, except for fetched results: a process needs its own shards back, and
// a process that starts anew needs those of its replicas. The copy keeps its memory from step to
// step.
//
// KeptSteps has the copies of the last steps (step_copies.h).
// Thread rule: one thread at a time; between two calls of Take any thread reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "actors/session/session.h"
#include "runtime/base/ids.h"
#include "tools/fleet/guarded_states.h"
#include "tools/fleet/step_copies.h"

namespace weir::fleet {

class KeptStates {
 public:
  // The number of steps done of the copy; -1: there is none.
  int64_t step() const { return step_; }
  int64_t bytes() const { return bytes_; }

  // Copies the states of the local ranks of a session at rest. kResourceExhausted: there is no
  // memory for the copy, and then there is none.
  absl::Status Take(const actors::Session& session);
  // Forgets the copy and keeps its memory.
  void Forget() { step_ = -1; }
  // Writes the copy into a session of the same ranks. Precondition: step() >= 0. Errors are those
  // of Session::WriteState.
  absl::Status PutInto(actors::Session* session) const;
  // Returns bytes of the shard of a state of a rank. kNotFound: the copy does not have them.
  absl::StatusOr<absl::string_view> Read(RankId rank, const std::string& name, int64_t begin,
                                         int64_t bytes) const;
  // Returns these shards of the copy, one after another, in as few pieces as the memory allows. The
  // pieces stay until the next Take. kNotFound: as Read.
  absl::StatusOr<std::vector<absl::string_view>> Pieces(
      const std::vector<GuardedShard>& shards) const;

 private:
  struct Range {
    int64_t begin = 0;  // in memory_
    int64_t bytes = 0;
  };

  int64_t step_ = -1;
  int64_t bytes_ = 0;
  int64_t capacity_ = 0;
  std::map<std::pair<RankId, std::string>, Range> ranges_;
  std::unique_ptr<char[]> memory_;
};

class KeptSteps : public StepCopies<KeptStates> {
 public:
  // Returns the bytes of the copies.
  int64_t bytes() const { return copies_[0].bytes() + copies_[1].bytes(); }
};

// Returns whether a state of that class is kept.
bool IsKept(actors::StateClass state_class);

}  // namespace weir::fleet
