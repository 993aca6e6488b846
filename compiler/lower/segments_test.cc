#include "compiler/lower/segments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/transfer/transfer_lowering.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SegmentedFunction Cut(const Function& function, const sbp::Mesh& mesh) {
  absl::StatusOr<SegmentedFunction> cut = CutSegments(function, sbp::PipelinePlaces(mesh));
  EXPECT_TRUE(cut.ok()) << cut.status();
  return cut.value_or(SegmentedFunction());
}

// Adds a boxing of `value` to `layout`.
ops::ValueId Box(ops::ValueId value, const std::string& name, const sbp::Layout& layout,
                 FunctionMaker* maker) {
  const ops::ValueId boxed = maker->Node(name, kBoxingOp, {value});
  maker->function.values[boxed].layout = layout;
  return boxed;
}

ops::ValueId Relu(ops::ValueId value, const std::string& name, FunctionMaker* maker) {
  const ops::ValueId y = maker->Node(name, "relu", {value});
  maker->function.values[y].layout = maker->function.values[value].layout;
  return y;
}

class SegmentsTest : public ::testing::Test {
 protected:
  SegmentsTest() { maker_.function.values[x_].layout = {sbp::Sbp::S(0)}; }

  const sbp::Mesh mesh_ = MeshOf("tp=2");
  const sbp::Layout whole_ = {sbp::Sbp::B()}, split_ = {sbp::Sbp::S(0)};
  FunctionMaker maker_{"f"};
  const ops::ValueId x_ = maker_.Input("x", "f32[batch, wide]");
};

