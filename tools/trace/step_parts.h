// Divides the time of a step into parts by cause, mean over the queues of all devices: what they
// worked on, and what they waited for while they had nothing to do.
//
// A wait for a token of another rank has two parts. Until the token had been sent, its sender was
// late. Afterwards the token was under way: that is communication which no work hid.
//
// A late sender of another stage makes the bubble of the pipeline, by the rule of
// pipeline_bubble.h: only queues that compute passes have a bubble, and only between the first
// forward act of a step and its last act of a backward pass. That measure has all time without such
// acts in this span, so it is never less than the bubble here, which has no communication, no wait
// within a stage and no wait for a slot; where there are none of these, both are the same time.
// Elsewhere a late sender is an imbalance, or it is a stage that updates its weights.
//
// After the last act of a queue nothing tells what
// the queue waits for, so that time counts as between acts. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

// A StepPartKind is the cause of a part of a step. A stack of the parts is drawn in this order.
enum class StepPartKind : uint8_t {
  kCompute,        // acts that compute
  kCommunication,  // acts that pack, unpack and combine tokens of other ranks
  kData,           // acts that read the data
  kUnderWay,       // waits for tokens of other ranks that had been sent
  kBubble,         // waits for tokens of other stages that had not been sent, during passes
  kLateSender,     // other waits for tokens of other ranks that had not been sent
  kOwnInput,       // waits for tokens of the own rank: its other queues were late
  kCredit,         // waits for a free slot
  kBetweenActs,    // ready, or without a known event to wait for
};

struct StepPart {
  StepPartKind kind = StepPartKind::kCompute;
  double share = 0;  // of the step; the shares of all parts sum to 1
  double ns_per_step = 0;
};

// Returns "compute", "waits for late ranks" and the like.
std::string Name(StepPartKind kind);

// Returns the kind of the time in which the acts of an actor run.
StepPartKind KindOfWork(const RecordedActor& actor);

// Returns all parts of the steady steps (StepTimes::FirstSteady), in the order of their kinds.
std::vector<StepPart> FindStepParts(const RecordedRun& run);

}  // namespace weir::trace
