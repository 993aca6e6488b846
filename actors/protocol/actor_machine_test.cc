#include "actors/protocol/actor_machine.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "actors/protocol/slot_ledger.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

// "token r1 slot 0 #3 | credit r0 slot 1 #3"
std::string Text(const Effects& effects) {
  std::string text;
  for (const Effect& e : effects) {
    if (!text.empty()) text += " | ";
    absl::StrAppend(&text, e.kind == Effect::Kind::kPublishToken ? "token r" : "credit r",
                    e.register_id, " slot ", e.slot, " #", e.number);
  }
  return text;
}

class MachineTest : public ::testing::Test {
 protected:
  std::string Start(ActorMachine& machine) {
    machine.Start();
    return absl::StrCat("act ", machine.acts_done());
  }
  std::string Done(ActorMachine& machine) {
    effects_.clear();
    machine.OnActDone(&effects_);
    return Text(effects_);
  }
  Effects effects_{8};
};

PortSpec In(int register_id, int period = 1, int slots = 1, int tokens = 1,
            int initial_tokens = 0) {
  return {RegisterId(register_id), period, slots, tokens, initial_tokens};
}
PortSpec Out(int register_id, int period = 1, int slots = 1, int tokens = 1,
             int initial_tokens = 0) {
  return {RegisterId(register_id),   period,        slots, tokens, slots - initial_tokens, 0,
          PortSpec::Span::kNotBegun, initial_tokens};
}

TEST_F(MachineTest, IsDoneUntilALimitIsRaised) {
  ActorMachine machine(ActorId(0), {}, {Out(0)});
  EXPECT_EQ(machine.state(), ActorState::kDone);
  EXPECT_TRUE(machine.RaiseLimit(1));
  EXPECT_EQ(machine.state(), ActorState::kWaitsForStream);
  EXPECT_EQ(Start(machine), "act 0");
  EXPECT_EQ(machine.state(), ActorState::kRunning);
  EXPECT_EQ(Done(machine), "token r0 slot 0 #0");
  EXPECT_EQ(machine.state(), ActorState::kDone);
}

TEST_F(MachineTest, ActsWhenInputAndCreditAreThereAndGivesBothAway) {
  ActorMachine machine(ActorId(0), {In(0)}, {Out(1)});
  EXPECT_FALSE(machine.RaiseLimit(10));
  EXPECT_EQ(machine.state(), ActorState::kWaitsForInput);
  EXPECT_EQ(machine.waits_for(), RegisterId(0));
  EXPECT_TRUE(machine.OnToken(0));
  EXPECT_EQ(machine.last_cause().kind, WaitCause::Kind::kInput);
  EXPECT_EQ(machine.last_cause().register_id, RegisterId(0));
  EXPECT_EQ(Start(machine), "act 0");
  EXPECT_EQ(Done(machine), "token r1 slot 0 #0 | credit r0 slot 0 #0");
  EXPECT_FALSE(machine.OnToken(0));
  EXPECT_EQ(machine.state(), ActorState::kWaitsForCredit);
  EXPECT_EQ(machine.waits_for(), RegisterId(1));
  EXPECT_TRUE(machine.OnCredit(0));
  EXPECT_EQ(machine.last_cause().kind, WaitCause::Kind::kCredit);
}

TEST_F(MachineTest, SlotsGoRoundInOrder) {
  ActorMachine machine(ActorId(0), {In(0, 1, 3)}, {Out(1, 1, 2)});
  machine.RaiseLimit(10);
  for (int i = 0; i < 3; ++i) machine.OnToken(0);
  Start(machine);
  EXPECT_EQ(Done(machine), "token r1 slot 0 #0 | credit r0 slot 0 #0");
  Start(machine);
  EXPECT_EQ(Done(machine), "token r1 slot 1 #1 | credit r0 slot 1 #1");
  EXPECT_EQ(machine.state(), ActorState::kWaitsForCredit);
  machine.OnCredit(0);
  Start(machine);
  EXPECT_EQ(Done(machine), "token r1 slot 0 #2 | credit r0 slot 2 #2");
}

TEST_F(MachineTest, AnInputOfPeriodNIsReadByNActsAndReleasedAfterTheLast) {
  ActorMachine machine(ActorId(0), {In(0, 3, 2), In(1)}, {});
  machine.RaiseLimit(10);
  machine.OnToken(0);
  machine.OnToken(1);
  Start(machine);
  EXPECT_EQ(Done(machine), "credit r1 slot 0 #0");
  EXPECT_EQ(machine.state(), ActorState::kWaitsForInput);
  EXPECT_EQ(machine.waits_for(), RegisterId(1));
  machine.OnToken(1);
  Start(machine);
  EXPECT_EQ(machine.input(0).held_slot, 0);
  Done(machine);
  machine.OnToken(1);
  Start(machine);
  EXPECT_EQ(Done(machine), "credit r1 slot 0 #2 | credit r0 slot 0 #0");
  machine.OnToken(1);
  EXPECT_EQ(machine.waits_for(), RegisterId(0)) << "the next span needs a new token";
}

