// Counts where the time of a rank goes, by cause, while the rank runs: from the times that each act
// has anyway, so the count reads no clock. The causes are those of the report of a trace
// (tools/trace/step_parts.h), found by the same rule. One of them is joint here: whether an awaited
// token was under way or its sender was late, and whether that is a bubble, is known only beside
// the records of the other ranks.
//
// The time before an act, since its queue had done the act before, is a wait if the act got what it
// needed in that time, and otherwise lies between acts. Time after the last act of a run belongs to
// no act and is not counted. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::actors {

// A TimePart is a cause of time of a queue.
enum class TimePart : uint8_t {
  kCompute,
  kCommunication,  // acts that pack, unpack and combine tokens of other ranks
  kData,           // acts that read the data
  kOtherRanks,     // waits for tokens of other ranks
  kOwnInput,       // waits for tokens of the own rank: its other queues were late
  kCredit,         // waits for a free slot
  kBetweenActs,
};
inline constexpr size_t kNumTimeParts = static_cast<size_t>(TimePart::kBetweenActs) + 1;
using TimeParts = std::array<int64_t, kNumTimeParts>;  // by part

class StepAccount {
 public:
  // kYes: the device takes acts ahead, so an act that has what it needs may still wait for room on
  // the device. kNo: the wait for what an act needs ends with the start of the act.
  enum class TakesAhead : uint8_t { kNo, kYes };
  StepAccount(int num_queues, TakesAhead takes_ahead)
      : takes_ahead_(takes_ahead == TakesAhead::kYes), free_since_(num_queues, 0) {}

  // A run begins: the time since the last act belongs to no run.
  void BeginRun(int64_t now) { std::fill(free_since_.begin(), free_since_.end(), now); }

  // An act of `queue` is done. `work`: what it did; `wait`: what it waited for last. Acts of a
  // queue come in their order.
  void AddAct(QueueId queue, TimePart work, TimePart wait, int64_t ready, int64_t start,
              int64_t end) {
    int64_t& free = free_since_[queue];
    end = std::max(end, free);
    start = std::clamp(start, free, end);
    const int64_t waited_until = ready <= free  ? free
                                 : takes_ahead_ ? std::min(ready, start)
                                                : start;
    Add(wait, waited_until - free);
    Add(TimePart::kBetweenActs, start - waited_until);
    Add(work, end - start);
    free = end;
  }

  // Returns the time of all acts, of all queues together, in ticks.
  int64_t busy_ticks() const {
    return Of(TimePart::kCompute) + Of(TimePart::kCommunication) + Of(TimePart::kData);
  }
  // Returns the parts since the account was made: the mean of all queues, in ticks.
  TimeParts parts() const {
    TimeParts mean = ticks_;
    for (int64_t& part : mean) part /= static_cast<int64_t>(free_since_.size());
    return mean;
  }

 private:
  void Add(TimePart part, int64_t ticks) { ticks_[static_cast<size_t>(part)] += ticks; }
  int64_t Of(TimePart part) const { return ticks_[static_cast<size_t>(part)]; }

  const bool takes_ahead_;
  IdVector<QueueId, int64_t> free_since_;  // when each queue had done what it had been given
  TimeParts ticks_ = {};
};

// RankWork sums the work of a rank since the rank was made, in ticks of its clock. It lets ranks of
// the same kind be compared.
struct RankWork {
  int64_t busy_ticks = 0;      // in acts, on all queues together
  int64_t planned_ns = 0;      // that the same acts take by the costs that the plan was made with
  int64_t measured_ticks = 0;  // in acts whose CPU time is known, and
  int64_t cpu_ns = 0;          // their CPU time
  TimeParts part_ticks = {};   // of the runs, mean of all queues
};

}  // namespace weir::actors
