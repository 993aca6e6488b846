// Trains low-rank adapters beside frozen weights, on every kind of mesh. tests/oracle compares
// such a run with PyTorch.
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/adapters/add_adapters.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

bool IsAdapter(const std::string& state) {
  return absl::EndsWith(state, ".lora_a") || absl::EndsWith(state, ".lora_b");
}

proto::Job WithAdapters(proto::Job job) {
  adapters::AdapterOptions options;
  options.rank = 2;
  options.alpha = 8;
  const auto added = adapters::AddAdapters(options, &job);
  EXPECT_TRUE(added.ok()) << added.status();
  return job;
}

TEST(Adapters, TrainAlikeOnEveryMesh) {
  for (MakeJob make : {zoo::GptJob, zoo::LlamaJob}) {
    zoo::TransformerOptions options = SmallTransformer();
    options.training.micro_batches = 2;
    options.training.learning_rate = 1e-2;
    TrainRunOptions run_options;
    run_options.steps = 6;
    const proto::Job base = *JobOn({}, make, options);
    const absl::StatusOr<TrainRun> before = Train(base, run_options);
    ASSERT_TRUE(before.ok()) << before.status();
    const absl::StatusOr<TrainRun> one = Train(WithAdapters(base), run_options);
    ASSERT_TRUE(one.ok()) << one.status();
    // One of each two matrices begins as zeros, so nothing changes at first. The activation is a
    // kernel of its own, so the last bits may differ.
    EXPECT_NEAR(one->losses[0], before->losses[0], 1e-6 * before->losses[0]);
    EXPECT_LT(one->losses.back(), one->losses[0] - 0.01);
    for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,tp=2", "pp=2,tp=2"}) {
      for (int zero : {0, 3}) {
        const Layout layout{mesh, zero};
        if (zero > 0 && !absl::StrContains(mesh, "dp")) continue;
        SCOPED_TRACE(NameOf(layout));
        const absl::StatusOr<TrainRun> run =
            Train(WithAdapters(*JobOn(layout, make, options)), run_options);
        ASSERT_TRUE(run.ok()) << run.status();
        for (size_t step = 0; step < one->losses.size(); ++step) {
          EXPECT_NEAR(run->losses[step], one->losses[step], 1e-5 * one->losses[step]) << step;
          EXPECT_NEAR(run->grad_norms[step], one->grad_norms[step], 1e-4 * one->grad_norms[step]);
        }
        int adapters = 0;
        for (const auto& [state, values] : run->weights) {
          if (IsAdapter(state)) {
            ++adapters;
            EXPECT_NE(values, run->initial.at(state)) << state;
          } else if (!absl::StrContains(state, "/")) {
            EXPECT_EQ(values, run->initial.at(state)) << state << " is frozen";
          } else {
            EXPECT_TRUE(IsAdapter(state.substr(0, state.find('/'))))
                << state << " is a state of a frozen weight";
          }
        }
        EXPECT_GT(adapters, 2 * 4 * 6) << "those of six products or more of four layers";
      }
    }
  }
}

}  // namespace
}  // namespace weir::training
