#include "compiler/lower/slot_policy.h"

#include "compiler/lower/schedule_slots.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

// A stage of a pipeline with a forward, a backward and a boxing actor, and tensors between them.
class SlotsTest : public ::testing::Test {
 protected:
  SlotsTest() { SetSchedule(ScheduleKind::kOneFOneB, 4, 8); }

  void SetSchedule(ScheduleKind kind, int64_t stages, int64_t micro_batches) {
    plan_.mesh = sbp::Mesh({{sbp::kPipelineAxis, stages}});
    plan_.places = sbp::PipelinePlaces(plan_.mesh);
    plan_.stage_mesh = plan_.places.mesh(0);
    plan_.micro_batches = micro_batches;
    plan_.schedule = ScheduleOf({.schedule = kind}, stages, micro_batches);
  }

  ActorId AddActor(PhaseKind phase, Wave wave, int64_t part = 0) {
    RankActor actor;
    actor.phase = phase;
    actor.wave = wave;
    actor.part = part;
    actor.acts_per_step = plan_.micro_batches;
    const ActorId id = graph_.actors.next_id();
    graph_.actors.push_back(actor);
    return id;
  }

  // Returns the slots of a tensor from one actor to another.
  int64_t SlotsBetween(ActorId from, ActorId to, int64_t tokens = 8) {
    RankTensor tensor;
    tensor.producer = from;
    tensor.consumers = {to};
    tensor.tokens_per_step = tokens;
    return GivenSlots(plan_, graph_, tensor);
  }

  LogicalPlan plan_;
  RankGraph graph_;
  const ActorId forward_ = AddActor(PhaseKind::kForward, Wave::kForward);
  const ActorId backward_ = AddActor(PhaseKind::kBackward, Wave::kBackward);
  const ActorId moves_ = AddActor(PhaseKind::kBoxing, Wave::kForward);
};

TEST_F(SlotsTest, ByDefaultAStashHasASlotForEachMicroBatchUnderWay) {
  for (int64_t stage = 0; stage < 4; ++stage) {
    graph_.stage = stage;
    graph_.actors[forward_].part = graph_.actors[backward_].part = stage;
    EXPECT_EQ(SlotsBetween(forward_, backward_), 4 - stage);
    EXPECT_EQ(SlotsBetween(moves_, backward_), graph_.actors[moves_].part == 0 ? 4 : 1)
        << "the transfer works for part 0";
  }
  SetSchedule(ScheduleKind::kGpipe, 4, 8);
  EXPECT_EQ(SlotsBetween(forward_, backward_), 8);
}

TEST_F(SlotsTest, WithinAPassAndOncePerStepOneSlotIsEnough) {
  EXPECT_EQ(SlotsBetween(forward_, forward_), 1);
  EXPECT_EQ(SlotsBetween(forward_, moves_), 1);
  EXPECT_EQ(SlotsBetween(forward_, backward_, 1), 1);
}

TEST_F(SlotsTest, AMessageHasTwoSlotsIfOneFollowsAnother) {
  RankTensor message;
  message.side = proto::RegisterSpec::INBOUND;
  message.peer = RankId(1);
  message.consumers = {moves_};
  message.tokens_per_step = 8;
  EXPECT_EQ(GivenSlots(plan_, graph_, message), 2);
  message.tokens_per_step = 1;
  EXPECT_EQ(GivenSlots(plan_, graph_, message), 1);
}

// A fill of data from two stages away waits for the micro-batches in the stage between.
TEST_F(SlotsTest, AStageThatIsSkippedAddsASlot) {
  graph_.stage = 2;
  RankTensor message;
  message.side = proto::RegisterSpec::INBOUND;
  graph_.actors[moves_].inputs = {TensorId(0)};
  for (int peer : {0, 1}) {
    message.peer = RankId(peer);
    graph_.tensors = {message};
    EXPECT_EQ(SlotsBetween(moves_, forward_), peer == 0 ? 2 : 1);
  }
}

TEST_F(SlotsTest, TheJobsChoiceReplacesTheSchedules) {
  RuntimeSettings& runtime = plan_.settings.runtime;
  const auto slots = [&](RegisterChoice registers, int64_t tokens) {
    runtime.registers = registers;
    return SlotsBetween(forward_, backward_, tokens);
  };
  EXPECT_EQ(slots(RegisterChoice::kOne, 8), 1);
  EXPECT_EQ(slots(RegisterChoice::kTwo, 8), 2);
  EXPECT_EQ(slots(RegisterChoice::kTwo, 1), 1);
  EXPECT_EQ(slots(RegisterChoice::kTwiceStages, 8), 8) << "twice four stages";
  EXPECT_EQ(slots(RegisterChoice::kTwiceStages, 1), 1);
  EXPECT_EQ(slots(RegisterChoice::kSolved, 8), 0) << "the solve decides";
  runtime.debug_register_slots = 5;
  for (auto registers : {RegisterChoice::kSchedule, RegisterChoice::kOne, RegisterChoice::kSolved})
    EXPECT_EQ(slots(registers, 8), 5);
}

