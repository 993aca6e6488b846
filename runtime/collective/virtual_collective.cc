#include "runtime/collective/virtual_collective.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/collective/operation_check.h"

namespace weir::collective {

struct VirtualCollectives::Group {
  int num_ranks = 0;                // of the run
  std::map<int64_t, int> num_here;  // at each operation that has not ended
  int64_t num_ended = 0;            // operations end in their order, since ranks come in it
  std::map<int, std::function<void()>> wakes;  // by place
};

namespace {

class VirtualCommunicator final : public PolledCommunicator {
 public:
  VirtualCommunicator(const CommunicatorSpec& spec,
                      std::shared_ptr<VirtualCollectives::Group> group)
      : spec_(spec), group_(std::move(group)) {}
  ~VirtualCommunicator() override { group_->wakes.erase(spec_.rank); }

  const CommunicatorSpec& spec() const override { return spec_; }

  absl::StatusOr<int64_t> Begin(const Operation&) override {
    const int64_t number = num_begun_++;
    int& num_here = group_->num_here[number];
    if (++num_here < group_->num_ranks) return number;
    group_->num_here.erase(number);
    group_->num_ended = number + 1;
    for (const auto& [place, wake] : group_->wakes) {
      if (place != spec_.rank) wake();
    }
    return number;
  }

  absl::StatusOr<bool> HasEnded(int64_t number) override { return number < group_->num_ended; }

 private:
  const CommunicatorSpec spec_;
  const std::shared_ptr<VirtualCollectives::Group> group_;
  int64_t num_begun_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PolledCommunicator>> VirtualCollectives::CreatePolled(
    const CommunicatorSpec& spec, std::function<void()> wake) {
  WEIR_RETURN_IF_ERROR(CheckSpec(spec));
  std::shared_ptr<Group>& group = groups_[spec.unique_id];
  if (group == nullptr) {
    group = std::make_shared<Group>();
    group->num_ranks =
        static_cast<int>(std::count_if(spec.ranks.begin(), spec.ranks.end(),
                                       [this](RankId rank) { return ranks_.count(rank) > 0; }));
  }
  if (wake) group->wakes[spec.rank] = std::move(wake);
  return std::make_unique<VirtualCommunicator>(spec, group);
}

}  // namespace weir::collective
