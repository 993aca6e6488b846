// The same losses on every layout: a GPT and a Llama, trained for 30 steps on each mesh, against the
// curve of one device.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::testing {
namespace {

constexpr int kSteps = 30;

TransformerOptions Small() {
  TransformerOptions options;
  options.layers = 4;
  options.hidden = 32;
  options.heads = 4;
  options.ffn = 64;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 12;
  options.training.micro_batches = 2;
  options.training.steps = kSteps;
  options.training.learning_rate = 3e-3;
  options.training.warmup_steps = 3;
  return options;
}

struct Layout1 {
  std::string mesh;
  int zero = 0;
  SequenceParallel sequence = SequenceParallel::kNone;
};

std::vector<Layout1> Matrix() {
  std::vector<Layout1> cases;
  for (const char* mesh : {"dp=2", "dp=3", "dp=4", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2", "dp=2,pp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    cases.push_back({mesh, 0, SequenceParallel::kNone});
  }
  for (const char* mesh : {"dp=2", "dp=4", "dp=2,tp=2", "dp=2,pp=2"}) {
    for (int zero : {1, 2, 3}) cases.push_back({mesh, zero, SequenceParallel::kNone});
  }
  cases.push_back({"tp=2", 0, SequenceParallel::kMegatron});
  cases.push_back({"dp=2,tp=2", 3, SequenceParallel::kMegatron});
  cases.push_back({"sp=2", 0, SequenceParallel::kUlysses});
  cases.push_back({"sp=2,tp=2", 0, SequenceParallel::kUlysses});
  cases.push_back({"dp=2,sp=2,pp=2", 1, SequenceParallel::kUlysses});
  cases.push_back({"tp=3", 0, SequenceParallel::kNone});  // heads do not divide: 2, 1, 1
  return cases;
}

std::string Name(const Layout1& layout) {
  std::string name = absl::StrCat(layout.mesh, layout.zero > 0 ? absl::StrCat(" zero ", layout.zero) : "",
                                  layout.sequence == SequenceParallel::kMegatron  ? " megatron"
                                  : layout.sequence == SequenceParallel::kUlysses ? " ulysses"
                                                                                  : "");
  return name;
}

using MakeJob = absl::StatusOr<Job> (*)(const TransformerOptions&);

void CheckMatrix(MakeJob make, TransformerOptions options) {
  absl::StatusOr<Job> job = make(options);
  ASSERT_TRUE(job.ok()) << job.status();
  TrainRunOptions run_options;
  run_options.steps = kSteps;
  absl::StatusOr<TrainRun> one = Train(WithMesh(*job, ""), run_options);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->losses.size(), kSteps);
  EXPECT_LT(one->losses.back(), one->losses.front());
  for (const Layout1& layout : Matrix()) {
    SCOPED_TRACE(Name(layout));
    options.sequence_parallel = layout.sequence;
    absl::StatusOr<Job> here = make(options);
    ASSERT_TRUE(here.ok()) << here.status();
    here->mutable_training()->set_zero_stage(layout.zero);
    absl::StatusOr<TrainRun> many = Train(WithMesh(*here, layout.mesh), run_options);
    ASSERT_TRUE(many.ok()) << many.status();
    ASSERT_EQ(many->losses.size(), one->losses.size());
    double worst = 0;
    for (int step = 0; step < kSteps; ++step) {
      worst = std::max(worst, std::abs(many->losses[step] - one->losses[step]) / one->losses[step]);
    }
    EXPECT_LT(worst, 1e-5);
    std::printf("%-28s worst relative difference of the loss %.2e\n", Name(layout).c_str(), worst);
  }
}

TEST(LayoutMatrix, AGptHasTheLossesOfOneDeviceOnEveryMesh) { CheckMatrix(GptJob, Small()); }

TEST(LayoutMatrix, ALlamaHasTheLossesOfOneDeviceOnEveryMesh) {
  TransformerOptions options = Small();
  options.kv_heads = 4;
  CheckMatrix(LlamaJob, options);
}

}  // namespace
}  // namespace weir::testing
