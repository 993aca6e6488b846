#include "compiler/job/infer_index_ranges.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "compiler/job/model_inputs.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

// Two towers over tables of 500 and 800 rows, and a classifier of 2 over both. No name here has a
// meaning to anyone.
constexpr char kTowers[] = R"pb(
  graph {
    dim { name: "a" size: 8 }
    dim { name: "w" size: 4 }
    dim { name: "u" size: 500 }
    dim { name: "i" size: 800 }
    dim { name: "h" size: 16 }
    dim { name: "k" size: 2 }
    function {
      name: "left"
      input { name: "ids" type: "LEFT" }
      parameter {
        name: "table"
        type: "f32[u, h]"
        init { normal { std: 0.1 } }
      }
      node {
        name: "turned"
        op: "transpose"
        input: "ids"
        attr {
          name: "perm"
          value { ints { values: [ 1, 0 ] } }
        }
      }
      node {
        name: "part"
        op: "slice"
        input: "turned"
        attr {
          name: "axis"
          value { i: 0 }
        }
        attr {
          name: "begin"
          value { i: 1 }
        }
        attr {
          name: "size"
          value { i: 2 }
        }
      }
      node {
        name: "e"
        op: "embedding"
        input: [ "table", "part" ]
      }
      node {
        name: "y"
        op: "reduce_mean"
        input: "e"
        attr {
          name: "axes"
          value { ints { values: [ 0 ] } }
        }
      }
      output: "y"
    }
    function {
      name: "right"
      input { name: "ids" type: "i32[a, w]" }
      parameter {
        name: "table"
        type: "f32[i, h]"
        init { normal { std: 0.1 } }
      }
      node {
        name: "e"
        op: "embedding"
        input: [ "table", "ids" ]
      }
      node {
        name: "y"
        op: "reduce_mean"
        input: "e"
        attr {
          name: "axes"
          value { ints { values: [ 1 ] } }
        }
      }
      output: "y"
    }
    function {
      name: "pass"
      input { name: "x" type: "i32[a, w]" }
      node {
        name: "y"
        op: "reshape"
        input: "x"
        attr {
          name: "to"
          value { s: "a, w" }
        }
      }
      output: "y"
    }
    function {
      name: "main"
      input { name: "p" type: "USER" }
      input { name: "q" type: "i32[a, w]" }
      input { name: "c" type: "i32[a]" }
      input { name: "free" type: "i32[a]" }
      parameter {
        name: "out"
        type: "f32[h, k]"
        init { normal { std: 0.1 } }
      }
      node { name: "through" op: "call" function: "pass" input: "p" output: "p2" repeat: 3 }
      node { name: "l" op: "call" function: "left" input: "p2" output: "lv" }
      node { name: "r" op: "call" function: "right" input: "q" output: "rv" }
      node {
        name: "m"
        op: "mul"
        input: [ "lv", "rv" ]
      }
      node {
        name: "logits"
        op: "matmul"
        input: [ "m", "out" ]
      }
      node {
        name: "s"
        op: "softmax_cross_entropy"
        input: [ "logits", "c" ]
      }
      node { name: "loss" op: "reduce_mean" input: "s" }
      output: "loss"
    }
    main: "main"
  }
  training {
    steps: 1
    optimizer { sgd {} }
    schedule { learning_rate: 0.1 }
  }
)pb";

proto::Job Towers(const std::string& user = "i32[a, w]", const std::string& left = "i32[a, w]") {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrReplaceAll(kTowers, {{"USER", user}, {"LEFT", left}}), &job));
  return job;
}

std::map<std::string, InputUse> UsesOf(const proto::Job& job) {
  auto inputs = ModelInputsOf(job, PlanMode::kTrain);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  std::map<std::string, InputUse> uses;
  if (inputs.ok()) {
    for (const ModelInput& input : *inputs) uses[input.name] = input.use;
  }
  return uses;
}

int64_t Below(const proto::Job& job, const std::string& input) {
  return UsesOf(job)[input].range.value_or(IndexRange{}).below;
}

