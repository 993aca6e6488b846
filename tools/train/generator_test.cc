// Generation with a cache of keys and values gives the tokens of generation by whole windows, on
// every mesh; and graphs without such a form say which op is in the way.
#include "tools/train/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/decode_job.h"
#include "google/protobuf/text_format.h"
#include "tools/job/job_file.h"
#include "tools/train/generation_cache.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::train {
namespace {

using testing::HasSubstr;

zoo::TransformerOptions SmallModel() {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.sequence = 24;
  options.training.batch = 2;
  options.training.steps = 1;
  options.training.data = "not_read.txt";
  return options;
}

proto::Job Gpt() { return *zoo::GptJob(SmallModel()); }
proto::Job Llama() {
  zoo::TransformerOptions options = SmallModel();
  options.kv_heads = 2;
  return *zoo::LlamaJob(options);
}

GenerateOptions TwoPrompts() {
  GenerateOptions options;
  options.prompts = {TokensOf("a longer prompt"), TokensOf("x")};
  options.max_tokens = 6;
  options.sampling.temperature = 0;
  options.threads = 1;
  return options;
}

struct Said {
  std::vector<Tokens> tokens;
  Generated generated;
};

Said Say(const proto::Job& job, const GenerateOptions& options) {
  Said said;
  said.tokens.resize(options.prompts.size());
  const auto generated = Generate(
      job, options, [&](size_t prompt, int32_t token) { said.tokens[prompt].push_back(token); });
  EXPECT_TRUE(generated.ok()) << generated.status();
  if (generated.ok()) said.generated = *generated;
  return said;
}

// The weights are noise. So logits are close to each other, and a wrong position shows.
void ExpectSameTokensOnMeshes(proto::Job job) {
  GenerateOptions options = TwoPrompts();
  options.cache = GenerateOptions::Cache::kNever;
  const Said by_windows = Say(job, options);
  EXPECT_EQ(by_windows.generated.cached_tokens, 0);
  options.cache = GenerateOptions::Cache::kWherePossible;
  options.devices = GenerationDevices::kMeshOfJob;
  for (const char* mesh : {"", "tp=2", "pp=2", "dp=2"}) {
    ASSERT_TRUE(job::SetMesh(mesh, &job).ok());
    const Said cached = Say(job, options);
    EXPECT_EQ(cached.tokens, by_windows.tokens) << "on mesh \"" << mesh << "\"";
    EXPECT_EQ(cached.generated.tokens, 12);
    EXPECT_EQ(cached.generated.cached_tokens, 10) << "all but the first ones";
  }
}

TEST(GeneratorTest, AGptSaysTheSameWithTheCacheOnEveryMesh) { ExpectSameTokensOnMeshes(Gpt()); }

TEST(GeneratorTest, ALlamaOfGroupedHeadsSaysTheSameWithTheCacheOnEveryMesh) {
  ExpectSameTokensOnMeshes(Llama());
}

TEST(GeneratorTest, ASequenceThatFillsTheWindowGoesOnByWindows) {
  GenerateOptions options = TwoPrompts();
  options.max_tokens = 12;
  std::string note;
  options.note = [&](const std::string& text) { note = text; };
  const Said mixed = Say(Gpt(), options);
  EXPECT_THAT(note, HasSubstr("fills the window of 24 tokens after 9 new ones"));
  EXPECT_EQ(mixed.generated.cached_tokens, 8 + 11) << "the shorter one stays in the cache";
  options.cache = GenerateOptions::Cache::kNever;
  EXPECT_EQ(mixed.tokens, Say(Gpt(), options).tokens);
}

// Prompts of very different lengths, the longest of which is too long for the cache.
GenerateOptions SevenPrompts() {
  GenerateOptions options = TwoPrompts();
  options.prompts.clear();
  for (const int64_t length : {1, 15, 2, 20, 7, 30, 16})
    options.prompts.push_back(Tokens(length, static_cast<int32_t>('a' + length)));
  options.max_tokens = 4;
  return options;
}

TEST(GeneratorTest, TokensOfAPromptDoNotDependOnThoseThatCameBeforeInItsRow) {
  GenerateOptions options = SevenPrompts();
  options.batch = 1;
  const Said alone = Say(Gpt(), options);
  options.sampling.temperature = 1;
  const Said drawn_alone = Say(Gpt(), options);
  EXPECT_NE(alone.tokens, drawn_alone.tokens);
  for (const int64_t batch : {2, 3, 7, 100}) {
    options.batch = batch;
    options.sampling.temperature = 0;
    const Said said = Say(Gpt(), options);
    EXPECT_EQ(said.tokens, alone.tokens) << "batch " << batch;
    EXPECT_EQ(said.generated.first_tokens, std::min<int64_t>(batch, 6)) << "6 prompts fit";
    options.sampling.temperature = 1;
    EXPECT_EQ(Say(Gpt(), options).tokens, drawn_alone.tokens) << "batch " << batch;
  }
  options.sampling.temperature = 0;
  options.cache = GenerateOptions::Cache::kNever;
  options.batch = 2;
  EXPECT_EQ(Say(Gpt(), options).tokens, alone.tokens) << "by windows";
}

TEST(GeneratorTest, SequencesComeAndGoOnEveryMesh) {
  proto::Job job = Llama();
  GenerateOptions options = SevenPrompts();
  options.batch = 3;
  const Said alone = Say(job, options);
  options.devices = GenerationDevices::kMeshOfJob;
  for (const char* mesh : {"tp=2", "pp=2", "dp=2", "dp=2,tp=2"}) {
    ASSERT_TRUE(job::SetMesh(mesh, &job).ok());
    EXPECT_EQ(Say(job, options).tokens, alone.tokens) << "on mesh \"" << mesh << "\"";
  }
}

TEST(GeneratorTest, WherePagesRunOutTheYoungestSequenceIsReadAgain) {
  proto::Job job = Gpt();
  GenerateOptions options = TwoPrompts();
  // Each sequence begins with one page and grows into its second one at the same step.
  options.prompts = {TokensOf("0123456789abc"), TokensOf("abcdefghijklm"), TokensOf("x")};
  options.max_tokens = 8;
  const Said all = Say(job, options);
  EXPECT_EQ(all.generated.read_again, 0);
  EXPECT_EQ(all.generated.peak_pages, 5);
  options.cache_tokens = 2 * 16;
  const Said few = Say(job, options);
  EXPECT_EQ(few.tokens, all.tokens);
  EXPECT_GT(few.generated.read_again, 0);
  EXPECT_EQ(few.generated.pages, 2);
  EXPECT_EQ(few.generated.peak_pages, 2);
  options.devices = GenerationDevices::kMeshOfJob;
  ASSERT_TRUE(job::SetMesh("tp=2", &job).ok());
  EXPECT_EQ(Say(job, options).tokens, all.tokens);
  ASSERT_TRUE(job::SetMesh("dp=2", &job).ok());
  options.prompts[2] = TokensOf("nopqrstuvwxyz");
  options.cache_tokens = 0;
  const Said three = Say(job, options);
  EXPECT_EQ(three.generated.read_again, 0);
  options.cache_tokens = 4 * 16;  // 3 pages for two rows, and 2 for the other one
  const Said split = Say(job, options);
  EXPECT_EQ(split.tokens, three.tokens);
  EXPECT_GT(split.generated.read_again, 0);
}

TEST(GeneratorTest, NoSequenceGivesWayInTheDefaultPool) {
  zoo::TransformerOptions model = SmallModel();
  model.sequence = 48;
  proto::Job job = *zoo::GptJob(model);
  GenerateOptions options = TwoPrompts();
  options.devices = GenerationDevices::kMeshOfJob;
  // The long ones take 3 pages each. Half of a pool with 9 pages, rounded up, has no room for both.
  options.prompts = {Tokens(20, 'a'), TokensOf("x"), TokensOf("y"), Tokens(20, 'b')};
  options.max_tokens = 14;
  const Said alone = Say(job, options);
  EXPECT_EQ(alone.generated.pages, 11)
      << "3 for each of the long ones, 1 for the others, rounded up";
  options.cache_tokens = 1 << 30;
  EXPECT_EQ(Say(job, options).generated.pages, 15) << "3 for each row, rounded up";
  options.cache_tokens = 0;
  ASSERT_TRUE(job::SetMesh("dp=2", &job).ok());
  const Said split = Say(job, options);
  EXPECT_EQ(split.tokens, alone.tokens);
  EXPECT_EQ(split.generated.read_again, 0);
}

// Passes everything on to ranks in this process, and takes down the inputs of each step.
class RecordingRunner final : public GenerationRunner {
 public:
  std::vector<std::pair<GenerationPlan, TokenRows>> steps;
  std::vector<int64_t> ends_of_prompts;  // what RowEnds says of kPrompts; empty: what is so
  bool carries = true;                   // false: CarryCache copies nothing

