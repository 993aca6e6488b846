#include "actors/engine/stream_collectives.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_queue.h"

namespace weir::actors {

using collective::Communicator;

namespace {

constexpr int kOwnWorks = 2;  // of Join

}  // namespace

int NumCollectivesInFlight(const Plan& plan) {
  const auto actors = std::count_if(plan.actors.begin(), plan.actors.end(), [](const auto& actor) {
    return actor.kind == ActorKind::kCollective;
  });
  return actors == 0 ? 0 : static_cast<int>(actors) + kOwnWorks;
}

absl::StatusOr<std::unique_ptr<StreamCollectives>> StreamCollectives::Create(
    const Plan* plan, device::Device* device, const StreamCollectivesOptions& options) {
  std::unique_ptr<StreamCollectives> made(new StreamCollectives(plan, device, options));
  int64_t bytes = 0;
  for (const std::vector<RankId>& ranks : made->groups_.ranks)
    bytes = std::max(bytes, collective::WarmUpBytes(static_cast<int>(ranks.size())));
  WEIR_ASSIGN_OR_RETURN(made->scratch_,
                        device->memory().Allocate(bytes, device::DeviceMemory::Reach::kDevice));
  return made;
}

device::CudaStream StreamCollectives::stream() const {
  return static_cast<device::CudaQueue&>(device_->queue(options_.queue)).stream();
}

absl::Status StreamCollectives::Join(const std::atomic<bool>& stop) {
  // A launch makes the GPU of the device that of the thread.
  ++num_own_works_;
  device_->Launch({[](void*) {}, nullptr, 0, options_.queue});
  for (size_t group = 0; group < groups_.ranks.size(); ++group) {
    if (stop.load(std::memory_order_relaxed)) return absl::OkStatus();
    collective::CommunicatorSpec spec = groups_.SpecOf(group, plan_->rank);
    if (options_.role != 0) absl::StrAppend(&spec.group, ", network ", options_.role);
    spec.epoch = options_.epoch;
    spec.marks = this;
    spec.stop = &stop;
    WEIR_ASSIGN_OR_RETURN(communicators_.emplace_back(),
                          CreateOver(options_.exchange, options_.library, spec));
  }
  position_ = ++num_own_works_;
  device_->Launch({&WarmUpAll, this, 0, options_.queue});
  WEIR_RETURN_IF_ERROR(warmed_up_);
  while (device_->NumDone(options_.queue) < num_own_works_) {
    WEIR_RETURN_IF_ERROR(device_->fault());
    WEIR_RETURN_IF_ERROR(Check());
    if (stop.load(std::memory_order_relaxed)) return absl::OkStatus();
    std::this_thread::yield();
  }
  has_joined_ = true;
  return Check();
}

void StreamCollectives::WarmUpAll(void* self) {
  auto& rank = *static_cast<StreamCollectives*>(self);
  for (const std::unique_ptr<Communicator>& communicator : rank.communicators_) {
    if (rank.warmed_up_.ok())
      rank.warmed_up_ = WarmUp(communicator.get(), rank.scratch_.base(), rank.stream());
  }
}

absl::Status StreamCollectives::Issue(const PlanActor& actor, const BoundProgram& program,
                                      int64_t position) {
  position_ = position;
  const PlannedGroups::Side& side = groups_.actors[actor.id];
  for (size_t i = 0; i < side.operations.size(); ++i) {
    const absl::Status issued =
        communicators_[side.group]->Run(WithAddresses(side.operations[i], program, i), stream());
    if (!issued.ok()) return At(absl::StrCat("actor '", actor.name, "'"), issued);
  }
  return absl::OkStatus();
}

absl::Status StreamCollectives::Check() {
  for (const std::unique_ptr<Communicator>& communicator : communicators_)
    WEIR_RETURN_IF_ERROR(communicator->AsyncError());
  return absl::OkStatus();
}

void StreamCollectives::Leave() { communicators_.clear(); }

void StreamCollectives::Abort() {
  for (const std::unique_ptr<Communicator>& communicator : communicators_) communicator->Abort();
}

// The event behind the work of an act is behind all its operations.
absl::StatusOr<int64_t> StreamCollectives::Mark(device::CudaStream) { return position_; }

absl::StatusOr<bool> StreamCollectives::IsPast(int64_t mark) {
  const bool is_past = device_->NumDone(options_.queue) >= mark;
  WEIR_RETURN_IF_ERROR(device_->fault());
  return is_past;
}

}  // namespace weir::actors
