#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/dims/dim_atoms.h"
#include "compiler/dims/find_dims.h"
#include "compiler/dims/name_dims.h"
#include "compiler/job/import_graph.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<int64_t> Sizes(const DimAtoms& atoms, const DimAtoms::Dim& dim) {
  std::vector<int64_t> sizes;
  for (int atom : atoms.Resolve(dim)) sizes.push_back(atoms.SizeOf(atom));
  return sizes;
}

TEST(DimAtoms, ADimensionThatMeetsAProductIsCutForEveryTensor) {
  DimAtoms atoms;
  const DimAtoms::Dim x = atoms.New(32), weight = atoms.New(32), heads = atoms.New(4),
                      width = atoms.New(8);
  atoms.Unify(x, weight);
  DimAtoms::Dim product = heads;
  product.insert(product.end(), width.begin(), width.end());
  atoms.Unify(x, product);
  EXPECT_THAT(Sizes(atoms, weight), ElementsAre(4, 8));
  EXPECT_EQ(atoms.Resolve(weight), atoms.Resolve(product));
}

TEST(DimAtoms, ProductsAreCutWhereTheOtherOneIsCut) {
  DimAtoms atoms;
  const auto product = [&](std::vector<int64_t> sizes) {
    DimAtoms::Dim dim;
    for (int64_t size : sizes) dim.push_back(atoms.New(size)[0]);
    return dim;
  };
  const DimAtoms::Dim a = product({4, 16}), b = product({8, 8});
  atoms.Unify(a, b);
  EXPECT_THAT(Sizes(atoms, a), ElementsAre(4, 2, 8));
  EXPECT_EQ(atoms.Resolve(a), atoms.Resolve(b));
  // 6 = 2 * 3 and 3 * 2: neither minor part divides the other one.
  const DimAtoms::Dim c = product({2, 3}), d = product({3, 2});
  atoms.Unify(c, d);
  EXPECT_THAT(Sizes(atoms, c), ElementsAre(2, 3));
  EXPECT_THAT(Sizes(atoms, d), ElementsAre(3, 2));
}

TEST(DimAtoms, AnAtomThatStandsAtDifferentPlacesOfTwoProductsIsFollowed) {
  DimAtoms atoms;
  const int x = atoms.New(2)[0], z = atoms.New(2)[0], w = atoms.New(2)[0];
  const DimAtoms::Dim a = {x, z, w}, b = {z, w, x};
  atoms.Unify(a, b);
  EXPECT_EQ(atoms.Resolve(a), atoms.Resolve(b));
  EXPECT_EQ(atoms.Resolve({x}), atoms.Resolve({z}));
  EXPECT_EQ(atoms.Resolve({x}), atoms.Resolve({w}));
}

TEST(DimAtoms, SizeOneHasNoAtomAndMeetsNothing) {
  DimAtoms atoms;
  EXPECT_THAT(atoms.New(1), SizeIs(0));
  const DimAtoms::Dim x = atoms.New(5);
  atoms.Unify(x, atoms.New(1));
  EXPECT_THAT(Sizes(atoms, x), ElementsAre(5));
}

