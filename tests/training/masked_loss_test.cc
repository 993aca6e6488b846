// Tests that a model with a padding mask and with targets that the loss ignores has the same losses
// on every layout and with any number of micro-batches: the loss is the mean over the targets of
// the step that count.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"

namespace weir::training {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 8;

constexpr char kJob[] = R"pb(
  graph {
    dim { name: "batch" size: 12 }
    dim { name: "sequence" size: 10 }
    dim { name: "hidden" size: 32 }
    dim { name: "heads" size: 32 unit: 8 }
    dim { name: "head_count" size: 4 }
    dim { name: "head_dim" size: 8 }
    dim { name: "ffn" size: 48 }
    dim { name: "vocab" size: 64 }
    function {
      name: "block"
      input { name: "x" type: "f32[batch, sequence, hidden]" }
      input { name: "seen" type: "bool[batch, one=1, two=1, sequence]" }
      parameter {
        name: "gamma"
        type: "f32[hidden]"
        init { ones: true }
      }
      parameter {
        name: "wq"
        type: "f32[hidden, heads]"
        init { normal { std: 0.2 } }
        decay: true
      }
      parameter {
        name: "wk"
        type: "f32[hidden, heads]"
        init { normal { std: 0.2 } }
        decay: true
      }
      parameter {
        name: "wv"
        type: "f32[hidden, heads]"
        init { normal { std: 0.2 } }
        decay: true
      }
      parameter {
        name: "wo"
        type: "f32[heads, hidden]"
        init { normal { std: 0.2 } }
        decay: true
      }
      parameter {
        name: "up"
        type: "f32[hidden, ffn]"
        init { normal { std: 0.2 } }
        decay: true
      }
      parameter {
        name: "down"
        type: "f32[ffn, hidden]"
        init { normal { std: 0.2 } }
        decay: true
      }
      node {
        name: "normed"
        op: "rms_norm"
        input: [ "x", "gamma" ]
      }
      node {
        name: "q"
        op: "matmul"
        input: [ "normed", "wq" ]
      }
      node {
        name: "k"
        op: "matmul"
        input: [ "normed", "wk" ]
      }
      node {
        name: "v"
        op: "matmul"
        input: [ "normed", "wv" ]
      }
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
      node {
        name: "attended"
        op: "attention"
        input: [ "qh", "kh", "vh", "seen" ]
        attr {
          name: "causal"
          value { b: false }
        }
      }
      node {
        name: "joined"
        op: "reshape"
        input: "attended"
        attr {
          name: "to"
          value { s: "batch, sequence, heads" }
        }
      }
      node {
        name: "projected"
        op: "matmul"
        input: [ "joined", "wo" ]
      }
      node {
        name: "h"
        op: "add"
        input: [ "x", "projected" ]
      }
      node {
        name: "wide"
        op: "matmul"
        input: [ "h", "up" ]
        attr {
          name: "activation"
          value { s: "gelu" }
        }
      }
      node {
        name: "narrow"
        op: "matmul"
        input: [ "wide", "down" ]
      }
      node {
        name: "y"
        op: "add"
        input: [ "h", "narrow" ]
      }
      output: "y"
    }
    function {
      name: "main"
      input { name: "tokens" type: "i32[batch, sequence]" }
      input { name: "targets" type: "i32[batch, sequence]" }
      input { name: "mask" type: "bool[batch, sequence]" }
      parameter {
        name: "table"
        type: "f32[vocab, hidden]"
        init { normal { std: 0.5 } }
        decay: true
      }
      parameter {
        name: "out"
        type: "f32[hidden, vocab]"
        init { normal { std: 0.2 } }
        decay: true
      }
      node {
        name: "embedded"
        op: "embedding"
        input: [ "table", "tokens" ]
      }
      node {
        name: "seen"
        op: "reshape"
        input: "mask"
        attr {
          name: "to"
          value { s: "batch, one=1, two=1, sequence" }
        }
      }
      node {
        name: "layers"
        op: "call"
        function: "block"
        input: "embedded"
        shared: "seen"
        output: "encoded"
        repeat: 4
      }
      node {
        name: "logits"
        op: "matmul"
        input: [ "encoded", "out" ]
      }
      node {
        name: "losses"
        op: "softmax_cross_entropy"
        input: [ "logits", "targets" ]
        attr {
          name: "ignore_index"
          value { ints { values: -100 } }
        }
        attr {
          name: "label_smoothing"
          value { f: 0.1 }
        }
      }
      node {
        name: "counts"
        op: "not_equal"
        input: "targets"
        attr {
          name: "value"
          value { f: -100 }
        }
      }
      node {
        name: "ones"
        op: "cast"
        input: "counts"
        attr {
          name: "to"
          value { s: "f32" }
        }
      }
      node { name: "count" op: "reduce_sum" input: "ones" }
      node { name: "count_of_step" op: "step_mean" input: "count" }
      node { name: "total" op: "reduce_sum" input: "losses" }
      node {
        name: "loss"
        op: "div"
        input: [ "total", "count_of_step" ]
      }
      output: [ "loss", "count_of_step" ]
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
    steps: 8
    seed: 5
    optimizer {
      adamw { weight_decay: 0.1 }
      clip_norm: 1
    }
    schedule { learning_rate: 0.003 }
  }
)pb";

proto::Job JobOn(const std::string& mesh, int micro_batches, const std::string& text = kJob) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  job.mutable_training()->set_micro_batches(micro_batches);
  return WithMesh(std::move(job), mesh);
}

