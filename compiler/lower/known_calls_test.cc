#include "compiler/lower/known_calls.h"

#include <algorithm>

#include "compiler/compile.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/testing/small_job.h"
#include "compiler/transfer/transfer_lowering.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

class KnownCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(SmallJob("pp=2,dp=2", 4, 2), {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
  }

  RankGraph GraphOf(RankId rank, KnownCalls* known) const {
    TransferFactory transfers(plan_->settings.runtime);
    return GraphOf(rank, known, &transfers);
  }

  RankGraph GraphOf(RankId rank, KnownCalls* known, TransferFactory* transfers) const {
    absl::StatusOr<RankGraph> graph = LowerToRankGraph(*plan_, rank, known, transfers);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.value_or(RankGraph());
  }

  // Returns the number of actors that run the same object in both graphs.
  static int NumShared(const RankGraph& a, const RankGraph& b) {
    EXPECT_EQ(a.actors.size(), b.actors.size());
    int shared = 0;
    for (auto of_a = a.actors.begin(), of_b = b.actors.begin();
         of_a != a.actors.end() && of_b != b.actors.end(); ++of_a, ++of_b) {
      if (of_a->chain != nullptr && of_a->chain == of_b->chain) ++shared;
    }
    return shared;
  }

  static const RankActor& ActorOf(const RankGraph& graph, const std::string& name) {
    const auto found = std::find_if(graph.actors.begin(), graph.actors.end(),
                                    [&](const RankActor& actor) { return actor.name == name; });
    EXPECT_NE(found, graph.actors.end()) << name;
    return found == graph.actors.end() ? *graph.actors.begin() : *found;
  }

  std::unique_ptr<LogicalPlan> plan_;
};

TEST_F(KnownCallsTest, CallsOfOneFunctionShareTheirKernels) {
  KnownCalls known;
  const RankGraph graph = GraphOf(RankId(0), &known);
  const RankActor &first = ActorOf(graph, "backward layers.0"),
                  &second = ActorOf(graph, "backward layers.1");
  ASSERT_NE(first.chain, nullptr);
  EXPECT_EQ(first.chain, second.chain);
  EXPECT_NE(first.operands, second.operands);
}

TEST_F(KnownCallsTest, RanksOfOneNumberInTheirStagesShareTheirKernels) {
  KnownCalls known;
  const sbp::Places& places = plan_->places;
  const RankGraph here = GraphOf(places.RankAt(0, 1), &known),
                  there = GraphOf(places.RankAt(1, 1), &known);
  EXPECT_EQ(ActorOf(here, "backward layers.1").chain, ActorOf(there, "backward layers.2").chain);
}

TEST_F(KnownCallsTest, GraphsOfOneFactoryShareWhatItKnowsOfTransfers) {
  TransferFactory transfers(plan_->settings.runtime);
  KnownCalls of_first, of_second, of_third;
  const RankGraph first = GraphOf(RankId(0), &of_first, &transfers),
                  second = GraphOf(RankId(0), &of_second, &transfers),
                  third = GraphOf(RankId(0), &of_third);
  EXPECT_GT(NumShared(first, second), 0);
  EXPECT_EQ(NumShared(first, third), 0);
}

TEST_F(KnownCallsTest, ValuesInOneTensorAreOneOperand) {
  RankBuilder builder(*plan_, RankId(0));
  KnownCalls known;
  const int function = plan_->module.model.functions[0].forward;
  absl::StatusOr<const KnownCalls::KnownFunction*> body = known.FunctionOf(function, builder);
  ASSERT_TRUE(body.ok()) << body.status();
  const Function& layer = plan_->module.functions[function];
  std::vector<TensorId> tensor_of(layer.values.size());
  for (size_t a = 0; a < layer.args.size(); ++a)
    tensor_of[layer.args[a].value] = TensorId(10 + static_cast<int>(a));
  const auto chain_of = [&](std::vector<TensorId>* operands) {
    return known.ChainOf(function, 0, tensor_of, builder, operands).kernels;
  };
  std::vector<TensorId> apart, moved, joined;
  const auto other = [](TensorId tensor) { return TensorId(tensor.value() + 100); };
  const auto kernels = chain_of(&apart);
  EXPECT_EQ(apart.size(), layer.args.size());
  for (TensorId& tensor : tensor_of) {
    if (tensor.has_value()) tensor = other(tensor);
  }
  EXPECT_EQ(chain_of(&moved), kernels) << "the same kernels on other tensors";
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_EQ(moved[i], other(apart[i]));
  tensor_of[layer.args[1].value] = tensor_of[layer.args[0].value];
  EXPECT_NE(chain_of(&joined), kernels);
  EXPECT_EQ(joined.size(), layer.args.size() - 1);
  const ops::ValueId leaves = (*body)->outputs[0].back();
  tensor_of[leaves] = TensorId(500);
  std::vector<TensorId> with_output;
  EXPECT_NE(chain_of(&with_output), kernels);
  EXPECT_EQ(std::count(with_output.begin(), with_output.end(), TensorId(500)), 1);
}

}  // namespace
}  // namespace weir::compiler
