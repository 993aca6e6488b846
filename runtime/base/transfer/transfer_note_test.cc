#include "runtime/base/transfer/transfer_note.h"

#include "gtest/gtest.h"
#include "runtime/base/transfer/transfer_note_codec.h"

namespace weir {
namespace {

TEST(TransferNoteTest, SurvivesItsMessage) {
  const TransferNote note = {"reduce-scatter",
                             {{"[dp: P(sum)]", "[dp: S(0)]", 3}, {"[dp: P(sum)]", "[dp: S(1)]", 1}},
                             1,
                             2,
                             {{"rule", "dp", "rule batch -> dp"}}};
  EXPECT_EQ(FromProto(ToProto(note)), note);
  EXPECT_EQ(FromProto(proto::TransferNote()), TransferNote());
}

TEST(TransferNoteTest, TheTextTellsTheChangeOfMostTensorsAndTheStages) {
  TransferNote note;
  EXPECT_EQ(ChangesText(note), "");
  EXPECT_EQ(WhyText(note), "");
  note.changes = {{"[tp: S(0)]", "[tp: B]", 1}};
  EXPECT_EQ(ChangesText(note), "[tp: S(0)] -> [tp: B]");
  note.changes.push_back({"[tp: S(1)]", "[tp: B]", 2});
  note.to_stage = 1;
  note.why = {{"rule", "tp", "rule heads -> tp"}, {"stages", "", "the next part of the pipeline"}};
  EXPECT_EQ(ChangesText(note), "[tp: S(1)] -> [tp: B] and 1 other change, stage 0 -> 1");
  EXPECT_EQ(WhyText(note), "rule heads -> tp, the next part of the pipeline");
  note.changes = {{"[tp: B]", "[tp: B]", 1}};
  EXPECT_EQ(ChangesText(note), "[tp: B], stage 0 -> 1");
  note.changes = {{"[]", "[]", 1}};
  EXPECT_EQ(ChangesText(note), "stage 0 -> 1");
}

}  // namespace
}  // namespace weir
