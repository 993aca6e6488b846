// Lists the inputs that PlanFromProto and VerifyPlans refuse, and tests that no input makes them
// crash.
#include "actors/plan/plan.h"

#include <functional>
#include <random>
#include <string>

#include "actors/plan/verify_plans.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using proto::RankPlan;
using ::testing::HasSubstr;

proto::RankPlan Chain() { return LoadTestJob("chain")[0]; }

struct Mistake {
  const char* name;
  std::function<void(proto::RankPlan&)> make;
  const char* message;  // what the error must say
};

class WrongPlan : public ::testing::TestWithParam<Mistake> {};

TEST_P(WrongPlan, IsRefusedWithTheNameOfTheCulprit) {
  proto::RankPlan plan = Chain();
  ASSERT_TRUE(PlanFromProto(plan).ok()) << PlanFromProto(plan).status();
  GetParam().make(plan);
  const absl::Status status = PlanFromProto(plan).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

// Returns the token state of the first register, which then has initial tokens.
proto::StateSpec::Token* TokenState(proto::RankPlan& plan) {
  proto::RegisterSpec* r = plan.mutable_registers(0);
  proto::StateSpec* state = plan.add_state();
  state->set_name("in a register");
  state->mutable_slice()->set_dtype("f32");
  state->set_arena_offset(r->arena_offset());
  state->mutable_token()->set_register_id(0);
  return state->mutable_token();
}

proto::Operand* FirstOutput(proto::RankPlan& plan) {
  return plan.mutable_program(1)->mutable_call(0)->mutable_output(0);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, WrongPlan,
    ::testing::Values(
        Mistake{"NoRanks", [](RankPlan& p) { p.set_num_ranks(0); }, "W0501"},
        Mistake{"NoteOutOfRange", [](RankPlan& p) { p.mutable_actor(0)->set_note(0); }, "W0503"},
        Mistake{"RankOutOfRange", [](RankPlan& p) { p.set_rank(1); }, "W0501"},
        Mistake{"HugeArena", [](RankPlan& p) { p.set_arena_bytes(int64_t{1} << 62); }, "arena_bytes"},
        Mistake{"ScratchBeyondArena", [](RankPlan& p) { p.set_scratch_bytes(p.arena_bytes() + 1); }, "scratch_bytes"},
        Mistake{"NoRoomForTheScratchOfASecondQueue",
                [](RankPlan& p) {
                  p.set_num_queues(2);
                  for (proto::Program& program : *p.mutable_program())
                    program.set_scratch_bytes(p.scratch_bytes());
                  int computing = 0;
                  for (proto::ActorSpec& actor : *p.mutable_actor())
                    if (actor.program() >= 0) actor.set_queue(computing++ % 2);
                },
                "for the largest program of each of 2 queues"},
        Mistake{"NegativeMicroBatches", [](RankPlan& p) { p.set_micro_batches(-1); }, "micro_batches"},
        Mistake{"ActorIdsNotDense", [](RankPlan& p) { p.mutable_actor(1)->set_id(7); }, "actor 1 'first'"},
        Mistake{"RegisterIdsNotDense", [](RankPlan& p) { p.mutable_registers(2)->set_id(0); }, "register 2 'out'"},
        Mistake{"NoSlots", [](RankPlan& p) { p.mutable_registers(0)->set_slots(0); }, "slots from 1"},
        Mistake{"StateInNoRegister", [](RankPlan& p) { TokenState(p)->set_register_id(99); }, "a register of this rank"},
        Mistake{"StateOfNoInitialToken", [](RankPlan& p) { TokenState(p); }, "one of the initial tokens"},
        Mistake{"StateOfANegativeToken", [](RankPlan& p) { TokenState(p)->set_token(-1); }, "one of the initial tokens"},
        Mistake{"NegativeBytes", [](RankPlan& p) { p.mutable_registers(0)->set_bytes(-1); }, "bytes from 0"},
        Mistake{"RegisterBeyondArena", [](RankPlan& p) { p.mutable_registers(0)->set_slots(1000); }, "inside the arena"},
        Mistake{"HugeStride", [](RankPlan& p) { p.mutable_registers(0)->set_stride(int64_t{1} << 45); },
                "inside the arena"},
        Mistake{"OverlappingSlots", [](RankPlan& p) { p.mutable_registers(0)->set_stride(0); }, "stride"},
        Mistake{"RegisterInScratch", [](RankPlan& p) { p.mutable_registers(0)->set_arena_offset(64); }, "arena_offset"},
        Mistake{"UnalignedRegister", [](RankPlan& p) { p.mutable_registers(0)->set_arena_offset(300); }, "arena_offset"},
        Mistake{"MoreTokensThanSlots", [](RankPlan& p) { p.mutable_registers(0)->set_initial_tokens(3); },
                "initial_tokens"},
        Mistake{"NoTokens", [](RankPlan& p) { p.mutable_registers(0)->set_tokens_per_step(0); }, "tokens_per_step"},
        Mistake{"OtherRate", [](RankPlan& p) { p.mutable_registers(0)->set_tokens_per_step(2); }, "2 tokens per step"},
        Mistake{"PeerIsSelf",
                [](RankPlan& p) { p.mutable_registers(0)->set_side(proto::RegisterSpec::INBOUND); }, "a peer among"},
        Mistake{"UnknownSide",
                [](RankPlan& p) { p.mutable_registers(0)->set_side(static_cast<proto::RegisterSpec::Side>(9)); },
                "a known side"},
        Mistake{"NoActs", [](RankPlan& p) { p.mutable_actor(1)->mutable_rate()->set_acts_per_step(0); }, "acts_per_step"},
        Mistake{"ChunksDoNotDivide", [](RankPlan& p) { p.mutable_actor(1)->mutable_rate()->set_chunks(3); }, "chunks"},
        Mistake{"PeriodDoesNotDivide", [](RankPlan& p) { p.mutable_actor(1)->mutable_input(0)->mutable_span()->set_period(3); },
                "input port 0"},
        Mistake{"NegativePeriod",
                [](RankPlan& p) { p.mutable_actor(1)->mutable_input(0)->mutable_span()->set_period(-1); }, "a period"},
        Mistake{"PortOfNoRegister", [](RankPlan& p) { p.mutable_actor(1)->mutable_output(0)->set_register_id(99); },
                "output port 0"},
        Mistake{"NegativeRegister", [](RankPlan& p) { p.mutable_actor(1)->mutable_input(0)->set_register_id(-1); },
                "a register of this rank"},
        Mistake{"TwoProducers", [](RankPlan& p) { p.mutable_actor(2)->mutable_output(0)->set_register_id(1); },
                "one producer"},
        Mistake{"NoProducer", [](RankPlan& p) { p.mutable_actor(0)->mutable_output()->Clear();
                                                p.mutable_actor(0)->set_kind(proto::ActorSpec::COMPUTE); }, "a producer"},
        Mistake{"NoSuchProgram", [](RankPlan& p) { p.mutable_actor(1)->set_program(3); }, "a program from -1 to 2"},
        Mistake{"NoSuchState", [](RankPlan& p) { p.mutable_actor(3)->set_state(0, 1); }, "states of this rank"},
        Mistake{"UnknownKind", [](RankPlan& p) { p.mutable_actor(1)->set_kind(static_cast<proto::ActorSpec::Kind>(17)); },
                "a known kind"},
        Mistake{"SendWithoutEdge", [](RankPlan& p) { p.mutable_actor(1)->set_kind(proto::ActorSpec::SEND); }, "SEND"},
        Mistake{"FeedLargerThanRegister",
                [](RankPlan& p) { p.mutable_actor(0)->mutable_feed_slice()->set_shape(0, 17); }, "feed_slice"},
        Mistake{"FeedRangeOfRealNumbers",
                [](RankPlan& p) {
                  p.mutable_actor(0)->mutable_feed_slice()->set_dtype("f32");
                  p.mutable_actor(0)->mutable_feed_range()->set_below(5);
                },
                "feed_range"},
        Mistake{"FeedRangeNegative",
                [](RankPlan& p) { p.mutable_actor(0)->mutable_feed_range()->set_below(-5); }, "feed_range"},
        Mistake{"SinkWithoutInput", [](RankPlan& p) { p.mutable_actor(4)->clear_input(); }, "SINK"},
        Mistake{"OperandBeyondRegister", [](RankPlan& p) { FirstOutput(p)->set_byte_offset(64); }, "actor 2 'second'"},
        Mistake{"OperandOffsetOverflows",
                [](RankPlan& p) { FirstOutput(p)->set_byte_offset(INT64_MAX / 64 * 64); }, "byte_offset"},
        Mistake{"OperandUnaligned", [](RankPlan& p) { FirstOutput(p)->set_byte_offset(4); }, "byte_offset"},
        Mistake{"OperandOfNoPort", [](RankPlan& p) { FirstOutput(p)->set_index(1); }, "operand index below 1"},
        Mistake{"OperandIndexNegative", [](RankPlan& p) { FirstOutput(p)->set_index(-5); }, "operand index"},
        Mistake{"UnknownDtype", [](RankPlan& p) { FirstOutput(p)->mutable_slice()->set_dtype("f64"); }, "dtype"},
        Mistake{"ShapeOverflows",
                [](RankPlan& p) {
                  proto::TensorSliceProto* slice = FirstOutput(p)->mutable_slice();
                  slice->clear_shape();
                  for (int i = 0; i < 4; ++i) slice->add_shape(int64_t{1} << 40);
                },
                "elements"},
        Mistake{"NegativeShape", [](RankPlan& p) { FirstOutput(p)->mutable_slice()->set_shape(0, -16); }, "axis 0"},
        Mistake{"ShardOutsideTensor",
                [](RankPlan& p) {
                  FirstOutput(p)->mutable_slice()->add_offset(1);
                  FirstOutput(p)->mutable_slice()->add_global_shape(16);
                },
                "axis 0 of the shard"},
        Mistake{"RanksOfOffsetsDiffer",
                [](RankPlan& p) {
                  for (int i = 0; i < 2; ++i) FirstOutput(p)->mutable_slice()->add_offset(0);
                },
                "of one rank"},
        Mistake{"ScratchOperandBeyondProgram",
                [](RankPlan& p) { p.mutable_program(0)->set_scratch_bytes(100); }, "program 'two_mixes'"},
        Mistake{"StateOfNoClass", [](RankPlan& p) { p.mutable_state(0)->set_state_class(static_cast<proto::StateSpec::Class>(9)); },
                "class 9"},
        Mistake{"SlotOfNoWeight", [](RankPlan& p) { p.mutable_state(0)->set_state_class(proto::StateSpec::OPTIMIZER_SLOT); },
                "the weight that it belongs to"},
        Mistake{"WeightOfAWeight", [](RankPlan& p) { p.mutable_state(0)->set_weight("w"); },
                "a state that belongs to no weight"},
        Mistake{"StateBeyondArena", [](RankPlan& p) { p.mutable_state(0)->set_arena_offset(p.arena_bytes()); },
                "state 0 'sum'"},
        Mistake{"AttributeTwice",
                [](RankPlan& p) {
                  for (int i = 0; i < 2; ++i) {
                    proto::NamedAttr* attr = p.mutable_program(0)->mutable_call(0)->add_attr();
                    attr->set_name("a");
                    attr->mutable_value()->set_i(1);
                  }
                },
                "each attribute once"},
        Mistake{"TransferThatNeitherPacksNorFills",
                [](RankPlan& p) {
                  p.mutable_program(0)->mutable_call(0)->mutable_exchange()->set_chunk_elements(4);
                },
                "W0502"},
        Mistake{"TransferOfAPieceBeforeTheFirstPosition",
                [](RankPlan& p) {
                  proto::ExchangeProto* exchange =
                      p.mutable_program(0)->mutable_call(0)->mutable_exchange();
                  exchange->set_chunk_elements(4);
                  exchange->mutable_pack()->add_piece()->set_position(-1);
                },
                "1 elements at -1"},
        Mistake{"InputWrittenThatOthersRead",
                [](RankPlan& p) {
                  p.mutable_actor(2)->mutable_input(0)->set_register_id(0);  // now two readers
                  FirstOutput(p)->set_place(proto::Operand::INPUT);
                },
                "written in place"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PlanTest, KnowsProducersAndConsumersOfEveryRegister) {
  absl::StatusOr<Plan> plan = PlanFromProto(LoadTestJob("diamond")[0]);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->registers[RegisterId(0)].producer.actor, ActorId(0));
  EXPECT_EQ(plan->registers[RegisterId(0)].consumers.size(), 3u);
}

TEST(PlanTest, FlippedBitsAreRefusedOrHarmless) {
  const std::string good = LoadTestJob("train_loop")[0].SerializeAsString();
  const google::protobuf::LogSilencer quiet;
  std::mt19937 random(1);
  int num_parsed = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bad = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    }
    proto::RankPlan plan;
    if (!plan.ParseFromString(bad)) continue;
    ++num_parsed;
    (void)PlanFromProto(plan);
  }
  EXPECT_GT(num_parsed, 1000);
}

