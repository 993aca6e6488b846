// A Replayer plays a recorded run again under the protocol's rules. Every act and every message
// takes as long as in the record. An act starts when its tokens, its slots and its device are
// there, and the best of the ready acts goes first. A replay without changes must come out with the
// recorded time: the difference is the measure of trust in a replay with changes.
//
// A device that takes acts ahead gets the best of the ready acts as long as it has room. Tokens and
// slots within the rank are there when the other act has been given to the device; on its queue,
// the act then begins after the acts before it, and after those that write what it reads or read
// what it overwrites.
//
// A change affects only the changed acts and messages: acts keep their times even if others then
// run beside them on the same cores, and messages keep their times even if links are shared. The
// record shows that a message was late only if a rank waited for it. For other messages the time is
// the median of the messages of the same register (or of the pair of ranks, or of all), but no
// longer than is possible.
//
// A long run is replayed in full once, without a change. Changes are replayed over a sample: the
// last steps, so many that they have about kSampleActsMax acts, and at least kSampleStepsMin. Not
// here: the choice of changes to try (what_if.h). Thread rule: Replayer is immutable; Play may be
// called from several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

inline constexpr int64_t kSampleActsMax = 200'000;
// The first step of a replay fills pipelines and is not counted.
inline constexpr int64_t kSampleStepsMin = 5;

struct ReplayChanges {
  // kPlanned: acts and messages take as long as the plan expects; those that the plan says nothing
  // about take as long as in the record. A slot on its way back takes as long as the quickest
  // message.
  enum class Times : uint8_t { kRecorded, kPlanned };
  Times times = Times::kRecorded;
  int64_t kept_step = -1;                       // the step whose acts are kept; negative: none
  IdVector<RecordedRegisterId, int64_t> slots;  // empty: as recorded
  // The factor of the time of a register's tokens and credits; empty: 1.
  IdVector<RecordedRegisterId, double> transfer_factor;
  IdVector<RecordedActorId, double> act_factor;  // of the time of its acts; empty: 1
};

// A ReplayedAct is an act of a replay, in ns from the begin of the replay.
struct ReplayedAct {
  RecordedActorId actor;
  int64_t number = 0;  // of the actor's acts
  int64_t begin = 0;
  int64_t end = 0;
};

struct ReplayResult {
  // False: the replay came to a standstill, and there are no times.
  bool finished = false;
  double step_ns = 0;  // mean over the typical steps of the recorded run
  // Step times from the first step on, by the rule of step_rule.h; rests between runs belong to no
  // step.
  std::vector<int64_t> step_ns_of;
  // The time for which producers lacked only a free slot of the register.
  IdVector<RecordedRegisterId, int64_t> waited_for_slot_ns;
  std::vector<ReplayedAct> acts;  // of the kept step, in the order in which they were started
};

class Replayer {
 public:
  // `run` must outlive the replayer.
  explicit Replayer(const RecordedRun* run);

  // Replays the sample with changes.
  ReplayResult Play(const ReplayChanges& changes) const { return Play(changes, sample_first_); }
  // Returns the same figures of the record itself; waited_for_slot_ns is empty.
  const ReplayResult& recorded() const { return recorded_; }
  // Return the results of replays without changes: of the whole run, and of the sample.
  const ReplayResult& as_it_was() const { return as_it_was_; }
  const ReplayResult& sample() const {
    return sample_first_ == run_->first_step ? as_it_was_ : sample_;
  }
  // Replays the last steps with the times that the plan expects, and returns the acts of one of
  // them. Empty if the plan expects no times, or if the replay comes to a standstill.
  std::vector<ReplayedAct> PlayAsPlanned() const;
  // Returns the first step of the sample. Its last step is that of the run.
  int64_t sample_first_step() const { return sample_first_; }

  // Return the time from the publisher's end until the reader had the token, and the same time for
  // a credit back.
  int64_t TokenNs(RecordedRegisterId register_index, int64_t token) const {
    return tokens_[register_index].At(token);
  }
  int64_t CreditNs(RecordedRegisterId register_index, int64_t token) const {
    return credits_[register_index].At(token);
  }

 private:
  friend class ReplayState;

  // Messages holds the times of the messages of one register, by token.
  struct Messages {
    int64_t first_token = 0;
    std::vector<int64_t> ns;
    int64_t median_ns = 0;
    int64_t At(int64_t token) const {
      const int64_t at = token - first_token;
      return at >= 0 && at < static_cast<int64_t>(ns.size()) ? ns[at] : median_ns;
    }
  };
  // A Rest is a point where a run of the session ended and all ranks rested until the next run.
  struct Rest {
    int64_t step = 0;  // the first of the next run
    // The time from the end of the last act of all ranks to the run's begin on a rank.
    IdVector<RecordedRankId, int64_t> begin_after;
  };

  void FindDurations();
  void FindRests();
  void FindMessages();
  void FindPlannedCredits();
  void Record();
  void ChooseSample();
  ReplayResult Play(const ReplayChanges& changes, int64_t first_step) const;
  // Returns the mean over all steps but the first and the outliers of the record, or over those
  // that there are if there is no other. `step_ns_of` has the steps of the run from `first_step`
  // on.
  double MeanStepNs(const std::vector<int64_t>& step_ns_of, int64_t first_step) const;

  const RecordedRun* run_;
  IdVector<RecordedActorId, std::vector<int64_t>> durations_;  // by act, from first_act
  IdVector<RecordedRegisterId, Messages> tokens_, credits_;    // empty for those within a rank
  int64_t planned_credit_ns_ = 0;  // of the quickest message; 0: the plan does not say
  std::vector<char> is_outlier_;   // by step of the record
  std::vector<Rest> rests_;        // by step, ascending
  int64_t sample_first_ = 0;
  ReplayResult recorded_;
  ReplayResult as_it_was_;
  ReplayResult sample_;  // empty if the sample is the whole run
};

}  // namespace weir::trace