std::vector<double> LossesOf(const proto::Job& job) {
  TrainRunOptions options;
  options.steps = kSteps;
  const absl::StatusOr<TrainRun> run = Train(job, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? run->losses : std::vector<double>(kSteps, NAN);
}

double WorstDifference(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(found[i] - expected[i]) / expected[i]);
  return worst;
}

TEST(MaskedLoss, EveryLayoutAndNumberOfMicroBatchesHasTheLossesOfTheWholeBatch) {
  const std::vector<double> whole = LossesOf(JobOn("", 1));
  ASSERT_EQ(whole.size(), kSteps);
  EXPECT_LT(whole.back(), whole.front());
  for (const char* mesh : {"", "dp=2", "dp=3", "tp=2", "tp=4", "pp=2", "pp=3", "dp=2,tp=2",
                           "dp=2,pp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    for (const int micro_batches : {1, 2, 3, 6}) {
      const double worst = WorstDifference(LossesOf(JobOn(mesh, micro_batches)), whole);
      EXPECT_LT(worst, 1e-5) << mesh << ", micro-batches " << micro_batches;
    }
  }
}

TEST(MaskedLoss, ZeroStagesHaveThemToo) {
  const std::vector<double> whole = LossesOf(JobOn("", 1));
  for (const int stage : {1, 2, 3}) {
    proto::Job job = JobOn("dp=2", 3);
    job.mutable_training()->set_zero_stage(stage);
    EXPECT_LT(WorstDifference(LossesOf(job), whole), 1e-5) << "zero stage " << stage;
  }
}

TEST(MaskedLoss, EverySchedulePlansTheCountBeforeTheFirstMicroBatch) {
  const std::vector<double> whole = LossesOf(JobOn("", 1));
  for (const auto kind :
       {proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::GPIPE, proto::Pipeline::ZERO_BUBBLE}) {
    proto::Job job = JobOn("pp=2", 6);
    job.mutable_pipeline()->set_schedule(kind);
    EXPECT_LT(WorstDifference(LossesOf(job), whole), 1e-5)
        << proto::Pipeline::ScheduleKind_Name(kind);
  }
}

TEST(MaskedLoss, TheMeanOfTheMeansOfMicroBatchesIsAnotherLoss) {
  const std::string without = absl::StrReplaceAll(
      kJob, {{"\"step_mean\"", "\"scale\""},
             {"input: \"count\"", "input: \"count\" attr { name: \"factor\" value { f: 1 } }"}});
  EXPECT_LT(WorstDifference(LossesOf(JobOn("", 1, without)), LossesOf(JobOn("", 1))), 1e-12);
  EXPECT_GT(WorstDifference(LossesOf(JobOn("", 3, without)), LossesOf(JobOn("", 1))), 1e-4);
}

TEST(MaskedLoss, AStepMeanOfWhatDependsOnParametersIsRefused) {
  const std::string spoilt = absl::StrReplaceAll(
      kJob, {{"op: \"step_mean\" input: \"count\"", "op: \"step_mean\" input: \"total\""},
             {"name: \"total\" op: \"reduce_sum\" input: \"losses\" }",
              "name: \"unused\" op: \"reduce_sum\" input: \"losses\" }"},
             {"node { name: \"count\" op",
              "node { name: \"total\" op: "
              "\"reduce_sum\" input: \"losses\" } node { name: \"count\" op"}});
  TrainRunOptions options;
  for (const int micro_batches : {1, 3}) {
    const absl::Status status = Train(JobOn("", micro_batches, spoilt), options).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(micro_batches == 1 ? "W0450" : "W0452"));
  }
}

TEST(MaskedLoss, AStepMeanOfAStepMeanIsRefusedWhereItWouldBeAnother) {
  const std::string nested = absl::StrReplaceAll(
      kJob, {{"node { name: \"count_of_step\" op: \"step_mean\" input: \"count\" }",
              "node { name: \"inner\" op: \"step_mean\" input: \"count\" } "
              "node { name: \"squared\" op: \"mul\" input: [ \"inner\", \"count\" ] } "
              "node { name: \"count_of_step\" op: \"step_mean\" input: \"squared\" }"}});
  ASSERT_NE(nested, kJob);
  TrainRunOptions options;
  EXPECT_TRUE(Train(JobOn("", 1, nested), options).ok());
  EXPECT_THAT(std::string(Train(JobOn("", 3, nested), options).status().message()),
              AllOf(HasSubstr("W0452"), HasSubstr("the step_mean of")));
}

}  // namespace
}  // namespace weir::training
