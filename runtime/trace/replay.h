// A recorded run played again under the protocol's rules: every act takes as long as it
// did, every message as long as it did; an act starts when its tokens, its slots and its
// device are there, the best of those that are ready first. Played as it was, it must
// come out with the time it took: that is the measure of what a replay with changes is worth.
//
// What was changed may not change what it should not: acts keep their times though others
// may then run beside them on the same cores, and messages keep theirs though links may
// be shared.
// A message is known to have been late only where somebody waited for it; where nobody did, the
// time is the median of those of its register (or its pair of ranks, or all) and no longer than it
// can have been. Not here: which changes are worth a try (what_if.h). Thread rule: Replayer is
// immutable; Play may be called from several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/trace/recorded_run.h"

namespace weir {

struct ReplayChanges {
  std::vector<int64_t> slots;  // by register; empty: as recorded
  std::vector<double>
      transfer_factor;             // by register, of the time of its tokens and credits; empty: 1
  std::vector<double> act_factor;  // by actor, of the time of its acts; empty: 1
};

struct ReplayResult {
  // False: it came to a standstill; then there are no times.
  bool finished = false;
  double step_ns = 0;  // mean, as of the recorded run
  // By step from the first one, by the rule of step_rule.h; rests between runs belong to no step.
  std::vector<int64_t> step_ns_of;
  // By register: how long producers had all they needed but a free slot of it.
  std::vector<int64_t> waited_for_slot_ns;
};

class Replayer {
 public:
  // `run` must outlive the replayer.
  explicit Replayer(const RecordedRun* run);

  ReplayResult Play(const ReplayChanges& changes) const;
  // The same figures of the record itself; waited_for_slot_ns is empty.
  const ReplayResult& recorded() const { return recorded_; }
  // A replay without changes.
  const ReplayResult& as_it_was() const { return as_it_was_; }

  // How long a token took from the publisher's end until the reader had it, and a credit back.
  int64_t TokenNs(int32_t register_index, int64_t token) const {
    return tokens_[register_index].At(token);
  }
  int64_t CreditNs(int32_t register_index, int64_t token) const {
    return credits_[register_index].At(token);
  }

 private:
  friend class ReplayState;

  // Times of the messages of one register, by token.
  struct Messages {
    int64_t first_token = 0;
    std::vector<int64_t> ns;
    int64_t median_ns = 0;
    int64_t At(int64_t token) const {
      const int64_t at = token - first_token;
      return at >= 0 && at < static_cast<int64_t>(ns.size()) ? ns[at] : median_ns;
    }
  };
  // Where a run of the session ended and all ranks rested until the next.
  struct Rest {
    int64_t step = 0;  // the first of the next run
    std::vector<int64_t>
        begin_after;  // by rank: from the end of the last act of all to the run's begin
  };

  void FindDurations();
  void FindRests();
  void FindMessages();
  void Record();
  // The mean over all steps but the first, or the first alone.
  static double MeanStepNs(const std::vector<int64_t>& step_ns_of);

  const RecordedRun* run_;
  std::vector<std::vector<int64_t>> durations_;  // by actor and act, from first_act
  std::vector<Messages> tokens_, credits_;       // by register; empty for those within a rank
  std::vector<Rest> rests_;                      // by step, ascending
  ReplayResult recorded_;
  ReplayResult as_it_was_;
};

}  // namespace weir
