// Plans that come to a standstill, among them one on which a published framework hung. None has a
// certificate, a forged certificate is refused, and each plan runs once it is repaired. For all
// small rates, a plan with a certificate never stops, in any order of events, and a plan without a
// certificate stops.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/derive_certificate.h"
#include "actors/session/session.h"
#include "actors/testing/job_sketch.h"
#include "actors/testing/pair_plan.h"
#include "actors/testing/test_job.h"
#include "actors/testing/unchecked_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;
using Actor = JobSketch::Actor;

absl::Status Simulate(const std::vector<proto::RankPlan>& plans, uint64_t seed, int64_t first_step,
                      std::vector<int64_t> steps) {
  return RunUnchecked(plans,
                      {SessionOptions::EngineKind::kSim, seed, first_step, std::move(steps)});
}

absl::Status CheckAll(const std::vector<proto::RankPlan>& protos) {
  for (const proto::RankPlan& proto : protos) {
    WEIR_ASSIGN_OR_RETURN(Plan plan, PlanFromProto(proto));
    WEIR_RETURN_IF_ERROR(CheckCertificate(plan));
  }
  return absl::OkStatus();
}

// Puts the times of `from` on the plans `onto`, which have the same actors.
std::vector<proto::RankPlan> Forge(const std::vector<proto::RankPlan>& from,
                                   std::vector<proto::RankPlan> onto) {
  for (size_t rank = 0; rank < onto.size(); ++rank) {
    *onto[rank].mutable_certificate() = from[rank].certificate();
    for (int i = 0; i < onto[rank].actor_size(); ++i) {
      *onto[rank].mutable_actor(i)->mutable_timing() = from[rank].actor(i).timing();
    }
    for (int i = 0; i < onto[rank].registers_size(); ++i) {
      *onto[rank].mutable_registers(i)->mutable_far() = from[rank].registers(i).far();
    }
  }
  return onto;
}

// A micro-batch enters through `repeat`, which the backward pass reads again. The device runs its
// forward collectives in one stream, and in that stream the buffer of a micro-batch stands behind
// nccl-1998 of the next; nccl-2108, which both ranks join, waits for that buffer. With one slot in
// `repeat` the next nccl-1998 waits for the end of the whole micro-batch.
std::vector<proto::RankPlan> LibaiIssue232(int repeat_slots) {
  JobSketch job(2, 4);
  const Actor repeat = job.Add(0, "repeat"), forward = job.Add(0, "nccl-1998"),
              buffer = job.Add(0, "buffer"), backward = job.Add(0, "backward"),
              joined = job.Add(0, "nccl-2108"), arrive = job.AddSend(0, "nccl-2108 is here"),
              there = job.AddSend(1, "nccl-2108 is here"), other = job.Add(1, "nccl-2108");
  job.Connect("repeated", {repeat}, {{forward}, {backward}}, repeat_slots);
  job.Connect("activation", {forward}, {{buffer}}, 2);
  job.Connect("buffered", {buffer}, {{arrive}, {joined}}, 2);
  job.ConnectRanks("rank 0 is here", arrive, other, 1);
  job.ConnectRanks("rank 1 is here", there, joined, 1);
  job.Connect("reduced", {joined}, {{backward}}, 1);
  job.Order("forward stream of rank 0", {{forward, 1}, {buffer, 0}});
  return job.plans();
}

// Each rank starts a collective on its one stream and waits there until the other rank has started
// the collective too.
std::vector<proto::RankPlan> TwoCollectives(bool same_order) {
  JobSketch job(2, 3);
  Actor here[2][2], act[2][2];
  for (int rank : {0, 1}) {
    for (int c : {0, 1}) {
      const std::string name = c == 0 ? "all-reduce a" : "all-reduce b";
      here[rank][c] = job.AddSend(rank, absl::StrCat(name, " is here"));
      act[rank][c] = job.Add(rank, name);
    }
  }
  for (int c : {0, 1}) {
    job.ConnectRanks(absl::StrCat("rank 0 at ", c), here[0][c], act[1][c], 1);
    job.ConnectRanks(absl::StrCat("rank 1 at ", c), here[1][c], act[0][c], 1);
  }
  for (int rank : {0, 1}) {
    const int first = rank == 0 || same_order ? 0 : 1;
    job.Order(absl::StrCat("collectives of rank ", rank), {{here[rank][first], 0},
                                                           {act[rank][first], 0},
                                                           {here[rank][1 - first], 0},
                                                           {act[rank][1 - first], 0}});
  }
  return job.plans();
}