  // Returns the inputs of the steps of one plan.
  std::vector<TokenRows> StepsOf(GenerationPlan plan) const {
    std::vector<TokenRows> of_plan;
    for (const auto& [step_plan, tokens] : steps) {
      if (step_plan == plan) of_plan.push_back(tokens);
    }
    return of_plan;
  }

  absl::Status Open(GenerationPlan plan, const GenerationOrder& order) override {
    return local_->Open(plan, order);
  }
  absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens) override {
    steps.emplace_back(plan, tokens);
    return local_->RunStep(plan, tokens);
  }
  absl::StatusOr<std::vector<std::vector<float>>> Logits(
      GenerationPlan plan, const std::vector<int64_t>& rows) override {
    return local_->Logits(plan, rows);
  }
  std::vector<int64_t> RowEnds(GenerationPlan plan) const override {
    if (plan == GenerationPlan::kPrompts && !ends_of_prompts.empty()) return ends_of_prompts;
    return local_->RowEnds(plan);
  }
  absl::StatusOr<bool> CarryCache() override {
    if (!carries) return false;
    return local_->CarryCache();
  }
  absl::Status Close(GenerationPlan plan) override { return local_->Close(plan); }

 private:
  const std::unique_ptr<GenerationRunner> local_ = MakeLocalGeneration(1);
};

