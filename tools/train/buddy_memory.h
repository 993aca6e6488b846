// The memory that buddy copies take (runtime.buddy_every), known before anything starts: each
// process keeps two copies of its own states, and two of those of another process that have no
// replica. Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "compiler/compile.h"
#include "proto/plan.pb.h"
#include "runtime/base/ids.h"
#include "tools/train/memory_budget.h"

namespace weir::train {

// The bytes for processes of one rank each. With more ranks in a process, replicas may be in the
// same process, which then do not count as such.
struct BuddyNeed {
  double rank_bytes = 0;   // in the memory of the process of the rank that needs most
  double all_bytes = 0;    // of all processes
  double moved_bytes = 0;  // that go to buddies each time; 0: every state has a replica
};

// `plans` has at least the first rank of each stage, which stands for the ranks of the stage that
// `plans` lacks.
BuddyNeed BuddyNeedOf(const compiler::LogicalPlan& plan,
                      const std::map<RankId, proto::RankPlan>& plans);

// Returns "; buddy copies take ..." for the sentence about memory; empty: the job has none.
std::string BuddyText(const compiler::LogicalPlan& plan,
                      const std::map<RankId, proto::RankPlan>& plans);

// Returns a warning if the job and its buddy copies need more than the machine has; else an empty
// text.
std::string BuddyWarning(const compiler::LogicalPlan& plan, const NeedAndPlans& of,
                         const MemoryBudget& budget);

}  // namespace weir::train
