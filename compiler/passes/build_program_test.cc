#include "compiler/passes/build_program.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Settings {
  std::string mesh = "dp=2";  // of a stage
  int zero_stage = 0;
  int64_t micro_batches = 2;
  int64_t update_every = 1;
  int64_t num_stages = 1;  // the last call lies on the last stage
  PlanMode mode = PlanMode::kTrain;
  OptimizerSettings optimizer = SgdSettings();
  std::vector<GroupSettings> groups = {};
  std::optional<double> average_decay = {};
  std::optional<LossScaleSettings> loss_scale = {};
};

// Returns the plan of a model up to the program.
LogicalPlan PlanOf(Module module, const Settings& settings) {
  LogicalPlan plan;
  plan.mode = settings.mode;
  plan.stage_mesh = MeshOf(settings.mesh);
  plan.mesh = settings.num_stages == 1
                  ? plan.stage_mesh
                  : MeshOf(absl::StrCat("pp=", settings.num_stages, ",", settings.mesh));
  plan.places = sbp::PipelinePlaces(plan.mesh);
  plan.micro_batches = settings.micro_batches;
  plan.updates.every = settings.update_every;
  plan.updates.phase = settings.update_every - 1;
  plan.schedule.num_stages = settings.num_stages;
  plan.settings.training.zero_stage = settings.zero_stage;
  plan.settings.training.learning_rates.learning_rate = 0.1;
  plan.settings.training.optimizer = settings.optimizer;
  plan.settings.training.groups = settings.groups;
  plan.settings.training.average_decay = settings.average_decay;
  plan.settings.training.loss_scale = settings.loss_scale;
  plan.module = std::move(module);
  plan.module.model.calls.back().part = plan.module.model.calls.back().stage =
      settings.num_stages - 1;
  PassContext context = ContextOf(settings.mesh, {{"batch", "dp"}, {"deep", "tp"}});
  context.loss_scale = settings.loss_scale;
  if (settings.mode == PlanMode::kTrain) {
    EXPECT_TRUE(Differentiate(context, &plan.module).ok());
  }
  EXPECT_TRUE(PropagateLayouts(context, &plan.module).ok());
  return plan;
}

LogicalPlan Built(const Settings& settings, Module module = SmallClassifier()) {
  LogicalPlan plan = PlanOf(std::move(module), settings);
  const PassContext context = ContextOf(settings.mesh, {{"batch", "dp"}, {"deep", "tp"}});
  Apply([&](const PassContext& facts, Module*) { return BuildProgram(facts.rules, &plan); },
        context, &plan.module);
  return plan;
}