TEST_F(SegmentsTest, WithoutTransfersAFunctionIsOneSegment) {
  Relu(Relu(x_, "a", &maker_), "b", &maker_);
  const SegmentedFunction cut = Cut(maker_.function, mesh_);
  EXPECT_THAT(cut.segments, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(cut.transfers, IsEmpty());
}

TEST_F(SegmentsTest, ATransferSeparatesSegmentsAndASliceDoesNot) {
  const ops::ValueId a = Relu(x_, "a", &maker_);                            // node 0
  const ops::ValueId gathered = Box(a, "gathered", whole_, &maker_);        // 1
  const ops::ValueId b = Relu(gathered, "b", &maker_);                      // 2
  const ops::ValueId sliced = Box(b, "sliced", {sbp::Sbp::S(1)}, &maker_);  // 3
  Relu(sliced, "c", &maker_);                                               // 4
  const SegmentedFunction cut = Cut(maker_.function, mesh_);
  EXPECT_THAT(cut.segments, ElementsAre(ElementsAre(0), ElementsAre(2, 3, 4)));
  ASSERT_EQ(cut.transfers.size(), 1u);
  EXPECT_EQ(cut.transfers[0].depth, 0);
  EXPECT_THAT(cut.transfers[0].nodes, ElementsAre(1));
  ASSERT_EQ(cut.local_boxings.count(3), 1u);
  EXPECT_TRUE(IsLocal(cut.local_boxings.at(3)));
}

TEST_F(SegmentsTest, TransfersAtOneDepthTravelTogetherUnlessTheirElementsDiffer) {
  const ops::ValueId ids = maker_.Input("ids", "i32[batch]");
  maker_.function.values[ids].layout = split_;
  const ops::ValueId a = Relu(x_, "a", &maker_);
  const ops::ValueId one = Box(a, "one", whole_, &maker_);          // node 1
  Box(x_, "two", {sbp::Sbp::S(1)}, &maker_);                        // 2: one step, like `one`
  Box(ids, "three", whole_, &maker_);                               // 3: integers
  const ops::ValueId later = Relu(one, "later", &maker_);           // 4
  const ops::ValueId again = Box(later, "again", split_, &maker_);  // 5: local
  Box(again, "four", whole_, &maker_);                              // 6: a depth further
  const SegmentedFunction cut = Cut(maker_.function, mesh_);
  std::vector<std::vector<int>> bundles;
  std::vector<int> depths;
  for (const TransferBundle& bundle : cut.transfers) {
    bundles.push_back(bundle.nodes);
    depths.push_back(bundle.depth);
    EXPECT_EQ(bundle.moved.steps().size(), bundle.nodes.size());
  }
  EXPECT_THAT(bundles, ElementsAre(ElementsAre(1, 2), ElementsAre(3), ElementsAre(6)));
  EXPECT_THAT(depths, ElementsAre(0, 0, 1));
}

TEST_F(SegmentsTest, ATransferOfEarlyDataThatStandsLateComesFirst) {
  const ops::ValueId one = Box(Relu(x_, "a", &maker_), "one", whole_, &maker_);  // node 1
  const ops::ValueId b = Box(Relu(one, "b", &maker_), "b2", split_, &maker_);    // 3: local
  Box(b, "two", whole_, &maker_);                                                // 4: depth 1
  const ops::ValueId ids = maker_.Input("ids", "i32[batch]");
  maker_.function.values[ids].layout = split_;
  Box(ids, "late", whole_, &maker_);  // 5: depth 0
  const SegmentedFunction cut = Cut(maker_.function, mesh_);
  std::vector<std::vector<int>> bundles;
  for (const TransferBundle& bundle : cut.transfers) bundles.push_back(bundle.nodes);
  EXPECT_THAT(bundles, ElementsAre(ElementsAre(1), ElementsAre(5), ElementsAre(4)));
}

TEST_F(SegmentsTest, AnImpossibleBoxingIsAnError) {
  maker_.function.values[x_].layout = {sbp::Sbp::P()};
  Box(x_, "y", {sbp::Sbp::P(Combiner::kMax)}, &maker_);
  EXPECT_EQ(CutSegments(maker_.function, sbp::PipelinePlaces(mesh_)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// In functions laid out by random rules: each node is at one place, and after all that it reads.
TEST(Segments, EveryNodeStandsAfterWhatItReads) {
  const std::vector<std::string> dims = {"batch", "wide", "deep", "classes"};
  size_t num_transfers = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    uint64_t n = 0;
    const auto below = [&](size_t limit) {
      return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    Pairs rules;
    for (size_t i = 1 + below(4); i > 0; --i)
      rules.push_back({dims[below(4)], below(2) ? "dp" : "tp"});
    const PassContext context = ContextOf("dp=2,tp=2", rules);
    Module module = SmallClassifier();
    ASSERT_TRUE(Differentiate(context, &module).ok());
    ASSERT_TRUE(PropagateLayouts(context, &module).ok());
    for (const Function& function : module.functions) {
      const SegmentedFunction cut = Cut(function, context.stage_mesh);
      // A node of segment d acts at time 2 d, and a transfer after segment d at time 2 d + 1.
      std::vector<int> time(function.nodes.size(), -1);
      for (size_t d = 0; d < cut.segments.size(); ++d) {
        for (int node : cut.segments[d]) {
          EXPECT_EQ(time[node], -1) << "at two places";
          time[node] = static_cast<int>(2 * d);
        }
      }
      for (const TransferBundle& bundle : cut.transfers) {
        for (int node : bundle.nodes) {
          EXPECT_EQ(time[node], -1) << "at two places";
          time[node] = 2 * bundle.depth + 1;
          ++num_transfers;
        }
      }
      for (size_t i = 0; i < function.nodes.size(); ++i) {
        ASSERT_GE(time[i], 0) << "nowhere";
        for (ops::ValueId input : function.nodes[i].inputs) {
          const int producer = function.ProducerOf(input);
          if (producer < 0) continue;
          const bool apart = time[i] % 2 == 1 && time[producer] % 2 == 1;
          EXPECT_GE(time[i], time[producer] + (apart ? 1 : 0))
              << "seed " << seed << ", " << function.nodes[i].name;
        }
      }
    }
  }
  EXPECT_GT(num_transfers, 50u);
}

class ShareReshapesTest : public SegmentsTest {
 protected:
  ops::ValueId Reshape(ops::ValueId value, const std::string& name) {
    return maker_.Node(name, "reshape", {value}, {{"to", std::string("wide, batch")}});
  }

  std::map<ops::ValueId, ops::ValueId> Share(const std::vector<ops::ValueId>& outside) {
    std::vector<int> tensor_of(maker_.function.values.size(), -1), nodes;
    for (ops::ValueId value : outside) tensor_of[value] = value;
    for (size_t n = 0; n < maker_.function.nodes.size(); ++n) nodes.push_back(static_cast<int>(n));
    return ShareReshapes(maker_.function, {}, nodes, tensor_of);
  }
};

TEST_F(ShareReshapesTest, AChainLiesWhereItsMemberOutsideLies) {
  const ops::ValueId a = Relu(x_, "a", &maker_);
  const ops::ValueId b = Reshape(a, "b"), c = Reshape(b, "c");
  const std::map<ops::ValueId, ops::ValueId> from_outside = Share({a}), to_outside = Share({c});
  EXPECT_EQ(from_outside.at(b), a);
  EXPECT_EQ(from_outside.at(c), a);
  EXPECT_EQ(to_outside.at(a), c);
  EXPECT_EQ(to_outside.at(b), c);
}

TEST_F(ShareReshapesTest, BetweenTwoPlacesOutsideAReshapeCopies) {
  const ops::ValueId a = Relu(x_, "a", &maker_);
  const ops::ValueId b = Reshape(a, "b");
  EXPECT_EQ(Share({a, b}).count(b), 0u);
  EXPECT_EQ(Share({a, b}).count(a), 0u);
}

TEST_F(ShareReshapesTest, OtherNodesShareNothing) {
  const ops::ValueId a = Relu(x_, "a", &maker_);
  Relu(a, "b", &maker_);
  EXPECT_THAT(Share({}), IsEmpty());
}

}  // namespace
}  // namespace weir::compiler
