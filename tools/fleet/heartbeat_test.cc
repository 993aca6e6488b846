#include "tools/fleet/heartbeat.h"

#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

void ExpectChosen(const Heartbeat& given, int num_workers, const Heartbeat& wanted) {
  const Heartbeat chosen = ChooseHeartbeat(given, num_workers);
  EXPECT_EQ(chosen.every_ms, wanted.every_ms) << num_workers;
  EXPECT_EQ(chosen.dead_after_ms, wanted.dead_after_ms) << num_workers;
}

TEST(HeartbeatTest, ManyWorkersBeatMoreRarely) {
  ExpectChosen({}, 1, {1'000, 4'000});
  ExpectChosen({}, 250, {1'000, 4'000});
  ExpectChosen({}, 1'000, {4'000, 16'000});
  ExpectChosen({}, 12'288, {49'152, 196'608});
}

TEST(HeartbeatTest, GivenValuesAreObeyed) {
  ExpectChosen({300, 1'500}, 4'096, {300, 1'500});
  ExpectChosen({3'000, 0}, 2, {3'000, 12'000});
  ExpectChosen({50, 0}, 2, {50, 4'000});
  ExpectChosen({0, 10'000}, 2, {1'000, 10'000});
  ExpectChosen({0, 10'000}, 4'096, {5'000, 10'000});
  ExpectChosen({0, 500}, 2, {250, 500});
}

TEST(HeartbeatTest, AReportOfProcessorUseFromBeforeTheSilenceTellsNothing) {
  EXPECT_EQ(UseAgeMaxMs({1'000, 4'000}), 3'000);
  EXPECT_EQ(UseAgeMaxMs({300, 1'500}), 1'200);
  EXPECT_EQ(UseAgeMaxMs({4'000, 16'000}), 3'000);
}

}  // namespace
}  // namespace weir::fleet
