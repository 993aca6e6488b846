// The kernels of a GPU, on the emulation of CUDA, train every kind of layout to the CPU's losses
// within rounding, and to the same bits with any number of queues and any depth: a wait that is
// missing, a copy that is read too early, or a number that a graph keeps gives other bits.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/device/cuda/emulated_cuda_api.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

struct Queues {
  int num, depth;
};

zoo::TransformerOptions TinyTransformer() {
  zoo::TransformerOptions options = SmallTransformer();
  options.layers = 2;
  options.hidden = 16;
  options.heads = 2;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 4;
  return options;
}

void ExpectTheLossesOfTheCpu(proto::Job job, const std::vector<Queues>& devices) {
  TrainRunOptions options;
  // An update of weights is no graph in the first step and makes one in the second.
  options.steps = 3;
  const absl::StatusOr<TrainRun> cpu = Train(job, options);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_FALSE(cpu->losses.empty());
  job.mutable_runtime()->set_device("cuda-emulated");
  const absl::StatusOr<TrainRun> one_by_one = Train(job, options);
  ASSERT_TRUE(one_by_one.ok()) << one_by_one.status();
  ASSERT_EQ(one_by_one->losses.size(), cpu->losses.size());
  for (size_t i = 0; i < cpu->losses.size(); ++i)
    EXPECT_NEAR(one_by_one->losses[i], cpu->losses[i], 1e-4 * std::abs(cpu->losses[i]));
  for (const Queues& queues : devices) {
    SCOPED_TRACE(absl::StrCat(queues.num, " queues, depth ", queues.depth));
    job.mutable_runtime()->set_device_queues(queues.num);
    job.mutable_runtime()->set_device_depth(queues.depth);
    const absl::StatusOr<TrainRun> ahead = Train(job, options);
    ASSERT_TRUE(ahead.ok()) << ahead.status();
    EXPECT_EQ(FirstDifference(*ahead, *one_by_one), "");
  }
  job.mutable_runtime()->set_graphs(proto::Runtime::Graphs::ON);
  for (const Queues& queues : {Queues{1, 1}, Queues{4, 64}}) {
    SCOPED_TRACE(absl::StrCat("graphs, ", queues.num, " queues, depth ", queues.depth));
    job.mutable_runtime()->set_device_queues(queues.num);
    job.mutable_runtime()->set_device_depth(queues.depth);
    const int64_t before = device::EmulatedCudaApi::NumGraphLaunches();
    const absl::StatusOr<TrainRun> graphs = Train(job, options);
    ASSERT_TRUE(graphs.ok()) << graphs.status();
    EXPECT_EQ(FirstDifference(*graphs, *one_by_one), "");
    EXPECT_GT(device::EmulatedCudaApi::NumGraphLaunches(), before);
  }
}

TEST(CudaEmulated, TrainsOnEveryKindOfLayoutWithAnyQueues) {
  const Layout layouts[] = {{"", 0, zoo::SequenceParallel::kNone},
                            {"dp=2", 2, zoo::SequenceParallel::kNone},
                            {"tp=2", 0, zoo::SequenceParallel::kMegatron},
                            {"sp=2", 0, zoo::SequenceParallel::kUlysses},
                            {"dp=2,pp=2", 0, zoo::SequenceParallel::kNone}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, TinyTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectTheLossesOfTheCpu(*job, {{1, 64}, {2, 2}, {4, 64}});
  }
}

TEST(CudaEmulated, TrainsALlamaInHalfTypes) {
  for (const proto::Training::Precision precision : {proto::Training::BF16, proto::Training::F16}) {
    absl::StatusOr<proto::Job> job =
        JobOn({"dp=2,tp=2", 1, zoo::SequenceParallel::kNone}, zoo::LlamaJob, TinyTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    job->mutable_training()->set_precision(precision);
    const bool is_f16 = precision == proto::Training::F16;
    if (is_f16) {
      job->mutable_training()->mutable_loss_scale()->set_initial(256);
      job->mutable_training()->mutable_loss_scale()->set_growth_interval(1);
    }
    job->mutable_runtime()->set_device("cuda-emulated");
    TrainRunOptions options;
    options.steps = 2;
    const absl::StatusOr<TrainRun> one_by_one = Train(*job, options);
    ASSERT_TRUE(one_by_one.ok()) << one_by_one.status();
    job->mutable_runtime()->set_device_queues(4);
    job->mutable_runtime()->set_device_depth(64);
    const absl::StatusOr<TrainRun> ahead = Train(*job, options);
    ASSERT_TRUE(ahead.ok()) << ahead.status();
    EXPECT_EQ(FirstDifference(*ahead, *one_by_one), "");
    if (!is_f16) continue;
    EXPECT_EQ(ahead->loss_scales, (std::vector<double>{256, 512}));
  }
}

}  // namespace
}  // namespace weir::training
