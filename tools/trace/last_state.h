// The LastState of a run is where its ranks stood when the record ended: the failures that the
// trace marks, the ranks that it lacks, and for each rank that it holds the act that the rank had
// not done, with what that act needed and from whom. It tells of a job that failed, stood still or
// was interrupted in a step.
//
// A trace holds acts that are done. What came next follows from the plans and from how many acts
// each actor has done, by the rule of the runtime: an act needs a token of each input and a slot of
// each output. Of a rank that the trace lacks nothing is known but that others need something of
// it. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

// An OpenAct is the earliest act that a rank had not done.
struct OpenAct {
  enum class Need : uint8_t {
    kNothing,  // it had all that it needs, or this was on its way
    kToken,
    kSlot,
    kNoStep,  // the rank had done all acts of the steps that the trace knows; there is no act
  };

  RankId rank;
  RecordedQueueId queue;
  std::string device;  // "rank 0 · stage 0"
  std::string function;
  int64_t step = 0;  // its index
  int64_t micro_batch = 0;
  Need need = Need::kNothing;
  std::string register_name;
  RankId holder_rank;          // none unless it needs something
  std::string holder;          // the function whose act would give it; empty: on a missing rank
  int64_t since = 0;           // the end of the last act on its queue; 0: none is kept
  std::string failure;         // of the rank's process, in words; empty: the trace marks none
  std::string Text() const;    // "rank 0: `forward x`, step 4, micro-batch 0, needs a token of ..."
  std::string Reason() const;  // "needs a token of ..."
};

struct LastState {
  std::vector<RankId> missing;
  std::vector<MarkedFailure> failures;  // in order of time
  std::vector<OpenAct> acts;            // of the ranks that the trace holds, by rank
  // What failed, what is missing, what is whole, what all wait for.
  std::vector<std::string> sentences;
};

// Returns nullopt if the trace has all ranks and marks no failure, and its last step is whole.
std::optional<LastState> FindLastState(const RecordedRun& run);

std::string ToText(const LastState& state);

}  // namespace weir::trace
