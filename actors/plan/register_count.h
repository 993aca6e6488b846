// Counts the tokens of registers: the state of a register when all acts of the steps before a given
// step are done and no other act has begun. Engines start and rest in that state, and the proofs of
// a plan count the same way. Not here: the acts, spans and tokens of one actor
// (runtime/base/rate.h), and time. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "actors/plan/plan.h"

namespace weir::actors {

// A RegisterCount is the state of a register between two steps.
struct RegisterCount {
  int64_t taken = 0;      // by the producer: free slots, ever
  int64_t published = 0;  // initial tokens included
  int64_t released = 0;   // by all consumers
  int64_t in_use() const { return published - released; }
};

// Returns the counts when all acts of the steps before `step` are done. The far end of a remote
// register is counted from the plan's statement, or, without one, as an end that does the
// register's tokens in each step.
RegisterCount CountAt(const Plan& plan, const PlanRegister& r, int64_t step);

// An EndCount holds the same for one end: tokens taken and given up so far by the producer, or by
// consumer `k`.
struct EndCount {
  int64_t taken = 0;
  int64_t given_up = 0;
};
EndCount ProducerAt(const Plan& plan, const PlanRegister& r, int64_t step);
EndCount ConsumerAt(const Plan& plan, const PlanRegister& r, int k, int64_t step);
int NumConsumers(
    const PlanRegister& r);  // told of, on whichever rank; 1 if a remote register does not say

}  // namespace weir::actors