// Two micro-batches at once take the deep way; one at a time skips past that way.
std::vector<proto::RankPlan> SkipPastAPack(int skip_slots) {
  JobSketch job(1, 4);
  const Actor stem = job.Add(0, "stem"), deep = job.Add(0, "deep", 2), head = job.Add(0, "head");
  job.Connect("to the deep", {stem}, {{deep, 1, 2}}, 2);
  job.Connect("skip", {stem}, {{head}}, skip_slots);
  job.Connect("from the deep", {deep, 1, 2}, {{head}}, 2);
  return job.plans();
}

std::vector<proto::RankPlan> AccumulateBesideADirectEdge(int slots) {
  std::vector<proto::RankPlan> plans = LoadTestJob("deadlock");
  plans[0].mutable_registers(0)->set_slots(slots);
  plans[0].mutable_registers(0)->set_arena_offset(plans[0].arena_bytes());
  plans[0].set_arena_bytes(plans[0].arena_bytes() + slots * 64);
  return plans;
}

struct Case {
  const char* name;
  std::vector<proto::RankPlan> (*dead)();
  std::vector<proto::RankPlan> (*repaired)();
  const char* waits;  // part of what the error must say
};

class Standstill : public ::testing::TestWithParam<Case> {};

TEST_P(Standstill, HasNoCertificateAndTheErrorNamesTheRing) {
  std::vector<proto::RankPlan> plans = GetParam().dead();
  const std::string message(DeriveCertificate(&plans).message());
  EXPECT_THAT(message, HasSubstr("W0542"));
  EXPECT_THAT(message, HasSubstr(GetParam().waits));
}

TEST_P(Standstill, IsRefusedWithTheTimesOfAPlanThatRuns) {
  std::vector<proto::RankPlan> good = GetParam().repaired();
  ASSERT_TRUE(DeriveCertificate(&good).ok()) << DeriveCertificate(&good);
  ASSERT_TRUE(CheckAll(good).ok()) << CheckAll(good);
  EXPECT_THAT(std::string(CheckAll(Forge(good, GetParam().dead())).message()), HasSubstr("W0509"));
}

TEST_P(Standstill, IsRefusedWithAnyTimes) {
  std::vector<proto::RankPlan> times = GetParam().repaired();
  ASSERT_TRUE(DeriveCertificate(&times).ok());
  const std::vector<proto::RankPlan> dead = GetParam().dead();
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    uint64_t draw = 0;
    std::vector<proto::RankPlan> forged = times;
    for (proto::RankPlan& plan : forged) {
      plan.mutable_certificate()->set_iteration_ns(1 << 20);
      for (proto::ActorSpec& actor : *plan.mutable_actor()) {
        int64_t at = 0;
        for (int64_t& start : *actor.mutable_act_start_ns())
          start = at += 1 + MixKey(seed, ++draw) % 40;
      }
    }
    EXPECT_FALSE(CheckAll(Forge(forged, dead)).ok()) << seed;
  }
}

TEST_P(Standstill, StopsWhateverHappensFirst) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    EXPECT_THAT(std::string(Simulate(GetParam().dead(), seed, 0, {1}).message()),
                HasSubstr("W0516 no progress"));
  }
}

