// Tests which ranks are named, by the ranks' reports of their work.
#include "tools/train/straggler_watch.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job whose ranks do a fixed amount of work in each burst of half a second.
class Job {
 public:
  explicit Job(std::vector<int> stages) {
    for (size_t rank = 0; rank < stages.size(); ++rank)
      work_.push_back({RankId(static_cast<int>(rank)), stages[rank]});
  }
  // `slowness` of each rank; `core` is the share of a core that slow ranks have, and `measured` the
  // share of the time in acts that is measured.
  std::vector<std::string> Bursts(int bursts, const std::vector<double>& slowness, double core = 1,
                                  double measured = 0.9) {
    std::vector<std::string> lines;
    for (int i = 0; i < bursts; ++i) {
      for (size_t rank = 0; rank < work_.size(); ++rank) {
        const int64_t planned = 100'000'000 * (1 + work_[rank].stage);
        work_[rank].planned_ns += planned;
        work_[rank].busy_ns += static_cast<int64_t>(slowness[rank] * static_cast<double>(planned));
        const double busy = slowness[rank] * static_cast<double>(planned);
        work_[rank].measured_ns += static_cast<int64_t>(measured * busy);
        work_[rank].cpu_ns +=
            static_cast<int64_t>(measured * busy * (slowness[rank] > 1 ? core : 1));
      }
      for (const Straggler& slow : watch_.Look(work_, 0.5)) lines.push_back(slow.Text());
    }
    return lines;
  }

 private:
  std::vector<actors::RankWorkReport> work_;
  StragglerWatch watch_;
};

TEST(StragglerWatchTest, ARankWhoseActsTakeLongerThanItsPeersIsNamedOnce) {
  Job job({0, 0, 0});
  const std::vector<std::string> lines = job.Bursts(100, {1, 3, 1});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("rank 1 is slow: for 6 s its acts have taken 3.0 times as "
                                        "long as the same acts of ranks 0, 2"),
                              HasSubstr("its device is slower")));
}

TEST(StragglerWatchTest, OneThatHasNoCoreIsToldApartFromASlowDevice) {
  EXPECT_THAT(Job({0, 0}).Bursts(100, {1, 3}, 0.33),
              ::testing::ElementsAre(HasSubstr("it had a core for only 33 % of that time")));
}

TEST(StragglerWatchTest, WithFewMeasuredActsBothReasonsArePossible) {
  EXPECT_THAT(Job({0, 0}).Bursts(100, {1, 3}, 0.33, 0.2),
              ::testing::ElementsAre(HasSubstr("as long as the same acts of rank 0; its device is "
                                               "slower, or other programs use its core now and")));
}

TEST(StragglerWatchTest, SlownessMustLast) {
  Job job({0, 0});
  job.Bursts(1, {1, 1});  // figures begin after the first
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(job.Bursts(8, {1, 3}), IsEmpty())
        << i;  // two windows, though three in a row are needed
    EXPECT_THAT(job.Bursts(4, {1, 1}), IsEmpty()) << i;
  }
}

TEST(StragglerWatchTest, NoiseIsNotNamed) {
  Job job({0, 0, 0, 0});
  for (int i = 0; i < 50; ++i)
    EXPECT_THAT(job.Bursts(1, {1.2, i % 2 == 0 ? 2.0 : 0.8, 1.0, 1.4}), IsEmpty());
}

TEST(StragglerWatchTest, StagesAreNotComparedWithEachOther) {
  // The second stage takes longer than its plan says on both of its ranks. That is a wrong price,
  // and not a slow rank.
  EXPECT_THAT(Job({0, 0, 1, 1}).Bursts(100, {1, 1, 4, 4}), IsEmpty());
  EXPECT_THAT(Job({0, 1}).Bursts(100, {1, 4}), IsEmpty());
}

}  // namespace
}  // namespace weir::train
