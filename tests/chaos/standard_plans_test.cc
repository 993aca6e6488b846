// That no plan of chaos can come to a standstill by itself: a run that does is the engine's fault
// or the faults' doing. Apart from the runs: there the protocol, by which times are derived, may
// hold a planted bug.
#include "tests/chaos/standard_plans.h"

#include <vector>

#include "actors/certificate.h"
#include "actors/derive_certificate.h"
#include "actors/plan.h"
#include "gtest/gtest.h"

namespace weir::chaos {
namespace {

TEST(StandardPlansTest, EveryPlanHasACertificateThatEachRankAccepts) {
  std::vector<StandardPlan> plans = StandardPlans();
  ASSERT_NE(FindPlan("grid32x16"), nullptr);
  plans.push_back(*FindPlan("grid32x16"));
  for (StandardPlan& standard : plans) {
    ASSERT_EQ(DeriveCertificate(&standard.ranks), absl::OkStatus()) << standard.name;
    for (const RankPlan& proto : standard.ranks) {
      absl::StatusOr<Plan> plan = PlanFromProto(proto);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(CheckCertificate(*plan), absl::OkStatus()) << standard.name;
    }
  }
}

}  // namespace
}  // namespace weir::chaos
