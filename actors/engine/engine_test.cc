// Runs both engines on the same hand-written jobs, and expects the same bits in any order.
#include <cstring>
#include <set>

#include "actors/session/session.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "actors/testing/unchecked_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;
using Chooser = SimEngineOptions::Chooser;

SessionOptions Sim(uint64_t seed, Chooser chooser) {
  SessionOptions options;
  options.engine = SessionOptions::EngineKind::kSim;
  options.sim.seed = seed;
  options.sim.chooser = chooser;
  options.sim.check = SimEngineOptions::Check::kEveryStep;
  options.trace_capacity = 16;
  if (seed % 3 == 0) options.sim_mapping = transport::SimNetwork::Mapping::kDirect;
  return options;
}

SessionOptions Caf() {
  SessionOptions options;
  options.trace_capacity = 16;
  return options;
}

std::vector<proto::RankPlan> Job(const std::string& name) {
  if (name == "pipeline") {
    PipelineJob job;
    job.num_stages = 3;
    return MakePipelineJob(job);
  }
  return LoadTestJob(name);
}

class EveryJob : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Jobs, EveryJob,
                         ::testing::Values("chain", "diamond", "train_loop", "repeat", "accumulate",
                                           "chunked", "ring", "pipeline"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(EveryJob, GivesTheSameBitsInEveryInterleaving) {
  const std::vector<proto::RankPlan> plans = Job(GetParam());
  absl::StatusOr<Outcome> reference = RunTestJob(plans, Sim(1, Chooser::kByTime), 3, 3);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Chooser chooser = static_cast<Chooser>(seed % 3);
    absl::StatusOr<Outcome> outcome = RunTestJob(plans, Sim(seed, chooser), 3, 1 + seed % 3);
    ASSERT_TRUE(outcome.ok()) << outcome.status() << " seed " << seed;
    ASSERT_EQ(*outcome, *reference) << "seed " << seed;
  }
}

TEST_P(EveryJob, GivesTheSameBitsOnThreadsAsInTheSimulator) {
  const std::vector<proto::RankPlan> plans = Job(GetParam());
  absl::StatusOr<Outcome> reference = RunTestJob(plans, Sim(1, Chooser::kUniform), 20, 20);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (int64_t steps_per_call : {20, 1, 7}) {
    absl::StatusOr<Outcome> outcome = RunTestJob(plans, Caf(), 20, steps_per_call);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, *reference) << steps_per_call << " steps per call";
  }
}

TEST_P(EveryJob, DoesNotDependOnTheNumberOfSlots) {
  std::vector<proto::RankPlan> plans = Job(GetParam());
  absl::StatusOr<Outcome> reference = RunTestJob(plans, Sim(1, Chooser::kByTime), 3, 3);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (proto::RankPlan& plan : plans) {
    int64_t end = plan.arena_bytes();
    for (proto::RegisterSpec& r : *plan.mutable_registers()) {
      r.set_slots(r.slots() + 3);
      r.set_arena_offset(end);
      r.set_stride((r.bytes() + 63) / 64 * 64);
      end += r.stride() * r.slots();
    }
    plan.set_arena_bytes(end);
  }
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    absl::StatusOr<Outcome> outcome = RunTestJob(plans, Sim(seed, Chooser::kUniform), 3, 3);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, *reference);
  }
}

TEST_P(EveryJob, ASeedRepeatsItsHistoryAndSeedsDiffer) {
  const std::vector<proto::RankPlan> plans = Job(GetParam());
  std::set<uint64_t> histories;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    uint64_t hashes[2];
    for (uint64_t& hash : hashes) {
      TestFeed feed;
      SessionOptions options = Sim(seed, Chooser::kUniform);
      options.feed = &feed;
      absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(Certified(plans), options);
      ASSERT_TRUE(session.ok()) << session.status();
      ASSERT_TRUE((*session)->RunSteps(4).ok());
      hash = (*session)->simulator()->history_hash();
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    histories.insert(hashes[0]);
  }
  EXPECT_GT(histories.size(), 1u);
}

TEST(EngineTest, MetricsComeOncePerMicroBatch) {
  absl::StatusOr<Outcome> outcome = RunTestJob(LoadTestJob("chain"), Caf(), 5, 5);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->metrics.size(), 20u);
  for (const auto& [key, values] : outcome->metrics) EXPECT_EQ(values.size(), 1u);
}

TEST(EngineTest, CountsPayloadBytesOfShortLastChunks) {
  absl::StatusOr<Outcome> outcome = RunTestJob(LoadTestJob("chunked"), Caf(), 3, 3);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->bytes_by_edge.at(EdgeId(77)),
            3 /*steps*/ * 2 /*micro-batches*/ * 40 /*elements*/ * 4);
}

