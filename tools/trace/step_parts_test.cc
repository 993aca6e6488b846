// The parts of a step and the fill of a register, on a record whose times are known.
#include "tools/trace/step_parts.h"

#include <map>
#include <utility>

#include "gtest/gtest.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/register_fill.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

RecordedRun RunOf(const Relay& relay) {
  absl::StatusOr<RecordedRun> run = ReadRecordedRun(Read(relay.File({0, 1})));
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RecordedRun{};
}

TEST(StepPartsTest, AWaitForAnotherRankIsLateUntilTheTokenIsSentAndThenUnderWay) {
  std::map<StepPartKind, double> share;
  double sum = 0;
  for (const StepPart& part : FindStepParts(RunOf(Relay(6)))) {
    share[part.kind] = part.share;
    sum += part.share;
    EXPECT_NEAR(part.ns_per_step, part.share * 35 * kMicrosecond, 1e-6) << Name(part.kind);
  }
  // Of 35 us, rank 0 works 10 and waits 25 for its slot. Rank 1 waits 10 until rank 0 has sent, and
  // 5 for the token under way, and works 20. The last of the five steady steps ends before rank 0
  // acts again, so nothing tells its last wait.
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kCompute], 30.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kCredit], 4 * 25.0 / (5 * 70), 1e-12);
  EXPECT_NEAR(share[StepPartKind::kLateSender], 10.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kUnderWay], 5.0 / 70, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kOwnInput], 0, 1e-12);
  EXPECT_NEAR(share[StepPartKind::kBetweenActs], 25.0 / (5 * 70), 1e-12);
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
