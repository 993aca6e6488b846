#include "compiler/lower/check_sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/plan_limits.h"

namespace weir::compiler {
namespace {

using plan_limits::kActsPerStepMax;
using plan_limits::kBytesMax;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A rank 7 with one actor and a register of `bytes`.
RankGraph GraphOf(int64_t bytes) {
  RankGraph graph;
  graph.rank = RankId(7);
  RankActor actor;
  actor.name = "forward";
  graph.actors = {actor};
  RankTensor tensor;
  tensor.bytes = bytes;
  tensor.producer = ActorId(0);
  graph.tensors = {tensor};
  return graph;
}

std::string FlawOf(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CheckSizes, RegistersFitUpToTheLimitOfAPlan) {
  EXPECT_EQ(FlawOf(CheckSizes(GraphOf(kBytesMax))), "");
  EXPECT_THAT(FlawOf(CheckSizes(GraphOf(kBytesMax + 1))),
              AllOf(HasSubstr("W0480 at rank 7"), HasSubstr("fewer register slots")));
}

TEST(CheckSizes, RegistersThatOverflowTogetherAreRefused) {
  RankGraph graph = GraphOf(std::numeric_limits<int64_t>::max());
  graph.tensors.resize(4, graph.tensors.back());
  EXPECT_THAT(FlawOf(CheckSizes(graph)), HasSubstr("W0480"));
}

TEST(CheckSizes, ATensorThatNoActorHereMakesTakesNoMemory) {
  RankGraph graph = GraphOf(kBytesMax + 1);
  graph.tensors[TensorId(0)].producer = ActorId();
  EXPECT_EQ(FlawOf(CheckSizes(graph)), "");
  graph.tensors[TensorId(0)].side = proto::RegisterSpec::INBOUND;
  EXPECT_THAT(FlawOf(CheckSizes(graph)), HasSubstr("W0480")) << "its landing buffer does";
}

// Scratch blocks of different actors share memory; those of one actor do not.
TEST(CheckSizes, OfScratchTheFullestActorCounts) {
  RankGraph graph = GraphOf(0);
  graph.actors[ActorId(0)].chain = MakeChain({{}, {kBytesMax / 2, kBytesMax / 2}, {}, false});
  graph.actors.push_back(graph.actors.back());
  EXPECT_EQ(FlawOf(CheckSizes(graph)), "");
  graph.actors[ActorId(1)].chain = MakeChain({{}, {kBytesMax / 2, kBytesMax / 2, 1}, {}, false});
  EXPECT_THAT(FlawOf(CheckSizes(graph)), HasSubstr("W0480"));
}

TEST(CheckSizes, StatesCount) {
  RankGraph graph = GraphOf(kBytesMax);
  RankState state;
  state.slice.dtype = DType::kF32;
  state.slice.shape = {1};
  graph.states = {state};
  EXPECT_THAT(FlawOf(CheckSizes(graph)), HasSubstr("W0480"));
  EXPECT_EQ(FlawOf(CheckBytes(graph, static_cast<double>(kBytesMax - 4))), "");
  EXPECT_THAT(FlawOf(CheckBytes(graph, static_cast<double>(kBytesMax - 3))), HasSubstr("W0480"));
}

TEST(CheckSizes, TooManyActsOfAStepAreRefusedWithTheActor) {
  RankGraph graph = GraphOf(0);
  graph.actors[ActorId(0)].acts_per_step = kActsPerStepMax;
  EXPECT_EQ(FlawOf(CheckSizes(graph)), "");
  ++graph.actors[ActorId(0)].acts_per_step;
  EXPECT_THAT(FlawOf(CheckSizes(graph)), AllOf(HasSubstr("W0486 at rank 7, forward"),
                                               HasSubstr("Try: a larger runtime.chunk_bytes_max")));
}

}  // namespace
}  // namespace weir::compiler
