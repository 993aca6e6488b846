// Searches for jobs of the zoo on given clusters, and holds the results to virtual runs, to the
// rules that people usually write, and to trials of all rules of small models.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/compile.h"
#include "compiler/job/mesh_use.h"
#include "compiler/search/job_trial.h"
#include "compiler/search/search_layouts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/job_file.h"
#include "tools/search/rank_layouts.h"
#include "tools/search/search_screen.h"
#include "tools/search/settle_rules.h"
#include "tools/sim/cluster_file.h"
#include "tools/sim/simulate.h"
#include "tools/zoo/llama.h"
#include "tools/zoo/mlp.h"

namespace weir::search {
namespace {

using ::testing::HasSubstr;

sim::JobCosts Costs() {
  const absl::StatusOr<proto::Cluster> cluster = sim::ParseCluster(R"(
    name: "accelerators"
    device {
      name: "accelerator" memory_bytes: 1e12 act_ns: 100 kernel_ns: 200 bytes_per_second: 1.6e12
      peak { dtype: "f32" flops_per_second: 1e14 efficiency: 0.5 }
    }
    host { device: "accelerator" devices: 8 count: 8 }
    within_host { latency_ns: 1000 bytes_per_second: 4e10 message_ns: 50 }
    between_hosts { latency_ns: 8000 bytes_per_second: 2e10 message_ns: 50 shared: DEVICE }
  )",
                                                                   "cluster");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return sim::JobCosts::Of(*cluster);
}

proto::Job Llama(const std::string& mesh, int64_t batch, int64_t sequence, int64_t hidden = 1024) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = hidden;
  options.heads = 16;
  options.kv_heads = 8;
  options.vocab = 2048;
  options.sequence = sequence;
  options.training.batch = batch;
  absl::StatusOr<proto::Job> job = zoo::LlamaJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job::SetMesh(mesh, &*job).ok());
  Costs().TellHosts(&*job);
  return *std::move(job);
}

compiler::SearchOptions Options(const sim::JobCosts& costs, int results_max) {
  compiler::SearchOptions options;
  options.costs = &costs.model();
  options.results_max = results_max;
  return options;
}

double SimulatedNs(const proto::Job& job, const sim::JobCosts& costs) {
  const auto report =
      sim::Simulate(job, costs.ClusterFor(64), {.symmetry = sim::SimulateOptions::Symmetry::kOff});
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->step_ns : 0;
}

// Spearman's: the correlation of ranks.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](size_t x, size_t y) { return values[x] < values[y]; });
    std::vector<double> rank(values.size());
    for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
    return rank;
  };
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double n = static_cast<double>(a.size());
  double differences = 0;
  for (size_t i = 0; i < x.size(); ++i) differences += (x[i] - y[i]) * (x[i] - y[i]);
  return 1 - 6 * differences / (n * (n * n - 1));
}

// Five ways to use an axis: the batch, Megatron's pairs, these with the sequence in between, the
// sequence alone, nothing.
std::vector<compiler::RuleList> WaysToUse(const std::string& axis) {
  compiler::RuleList pairs;
  for (const char* dim : {"heads", "head_count", "kv_heads", "kv_head_count", "ffn", "vocab"})
    pairs.push_back({dim, axis});
  compiler::RuleList with_sequence = pairs;
  with_sequence.push_back({"sequence", axis});
  return {{{"batch", axis}}, pairs, with_sequence, {{"sequence", axis}}, {}};
}