std::string ErrorOf(const proto::Job& job) {
  auto inputs = ModelInputsOf(job, PlanMode::kTrain);
  EXPECT_EQ(inputs.status().code(), absl::StatusCode::kInvalidArgument);
  auto plan = CompileJob(job, {});
  EXPECT_EQ(plan.status(), inputs.status()) << "the compiler says the same";
  return std::string(inputs.status().message());
}

TEST(IndexRanges, FollowUsesThroughCallsRepeatsAndOpsThatMoveElements) {
  auto uses = UsesOf(Towers());
  ASSERT_TRUE(uses["p"].range.has_value());
  EXPECT_EQ(uses["p"].range->below, 500);
  EXPECT_EQ(uses["p"].range->reader,
            "an index along dimension u of \"table\" (function left, node e, embedding)");
  EXPECT_TRUE(uses["p"].range->of_rows);
  EXPECT_EQ(uses["q"].range->below, 800);
  EXPECT_EQ(uses["c"].range->below, 2);
  EXPECT_FALSE(uses["c"].range->of_rows);
}

TEST(IndexRanges, AnInputThatNobodyReadsHasNoneAndIsNotNeeded) {
  auto uses = UsesOf(Towers());
  EXPECT_FALSE(uses["free"].range.has_value());
  EXPECT_FALSE(uses["free"].needed);
  for (const char* name : {"p", "q", "c"}) EXPECT_TRUE(uses[name].needed) << name;
}

TEST(IndexRanges, TheNarrowestOfSeveralReadersCounts) {
  proto::Job job = Towers();
  weir::proto::Node* left = job.mutable_graph()->mutable_function(3)->mutable_node(1);
  ASSERT_EQ(left->name(), "l");
  left->set_input(0, "q");
  EXPECT_EQ(Below(job, "q"), 500);
}

// Lets a node of main ignore the value -100.
void Ignore(weir::proto::Node* node) {
  proto::NamedAttr* attr = node->add_attr();
  attr->set_name("ignore_index");
  attr->mutable_value()->mutable_ints()->add_values(-100);
}

TEST(IndexRanges, AValueIsIgnoredIfAllReadersIgnoreIt) {
  proto::Job job = Towers();
  weir::proto::Function* main = job.mutable_graph()->mutable_function(3);
  EXPECT_FALSE(UsesOf(job)["c"].range->ignored.has_value());
  ASSERT_EQ(main->node(5).name(), "s");
  Ignore(main->mutable_node(5));
  EXPECT_EQ(UsesOf(job)["c"].range->ignored, -100);
  EXPECT_EQ(UsesOf(job)["c"].range->below, 2);
  weir::proto::Node* hit = main->add_node();
  hit->set_name("hit");
  hit->set_op("accuracy");
  hit->add_input("logits");
  hit->add_input("c");
  EXPECT_FALSE(UsesOf(job)["c"].range->ignored.has_value()) << "accuracy counts every target";
  Ignore(hit);
  EXPECT_EQ(UsesOf(job)["c"].range->ignored, -100);
  main->mutable_node(5)->mutable_attr(0)->mutable_value()->mutable_ints()->add_values(-1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("at most one ignore_index"));
}

TEST(IndexRanges, ADeclaredRangeNarrowsAndOneOfItsReaderChangesNothing) {
  EXPECT_EQ(Below(Towers("i32<200>[a, w]"), "p"), 200);
  EXPECT_EQ(Below(Towers("i32<k>[a, w]"), "p"), 2);
  EXPECT_EQ(Below(Towers("i32<u>[a, w]"), "p"), 500);
  EXPECT_EQ(Below(Towers("i32[a, w]", "i32<30>[a, w]"), "p"), 30);
  EXPECT_THAT(UsesOf(Towers("i32<200>[a, w]"))["p"].range->reader,
              HasSubstr("in the range <200> that function main, input p declares"));
}

TEST(IndexRanges, ADeclaredRangeWiderThanAReaderHasRoomForIsRefusedWithBothPlaces) {
  std::string error = ErrorOf(Towers("i32<i>[a, w]"));
  EXPECT_THAT(error, HasSubstr("W0902 at function main, input p: expected values below 500, an "
                               "index along dimension u of \"table\""));
  EXPECT_THAT(error, HasSubstr("(function left, node e, embedding)"));
  EXPECT_THAT(error, HasSubstr("found a declared range of values below 800"));
  error = ErrorOf(Towers("i32[a, w]", "i32<501>[a, w]"));
  EXPECT_THAT(error, HasSubstr("W0902 at function left, input ids"));
}

