#include "tools/job/job_places.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace weir::job {
namespace {

using ::testing::HasSubstr;

// The numbers at the left are line numbers.
constexpr char kJob[] =
    /* 1 */
    "name: \"small\"\n"
    /* 2 */
    "graph {\n"
    /* 3 */
    "  dim { name: \"batch\" size: 4 }\n"
    /* 4 */
    "  dim { size: 4 }\n"
    /* 5 */
    "  main: \"model\"\n"
    /* 6 */
    "  function {\n"
    /* 7 */
    "    name: \"block\"\n"
    /* 8 */
    "    input { name: \"x\" type: \"f32[batch]\" }\n"
    /* 9 */
    "    parameter { name: \"w\" type: \"f32[batch]\" }\n"
    /* 10 */
    "    node { name: \"q\" op: \"add\" input: [\"x\", \"w\"] }\n"
    /* 11 */
    "    node {\n"
    /* 12 */
    "      op: \"scale\"\n"
    /* 13 */
    "      attr { name: \"factor\" value { f: 2 } }\n"
    /* 14 */
    "    }\n"
    /* 15 */
    "    output: \"q\"\n"
    /* 16 */
    "  }\n"
    /* 17 */
    "  function {\n"
    /* 18 */
    "    name: \"model\"\n"
    /* 19 */
    "    node { name: \"layers\" function: \"block\" repeat: 4 }\n"
    /* 20 */
    "  }\n"
    /* 21 */
    "}\n"
    /* 22 */
    "mesh { axis { name: \"dp\" size: 2 } }\n"
    /* 23 */
    "rule { dim: \"batch\" axis: \"dp\" }\n"
    /* 24 */
    "layout { tensor: \"block/q\" sbp: \"[dp: B]\" }\n"
    /* 25 */
    "training {\n"
    /* 26 */
    "  steps: 3\n"
    /* 27 */
    "  schedule { learning_rate: 0.1 }\n"
    /* 28 */
    "}\n"
    /* 29 */
    "runtime {\n"
    /* 30 */
    "  recompute { function: \"block\" }\n"
    /* 31 */ "}\n";

JobSource Source() {
  JobSource source;
  source.name = "small.textproto";
  source.text = kJob;
  return source;
}

std::string Line(const std::string& element) { return PlaceOf(Source(), element); }

TEST(JobPlacesTest, FindsElementsOfFunctions) {
  EXPECT_EQ(Line("function block"), "small.textproto:6");
  EXPECT_EQ(Line("function block, node q"), "small.textproto:10");
  EXPECT_EQ(Line("function block, node 1 (scale)"), "small.textproto:11");
  EXPECT_EQ(Line("function block, node 1 (scale), attribute factor"), "small.textproto:13");
  EXPECT_EQ(Line("function block, parameter w"), "small.textproto:9");
  EXPECT_EQ(Line("function block, input x"), "small.textproto:8");
  EXPECT_EQ(Line("function block, output q"), "small.textproto:15");
  EXPECT_EQ(Line("function model, call layers"), "small.textproto:19");
}

TEST(JobPlacesTest, FindsElementsOfTheJob) {
  EXPECT_EQ(Line("graph, dim batch"), "small.textproto:3");
  EXPECT_EQ(Line("graph, dim "), "small.textproto:4");
  EXPECT_EQ(Line("mesh axis dp"), "small.textproto:22");
  EXPECT_EQ(Line("rule batch -> dp"), "small.textproto:23");
  EXPECT_EQ(Line("layout of \"block/q\""), "small.textproto:24");
  EXPECT_EQ(Line("training.steps"), "small.textproto:26");
  EXPECT_EQ(Line("runtime.recompute of block"), "small.textproto:30");
}

TEST(JobPlacesTest, WhatTheTextLacksHasTheLineOfWhatIsAroundIt) {
  EXPECT_EQ(Line("training.schedule.decay"), "small.textproto:27");
  EXPECT_EQ(Line("training.zero_stage"), "small.textproto:25");
  EXPECT_EQ(Line("function block, node q_gradient"), "small.textproto:6");
  EXPECT_EQ(Line("call layers.3"), "small.textproto:19");
}

TEST(JobPlacesTest, ASectionThatTheTextLacksHasTheFile) {
  EXPECT_EQ(Line("data"), "small.textproto");
  EXPECT_EQ(Line("data.text.path"), "small.textproto");
  EXPECT_EQ(Line("data.safetensors"), "") << "a file";
  const absl::Status error = Rejected({"W0050", "data", "one of text, idx", "nothing", ""});
  EXPECT_EQ(WithPlace(Source(), error).message(),
            "W0050 at small.textproto, data: expected one of text, idx; found nothing.");
}

TEST(JobPlacesTest, APathOfTheDataHasTheLineOfItsField) {
  JobSource source = Source();
  source.text += "data {\n  text { path: \"book.txt\" }\n}\n";
  EXPECT_EQ(PlaceOf(source, "book.txt"), "small.textproto:33");
  EXPECT_EQ(PlaceOf(source, "other.txt"), "");
  source.set = {"data.text.path=book.txt"};
  EXPECT_EQ(PlaceOf(source, "book.txt"), "--set data.text.path=book.txt");
}

TEST(JobPlacesTest, WhatIsNoElementHasNoPlace) {
  EXPECT_EQ(Line("book.txt"), "");
  EXPECT_EQ(Line("rank 3"), "");
  EXPECT_EQ(Line(""), "");
  EXPECT_EQ(Line("training[x].steps"), "");
}

TEST(JobPlacesTest, WhatAFlagGaveHasTheFlagForItsPlace) {
  JobSource source = Source();
  source.set = {"training.steps=0", "graph.dim[batch].size=7"};
  source.has_mesh = true;
  source.mesh = "pp=3";
  EXPECT_EQ(PlaceOf(source, "training.steps"), "--set training.steps=0");
  EXPECT_EQ(PlaceOf(source, "graph, dim batch"), "--set graph.dim[batch].size=7");
  EXPECT_EQ(PlaceOf(source, "mesh axis pp"), "--mesh pp=3");
  EXPECT_EQ(PlaceOf(source, "training.seed"), "small.textproto:25");
  source.set = {"graph.function=" + std::string(9999, 'x')};
  EXPECT_EQ(PlaceOf(source, "graph").size(), std::string("--set …").size() + 200);
}

TEST(JobPlacesTest, AnErrorGetsThePlaceOfItsElement) {
  const absl::Status error = Rejected({"W0407", "function block, node q", "a tensor", "\"z\"", ""});
  EXPECT_EQ(WithPlace(Source(), error).message(),
            "W0407 at small.textproto:10, function block, node q: expected a tensor; found \"z\".");
  EXPECT_EQ(WithPlace(Source(), error).code(), error.code());
  const absl::Status placed = Rejected({"W0002", "small.textproto:3:1", "a job", "none", ""});
  EXPECT_EQ(WithPlace(Source(), placed).message(), placed.message());
  const absl::Status foreign = absl::InternalError("something else at all: expected no place");
  EXPECT_EQ(WithPlace(Source(), foreign).message(), foreign.message());
}

TEST(JobPlacesTest, ATextThatIsNoJobOrTooLargeHasNoPlaces) {
  JobSource source = Source();
  source.text = "graph {";
  EXPECT_EQ(PlaceOf(source, "graph"), "");
  source.text.assign(kPlacedJobBytesMax + 1, ' ');
  EXPECT_EQ(PlaceOf(source, "graph"), "");
}

}  // namespace
}  // namespace weir::job
