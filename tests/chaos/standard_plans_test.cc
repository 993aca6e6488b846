// Tests that no plan of chaos can come to a standstill by itself: if a run does, the engine or the
// faults cause it. This test is separate from the runs, because the protocol there, which gives the
// times, may contain a planted bug.
#include "tests/chaos/standard_plans.h"

#include <vector>

#include "actors/plan/certificate.h"
#include "actors/plan/derive_certificate.h"
#include "actors/plan/plan.h"
#include "gtest/gtest.h"

namespace weir::chaos {
namespace {

TEST(StandardPlansTest, EveryPlanHasACertificateThatEachRankAccepts) {
  std::vector<StandardPlan> plans = StandardPlans();
  ASSERT_NE(FindPlan("grid32x16"), nullptr);
  plans.push_back(*FindPlan("grid32x16"));
  for (StandardPlan& standard : plans) {
    ASSERT_EQ(actors::DeriveCertificate(&standard.ranks), absl::OkStatus()) << standard.name;
    for (const proto::RankPlan& proto : standard.ranks) {
      absl::StatusOr<actors::Plan> plan = actors::PlanFromProto(proto);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(actors::CheckCertificate(*plan), absl::OkStatus()) << standard.name;
    }
  }
}

}  // namespace
}  // namespace weir::chaos
