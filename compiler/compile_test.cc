#include "compiler/compile.h"

#include <set>

#include "compiler/ir/rhythm_codec.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/import_settings.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/passes/bundle_boxings.h"
#include "compiler/passes/passes.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

constexpr char kTinyJob[] = R"pb(
  name: "tiny"
  graph {
    name: "tiny"
    dim { name: "batch" size: 8 }
    dim { name: "sequence" size: 8 }
    dim { name: "hidden" size: 16 }
    dim { name: "heads" size: 16 unit: 4 }
    dim { name: "head_count" size: 4 }
    dim { name: "head_dim" size: 4 }
    dim { name: "ffn" size: 32 }
    dim { name: "vocab" size: 32 }
    function {
      name: "block"
      input { name: "x" type: "f32[batch, sequence, hidden]" }
      parameter {
        name: "g1"
        type: "f32[hidden]"
        init { ones: true }
      }
      parameter {
        name: "wq"
        type: "f32[hidden, heads]"
        init { normal { std: 0.1 } }
        decay: true
      }
      parameter {
        name: "wk"
        type: "f32[hidden, heads]"
        init { normal { std: 0.1 } }
        decay: true
      }
      parameter {
        name: "wv"
        type: "f32[hidden, heads]"
        init { normal { std: 0.1 } }
        decay: true
      }
      parameter {
        name: "wo"
        type: "f32[heads, hidden]"
        init { normal { std: 0.1 } }
        decay: true
      }
      parameter { name: "bo" type: "f32[hidden]" }
      parameter {
        name: "g2"
        type: "f32[hidden]"
        init { ones: true }
      }
      parameter {
        name: "w1"
        type: "f32[hidden, ffn]"
        init { normal { std: 0.1 } }
        decay: true
      }
      parameter { name: "b1" type: "f32[ffn]" }
      parameter {
        name: "w2"
        type: "f32[ffn, hidden]"
        init { normal { std: 0.1 } }
        decay: true
      }
      node { name: "n1" op: "rms_norm" input: "x" input: "g1" }
      node { name: "q" op: "matmul" input: "n1" input: "wq" }
      node { name: "k" op: "matmul" input: "n1" input: "wk" }
      node { name: "v" op: "matmul" input: "n1" input: "wv" }
      node {
        name: "qh"
        op: "reshape"
        input: "q"
        attr {
          name: "to"
          value { s: "batch, sequence, head_count, head_dim" }
        }
      }
      node {
        name: "kh"
        op: "reshape"
        input: "k"
        attr {
          name: "to"
          value { s: "batch, sequence, head_count, head_dim" }
        }
      }
      node {
        name: "vh"
        op: "reshape"
        input: "v"
        attr {
          name: "to"
          value { s: "batch, sequence, head_count, head_dim" }
        }
      }
      node { name: "a" op: "attention" input: "qh" input: "kh" input: "vh" }
      node {
        name: "af"
        op: "reshape"
        input: "a"
        attr {
          name: "to"
          value { s: "batch, sequence, heads" }
        }
      }
      node { name: "o" op: "matmul" input: "af" input: "wo" input: "bo" }
      node { name: "h" op: "add" input: "x" input: "o" }
      node { name: "n2" op: "rms_norm" input: "h" input: "g2" }
      node {
        name: "f"
        op: "matmul"
        input: "n2"
        input: "w1"
        input: "b1"
        attr {
          name: "activation"
          value { s: "gelu" }
        }
      }
      node { name: "m" op: "matmul" input: "f" input: "w2" }
      node { name: "y" op: "add" input: "h" input: "m" }
      output: "y"
    }
    function {
      name: "main"
      input { name: "tokens" type: "i32[batch, sequence]" }
      input { name: "targets" type: "i32[batch, sequence]" }
      parameter {
        name: "wte"
        type: "f32[vocab, hidden]"
        init { normal { std: 0.1 } }
      }
      parameter {
        name: "wpe"
        type: "f32[sequence, hidden]"
        init { normal { std: 0.1 } }
      }
      parameter {
        name: "head"
        type: "f32[hidden, vocab]"
        init { normal { std: 0.1 } }
      }
      node { name: "e" op: "embedding" input: "wte" input: "tokens" }
      node { name: "x" op: "add" input: "e" input: "wpe" }
      node { name: "layers" op: "call" function: "block" repeat: 4 input: "x" output: "z" }
      node { name: "logits" op: "matmul" input: "z" input: "head" }
      node { name: "ce" op: "softmax_cross_entropy" input: "logits" input: "targets" }
      node { name: "loss" op: "reduce_mean" input: "ce" }
      output: "loss"
    }
    main: "main"
  }
  rule { dim: "batch" axis: "dp" }
  rule { dim: "heads" axis: "tp" }
  rule { dim: "head_count" axis: "tp" }
  rule { dim: "ffn" axis: "tp" }
  rule { dim: "vocab" axis: "tp" }
  data { synthetic {} }
  training {
    steps: 3
    micro_batches: 2
    seed: 7
    optimizer {
      adamw { weight_decay: 0.1 }
      clip_norm: 1
    }
    schedule { learning_rate: 0.01 }
  }
)pb";

