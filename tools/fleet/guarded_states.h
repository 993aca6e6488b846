// GuardedStates are the copies of states that a process keeps in its memory for others, its charges
// (buddy_choice.h). A copy has those states of a charge that end with it or with its host
// (LoneShards), as of the end of a step, one shard after another. The bytes of a copy come in
// order, and a copy counts when it is whole. The last whole copy stays until the next one is whole,
// so a charge that is lost in the middle of a copy has left one.
//
// This class moves no bytes between processes (buddy_line.h).
// Thread rule: any thread; the bytes that Read returns stay until the next Expect, or until Add has
// begun the next copy but one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace weir::fleet {

struct GuardedShard {
  RankId rank;
  std::string name;
  int64_t bytes = 0;
};

// The shards of a process that its buddy keeps copies of, in the order of their bytes.
struct Charge {
  WorkerId worker;
  std::vector<GuardedShard> shards;

  int64_t bytes() const;
};

// A whole copy of a charge.
struct WholeCopy {
  WorkerId charge;
  int64_t step = 0;  // steps done
};

class GuardedStates {
 public:
  // Takes the memory for the copies of these charges. Whole copies of the same charges stay;
  // all others are dropped. kResourceExhausted: there is no memory, and then there are no charges.
  absl::Status Expect(const std::vector<Charge>& charges) ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the copies of other steps, and those that are not whole.
  void ForgetAllBut(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds bytes to the copy of a charge of that step. Bytes of another step than before begin
  // another copy. kInternal: the charge is not expected, or has fewer bytes.
  absl::Status Add(WorkerId charge, int64_t step, absl::string_view bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the whole copies, at most two of a charge.
  std::vector<WholeCopy> Whole() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns bytes of the shard of a rank in the last whole copy of its worker. kNotFound: there are
  // no such bytes.
  absl::StatusOr<absl::string_view> Read(RankId rank, const std::string& name, int64_t begin,
                                         int64_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the memory that the copies take.
  int64_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Copy {
    int64_t step = -1;  // -1: none
    int64_t filled = 0;
    std::unique_ptr<char[]> memory;
  };
  struct Kept {
    Charge charge;
    int64_t bytes = 0;
    std::array<Copy, 2> copies;
    int receiving = -1;  // the copy to which bytes are added; -1: none

    bool IsWhole(const Copy& copy) const { return copy.step >= 0 && copy.filled == bytes; }
    // Returns the last whole copy; null if there is none.
    const Copy* Last() const;
  };

  mutable Mutex mutex_;
  std::map<WorkerId, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::fleet