std::string TableOf(const proto::Job& job) {
  const auto derived = compiler::DecodeJobOf(job, "tokens", {2, 1, 4, 2});
  return derived.ok() ? derived->table : "";
}

TEST(GeneratorTest, ASequenceHasPagesOfThePartsOfBothPlans) {
  RecordingRunner runner;
  runner.ends_of_prompts = {1, 2};  // the steps do not split the two rows
  GenerateOptions options = TwoPrompts();
  options.runner = &runner;
  const Said said = Say(Gpt(), options);
  ASSERT_EQ(said.generated.pages, 3);
  ASSERT_FALSE(runner.steps.empty());
  const std::string table = TableOf(Gpt());
  for (auto& [plan, tokens] : runner.steps) {
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t i = 0; i < tokens.WidthOf(table); ++i) {
        const int32_t page = tokens.Row(table, row)[i];
        EXPECT_TRUE(page == 0 || page / 2 == row) << "page " << page << " in row " << row;
      }
    }
  }
  options.runner = nullptr;
  EXPECT_EQ(said.tokens, Say(Gpt(), options).tokens);
}

TEST(GeneratorTest, StepsReadThePromptsAgainIfTheirCacheIsNotCarried) {
  RecordingRunner carrying, lacking;
  lacking.carries = false;
  GenerateOptions options = TwoPrompts();
  options.runner = &carrying;
  const Said carried = Say(Gpt(), options);
  EXPECT_EQ(carrying.StepsOf(GenerationPlan::kSteps).size(), 5u);
  options.runner = &lacking;
  const Said again = Say(Gpt(), options);
  EXPECT_EQ(again.tokens, carried.tokens);
  EXPECT_EQ(again.generated.first_tokens, 2);
  EXPECT_EQ(lacking.StepsOf(GenerationPlan::kSteps).size(), 15u + 5u);
}

TEST(GeneratorTest, TheTablesOfAStepEndWithTheLastPageInUse) {
  RecordingRunner runner;
  GenerateOptions options = TwoPrompts();
  options.runner = &runner;
  Say(Gpt(), options);
  const std::string table = TableOf(Gpt());
  const std::vector<TokenRows> steps = runner.StepsOf(GenerationPlan::kSteps);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[0].WidthOf(table), 1) << "position 15 is the last one of a page";
  EXPECT_EQ(steps[1].WidthOf(table), 2);
}

TEST(GeneratorTest, ThePlanOfTheFirstPromptsIsAsWideAsTheLongestOfThem) {
  RecordingRunner runner;
  GenerateOptions options = TwoPrompts();
  options.prompts = {TokensOf("x"), TokensOf("yes"), TokensOf("a longer prompt")};
  options.batch = 2;
  options.runner = &runner;
  EXPECT_EQ(Say(Gpt(), options).generated.first_tokens, 2);
  const std::vector<TokenRows> runs = runner.StepsOf(GenerationPlan::kPrompts);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].WidthOf("tokens"), 3);
}

