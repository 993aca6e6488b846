// A hand-made record whose times are known in closed form, for tests of what traces tell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/trace_reader.h"

namespace weir::trace {

inline constexpr int64_t kMicrosecond = 1000;
inline constexpr int64_t kBegin = 1000000;  // of the first step, ns

// Rank 0 makes x in 10 us. x takes 5 us to rank 1, which reads it for 20 us. There is one slot, so
// the next x waits until rank 1 has read this x: a step takes 35 us.
// In `slow_step` the read takes 40 times as long.
// Rank 2, which a file may have too, works for itself for 10 us in each step.
class Relay {
 public:
  explicit Relay(int64_t steps, int64_t slow_step = -1, int64_t acts_kept = 64,
                 int64_t read_takes_us = 20)
      : made_(acts_kept), read_(acts_kept), alone_(acts_kept), steps_(steps) {
    int64_t at = kBegin;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t read_us = step == slow_step ? 800 : read_takes_us;
      Add(&made_, step, at, 10, ActRecord::Wait::kCredit, at);
      Add(&alone_, step, at, 10, ActRecord::Wait::kNone, at);
      at += 15 * kMicrosecond;
      Add(&read_, step, at, read_us, ActRecord::Wait::kInput, at);
      at += read_us * kMicrosecond;
    }
    end_ = at;
  }

  // Begins a step more, in which rank 1 does not act.
  void BeginStep() {
    Add(&made_, steps_, end_, 10, ActRecord::Wait::kCredit, end_);
    Add(&alone_, steps_, end_, 10, ActRecord::Wait::kNone, end_);
  }

  // Writes a file of all ranks, or of the ranks of one process.
  std::string File(const std::vector<int>& ranks) const {
    TracedJob job;
    job.plan_id = "relay";
    job.num_ranks = std::max(2, ranks.back() + 1);
    job.describing_rank = RankId(ranks.front());
    for (int rank : ranks) job.ranks.push_back(Rank(rank));
    std::stringstream out;
    EXPECT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
    return out.str();
  }

  TracedRank Rank(int number) const {
    TracedRank rank;
    rank.rank = RankId(number);
    TracedActor& actor = rank.actors.emplace_back();
    if (number == 2) {
      actor.name = actor.function = "work alone";
      actor.phase = "forward";
      rank.acts = &alone_;
      return rank;
    }
    actor.name = number == 0 ? "actor of x" : "actor of y";
    actor.function = number == 0 ? "make x" : "read x";
    actor.phase = number == 0 ? "forward" : "backward";
    (number == 0 ? actor.outputs : actor.inputs) = {TracedPort{RegisterId(0), Span()}};
    TracedRegister& x = rank.registers.emplace_back();
    x.name = "move x rank 0 to 1";
    x.boxing = "move x";
    x.bytes = 4096;
    x.edge = EdgeId(7);
    x.crosses_ranks = true;
    x.other_rank = RankId(1 - number);
    rank.acts = number == 0 ? &made_ : &read_;
    return rank;
  }

 private:
  static void Add(ActRing* ring, int64_t step, int64_t start, int64_t microseconds,
                  ActRecord::Wait wait, int64_t ready) {
    ActRecord& act = ring->Add();
    act.actor = ActorId(0);
    act.step = step;
    act.start = start;
    act.ready = ready;
    act.end = start + microseconds * kMicrosecond;
    act.wait = wait;
    act.waited_register = RegisterId(0);
  }

  ActRing made_, read_, alone_;
  const int64_t steps_;
  int64_t end_ = kBegin;
};

inline TraceReader Read(const std::string& file) {
  TraceReader reader;
  EXPECT_EQ(reader.Read(file), absl::OkStatus());
  return reader;
}

// Returns the run of a whole trace.
inline RecordedRun RunOf(const std::string& file) {
  absl::StatusOr<RecordedRun> run = ReadRecordedRun(Read(file));
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RecordedRun{};
}
inline RecordedRun RunOf(const Relay& relay) { return RunOf(relay.File({0, 1})); }
inline RecordedRun RunOf(const TracedJob& job) {
  std::stringstream out;
  EXPECT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  return RunOf(out.str());
}

}  // namespace weir::trace