TEST(Search, EstimatesOrderLayoutsAsVirtualRunsDo) {
  const sim::JobCosts costs = Costs();
  std::vector<double> estimated, simulated;
  for (const char* mesh : {"dp=2,tp=2", "dp=2,tp=4"}) {
    proto::Job job = Llama(mesh, 8, 256, 512);
    auto trial = compiler::JobTrial::Create(job, &costs.model());
    ASSERT_TRUE(trial.ok()) << trial.status();
    for (const compiler::RuleList& of_dp : WaysToUse("dp")) {
      for (const compiler::RuleList& of_tp : WaysToUse("tp")) {
        for (int zero : {0, 3}) {
          if (zero == 3 && mesh == std::string("dp=2,tp=4")) continue;
          compiler::RuleList rules = of_dp;
          rules.insert(rules.end(), of_tp.begin(), of_tp.end());
          compiler::SetRules(rules, &job);
          job.mutable_training()->set_zero_stage(zero);
          const auto estimate = (*trial)->Estimate(job);
          ASSERT_TRUE(estimate.ok()) << estimate.status();
          estimated.push_back(estimate->step_ns);
          simulated.push_back(SimulatedNs(job, costs));
        }
      }
    }
  }
  EXPECT_GE(estimated.size(), 50u);
  const double correlation = RankCorrelation(estimated, simulated);
  RecordProperty("correlation", absl::StrCat(correlation));
  EXPECT_GE(correlation, 0.9);
}

TEST(Search, IsNeverWorseThanTheRulesOfTheJobOrThoseByHand) {
  const sim::JobCosts costs = Costs();
  for (const char* mesh : {"dp=8", "tp=4", "dp=2,tp=4", "dp=2,sp=2,tp=2", "dp=2,tp=2,pp=2"}) {
    const proto::Job job = Llama(mesh, 16, 128);
    const auto report = compiler::SearchLayouts(job, Options(costs, 5));
    ASSERT_TRUE(report.ok()) << mesh << ": " << report.status();
    EXPECT_LE(report->best[0].estimate.step_ns, report->present.estimate.step_ns) << mesh;
    ASSERT_TRUE(report->known.has_value());
    EXPECT_LE(report->best[0].estimate.step_ns, report->known->estimate.step_ns) << mesh;
    EXPECT_TRUE(report->exact) << mesh;
  }
}

// A search computes one call in place of a chain, whose weights have other names then.
TEST(Search, GroupsMayNameSingleLayers) {
  const sim::JobCosts costs = Costs();
  proto::Job job = Llama("dp=2,tp=2", 16, 128);
  const auto plain = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(plain.ok()) << plain.status();
  proto::ParameterGroup* group = job.mutable_training()->add_group();
  group->add_pattern("layers.0.*");
  group->set_frozen(true);
  const auto first = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->present.estimate.step_ns, plain->present.estimate.step_ns)
      << "the other layers need the same gradients";
  group->set_pattern(0, "layers.*");
  const auto all = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_LT(all->present.estimate.step_ns, plain->present.estimate.step_ns);
  group->set_pattern(0, "layers.77.*");
  EXPECT_THAT(std::string(compiler::SearchLayouts(job, Options(costs, 5)).status().message()),
              HasSubstr("W0082 at training.group[0].pattern"));
}

// All ordered lists of rules of an MLP on two axes: each axis has none, one or two of three
// dimensions.
TEST(Search, FindsTheBestOfAllRulesOfASmallModel) {
  const sim::JobCosts costs = Costs();
  zoo::MlpOptions mlp;
  mlp.layers = 1;
  mlp.hidden = 512;
  mlp.ffn = 2048;
  mlp.training.batch = 64;
  absl::StatusOr<proto::Job> job = zoo::MlpJob(mlp);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(job::SetMesh("a=2,b=4", &*job).ok());
  const auto report = compiler::SearchLayouts(*job, Options(costs, 5));
  ASSERT_TRUE(report.ok()) << report.status();
  auto trial = compiler::JobTrial::Create(*job, &costs.model());
  ASSERT_TRUE(trial.ok());
  std::vector<std::vector<std::string>> lists{{}};
  const std::vector<std::string> dims{"batch", "ffn", "hidden"};
  for (const std::string& first : dims) {
    lists.push_back({first});
    for (const std::string& second : dims)
      if (first != second) lists.push_back({first, second});
  }
  double least = 0;
  int tried = 0;
  for (const std::vector<std::string>& of_a : lists) {
    for (const std::vector<std::string>& of_b : lists) {
      compiler::RuleList rules;
      for (const std::string& dim : of_a) rules.push_back({dim, "a"});
      for (const std::string& dim : of_b) rules.push_back({dim, "b"});
      proto::Job variant = *job;
      compiler::SetRules(rules, &variant);
      const auto estimate = (*trial)->Estimate(variant);
      if (!estimate.ok()) continue;
      ++tried;
      if (least == 0 || estimate->step_ns < least) least = estimate->step_ns;
    }
  }
  EXPECT_EQ(tried, 100);
  EXPECT_LE(report->best[0].estimate.step_ns, least * 1.0001);
}

