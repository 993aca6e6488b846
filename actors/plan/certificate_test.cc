// Tests that every plan which can run has a certificate that holds, that no wrong time slips
// through, and that plans that could come to a standstill have no certificate.
#include "actors/plan/certificate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/derive_certificate.h"
#include "actors/plan/register_count.h"
#include "actors/plan/verify_plans.h"
#include "actors/testing/pair_plan.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;

absl::Status Check(const std::vector<proto::RankPlan>& protos) {
  std::vector<Plan> plans;
  for (const proto::RankPlan& proto : protos) {
    absl::StatusOr<Plan> plan = PlanFromProto(proto);
    if (!plan.ok()) return plan.status();
    if (absl::Status status = CheckCertificate(*plan); !status.ok()) return status;
    plans.push_back(*std::move(plan));
  }
  return VerifyPlans(plans);
}

class PlansThatRun : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<proto::RankPlan> Plans() {
    const std::string name = GetParam();
    return name == "pipeline" ? MakePipelineJob({}) : LoadTestJob(name);
  }
};

TEST_P(PlansThatRun, HaveACertificateThatHolds) {
  std::vector<proto::RankPlan> plans = Plans();
  ASSERT_TRUE(DeriveCertificate(&plans).ok()) << DeriveCertificate(&plans);
  EXPECT_TRUE(Check(plans).ok()) << Check(plans);
}