proto::Job TinyJob(const std::string& mesh) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kTinyJob, &job));
  absl::StatusOr<sbp::Mesh> parsed = sbp::Mesh::Parse(mesh);
  EXPECT_TRUE(parsed.ok());
  for (const sbp::MeshAxis& axis : parsed->axes()) {
    auto* spec = job.mutable_mesh()->add_axis();
    spec->set_name(axis.name);
    spec->set_size(axis.size);
  }
  return job;
}

TEST(Compile, EveryRankOfEveryMeshLowers) {
  for (const char* mesh : {"", "dp=2", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2", "dp=2,pp=2",
                           "dp=2,tp=2,pp=2", "dp=3"}) {
    for (int zero : {0, 1, 2, 3}) {
      proto::Job job = TinyJob(mesh);
      job.mutable_training()->set_zero_stage(zero);
      auto plan = CompileJob(job, {});
      ASSERT_TRUE(plan.ok()) << mesh << ": " << plan.status();
      for (RankId rank : (*plan)->places.all_ranks()) {
        auto lowered = LowerForRank(**plan, rank);
        ASSERT_TRUE(lowered.ok()) << mesh << " rank " << rank << ": " << lowered.status();
        EXPECT_GT(lowered->actor_size(), 0);
      }
    }
  }
}