std::vector<std::string> RulesOf(const compiler::FoundLayouts& found) {
  std::vector<std::string> rules;
  for (const compiler::RuleEntry& rule : found.rules) rules.push_back(compiler::ToText(rule));
  return rules;
}

// One sample, long sequences: the batch cannot be split, and heads need no whole weights.
TEST(Search, OneSampleOfALongSequenceIsSplitAlongTheSequence) {
  const sim::JobCosts costs = Costs();
  proto::Job job = Llama("sp=4", 1, 8192, 512);
  job.clear_rule();
  const auto report = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(RulesOf(report->best[0]),
              ::testing::Contains(::testing::StartsWith("sequence -> sp")));
  // Ulysses: attention needs the whole sequence, and splits heads instead.
  EXPECT_THAT(RulesOf(report->best[0]), ::testing::Contains(HasSubstr("head")));
}

TEST(Search, LittleMemoryIsKeptBySettingsAndRules) {
  const sim::JobCosts costs = Costs();
  const proto::Job job = Llama("dp=4,tp=2", 16, 256);
  const auto wide = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(wide.ok()) << wide.status();
  compiler::SearchOptions options = Options(costs, 5);
  options.free = compiler::SettingsLeftFree(job);
  options.memory_bytes = wide->best[0].estimate.device_bytes / 3;
  const auto narrow = compiler::SearchLayouts(job, options);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_FALSE(narrow->present.fits);
  EXPECT_TRUE(narrow->best[0].fits);
  const proto::Job& found = narrow->best[0].job;
  EXPECT_TRUE(found.training().zero_stage() > 0 || found.runtime().recompute_size() > 0);
}

TEST(Search, ExplicitLayoutsAndFixedSettingsHold) {
  const sim::JobCosts costs = Costs();
  proto::Job job = Llama("dp=2,tp=2", 8, 128);
  proto::LayoutOverride* const own = job.add_layout();
  own->set_tensor("block/wq");
  own->set_sbp("[tp: S(0)]");
  const auto report = compiler::SearchLayouts(job, Options(costs, 5));
  ASSERT_TRUE(report.ok()) << report.status();
  for (const compiler::FoundLayouts& found : report->best) {
    ASSERT_EQ(found.job.layout_size(), 1);
    EXPECT_EQ(found.job.training().zero_stage(), job.training().zero_stage());
    EXPECT_EQ(found.job.training().micro_batches(), job.training().micro_batches());
    EXPECT_TRUE(compiler::CompileJob(found.job, {}).ok());
  }
}

// A perceptron whose features are normalised by the statistics of the samples of a micro-batch.
proto::Job BatchNormalised() {
  absl::StatusOr<proto::Job> job = job::ParseJob(R"(
    name: "normalised"
    graph {
      dim { name: "batch" size: 4096 }
      dim { name: "pixels" size: 256 }
      dim { name: "features" size: 512 }
      dim { name: "classes" size: 10 }
      function {
        name: "main"
        input { name: "x" type: "f32[batch, pixels]" }
        input { name: "targets" type: "i32[batch]" }
        parameter { name: "w" type: "f32[pixels, features]" }
        parameter { name: "gamma" type: "f32[features]" }
        parameter { name: "beta" type: "f32[features]" }
        parameter { name: "out" type: "f32[features, classes]" }
        node { name: "h" op: "matmul" input: ["x", "w"] }
        node { name: "mean" op: "reduce_mean" input: "h"
               attr { name: "axes" value { ints { values: [0] } } } }
        node { name: "variance" op: "reduce_variance" input: ["h", "mean"]
               attr { name: "axes" value { ints { values: [0] } } } }
        node { name: "n" op: "normalize" input: ["h", "mean", "variance", "gamma", "beta"]
               attr { name: "axes" value { ints { values: [0] } } } }
        node { name: "logits" op: "matmul" input: ["n", "out"] }
        node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "targets"] }
        node { name: "loss" op: "reduce_mean" input: "losses" }
        output: "loss"
      }
      main: "main"
    }
    rule { dim: "batch" axis: "dp" }
    data { synthetic {} }
    training { steps: 2 optimizer { sgd {} } schedule { learning_rate: 0.1 } }
  )",
                                                 "job");
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job::SetMesh("dp=4", &*job).ok());
  return *job;
}