TEST(IndexRanges, MalformedRangesAreRefused) {
  EXPECT_THAT(ErrorOf(Towers("f32<200>[a, w]")), HasSubstr("W0900 at function main, input p"));
  EXPECT_THAT(ErrorOf(Towers("i32<v>[a, w]")), HasSubstr("W0901 at function main, input p"));
  EXPECT_THAT(ErrorOf(Towers("i32<0>[a, w]")), HasSubstr("W0313"));
  EXPECT_THAT(ErrorOf(Towers("i32<2147483649>[a, w]")), HasSubstr("W0901"));
  EXPECT_THAT(ErrorOf(Towers("i32<>[a, w]")), HasSubstr("W0901"));
  EXPECT_THAT(ErrorOf(Towers("i32<5[a, w]")), HasSubstr("W0311"));
}

TEST(IndexRanges, AnIndexThatAnOpComputesIsRefused) {
  proto::Job job = Towers();
  weir::proto::Function* right = job.mutable_graph()->mutable_function(1);
  right->mutable_input(0)->set_type("f32[a, w]");
  weir::proto::Node* embedding = right->mutable_node(0);
  *right->add_node() = right->node(1);
  *right->mutable_node(1) = *embedding;
  embedding->set_name("whole");
  embedding->set_op("cast");
  embedding->clear_input();
  embedding->add_input("ids");
  proto::NamedAttr* to = embedding->add_attr();
  to->set_name("to");
  to->mutable_value()->set_s("i32");
  right->mutable_node(1)->set_input(1, "whole");
  job.mutable_graph()->mutable_function(3)->mutable_input(1)->set_type("f32[a, w]");
  std::string error = ErrorOf(job);
  EXPECT_THAT(error, HasSubstr("W0903 at function right, node whole"));
  EXPECT_THAT(error, HasSubstr("dimension i of \"table\""));
}

// The right tower with the ids that top_k finds among `size` scores.
proto::Job TowersOfTopK(int size) {
  proto::Job job = Towers();
  auto* dim = job.mutable_graph()->add_dim();
  dim->set_name("scores");
  dim->set_size(size);
  weir::proto::Function* right = job.mutable_graph()->mutable_function(1);
  right->mutable_input(0)->set_type("f32[a, scores]");
  const weir::proto::Node embedding = right->node(0), mean = right->node(1);
  right->clear_node();
  weir::proto::Node* best = right->add_node();
  best->set_name("best");
  best->set_op("top_k");
  best->add_input("ids");
  best->add_output("values");
  best->add_output("places");
  const auto add = [best](const char* name, int64_t value) {
    proto::NamedAttr* attr = best->add_attr();
    attr->set_name(name);
    attr->mutable_value()->set_i(value);
  };
  add("axis", 1);
  add("k", 4);
  *right->add_node() = embedding;
  right->mutable_node(1)->set_input(1, "places");
  *right->add_node() = mean;
  job.mutable_graph()->mutable_function(3)->mutable_input(1)->set_type("f32[a, scores]");
  return job;
}

TEST(IndexRanges, IndicesThatAnOpChoosesFitAReaderWithAsManyPlaces) {
  EXPECT_FALSE(UsesOf(TowersOfTopK(800))["q"].range.has_value());
  std::string error = ErrorOf(TowersOfTopK(801));
  EXPECT_THAT(error,
              HasSubstr("W0316 at function right, node best: expected \"places\" below 800"));
  EXPECT_THAT(error, HasSubstr("found top_k along dimension scores of size 801"));
}

