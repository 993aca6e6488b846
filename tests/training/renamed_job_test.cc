// Tests that names have no meaning: a model trains to the same bits if every dimension and every
// input has another name, or if the dimensions have no names and the compiler finds them.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/dims/dim_lists.h"
#include "compiler/dims/name_dims.h"
#include "compiler/dims/without_names_testing.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

zoo::TransformerOptions Small() {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.ffn = 64;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.steps = 6;
  options.training.learning_rate = 3e-3;
  return options;
}

using Names = std::map<std::string, std::string>;

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Returns `text` with every name of `names` replaced.
std::string Renamed(const std::string& text, const Names& names) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsOfName(text[end])) ++end;
    if (end == i) {
      result.push_back(text[i++]);
      continue;
    }
    const std::string word = text.substr(i, end - i);
    auto known = names.find(word);
    result += known == names.end() ? word : known->second;
    i = end;
  }
  return result;
}

// Returns the job with names that sort in the opposite order, so that nothing depends on their
// order either.
proto::Job WithRenamedDims(proto::Job job) {
  Names names;
  for (proto::Dim& dim : *job.mutable_graph()->mutable_dim()) {
    const std::string name = absl::StrCat("d", 99 - names.size());
    names[dim.name()] = name;
    dim.set_name(name);
  }
  for (proto::Function& function : *job.mutable_graph()->mutable_function()) {
    for (const compiler::DimList& list : compiler::DimListsOf(&function))
      *list.text = Renamed(*list.text, names);
  }
  for (proto::Rule& rule : *job.mutable_rule()) rule.set_dim(names.at(rule.dim()));
  return job;
}

// Returns the job with renamed inputs of main that are bound to the feeds.
proto::Job WithRenamedInputs(proto::Job job) {
  const Names names = {{"tokens", "z_read"}, {"targets", "a_said"}};
  proto::Function& main = *job.mutable_graph()->mutable_function(1);
  for (proto::TensorDecl& input : *main.mutable_input()) {
    proto::FeedBinding* feed = job.mutable_data()->add_feed();
    feed->set_from(input.name());
    input.set_name(names.at(input.name()));
    feed->set_input(input.name());
  }
  for (proto::Node& node : *main.mutable_node()) {
    for (std::string& input : *node.mutable_input()) input = Renamed(input, names);
  }
  return job;
}

// Returns the names of all dimensions in the graph, in order.
std::vector<std::string> WrittenNames(proto::Graph graph) {
  std::vector<std::string> names;
  for (proto::Function& function : *graph.mutable_function()) {
    for (const compiler::DimList& list : compiler::DimListsOf(&function)) {
      for (absl::string_view item : absl::StrSplit(list.dims(), ',', absl::SkipWhitespace()))
        names.emplace_back(absl::StripAsciiWhitespace(item.substr(0, item.find_first_of("=*"))));
    }
  }
  return names;
}

// Returns the job with the dimensions that the compiler finds in WithoutNames(job), and the rules
// of `job` about them. A rule about a dimension that is a product speaks of its major part.
absl::StatusOr<proto::Job> WithFoundDims(const proto::Job& job) {
  proto::Job found = compiler::WithoutNames(job);
  found.mutable_graph()->clear_dim();
  for (const proto::Dim& dim : job.graph().dim()) {
    if (dim.name() == "batch" || dim.name() == "sequence") *found.mutable_graph()->add_dim() = dim;
  }
  WEIR_ASSIGN_OR_RETURN(const compiler::GraphDims dims, compiler::FindDims(found));
  compiler::ReplaceProvisional(dims, compiler::NameDims(dims), &found);
  const std::vector<std::string> before = WrittenNames(job.graph()),
                                 after = WrittenNames(found.graph());
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto [it, added] = names.emplace(before[i], after.at(i));
    EXPECT_EQ(it->second, after.at(i)) << "two names for " << before[i];
  }
  for (proto::Rule& rule : *found.mutable_rule()) rule.set_dim(names.at(rule.dim()));
  return found;
}

struct Case {
  const char* mesh;
  int zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
};

class RenamedJob : public ::testing::TestWithParam<Case> {};

TEST_P(RenamedJob, TrainsToTheSameBits) {
  zoo::TransformerOptions options = Small();
  options.sequence_parallel = GetParam().sequence;
  absl::StatusOr<proto::Job> named = zoo::GptJob(options);
  ASSERT_TRUE(named.ok()) << named.status();
  named->mutable_training()->set_zero_stage(GetParam().zero);
  const proto::Job job = WithMesh(*named, GetParam().mesh);
  TrainRunOptions run_options;
  run_options.steps = 6;
  auto expected = Train(job, run_options);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(expected->losses.size(), 6u);
  for (const proto::Job& other : {WithRenamedDims(job), WithRenamedInputs(WithRenamedDims(job))}) {
    auto run = Train(other, run_options);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->losses, expected->losses);
    EXPECT_EQ(run->weights, expected->weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, RenamedJob,
                         ::testing::Values(Case{""}, Case{"dp=2"}, Case{"tp=2"}, Case{"pp=2"},
                                           Case{"dp=2,tp=2", 3}, Case{"dp=2,tp=2,pp=2", 1},
                                           Case{"tp=2", 0, zoo::SequenceParallel::kMegatron},
                                           Case{"dp=2,sp=2", 0, zoo::SequenceParallel::kUlysses}),
                         [](const auto& test) { return absl::StrCat("Case", test.index); });

class FoundDims : public ::testing::TestWithParam<Case> {};

// A model with fewer heads of keys than of queries has dimensions of three parts.
TEST_P(FoundDims, TrainToTheSameBits) {
  for (const char* model : {"gpt", "llama"}) {
    SCOPED_TRACE(model);
    zoo::TransformerOptions options = Small();
    options.sequence_parallel = GetParam().sequence;
    const bool is_llama = std::string(model) == "llama";
    if (is_llama) options.kv_heads = 2;
    absl::StatusOr<proto::Job> named = is_llama ? zoo::LlamaJob(options) : zoo::GptJob(options);
    ASSERT_TRUE(named.ok()) << named.status();
    named->mutable_training()->set_zero_stage(GetParam().zero);
    const proto::Job job = WithMesh(*named, GetParam().mesh);
    TrainRunOptions run_options;
    run_options.steps = 4;
    const auto expected = Train(job, run_options);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const absl::StatusOr<proto::Job> found = WithFoundDims(job);
    ASSERT_TRUE(found.ok()) << found.status();
    const auto run = Train(*found, run_options);
    ASSERT_TRUE(run.ok()) << run.status() << found->graph().DebugString();
    EXPECT_EQ(run->losses, expected->losses);
    EXPECT_EQ(run->weights, expected->weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, FoundDims,
                         ::testing::Values(Case{""}, Case{"dp=2"}, Case{"tp=2"}, Case{"pp=2"},
                                           Case{"dp=2,tp=2", 3},
                                           Case{"tp=2", 0, zoo::SequenceParallel::kMegatron},
                                           Case{"sp=2", 0, zoo::SequenceParallel::kUlysses}));

}  // namespace
}  // namespace weir::training