// With micro-batches the statistics, and so the loss, would be others.
TEST(Search, StatisticsOfAMicroBatchKeepTheNumberOfMicroBatches) {
  const sim::JobCosts costs = Costs();
  const proto::Job job = BatchNormalised();
  compiler::SearchOptions options = Options(costs, 5);
  options.free = compiler::SettingsLeftFree(job);
  EXPECT_TRUE(options.free.micro_batches);
  const auto report = compiler::SearchLayouts(job, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->batch_statistics, "main.0/variance");
  for (const compiler::FoundLayouts& found : report->best)
    EXPECT_LE(found.job.training().micro_batches(), 1);
}

TEST(Search, OneDeviceIsRefused) {
  const sim::JobCosts costs = Costs();
  const auto report = compiler::SearchLayouts(Llama("dp=1", 8, 128), Options(costs, 5));
  EXPECT_THAT(report.status().message(), HasSubstr("W0990"));
}

TEST(Search, RulesForStagesHoldForAMeshOfOneStageAndAreRefusedOnSeveral) {
  const sim::JobCosts costs = Costs();
  const proto::Job plain = Llama("dp=2", 8, 128, 512);
  const auto expected = compiler::SearchLayouts(plain, Options(costs, 1));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* mesh : {"dp=2", "pp=1,dp=2"}) {
    proto::Job job = plain;
    ASSERT_TRUE(job::SetMesh(mesh, &job).ok());
    job.mutable_rule(0)->add_stage(3);  // any number means this stage
    const auto report = compiler::SearchLayouts(job, Options(costs, 1));
    ASSERT_TRUE(report.ok()) << mesh << ": " << report.status();
    EXPECT_EQ(report->present.estimate.step_ns, expected->present.estimate.step_ns) << mesh;
    EXPECT_EQ(report->best[0].rules, expected->best[0].rules) << mesh;
    job.mutable_rule(0)->set_stage(0, -1);
    EXPECT_THAT(compiler::SearchLayouts(job, Options(costs, 1)).status().message(),
                HasSubstr("W0458"))
        << "as planning says";
  }
  proto::Job staged = Llama("pp=2,dp=2", 8, 128, 512);
  staged.mutable_rule(0)->add_stage(0);
  EXPECT_THAT(compiler::SearchLayouts(staged, Options(costs, 1)).status().message(),
              HasSubstr("W0459"));
}

TEST(RankLayouts, TheScreenFitsAndTheWrittenJobHasThePredictedStep) {
  const sim::JobCosts costs = Costs();
  const proto::Job job = Llama("dp=2,tp=2", 8, 128, 512);
  RankOptions options;
  options.top = 3;
  options.free = compiler::SettingsLeftFree(job);
  const auto ranked = RankLayouts(job, costs, options);
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  EXPECT_LE(ranked->rows[0].step_ns, ranked->Find(RankedLayouts::Row::kPresent)->step_ns);
  EXPECT_EQ(ranked->rows[0].source, Source::kSimulated);
  // The plan knows more of the memory than the estimate does, which is near it nevertheless.
  EXPECT_NEAR(ranked->rows[0].found.estimate.device_bytes / ranked->rows[0].device_bytes, 0.9, 0.2);
  const std::string screen = SearchScreen(*ranked, job);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(screen, '\n')))
    EXPECT_LE(line.size(), static_cast<size_t>(kSearchColumns)) << line;
  EXPECT_THAT(screen, HasSubstr("present"));
  // The search has found the usual rules by itself, so they have no row of their own.
  ASSERT_EQ(ranked->Find(RankedLayouts::Row::kKnown), nullptr);
  auto with_usual = *ranked;
  with_usual.rows.push_back(with_usual.rows[0]);
  with_usual.rows.back().row = RankedLayouts::Row::kKnown;
  with_usual.rows.back().found.name = "dp data, tp heads";
  EXPECT_THAT(SearchScreen(with_usual, job),
              HasSubstr("\nusual     the best of the rules that people usually write: dp data, "));
  EXPECT_EQ(SimulatedNs(ranked->rows[0].found.job, costs), ranked->rows[0].step_ns);
}