TEST_F(SlotsTest, AWeightHasOneSlotAndGivenSlotsStand) {
  plan_.settings.runtime.debug_register_slots = 5;
  RankTensor tensor;
  tensor.variable = 0;
  EXPECT_EQ(GivenSlots(plan_, graph_, tensor), 1);
  tensor.slots = 3;
  EXPECT_EQ(GivenSlots(plan_, graph_, tensor), 3);
}

TEST_F(SlotsTest, ADelayNeedsASlotForEachTokenThatWaitsAndOneMore) {
  for (auto registers :
       {RegisterChoice::kSchedule, RegisterChoice::kOne, RegisterChoice::kSolved}) {
    plan_.settings.runtime.registers = registers;
    RankTensor tensor;
    tensor.producer = backward_;
    tensor.consumers = {backward_};
    tensor.delay = 3;
    EXPECT_EQ(GivenSlots(plan_, graph_, tensor), 4);
  }
}

TEST_F(SlotsTest, TransfersGoFirstAndReportsLastUnlessTurnsDecide) {
  const ActorId data = AddActor(PhaseKind::kData, Wave::kForward),
                report = AddActor(PhaseKind::kMetric, Wave::kNone),
                update = AddActor(PhaseKind::kUpdate, Wave::kNone);
  const auto priority = [&](ActorId actor) {
    return SchedulePriority(plan_, graph_, graph_.actors[actor]);
  };
  EXPECT_GT(priority(moves_), priority(update));
  EXPECT_GT(priority(update), priority(forward_));
  EXPECT_GT(priority(forward_), priority(backward_));
  EXPECT_GT(priority(backward_), priority(data));
  EXPECT_GT(priority(data), priority(report));
  SetSchedule(ScheduleKind::kZeroBubble, 4, 8);
  EXPECT_EQ(priority(forward_), priority(backward_));
  EXPECT_GT(priority(report), priority(forward_)) << "nothing may delay the actor whose turn it is";
  EXPECT_GT(priority(data), priority(forward_));
}

// Stages before this one wait for its backward passes, and nobody waits for sums of gradients.
TEST_F(SlotsTest, SumsOfGradientsWaitForBackwardPassesThatOtherStagesWaitFor) {
  const ActorId sum = AddActor(PhaseKind::kBoxing, Wave::kUpdate),
                weight_gradient = AddActor(PhaseKind::kWeightGradient, Wave::kWeightGradient);
  const auto priority = [&](ActorId actor) {
    return SchedulePriority(plan_, graph_, graph_.actors[actor]);
  };
  graph_.stage = 0;
  EXPECT_EQ(priority(sum), priority(moves_));
  graph_.stage = 1;
  EXPECT_LT(priority(sum), priority(backward_));
  EXPECT_GT(priority(sum), priority(weight_gradient));
  graph_.stage = 0;
  plan_.schedule.virtual_stages = 2;
  EXPECT_LT(priority(sum), priority(backward_)) << "the first stage has later parts, too";
}

TEST_F(SlotsTest, AnActorThatReadsItsOwnPassGoesOn) {
  const int before = SchedulePriority(plan_, graph_, graph_.actors[forward_]);
  const ActorId first = AddActor(PhaseKind::kForward, Wave::kForward);
  RankTensor tensor;
  tensor.producer = first;
  graph_.tensors = {tensor};
  graph_.actors[forward_].inputs = {TensorId(0)};
  EXPECT_EQ(SchedulePriority(plan_, graph_, graph_.actors[forward_]), before + 1);
  graph_.actors[first].part = 4;
  EXPECT_EQ(SchedulePriority(plan_, graph_, graph_.actors[forward_]), before) << "another part";
}

TEST_F(SlotsTest, OnlyComputingActorsBelongToAPass) {
  EXPECT_EQ(ComputedPass(graph_.actors[forward_]), PipelinePass::kForward);
  EXPECT_EQ(ComputedPass(graph_.actors[backward_]), PipelinePass::kBackward);
  EXPECT_EQ(ComputedPass(graph_.actors[moves_]), std::nullopt);
}

}  // namespace
}  // namespace weir::compiler
