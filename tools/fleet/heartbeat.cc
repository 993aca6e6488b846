#include "tools/fleet/heartbeat.h"

#include <algorithm>

namespace weir::fleet {
namespace {

constexpr int64_t kEveryMsMin = 1'000;
constexpr int64_t kEveryMsPerWorker = 4;  // of which the starter spends less than 0.1
constexpr int64_t kDeadAfterMsMin = 4'000;
constexpr int64_t kBeatsPerDeath = 4;
constexpr int64_t kUseAgeMsMax = 3'000;

}  // namespace

Heartbeat ChooseHeartbeat(const Heartbeat& given, int num_workers) {
  Heartbeat chosen = given;
  if (chosen.every_ms == 0) {
    chosen.every_ms = std::max(kEveryMsMin, kEveryMsPerWorker * num_workers);
    if (given.dead_after_ms > 0)
      chosen.every_ms = std::clamp<int64_t>(given.dead_after_ms / 2, 1, chosen.every_ms);
  }
  if (chosen.dead_after_ms == 0)
    chosen.dead_after_ms = std::max(kDeadAfterMsMin, kBeatsPerDeath * chosen.every_ms);
  return chosen;
}

int64_t UseAgeMaxMs(const Heartbeat& heartbeat) {
  return std::min(kUseAgeMsMax, heartbeat.dead_after_ms - heartbeat.every_ms);
}

}  // namespace weir::fleet