TEST(SearchLayouts, NoMicroBatchesAndOneAreTheSameChoice) {
  proto::Job before = Llama("dp=2,tp=2", 8, 128, 512), found = before;
  before.mutable_training()->clear_micro_batches();
  found.mutable_training()->set_micro_batches(1);
  EXPECT_EQ(compiler::ChoicesOf(found, before).size(), 0u);
  found.mutable_training()->set_micro_batches(4);
  const auto choices = compiler::ChoicesOf(found, before);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].choice, "4 micro-batches instead of 1");
}

TEST(RankLayouts, TooLittleMemoryNamesWhatWouldDo) {
  const sim::JobCosts costs = Costs();
  RankOptions options;
  options.memory_bytes = 1e5;
  const auto ranked = RankLayouts(Llama("dp=2,tp=2", 8, 128, 512), costs, options);
  EXPECT_THAT(ranked.status().message(), HasSubstr("W0991"));
}

// The job asks for rules; it has none of its own.
proto::Job AsksForRules(const std::string& mesh) {
  proto::Job job = Llama(mesh, 8, 128, 512);
  job.clear_rule();
  job.set_rules(proto::Job::AUTO);
  return job;
}

TEST(SettleRules, TheJobGetsRulesThatASearchOfTheRulesAloneFinds) {
  const sim::JobCosts costs = Costs();
  const proto::Job asked = AsksForRules("dp=2,tp=2");
  EXPECT_THAT(compiler::CompileJob(asked, {}).status().message(), HasSubstr("W0760"));
  proto::Job job = asked, again = asked;
  const auto settled = SettleRules(costs, MachineMemory::kIgnored, &job);
  ASSERT_TRUE(settled.ok()) << settled.status();
  ASSERT_TRUE(settled->has_value());
  EXPECT_EQ(job.rules(), proto::Job::WRITTEN);
  EXPECT_EQ(job.training().zero_stage(), asked.training().zero_stage());
  EXPECT_EQ(job.training().micro_batches(), asked.training().micro_batches());
  const auto ranked = RankLayouts(asked, costs, {});
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  EXPECT_EQ(compiler::RulesOf(job), ranked->rows[0].found.rules);
  // A second search finds the same, and a job with the printed rules has the same plan.
  ASSERT_TRUE(SettleRules(costs, MachineMemory::kIgnored, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), job.SerializeAsString());
  const auto pasted = job::ParseJob(RulesToPaste(**settled), "pasted");
  ASSERT_TRUE(pasted.ok()) << pasted.status();
  proto::Job by_hand = asked;
  by_hand.clear_rules();
  *by_hand.mutable_rule() = pasted->rule();
  const auto plan = compiler::CompileJob(job, {}), plan_by_hand = compiler::CompileJob(by_hand, {});
  ASSERT_TRUE(plan.ok() && plan_by_hand.ok());
  EXPECT_EQ((*plan)->plan_id, (*plan_by_hand)->plan_id);
  EXPECT_THAT(SettledText(**settled), HasSubstr("rules found: dp "));
}

