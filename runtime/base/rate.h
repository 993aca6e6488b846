// The vocabulary of time: how often an actor acts (Rate), which of its acts share tokens (Span),
// when its acts start (Timing), and which of them go first (Precedence). Compiler, runtime and
// traces use these four types. proto/rate.proto has the same four as messages, and
// runtime/base/rate_codec.h converts.
//
// Steps count from 0, and so do acts, over all steps. Not here: the length of steps and iterations
// (PlanRhythm in actors/plan/plan.h), checks of numbers that come from outside (their readers), and
// the proof that a plan's times hold, which the runtime does with formulas of its own
// (actors/plan/certificate.cc). Preconditions of all functions: the numbers are in the ranges that
// the fields state, and products of them stay below 2^63. Thread rule: values and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/floor_div.h"

namespace weir {

// An actor acts `acts_per_step` times in each step n with n % every == every_phase.
struct Rate {
  int64_t acts_per_step = 1;  // at least 1
  int64_t chunks = 1;         // acts of one micro-batch; they divide acts_per_step
  int64_t every = 1;          // steps; at least 1
  int64_t every_phase = 0;    // from 0 to every - 1

  int64_t micro_batches_per_step() const { return acts_per_step / chunks; }
  bool ActsInStep(int64_t step) const { return step % every == every_phase; }
  // Returns the number of acts of all steps before `step`.
  int64_t ActsBefore(int64_t step) const {
    return FloorDiv(step - every_phase + every - 1, every) * acts_per_step;
  }
  // Returns the number of acts of any `steps` steps in a row. Precondition: `every` divides
  // `steps`.
  int64_t ActsIn(int64_t steps) const { return acts_per_step * (steps / every); }

  // Return the step of an act, and the place of the act in that step. Precondition: act >= 0.
  int64_t StepOf(int64_t act) const { return act / acts_per_step * every + every_phase; }
  int64_t ActInStep(int64_t act) const { return act % acts_per_step; }
  int64_t MicroBatchOf(int64_t act) const { return ActInStep(act) / chunks; }

  friend bool operator==(const Rate&, const Rate&) = default;
};

// Span j of a port is the acts from j * period - phase on. The first span is the shorter by
// `phase`, because no act is before act 0. The actor takes the `tokens` tokens (or slots) of a span
// before the first act of the span, and gives them up after the last act.
struct Span {
  int64_t period = 1;  // acts; at least 1
  int64_t tokens = 1;  // at least 1
  int64_t phase = 0;   // acts; from 0 to period - 1

  // Return the span of an act, and whether the act is the first or last of its span. Precondition:
  // act >= 0.
  int64_t SpanOf(int64_t act) const { return (act + phase) / period; }
  bool Begins(int64_t act) const { return act == 0 || (act + phase) % period == 0; }
  bool Ends(int64_t act) const { return (act + 1 + phase) % period == 0; }
  // Return the first and last act of a span. Precondition: span >= 0.
  int64_t FirstAct(int64_t span) const { return std::max<int64_t>(0, span * period - phase); }
  int64_t LastAct(int64_t span) const { return (span + 1) * period - phase - 1; }

  // Return the numbers of spans that an actor has begun and ended when it has done `acts` acts.
  int64_t Begun(int64_t acts) const { return acts == 0 ? 0 : SpanOf(acts - 1) + 1; }
  int64_t Ended(int64_t acts) const { return SpanOf(acts); }
  // Return the numbers of tokens that an actor has taken and given up when it has done `acts` acts.
  int64_t TokensTaken(int64_t acts) const { return Begun(acts) * tokens; }
  int64_t TokensGivenUp(int64_t acts) const { return Ended(acts) * tokens; }

  friend bool operator==(const Span&, const Span&) = default;
};

// Act k of a step starts `start_ns` + OffsetOf(k) after the step begins, and takes `time_ns`.
struct Timing {
  int64_t start_ns = 0;
  int64_t micro_batch_stride_ns = 0;  // from the acts of one micro-batch to the acts of the next
  int64_t chunk_stride_ns = 0;        // from one act of a micro-batch to the next
  int64_t time_ns = 0;                // of one act

  // Returns the time from the start of act 0 to the start of act `act_in_step`, for an actor that
  // does `chunks` acts for a micro-batch.
  int64_t OffsetOf(int64_t act_in_step, int64_t chunks) const {
    if (chunks == 1) return act_in_step * micro_batch_stride_ns;
    return act_in_step / chunks * micro_batch_stride_ns + act_in_step % chunks * chunk_stride_ns;
  }

  friend bool operator==(const Timing&, const Timing&) = default;
};

// Among ready acts of equal priority, the act with the least precedence goes first. Each
// micro-batch of an actor has a precedence of its own: inside a group of `group` micro-batches
// precedences grow by `stride`, and from group to group by `group_stride`.
struct Precedence {
  int64_t first = 0;
  int64_t group = 1;         // micro-batches; at least 1
  int64_t group_stride = 0;  // at least 0
  int64_t stride = 0;        // at least 0

  int64_t At(int64_t micro_batch) const {
    return first + micro_batch / group * group_stride + micro_batch % group * stride;
  }
  // Returns whether all micro-batches have one precedence.
  bool always_same() const { return group_stride == 0 && stride == 0; }
  bool always_zero() const { return first == 0 && always_same(); }

  friend bool operator==(const Precedence&, const Precedence&) = default;
};

}  // namespace weir
