#include "compiler/passes/assign_stages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PipelineSchedule Straight(int64_t stages) {
  PipelineSchedule schedule;
  schedule.num_stages = stages;
  return schedule;
}

// Calls c0, c1, … of functions with `nodes[i]` relu nodes of 16 elements each.
Module CallsOf(const std::vector<int>& nodes) {
  ModelMaker maker;
  int value = maker.Data("x", "f32[batch, wide]");
  for (size_t c = 0; c < nodes.size(); ++c) {
    FunctionMaker function(absl::StrCat("f", c));
    ops::ValueId at = function.Input("x", "f32[batch, wide]");
    for (int n = 0; n < nodes[c]; ++n) at = function.Node(absl::StrCat("n", n), "relu", {at});
    function.Return(at);
    value = maker.Call(absl::StrCat("c", c), maker.Add(function.function), {value})[0];
  }
  return std::move(maker.module);
}

std::vector<int64_t> PartsOf(const Module& module) {
  std::vector<int64_t> parts;
  for (const ModelCall& call : module.model.calls) parts.push_back(call.part);
  return parts;
}

using Cut = std::vector<std::string>;

std::string Flaw(const Cut& cut, const PipelineSchedule& schedule, int num_calls) {
  Module module = CallsOf(std::vector<int>(num_calls, 1));
  const absl::Status status = AssignStages(cut, LayoutRules(), schedule, &module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// The largest sum of a part, if the parts begin before the calls whose bit is set.
int LargestPart(const std::vector<int>& cost, unsigned begins) {
  int most = 0, sum = 0;
  for (size_t c = 0; c < cost.size(); ++c) {
    if (c > 0 && (begins >> c & 1) != 0) sum = 0;
    sum += cost[c];
    most = std::max(most, sum);
  }
  return most;
}

TEST(AssignStages, WithoutACutTheCostliestPartIsAsCheapAsAnyCutMakesIt) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int limit) {
      return static_cast<int>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    std::vector<int> nodes(1 + below(8));
    for (int& count : nodes) count = below(6);
    const int stages = 1 + below(static_cast<int>(nodes.size()));
    Module module = CallsOf(nodes);
    ASSERT_TRUE(AssignStages({}, LayoutRules(), Straight(stages), &module).ok());
    // A call of n nodes counts n times 16 operations and one more.
    std::vector<int> cost;
    for (int count : nodes) cost.push_back(16 * count + 1);
    int best = 1 << 20;
    for (unsigned begins = 0; begins < 1u << nodes.size(); ++begins) {
      if ((begins & 1) == 0 && __builtin_popcount(begins) == stages - 1)
        best = std::min(best, LargestPart(cost, begins));
    }
    unsigned begins = 0;
    const std::vector<int64_t> parts = PartsOf(module);
    EXPECT_EQ(parts.front(), 0);
    EXPECT_EQ(parts.back(), stages - 1) << "no part is empty";
    for (size_t c = 1; c < parts.size(); ++c) {
      ASSERT_TRUE(parts[c] == parts[c - 1] || parts[c] == parts[c - 1] + 1);
      if (parts[c] != parts[c - 1]) begins |= 1u << c;
    }
    EXPECT_EQ(LargestPart(cost, begins), best) << "seed " << seed;
  }
}

// The rules split `wide` over tp and `batch` over dp. A stage has the sizes of one of the meshes.
LayoutRules RulesOn(const std::vector<std::string>& meshes) {
  LayoutRules rules(*sbp::Mesh::Parse("dp=4,tp=4"));
  rules.AddRule("batch", 0, RuleScope::kAll);
  rules.AddRule("wide", 1, RuleScope::kActivations);
  std::vector<sbp::Mesh> of_stages;
  for (const std::string& mesh : meshes) of_stages.push_back(*sbp::Mesh::Parse(mesh));
  rules.SetMeshes(std::move(of_stages));
  return rules;
}