TEST_P(PlansThatRun, AreRefusedIfAnyActStartsTooEarly) {
  std::vector<proto::RankPlan> plans = Plans();
  ASSERT_TRUE(DeriveCertificate(&plans).ok());
  int refused = 0;
  for (proto::RankPlan& plan : plans) {
    for (proto::ActorSpec& actor : *plan.mutable_actor()) {
      for (int64_t& start : *actor.mutable_act_start_ns()) {
        if (start == 0) continue;
        // Each act starts as soon as it can.
        --start;
        const absl::Status status = Check({plans});
        EXPECT_FALSE(status.ok()) << actor.name();
        EXPECT_THAT(std::string(status.message()), HasSubstr("W05"));
        ++start;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_P(PlansThatRun, AreRefusedWithoutACertificate) {
  EXPECT_THAT(std::string(Check(Plans()).message()), HasSubstr("W0541"));
}

INSTANTIATE_TEST_SUITE_P(TestPlans, PlansThatRun,
                         ::testing::Values("accumulate", "chain", "chunked", "diamond", "repeat",
                                           "ring", "train_loop", "pipeline"),
                         [](const auto& test) { return std::string(test.param); });

TEST(CertificateTest, AnEdgeWhoseEndsSayDifferentThingsIsRefused) {
  std::vector<proto::RankPlan> plans = MakePipelineJob({});
  ASSERT_TRUE(DeriveCertificate(&plans).ok());
  for (proto::RankPlan& plan : plans) {
    for (proto::RegisterSpec& r : *plan.mutable_registers()) {
      for (proto::FarActor& far : *r.mutable_far()) {
        const proto::FarActor honest = far;
        far.mutable_timing()->set_time_ns(far.timing().time_ns() + 1);
        far.mutable_act_start_ns()->Set(0, far.act_start_ns(0));
        EXPECT_FALSE(Check(plans).ok()) << r.name();
        far = honest;
      }
    }
  }
  EXPECT_TRUE(Check(plans).ok());
}

TEST(CertificateTest, APlanThatStandsStillHasNoneAndTheErrorNamesWhoWaitsForWhom) {
  std::vector<proto::RankPlan> plans = LoadTestJob("deadlock");
  const std::string message(DeriveCertificate(&plans).message());
  EXPECT_THAT(message, HasSubstr("W0542"));
  EXPECT_THAT(message, HasSubstr("'source' on rank 0 (act 3) waits for one of the 3 slots of "
                                 "'data', held by 'join' on rank 0"));
  EXPECT_THAT(message, HasSubstr("'join' on rank 0 (act 0) waits for a token of 'accumulated' from "
                                 "'accumulate' on rank 0"));
  EXPECT_THAT(
      message,
      HasSubstr(
          "'accumulate' on rank 0 (act 3) waits for a token of 'data' from 'source' on rank 0"));
}

void SetTiming(const std::vector<int64_t>& numbers, proto::Timing* timing) {
  timing->set_start_ns(numbers[0]);
  timing->set_micro_batch_stride_ns(numbers[1]);
  timing->set_chunk_stride_ns(numbers[2]);
  timing->set_time_ns(numbers[3]);
}

// Applies the formula of proto/plan.proto directly: for each token of the first iterations, from
// step 0 on.
bool HoldsByEnumeration(const Plan& plan, int iterations) {
  const PlanRegister& r = plan.registers[RegisterId(0)];
  const PlanRhythm& rhythm = plan.rhythm;
  const auto starts = [&](const PlanActor& actor) {
    std::vector<int64_t> all;
    for (int64_t step = 0; step < iterations * rhythm.steps_per_iteration; ++step) {
      if (step % actor.every != actor.every_phase) continue;
      for (int64_t k = 0; k < actor.acts_per_step; ++k) {
        all.push_back(step / rhythm.steps_per_iteration * rhythm.iteration_ns +
                      step % rhythm.steps_per_iteration * rhythm.step_ns + actor.timing.start_ns +
                      k / actor.chunks * actor.timing.micro_batch_stride_ns +
                      k % actor.chunks * actor.timing.chunk_stride_ns);
      }
    }
    return all;
  };
  const PlanActor &producer = plan.actors[ActorId(0)], &consumer = plan.actors[ActorId(1)];
  for (const PlanActor& actor : plan.actors) {
    const std::vector<int64_t> all = starts(actor);
    for (size_t k = 1; k < all.size(); ++k) {
      if (all[k] < all[k - 1] + actor.timing.time_ns) return false;
    }
  }
  // Lists the times when each token is taken and given back, by enumeration of spans.
  const auto walk = [&](const PlanActor& actor, const PlanPort& port, int64_t first_token,
                        std::vector<int64_t>* taken, std::vector<int64_t>* given) {
    const std::vector<int64_t> all = starts(actor);
    int64_t position = port.phase;
    taken->assign(first_token, -1);
    given->assign(first_token, -1);
    for (size_t k = 0; k < all.size(); ++k) {
      if (k == 0 || position == 0) taken->insert(taken->end(), port.tokens, all[k]);
      if (++position < port.period) continue;
      position = 0;
      given->insert(given->end(), port.tokens, all[k] + actor.timing.time_ns);
    }
  };
  std::vector<int64_t> written, published, read, released;
  walk(producer, producer.outputs[0], r.initial_tokens, &written, &published);
  walk(consumer, consumer.inputs[0], 0, &read, &released);
  for (size_t token = 0; token < std::min(read.size(), published.size()); ++token) {
    if (read[token] < published[token]) return false;
  }
  for (size_t token = 0; token < released.size() && token + r.slots < written.size(); ++token) {
    if (written[token + r.slots] < released[token]) return false;
  }
  return true;
}

int64_t Draw(uint64_t* key, int64_t bound) {
  *key = MixKey(*key, 1);
  return static_cast<int64_t>(*key % static_cast<uint64_t>(bound));
}

// The rates are random and the times are near the edge of validity; both answers must come often.
TEST(CertificateTest, AgreesWithAnEnumerationOfAllTokensForRandomPairs) {
  int held = 0, failed = 0;
  for (uint64_t seed = 0; seed < 60000; ++seed) {
    uint64_t key = MixKey(seed, 77);
    PairPlan p;
    p.chunks = 1 + static_cast<int>(Draw(&key, 6));
    const int micro_batches = 1 + static_cast<int>(Draw(&key, 12));
    p.producer_acts = p.consumer_acts = p.chunks * micro_batches;
    p.steps = 1 + static_cast<int>(Draw(&key, 2));
    const int acts = p.producer_acts * p.steps;
    if (Draw(&key, 2) == 0) p.producer_period = Draw(&key, 2) == 0 ? p.producer_acts : acts;
    if (Draw(&key, 3) == 0) p.producer_phase = static_cast<int>(Draw(&key, p.producer_period));
    p.tokens = acts / p.producer_period;
    if (Draw(&key, 2) == 0 && p.tokens % 2 == 0) p.consumer_tokens = 2;
    p.consumer_period = acts / (p.tokens / p.consumer_tokens);
    if (Draw(&key, 3) == 0) p.consumer_phase = static_cast<int>(Draw(&key, p.consumer_period));
    p.slots = p.consumer_tokens + static_cast<int>(Draw(&key, 2 * p.chunks + 2));
    p.initial = static_cast<int>(Draw(&key, std::min(p.slots, 3) + 1));
    proto::RankPlan proto = MakePairPlan(p);
    std::vector<int64_t> times = {Draw(&key, 30), 2 + 2 * p.chunks + Draw(&key, 8),
                                  1 + Draw(&key, 3), 1 + Draw(&key, 3)};
    SetTiming(times, proto.mutable_actor(0)->mutable_timing());
    times[0] += Draw(&key, 40);
    if (Draw(&key, 4) == 0) times[1] += Draw(&key, 3) - 1;
    SetTiming(times, proto.mutable_actor(1)->mutable_timing());
    proto::PlanCertificate* certificate = proto.mutable_certificate();
    certificate->set_step_ns(micro_batches * (10 + 2 * p.chunks) + Draw(&key, 12));
    certificate->set_iteration_ns(p.steps * certificate->step_ns() + Draw(&key, 60));
    absl::StatusOr<Plan> plan = PlanFromProto(proto);
    if (!plan.ok()) continue;  // a step that cannot end without the next
    const bool expected = HoldsByEnumeration(*plan, 8);
    const absl::Status status = CheckCertificate(*plan);
    ASSERT_EQ(status.ok(), expected) << "seed " << seed << "\n" << proto.DebugString() << status;
    (expected ? held : failed) += 1;
  }
  EXPECT_GT(held, 2000);
  EXPECT_GT(failed, 2000);
}

}  // namespace
}  // namespace weir::actors
