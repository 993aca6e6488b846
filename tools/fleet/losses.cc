#include "tools/fleet/losses.h"

#include <algorithm>

namespace weir::fleet {
namespace {

bool Has(const std::vector<WorkerId>& workers, WorkerId worker) {
  return std::find(workers.begin(), workers.end(), worker) != workers.end();
}

}  // namespace

bool IsLoss(const launch::FailureEvent& event) {
  return event.kind == launch::FailureEvent::Kind::kExit ||
         event.kind == launch::FailureEvent::Kind::kLost ||
         event.kind == launch::FailureEvent::Kind::kFrozen ||
         event.kind == launch::FailureEvent::Kind::kNoHello ||
         event.kind == launch::FailureEvent::Kind::kSlow;
}

std::vector<WorkerId> LostWorkers(const std::vector<launch::FailureEvent>& events) {
  std::vector<WorkerId> lost;
  for (const launch::FailureEvent& event : events) {
    if (IsLoss(event) && !Has(lost, event.worker)) lost.push_back(event.worker);
  }
  std::sort(lost.begin(), lost.end());
  return lost;
}

std::vector<WorkerId> WorkersToReplace(std::vector<WorkerId> lost,
                                       const IdVector<WorkerId, bool>& is_there) {
  for (const WorkerId worker : is_there.ids()) {
    if (!is_there[worker] && !Has(lost, worker)) lost.push_back(worker);
  }
  std::sort(lost.begin(), lost.end());
  return lost;
}

void DropSettled(const std::vector<WorkerId>& replaced, std::vector<launch::FailureEvent>* events) {
  std::erase_if(*events, [&replaced](const launch::FailureEvent& event) {
    return !IsLoss(event) || Has(replaced, event.worker);
  });
}

void ProcessEpochs::Start(const std::vector<WorkerId>& workers, uint32_t epoch) {
  for (const WorkerId worker : workers) epochs_[worker] = epoch;
}

}  // namespace weir::fleet
