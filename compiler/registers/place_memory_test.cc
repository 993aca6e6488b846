// Tests which registers share memory, with plans written by hand.
#include "compiler/registers/place_memory.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

constexpr int64_t kBytes = 4096;

// Makes actors 0, 1, …, and register i from actor i to actor i + 1.
proto::RankPlan Chain(int actors, int slots) {
  proto::RankPlan plan;
  plan.set_micro_batches(1);
  for (int a = 0; a < actors; ++a) {
    proto::ActorSpec* actor = plan.add_actor();
    actor->set_id(a);
    actor->mutable_rate()->set_acts_per_step(1);
  }
  for (int r = 0; r + 1 < actors; ++r) {
    proto::RegisterSpec* spec = plan.add_registers();
    spec->set_id(r);
    spec->set_bytes(kBytes);
    spec->set_slots(slots);
    spec->set_tokens_per_step(1);
    proto::OutputPort* out = plan.mutable_actor(r)->add_output();
    out->set_register_id(r);
    proto::InputPort* in = plan.mutable_actor(r + 1)->add_input();
    in->set_register_id(r);
  }
  return plan;
}

// Orders `after` to act once `before` has acted in the step `lag` earlier.
void AddOrder(int before, int after, int lag, proto::RankPlan* plan) {
  proto::RegisterSpec* spec = plan->add_registers();
  spec->set_id(plan->registers_size() - 1);
  spec->set_slots(1);
  spec->set_initial_tokens(lag);
  spec->set_tokens_per_step(1);
  proto::OutputPort* out = plan->mutable_actor(before)->add_output();
  out->set_register_id(spec->id());
  proto::InputPort* in = plan->mutable_actor(after)->add_input();
  in->set_register_id(spec->id());
}

bool Overlap(const proto::RankPlan& plan, int a, int b) {
  const proto::RegisterSpec& x = plan.registers(a);
  const proto::RegisterSpec& y = plan.registers(b);
  return x.arena_offset() < y.arena_offset() + y.stride() * y.slots() &&
         y.arena_offset() < x.arena_offset() + x.stride() * x.slots();
}

TEST(PlaceMemory, EachQueueHasScratchForItsOwnLargestProgram) {
  proto::RankPlan plan = Chain(4, 1);
  plan.set_num_queues(3);
  for (const int64_t bytes : {1000, 100, 10}) plan.add_program()->set_scratch_bytes(bytes);
  for (int a = 0; a < 4; ++a) {
    plan.mutable_actor(a)->set_program(a - 1);  // the first has none
    plan.mutable_actor(a)->set_queue(a == 1 ? 0 : 2);
  }
  PlaceMemory({}, {}, &plan);
  EXPECT_EQ(plan.scratch_bytes(), 1024 + 100);
  for (const proto::RegisterSpec& r : plan.registers())
    EXPECT_GE(r.arena_offset(), plan.scratch_bytes());
}

TEST(PlaceMemory, AChainWhoseBeginningMayRunAheadSharesNothing) {
  proto::RankPlan plan = Chain(4, 1);
  PlaceMemory({}, {}, &plan);
  EXPECT_EQ(plan.arena_bytes(), 3 * kBytes);
}

TEST(PlaceMemory, AChainWhoseBeginningWaitsForItsEndSharesAllButNeighbours) {
  proto::RankPlan plan = Chain(6, 1);
  AddOrder(5, 0, 1, &plan);
  PlaceMemory({}, {}, &plan);
  EXPECT_EQ(plan.arena_bytes(), 2 * kBytes);
  for (int r = 0; r + 1 < 5; ++r) EXPECT_FALSE(Overlap(plan, r, r + 1)) << r;
}

TEST(PlaceMemory, SlotsForSeveralStepsAtOnceSharedOnlyWhereTheLoopHoldsOneStep) {
  proto::RankPlan loose = Chain(6, 2), tight = Chain(6, 2);
  AddOrder(5, 0, 1, &tight);
  PlaceMemory({}, {}, &loose);
  PlaceMemory({}, {}, &tight);
  EXPECT_EQ(loose.arena_bytes(), 5 * 2 * kBytes);
  EXPECT_EQ(tight.arena_bytes(), 2 * 2 * kBytes);
}