// A block with attention, called twice, as an importer writes it. Hidden, vocab and the inner
// dimension of the block have one size.
constexpr char kJob[] = R"pb(
  graph {
    dim { name: "batch" size: 8 }
    dim { name: "time" size: 6 }
    function {
      name: "block"
      input { name: "x" type: "f32[_1=8, _2=6, _3=32]" }
      parameter { name: "q_proj.weight" type: "f32[_4=32, _5=32]" }
      parameter { name: "kv.weight" type: "f32[_6=16, _7=32]" }
      parameter { name: "out.weight" type: "f32[_8=32, _9=32]" }
      parameter { name: "mlp.up.weight" type: "f32[_10=32, _11=32]" }
      parameter { name: "mlp.down.weight" type: "f32[_12=32, _13=32]" }
      node {
        name: "q"
        op: "matmul"
        input: [ "x", "q_proj.weight" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "k"
        op: "matmul"
        input: [ "x", "kv.weight" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "q4"
        op: "reshape"
        input: "q"
        attr {
          name: "to"
          value { s: "_14=8, _15=6, _16=4, _17=8" }
        }
      }
      node {
        name: "k4"
        op: "reshape"
        input: "k"
        attr {
          name: "to"
          value { s: "_18=8, _19=6, _20=2, _21=8" }
        }
      }
      node {
        name: "o4"
        op: "attention"
        input: [ "q4", "k4", "k4" ]
      }
      node {
        name: "o"
        op: "reshape"
        input: "o4"
        attr {
          name: "to"
          value { s: "_22=8, _23=6, _24=32" }
        }
      }
      node {
        name: "p"
        op: "matmul"
        input: [ "o", "out.weight" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "r"
        op: "add"
        input: [ "x", "p" ]
      }
      node {
        name: "u"
        op: "matmul"
        input: [ "r", "mlp.up.weight" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "d"
        op: "matmul"
        input: [ "u", "mlp.down.weight" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "y"
        op: "add"
        input: [ "r", "d" ]
      }
      output: "y"
    }
    function {
      name: "main"
      input { name: "ids" type: "i32[batch, time]" }
      input { name: "next" type: "i32[batch, _25=6]" }
      parameter { name: "table" type: "f32[_26=32, _27=32]" }
      parameter { name: "scale" type: "f32[_28=1, _29=32]" }
      node {
        name: "e"
        op: "embedding"
        input: [ "table", "ids" ]
      }
      node {
        name: "s"
        op: "mul"
        input: [ "e", "scale" ]
      }
      node { name: "a" op: "call" function: "block" input: "s" }
      node { name: "b" op: "call" function: "block" input: "a" }
      node {
        name: "logits"
        op: "matmul"
        input: [ "b", "table" ]
        attr {
          name: "transpose_w"
          value { b: true }
        }
      }
      node {
        name: "each"
        op: "softmax_cross_entropy"
        input: [ "logits", "next" ]
      }
      node { name: "loss" op: "reduce_mean" input: "each" }
      output: "loss"
    }
    main: "main"
  }
)pb";

proto::Job Job(const std::string& text = kJob) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

std::map<std::string, std::string> TypesOf(const proto::Graph& graph) {
  std::map<std::string, std::string> types;
  for (const proto::Function& function : graph.function()) {
    for (const proto::TensorDecl& input : function.input()) types[input.name()] = input.type();
    for (const proto::Parameter& parameter : function.parameter())
      types[parameter.name()] = parameter.type();
    for (const proto::Node& node : function.node()) {
      if (node.op() == "reshape") types[node.name()] = node.attr(0).value().s();
    }
  }
  return types;
}

TEST(Dims, OfAModelWithoutNamesGetNamesFromWhatTheOpsDo) {
  proto::Job job = Job();
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  ReplaceProvisional(*dims, NameDims(*dims), &job);
  auto types = TypesOf(job.graph());
  EXPECT_EQ(types["x"], "f32[batch, time, hidden]");
  EXPECT_EQ(types["next"], "i32[batch, time]");
  EXPECT_EQ(types["q_proj.weight"], "f32[heads*heads_per_group*head_dim, hidden]");
  EXPECT_EQ(types["kv.weight"], "f32[heads*head_dim, hidden]");
  EXPECT_EQ(types["out.weight"], "f32[hidden, heads*heads_per_group*head_dim]");
  EXPECT_EQ(types["mlp.up.weight"], "f32[up, hidden]");
  EXPECT_EQ(types["mlp.down.weight"], "f32[hidden, up]");
  EXPECT_EQ(types["table"], "f32[vocab, hidden]");
  EXPECT_EQ(types["scale"], "f32[one=1, hidden]");
  EXPECT_EQ(types["q4"], "batch, time, heads*heads_per_group, head_dim");
  EXPECT_EQ(types["k4"], "batch, time, heads, head_dim");
  // The result is a graph like any other.
  const auto table = ImportDimTable(job);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->at("heads").size, 2);
  const auto module = ImportGraph(job, *table, PlanMode::kTrain);
  EXPECT_TRUE(module.ok()) << module.status();
  // Nothing is left to name, and the same dimensions are found.
  const auto again = FindDims(job);
  ASSERT_TRUE(again.ok()) << again.status();
  proto::Job same = job;
  ReplaceProvisional(*again, NameDims(*again), &same);
  EXPECT_EQ(same.DebugString(), job.DebugString());
  EXPECT_EQ(NameDims(*again).size(), NameDims(*dims).size());
}

std::map<std::string, DimName> ByName(const proto::Job& job) {
  const auto dims = FindDims(job);
  EXPECT_TRUE(dims.ok()) << dims.status();
  std::map<std::string, DimName> names;
  for (const DimName& name : NameDims(*dims)) names[name.name] = name;
  return names;
}

TEST(Dims, OfAMatrixThatIsStoredTheOtherWayRoundAreFoundAtTheOtherAxis) {
  const std::string read =
      "input: [ \"x\", \"q_proj.weight\" ]\n        attr {\n          name: \"transpose_w\"\n"
      "          value { b: true }";
  std::string turned = kJob;
  ASSERT_NE(turned.find(read), std::string::npos);
  turned = absl::StrReplaceAll(turned, {{read, absl::StrReplaceAll(read, {{"true", "false"}})}});
  proto::Job job = Job(turned);
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  const std::vector<DimName> names = NameDims(*dims);
  ReplaceProvisional(*dims, names, &job);
  auto types = TypesOf(job.graph());
  EXPECT_EQ(types["q_proj.weight"], "f32[hidden, heads*heads_per_group*head_dim]");
  EXPECT_EQ(types["x"], "f32[batch, time, hidden]");
  for (const DimName& name : names) {
    if (name.name == "heads") {
      EXPECT_EQ(name.why, "the usual name of q_proj.weight[1]");
    }
  }
}

TEST(Dims, SayWhyTheyHaveTheirNameAndWhichParametersHaveThem) {
  const auto names = ByName(Job());
  EXPECT_EQ(names.at("batch").why, "given by ids");
  EXPECT_EQ(names.at("heads").why, "the usual name of q_proj.weight[0]");
  EXPECT_EQ(names.at("head_dim").why, "attention o4");
  EXPECT_EQ(names.at("up").why, "block.mlp.up.weight[0]");
  EXPECT_THAT(names.at("up").parameters,
              ElementsAre("block.mlp.up.weight[0]", "block.mlp.down.weight[1]"));
}

TEST(Dims, OfOneSizeAndPartShareANameAndOthersDoNot) {
  const auto with = [](const std::string& up, const std::string& down) {
    return ByName(Job(
        absl::StrReplaceAll(kJob, {{"f32[_10=32, _11=32]", up}, {"f32[_12=32, _13=32]", down}})));
  };
  // The graph calls another dimension "hidden".
  const auto shared = with("f32[hidden=32, _11=32]", "f32[_12=32, _13=32]");
  EXPECT_EQ(shared.at("hidden").size, 32);
  EXPECT_EQ(shared.count("hidden_2"), 0u);
  const auto apart = with("f32[hidden=48, _11=32]", "f32[_12=32, _13=48]");
  EXPECT_EQ(apart.at("hidden").why, "given by block.mlp.up.weight");
  EXPECT_EQ(apart.at("hidden").size, 48);
  EXPECT_EQ(apart.at("hidden_2").why, "embedding e");
}

TEST(Dims, OfImagesAreChannelsHeightAndWidthAndThoseOfWindows) {
  proto::Job job = Job(R"pb(
    graph {
      dim { name: "batch" size: 2 }
      function {
        name: "main"
        input { name: "images" type: "f32[batch, _1=3, _2=8, _3=8]" }
        parameter { name: "first.weight" type: "f32[_4=5, _5=3, _6=3, _7=3]" }
        parameter { name: "second.weight" type: "f32[_8=5, _9=5, _10=3, _11=3]" }
        node {
          name: "a"
          op: "conv"
          input: [ "images", "first.weight" ]
          attr {
            name: "stride"
            value { ints { values: 2 } }
          }
          attr {
            name: "padding"
            value { ints { values: 1 } }
          }
          attr {
            name: "to"
            value { s: "batch, _12=5, _13=4, _14=4" }
          }
        }
        node {
          name: "b"
          op: "conv"
          input: [ "a", "second.weight" ]
          attr {
            name: "padding"
            value { ints { values: 1 } }
          }
          attr {
            name: "to"
            value { s: "batch, _15=5, _16=4, _17=4" }
          }
        }
        node {
          name: "c"
          op: "add"
          input: [ "a", "b" ]
        }
        node { name: "loss" op: "reduce_mean" input: "c" }
        output: "loss"
      }
      main: "main"
    })pb");
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  ReplaceProvisional(*dims, NameDims(*dims), &job);
  auto types = TypesOf(job.graph());
  EXPECT_EQ(types["images"], "f32[batch, channels, height, width]");
  EXPECT_EQ(types["first.weight"], "f32[channels_2, channels, kernel_height, kernel_width]");
  EXPECT_EQ(types["second.weight"], "f32[channels_2, channels_2, kernel_height, kernel_width]");
  const proto::Function& main = job.graph().function(0);
  EXPECT_EQ(main.node(0).attr(2).value().s(), "batch, channels_2, height_2, width_2");
  EXPECT_EQ(main.node(1).attr(1).value().s(), "batch, channels_2, height_2, width_2");
}

TEST(Dims, OfSeveralGivenNamesTheFirstReplacesTheOthers) {
  proto::Job job =
      Job(absl::StrReplaceAll(kJob, {{"i32[batch, _25=6]", "i32[samples=8, steps=6]"}}));
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  ReplaceProvisional(*dims, NameDims(*dims), &job);
  EXPECT_EQ(TypesOf(job.graph())["next"], "i32[batch, time]");
  // Without provisional names the graph is its author's.
  proto::Job own = Job(R"pb(
    graph {
      function {
        name: "main"
        input { name: "a" type: "f32[x=3]" }
        input { name: "b" type: "f32[y=3]" }
        node {
          name: "c"
          op: "reshape"
          input: "b"
          attr {
            name: "to"
            value { s: "x=3" }
          }
        }
        node {
          name: "d"
          op: "add"
          input: [ "a", "c" ]
        }
        node { name: "loss" op: "reduce_sum" input: "d" }
        output: "loss"
      }
      main: "main"
    })pb");
  const auto found = FindDims(own);
  ASSERT_TRUE(found.ok()) << found.status();
  proto::Job same = own;
  ReplaceProvisional(*found, NameDims(*found), &same);
  EXPECT_EQ(same.DebugString(), own.DebugString());
}

// Attention by hand, in a model whose width is never but heads times their width.
TEST(Dims, AProductIsNotCalledHiddenAndHeadsAreFoundInProducts) {
  proto::Job job = Job(R"pb(
    graph {
      dim { name: "batch" size: 2 }
      function {
        name: "main"
        input { name: "x" type: "f32[batch, _1=3, _2=32]" }
        parameter { name: "norm.weight" type: "f32[_3=32]" }
        node {
          name: "n"
          op: "rms_norm"
          input: [ "x", "norm.weight" ]
        }
        node {
          name: "s"
          op: "reshape"
          input: "n"
          attr {
            name: "to"
            value { s: "_4=2, _5=3, _6=4, _7=8" }
          }
        }
        node {
          name: "t"
          op: "transpose"
          input: "s"
          attr {
            name: "perm"
            value { ints { values: [ 0, 2, 1, 3 ] } }
          }
        }
        node {
          name: "y"
          op: "batched_matmul"
          input: [ "t", "t" ]
          attr {
            name: "transpose_b"
            value { b: true }
          }
        }
        node { name: "loss" op: "reduce_mean" input: "y" }
        output: "loss"
      }
      main: "main"
    })pb");
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  ReplaceProvisional(*dims, NameDims(*dims), &job);
  auto types = TypesOf(job.graph());
  EXPECT_EQ(types["norm.weight"], "f32[heads*head_dim]");
}

TEST(Dims, OfFunctionsThatNothingCallsAreNotLookedAt) {
  proto::Job job = Job();
  proto::Function* function = job.mutable_graph()->add_function();
  function->set_name("again");
  function->add_input()->set_name("x");
  function->mutable_input(0)->set_type("f32[_100=32]");
  proto::Node* node = function->add_node();
  node->set_name("y");
  node->set_op("call");
  node->set_function("again");
  node->add_input("x");
  function->add_output("y");
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  EXPECT_EQ(dims->written.size(), FindDims(Job())->written.size());
}

TEST(Dims, RulesAndTheBatchFollowTheirDimension) {
  proto::Job job =
      Job(absl::StrReplaceAll(kJob, {{"name: \"time\" size: 6", "name: \"_90\" size: 6"},
                                     {"i32[batch, time]", "i32[batch, _90]"}}));
  job.add_rule()->set_dim("_90");
  job.add_rule()->set_dim("batch");
  job.mutable_training()->set_batch_dim("batch");
  const auto dims = FindDims(job);
  ASSERT_TRUE(dims.ok()) << dims.status();
  ReplaceProvisional(*dims, NameDims(*dims), &job);
  const std::string type = TypesOf(job.graph())["ids"];
  EXPECT_EQ(type, absl::StrCat("i32[batch, ", job.rule(0).dim(), "]"));
  EXPECT_FALSE(IsProvisional(job.rule(0).dim()));
  EXPECT_EQ(job.rule(1).dim(), "batch");
  EXPECT_EQ(job.training().batch_dim(), "batch");
}

TEST(Dims, ATensorWithADimensionTwiceIsNamed) {
  // The result of attention is added to the product that reads this result.
  const std::string text = absl::StrReplaceAll(kJob, {{"\"x\", \"p\"", "\"o\", \"p\""}});
  ASSERT_NE(text, kJob);
  const auto names = ByName(Job(text));
  EXPECT_THAT(names.at("heads").twice, ::testing::Contains("block.out.weight"));
}

TEST(Dims, AFlawOfTheGraphIsAnErrorWithItsPlace) {
  const std::string text =
      absl::StrReplaceAll(kJob, {{"f32[_12=32, _13=32]", "f32[_12=32, _13=31]"}});
  EXPECT_THAT(std::string(FindDims(Job(text)).status().message()),
              AllOf(HasSubstr("W0308"), HasSubstr("function block, node d"), HasSubstr("n31=31")));
}

}  // namespace
}  // namespace weir::compiler