TEST(GeneratorTest, WholeWindowsHaveARowForEachSequenceThatIsLeft) {
  RecordingRunner runner;
  GenerateOptions options = TwoPrompts();
  options.max_tokens = 12;  // the longer one fills the window of 24
  options.runner = &runner;
  Say(Gpt(), options);
  const std::vector<TokenRows> windows = runner.StepsOf(GenerationPlan::kWindows);
  ASSERT_EQ(windows.size(), 3u);
  for (const TokenRows& tokens : windows) EXPECT_EQ(tokens.rows(), 1);
}

TEST(GeneratorTest, ACacheWithoutRoomForOneSequenceIsRefusedBeforeTheFirstToken) {
  GenerateOptions options = TwoPrompts();  // the longer one takes 15 + 5 positions
  options.batch = 1;
  options.cache_tokens = 16;
  int64_t emitted = 0;
  const auto said = Generate(Gpt(), options, [&](size_t, int32_t) { ++emitted; });
  EXPECT_THAT(std::string(said.status().message()),
              AllOf(HasSubstr("W0078"), HasSubstr("20 positions"), HasSubstr("room for 16"),
                    HasSubstr("--cache-tokens 32")));
  EXPECT_EQ(emitted, 0);
  options.cache_tokens = 32;
  EXPECT_EQ(Say(Gpt(), options).generated.peak_pages, 2);
}

TEST(GeneratorTest, ThePoolDoesNotGrowWithTheNumberOfPrompts) {
  GenerateOptions options = TwoPrompts();
  options.prompts.assign(40, TokensOf("ab"));
  options.prompts[7] = TokensOf("a longer prompt");
  options.batch = 4;
  const Said said = Say(Gpt(), options);
  EXPECT_EQ(said.generated.tokens, 40 * 6);
  EXPECT_LE(said.generated.pages, 8);
}

TEST(GeneratorTest, ManyPromptsAreReadInSeveralRuns) {
  GenerateOptions options = TwoPrompts();
  options.prompts = {TokensOf("x"), TokensOf("a longer prompt")};
  options.max_tokens = 2;
  const Said alone = Say(Gpt(), options);
  options.prompts.resize(400, TokensOf("x"));
  options.batch = 400;  // a run then reads 10 positions of each
  const Said said = Say(Gpt(), options);
  EXPECT_EQ(said.generated.first_tokens, 400);
  EXPECT_EQ(said.tokens[1], alone.tokens[1]);
  EXPECT_EQ(said.tokens[399], alone.tokens[0]);
  int asked = 0;
  options.interrupted = [&] { return ++asked > 2; };  // before the second run
  const Said interrupted = Say(Gpt(), options);
  EXPECT_EQ(interrupted.generated.tokens, 399);
  EXPECT_TRUE(interrupted.tokens[1].empty());
  EXPECT_EQ(interrupted.generated.ends[1], Generated::End::kInterrupted);
}

TEST(GeneratorTest, AnInterruptEndsPromptsThatWait) {
  GenerateOptions options = SevenPrompts();
  options.batch = 2;
  int asked = 0;
  options.interrupted = [&] { return ++asked > 3; };  // after the first prompts and one step
  const Said said = Say(Gpt(), options);
  EXPECT_EQ(said.generated.tokens, 4);
  EXPECT_THAT(said.generated.ends, testing::Each(Generated::End::kInterrupted));
}

TEST(GeneratorTest, ASequenceEndsWithAStop) {
  GenerateOptions options = TwoPrompts();
  const Said all = Say(Gpt(), options);
  options.stops = {{all.tokens[1][1], all.tokens[1][2]}};
  const Said stopped = Say(Gpt(), options);
  EXPECT_EQ(stopped.generated.ends[1], Generated::End::kStop);
  EXPECT_LE(stopped.tokens[1].size(), 3u);
  EXPECT_EQ(stopped.tokens[1].back(), all.tokens[1][2]);
}

TEST(GeneratorTest, TheSameSeedSaysTheSameAndAnotherSomethingElse) {
  const auto say = [](uint64_t seed) {
    GenerateOptions options = TwoPrompts();
    options.sampling.temperature = 1;
    options.seed = seed;
    return Say(Gpt(), options).tokens;
  };
  EXPECT_EQ(say(1), say(1));
  EXPECT_NE(say(1), say(2));
}

