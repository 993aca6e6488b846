#include "compiler/passes/bundle_boxings.h"

#include "compiler/passes/pass_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

// A program on dp=4 in two stages: `make` makes gradients, which are boxed and read by `use` or
// `other`.
class BundleBoxingsTest : public ::testing::Test {
 protected:
  BundleBoxingsTest() {
    AddItem(ItemKind::kCall, "make", {}, {});
    AddItem(ItemKind::kCall, "also makes", {}, {});
  }

  int AddValue(const sbp::Layout& layout, const std::string& type, int64_t stage = 0,
               Frequency frequency = Frequency::kStep) {
    ProgramValue value;
    value.name = "v" + std::to_string(module_.values.size());
    value.type = TypeOf(type);
    value.layout = layout;
    value.stage = stage;
    value.frequency = frequency;
    return module_.AddValue(std::move(value));
  }

  void AddItem(ItemKind kind, const std::string& name, const std::vector<int>& inputs,
               const std::vector<int>& outputs, Frequency frequency = Frequency::kStep) {
    ProgramItem item;
    item.kind = kind;
    item.name = name;
    item.inputs = inputs;
    item.outputs = outputs;
    item.frequency = frequency;
    if (kind == ItemKind::kCall) item.function = 0;
    module_.items.push_back(item);
  }

  struct Move {
    int maker = 0;  // item
    std::string type = "f32[batch, wide]";
    sbp::Layout to = {sbp::Sbp::B()};
    int64_t to_stage = 0;
    Frequency frequency = Frequency::kStep;        // of the boxing
    Frequency value_frequency = Frequency::kStep;  // of the value before and after it
  };
  // Returns the value after the boxing "move <input>".
  int AddMove(const Move& move) {
    const int from = AddValue({sbp::Sbp::P()}, move.type, 0, move.value_frequency);
    const int to = AddValue(move.to, move.type, move.to_stage, move.value_frequency);
    module_.items[move.maker].outputs.push_back(from);
    AddItem(ItemKind::kBoxing, "move " + module_.values[from].name, {from}, {to}, move.frequency);
    return to;
  }

  // Runs the pass, which a second run must not change, and returns the names of the items.
  std::vector<std::string> Names() {
    Apply([&](const PassContext&,
              Module* module) { return BundleBoxings(sbp::PipelinePlaces(mesh_), module); },
          context_, &module_);
    std::vector<std::string> names;
    for (const ProgramItem& item : module_.items) names.push_back(item.name);
    return names;
  }

  const sbp::Mesh mesh_ = MeshOf("pp=2,dp=4");
  const PassContext context_ = ContextOf("dp=4");
  Module module_;
};

TEST_F(BundleBoxingsTest, BoxingsOfOneMakerForOneReaderTravelTogether) {
  module_.functions.emplace_back();
  const int a = AddMove({}), b = AddMove({}), c = AddMove({});
  AddItem(ItemKind::kCall, "use", {a, b, c}, {});
  EXPECT_THAT(Names(), ElementsAre("make", "also makes", "move v0 +2", "use"));
  EXPECT_THAT(module_.items[2].inputs, ElementsAre(0, 2, 4));
  EXPECT_THAT(module_.items[2].outputs, ElementsAre(1, 3, 5));
}

TEST_F(BundleBoxingsTest, WhatDiffersInMakerReadersRateTypeStageOrStepsTravelsAlone) {
  module_.functions.emplace_back();
  const int base = AddMove({});
  const int maker = AddMove({.maker = 1});
  const int reader = AddMove({});
  const int frequency =
      AddMove({.frequency = Frequency::kMicroBatch, .value_frequency = Frequency::kMicroBatch});
  const int type = AddMove({.type = "bf16[batch, wide]"});
  const int stage = AddMove({.to_stage = 1});
  const int steps = AddMove({.to = {sbp::Sbp::S(0)}});
  AddItem(ItemKind::kCall, "use", {base, maker, frequency, type, stage, steps}, {});
  AddItem(ItemKind::kCall, "other", {reader}, {});
  EXPECT_THAT(Names(), ElementsAre("make", "also makes", "move v0", "move v2", "move v4", "move v6",
                                   "move v8", "move v10", "move v12", "use", "other"));
}

TEST_F(BundleBoxingsTest, TheRateOfABoxingAloneKeepsItApart) {
  module_.functions.emplace_back();
  const int a = AddMove({}), b = AddMove({.frequency = Frequency::kMicroBatch}),
            c = AddMove({.frequency = Frequency::kAfterUpdate}),
            d = AddMove({.frequency = Frequency::kMicroBatch});
  AddItem(ItemKind::kCall, "use", {a, b, c, d}, {});
  EXPECT_THAT(Names(),
              ElementsAre("make", "also makes", "move v0", "move v2 +1", "move v4", "use"));
}

TEST_F(BundleBoxingsTest, TheRateOfTheMovedValueAloneKeepsABoxingApart) {
  module_.functions.emplace_back();
  const int a = AddMove({}), b = AddMove({.value_frequency = Frequency::kMicroBatch}),
            c = AddMove({.value_frequency = Frequency::kUpdate}),
            d = AddMove({.value_frequency = Frequency::kMicroBatch});
  AddItem(ItemKind::kCall, "use", {a, b, c, d}, {});
  EXPECT_THAT(Names(),
              ElementsAre("make", "also makes", "move v0", "move v2 +1", "move v4", "use"));
}

TEST_F(BundleBoxingsTest, ShapesMayDiffer) {
  module_.functions.emplace_back();
  const int a = AddMove({}), b = AddMove({.type = "f32[deep]"});
  AddItem(ItemKind::kCall, "use", {a, b}, {});
  EXPECT_THAT(Names(), ElementsAre("make", "also makes", "move v0 +1", "use"));
}

TEST_F(BundleBoxingsTest, ABundleStandsWhereItsFirstStood) {
  module_.functions.emplace_back();
  const int a = AddMove({});
  AddItem(ItemKind::kCall, "between", {}, {});
  const int b = AddMove({});
  AddItem(ItemKind::kCall, "use", {a, b}, {});
  EXPECT_THAT(Names(), ElementsAre("make", "also makes", "move v0 +1", "between", "use"));
}

TEST_F(BundleBoxingsTest, AnImpossibleBoxingIsAnError) {
  module_.functions.emplace_back();
  const int a = AddMove({.to = {sbp::Sbp::P(Combiner::kMax)}});
  AddItem(ItemKind::kCall, "use", {a}, {});
  EXPECT_EQ(BundleBoxings(sbp::PipelinePlaces(mesh_), &module_).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::compiler
