#include "tools/train/straggler_watch.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weir::train {
namespace {

constexpr double kSameWork = 0.02;  // promises that differ by less are equal
// The least share of its time in acts for which a rank's thread has a core. Below this share the
// rank waits for a core.
constexpr double kHasNoCore = 0.75;
// The least share of the time in acts that is measured. An act is measured if the act before it of
// the same actor was long. Below this share, the long acts are others each time.
constexpr double kMeasuredMin = 0.3;
constexpr size_t kPeersShown = 3;

// The work of a rank in a window.
struct Window {
  RankId rank;
  double planned_ns = 0;
  double slowness = 0;  // time in acts over what the plan promises
  // The share of the time in measured acts for which its thread had a core; none: they are few.
  std::optional<double> core_share;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string PeersText(std::vector<RankId> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const size_t more = ranks.size() > kPeersShown ? ranks.size() - kPeersShown : 0;
  ranks.resize(ranks.size() - more);
  return absl::StrCat(ranks.size() + more == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// Returns why acts take long whose rank has a core for that share of the time.
std::string CoreText(std::optional<double> core_share) {
  if (!core_share.has_value())
    return "its device is slower, or other programs use its core now and then";
  if (*core_share >= kHasNoCore) return "its device is slower, or shared";
  return absl::StrFormat(
      "it had a core for only %.0f %% of that time: other programs use it, or the process is "
      "stopped now and then",
      *core_share * 100);
}

}  // namespace

std::string Straggler::Text() const { return absl::StrCat("rank ", rank, " is slow: ", evidence); }

std::vector<Straggler> StragglerWatch::Look(const std::vector<actors::RankWorkReport>& work,
                                            double seconds) {
  if (ranks_.empty()) {  // the first burst fills caches, so figures begin after it
    for (const actors::RankWorkReport& report : work) ranks_[report.rank].before = report;
    return {};
  }
  seconds_ += seconds;
  if (seconds_ < options_.window_seconds) return {};
  slow_seconds_ = seconds_ * options_.windows;
  seconds_ = 0;
  return EndWindow(work);
}

std::vector<Straggler> StragglerWatch::EndWindow(const std::vector<actors::RankWorkReport>& work) {
  std::map<int, std::vector<Window>> stages;
  for (const actors::RankWorkReport& now : work) {
    const actors::RankWorkReport before = std::exchange(ranks_[now.rank].before, now);
    const double planned = static_cast<double>(now.planned_ns - before.planned_ns);
    if (planned <= 0) continue;
    const double measured = static_cast<double>(now.measured_ns - before.measured_ns);
    const double busy = static_cast<double>(now.busy_ns - before.busy_ns);
    stages[now.stage].push_back(
        {now.rank, planned, busy / planned,
         measured > kMeasuredMin * busy
             ? std::optional(static_cast<double>(now.cpu_ns - before.cpu_ns) / measured)
             : std::nullopt});
  }
  std::vector<Straggler> found;
  for (const auto& [stage, windows] : stages) {
    for (const Window& window : windows) {
      Rank& rank = ranks_[window.rank];
      std::vector<double> others;
      std::vector<RankId> peers;
      for (const Window& other : windows) {
        if (other.rank == window.rank ||
            std::abs(other.planned_ns / window.planned_ns - 1) > kSameWork)
          continue;
        others.push_back(other.slowness);
        peers.push_back(other.rank);
      }
      const double factor = others.empty() ? 0 : window.slowness / std::max(Median(others), 1e-9);
      rank.slow_windows = factor >= options_.factor ? rank.slow_windows + 1 : 0;
      if (rank.slow_windows < options_.windows || std::exchange(rank.named, true)) continue;
      found.push_back(
          {window.rank,
           absl::StrFormat(
               "for %.0f s its acts have taken %.1f times as long as the same acts of %s; %s",
               slow_seconds_, factor, PeersText(peers), CoreText(window.core_share))});
    }
  }
  return found;
}

}  // namespace weir::train