TEST(GeneratorTest, ImpossibleOptionsAreRefused) {
  const auto refused = [](const std::function<void(GenerateOptions*)>& change) {
    GenerateOptions options = TwoPrompts();
    change(&options);
    return Generate(Gpt(), options, [](size_t, int32_t) {}).status();
  };
  const auto text = [&](const std::function<void(GenerateOptions*)>& change) {
    return std::string(refused(change).message());
  };
  EXPECT_THAT(text([](auto* o) { o->prompts[1].clear(); }), HasSubstr("prompt 2"));
  EXPECT_THAT(text([](auto* o) { o->prompts[0] = {9999}; }), HasSubstr("9999"));
  EXPECT_THAT(text([](auto* o) { o->prompts.clear(); }), HasSubstr("--prompt"));
  EXPECT_THAT(text([](auto* o) { o->sampling.temperature = -1; }), HasSubstr("--temperature"));
  EXPECT_THAT(text([](auto* o) { o->sampling.top_p = 0; }), HasSubstr("--top-p"));
  EXPECT_THAT(text([](auto* o) { o->sampling.top_k = -1; }), HasSubstr("--top-k"));
  EXPECT_THAT(text([](auto* o) { o->stops = {{}}; }), HasSubstr("--stop"));
  EXPECT_THAT(text([](auto* o) { o->batch = -1; }), HasSubstr("--batch"));
  EXPECT_THAT(text([](auto* o) { o->cache_tokens = -1; }), HasSubstr("--cache-tokens"));
  EXPECT_EQ(refused([](auto* o) { o->init = "no_weights.safetensors"; }).code(),
            absl::StatusCode::kNotFound);
}

// Sets attribute `name` of the first node with `op`.
void SetAttribute(const std::string& op, const std::string& name, bool value, proto::Job* job) {
  for (proto::Function& function : *job->mutable_graph()->mutable_function()) {
    for (proto::Node& node : *function.mutable_node()) {
      if (node.op() != op) continue;
      for (proto::NamedAttr& attr : *node.mutable_attr()) {
        if (attr.name() == name) attr.mutable_value()->set_b(value);
      }
      return;
    }
  }
}

TEST(GeneratorTest, AGraphWithoutSuchAFormNamesTheOpAndGoesByWindows) {
  proto::Job job = Gpt();
  SetAttribute("attention", "causal", false, &job);
  const auto derived = compiler::DecodeJobOf(job, "tokens", {2, 1, 4, 2});
  EXPECT_THAT(std::string(derived.status().message()), HasSubstr("attended (attention)"));
  GenerateOptions options = TwoPrompts();
  options.max_tokens = 2;
  std::string note;
  options.note = [&](const std::string& text) { note = text; };
  EXPECT_EQ(Say(job, options).generated.cached_tokens, 0);
  EXPECT_THAT(note, HasSubstr("no cache of keys and values"));
}

// Returns a model of one layer whose text is `nodes` between the lookup and the logits. No
// dimension has a name of graph.dim.
proto::Job Written(const std::string& nodes, const std::string& parameters = "") {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(R"pb(
                     graph {
                       main: "main"
                       function { name: "main"
                                  input { name: "signs" type: "i32[flock=3, stretch=20]" }
                                  input { name: "goal" type: "i32[flock=3, stretch=20]" }
                                  parameter {
                                    name: "book"
                                    type: "f32[kinds=256, girth=16]"
                                    init { normal { std: 0.5 } }
                                  }
                                  parameter {
                                    name: "out"
                                    type: "f32[girth=16, kinds=256]"
                                    init { normal { std: 0.5 } }
                                  }
                                  node { name: "e" op: "embedding" input: "book" input: "signs" }
                                  node {
                                    name: "h"
                                    op: "reshape"
                                    input: "e"
                                    attr {
                                      name: "to"
                                      value { s: "flock=3, stretch=20, eyes=4, depth=4" }
                                    }
                                  }
                   )pb",
                   nodes, R"pb(
                     node {
                       name: "j"
                       op: "reshape"
                       input: "a"
                       attr {
                         name: "to"
                         value { s: "flock=3, stretch=20, girth=16" }
                       }
                     }
                     node { name: "logits" op: "matmul" input: "j" input: "out" }
                     node { name: "tl" op: "softmax_cross_entropy" input: "logits" input: "goal" }
                     node { name: "loss" op: "reduce_mean" input: "tl" }
                     output: "loss"
                   )pb",
                   parameters, "} }"),
      &job));
  job.mutable_training()->set_steps(1);
  return job;
}