TEST(AssignStages, AStageOfMoreDevicesGetsMoreCalls) {
  Module module = CallsOf({4, 4, 4, 4, 4, 4});
  const auto parts_on = [&](const std::vector<std::string>& meshes, const LayoutRules& rules) {
    EXPECT_TRUE(
        AssignStages({}, rules, Straight(static_cast<int64_t>(meshes.size())), &module).ok());
    return PartsOf(module);
  };
  const auto parts = [&](const std::vector<std::string>& meshes) {
    return parts_on(meshes, RulesOn(meshes));
  };
  EXPECT_THAT(parts({"dp=1,tp=1", "dp=1,tp=2"}), ElementsAre(0, 0, 1, 1, 1, 1));
  EXPECT_THAT(parts({"dp=2,tp=1", "dp=1,tp=1"}), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(parts({"dp=1,tp=1", "dp=2,tp=2", "dp=1,tp=1"}), ElementsAre(0, 1, 1, 1, 1, 2));
  EXPECT_THAT(parts({"dp=4,tp=1", "dp=4,tp=1"}), ElementsAre(0, 0, 0, 1, 1, 1)) << "equal meshes";
  EXPECT_THAT(parts_on({"dp=1,tp=1", "dp=1,tp=2"}, LayoutRules(*sbp::Mesh::Parse("dp=1,tp=2"))),
              ElementsAre(0, 0, 0, 1, 1, 1))
      << "one mesh";
  LayoutRules others(*sbp::Mesh::Parse("dp=4,tp=4"));
  others.AddRule("tall", 1, RuleScope::kAll);
  others.AddRule("wide", 1, RuleScope::kParameters);
  others.SetMeshes({*sbp::Mesh::Parse("dp=1,tp=1"), *sbp::Mesh::Parse("dp=1,tp=4")});
  EXPECT_THAT(parts_on({"", ""}, others), ElementsAre(0, 0, 0, 1, 1, 1))
      << "rules that split no node";
}

TEST(AssignStages, NoCutMakesTheCostliestPartOfUnequalStagesCheaper) {
  const std::vector<std::pair<std::string, double>> kMeshes = {
      {"dp=1,tp=1", 1}, {"dp=2,tp=1", 2}, {"dp=1,tp=4", 4}, {"dp=2,tp=2", 4}};
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int limit) {
      return static_cast<int>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    std::vector<int> nodes(2 + below(7));
    for (int& count : nodes) count = below(6);
    const int stages = 2 + below(static_cast<int>(nodes.size()) - 1);
    std::vector<std::string> meshes;
    std::vector<double> devices;  // that share the work of a stage
    for (int stage = 0; stage < stages; ++stage) {
      const auto& [mesh, parts] = kMeshes[static_cast<size_t>(below(4))];
      meshes.push_back(mesh);
      devices.push_back(parts);
    }
    // On stages of one mesh, all operations count.
    if (std::count(meshes.begin(), meshes.end(), meshes[0]) == stages)
      devices.assign(devices.size(), 1);
    Module module = CallsOf(nodes);
    ASSERT_TRUE(AssignStages({}, RulesOn(meshes), Straight(stages), &module).ok());
    const auto largest_part = [&](const std::vector<int64_t>& parts) {
      std::vector<double> sums(static_cast<size_t>(stages), 0);
      for (size_t c = 0; c < nodes.size(); ++c) {
        const auto part = static_cast<size_t>(parts[c]);
        sums[part] += 1 + 16 * nodes[c] / devices[part];
      }
      return *std::max_element(sums.begin(), sums.end());
    };
    double best = 1e9;
    for (unsigned begins = 0; begins < 1u << nodes.size(); begins += 2) {
      if (__builtin_popcount(begins) != stages - 1) continue;
      std::vector<int64_t> parts;
      for (size_t c = 0; c < nodes.size(); ++c)
        parts.push_back((c == 0 ? 0 : parts.back()) + (begins >> c & 1));
      best = std::min(best, largest_part(parts));
    }
    const std::vector<int64_t> parts = PartsOf(module);
    EXPECT_EQ(parts.back(), stages - 1) << "no part is empty";
    EXPECT_DOUBLE_EQ(largest_part(parts), best) << "seed " << seed;
  }
}

// The cost of a call without nodes is 1, which vanishes in sums above 2^53.
TEST(AssignStages, OfCallsThatVanishInTheSumOneAtMostGoesToTheLaterPart) {
  Module module = CallsOf({1, 0, 0, 2});
  for (const ModelFunction& function : module.model.functions) {
    for (Value& value : module.functions[function.forward].values)
      value.type.dims = {{"batch", int64_t{1} << 27, 1}, {"wide", int64_t{1} << 27, 1}};
  }
  ASSERT_TRUE(AssignStages({}, LayoutRules(), Straight(2), &module).ok());
  EXPECT_THAT(PartsOf(module), ElementsAre(0, 0, 1, 1));
}

