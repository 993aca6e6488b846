// The parts of a step and the fill of a register, on a record whose times are known.
#include "tools/trace/step_parts.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/register_fill.h"
#include "tools/trace/relay_testing.h"
#include "tools/trace/wait_roots.h"

namespace weir::trace {
namespace {

using ::testing::ElementsAre;

TEST(StepPartsTest, AWaitForAnotherRankIsLateUntilTheTokenIsSentAndThenUnderWay) {
  std::map<StepPartKind, double> share;
  double sum = 0;
  for (const StepPart& part : FindStepParts(RunOf(Relay(6)))) {
    share[part.kind] = part.share;
    sum += part.share;
    EXPECT_NEAR(part.ns_per_step, part.share * 35 * kMicrosecond, 1e-6) << Name(part.kind);
  }
  // A step takes 35 us. Rank 0 works 10 and waits 25 for its slot. Rank 1 waits 10 until rank 0 has
  // sent, and 5 for the token under way, and works 20. The last of the five steady steps ends
  // before rank 0 acts again, so nothing tells its last wait.
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kCompute], 30.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kCredit], 4 * 25.0 / (5 * 70), 1e-12);
  EXPECT_NEAR(share[StepPartKind::kLateSender], 10.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kUnderWay], 5.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kOwnInput], 0, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kBetweenActs], 25.0 / (5 * 70), 1e-12);
}

TEST(StepPartsTest, AWaitForALateStageIsABubbleOnlyWhilePassesGoOn) {
  RecordedRun run = RunOf(Relay(6));
  auto note = std::make_shared<TransferNote>();
  note->to_stage = 1;
  run.registers[RecordedRegisterId(0)].note = note;
  const auto shares = [&run] {
    std::map<StepPartKind, double> share;
    for (const StepPart& part : FindStepParts(run)) share[part.kind] = part.share;
    return share;
  };
  std::map<StepPartKind, double> share = shares();
  EXPECT_NEAR(share[StepPartKind::kBubble], 10.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kLateSender], 0, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kUnderWay], 5.0 / 70, 1e-12);
  // Where rank 0 updates, the passes of a step begin when rank 1 reads.
  run.actors[RecordedActorId(0)].phase = "update";
  share = shares();
  EXPECT_NEAR(share[StepPartKind::kBubble], 0, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kLateSender], 10.0 / 70, 1e-12);
}

TEST(WaitRootsTest, AWaitForAWaitBelongsToWhatTheOtherWaitedFor) {
  const std::vector<WaitRoot> roots = FindWaitRoots(RunOf(Relay(6)));
  // Rank 0 waits 25 us a step for its slot: for 5 of them rank 1 waits for x on its way, and for 20
  // it reads. Rank 1 waits 10 us while rank 0 makes x and 5 us for its way. The last wait of rank 0
  // is not in the record.
  ASSERT_EQ(roots.size(), 3u);
  const double all = 4 * 25 + 5 * 15;
  EXPECT_EQ(roots[0].name, "read x");
  EXPECT_EQ(roots[0].kind, WaitRoot::Kind::kWork);
  EXPECT_THAT(roots[0].ranks, ElementsAre(RankId(1)));
  EXPECT_NEAR(roots[0].share, 4 * 20 / all, 1e-12);
  EXPECT_NEAR(roots[0].ns_per_step, 4 * 20e3 / 5 / 2, 1e-6);
  EXPECT_EQ(roots[1].name, "make x");
  EXPECT_NEAR(roots[1].share, 5 * 10 / all, 1e-12);
  EXPECT_EQ(roots[2].name, "move x");
  EXPECT_EQ(roots[2].kind, WaitRoot::Kind::kWay);
  EXPECT_NEAR(roots[2].share, (4 * 5 + 5 * 5) / all, 1e-12);
}

TEST(RegisterFillTest, ASlotIsInUseFromItsWriterToItsLastReader) {
  const RecordedRun run = RunOf(Relay(6));
  const RegisterFill fill = FindFill(run, RecordedRegisterId(0));
  EXPECT_EQ(fill.most, 1);
  // The next write begins when the read ends, so the slot is in use all the time.
  EXPECT_EQ(fill.full_ns, 6 * 35 * kMicrosecond);
  ASSERT_EQ(fill.changes.size(), 2u);
  EXPECT_EQ(fill.changes[0].at, kBegin);
  EXPECT_EQ(fill.changes[0].in_use, 1);
  EXPECT_EQ(fill.changes[1].at, kBegin + 6 * 35 * kMicrosecond);
  EXPECT_EQ(fill.changes[1].in_use, 0);
}

}  // namespace
}  // namespace weir::trace