TEST(PlaceMemory, ASecondReaderThatNobodyWaitsForKeepsTheMemory) {
  proto::RankPlan plan = Chain(6, 1);
  AddOrder(5, 0, 1, &plan);
  proto::ActorSpec* late = plan.add_actor();
  late->set_id(6);
  late->mutable_rate()->set_acts_per_step(1);
  proto::InputPort* in = late->add_input();
  in->set_register_id(1);
  PlaceMemory({}, {}, &plan);
  for (int r = 0; r < 5; ++r) EXPECT_TRUE(r == 1 || !Overlap(plan, 1, r)) << r;
  // An order makes the writer of register 3, and so the beginning of the next step, wait for
  // actor 6.
  AddOrder(6, 3, 0, &plan);
  PlaceMemory({}, {}, &plan);
  EXPECT_TRUE(Overlap(plan, 1, 3));
}

TEST(PlaceMemory, WhatAPeerWritesAndWhatHoldsATokenFromTheStartIsAlone) {
  proto::RankPlan plan = Chain(6, 1);
  AddOrder(5, 0, 1, &plan);
  plan.mutable_registers(1)->set_initial_tokens(1);
  proto::RegisterSpec* inbound = plan.add_registers();
  inbound->set_id(plan.registers_size() - 1);
  inbound->set_side(proto::RegisterSpec::INBOUND);
  inbound->set_bytes(kBytes);
  inbound->set_slots(1);
  inbound->set_tokens_per_step(1);
  plan.mutable_actor(3)->add_input()->set_register_id(inbound->id());
  PlaceMemory({}, {}, &plan);
  for (int alone : {1, inbound->id()}) {
    for (int r = 0; r < 5; ++r)
      EXPECT_TRUE(r == alone || !Overlap(plan, alone, r)) << alone << " and " << r;
  }
}

TEST(PlaceMemory, TheMemoryOfTheMicroBatchesServesWhatTheStepDoesAfterThem) {
  // Actors 0 -> 1 -> 2 act by micro-batch, 2 hands its sum to 3 once a step, and 3 -> 4. The next
  // step begins after 4.
  proto::RankPlan plan = Chain(5, 1);
  plan.set_micro_batches(4);
  for (int a = 0; a < 3; ++a) plan.mutable_actor(a)->mutable_rate()->set_acts_per_step(4);
  for (int r = 0; r < 2; ++r) plan.mutable_registers(r)->set_tokens_per_step(4);
  plan.mutable_actor(2)->mutable_output(0)->mutable_span()->set_period(4);
  AddOrder(4, 0, 1, &plan);
  plan.mutable_actor(0)->mutable_input(0)->mutable_span()->set_period(4);
  PlaceMemory({}, {}, &plan);
  EXPECT_TRUE(Overlap(plan, 0, 3)) << "of the first micro-batches, and of the end of the step";
  EXPECT_FALSE(Overlap(plan, 1, 2)) << "the sum grows while micro-batches come in";
  EXPECT_FALSE(Overlap(plan, 0, 1));
}

// A placer keeps proofs from call to call. Fresh proofs must give the same places.
TEST(MemoryPlacer, SlotsThatChangeGiveThePlacesOfAnotherPlan) {
  std::mt19937 random(7);
  const auto below = [&random](int end) { return static_cast<int>(random() % end); };
  for (int round = 0; round < 200; ++round) {
    proto::RankPlan plan = Chain(6 + below(6), 1);
    plan.set_micro_batches(1 + below(2) * 3);
    for (proto::ActorSpec& actor : *plan.mutable_actor())
      actor.mutable_rate()->set_acts_per_step(plan.micro_batches());
    // With one slot, the last actor holds back the first.
    AddOrder(0, plan.actor_size() - 1, 0, &plan);
    for (proto::RegisterSpec& r : *plan.mutable_registers()) {
      r.set_tokens_per_step(plan.micro_batches());
      r.set_bytes(kBytes * (1 + below(4)));
    }
    MemoryPlacer placer({}, {}, &plan);
    for (int change = 0; change < 6; ++change) {
      for (proto::RegisterSpec& r : *plan.mutable_registers()) {
        if (below(3) == 0) r.set_slots(1 + below(3));
      }
      proto::RankPlan fresh = plan;
      placer.Place();
      PlaceMemory({}, {}, &fresh);
      ASSERT_EQ(plan.arena_bytes(), fresh.arena_bytes()) << "round " << round << "." << change;
      ASSERT_EQ(plan.SerializeAsString(), fresh.SerializeAsString());
    }
  }
}

}  // namespace
}  // namespace weir::compiler