std::vector<Plan> Ring(const std::function<void(std::vector<proto::RankPlan>&)>& change) {
  std::vector<proto::RankPlan> protos = LoadTestJob("ring");
  change(protos);
  std::vector<Plan> plans;
  for (const proto::RankPlan& proto : protos) plans.push_back(PlanFromProto(proto).value());
  return plans;
}

TEST(VerifyPlansTest, AcceptsRanksThatFitTogether) {
  EXPECT_EQ(VerifyPlans(Ring([](auto&) {})), absl::OkStatus());
}

TEST(VerifyPlansTest, SomeRanksAreAcceptedWithoutTheOthers) {
  const std::vector<Plan> plans = Ring([](auto&) {});
  EXPECT_EQ(VerifyLocalPlans({&plans[1], 1}), absl::OkStatus());
  EXPECT_EQ(VerifyLocalPlans(std::vector<Plan>{plans[1], plans[0]}), absl::OkStatus());
  EXPECT_EQ(VerifyPlans({&plans[0], 1}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(VerifyPlansTest, AmongSomeRanksBothSidesOfAnEdgeMustAgree) {
  const std::vector<Plan> plans = Ring([](auto& p) { p[0].mutable_registers(2)->set_slots(3); });
  EXPECT_EQ(VerifyLocalPlans({&plans[0], 1}), absl::OkStatus());
  EXPECT_THAT(std::string(VerifyLocalPlans(plans).message()), HasSubstr("3 slots of 64 bytes"));
  const std::vector<Plan> unpaired = Ring([](auto& p) { p[0].mutable_registers(2)->set_edge(12); });
  EXPECT_EQ(VerifyLocalPlans({&unpaired[0], 1}), absl::OkStatus());
  EXPECT_THAT(std::string(VerifyLocalPlans(unpaired).message()),
              HasSubstr("an outbound register on the peer"));
}

TEST(VerifyPlansTest, RanksOfAnotherJobNoRankAndARankTwiceAreRefused) {
  const std::vector<Plan> plans = Ring([](auto&) {});
  EXPECT_THAT(std::string(VerifyLocalPlans({}).message()), HasSubstr("found none"));
  EXPECT_THAT(std::string(VerifyLocalPlans(std::vector<Plan>{plans[0], plans[0]}).message()),
              HasSubstr("one plan per rank"));
  const std::vector<Plan> others = Ring([](auto& p) { p[1].set_plan_id("other"); });
  EXPECT_THAT(std::string(VerifyLocalPlans(others).message()), HasSubstr("plan 'other'"));
}

TEST(VerifyPlansTest, RefusesEdgesWhoseSidesDisagree) {
  const std::vector<std::pair<std::function<void(std::vector<proto::RankPlan>&)>, const char*>>
      cases = {
          {[](auto& p) { p[0].mutable_registers(2)->set_slots(3); }, "3 slots of 64 bytes"},
          {[](auto& p) { p[0].mutable_registers(2)->set_bytes(32); }, "2 slots of 32 bytes"},
          {[](auto& p) { p[0].mutable_registers(2)->set_initial_tokens(1); }, "1 at the start"},
          {[](auto& p) { p[0].mutable_registers(2)->set_edge(12); },
           "an outbound register on the peer"},
          {[](auto& p) { p[0].mutable_registers(2)->set_edge(11); },
           "one outbound register of edge 11"},
          {[](auto& p) {
             p[0].mutable_registers(2)->set_edge(13);
             p[0].mutable_registers(2)->set_initial_tokens(0);
           },
           "edge 10"},
          {[](auto& p) { p[1].set_seed(8); }, "seed 7"},
          {[](auto& p) { p[1].set_plan_id("other"); }, "plan 'test'"},
          {[](auto& p) { p.pop_back(); }, "2 plans, one per rank"},
          {[](auto& p) { std::swap(p[0], p[1]); }, "rank 0"},
      };
  for (const auto& [change, message] : cases) {
    const absl::Status status = VerifyPlans(Ring(change));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("W0506"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace weir::actors
