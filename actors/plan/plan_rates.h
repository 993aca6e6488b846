// Counts acts, spans and tokens: the position of an actor and of a register when all acts of the
// steps before a given step are done and no other act has begun. Engines start and rest in that
// state, and the proofs of a plan count the same way. Not here: time. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "actors/plan/plan.h"
#include "runtime/base/floor_div.h"

namespace weir {

// Returns the number of acts of all steps before `step`.
inline int64_t ActsBefore(const PlanRate& rate, int64_t step) {
  return FloorDiv(step - rate.every_phase + rate.every - 1, rate.every) * rate.acts_per_step;
}
inline int64_t ActsPerIteration(const PlanRate& rate, const PlanRhythm& rhythm) {
  return int64_t{rate.acts_per_step} * (rhythm.steps_per_iteration / rate.every);
}

// Returns the spans that a port has begun when its actor has done `acts` acts.
inline int64_t SpansBegun(const PlanPort& port, int64_t acts) {
  return acts == 0 ? 0 : (acts - 1 + port.phase) / port.period + 1;
}
inline int64_t SpansEnded(const PlanPort& port, int64_t acts) {
  return (acts + port.phase) / port.period;
}

inline int64_t TokensTaken(const PlanPort& port, int64_t acts) {
  return SpansBegun(port, acts) * port.tokens;
}
inline int64_t TokensGivenUp(const PlanPort& port, int64_t acts) {
  return SpansEnded(port, acts) * port.tokens;
}

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

}  // namespace weir