TEST(AssignStages, ACutNamesTheFirstCallOfEachLaterPart) {
  Module module = CallsOf({5, 1, 1, 1, 1});
  ASSERT_TRUE(AssignStages(Cut({"c1", "c4"}), LayoutRules(), Straight(3), &module).ok());
  EXPECT_THAT(PartsOf(module), ElementsAre(0, 1, 1, 1, 2));
  // The second time gives the same.
  ASSERT_TRUE(AssignStages(Cut({"c1", "c4"}), LayoutRules(), Straight(3), &module).ok());
  EXPECT_THAT(PartsOf(module), ElementsAre(0, 1, 1, 1, 2));
}

TEST(AssignStages, OneStageTakesAllWhateverTheCut) {
  Module module = CallsOf({1, 1, 1});
  ASSERT_TRUE(AssignStages(Cut({"c1"}), LayoutRules(), Straight(1), &module).ok());
  EXPECT_THAT(PartsOf(module), ElementsAre(0, 0, 0));
}

TEST(AssignStages, PartsOfInterleavedSchedulesGoRoundTheStages) {
  PipelineSchedule schedule = Straight(2);
  schedule.kind = ScheduleKind::kInterleaved;
  schedule.virtual_stages = 2;
  Module module = CallsOf({1, 1, 1, 1});
  ASSERT_TRUE(AssignStages({}, LayoutRules(), schedule, &module).ok());
  std::vector<int64_t> stages;
  for (const ModelCall& call : module.model.calls) stages.push_back(call.stage);
  EXPECT_THAT(PartsOf(module), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(stages, ElementsAre(0, 1, 0, 1));
}

TEST(AssignStages, MorePartsThanCallsAreRefusedWithWhatIsPossible) {
  EXPECT_THAT(Flaw({}, Straight(4), 3),
              AllOf(HasSubstr("W0470 at mesh axis pp"), HasSubstr("at most 3 stages"),
                    HasSubstr("Try: pp=3")));
  EXPECT_THAT(Flaw({}, Straight(2), 1), HasSubstr("as main has 1 call "));
  EXPECT_THAT(Flaw({}, Straight(1025), 1030), HasSubstr("at most 1024 stages"));
  PipelineSchedule schedule = Straight(2);
  schedule.virtual_stages = 3;
  EXPECT_THAT(Flaw({}, schedule, 5),
              AllOf(HasSubstr("W0470 at pipeline.virtual_stages"), HasSubstr("at most 5 parts"),
                    HasSubstr("Try: pipeline.virtual_stages=2")));
  EXPECT_THAT(Flaw({}, schedule, 3), HasSubstr("Try: another schedule, or fewer stages"));
}

TEST(AssignStages, ACutHasOneNameForEachLaterPart) {
  EXPECT_THAT(Flaw(Cut({"c1"}), Straight(3), 4),
              AllOf(HasSubstr("W0471 at pipeline.cut"), HasSubstr("2 cuts for pp=3")));
  EXPECT_THAT(Flaw(Cut({"c1", "c2"}), Straight(2), 4), HasSubstr("1 cut for pp=2"));
}

TEST(AssignStages, ACutNamesCallsInTheOrderOfTheModel) {
  EXPECT_THAT(Flaw(Cut({"c9"}), Straight(2), 3),
              AllOf(HasSubstr("W0472"), HasSubstr("Try: \"c0\"")));
  EXPECT_THAT(Flaw(Cut({"c2", "c1"}), Straight(3), 3),
              AllOf(HasSubstr("W0472"), HasSubstr("\"c1\" after \"c2\""),
                    HasSubstr("Try: the order c0, c1, c2")));
  EXPECT_THAT(Flaw(Cut({"c0"}), Straight(2), 3), HasSubstr("none of them the first call"));
  EXPECT_THAT(Flaw(Cut({"c1", "c1"}), Straight(3), 3), HasSubstr("\"c1\" after \"c1\""));
}

TEST(AssignStages, TheTextShowsEachCallWithItsPartAndStage) {
  Module module = CallsOf({1, 1});
  ASSERT_TRUE(AssignStages({}, LayoutRules(), Straight(2), &module).ok());
  EXPECT_EQ(CallsText(module),
            "calls\n"
            "  %c0.n0 = c0(%x) by f0, part 0 on stage 0\n"
            "  %c1.n0 = c1(%c0.n0) by f1, part 1 on stage 1\n");
}

}  // namespace
}  // namespace weir::compiler
