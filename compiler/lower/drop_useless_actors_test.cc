#include "compiler/lower/drop_useless_actors.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DropUselessActorsTest : public ::testing::Test {
 protected:
  // Adds an actor that reads `inputs` and writes one new tensor. Returns the tensor.
  TensorId AddActor(const std::string& name, const std::vector<TensorId>& inputs) {
    RankTensor tensor;
    tensor.name = name;
    tensor.producer = graph_.actors.next_id();
    const TensorId made = graph_.tensors.next_id();
    graph_.tensors.push_back(tensor);
    RankActor actor;
    actor.name = name;
    actor.inputs = inputs;
    actor.outputs = {made};
    graph_.actors.push_back(actor);
    return made;
  }

  std::vector<std::string> NamesAfter() {
    DropUselessActors(&graph_);
    const std::vector<std::string> names = Names();
    DropUselessActors(&graph_);
    EXPECT_EQ(Names(), names) << "changed by a second run";
    for (const RankTensor& tensor : graph_.tensors) {
      if (!tensor.producer.has_value()) continue;
      EXPECT_EQ(graph_.actors[tensor.producer].name, tensor.name) << "ids follow the actors";
    }
    return names;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const RankActor& actor : graph_.actors) names.push_back(actor.name);
    return names;
  }

  RankGraph graph_;
};

TEST_F(DropUselessActorsTest, AnActorWhoseResultNobodyReadsGoesWithAllThatOnlyItReads) {
  const TensorId a = AddActor("a", {});
  AddActor("c", {AddActor("b", {a})});
  EXPECT_THAT(NamesAfter(), IsEmpty());
  EXPECT_EQ(graph_.tensors[a].producer, ActorId());
}

TEST_F(DropUselessActorsTest, ReportsAndSendsStayWithAllThatTheyRead) {
  for (proto::ActorSpec::Kind kind : {proto::ActorSpec::SINK, proto::ActorSpec::SEND}) {
    graph_ = {};
    const TensorId a = AddActor("a", {});
    AddActor("b", {});
    AddActor("end", {a});
    graph_.actors.back().kind = kind;
    EXPECT_THAT(NamesAfter(), ElementsAre("a", "end"));
  }
}

TEST_F(DropUselessActorsTest, AnUpdateStaysAndAWeightThatIsOnlyKeptGoes) {
  const TensorId gradient = AddActor("gradient", {});
  const TensorId updated = AddActor("update", {gradient}), kept = AddActor("keep", {});
  graph_.tensors[updated].variable = 0;
  graph_.tensors[kept].variable = 1;
  EXPECT_THAT(NamesAfter(), ElementsAre("gradient", "update"));
}

TEST_F(DropUselessActorsTest, AnActorThatWritesAStateStays) {
  AddActor("fetch", {});
  RankKernel kernel;
  kernel.outputs = {{RankOperand::kState, 0, {}}};
  graph_.actors[ActorId(0)].chain = MakeChain({{kernel}, {}, {}, false});
  AddActor("spare", {});
  EXPECT_THAT(NamesAfter(), ElementsAre("fetch"));
}

TEST_F(DropUselessActorsTest, ALandingBufferMustBeEmptied) {
  RankTensor message;
  message.side = proto::RegisterSpec::INBOUND;
  graph_.tensors = {message};
  AddActor("fill", {TensorId(0)});
  EXPECT_THAT(NamesAfter(), ElementsAre("fill"));
}

TEST_F(DropUselessActorsTest, OfSeveralKeptWeightsOnlyThoseThatAreReadStay) {
  const TensorId read = AddActor("keep", {});
  RankTensor other;
  other.name = "keep";
  other.producer = ActorId(0);
  other.variable = 1;
  const TensorId unread = graph_.tensors.next_id();
  graph_.tensors.push_back(other);
  graph_.actors[ActorId(0)].outputs.push_back(unread);
  graph_.tensors[read].variable = 0;
  AddActor("report", {read});
  graph_.actors.back().kind = proto::ActorSpec::SINK;
  EXPECT_THAT(NamesAfter(), ElementsAre("keep", "report"));
  EXPECT_THAT(graph_.actors[ActorId(0)].outputs, ElementsAre(read));
  EXPECT_EQ(graph_.tensors[unread].producer, ActorId());
}

// An actor stays if and only if a report can be reached from it.
TEST_F(DropUselessActorsTest, InRandomGraphsExactlyTheActorsOnAWayToAReportStay) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int limit) {
      return static_cast<int>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    graph_ = {};
    std::vector<std::set<int>> reads;
    std::set<int> wanted;
    for (int a = 0; a < 14; ++a) {
      std::set<int> inputs;
      for (int i = below(3); i > 0 && a > 0; --i) inputs.insert(below(a));
      std::vector<TensorId> tensors;  // of the actors with these numbers
      for (int input : inputs) tensors.emplace_back(input);
      AddActor(absl::StrCat("n", a), tensors);
      reads.push_back(inputs);
      if (below(5) != 0) continue;
      graph_.actors.back().kind = proto::ActorSpec::SINK;
      wanted.insert(a);
    }
    for (int a = 13; a >= 0; --a) {
      if (wanted.count(a) > 0) wanted.insert(reads[a].begin(), reads[a].end());
    }
    std::vector<std::string> expected;
    for (int a : wanted) expected.push_back(absl::StrCat("n", a));
    EXPECT_EQ(NamesAfter(), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weir::compiler
