#include "tools/train/busy_shares.h"

#include "tools/train/step_shares.h"

namespace weir::train {
namespace {

constexpr double kWindowSeconds = 1;

}  // namespace

std::vector<live::RankBusy> BusyShares::Look(const std::vector<actors::RankWorkReport>& work,
                                             double seconds) {
  seconds_ += seconds;
  if (seconds_ < kWindowSeconds) return {};
  std::vector<live::RankBusy> shares;
  for (const actors::RankWorkReport& rank : work) {
    Account& before = before_[rank.rank];
    shares.push_back({rank.rank, rank.stage,
                      static_cast<double>(rank.busy_ns - before.busy_ns) * 1e-9 / seconds_,
                      SharesOf(before.part_ns, rank.part_ns, seconds_)});
    before = {rank.busy_ns, rank.part_ns};
  }
  seconds_ = 0;
  return shares;
}

}  // namespace weir::train
