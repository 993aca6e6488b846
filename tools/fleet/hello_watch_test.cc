#include "tools/fleet/hello_watch.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using Kind = launch::ProcessState::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr HelloLimits kLimits = {10'000, 2'000};

// Waits until so much time is added, and takes a look.
std::vector<WorkerId> LookAt(int64_t at_ms, const std::vector<SilentWorker>& silent,
                             HelloWatch* watch) {
  while (watch->waited_ms() < at_ms)
    watch->AddWait(std::min<int64_t>(500, at_ms - watch->waited_ms()));
  EXPECT_TRUE(watch->LookIsDue()) << at_ms;
  return watch->Judge(silent);
}

TEST(HelloWatchTest, AProcessThatLoadsHasAllTimeOfAStart) {
  HelloWatch watch(kLimits);
  const std::vector<SilentWorker> silent = {{WorkerId(0), Kind::kReady},
                                            {WorkerId(1), Kind::kAsleep},
                                            {WorkerId(2), Kind::kUninterruptible},
                                            {WorkerId(3), Kind::kGone}};
  EXPECT_THAT(LookAt(9'999, silent, &watch), IsEmpty());
  EXPECT_THAT(LookAt(10'000, silent, &watch),
              ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)));
}

TEST(HelloWatchTest, AProcessThatIsHeldAtEveryLookFailsAfterTheTimeOfASilentOne) {
  HelloWatch watch(kLimits);
  const std::vector<SilentWorker> silent = {
      {WorkerId(0), Kind::kAsleep}, {WorkerId(1), Kind::kStopped}, {WorkerId(2), Kind::kTraced}};
  EXPECT_THAT(LookAt(500, silent, &watch), IsEmpty());
  EXPECT_THAT(LookAt(2'499, silent, &watch), IsEmpty());
  EXPECT_THAT(LookAt(2'999, silent, &watch), ElementsAre(WorkerId(1), WorkerId(2)));
}

TEST(HelloWatchTest, AProcessThatWasLetGoBetweenTwoLooksHasItsTimeAnew) {
  HelloWatch watch(kLimits);
  EXPECT_THAT(LookAt(500, {{WorkerId(1), Kind::kStopped}}, &watch), IsEmpty());
  EXPECT_THAT(LookAt(2'000, {{WorkerId(1), Kind::kReady}}, &watch), IsEmpty());
  EXPECT_THAT(LookAt(3'000, {{WorkerId(1), Kind::kStopped}}, &watch), IsEmpty());
  EXPECT_THAT(LookAt(4'500, {{WorkerId(1), Kind::kStopped}}, &watch), IsEmpty());
  EXPECT_THAT(LookAt(5'000, {{WorkerId(1), Kind::kStopped}}, &watch), ElementsAre(WorkerId(1)));
}

TEST(HelloWatchTest, ALookThatAHostDoesNotAnswerSaysNeitherThatAProcessIsHeldNorThatItWasLetGo) {
  HelloWatch watch(kLimits);
  const std::vector<SilentWorker> unseen = {{WorkerId(1), Kind::kGone, /*is_seen=*/false}};
  EXPECT_THAT(LookAt(500, {{WorkerId(1), Kind::kStopped}}, &watch), IsEmpty());
  EXPECT_THAT(LookAt(1'500, unseen, &watch), IsEmpty());
  EXPECT_THAT(LookAt(2'500, {{WorkerId(1), Kind::kStopped}}, &watch), ElementsAre(WorkerId(1)));
  HelloWatch of_unseen(kLimits);
  EXPECT_THAT(LookAt(500, unseen, &of_unseen), IsEmpty());
  EXPECT_THAT(LookAt(2'500, unseen, &of_unseen), IsEmpty());
  EXPECT_THAT(LookAt(10'000, unseen, &of_unseen), ElementsAre(WorkerId(1)));
}

TEST(HelloWatchTest, TimeInWhichTheCallerWasStoppedCountsLittle) {
  HelloWatch watch(kLimits);
  watch.AddWait(3600'000);
  EXPECT_EQ(watch.waited_ms(), 1'000);
  watch.AddLook(3600'000);
  EXPECT_EQ(watch.waited_ms(), 6'000);
}

TEST(HelloWatchTest, LooksThatTakeLongDoNotMakeTheLimitLonger) {
  HelloWatch watch(kLimits);
  const std::vector<SilentWorker> silent = {{WorkerId(0), Kind::kUninterruptible}};
  EXPECT_THAT(LookAt(500, silent, &watch), IsEmpty());
  watch.AddLook(4'750);
  EXPECT_TRUE(watch.LookIsDue());
  EXPECT_THAT(watch.Judge(silent), IsEmpty());
  watch.AddLook(4'750);
  EXPECT_TRUE(watch.LookIsDue());
  EXPECT_THAT(watch.Judge(silent), ElementsAre(WorkerId(0)));
}

TEST(HelloWatchTest, LooksAreRareAndOneComesAtTheLimit) {
  HelloWatch watch(kLimits);
  watch.AddWait(499);
  EXPECT_FALSE(watch.LookIsDue()) << "most processes have said hello by then";
  EXPECT_THAT(LookAt(9'900, {}, &watch), IsEmpty());
  watch.AddWait(99);
  EXPECT_FALSE(watch.LookIsDue());
  watch.AddWait(1);
  EXPECT_TRUE(watch.LookIsDue());
}

TEST(HelloWatchTest, MoreTimeForSilentProcessesIsMoreTimeForStarts) {
  EXPECT_EQ(ChooseHelloLimits(4'000, 2).hello_ms, 30'020);
  EXPECT_EQ(ChooseHelloLimits(4'000, 2).held_ms, 4'000);
  EXPECT_EQ(ChooseHelloLimits(600'000, 2).hello_ms, 600'000);
  EXPECT_EQ(ChooseHelloLimits(500, 2).held_ms, 500);
}

}  // namespace
}  // namespace weir::fleet