std::string FlawOf(Module module, const Settings& settings) {
  LogicalPlan plan = PlanOf(std::move(module), settings);
  const absl::Status status = BuildProgram(LayoutRules(), &plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::vector<std::string> NamesOf(const Module& module, ItemKind kind) {
  std::vector<std::string> names;
  for (const ProgramItem& item : module.items) {
    if (item.kind == kind) names.push_back(item.name);
  }
  return names;
}

std::string KindOf(const sbp::Sbp& sbp) {
  return sbp.is_split() ? "S" : sbp.is_partial() ? "P" : "B";
}

// Returns how many boxings of matrices over dp the program has, by kind and rate: "P>B step".
std::map<std::string, int> MovesOfMatrices(const Module& module) {
  std::map<std::string, int> moves;
  for (const ProgramItem& item : module.items) {
    if (item.kind != ItemKind::kBoxing) continue;
    const ProgramValue &from = module.values[item.inputs[0]], &to = module.values[item.outputs[0]];
    if (from.type.dims.size() != 2 || from.stage != to.stage) continue;
    const char* const rates[] = {"micro-batch", "step", "update", "after update"};
    ++moves[absl::StrCat(KindOf(from.layout[0]), ">", KindOf(to.layout[0]), " ",
                         rates[static_cast<int>(item.frequency)])];
  }
  return moves;
}

using Moves = std::map<std::string, int>;

TEST(BuildProgram, ALossScaleThatAdaptsIsAVariableThatTheLossReads) {
  const LogicalPlan plan = Built({.num_stages = 2, .loss_scale = LossScaleSettings{}});
  const Module& module = plan.module;
  const auto factor = std::find_if(module.variables.begin(), module.variables.end(),
                                   [](const Variable& v) { return v.slot_of == "loss_scale"; });
  ASSERT_NE(factor, module.variables.end());
  EXPECT_EQ(factor->name, "loss_scale/factor");
  EXPECT_EQ(factor->stage, 0);
  EXPECT_THAT(NamesOf(module, ItemKind::kCall), Contains("loss seed"));
  EXPECT_THAT(NamesOf(module, ItemKind::kCall), Contains("loss scale"));
  EXPECT_THAT(NamesOf(module, ItemKind::kSink), Contains("report loss_scale"));
  int seed = -1;
  bool is_read = false;
  for (const ProgramItem& item : module.items) {
    if (item.name == "loss seed") {
      seed = item.outputs[0];
      EXPECT_EQ(module.values[seed].stage, 1) << "the stage of the loss";
      EXPECT_NE(item.inputs[0], factor->value) << "boxed to that stage";
    }
    if (item.name == "loss scale") {
      EXPECT_EQ(item.outputs, std::vector<int>{factor->value});
    }
    if (item.name == "clip") {
      ASSERT_EQ(item.inputs.size(), 3u);
      EXPECT_EQ(item.inputs[1], factor->value);
      EXPECT_EQ(module.values[item.inputs[2]].name, "update_loss");
      EXPECT_EQ(module.values[item.inputs[2]].stage, 0);
    }
    if (item.phase == PhaseKind::kBackward)
      is_read = is_read || std::count(item.inputs.begin(), item.inputs.end(), seed) > 0;
  }
  EXPECT_TRUE(is_read);
}

TEST(BuildProgram, ALossScaleThatStaysAddsNothingToTheProgram) {
  const LogicalPlan without = Built({}),
                    with = Built({.loss_scale = LossScaleSettings{.adapts = false, .factor = 8}});
  EXPECT_EQ(with.module.items.size(), without.module.items.size());
  EXPECT_EQ(with.module.variables.size(), without.module.variables.size());
}

// The table of build_program.h, for the five weights of the classifier.
TEST(BuildProgram, ZeroStagesDifferInWhereAndHowOftenWeightsAndGradientsAreBoxed) {
  const auto moves = [](int zero_stage) {
    return MovesOfMatrices(Built({.zero_stage = zero_stage}).module);
  };
  EXPECT_EQ(moves(0), (Moves{{"P>B step", 5}}));
  EXPECT_EQ(moves(1), (Moves{{"P>S step", 5}, {"S>B step", 5}}));
  EXPECT_EQ(moves(2), (Moves{{"P>S micro-batch", 5}, {"S>B step", 5}}));
  // Forward and backward each gather the weights that they read.
  EXPECT_EQ(moves(3), (Moves{{"P>S micro-batch", 5}, {"S>B micro-batch", 10}}));
}

TEST(BuildProgram, WithUpdatesInEveryThirdStepGradientsMoveOnceAnUpdate) {
  EXPECT_EQ(MovesOfMatrices(Built({.zero_stage = 0, .update_every = 3}).module),
            (Moves{{"P>B update", 5}}));
  EXPECT_EQ(MovesOfMatrices(Built({.zero_stage = 1, .update_every = 3}).module),
            (Moves{{"P>S update", 5}, {"S>B after update", 5}}));
}

TEST(BuildProgram, AWeightLiesSplitFromZeroStageOneOn) {
  for (int zero_stage : {0, 1, 2, 3}) {
    const Module module = Built({.zero_stage = zero_stage}).module;
    std::vector<std::string> names;
    for (const Variable& variable : module.variables) {
      names.push_back(variable.name);
      EXPECT_EQ(KindOf(variable.layout[0]), zero_stage == 0 ? "B" : "S") << variable.name;
      EXPECT_EQ(module.values[variable.value].layout, variable.layout);
    }
    EXPECT_THAT(names, ElementsAre("layers.0.w", "layers.0.v", "layers.1.w", "layers.1.v", "out"));
  }
}

TEST(BuildProgram, ForwardPassesComeInOrderAndBackwardPassesInReverse) {
  const std::vector<std::string> calls = NamesOf(Built({}).module, ItemKind::kCall);
  const std::vector<std::string> expected = {
      "forward layers.0", "forward layers.1",  "forward main.1",    "metric loss",
      "backward main.1",  "backward layers.1", "backward layers.0", "norm main.1",
      "norm layers.1",    "norm layers.0",     "norm so far",       "clip",
      "update layers.0",  "update layers.1",   "update main.1"};
  EXPECT_EQ(calls, expected);
}

// Walks through the program of many settings and looks at each item by itself.
TEST(BuildProgram, EveryItemReadsWhatIsThereInTheLayoutItsFunctionExpects) {
  for (const char* mesh : {"dp=2", "tp=2", "dp=2,tp=2"}) {
    for (int zero_stage : {0, 1, 2, 3}) {
      for (int64_t stages : {1, 2}) {
        for (int64_t every : {1, 2}) {
          SCOPED_TRACE(
              absl::StrCat(mesh, ", ZeRO ", zero_stage, ", ", stages, " stages, every ", every));
          const Module module = Built({.mesh = mesh,
                                       .zero_stage = zero_stage,
                                       .update_every = every,
                                       .num_stages = stages})
                                    .module;
          std::set<int> there, made;
          for (const Variable& variable : module.variables) there.insert(variable.value);
          for (const ProgramItem& item : module.items) {
            SCOPED_TRACE(item.name);
            for (int input : item.inputs) EXPECT_TRUE(input < 0 || there.count(input) > 0);
            for (int output : item.outputs) EXPECT_TRUE(made.insert(output).second) << "made twice";
            there.insert(item.outputs.begin(), item.outputs.end());
            if (item.kind != ItemKind::kCall) continue;
            const Function& function = module.functions[item.function];
            ASSERT_EQ(item.inputs.size(), function.args.size());
            ASSERT_EQ(item.outputs.size(), function.results.size());
            const auto same = [&](int value, ops::ValueId in_function) {
              const ProgramValue& outside = module.values[value];
              const Value& inside = function.values[in_function];
              return outside.layout == inside.layout && outside.type == inside.type;
            };
            for (size_t i = 0; i < item.inputs.size(); ++i)
              EXPECT_TRUE(item.inputs[i] < 0 || same(item.inputs[i], function.args[i].value)) << i;
            for (size_t i = 0; i < item.outputs.size(); ++i)
              EXPECT_TRUE(same(item.outputs[i], function.results[i].value)) << i;
          }
          for (const Variable& variable : module.variables)
            EXPECT_TRUE(made.count(variable.value) > 0) << variable.name << " is never updated";
        }
      }
    }
  }
}

TEST(BuildProgram, BetweenStagesActivationsGoForwardAndGradientsBack) {
  const Module module = Built({.num_stages = 2}).module;
  std::vector<std::string> crossings;
  for (const ProgramItem& item : module.items) {
    if (item.kind != ItemKind::kBoxing) continue;
    const ProgramValue &from = module.values[item.inputs[0]], &to = module.values[item.outputs[0]];
    if (from.stage == to.stage || from.type.dims.empty()) continue;
    crossings.push_back(absl::StrCat(from.name, " from ", from.stage, " to ", to.stage));
  }
  EXPECT_THAT(crossings, ElementsAre("layers.1.y from 0 to 1", "main.1.d_z from 1 to 0"));
  // Data is fed on the stage that reads it.
  std::map<std::string, int64_t> fed;
  for (const ProgramItem& item : module.items) {
    if (item.kind == ItemKind::kSource) fed[item.feed] = module.values[item.outputs[0]].stage;
  }
  EXPECT_EQ(fed, (std::map<std::string, int64_t>{{"x", 0}, {"labels", 1}}));
}

TEST(BuildProgram, OneMicroBatchNeedsNoAccumulation) {
  for (int64_t micro_batches : {1, 2}) {
    const Module module = Built({.micro_batches = micro_batches}).module;
    int64_t accumulations = 0;
    for (const Function& function : module.functions) {
      for (const Node& node : function.nodes) accumulations += node.op == "accumulate";
    }
    // The weights of two functions, and the metric.
    EXPECT_EQ(accumulations, micro_batches == 1 ? 0 : 4);
  }
}

// Two calls read the result of layers.0, and none reads the result of `spare`.
TEST(BuildProgram, GradientsOfAValueAreSummedOverItsReaders) {
  FunctionMaker split("split"), end("main.1");
  const ops::ValueId x = split.Input("x", "f32[batch, wide]");
  const ops::ValueId w = split.Parameter("w", "f32[wide, wide]");
  const ops::ValueId h = split.Node("h", "matmul", {x, w});
  split.Return(h);
  split.Return(split.Node("spare", "relu", {h}));
  const ops::ValueId a = end.Input("a", "f32[batch, wide]"), b = end.Input("b", "f32[batch, wide]");
  end.Return(end.Node("loss", "reduce_mean", {end.Node("s", "add", {a, b})}));
  ModelMaker maker;
  const int data = maker.Data("x", "f32[batch, wide]");
  const int splits = maker.Add(split.function), ends = maker.Add(end.function);
  const std::vector<int> first = maker.Call("layers.0", splits, {data});
  const std::vector<int> second = maker.Call("layers.1", splits, {first[0]});
  const std::vector<int> third = maker.Call("layers.2", splits, {second[1]});
  maker.module.model.loss = maker.Call("main.1", ends, {first[0], third[0]})[0];
  LogicalPlan plan = PlanOf(std::move(maker.module), {});
  ASSERT_TRUE(BuildProgram(LayoutRules(), &plan).ok());
  const std::vector<std::string> calls = NamesOf(plan.module, ItemKind::kCall);
  EXPECT_THAT(calls, Contains("sum d_layers.0.h"));
  EXPECT_THAT(calls, Contains("sum d_layers.2.spare")) << "zeros, as nobody reads the result";
}

TEST(BuildProgram, EvaluationKeepsWeightsWhereTrainingHasThemAndReportsMetrics) {
  const Module module = Built({.zero_stage = 1, .mode = PlanMode::kEvaluate}).module;
  EXPECT_THAT(NamesOf(module, ItemKind::kCall),
              ElementsAre("forward layers.0", "forward layers.1", "forward main.1", "metric loss"));
  EXPECT_THAT(NamesOf(module, ItemKind::kKeep),
              ElementsAre("weights layers.0", "weights layers.1", "weights main.1"));
  EXPECT_THAT(NamesOf(module, ItemKind::kSink), ElementsAre("report loss"));
  EXPECT_EQ(KindOf(module.variables[0].layout[0]), "S");
}

TEST(BuildProgram, GenerationFetchesWholeLogits) {
  Module module = SmallClassifier();
  FunctionMaker end("main.1");
  const ops::ValueId z = end.Input("z", "f32[batch, wide]");
  const ops::ValueId out = end.Parameter("out", "f32[wide, classes]");
  end.Return(end.Node("logits", "matmul", {z, out}));
  module.functions[1] = end.function;
  module.model.calls[2].args.resize(1);
  module.model.values[module.model.loss].type = TypeOf("f32[batch, classes]");
  module.model.logits = module.model.loss;
  LogicalPlan plan = PlanOf(std::move(module), {.mode = PlanMode::kGenerate});
  ASSERT_TRUE(BuildProgram(LayoutRules(), &plan).ok());
  const ProgramItem& last = plan.module.items.back();
  EXPECT_EQ(last.name, "fetch logits");
  ASSERT_EQ(last.states.size(), 1);
  EXPECT_EQ(last.states[0].name, "fetch/logits");
  EXPECT_EQ(last.states[0].weight, "") << "no optimiser keeps the state";
  EXPECT_EQ(ToText(plan.module.values[last.inputs[0]].layout, plan.stage_mesh), "[dp: B]");
  EXPECT_THAT(NamesOf(plan.module, ItemKind::kSink), IsEmpty());
}

TEST(BuildProgram, GenerationWithoutLogitsIsRefused) {
  EXPECT_THAT(FlawOf(SmallClassifier(), {.mode = PlanMode::kGenerate}),
              HasSubstr("W0474 at graph"));
}

TEST(BuildProgram, TwoWeightsOfOneNameAreRefused) {
  Module module = SmallClassifier();
  module.model.weights[2].name = module.model.weights[0].name;
  EXPECT_THAT(FlawOf(module, {}), HasSubstr("W0473 at call layers.1"));
}

TEST(BuildProgram, WeightsOfTwoCallsAreUpdatedOnceWithTheSumOfTheirGradients) {
  Module shared = SmallClassifier();
  shared.model.calls[1].weights = shared.model.calls[0].weights;
  shared.model.weights.erase(shared.model.weights.begin() + 2, shared.model.weights.begin() + 4);
  shared.model.calls[2].weights = {2};
  const Module module = Built({}, std::move(shared)).module;
  EXPECT_EQ(module.variables.size(), 3u);
  EXPECT_THAT(NamesOf(module, ItemKind::kCall),
              ElementsAre("forward layers.0", "forward layers.1", "forward main.1", "metric loss",
                          "backward main.1", "backward layers.1", "backward layers.0",
                          "d_layers.0.w", "d_layers.0.v", "norm main.1", "norm layers.0",
                          "norm so far", "clip", "update layers.0", "update main.1"));
}

TEST(BuildProgram, FrozenWeightsAreKept) {
  Module frozen = SmallClassifier();
  frozen.functions[frozen.model.functions[0].forward].parameters[0].frozen = true;
  frozen.model.weights[0].frozen = frozen.model.weights[2].frozen = true;
  const Module module = Built({}, std::move(frozen)).module;
  EXPECT_EQ(module.variables.size(), 5u);
  EXPECT_THAT(NamesOf(module, ItemKind::kKeep),
              ElementsAre("weights layers.0", "weights layers.1"));
  for (const ProgramItem& item : module.items) {
    if (item.name == "update layers.0") {
      EXPECT_THAT(item.outputs, ElementsAre(module.variables[1].value));
    }
  }
}

// Returns the names of the states of all items.
std::vector<std::string> StatesOf(const Module& module) {
  std::vector<std::string> names;
  for (const ProgramItem& item : module.items) {
    for (const ItemState& state : item.states) names.push_back(state.name);
  }
  return names;
}

// Built verifies that each op of an update has a legal signature.
TEST(BuildProgram, EveryOptimizerHasALegalUpdateInEveryLayout) {
  const std::vector<std::pair<OptimizerSettings, std::vector<std::string>>> optimizers = {
      {AdamWSettings(), {"adam_m", "adam_v"}},
      {SgdSettings{0.9, 0}, {"momentum"}},
      {LionSettings(), {"lion_momentum"}},
      {LambSettings(), {"lamb_m", "lamb_v"}},
      {AdafactorSettings(), {"adafactor_rows", "adafactor_columns"}},
      {MuonSettings(), {"muon_momentum"}},
  };
  for (const auto& [optimizer, states] : optimizers) {
    for (const char* mesh : {"dp=2", "tp=2", "dp=2,tp=2"}) {
      for (int zero_stage : {0, 1, 2, 3}) {
        for (int64_t every : {1, 2}) {
          SCOPED_TRACE(absl::StrCat(states[0], " on ", mesh, ", ZeRO ", zero_stage));
          const Module module = Built({.mesh = mesh,
                                       .zero_stage = zero_stage,
                                       .update_every = every,
                                       .optimizer = optimizer,
                                       .average_decay = 0.9})
                                    .module;
          std::vector<std::string> expected;
          for (const char* call : {"layers.0.w layers.0.v", "layers.1.w layers.1.v", "out"}) {
            const std::vector<std::string> weights = absl::StrSplit(call, ' ');
            for (const std::string& weight : weights) {
              for (const std::string& state : states)
                expected.push_back(absl::StrCat(weight, "/", state));
            }
            for (const std::string& weight : weights)
              expected.push_back(absl::StrCat(weight, "/average"));
          }
          EXPECT_EQ(StatesOf(module), expected);
        }
      }
    }
  }
}

// Returns a model whose weights have more than two dimensions: a wide matrix if flattened, a tall
// one, and one whose second dimension has one element.
Module ModelOfThickWeights() {
  FunctionMaker last("last");
  const ops::ValueId x = last.Input("x", "f32[batch, deep]");
  ops::ValueId sum = last.Node("of_x", "reduce_mean", {x});
  for (const char* type :
       {"f32[wide, deep, rows]", "f32[deep, one=1/1, wide]", "f32[heads, two=2/1, one=1/1]",
        "f32[wide, one=1/1, one=1/1]", "f32[one=1/1, one=1/1, one=1/1]"}) {
    const std::string name = absl::StrCat("k", last.function.parameters.size());
    const ops::ValueId weight = last.Parameter(name, type);
    const ops::ValueId square = last.Node(name + "_square", "mul", {weight, weight});
    sum =
        last.Node(name + "_sum", "add", {sum, last.Node(name + "_mean", "reduce_mean", {square})});
  }
  last.Return(sum);
  ModelMaker maker;
  const int data = maker.Data("x", "f32[batch, deep]");
  maker.module.model.loss = maker.Call("last", maker.Add(last.function), {data})[0];
  maker.module.model.metrics = {{"loss", maker.module.model.loss}};
  return std::move(maker.module);
}

// Built verifies that each op has a legal signature, whatever dimension of a weight is split.
TEST(BuildProgram, MuonTakesThickWeightsForMatricesInEveryLayoutIfItFlattens) {
  for (const char* mesh : {"dp=2", "tp=2", "dp=2,tp=2"}) {
    for (const int zero_stage : {0, 1, 3}) {
      for (const bool flattens : {false, true}) {
        SCOPED_TRACE(absl::StrCat(mesh, ", ZeRO ", zero_stage, flattens ? ", flattened" : ""));
        MuonSettings muon;
        muon.flattens = flattens;
        const Module module = Built({.mesh = mesh, .zero_stage = zero_stage, .optimizer = muon},
                                    ModelOfThickWeights())
                                  .module;
        int reshapes = 0, directions = 0;
        for (const Function& function : module.functions) {
          for (const Node& node : function.nodes) {
            reshapes += node.op == "reshape";
            directions += node.op == "momentum_direction";
          }
        }
        EXPECT_EQ(directions, flattens ? 5 : 0);
        EXPECT_EQ(reshapes, 2 * directions) << "to a matrix and back";
      }
    }
  }
}

TEST(BuildProgram, AGroupHasARateADecayAndAnOptimizerOfItsOwn) {
  Module module = SmallClassifier();
  module.model.weights[0].group = 0;  // layers.0.w
  GroupSettings group;
  group.rate = 0.5;
  group.weight_decay = 0.25;
  group.optimizer = LionSettings();
  const Module built = Built({.groups = {group}}, std::move(module)).module;
  EXPECT_THAT(StatesOf(built), ElementsAre("layers.0.w/lion_momentum"));
  int lions = 0;
  for (const Function& function : built.functions) {
    for (const Node& node : function.nodes) {
      if (node.op != "lion") continue;
      ++lions;
      EXPECT_EQ(node.attrs.Real("learning_rate"), 0.05);
      EXPECT_EQ(node.attrs.Real("weight_decay"), 0.25);
    }
  }
  EXPECT_EQ(lions, 1) << "layers.1 has another update";
}

TEST(BuildProgram, AWeightThatIsFrozenInOneCallAloneHasNoUpdate) {
  Module module = SmallClassifier();
  module.model.weights[0].frozen = true;
  const Module built = Built({.optimizer = LionSettings()}, std::move(module)).module;
  EXPECT_THAT(StatesOf(built), ElementsAre("layers.0.v/lion_momentum", "layers.1.w/lion_momentum",
                                           "layers.1.v/lion_momentum", "out/lion_momentum"));
}

TEST(BuildProgram, AParameterWithoutAGradientIsRefused) {
  FunctionMaker metric("metric");
  const ops::ValueId x = metric.Input("x", "f32[batch, wide]");
  const ops::ValueId w = metric.Parameter("w", "f32[wide, wide]");
  metric.Return(metric.Node("size", "reduce_mean", {metric.Node("h", "matmul", {x, w})}));
  for (bool unread : {false, true}) {
    ModelMaker maker;
    maker.module = SmallClassifier();
    const int layer_result = maker.module.model.calls[1].results[0];
    FunctionMaker function = metric;
    if (unread) {
      function.function.nodes.clear();
      function.function.results.clear();
      function.Return(function.Node("total", "reduce_mean", {x}));
    }
    maker.Call("metric", maker.Add(function.function), {layer_result});
    EXPECT_THAT(FlawOf(std::move(maker.module), {}),
                ::testing::AllOf(HasSubstr("W0475 at function metric, parameter w"),
                                 HasSubstr(unread ? "one that no output depends on"
                                                  : "one that only other outputs depend on")));
  }
}

}  // namespace
}  // namespace weir::compiler