// The values of the ids of `take` are places, and not elements of its result.
TEST(IndexRanges, OfATakenElementPassesToTheTableAndNotToTheIds) {
  proto::Job job = Towers();
  weir::proto::Function* right = job.mutable_graph()->mutable_function(1);
  auto* places = right->add_input();
  places->set_name("places");
  places->set_type("i32[a]");
  const weir::proto::Node embedding = right->node(0), mean = right->node(1);
  right->clear_node();
  weir::proto::Node* take = right->add_node();
  take->set_name("taken");
  take->set_op("take");
  take->add_input("ids");
  take->add_input("places");
  proto::NamedAttr* axis = take->add_attr();
  axis->set_name("axis");
  axis->mutable_value()->set_i(0);
  *right->add_node() = embedding;
  right->mutable_node(1)->set_input(1, "taken");
  *right->add_node() = mean;
  weir::proto::Function* main = job.mutable_graph()->mutable_function(3);
  for (weir::proto::Node& node : *main->mutable_node()) {
    if (node.function() == "right") node.add_input("free");
  }
  EXPECT_EQ(Below(job, "q"), 800);
  EXPECT_EQ(Below(job, "free"), 8);
}

TEST(IndexRanges, ThePlanOfARankCarriesThem) {
  auto plan = CompileJob(Towers(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto lowered = LowerForRank(**plan, RankId(0));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::map<std::string, int64_t> below;
  for (const proto::ActorSpec& actor : lowered->actor()) {
    if (actor.kind() == proto::ActorSpec::SOURCE) below[actor.feed()] = actor.feed_range().below();
  }
  EXPECT_EQ(below, (std::map<std::string, int64_t>{{"p", 500}, {"q", 800}, {"c", 2}}));
}

// Values along the samples, for example the targets of a softmax over the batch, count within a
// micro-batch.
TEST(IndexRanges, ARangeOfTheSamplesIsThatOfAMicroBatch) {
  proto::Job job = Towers();
  job.mutable_training()->set_micro_batches(2);
  weir::proto::Function* main = job.mutable_graph()->mutable_function(3);
  main->clear_parameter();
  weir::proto::Node* logits = main->mutable_node(4);
  ASSERT_EQ(logits->name(), "logits");
  logits->set_input(0, "lv");
  logits->set_input(1, "rv");
  proto::NamedAttr* transpose = logits->add_attr();
  transpose->set_name("transpose_w");
  transpose->mutable_value()->set_b(true);
  main->mutable_node()->DeleteSubrange(3, 1);
  auto inputs = ModelInputsOf(job, PlanMode::kTrain);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->at(2).use.range->below, 4);
  EXPECT_EQ(inputs->at(2).type.shape(), (Shape{8})) << "types are those of a whole step";
}

TEST(BatchDim, IsTheFirstDimensionThatAllInputsShareWhateverItsName) {
  proto::Job job = Towers();
  job.mutable_training()->set_micro_batches(4);
  auto plan = CompileJob(job, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->micro_batches, 4);
  job.mutable_training()->set_micro_batches(3);
  EXPECT_THAT(
      ErrorOf(job),
      HasSubstr("W0435 at training.micro_batches: expected a number that divides dimension \"a\""));
}

TEST(BatchDim, IsAskedForWhereInputsDisagree) {
  proto::Job job = Towers();
  job.mutable_training()->set_micro_batches(2);
  job.mutable_graph()->mutable_function(3)->mutable_input(3)->set_type("f32[w, a]");
  std::string error = ErrorOf(job);
  EXPECT_THAT(error, HasSubstr("W0904 at training.batch_dim"));
  EXPECT_THAT(error, HasSubstr("a (input p), a (input q), a (input c), w (input free)"));
  job.mutable_training()->set_batch_dim("a");
  EXPECT_TRUE(CompileJob(job, {}).ok());
  job.mutable_training()->set_batch_dim("batch");
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0436 at training.batch_dim"));
}

TEST(BatchDim, IsADimensionOfAnInput) {
  proto::Job job = Towers();
  auto* dim = job.mutable_graph()->add_dim();
  dim->set_name("apart");
  dim->set_size(8);
  job.mutable_training()->set_batch_dim("apart");
  for (const int micro_batches : {0, 1, 2}) {
    job.mutable_training()->set_micro_batches(micro_batches);
    const std::string error = ErrorOf(job);
    EXPECT_THAT(error, HasSubstr("W0436 at training.batch_dim")) << micro_batches;
    EXPECT_THAT(error, HasSubstr("\"apart\", which no input of main has")) << micro_batches;
    EXPECT_THAT(error, HasSubstr("a dimension of the inputs: a")) << micro_batches;
  }
}

}  // namespace
}  // namespace weir::compiler
