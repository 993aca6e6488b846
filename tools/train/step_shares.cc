#include "tools/train/step_shares.h"

#include <algorithm>
#include <cstdint>

#include "tools/live/live_run.h"

namespace weir::train {

static_assert(live::kStepParts.size() == actors::kNumTimeParts, "each part has a name");

std::vector<double> SharesOf(const actors::TimeParts& before, const actors::TimeParts& now,
                             double seconds) {
  std::vector<double> shares;
  double known_ns = 0;
  for (size_t part = 0; part < actors::kNumTimeParts; ++part) {
    shares.push_back(static_cast<double>(std::max<int64_t>(0, now[part] - before[part])));
    known_ns += shares.back();
  }
  const double all_ns = std::max({seconds * 1e9, known_ns, 1.0});
  shares[static_cast<size_t>(actors::TimePart::kBetweenActs)] += all_ns - known_ns;
  for (double& share : shares) share /= all_ns;
  return shares;
}

std::vector<double> StepShares::Look(const std::vector<actors::RankWorkReport>& work,
                                     double seconds) {
  if (work.empty()) return {};
  std::vector<double> mean(actors::kNumTimeParts, 0);
  for (const actors::RankWorkReport& rank : work) {
    const auto [before, added] = before_.try_emplace(rank.rank, actors::TimeParts{});
    const std::vector<double> shares = SharesOf(before->second, rank.part_ns, seconds);
    for (size_t part = 0; part < mean.size(); ++part)
      mean[part] += shares[part] / static_cast<double>(work.size());
    before->second = rank.part_ns;
  }
  return mean;
}

}  // namespace weir::train
