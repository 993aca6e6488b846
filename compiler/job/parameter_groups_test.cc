#include "compiler/job/parameter_groups.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a module with two calls of a function with parameters w and bias.
Module TwoLayers() {
  Module module;
  Function function;
  function.parameters.resize(2);
  module.functions.push_back(function);
  module.model.functions.resize(1);
  module.model.functions[0].forward = 0;
  for (const char* name : {"layers.0.w", "layers.0.bias", "layers.1.w", "layers.1.bias"}) {
    ModelWeight weight;
    weight.name = name;
    module.model.weights.push_back(weight);
  }
  for (int c : {0, 1}) {
    ModelCall call;
    call.model_function = 0;
    call.weights = {2 * c, 2 * c + 1};
    module.model.calls.push_back(call);
  }
  return module;
}

TEST(ApplyGroups, TheFirstGroupThatFitsCounts) {
  Module module = TwoLayers();
  std::vector<GroupSettings> groups(2);
  groups[0].patterns = {"*.bias"};
  groups[0].frozen = true;
  groups[1].patterns = {"layers.1.*"};
  groups[1].frozen = true;
  ASSERT_TRUE(ApplyGroups(groups, &module).ok());
  const std::vector<ModelWeight>& weights = module.model.weights;
  EXPECT_EQ(weights[0].group, -1);
  EXPECT_EQ(weights[1].group, 0);
  EXPECT_EQ(weights[2].group, 1);
  EXPECT_EQ(weights[3].group, 0);
  EXPECT_FALSE(weights[0].frozen);
  EXPECT_TRUE(weights[3].frozen);
  const Function& function = module.functions[0];
  EXPECT_FALSE(function.parameters[0].frozen) << "a call trains w";
  EXPECT_TRUE(function.parameters[1].frozen) << "no call trains the bias";
}

TEST(ApplyGroups, APatternThatNoWeightFitsIsRefused) {
  Module module = TwoLayers();
  std::vector<GroupSettings> groups(1);
  groups[0].patterns = {"*.bias", "*.baises"};
  EXPECT_THAT(std::string(ApplyGroups(groups, &module).message()),
              AllOf(HasSubstr("W0082 at training.group[0].pattern"), HasSubstr("layers.0.w"),
                    HasSubstr("\"*.baises\", which no weight fits")));
}

TEST(ApplyGroups, AGroupThatEarlierGroupsLeaveNoWeightIsRefused) {
  Module module = TwoLayers();
  std::vector<GroupSettings> groups(2);
  groups[0].patterns = {"layers.*"};
  groups[1].patterns = {"layers.1.*"};
  groups[1].frozen = true;
  EXPECT_THAT(std::string(ApplyGroups(groups, &module).message()),
              AllOf(HasSubstr("W0085 at training.group[1]"),
                    HasSubstr("layers.1.w belongs to training.group[0]")));
  module = TwoLayers();
  std::swap(groups[0], groups[1]);
  EXPECT_TRUE(ApplyGroups(groups, &module).ok());
  EXPECT_TRUE(module.model.weights[2].frozen);
}

}  // namespace
}  // namespace weir::compiler