// Returns the job on two stages, the first with tp=2 and the second with dp=2,tp=2.
proto::Job OnUnequalStages(proto::Job job) {
  EXPECT_TRUE(job::SetMesh("pp=2,dp=1,tp=1", &job).ok());
  job.mutable_training()->set_micro_batches(2);
  for (const char* mesh : {"tp=2", "dp=2,tp=2"}) {
    proto::Pipeline::StageMesh* const entry = job.mutable_pipeline()->add_stage_mesh();
    entry->add_stage(job.pipeline().stage_mesh_size() - 1);
    entry->set_mesh(mesh);
  }
  return job;
}

// The figures are those of the job as it is, whatever the estimates are about.
TEST(RankLayouts, StagesOfUnequalMeshesGetRulesThatTheyShare) {
  const sim::JobCosts costs = Costs();
  const proto::Job job = OnUnequalStages(Llama("dp=2,tp=2", 8, 128, 512));
  RankOptions options;
  options.top = 2;
  options.free = compiler::SettingsLeftFree(job);
  EXPECT_FALSE(options.free.cut) << "a balanced cut gives larger stages more work";
  options.free.zero = options.free.recompute = false;
  const auto ranked = RankLayouts(job, costs, options);
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  const RankedLayouts& first = ranked->rows[0];
  EXPECT_LE(first.step_ns, ranked->Find(RankedLayouts::Row::kPresent)->step_ns);
  EXPECT_EQ(first.source, Source::kSimulated);
  EXPECT_EQ(SimulatedNs(first.found.job, costs), first.step_ns);
  EXPECT_EQ(first.found.job.pipeline().SerializeAsString(), job.pipeline().SerializeAsString());
  EXPECT_EQ(ranked->devices, 6);
  EXPECT_THAT(SearchScreen(*ranked, job), HasSubstr("6 devices (pp=2,dp=2,tp=2 at most): "));
}

