#include "actors/engine/sim_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/sim_invariants.h"
#include "actors/engine/stall_report.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr int kNumChangePoints = 3;
constexpr uint64_t kChangeHorizon = 2000;  // events among which the change points lie

}  // namespace

SimEngine::SimEngine(std::vector<RankExecutor*> ranks, std::vector<FakeDevice*> devices, SimNetwork* network,
                     ManualClock* clock, const SimEngineOptions& options)
    : ranks_(std::move(ranks)), devices_(std::move(devices)), network_(network), clock_(clock), options_(options) {
  const uint64_t sources = ranks_.size() + static_cast<uint64_t>(network_->num_lanes());
  if (sources > 0) victim_ = Draw(sources);
  for (int i = 0; i < kNumChangePoints; ++i) change_points_.push_back(static_cast<int64_t>(Draw(kChangeHorizon)));
}

uint64_t SimEngine::Draw(uint64_t bound) { return MixKey(options_.seed, num_draws_++) % bound; }

absl::Status SimEngine::RunSteps(int64_t steps) {
  if (!fault_.ok()) return fault_;
  for (RankExecutor* rank : ranks_) rank->RaiseLimits(steps);
  for (;;) {
    if (stop_.load(std::memory_order_relaxed)) return fault_ = StopReason();
    ListEnabled();
    if (enabled_.empty()) break;
    const Event event =
        options_.chooser == SimEngineOptions::Chooser::kByTime ? NextByTime() : enabled_[Choose()];
    fault_ = Happen(event);
    if (fault_.ok() && options_.check == SimEngineOptions::Check::kEveryStep) {
      fault_ = CheckSimInvariants(ranks_, *network_);
    }
    if (!fault_.ok()) {
      return absl::Status(fault_.code(), absl::StrCat(fault_.message(), " [seed ", options_.seed, ", event ",
                                                      num_events_, "]"));
    }
  }
  for (const RankExecutor* rank : ranks_) {
    if (rank->all_done()) continue;
    return fault_ = absl::AbortedError(absl::StrCat("W0516 no progress: nothing can happen any more, but",
                                                    DescribeStall(ranks_)));
  }
  return fault_ = CheckSimInvariants(ranks_, *network_);
}

void SimEngine::Stop(absl::Status reason) {
  std::lock_guard<std::mutex> lock(stop_mutex_);
  if (stop_reason_.ok()) stop_reason_ = std::move(reason);
  stop_.store(true, std::memory_order_relaxed);
}

absl::Status SimEngine::StopReason() {
  std::lock_guard<std::mutex> lock(stop_mutex_);
  return stop_reason_;
}

void SimEngine::ListEnabled() {
  enabled_.clear();
  for (int lane : network_->busy_lanes()) enabled_.push_back({Event::Kind::kDeliver, lane, 0});
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (devices_[i]->num_pending() > 0) enabled_.push_back({Event::Kind::kComplete, static_cast<int>(i), 0});
    if (!ranks_[i]->device_has_room()) continue;
    for (int k = 0; k < ranks_[i]->num_ready(); ++k) enabled_.push_back({Event::Kind::kStart, static_cast<int>(i), k});
  }
}

size_t SimEngine::Choose() {
  if (options_.chooser == SimEngineOptions::Chooser::kPriorities) return ChooseByPriority();
  if (options_.chooser == SimEngineOptions::Chooser::kStarveOne) {
    size_t others = 0;
    for (const Event& event : enabled_) others += !IsVictim(event);
    if (others > 0) {
      size_t k = Draw(others);
      for (size_t i = 0;; ++i) {
        if (!IsVictim(enabled_[i]) && k-- == 0) return i;
      }
    }
  }
  return Draw(enabled_.size());
}

bool SimEngine::IsVictim(const Event& event) const {
  const uint64_t source =
      event.kind == Event::Kind::kDeliver ? ranks_.size() + static_cast<uint64_t>(event.index) : event.index;
  return source == victim_;
}

// What has a priority of its own: a lane, a rank's device, each place among the ready.
uint64_t SimEngine::SourceOf(const Event& event) const {
  return (static_cast<uint64_t>(event.kind) << 56) | (static_cast<uint64_t>(event.index) << 24) |
         static_cast<uint64_t>(event.choice);
}

size_t SimEngine::ChooseByPriority() {
  const auto priority = [this](const Event& event) -> uint64_t {
    const uint64_t source = SourceOf(event);
    const auto at = std::find(demoted_.begin(), demoted_.end(), source);
    if (at != demoted_.end()) return static_cast<uint64_t>(demoted_.end() - at) - 1;  // the latest is the least
    return demoted_.size() + (MixKey(options_.seed, source) >> 1);
  };
  size_t best = 0;
  for (size_t i = 1; i < enabled_.size(); ++i) {
    if (priority(enabled_[i]) > priority(enabled_[best])) best = i;
  }
  if (std::find(change_points_.begin(), change_points_.end(), num_events_) != change_points_.end()) {
    demoted_.push_back(SourceOf(enabled_[best]));
  }
  return best;
}

SimEngine::Event SimEngine::NextByTime() {
  const Event* best = nullptr;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (const Event& event : enabled_) {
    int64_t ns = clock_->NowNs();
    if (event.kind == Event::Kind::kDeliver) ns = network_->lane(event.index).oldest_due_ns;
    if (event.kind == Event::Kind::kComplete) ns = devices_[event.index]->oldest_done_ns();
    // What is due already comes before what is started now, so that the best is chosen
    // among all that are ready at this time.
    const bool earlier = ns < best_ns || (ns == best_ns && best->kind == Event::Kind::kStart &&
                                          event.kind != Event::Kind::kStart);
    if (best == nullptr || earlier) {
      best = &event;
      best_ns = ns;
    }
  }
  return *best;
}

absl::Status SimEngine::Happen(const Event& event) {
  ++num_events_;
  history_hash_ = MixKey(history_hash_, SourceOf(event));
  switch (event.kind) {
    case Event::Kind::kDeliver: {
      const SimNetwork::Lane lane = network_->lane(event.index);
      clock_->AdvanceTo(lane.oldest_due_ns);
      network_->set_now_ns(clock_->NowNs());
      network_->Deliver(event.index);
      return ranks_[lane.to]->Poll();
    }
    case Event::Kind::kStart: {
      FakeDevice& device = *devices_[event.index];
      device.NotBefore(clock_->NowNs());
      device.set_run_body(Draw(2) == 0 ? FakeDevice::RunBody::kAtLaunch : FakeDevice::RunBody::kAtCompletion);
      ranks_[event.index]->StartReady(event.choice);
      return ranks_[event.index]->fault();
    }
    case Event::Kind::kComplete:
      clock_->AdvanceTo(devices_[event.index]->oldest_done_ns());
      network_->set_now_ns(clock_->NowNs());
      devices_[event.index]->CompleteOldest();
      ranks_[event.index]->CollectCompletions();
      return ranks_[event.index]->fault();
  }
  return absl::OkStatus();
}

}  // namespace weir
