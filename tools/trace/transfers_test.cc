// The transfers of a record whose times are known.
#include "tools/trace/transfers.h"

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

TEST(TransfersTest, AMessageThatWasWaitedForHasATimeBesideThatOfThePlan) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  for (TracedRank& rank : job.ranks) rank.registers[RegisterId(0)].planned_way_ns = 2500;
  const std::vector<TransferRow> rows = FindTransfers(RunOf(job));
  ASSERT_EQ(rows.size(), 1u);
  const TransferRow& row = rows[0];
  EXPECT_EQ(row.name, "move x");
  EXPECT_EQ(row.method, "move");
  EXPECT_EQ(row.links, 1);
  EXPECT_EQ(row.bytes_per_step, 4096);
  EXPECT_EQ(row.messages_per_step, 1);
  // Each of the five steady steps waits 10 us until x is sent, and 5 us for it on its way; rank 0
  // does not wait for tokens.
  EXPECT_EQ(row.timed, 5);
  EXPECT_DOUBLE_EQ(row.bytes_per_second(), 4096 / 5e-6);
  EXPECT_DOUBLE_EQ(row.planned_bytes_per_second(), 4096 / 2.5e-6);
  EXPECT_DOUBLE_EQ(row.late_ns_per_step, 10e3 / 2);
  EXPECT_DOUBLE_EQ(row.under_way_ns_per_step, 5e3 / 2);
}

TEST(TransfersTest, ARowTellsWhatTheTransferChangesAndWhy) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  const TransferNote note = {"move",
                             {{"[dp: P(sum)]", "[dp: B]", 2}},
                             0,
                             1,
                             {{"rule", "dp", "rule batch -> dp"}, {"stages", "", "the next part"}}};
  // One end is enough.
  job.ranks[0].registers[RegisterId(0)].note = std::make_shared<const TransferNote>(note);
  const std::vector<TransferRow> rows = FindTransfers(RunOf(job));
  ASSERT_NE(rows.at(0).note, nullptr);
  EXPECT_EQ(*rows[0].note, note);
  const std::string text = TransfersText(rows, 5);
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "      [dp: P(sum)] -> [dp: B], stage 0 -> 1; why: rule batch -> dp, "));
  EXPECT_EQ(TransfersText(rows, 0), "");
}

TEST(TransfersTest, WithoutThePlansTimesThereIsNoPlannedSpeed) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  EXPECT_EQ(FindTransfers(RunOf(job)).at(0).planned_bytes_per_second(), 0);
}

TEST(TransfersTest, ExchangesOfAllLayersAreOneRow) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  // Each rank gets a second register between the same actors, of another layer.
  for (TracedRank& rank : job.ranks) {
    rank.registers[RegisterId(0)].boxing = "move layers.0.y";
    TracedRegister more = rank.registers[RegisterId(0)];
    more.boxing = "move layers.1.y";
    more.edge = EdgeId(8);
    rank.registers.push_back(more);
    TracedActor& actor = rank.actors[ActorId(0)];
    (rank.rank == RankId(0) ? actor.outputs : actor.inputs)
        .push_back(TracedPort{RegisterId(1), Span()});
  }
  const std::vector<TransferRow> rows = FindTransfers(RunOf(job));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "move layers.*.y");
  EXPECT_EQ(rows[0].registers, 2);
  EXPECT_EQ(rows[0].bytes_per_step, 2 * 4096);
}

}  // namespace
}  // namespace weir::trace