constexpr char kAttention[] =
    R"pb(node { name: "a" op: "attention" input: "h" input: "h" input: "h" })pb";

TEST(GeneratorTest, SamplesWithoutANameOfTheTableFollowThePrompts) {
  for (const size_t prompts : {1, 2}) {
    GenerateOptions options = TwoPrompts();
    options.prompts.resize(prompts);
    options.max_tokens = 4;
    const Said cached = Say(Written(kAttention), options);
    EXPECT_EQ(cached.generated.cached_tokens, static_cast<int64_t>(3 * prompts));
    options.cache = GenerateOptions::Cache::kNever;
    EXPECT_EQ(cached.tokens, Say(Written(kAttention), options).tokens);
  }
}

TEST(GeneratorTest, AModelThatKeepsNothingHasNoPool) {
  const proto::Job job = Written(R"pb(node { name: "a" op: "relu" input: "h" })pb");
  GenerateOptions options = TwoPrompts();
  options.max_tokens = 4;
  options.cache_tokens = 1;
  const Said said = Say(job, options);
  EXPECT_EQ(said.generated.cached_tokens, 6);
  EXPECT_EQ(said.generated.pages, 0);
  EXPECT_EQ(said.generated.peak_pages, 0);
  options.cache = GenerateOptions::Cache::kNever;
  EXPECT_EQ(said.tokens, Say(job, options).tokens);
}

TEST(GeneratorTest, ANameThatMeansSamplesAndHeadsIsTwoSizes) {
  proto::Job job = Written(kAttention);
  proto::Dim* dim = job.mutable_graph()->add_dim();
  dim->set_name("eyes");
  dim->set_size(4);
  std::string graph = job.graph().DebugString();
  for (const char* from : {"flock=3", "eyes=4"}) {
    for (size_t at = 0; (at = graph.find(from, at)) != std::string::npos; at += 4)
      graph.replace(at, std::string(from).size(), "eyes");
  }
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(graph, job.mutable_graph()));
  const Said cached = Say(job, TwoPrompts());
  GenerateOptions options = TwoPrompts();
  options.cache = GenerateOptions::Cache::kNever;
  EXPECT_EQ(cached.tokens, Say(job, options).tokens);
}

TEST(GeneratorTest, AnOpThatRelatesSequencesHasNoCache) {
  const auto derived = compiler::DecodeJobOf(
      Written(R"pb(node {
                     name: "c"
                     op: "cumsum"
                     input: "h"
                     attr {
                       name: "axis"
                       value { i: 0 }
                     }
                   }
                   node { name: "a" op: "attention" input: "c" input: "c" input: "c" })pb"),
      "signs", {2, 1, 8});
  EXPECT_THAT(std::string(derived.status().message()), HasSubstr("node c (cumsum)"));
  EXPECT_THAT(std::string(derived.status().message()), HasSubstr("relates the sequences"));
}

TEST(GeneratorTest, AReaderOfASecondResultOfAttentionHasNoCache) {
  const auto derived =
      compiler::DecodeJobOf(Written(R"pb(node {
                                           name: "attended"
                                           op: "attention"
                                           input: [ "h", "h", "h" ]
                                           output: [ "o", "lse" ]
                                         }
                                         node { name: "t" op: "reduce_mean" input: "lse" }
                                         node { name: "a" op: "add" input: "o" input: "t" })pb"),
                            "signs", {2, 1, 8});
  EXPECT_THAT(std::string(derived.status().message()), HasSubstr("a reader of lse"));
}

TEST(GeneratorTest, AWeightOfAnotherLossIsNamed) {
  const auto derived = compiler::DecodeJobOf(
      Written(absl::StrCat(kAttention, R"pb(
                node { name: "aux" op: "matmul" input: "e" input: "aw" }
                node { name: "al" op: "softmax_cross_entropy" input: "aux" input: "goal" }
              )pb"),
              R"pb(parameter {
                     name: "aw"
                     type: "f32[girth=16, kinds=256]"
                     init { zeros: true }
                   })pb"),
      "signs", {2, 1, 8});
  ASSERT_TRUE(derived.ok()) << derived.status();
  ASSERT_EQ(derived->unused.size(), 1u);
  EXPECT_EQ(derived->unused.count("aw"), 1u);
}

