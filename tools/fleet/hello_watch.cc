#include "tools/fleet/hello_watch.h"

#include <algorithm>
#include <utility>

#include "runtime/control/greeting_time.h"

namespace weir::fleet {
namespace {

using Kind = launch::ProcessState::Kind;

constexpr int64_t kHelloMs = 30'000;  // without the greetings, which come all at once
constexpr int64_t kWaitMsMax = 1'000;
// All hosts look at the same time, for half a second at most. Each failed process that the caller
// explains takes about a second more.
constexpr int64_t kLookMsMax = 5'000;
// The number of looks within the time after which a held process counts as failed.
constexpr int64_t kLooksPerHold = 4;

}  // namespace

HelloLimits ChooseHelloLimits(int64_t dead_after_ms, int num_workers) {
  return {std::max(kHelloMs + control::GreetingMs(num_workers), dead_after_ms), dead_after_ms};
}

HelloWatch::HelloWatch(const HelloLimits& limits)
    : limits_(limits), next_look_ms_(std::max<int64_t>(1, limits.held_ms / kLooksPerHold)) {}

void HelloWatch::AddWait(int64_t wait_ms) { waited_ms_ += std::min(wait_ms, kWaitMsMax); }

void HelloWatch::AddLook(int64_t look_ms) { waited_ms_ += std::min(look_ms, kLookMsMax); }

std::vector<WorkerId> HelloWatch::Judge(const std::vector<SilentWorker>& silent) {
  next_look_ms_ = waited_ms_ + std::max<int64_t>(1, limits_.held_ms / kLooksPerHold);
  if (waited_ms_ < limits_.hello_ms) next_look_ms_ = std::min(next_look_ms_, limits_.hello_ms);
  std::map<WorkerId, int64_t> held_since_ms;
  std::vector<WorkerId> failed;
  for (const auto& [worker, kind, is_seen] : silent) {
    bool has_failed = waited_ms_ >= limits_.hello_ms;
    const auto before = held_since_ms_.find(worker);
    if (!is_seen) {
      // Nothing says that the process was let go.
      if (before != held_since_ms_.end()) held_since_ms.insert(*before);
    } else if (kind == Kind::kStopped || kind == Kind::kTraced) {
      const int64_t since_ms = before != held_since_ms_.end() ? before->second : waited_ms_;
      held_since_ms[worker] = since_ms;
      has_failed = has_failed || waited_ms_ - since_ms >= limits_.held_ms;
    }
    if (has_failed) failed.push_back(worker);
  }
  held_since_ms_ = std::move(held_since_ms);
  return failed;
}

}  // namespace weir::fleet