// Makes the receiver of the job "chunked" write the size of each message into its state.
std::vector<proto::RankPlan> ChunkedWithSizes() {
  std::vector<proto::RankPlan> plans = LoadTestJob("chunked");
  proto::KernelCall* call = plans[1].mutable_program(0)->mutable_call(0);
  call->set_op("test_sizes");
  call->mutable_output(0)->set_place(proto::Operand::STATE);
  plans[1].mutable_actor(0)->add_state(0);
  plans[1].mutable_actor(1)->set_program(-1);
  plans[1].mutable_actor(1)->clear_state();
  return plans;
}

TEST(EngineTest, AReaderIsToldTheSizeOfAShortMessage) {
  const std::vector<proto::RankPlan> plans = ChunkedWithSizes();
  for (const SessionOptions& options :
       {Caf(), Sim(1, Chooser::kUniform), Sim(3, Chooser::kUniform)}) {
    absl::StatusOr<Outcome> outcome = RunTestJob(plans, options, 3, 3);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    int32_t sizes[3];
    std::memcpy(sizes, outcome->states.at({RankId(1), "sum"}).data(), sizeof(sizes));
    // Slots have 64 bytes; the last chunk has 8 of 40 elements.
    EXPECT_EQ(sizes[0], 64);
    EXPECT_EQ(sizes[1], 64);
    EXPECT_EQ(sizes[2], 32);
  }
}

TEST(EngineTest, AReaderOnTheSameRankIsToldTheSizeOfAShortToken) {
  std::vector<proto::RankPlan> plans = ChunkedWithSizes();
  // All actors on rank 0: the packed chunks are a local register.
  proto::RankPlan plan = plans[0];
  plan.set_num_ranks(1);
  plan.mutable_actor(1)->set_kind(proto::ActorSpec::COMPUTE);
  plan.mutable_registers(1)->set_side(proto::RegisterSpec::LOCAL);
  plan.mutable_registers(1)->clear_peer();
  plan.mutable_registers(1)->clear_edge();
  plan.mutable_registers(1)->set_arena_offset(640);
  plan.mutable_registers(1)->set_stride(64);
  *plan.add_program() = plans[1].program(0);
  proto::ActorSpec* reader = plan.add_actor();
  *reader = plans[1].actor(0);
  reader->set_id(2);
  reader->set_program(1);
  reader->mutable_input(0)->set_register_id(1);
  reader->clear_output();
  *plan.add_state() = plans[1].state(0);
  plan.mutable_state(0)->set_arena_offset(768);
  plan.set_arena_bytes(960);
  absl::StatusOr<Outcome> outcome = RunTestJob({plan}, Caf(), 3, 3);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  int32_t sizes[3];
  std::memcpy(sizes, outcome->states.at({RankId(0), "sum"}).data(), sizeof(sizes));
  EXPECT_EQ(sizes[0], 64);
  EXPECT_EQ(sizes[1], 64);
  EXPECT_EQ(sizes[2], 32);
}

TEST(EngineTest, ResumesAtTheGivenStep) {
  const std::vector<proto::RankPlan> plans = LoadTestJob("chain");
  TestFeed feed;
  TestSink sink;
  SessionOptions options = Caf();
  options.feed = &feed;
  options.sink = &sink;
  absl::StatusOr<std::unique_ptr<Session>> first = Session::Create(Certified(plans), options);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->RunSteps(3).ok());
  const device::HostView view = *(*first)->ReadState(RankId(0), "sum");
  const std::string state(view.data(), view.size());
  ASSERT_TRUE((*first)->RunSteps(2).ok());

  options.first_step = 3;
  absl::StatusOr<std::unique_ptr<Session>> second = Session::Create(Certified(plans), options);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE((*second)->WriteState(RankId(0), "sum", state).ok());
  ASSERT_TRUE((*second)->RunSteps(2).ok());
  EXPECT_EQ((*first)->ReadState(RankId(0), "sum")->bytes(),
            (*second)->ReadState(RankId(0), "sum")->bytes());
  EXPECT_EQ((*second)->steps_done(), 5);
}

TEST(EngineTest, UnknownStatesAndWrongSizesAreErrors) {
  TestFeed feed;
  SessionOptions options = Caf();
  options.feed = &feed;
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(Certified(LoadTestJob("chain")), options);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->ReadState(RankId(0), "product").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ((*session)->ReadState(RankId(3), "sum").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*session)->WriteState(RankId(0), "sum", "abc").code(),
            absl::StatusCode::kInvalidArgument);
}

