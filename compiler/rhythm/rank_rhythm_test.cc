#include "compiler/rhythm/rank_rhythm.h"

#include "compiler/rates/graph_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the start of act `k` of iteration `n`, by the formula of compiler/rates/start_times.h.
int64_t StartOf(const TimedGraph& graph, const StartTimes& times, ActorId actor, int64_t n,
                int64_t k) {
  const Timing& start = times.actors[actor];
  const int64_t chunks = graph.actors[actor].chunks;
  return n * times.iteration_ns + start.start_ns + k / chunks * start.micro_batch_stride_ns +
         k % chunks * start.chunk_stride_ns;
}

// Returns whether no act of the producer starts before its slots are free, token by token over
// some iterations.
bool AreEnough(int64_t slots, const TimedGraph& graph, const StartTimes& times,
               const TimedGraph::Register& entry) {
  constexpr int64_t kIterations = 6;
  const TimedGraph::Actor& producer = graph.actors[entry.producer.actor];
  for (const TimedGraph::Port& port : entry.consumers) {
    const TimedGraph::Actor& consumer = graph.actors[port.actor];
    if (slots < port.tokens || slots < entry.producer.tokens || slots < entry.initial_tokens)
      return false;
    std::vector<int64_t> released;  // by token
    for (int64_t n = 0; n < kIterations; ++n) {
      for (int64_t k = port.period - 1; k < consumer.acts; k += port.period) {
        for (int64_t t = 0; t < port.tokens; ++t)
          released.push_back(StartOf(graph, times, port.actor, n, k) + consumer.time_ns);
      }
    }
    int64_t token = entry.initial_tokens;
    for (int64_t n = 0; n < kIterations; ++n) {
      for (int64_t k = 0; k < producer.acts; k += entry.producer.period) {
        const int64_t start = StartOf(graph, times, entry.producer.actor, n, k);
        for (int64_t t = 0; t < entry.producer.tokens; ++t, ++token) {
          const int64_t before = token - slots;
          if (before < 0 || before >= static_cast<int64_t>(released.size())) continue;
          if (released[before] + entry.latency_ns > start) return false;
        }
      }
    }
  }
  return true;
}

TEST(SlotsNeeded, AreTheFewestThatAreEnoughTokenByToken) {
  std::map<int64_t, int> seen;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    const int64_t micro_batches = 1 + below(4), turn = 10 + below(20);
    GraphMaker maker;
    StartTimes times;
    times.iteration_ns = micro_batches * turn + below(50);
    const auto actor = [&](const char* name, int64_t chunks) {
      const int64_t time = 1 + below(turn / chunks);
      times.actors.push_back({below(100), turn, turn / chunks});
      return maker.Actor(name, micro_batches * chunks, time, chunks);
    };
    // Both in chunks, or the reader once for each micro-batch or step.
    const int64_t chunks = 1 + below(3);
    const ActorId make = actor("make", chunks);
    const int64_t period = below(2) == 0 ? 1 : chunks * micro_batches;
    const ActorId use = actor("use", period == 1 ? chunks : 1);
    TimedGraph::Register entry;
    if (period == 1) {
      entry = {"r", {make}, {{use}}};
    } else {
      // The sum of a step, which each micro-batch of the next step reads.
      entry = {"r", {make, period, 1}, {{use, micro_batches, 1}}};
      entry.initial_tokens = 1;
    }
    entry.latency_ns = below(2) * below(40);
    // The reader comes late enough for its tokens, as the solve sees to.
    const int64_t found = SlotsNeeded(maker.graph, times, entry);
    EXPECT_TRUE(AreEnough(found, maker.graph, times, entry)) << "seed " << seed;
    if (found > 1) {
      EXPECT_FALSE(AreEnough(found - 1, maker.graph, times, entry)) << "seed " << seed;
    }
    ++seen[found];
  }
  EXPECT_GT(seen.size(), 4u) << "the cases differ";
}

// `make` at 0, 10, 20 …, each act 5 ns, and `use` from 25 on: a token lives from the start of its
// making until its reading has ended, 30 ns later.
class ApplyRhythmTest : public ::testing::Test {
 protected:
  ApplyRhythmTest() {
    graph_.rank = RankId(0);
    rhythm_.iteration_ns = 100;
    rhythm_.micro_batch_ns = 10;
    rhythm_.stations = {{{1, 10, 0, 5, 0}}, {{26, 10, 0, 5, 0}}};
    for (int a = 0; a < 2; ++a) {
      RankActor actor;
      actor.name = a == 0 ? "make" : "use";
      actor.station = {a, 0};
      actor.acts_per_step = 8;
      graph_.actors.push_back(actor);
      proto::ActorSpec* spec = plan_.add_actor();
      spec->set_id(a);
      spec->mutable_rate()->set_acts_per_step(8);
    }
    proto::RegisterSpec* spec = plan_.add_registers();
    spec->set_name("x");
    spec->set_tokens_per_step(8);
    plan_.mutable_actor(0)->add_output();
    plan_.mutable_actor(1)->add_input();
  }

  absl::Status Apply(int64_t steps = 1) {
    return ApplyRhythm(rhythm_, steps, graph_, {{{1, 0}}}, &plan_);
  }

  JobRhythm rhythm_;
  RankGraph graph_;
  proto::RankPlan plan_;
};

TEST_F(ApplyRhythmTest, ARegisterGetsTheSlotsThatItsTimesNeed) {
  ASSERT_TRUE(Apply().ok()) << Apply();
  EXPECT_EQ(plan_.registers(0).slots(), 3);
  EXPECT_EQ(plan_.actor(1).timing().start_ns(), 26);
  EXPECT_EQ(plan_.certificate().iteration_ns(), 100);
}

TEST_F(ApplyRhythmTest, SolvedSlotsHoldUnlessTheyAreTooFew) {
  for (int64_t solved : {2, 7}) {
    plan_.mutable_registers(0)->set_slots(0);
    rhythm_.slots[{{0, 0}, {{1, 0}}, 8, 0}] = solved;
    ASSERT_TRUE(Apply().ok());
    EXPECT_EQ(plan_.registers(0).slots(), solved == 2 ? 3 : 7);
  }
}

TEST_F(ApplyRhythmTest, TimesThatDoNotHoldAreRefused) {
  plan_.mutable_registers(0)->set_slots(2);
  EXPECT_EQ(Apply().code(), absl::StatusCode::kInternal);
  plan_.mutable_registers(0)->set_slots(0);
  rhythm_.stations[1][0].start_ns = 5;  // before the token is made
  const absl::Status status = Apply();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("do not hold on rank 0"));
}

TEST_F(ApplyRhythmTest, AnActorWithoutATimeIsNamed) {
  graph_.actors[ActorId(1)].station = {1, 4};
  const absl::Status status = Apply();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no time was solved for use"), HasSubstr("station 4 of item 1")));
}

TEST_F(ApplyRhythmTest, AnIterationLongerThanAPlanCanSayIsRefused) {
  rhythm_.iteration_ns = int64_t{1} << 45;
  EXPECT_TRUE(Apply(2).ok());
  const absl::Status status = Apply(3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0549 at training.update_every"));
}

TEST_F(ApplyRhythmTest, StepsBetweenUpdatesFollowEachOtherLikeStepsWithAnUpdate) {
  ASSERT_TRUE(Apply(4).ok());
  EXPECT_EQ(plan_.certificate().steps_per_iteration(), 4);
  EXPECT_EQ(plan_.certificate().iteration_ns(), 400);
  EXPECT_EQ(plan_.certificate().step_ns(), 100);
}

}  // namespace
}  // namespace weir::compiler
