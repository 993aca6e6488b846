// The engine for proofs: the same ranks and machines on one thread, in virtual time.
// At each step it lists what could happen next (a message of some edge arrives, a ready
// act starts on a rank, a running act ends, one of several queues goes on) and one of them happens.
// Which one is drawn from a seed, so that every interleaving can be met and any run repeated; or it
// is the earliest in virtual time, which predicts how long a plan takes.
//
//   kUniform     any enabled event, equally likely
//   kStarveOne   one rank, actor or edge, drawn from the seed, moves only if nothing else can
//   kPriorities  random priorities of actors, devices and edges, with depth - 1 change points
//                (probabilistic concurrency testing)
//   kByTime      what is due first; ready acts start at once, best first
//   kScript      as `script` says while it lasts, then uniform: a run again, or one like it
//   kFirst       as `script` says while it lasts, then the first: for exhaustive search
//
// Each choice is a decision: a number below a bound. The decisions of a run are its script.
// Thread rule: as Engine; all on the caller's thread.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "actors/engine/engine.h"
#include "actors/engine/rank_executor.h"
#include "actors/engine/sim_faults.h"
#include "actors/engine/sim_invariants.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/device/walled_device.h"
#include "runtime/transport/sim_transport.h"

namespace weir::actors {

struct SimEvent {
  enum class Kind : uint8_t {
    kDeliver,   // lane `index`: its oldest message arrives
    kStart,     // rank `index`: the `choice`-th ready act
    kComplete,  // rank `index` hears that the oldest act of queue `choice` is done
    kWork,      // rank `index`: queue `choice` goes on, on a device with several queues
    kSettle,    // what delivery `index` in pieces left open
    kNotice,    // rank `index` learns that a peer is gone
    kMeet,      // rank `index` learns that all ranks have come to collectives of its own
  } kind = Kind::kDeliver;
  int index = 0;
  int choice = 0;
  ActorId actor;  // kStart; kComplete: of the act
};

// A set of facts that runs have met: one event followed another, an actor waited for a register, a
// rare path was taken.
using SimCoverage = std::bitset<4096>;

struct SimEngineOptions {
  uint64_t seed = 1;
  enum class Chooser : uint8_t { kUniform, kStarveOne, kPriorities, kByTime, kScript, kFirst };
  Chooser chooser = Chooser::kUniform;
  enum class Check : uint8_t { kAtEnd, kEveryStep } check = Check::kAtEnd;  // of sim_invariants.h
  int depth = 4;                                                            // kPriorities
  int64_t num_events_expected = 2000;  // among which its change points lie
  int64_t num_events_max = 0;          // a run that is longer is in error; 0: any
  absl::Span<const uint32_t> script;   // must outlive the run, as all below
  // kDrawn: messages may come in pieces.
  enum class Pieces : uint8_t { kWhole, kDrawn } pieces = Pieces::kWhole;
  absl::Span<const SimFault> faults;  // ordered by `at`
  // If given: a run that comes to a state in it ends there (`SimEngine::seen`), and states are
  // added.
  absl::flat_hash_set<uint64_t>* states_seen = nullptr;
  SimCoverage* coverage = nullptr;                                      // bits are added
  std::function<void(int64_t number, const SimEvent& event)> on_event;  // before it happens
};

// The device that a rank of this plan has in a simulation.
device::WalledDeviceOptions SimDeviceOptions(const Plan& plan);

class SimEngine final : public Engine {
 public:
  // All must outlive the engine; `devices[i]` and `ranks[i]` belong together. Devices are driven by
  // their owner, who is the engine; the ranks' trace clock is `clock`.
  SimEngine(std::vector<RankExecutor*> ranks, std::vector<device::WalledDevice*> devices,
            transport::SimNetwork* network, ManualClock* clock, const SimEngineOptions& options);

  absl::Status RunSteps(int64_t steps) override;
  void Stop(absl::Status reason) override;

  // Another run of ranks, devices and network that have been rewound: nothing is allocated once
  // some runs have been made.
  void Rewind(const SimEngineOptions& options);

  int64_t num_events() const { return num_events_; }
  int64_t num_deliveries() const { return num_deliveries_; }
  // Equal for equal histories: same seed, same plans, same options.
  uint64_t history_hash() const { return history_hash_; }
  int64_t now_ns() const { return clock_->NowNs(); }
  // The decisions of the run so far, and the bound of each decision.
  const std::vector<uint32_t>& decisions() const { return decisions_; }
  const std::vector<uint32_t>& bounds() const { return bounds_; }
  // The first harmful fault that has happened; null if none has.
  const SimFault* harm() const { return harm_; }
  bool seen() const { return seen_; }

 private:
  void ListEnabled();
  void ListWork(int rank);
  void LeaveOutTheSlow();
  size_t Choose();
  size_t ChooseByPriority();
  uint32_t Decide(uint32_t bound, uint32_t otherwise);
  uint32_t DecideUniformly(uint32_t bound) {
    return Decide(bound, static_cast<uint32_t>(Draw(bound)));
  }
  bool IsVictim(const SimEvent& event) const;
  bool IsOfRank(const SimEvent& event, int rank) const;
  uint64_t SourceOf(const SimEvent& event) const;
  SimEvent NextByTime();
  absl::Status BeforeEvent();
  absl::Status Happen(const SimEvent& event);
  absl::Status DeliverNext(int lane);
  absl::Status Check(const SimEvent& event);
  absl::Status AtRest();
  bool SeenBefore();
  void Cover(uint64_t feature) { options_.coverage->set(feature % options_.coverage->size()); }
  void CoverEvent(const SimEvent& event);
  absl::Status StopReason();
  uint64_t Draw(uint64_t bound);

  const std::vector<RankExecutor*> ranks_;
  const std::vector<device::WalledDevice*> devices_;
  transport::SimNetwork* const network_;
  ManualClock* const clock_;
  SimEngineOptions options_;
  SimInvariants invariants_;
  std::vector<SimEvent> enabled_;
  std::vector<int64_t> change_points_;  // kPriorities: event numbers
  std::vector<uint64_t> demoted_;       // sources whose priority was taken away
  std::vector<uint32_t> decisions_, bounds_;
  std::vector<bool> dead_;  // by rank
  size_t next_fault_ = 0;   // of those that come with an event
  size_t next_tamper_ = 0;
  std::vector<const SimFault*> slow_;  // now
  const SimFault* harm_ = nullptr;
  bool seen_ = false;
  uint64_t num_draws_ = 0;
  uint64_t victim_ = 0;
  uint64_t last_source_ = 0;
  int64_t num_events_ = 0;
  int64_t num_deliveries_ = 0;
  uint64_t history_hash_ = 0;
  absl::Status fault_;
  std::atomic<bool> stop_{false};  // looked at between events; the mutex orders the reason
  Mutex stop_mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(stop_mutex_);
};

}  // namespace weir::actors
