// Tests which tensors are alive when, with plans written by hand and with a compiled plan.
#include "compiler/explain/memory_view.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using testing::HasSubstr;

// Returns a plan with a writer and a reader of 100 bytes, two micro-batches of 10 ns each in a step
// of 40 ns; the reader starts `reader_ns` after the beginning of the step.
proto::RankPlan Pair(int64_t reader_ns, int slots) {
  proto::RankPlan plan;
  plan.set_micro_batches(2);
  plan.set_arena_bytes(64 + 100 * slots);
  plan.set_scratch_bytes(64);
  plan.mutable_certificate()->set_iteration_ns(40);
  for (int a = 0; a < 2; ++a) {
    proto::ActorSpec* actor = plan.add_actor();
    actor->set_id(a);
    actor->set_name(a == 0 ? "forward block" : "backward block");
    actor->set_phase(a == 0 ? proto::ActorSpec::FORWARD : proto::ActorSpec::BACKWARD);
    actor->mutable_rate()->set_acts_per_step(2);
    actor->mutable_timing()->set_start_ns(a == 0 ? 0 : reader_ns);
    actor->mutable_timing()->set_micro_batch_stride_ns(10);
    actor->mutable_timing()->set_time_ns(10);
  }
  proto::RegisterSpec* spec = plan.add_registers();
  spec->set_name("hidden");
  spec->set_bytes(100);
  spec->set_stride(100);
  spec->set_slots(slots);
  spec->set_arena_offset(64);
  spec->set_tokens_per_step(2);
  plan.mutable_actor(0)->add_output();
  plan.mutable_actor(1)->add_input();
  return plan;
}

std::vector<int64_t> BytesOf(const MemoryView& view) {
  std::vector<int64_t> bytes;
  for (const MemoryView::Column& column : view.columns) bytes.push_back(column.bytes);
  return bytes;
}

std::string PhasesOf(const MemoryView& view) {
  std::string phases;
  for (const MemoryView::Column& column : view.columns) phases.push_back(column.phase);
  return phases;
}

TEST(MemoryView, ATokenIsAliveFromItsWriterToTheEndOfItsReader) {
  // Alive: token 0 from 0 to 30, token 1 from 10 to 40.
  const MemoryView view = ViewMemory(Pair(20, 2), 4, 10);
  EXPECT_EQ(BytesOf(view), (std::vector<int64_t>{164, 264, 264, 164}));
  EXPECT_EQ(PhasesOf(view), "ffbb");
  EXPECT_EQ(view.most_bytes, 264);
  EXPECT_EQ(view.most_ns, 10);
  ASSERT_EQ(view.largest.size(), 1u);
  EXPECT_EQ(view.largest[0].held, 2);
  EXPECT_EQ(view.largest[0].alive_ns, 30);
  EXPECT_EQ(view.largest[0].from, "forward block");
  EXPECT_EQ(view.largest[0].until, "backward block");
}

TEST(MemoryView, WhatOneStepLeavesToTheNextIsSeenInBoth) {
  // Alive: token 0 from 0 to 50, token 1 from 10 to 60: into the next step, from 0 to 10 and 20.
  const MemoryView view = ViewMemory(Pair(40, 4), 4, 10);
  EXPECT_EQ(BytesOf(view), (std::vector<int64_t>{64 + 300, 64 + 300, 64 + 200, 64 + 200}));
  EXPECT_EQ(view.most_bytes, 64 + 300);
}

TEST(MemoryView, AtTheInstantATokenIsGivenBackItsSlotIsFree) {
  proto::RankPlan plan = Pair(10, 2);
  plan.mutable_actor(1)->mutable_timing()->set_time_ns(10);
  // Alive: token 0 from 0 to 20, token 1 from 10 to 30.
  EXPECT_EQ(BytesOf(ViewMemory(plan, 4, 10)), (std::vector<int64_t>{164, 264, 164, 64}));
}

TEST(MemoryView, APlaceThatLandingsShareCountsOnce) {
  proto::RankPlan plan = Pair(20, 1);
  plan.set_arena_bytes(64 + 350);
  for (const int64_t offset : {164, 214, 164, 314}) {  // from 164 to 314, and from 314 to 414
    proto::RegisterSpec* landing = plan.add_registers();
    landing->set_id(plan.registers_size() - 1);
    landing->set_side(proto::RegisterSpec::INBOUND);
    landing->set_bytes(100);
    landing->set_stride(100);
    landing->set_slots(1);
    landing->set_arena_offset(offset);
  }
  const MemoryView view = ViewMemory(plan, 4, 10);
  EXPECT_EQ(view.landing_bytes, 250);
  EXPECT_EQ(view.register_bytes, 100);
  EXPECT_EQ(view.unshared_bytes, 64 + 100 + 4 * 100);
}

TEST(MemoryView, TextNamesPeakAndReason) {
  const MemoryView view = ViewMemory(Pair(20, 2), 8, 10);
  const std::string chart = ChartText(view, 4);
  EXPECT_THAT(chart, HasSubstr("264 B planned, 0 B saved by sharing places; most alive 264 B at 10 "
                               "ns, as `forward block` starts\n"));
  EXPECT_THAT(chart, HasSubstr("       264 B |  ####\n"));
  EXPECT_THAT(chart, HasSubstr("+ffffbbbb 40 ns\n"));
  // Lines may break between words.
  const std::string largest = absl::StrJoin(
      absl::StrSplit(LargestText(view), absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  EXPECT_THAT(largest, HasSubstr(" hidden, from forward block to backward block: for a gradient"));
}

TEST(MemoryView, TheTableKeepsNamesWholeAndLinesNarrow) {
  MemoryView view;
  view.largest.resize(2);
  const std::string name =
      "all-reduce of forward layers.12: attention_residual_of_the_second_block";
  view.largest[0] = {name,
                     1,
                     1,
                     3 << 20,
                     "forward layers.12 #0",
                     "backward layers.12 #1",
                     75'300'000,
                     "for a gradient",
                     3};
  view.largest[1] = {"small", 2,       1, 512 << 10, "forward layers.12 #0", "forward layers.12 #1",
                     421'700, "boxed", 0};
  const std::string table = LargestText(view);
  EXPECT_THAT(table, HasSubstr("attention_residual_of_the_second_block"));
  EXPECT_THAT(table, HasSubstr("0.5 MiB"));  // a column has one unit
  EXPECT_THAT(table, HasSubstr("0.42 ms"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(MemoryView, WithoutStartTimesThereIsNoChart) {
  proto::RankPlan plan = Pair(20, 2);
  plan.clear_certificate();
  const MemoryView view = ViewMemory(plan, 8, 10);
  EXPECT_TRUE(view.columns.empty());
  EXPECT_EQ(view.largest.size(), 1u);
}

}  // namespace
}  // namespace weir::compiler
