// The engine for proofs: the same ranks and machines on one thread, in virtual time.
// At each step it lists what could happen next (a message of some edge arrives, a ready
// act starts on a rank, a running act ends) and one of them happens. Which one is drawn
// from a seed, so that every interleaving can be met and any run repeated; or it is the
// earliest in virtual time, which predicts how long a plan takes.
//
//   kUniform     any enabled event, equally likely
//   kStarveOne   one rank or edge, drawn from the seed, moves only if nothing else can
//   kPriorities  random priorities with three change points (probabilistic concurrency testing)
//   kByTime      what is due first; ready acts start at once, best first
//
// Thread rule: as Engine; all on the caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/engine/engine.h"
#include "actors/engine/rank_executor.h"
#include "runtime/base/clock.h"
#include "runtime/device/fake_device.h"
#include "runtime/transport/sim_transport.h"

namespace weir {

struct SimEngineOptions {
  uint64_t seed = 1;
  enum class Chooser : uint8_t { kUniform, kStarveOne, kPriorities, kByTime } chooser = Chooser::kUniform;
  enum class Check : uint8_t { kAtEnd, kEveryStep } check = Check::kAtEnd;  // of sim_invariants.h
};

class SimEngine final : public Engine {
 public:
  // All must outlive the engine; `devices[i]` and `ranks[i]` belong together, the ranks'
  // trace clock is `clock`.
  SimEngine(std::vector<RankExecutor*> ranks, std::vector<FakeDevice*> devices, SimNetwork* network,
            ManualClock* clock, const SimEngineOptions& options);

  absl::Status RunSteps(int64_t steps) override;
  void Stop(absl::Status reason) override;

  int64_t num_events() const { return num_events_; }
  // Equal for equal histories: same seed, same plans, same options.
  uint64_t history_hash() const { return history_hash_; }
  int64_t now_ns() const { return clock_->NowNs(); }

 private:
  struct Event {
    enum class Kind : uint8_t { kDeliver, kStart, kComplete } kind = Kind::kDeliver;
    int index = 0;   // lane or rank
    int choice = 0;  // kStart: which of the ready acts
  };

  void ListEnabled();
  size_t Choose();
  size_t ChooseByPriority();
  bool IsVictim(const Event& event) const;
  uint64_t SourceOf(const Event& event) const;
  Event NextByTime();
  absl::Status Happen(const Event& event);
  absl::Status StopReason();
  uint64_t Draw(uint64_t bound);

  const std::vector<RankExecutor*> ranks_;
  const std::vector<FakeDevice*> devices_;
  SimNetwork* const network_;
  ManualClock* const clock_;
  const SimEngineOptions options_;
  std::vector<Event> enabled_;
  std::vector<int64_t> change_points_;  // kPriorities: event numbers
  std::vector<uint64_t> demoted_;       // sources whose priority was taken away
  uint64_t num_draws_ = 0;
  uint64_t victim_ = 0;
  int64_t num_events_ = 0;
  uint64_t history_hash_ = 0;
  absl::Status fault_;
  std::atomic<bool> stop_{false};  // looked at between events; the mutex orders the reason
  std::mutex stop_mutex_;
  absl::Status stop_reason_;  // guarded by stop_mutex_
};

}  // namespace weir