TEST(GeneratorTest, TheLargestNumberOfTokensIsNoSize) {
  GenerateOptions options = TwoPrompts();
  options.max_tokens = INT64_MAX;
  int asked = 0;
  options.interrupted = [&] { return ++asked > 3; };
  EXPECT_EQ(Say(Gpt(), options).generated.ends[0], Generated::End::kInterrupted);
}

TEST(GeneratorTest, NamesOfDimensionsDecideNothing) {
  proto::Job renamed = Gpt();
  std::string graph = renamed.graph().DebugString();
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"sequence", "channels"}, {"batch", "sequence"}}) {
    for (size_t at = 0; (at = graph.find(from, at)) != std::string::npos; at += to.size())
      graph.replace(at, from.size(), to);
  }
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(graph, renamed.mutable_graph()));
  renamed.clear_rule();  // they speak of the old names
  const Said said = Say(renamed, TwoPrompts());
  EXPECT_EQ(said.tokens, Say(Gpt(), TwoPrompts()).tokens);
  EXPECT_EQ(said.generated.cached_tokens, 10);
}

TEST(GenerationCacheTest, ASequenceHasPagesOfThePartOfItsRow) {
  GenerationCache cache({1, 3}, 4);  // rows 0 | 1, 2 and pages 1 to 3 | 4 to 11
  EXPECT_EQ(cache.num_pages(), 11);
  EXPECT_EQ(cache.capacity(), 8);
  const auto admit = [&](size_t sequence, int64_t pages, int64_t pages_max) {
    return cache.Admit(sequence, pages, pages_max);
  };
  ASSERT_TRUE(admit(0, 7, 7));
  EXPECT_FALSE(admit(1, 2, 4)) << "the part with room for 4 has 1 page, and the other one is small";
  ASSERT_TRUE(admit(1, 2, 3));
  EXPECT_EQ(cache.places().at(1).row, 0);
  EXPECT_EQ(cache.places().at(1).pages, (std::vector<int32_t>{1, 2}));
  EXPECT_FALSE(admit(2, 2, 3));
  ASSERT_TRUE(admit(2, 1, 3));
  EXPECT_EQ(cache.places().at(2).row, 2);
  EXPECT_EQ(cache.YoungestBeside(0), 2u);
  EXPECT_EQ(cache.YoungestBeside(1), 1u);
  EXPECT_FALSE(cache.Grow(0));
  cache.Release(2);
  EXPECT_TRUE(cache.Grow(0));
  EXPECT_EQ(cache.PagesInUseForTest(), 10);
  cache.Release(0);
  EXPECT_EQ(cache.PagesInUseForTest(), 2);
  EXPECT_EQ(cache.peak_pages(), 10);
}

TEST(GenerationCacheTest, ASequenceGoesToThePartWithMostPagesThatNobodyMayNeed) {
  GenerationCache cache({2, 4}, 4);   // rows 0, 1 | 2, 3 and pages 1 to 7 | 8 to 15
  ASSERT_TRUE(cache.Admit(0, 1, 6));  // 7 | 2
  EXPECT_EQ(cache.places().at(0).row, 2);
  ASSERT_TRUE(cache.Admit(1, 1, 3));  // 4 | 2
  EXPECT_EQ(cache.places().at(1).row, 0);
  ASSERT_TRUE(cache.Admit(2, 1, 3));
  EXPECT_EQ(cache.places().at(2).row, 1) << "6 | 7 pages are free";
  cache.Release(0);
  ASSERT_TRUE(cache.Admit(3, 1, 8));
  EXPECT_EQ(cache.places().at(3).row, 2);
}

TEST(SamplingTest, TopKAndTopPLeaveTheLikeliestTokens) {
  const std::vector<float> logits = {0, 3, 1, 2};
  const auto drawn = [&](const SamplingOptions& options) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < 100; ++i) {
      const int64_t token = SampleToken(logits, options, i / 100.0);
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
    }
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  };
  using testing::ElementsAre;
  EXPECT_THAT(drawn({.temperature = 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn({.temperature = 0}), ElementsAre(1));
  EXPECT_THAT(drawn({.temperature = 1, .top_k = 2}), ElementsAre(1, 3));
  EXPECT_THAT(drawn({.temperature = 1, .top_p = 0.6}), ElementsAre(1)) << "it has 0.64";
  EXPECT_THAT(drawn({.temperature = 1, .top_p = 0.7}), ElementsAre(1, 3));
}

}  // namespace
}  // namespace weir::train