TEST_F(MachineTest, AnOutputOfPeriodNIsHeldOverNActsAndPublishedOnce) {
  ActorMachine machine(ActorId(0), {In(0)}, {Out(1, 2)});
  machine.RaiseLimit(10);
  machine.OnToken(0);
  Start(machine);
  EXPECT_EQ(Done(machine), "credit r0 slot 0 #0");
  EXPECT_EQ(machine.output(0).held_slot, 0);
  machine.OnToken(0);
  Start(machine);
  EXPECT_EQ(Done(machine), "token r1 slot 0 #0 | credit r0 slot 0 #1");
  EXPECT_EQ(machine.output(0).held_slot, -1);
}

TEST_F(MachineTest, InitialTokensArePresentForTheReaderAndTakenFromTheWriter) {
  ActorMachine reader(ActorId(0), {In(0, 1, 2, 1, 1)}, {});
  EXPECT_TRUE(reader.RaiseLimit(4));
  Start(reader);
  EXPECT_EQ(Done(reader), "credit r0 slot 0 #0");
  ActorMachine writer(ActorId(1), {}, {Out(0, 1, 2, 1, 1)});
  EXPECT_TRUE(writer.RaiseLimit(4));
  Start(writer);
  EXPECT_EQ(Done(writer), "token r0 slot 1 #1");
  EXPECT_EQ(writer.state(), ActorState::kWaitsForCredit);
}

TEST_F(MachineTest, AVariableInOneSlotGoesRoundThroughItsReader) {
  ActorMachine update(ActorId(0), {In(1)}, {Out(0, 1, 1, 1, 1)});
  ActorMachine reader(ActorId(1), {In(0, 1, 1, 1, 1)}, {Out(1)});
  update.RaiseLimit(2);
  reader.RaiseLimit(2);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(update.state(), ActorState::kWaitsForInput);
    ASSERT_TRUE(reader.ready());
    Start(reader);
    Done(reader);
    update.OnToken(0);
    EXPECT_EQ(update.state(), ActorState::kWaitsForCredit);
    EXPECT_TRUE(update.OnCredit(0));
    Start(update);
    EXPECT_EQ(Done(update),
              absl::StrCat("token r0 slot 0 #", step + 1, " | credit r1 slot 0 #", step));
    reader.OnToken(0);
    reader.OnCredit(0);
  }
  EXPECT_EQ(update.state(), ActorState::kDone);
}

TEST_F(MachineTest, NeverRunsTwoActsAtOnce) {
  ActorMachine machine(ActorId(0), {In(0, 1, 4)}, {});
  machine.RaiseLimit(4);
  EXPECT_TRUE(machine.OnToken(0));
  EXPECT_FALSE(machine.OnToken(0)) << "ready already";
  Start(machine);
  EXPECT_FALSE(machine.ready());
  EXPECT_FALSE(machine.OnToken(0)) << "running";
  Done(machine);
  EXPECT_TRUE(machine.ready());
}

TEST_F(MachineTest, StopsAtTheLimitThoughEverythingIsThere) {
  ActorMachine machine(ActorId(0), {In(0, 1, 4)}, {});
  machine.RaiseLimit(1);
  machine.OnToken(0);
  machine.OnToken(0);
  Start(machine);
  Done(machine);
  EXPECT_EQ(machine.state(), ActorState::kDone);
  EXPECT_EQ(machine.waits_for(), RegisterId());
  EXPECT_TRUE(machine.RaiseLimit(1)) << "ready at once";
}

TEST(SlotLedgerTest, ASlotIsFreeWhenItsLastReaderIsDone) {
  SlotLedger ledger(2, 3);
  EXPECT_EQ(ledger.Publish(1), SlotLedger::Use::kInUse);
  EXPECT_EQ(ledger.num_in_use(), 1);
  EXPECT_EQ(ledger.Release(1), SlotLedger::Use::kInUse);
  EXPECT_EQ(ledger.Release(1), SlotLedger::Use::kInUse);
  EXPECT_FALSE(ledger.is_free(1));
  EXPECT_EQ(ledger.Release(1), SlotLedger::Use::kFree);
  EXPECT_TRUE(ledger.is_free(1));
}

TEST(SlotLedgerTest, WithoutReadersASlotIsFreeAtOnce) {
  SlotLedger ledger(1, 0);
  EXPECT_EQ(ledger.Publish(0), SlotLedger::Use::kFree);
}

TEST(SlotLedgerTest, TokensFromBeforeTheStartAreInUse) {
  SlotLedger ledger(3, 2);
  ledger.Hold(0, 2);
  EXPECT_EQ(ledger.num_in_use(), 1);
  EXPECT_EQ(ledger.readers(0), 2);
}

}  // namespace
}  // namespace weir::actors