// A run takes all rules that fit, and the best of them have a plan.
TEST(RankLayouts, RulesThatFitUnequalStagesUseTheirMeshes) {
  const sim::JobCosts costs = Costs();
  proto::Job job = OnUnequalStages(Llama("dp=2,tp=2", 8, 128, 512));
  job.mutable_pipeline()->mutable_stage_mesh(0)->set_mesh("dp=2");
  job.mutable_pipeline()->mutable_stage_mesh(1)->set_mesh("tp=2");
  RankOptions options;
  options.top = 8;
  const auto ranked = RankLayouts(job, costs, options);
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  EXPECT_TRUE(ranked->rows[0].fits);
  EXPECT_NE(ranked->rows[0].source, Source::kEstimated);
  for (const RankedLayouts& row : ranked->rows) {
    if (!row.fits || row.row == RankedLayouts::Row::kPresent) continue;
    const auto plan = compiler::CompileJob(row.found.job, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(compiler::CheckMeshUse(**plan).ok()) << compiler::CheckMeshUse(**plan);
  }
}

// The batch over dp and the heads over tp cost the same as the reverse, if both axes have two
// devices, but not on a stage where one of them has one.
TEST(SearchLayouts, RulesThatTieOnTheLargestMeshStayApartOnUnequalStages) {
  const sim::JobCosts costs = Costs();
  const auto num_ties = [&](const proto::Job& job) {
    const auto report = compiler::SearchLayouts(job, Options(costs, 32));
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return -1;
    int ties = 0;
    for (size_t i = 1; i < report->best.size(); ++i) {
      const compiler::FoundLayouts &a = report->best[i - 1], &b = report->best[i];
      if (a.estimate.step_ns != b.estimate.step_ns ||
          a.estimate.device_bytes != b.estimate.device_bytes)
        continue;
      EXPECT_NE(a.rules, b.rules);
      ++ties;
    }
    return ties;
  };
  const proto::Job equal = Llama("dp=2,tp=2", 8, 128, 512);
  EXPECT_EQ(num_ties(equal), 0);
  EXPECT_GT(num_ties(OnUnequalStages(equal)), 0);
}

TEST(SearchLayouts, UnequalMeshesThatAreFarFromEachOtherAreRefused) {
  const sim::JobCosts costs = Costs();
  proto::Job job = OnUnequalStages(Llama("dp=2,tp=2", 8, 128, 512));
  job.mutable_pipeline()->mutable_stage_mesh(0)->set_mesh("dp=4096");
  job.mutable_pipeline()->mutable_stage_mesh(1)->set_mesh("tp=4096");
  EXPECT_THAT(compiler::SearchLayouts(job, Options(costs, 2)).status().message(),
              HasSubstr("W0447"));
}

TEST(SettleRules, StagesOfUnequalMeshesGetRulesForAllTheirAxes) {
  const sim::JobCosts costs = Costs();
  proto::Job job = OnUnequalStages(AsksForRules("dp=2,tp=2"));
  const auto settled = SettleRules(costs, MachineMemory::kIgnored, &job);
  ASSERT_TRUE(settled.ok()) << settled.status();
  ASSERT_TRUE(settled->has_value());
  EXPECT_THAT(SettledText(**settled), HasSubstr("rules found: dp "));
  EXPECT_THAT(SettledText(**settled), HasSubstr("; tp "));
  EXPECT_EQ(job.pipeline().stage_mesh_size(), 2);
  EXPECT_TRUE(compiler::CompileJob(job, {}).ok());
}

TEST(SettleRules, RulesBesideTheWishComeFirstAndStay) {
  const sim::JobCosts costs = Costs();
  proto::Job job = AsksForRules("dp=2,tp=2");
  const compiler::RuleList hints = {{"sequence", "dp"}, {"hidden", "tp"}};
  compiler::SetRules(hints, &job);
  const auto settled = SettleRules(costs, MachineMemory::kIgnored, &job);
  ASSERT_TRUE(settled.ok()) << settled.status();
  compiler::RuleList rules = compiler::RulesOf(job);
  ASSERT_GE(rules.size(), hints.size());
  rules.resize(hints.size());
  EXPECT_EQ(rules, hints);
}

TEST(SettleRules, OneDeviceAndWrittenRulesNeedNoSearch) {
  const sim::JobCosts costs = Costs();
  for (const char* mesh : {"dp=1", "pp=2"}) {
    proto::Job job = AsksForRules(mesh);
    EXPECT_FALSE(IsSearched(job)) << mesh;
    const auto settled = SettleRules(costs, MachineMemory::kMust, &job);
    ASSERT_TRUE(settled.ok()) << settled.status();
    EXPECT_FALSE(settled->has_value()) << mesh;
    EXPECT_EQ(job.rules(), proto::Job::WRITTEN);
  }
  EXPECT_TRUE(IsSearched(AsksForRules("dp=2")));
  proto::Job written = Llama("dp=2", 8, 128, 512);
  EXPECT_FALSE(IsSearched(written));
  const std::string before = written.SerializeAsString();
  EXPECT_FALSE(SettleRules(costs, MachineMemory::kMust, &written)->has_value());
  EXPECT_EQ(written.SerializeAsString(), before);
}

TEST(SettleRules, TheMemoryOfADeviceHolds) {
  const sim::JobCosts costs = Costs();
  proto::Job job = AsksForRules("dp=2,tp=2");
  const auto wide = SettleRules(costs, MachineMemory::kIgnored, &job);
  ASSERT_TRUE(wide.ok()) << wide.status();
  const double bytes = (*wide)->best.device_bytes;
  proto::Job small = AsksForRules("dp=2,tp=2");
  small.mutable_runtime()->set_memory_bytes_max(static_cast<int64_t>(bytes * 0.9));
  const auto narrow = SettleRules(costs, MachineMemory::kIgnored, &small);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_LE((*narrow)->best.device_bytes, bytes * 0.9);
  proto::Job tiny = AsksForRules("dp=2,tp=2");
  tiny.mutable_runtime()->set_memory_bytes_max(1000);
  const auto none = SettleRules(costs, MachineMemory::kIgnored, &tiny);
  EXPECT_THAT(none.status().message(), HasSubstr("W0761"));
  EXPECT_THAT(none.status().message(), HasSubstr("runtime.memory_bytes_max"));
}

}  // namespace
}  // namespace weir::search
