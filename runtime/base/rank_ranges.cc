#include "runtime/base/rank_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/plan_limits.h"

namespace weir {
namespace {

constexpr size_t kRangesNamed = 4;

std::string RangeText(const RankRanges::Range& range) {
  if (range.count == 1) return absl::StrCat(range.first);
  if (range.count == 2) return absl::StrCat(range.first, ", ", range.last());
  if (range.stride == 1) return absl::StrCat(range.first, " to ", range.last());
  return absl::StrCat(range.first, ", ", range.first + range.stride, ", ..., ", range.last());
}

}  // namespace

void RankRanges::Add(RankId rank) {
  ++size_;
  const int64_t number = rank.value();
  if (!ranges_.empty()) {
    Range& last = ranges_.back();
    if (last.count == 1) last.stride = number - last.first;
    if (number == last.first + last.stride * last.count) {
      ++last.count;
      return;
    }
  }
  ranges_.push_back({number, 1, 1});
}

bool RankRanges::Add(const Range& range) {
  constexpr int64_t kMax = plan_limits::kRanksMax;
  if (range.first < 0 || range.first >= kMax || range.stride < 1 || range.stride >= kMax ||
      range.count < 1 || range.count > kMax - size_ || range.last() >= kMax)
    return false;
  ranges_.push_back(range);
  size_ += range.count;
  return true;
}

bool RankRanges::Has(RankId rank) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [rank](const Range& range) {
    const int64_t past = rank.value() - range.first;
    return past >= 0 && past % range.stride == 0 && past / range.stride < range.count;
  });
}

std::string RankRanges::Text() const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < ranges_.size() && i < kRangesNamed; ++i)
    texts.push_back(RangeText(ranges_[i]));
  std::string text = absl::StrJoin(texts, ", ");
  if (ranges_.size() > kRangesNamed) {
    const size_t more = ranges_.size() - kRangesNamed;
    absl::StrAppend(&text, " and ", more, more == 1 ? " more range" : " more ranges");
  }
  return text;
}

}  // namespace weir