TEST(Compile, APlanHasEachProgramOnce) {
  int64_t saved = 0;
  for (const char* mesh : {"", "dp=2,tp=2", "pp=2,dp=2"}) {
    auto plan = CompileJob(TinyJob(mesh), {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    auto lowered = LowerForRank(**plan, RankId(0));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    std::set<std::string> programs;
    for (const proto::Program& program : lowered->program())
      EXPECT_TRUE(programs.insert(program.SerializeAsString()).second) << program.name();
    std::set<int> used;
    for (const proto::ActorSpec& actor : lowered->actor()) {
      if (actor.program() >= 0 && !used.insert(actor.program()).second) ++saved;
    }
    EXPECT_EQ(used.size(), static_cast<size_t>(lowered->program_size())) << "all are in use";
  }
  EXPECT_GT(saved, 0) << "layers share programs";
}

TEST(Compile, PassesThatHaveDoneTheirWorkChangeNothingMore) {
  for (const char* mesh : {"tp=2", "dp=2,tp=2", "dp=2,tp=2,pp=2"}) {
    for (int zero : {0, 3}) {
      proto::Job job = TinyJob(mesh);
      job.mutable_training()->set_zero_stage(zero);
      auto plan = CompileJob(job, {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      PassContext context;
      context.stage_mesh = (*plan)->stage_mesh;
      context.micro_batches_per_update = (*plan)->micro_batches;
      context.dims = *ImportDims(job);
      context.rules = *ImportRules(job, context.stage_mesh, context.dims);
      Module* const module = &(*plan)->module;
      const std::string before = ToText(*module, context.stage_mesh);
      ASSERT_TRUE(ApplyPrecision(context, module).ok());
      EXPECT_EQ(ToText(*module, context.stage_mesh), before) << "apply-precision on " << mesh;
      ASSERT_TRUE(ExpandCrossEntropy(context, module).ok());
      EXPECT_EQ(ToText(*module, context.stage_mesh), before) << "expand-cross-entropy on " << mesh;
      ASSERT_TRUE(RemoveDeadNodes(context, module).ok());
      EXPECT_EQ(ToText(*module, context.stage_mesh), before) << "remove-dead-nodes on " << mesh;
      ASSERT_TRUE(BundleBoxings((*plan)->places, module).ok());
      EXPECT_EQ(ToText(*module, context.stage_mesh), before) << "bundle-boxings on " << mesh;
    }
  }
}

// Returns the rhythm as another process gets it.
JobRhythm Sent(const JobRhythm& rhythm) {
  proto::RhythmSpec spec;
  EXPECT_TRUE(spec.ParseFromString(ToProto(rhythm).SerializeAsString()));
  absl::StatusOr<JobRhythm> got = RhythmFromProto(spec);
  EXPECT_TRUE(got.ok()) << got.status();
  return *std::move(got);
}

TEST(Compile, AModuleThatWasKeptGivesTheSamePlans) {
  KeptModules kept;
  CompileOptions options;
  options.program_only = true;
  for (const char* round : {"first", "second"}) {
    SCOPED_TRACE(round);
    // The rules differ, and one of them asks for the passes after the kept module to do more.
    for (const char* dim : {"batch", "heads", "vocab"}) {
      SCOPED_TRACE(dim);
      proto::Job job = TinyJob("dp=2");
      job.clear_rule();
      job.add_rule()->set_dim(dim);
      job.mutable_rule(0)->set_axis("dp");
      options.kept = nullptr;
      const auto plain = CompileJob(job, options);
      ASSERT_TRUE(plain.ok()) << plain.status();
      options.kept = &kept;
      const auto with_kept = CompileJob(job, options);
      ASSERT_TRUE(with_kept.ok()) << with_kept.status();
      EXPECT_EQ(ToText((*with_kept)->module, (*with_kept)->stage_mesh),
                ToText((*plain)->module, (*plain)->stage_mesh));
      EXPECT_NE(kept.Find(job, PlanMode::kTrain), nullptr);
      EXPECT_EQ(kept.Find(job, PlanMode::kEvaluate), nullptr);
    }
  }
  // A module is kept for the same graph, mesh and settings alone.
  EXPECT_EQ(kept.Find(TinyJob("dp=4"), PlanMode::kTrain), nullptr);
}

TEST(Compile, ARhythmThatAnotherProcessSolvedGivesTheSamePlans) {
  for (PlanMode mode : {PlanMode::kTrain, PlanMode::kEvaluate}) {
    for (const char* mesh : {"", "dp=3", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
      proto::Job job = TinyJob(mesh);
      job.mutable_training()->set_zero_stage(3);
      job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
      CompileOptions options;
      options.mode = mode;
      auto solved = CompileJob(job, options);
      ASSERT_TRUE(solved.ok()) << mesh << ": " << solved.status();
      const JobRhythm rhythm = Sent((*solved)->rhythm);
      options.rhythm = &rhythm;
      auto given = CompileJob(job, options);
      ASSERT_TRUE(given.ok()) << mesh << ": " << given.status();
      EXPECT_FALSE(rhythm.slots.empty());
      EXPECT_EQ((*given)->plan_id, (*solved)->plan_id);
      for (RankId rank : (*solved)->places.all_ranks()) {
        EXPECT_EQ(LowerForRank(**given, rank)->SerializeAsString(),
                  LowerForRank(**solved, rank)->SerializeAsString())
            << mesh << " rank " << rank;
      }
    }
  }
}

TEST(Compile, ARhythmOfAnotherJobDoesNoHarm) {
  const char* const meshes[] = {"", "dp=2", "pp=2", "dp=2,tp=2,pp=2"};
  int num_refused = 0;
  for (const char* solved : meshes) {
    const JobRhythm rhythm = Sent((*CompileJob(TinyJob(solved), {}))->rhythm);
    for (const char* mesh : meshes) {
      CompileOptions options;
      options.rhythm = &rhythm;
      auto plan = CompileJob(TinyJob(mesh), options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (RankId rank : (*plan)->places.all_ranks()) {
        const absl::StatusOr<proto::RankPlan> lowered = LowerForRank(**plan, rank);
        if (!lowered.ok()) ++num_refused;
        if (mesh == solved) {
          EXPECT_TRUE(lowered.ok()) << lowered.status();
        }
      }
    }
  }
  EXPECT_GT(num_refused, 0);
}

TEST(Compile, ADamagedRhythmIsRefused) {
  const proto::RhythmSpec whole = ToProto((*CompileJob(TinyJob("pp=2"), {}))->rhythm);
  proto::RhythmSpec spec = whole;
  spec.mutable_time(0)->mutable_station()->set_item(-1);
  EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = whole;
  spec.mutable_time(0)->mutable_station()->set_index(1 << 30);
  EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = whole;
  spec.add_family()->mutable_producer()->set_item(1 << 30);
  EXPECT_EQ(RhythmFromProto(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Compile, RulesOfPrecisionLowerOnEveryMeshAndLeaveLayoutsAsTheyAre) {
  for (const auto precision : {proto::Training::BF16, proto::Training::F32}) {
    for (const char* mesh : {"", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
      for (const int zero : {0, 3}) {
        proto::Job job = TinyJob(mesh);
        job.mutable_training()->set_precision(precision);
        job.mutable_training()->set_zero_stage(zero);
        const auto plain = CompileJob(job, {});
        ASSERT_TRUE(plain.ok()) << plain.status();
        const auto other =
            precision == proto::Training::BF16 ? proto::Training::F32 : proto::Training::BF16;
        job.mutable_training()->add_precision_of()->add_op("*norm*");
        job.mutable_training()->add_precision_of()->add_pattern("main");
        for (proto::PrecisionRule& rule : *job.mutable_training()->mutable_precision_of())
          rule.set_precision(other);
        for (const PlanMode mode : {PlanMode::kTrain, PlanMode::kEvaluate, PlanMode::kGenerate}) {
          CompileOptions options;
          options.mode = mode;
          const auto plan = CompileJob(job, options);
          ASSERT_TRUE(plan.ok()) << mesh << ": " << plan.status();
          for (const RankId rank : (*plan)->places.all_ranks()) {
            const auto lowered = LowerForRank(**plan, rank);
            ASSERT_TRUE(lowered.ok()) << mesh << ": " << lowered.status();
          }
          if (mode != PlanMode::kTrain) continue;
          ASSERT_EQ((*plan)->module.variables.size(), (*plain)->module.variables.size());
          for (size_t v = 0; v < (*plan)->module.variables.size(); ++v) {
            EXPECT_EQ((*plan)->module.variables[v].layout, (*plain)->module.variables[v].layout);
            EXPECT_EQ((*plan)->module.variables[v].type, (*plain)->module.variables[v].type);
          }
        }
      }
    }
  }
}

TEST(Compile, EvaluateAndGenerateLower) {
  for (PlanMode mode : {PlanMode::kEvaluate, PlanMode::kGenerate}) {
    CompileOptions options;
    options.mode = mode;
    auto plan = CompileJob(TinyJob("tp=2"), options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    auto lowered = LowerForRank(**plan, RankId(1));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
  }
}

TEST(Compile, ADumpSaysWhichRuleGaveALayout) {
  std::ostringstream dump;
  CompileOptions options;
  options.dump_after = "propagate-layouts";
  options.dump_to = &dump;
  auto plan = CompileJob(TinyJob("dp=2,tp=2"), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NE(dump.str().find("rule heads -> tp"), std::string::npos);
}

TEST(Compile, ATransferOfEarlyDataThatStandsLateLosesNoOp) {
  proto::Job job = TinyJob("tp=2");
  proto::Rule* rule = job.add_rule();
  rule->set_dim("sequence");
  rule->set_axis("tp");
  rule->set_scope(proto::Rule::ACTIVATIONS);
  job.mutable_training()->set_precision(proto::Training::BF16);
  auto plan = CompileJob(job, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto lowered = LowerForRank(**plan, RankId(rank));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    int picks = 0;
    for (const proto::Program& program : lowered->program()) {
      for (const proto::KernelCall& call : program.call()) picks += call.op() == "exp_sum_pick";
    }
    EXPECT_EQ(picks, 1) << "rank " << rank;
  }
}

// Returns the ways of the calls of `op` on all ranks, one for each call.
std::vector<std::string> WaysOf(const LogicalPlan& plan, const std::string& op) {
  std::vector<std::string> ways;
  for (const RankId rank : plan.places.all_ranks()) {
    const auto lowered = LowerForRank(plan, rank);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (!lowered.ok()) continue;
    for (const proto::Program& program : lowered->program()) {
      for (const proto::KernelCall& call : program.call()) {
        if (call.op() != op) continue;
        ways.emplace_back();
        for (const proto::NamedAttr& attr : call.attr()) {
          if (attr.name() == "way") ways.back() = attr.value().s();
        }
      }
    }
  }
  return ways;
}

TEST(Compile, EveryRankGetsTheWaysOfProductsThatTheJobNames) {
  proto::Job job = TinyJob("dp=2");
  const auto before = CompileJob(job, {});
  ASSERT_TRUE(before.ok()) << before.status();
  for (const char* op : {"matmul", "matmul_grad_w"}) {
    for (const std::string& way : WaysOf(**before, op)) EXPECT_EQ(way, "") << op;
  }
  // The choices are for the gradients of weights alone, whose sizes are those of the weights and
  // the tokens of a rank.
  for (const int64_t n : {16, 32}) {
    proto::ProductWayChoice* choice = job.mutable_runtime()->add_product();
    choice->set_way("plain");
    choice->mutable_of()->set_operands("f32");
    choice->mutable_of()->set_m(16);
    choice->mutable_of()->set_n(n);
    choice->mutable_of()->set_k(32);
    choice->mutable_of()->set_a_transposed(true);
  }
  const auto plan = CompileJob(job, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::string> gradients = WaysOf(**plan, "matmul_grad_w");
  EXPECT_FALSE(gradients.empty());
  for (const std::string& way : gradients) EXPECT_EQ(way, "plain");
  for (const std::string& way : WaysOf(**plan, "matmul")) EXPECT_EQ(way, "");
  EXPECT_NE((*plan)->plan_id, (*before)->plan_id) << "other kernels make another plan";
}

TEST(Compile, AWayOfProductsThatDoesNotExistIsRefused) {
  proto::Job job = TinyJob("");
  job.mutable_runtime()->add_product()->set_way("fast");
  const absl::Status status = CompileJob(job, {}).status();
  EXPECT_NE(status.message().find("W0843 at runtime.product[0]"), std::string::npos) << status;
}

}  // namespace
}  // namespace weir::compiler
