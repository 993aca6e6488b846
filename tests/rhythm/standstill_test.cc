// Tests plans that could come to a standstill, from the compiler's front door to the run of the
// repaired plan: a job with too few slots for its schedule, and a hand-made program that no job has
// (docs/decisions/0010). In that program every micro-batch is read beside the sum over all
// micro-batches of its step.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"
#include "compiler/ir/function_builder.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/rhythm/rhythm_jobs.h"
#include "tests/training/train_run.h"

namespace weir::rhythm {
namespace {

using compiler::Frequency;
using compiler::FunctionBuilder;
using compiler::ItemKind;
using compiler::ProgramItem;

constexpr int kMicroBatches = 4;

ProgramItem Item(ItemKind kind, const std::string& name, std::vector<int> inputs,
                 std::vector<int> outputs) {
  ProgramItem item;
  item.kind = kind;
  item.name = item.feed = name;
  item.inputs = std::move(inputs);
  item.outputs = std::move(outputs);
  return item;
}

// Returns a call of `op` on scalars, in its own function.
ProgramItem Call(const std::string& name, const std::string& op, Frequency result,
                 std::vector<int> inputs, int output, compiler::LogicalPlan* plan) {
  const sbp::TensorType scalar{DType::kF32, {}};
  const sbp::Layout layout = plan->module.values[output].layout;
  FunctionBuilder builder(name, plan->stage_mesh);
  std::vector<ops::ValueId> args;
  for (size_t i = 0; i < inputs.size(); ++i)
    args.push_back(builder.AddArg(absl::StrCat("a", i), scalar, layout));
  builder.AddResult(builder.Emit(op, args, {{scalar, layout}}, {})[0], result);
  ProgramItem item = Item(ItemKind::kCall, name, std::move(inputs), {output});
  item.function = static_cast<int>(plan->module.functions.size());
  plan->module.functions.push_back(builder.Take());
  return item;
}

compiler::LogicalPlan EachBesideTheSumOfAll(int slots) {
  compiler::LogicalPlan plan;
  plan.mesh = *sbp::Mesh::Parse("dp=1");
  plan.places = sbp::PipelinePlaces(plan.mesh);
  plan.stage_mesh = plan.places.mesh(0);
  plan.plan_id = "each beside the sum";
  plan.micro_batches = kMicroBatches;
  plan.settings.runtime.debug_register_slots = slots;
  const sbp::TensorType scalar{DType::kF32, {}};
  const sbp::Layout layout = sbp::Broadcast(plan.stage_mesh);
  const int x = plan.module.AddValue({"x", scalar, layout, 0, Frequency::kMicroBatch, -1});
  const int sum = plan.module.AddValue({"sum of x", scalar, layout, 0, Frequency::kStep, -1});
  const int y = plan.module.AddValue({"y", scalar, layout, 0, Frequency::kMicroBatch, -1});
  plan.module.items.push_back(Item(ItemKind::kSource, "read", {}, {x}));
  plan.module.items.push_back(Call("add up", "accumulate", Frequency::kStep, {x}, sum, &plan));
  plan.module.items.push_back(Call("use", "add", Frequency::kMicroBatch, {x, sum}, y, &plan));
  plan.module.items.push_back(Item(ItemKind::kSink, "report", {y}, {}));
  return plan;
}

// Solves as the compiler does: first the work of the ranks of each stage, and then the times.
absl::StatusOr<compiler::JobRhythm> Solve(compiler::LogicalPlan& plan) {
  WEIR_RETURN_IF_ERROR(compiler::ShapeStages(&plan));
  return SolveRhythm(plan, compiler::PeakCosts());
}

float X(int64_t step, int64_t micro_batch) {
  return static_cast<float>(10 * step + micro_batch + 1);
}

class Numbers final : public actors::DataFeed {
 public:
  absl::Status Fill(const std::string&, int64_t step, int64_t micro_batch, const TensorSlice&,
                    void* out) override {
    const float x = X(step, micro_batch);
    std::memcpy(out, &x, sizeof(x));
    return absl::OkStatus();
  }
};

class Reports final : public actors::MetricSink {
 public:
  void Report(const std::string&, int64_t step, int64_t micro_batch, float value) override {
    values[{step, micro_batch}] = value;
  }
  std::map<std::pair<int64_t, int64_t>, float> values;
};

TEST(StandstillTest, AProgramThatWouldStandStillIsRefusedWithTheCircleAndTheRepair) {
  for (int slots = 1; slots < kMicroBatches; ++slots) {
    compiler::LogicalPlan plan = EachBesideTheSumOfAll(slots);
    const absl::Status status = Solve(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(
        status.message(),
        absl::StrCat("W0494 at actor `read`: expected a plan in which everyone gets to act; found "
                     "a circle of waits: `read` needs a "
                     "free slot of `x` (it has ",
                     slots,
                     "), held until `use` has acted, which needs `add up: v1` from `add up`, which "
                     "again needs `x` from `read`. Try: give `x` 4 slots instead of ",
                     slots, " (", 64 * (kMicroBatches - slots),
                     " bytes more); runtime.debug_register_slots: 0 with runtime.registers: SOLVED "
                     "gives each what it needs."));
  }
}

// A job with this standstill: GPipe needs all forward passes done before the first backward pass,
// so with one slot each the first micro-batch holds the slots that the second needs. In a user's
// words, this is a skip connection past a pack.
TEST(StandstillTest, GPipeWithOneSlotEachIsRefusedAndTrainsOnceRepaired) {
  proto::Job job = SmallGptJob("pp=2", 4, 4);
  job.mutable_pipeline()->set_schedule(proto::Pipeline::GPIPE);
  for (proto::Runtime::Registers registers : {proto::Runtime::ONE, proto::Runtime::TWO}) {
    job.mutable_runtime()->set_registers(registers);
    const absl::Status status = compiler::CompileJob(job, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* part :
         {"W0494 at actor `", "found a circle of waits: `", "needs a free slot of `",
          "give `tokens` 4 slots instead of ", " other registers (",
          "runtime.registers: SOLVED gives each what it needs"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " in " << status;
    }
  }
  training::TrainRunOptions options;
  options.steps = 2;
  std::map<std::string, std::vector<float>> weights;
  for (proto::Runtime::Registers registers : {proto::Runtime::SOLVED, proto::Runtime::SCHEDULE}) {
    job.mutable_runtime()->set_registers(registers);
    absl::StatusOr<training::TrainRun> run = training::Train(job, options);
    ASSERT_TRUE(run.ok()) << run.status();
    if (weights.empty()) weights = run->weights;
    EXPECT_EQ(weights, run->weights);
  }
}

TEST(StandstillTest, WithTheRepairItRuns) {
  compiler::LogicalPlan plan = EachBesideTheSumOfAll(kMicroBatches);
  absl::StatusOr<compiler::JobRhythm> rhythm = Solve(plan);
  ASSERT_TRUE(rhythm.ok()) << rhythm.status();
  plan.rhythm = *std::move(rhythm);
  absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, RankId(0));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  constexpr int64_t kSteps = 3;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Numbers numbers;
    Reports reports;
    actors::SessionOptions options;
    options.feed = &numbers;
    options.sink = &reports;
    options.engine = seed == 0 ? actors::SessionOptions::EngineKind::kCaf
                               : actors::SessionOptions::EngineKind::kSim;
    options.sim.seed = seed;
    absl::StatusOr<std::unique_ptr<actors::Session>> session =
        actors::Session::Create({*lowered}, options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_EQ((*session)->RunSteps(kSteps), absl::OkStatus());
    EXPECT_EQ(reports.values.size(), kSteps * kMicroBatches);
    for (int64_t step = 0; step < kSteps; ++step) {
      float sum = 0;
      for (int64_t m = 0; m < kMicroBatches; ++m) sum += X(step, m);
      for (int64_t m = 0; m < kMicroBatches; ++m)
        EXPECT_EQ((reports.values[{step, m}]), X(step, m) + sum) << step << ", " << m;
    }
  }
}

// If the compiler may choose the slots itself, it chooses as many as the job needs.
TEST(StandstillTest, SolvedCountsAreEnough) {
  compiler::LogicalPlan plan = EachBesideTheSumOfAll(0);
  plan.settings.runtime.registers = compiler::RegisterChoice::kSolved;
  absl::StatusOr<compiler::JobRhythm> rhythm = Solve(plan);
  ASSERT_TRUE(rhythm.ok()) << rhythm.status();
  plan.rhythm = *std::move(rhythm);
  absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, RankId(0));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  int slots = 0;
  for (const proto::RegisterSpec& spec : lowered->registers()) {
    if (spec.name() == "x") slots = spec.slots();
  }
  EXPECT_GE(slots, kMicroBatches);
}

}  // namespace
}  // namespace weir::rhythm