class EveryEngine : public ::testing::TestWithParam<SessionOptions::EngineKind> {
 protected:
  SessionOptions Options() const {
    return GetParam() == SessionOptions::EngineKind::kCaf ? Caf() : Sim(5, Chooser::kUniform);
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, EveryEngine,
                         ::testing::Values(SessionOptions::EngineKind::kCaf,
                                           SessionOptions::EngineKind::kSim));

TEST_P(EveryEngine, APlanWithoutProgressIsReportedWithEveryActorsState) {
  EXPECT_THAT(std::string(Session::Create(LoadTestJob("deadlock"), Options()).status().message()),
              HasSubstr("W0541"))
      << "no session runs it";
  const absl::Status status = RunUnchecked(LoadTestJob("deadlock"), {GetParam()});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("W0516"));
  EXPECT_THAT(message, HasSubstr("rank 0 actor 'source': 3 of 4 acts, waits for credit 'data', "
                                 "held by actor 'join' on rank 0"))
      << "'accumulate' has read all there is";
  EXPECT_THAT(message, HasSubstr("\n  why: a ring of 3 actors that wait for each other:\n"));
  EXPECT_THAT(
      message,
      HasSubstr("actor 'accumulate': 3 of 4 acts, waits for input 'data', held by actor 'source'"));
  EXPECT_THAT(message,
              HasSubstr("actor 'join': 0 of 4 acts, waits for input 'accumulated', held by actor "
                        "'accumulate' on rank 0"));
}

TEST_P(EveryEngine, AStallNamesTheHolderOnTheOtherRank) {
  std::vector<proto::RankPlan> plans = LoadTestJob("ring");
  plans[0].mutable_registers(0)->set_initial_tokens(0);
  plans[1].mutable_registers(2)->set_initial_tokens(0);
  const absl::Status status = RunUnchecked(plans, {GetParam(), 1, 0, {2}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "rank 0 actor 'mix': 0 of 6 acts, waits for input 'in', held by actor 'send' on rank 1"));
}

TEST_P(EveryEngine, AFailingFeedStopsAllRanksAndStays) {
  TestFeed feed;
  feed.FailAt(2);
  SessionOptions options = Options();
  options.feed = &feed;
  PipelineJob job;
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(Certified(MakePipelineJob(job)), options);
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::Status status = (*session)->RunSteps(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0, actor 'source', feed 'data'"));
  EXPECT_EQ((*session)->RunSteps(1).code(), absl::StatusCode::kDataLoss);
}

TEST_P(EveryEngine, AMissingKernelIsRefusedAtLoad) {
  std::vector<proto::RankPlan> plans = LoadTestJob("chain");
  plans[0].mutable_program(1)->mutable_call(0)->set_op("test_nothing");
  const absl::Status status = RunTestJob(plans, Options(), 1, 1).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("program 'one_mix', call 'mix' of test_nothing"));
}

TEST(CafEngineTest, AKernelThatThrowsIsAFault) {
  std::vector<proto::RankPlan> plans = LoadTestJob("chain");
  proto::KernelCall* call = plans[0].mutable_program(1)->mutable_call(0);
  call->set_op("test_throw");
  proto::NamedAttr* attr = call->add_attr();
  attr->set_name("step");
  attr->mutable_value()->set_i(1);
  const absl::Status status = RunTestJob(plans, Caf(), 4, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("asked to"));
}

TEST(CafEngineTest, ManyStepsOverManyRanksComeToRest) {
  PipelineJob job;
  job.num_stages = 5;
  job.micro_batches = 6;
  absl::StatusOr<Outcome> reference =
      RunTestJob(MakePipelineJob(job), Sim(2, Chooser::kUniform), 40, 40);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (int polls : {1, 500}) {
    SessionOptions options = Caf();
    options.caf.polls_before_parking = polls;
    absl::StatusOr<Outcome> outcome =
        RunTestJob(MakePipelineJob(job), options, 40, polls == 1 ? 1 : 40);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, *reference);
  }
}

TEST(SimEngineTest, TheProtocolRunsWithoutKernelsOrMemory) {
  PipelineJob job;
  job.num_stages = 8;
  job.micro_batches = 8;
  SessionOptions options = Sim(3, Chooser::kUniform);
  options.compute = RankExecutorOptions::Compute::kSkip;
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(Certified(MakePipelineJob(job)), options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->RunSteps(2), absl::OkStatus());
  EXPECT_EQ((*session)->Memory(RankId(0)).arena_bytes, 0);
}

TEST(SimEngineTest, OneForwardOneBackwardTakesTheTimeOfTheBubbleFormula) {
  PipelineJob job;
  job.num_stages = 4;
  job.micro_batches = 8;
  job.message_slots = 4;
  SessionOptions options = Sim(1, Chooser::kByTime);
  options.compute = RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [](const Plan&, const PlanActor& actor) {
    if (actor.name == "forward") return 1000;
    return actor.name == "backward" ? 2000 : 0;
  };
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(Certified(MakePipelineJob(job)), options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_EQ((*session)->RunSteps(1), absl::OkStatus());
  EXPECT_EQ((*session)->simulator()->now_ns(), (8 + 4 - 1) * 3000);
}

}  // namespace
}  // namespace weir::actors