TEST_P(Standstill, RunsInTheSimulatorAndOnThreadsOnceItIsRepaired) {
  std::vector<proto::RankPlan> plans = GetParam().repaired();
  ASSERT_TRUE(DeriveCertificate(&plans).ok());
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const absl::Status status = Simulate(plans, seed, 0, {1, 3});
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<Outcome> outcome = RunTestJob(plans, SessionOptions(), 20, 7);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Standstill,
    ::testing::Values(
        Case{"LibaiIssue232", [] { return LibaiIssue232(1); }, [] { return LibaiIssue232(2); },
             "'buffer' on rank 0 (act 0) waits for its turn in stream order 'forward stream of "
             "rank 0', "
             "after 'nccl-1998' on rank 0"},
        Case{"CollectivesInDifferentOrder", [] { return TwoCollectives(false); },
             [] { return TwoCollectives(true); },
             "'all-reduce b' on rank 1 (act 0) waits for a token of 'rank 0 at 1' from 'all-reduce "
             "b is here' on rank 0"},
        Case{"AccumulateBesideADirectEdge", [] { return AccumulateBesideADirectEdge(3); },
             [] { return AccumulateBesideADirectEdge(4); },
             "'source' on rank 0 (act 3) waits for one of the 3 slots of 'data', held by 'join' on "
             "rank 0"},
        Case{"SkipConnection", [] { return SkipPastAPack(1); }, [] { return SkipPastAPack(2); },
             "'stem' on rank 0 (act 1) waits for one of the 1 slot of 'skip', held by 'head' on "
             "rank 0"}),
    [](const auto& test) { return std::string(test.param.name); });

// The test covers every pair of small rates, phases, delays and slot counts.
TEST(SmallRatesTest, ThoseWithACertificateRunInAnyOrderAndTheOthersStop) {
  int live = 0, dead = 0;
  for (int code = 0; code < 3 * 3 * 3 * 3 * 3 * 2 * 2 * 2 * 3; ++code) {
    int rest = code;
    const auto digit = [&rest](int base) {
      const int d = rest % base;
      rest /= base;
      return d;
    };
    PairPlan p;
    p.producer_tokens = 1 + digit(3);
    p.consumer_tokens = 1 + digit(3);
    p.slots = 1 + digit(3) + digit(3);
    p.initial = digit(3);
    p.producer_period = 1 + digit(2);
    p.consumer_period = 1 + digit(2);
    p.steps = 1 + digit(2);
    const int phases = digit(3);
    p.producer_phase = phases == 1 ? p.producer_period - 1 : 0;
    p.consumer_phase = phases == 2 ? p.consumer_period - 1 : 0;
    p.tokens = p.producer_tokens * p.consumer_tokens * p.steps;
    p.producer_acts = p.consumer_tokens * p.producer_period;
    p.consumer_acts = p.producer_tokens * p.consumer_period;
    std::vector<proto::RankPlan> plans = {MakePairPlan(p)};
    if (!PlanFromProto(plans[0]).ok()) continue;
    const absl::Status derived = DeriveCertificate(&plans);
    if (derived.ok()) {
      ASSERT_TRUE(CheckAll(plans).ok()) << CheckAll(plans) << plans[0].DebugString();
    }
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const absl::Status status = Simulate(plans, seed, 0, {1, 3});
      EXPECT_EQ(status.ok(), derived.ok()) << status << plans[0].DebugString();
    }
    (derived.ok() ? live : dead) += 1;
  }
  EXPECT_GT(live, 300);
  EXPECT_GT(dead, 20);
}

// The consumer has an outer period: it acts in every third step, on the tokens that the producer
// collected since its last act.
TEST(OuterPeriodTest, AnActorOfEveryHthStepTakesWhatWasCollectedAndAnyStepCanBeTheFirst) {
  for (int phase = 0; phase < 3; ++phase) {
    PairPlan p;
    p.steps = 3;
    p.producer_acts = 2;
    p.producer_period = 6;
    p.producer_phase = (2 - phase) * 2;
    p.consumer_every = 3;
    p.consumer_every_phase = phase;
    std::vector<proto::RankPlan> plans = {MakePairPlan(p)};
    ASSERT_TRUE(DeriveCertificate(&plans).ok()) << DeriveCertificate(&plans);
    ASSERT_TRUE(CheckAll(plans).ok()) << CheckAll(plans);
    for (int64_t first = 0; first < 7; ++first) {
      const absl::Status status = Simulate(plans, 1, first, {1, 1, 4, 2});
      if (first == 0 || first % 3 == (phase + 1) % 3) {
        EXPECT_TRUE(status.ok()) << status << " phase " << phase << " first " << first;
      } else {
        EXPECT_THAT(std::string(status.message()), HasSubstr("W0540"))
            << "phase " << phase << " first " << first;
      }
    }
  }
}

}  // namespace
}  // namespace weir::actors
