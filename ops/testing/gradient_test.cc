// Gradient tests: for every case of a differentiable op, the graph that its gradient function
// builds, run on the kernels, equals central finite differences of the op itself. The same graph in
// bf16 or f16 comes near the graph in f32. WEIR_TEST_DEVICE names the kind of device that runs the
// graph (ops/kernels/testing/kernel_trial.h); the CPU runs the op for the differences.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ops/kernels/testing/kernel_trial.h"
#include "ops/testing/eager_gradient.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "runtime/base/random.h"

namespace weir::ops {
namespace {

constexpr uint64_t kSeed = 7;
constexpr double kStep = 1e-2;
constexpr double kTolerance = 3e-3;
constexpr double kBf16Tolerance = 0.06, kF16Tolerance = 0.01;

bool IsF32Only(const OpCase& op_case) {
  if (op_case.op == "cast" && op_case.attrs.Str("to") != "f32") return false;
  for (const std::string& input : op_case.inputs) {
    if (input.rfind("bf16", 0) == 0 || input.rfind("f16", 0) == 0) return false;
  }
  return true;
}

std::vector<OpCase> DifferentiableCases() {
  std::vector<OpCase> cases;
  for (OpCase op_case : OpCases()) {
    const OpDef* def = OpRegistry::Find(op_case.op);
    if (def == nullptr || !def->gradient || !IsF32Only(op_case)) continue;
    op_case.num_outputs = -1;
    cases.push_back(op_case);
  }
  return cases;
}

class Gradient : public ::testing::TestWithParam<OpCase> {
 protected:
  void CompareWithF32(const char* type, double tolerance);
  static KernelRun RunOf(const OpCase& op_case, const OpExample& example) {
    KernelRun run{op_case.op, example.attrs, op_case.step, op_case.micro_batch, kSeed, 1};
    run.device = kernels::DeviceOfTests();
    return run;
  }

  // Returns the example with its outputs computed.
  static absl::StatusOr<OpExample> Forward(const OpCase& op_case) {
    auto example = MakeExample(op_case, kSeed);
    if (!example.ok()) return example;
    absl::Status status = RunKernel(RunOf(op_case, *example), example->inputs, &example->outputs);
    if (!status.ok()) return status;
    return example;
  }

  // Output 0 is differentiable for every op, output 1 for matmul and reduce_variance.
  static std::map<int, HostTensor> OutputGrads(const OpExample& example) {
    std::map<int, HostTensor> grads;
    const std::string& op = example.def->schema.name;
    const int count = op == "matmul" || op == "reduce_variance" ? 2 : 1;
    for (int o = 0; o < count; ++o) {
      HostTensor grad(example.output_types[o]);
      for (int64_t i = 0; i < grad.size(); ++i) grad.Set(i, NormalAt(MixKey(kSeed, 50 + o), i));
      grads.emplace(o, grad);
    }
    return grads;
  }

  static double Loss(const std::vector<HostTensor>& outputs,
                     const std::map<int, HostTensor>& grads) {
    double loss = 0;
    for (const auto& [o, grad] : grads) {
      for (int64_t i = 0; i < grad.size(); ++i) loss += grad.Get(i) * outputs[o].Get(i);
    }
    return loss;
  }
};

TEST_P(Gradient, EqualsFiniteDifferences) {
  auto example = Forward(GetParam());
  ASSERT_TRUE(example.ok()) << example.status();
  auto output_grads = OutputGrads(*example);
  KernelRun run = RunOf(GetParam(), *example);
  KernelRun on_cpu = run;
  on_cpu.device = "cpu";
  EagerGradient builder(run, *example, output_grads, TakesGradient(*example));
  absl::Status status = example->def->gradient(builder);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  for (int i = 0; i < builder.num_inputs(); ++i) {
    if (!builder.needs_grad(i)) continue;
    ASSERT_TRUE(builder.grads().count(i)) << "no gradient of input " << i;
    ValueId grad = builder.grads().at(i);
    EXPECT_EQ(builder.type(grad).dims, example->input_types[i].dims) << "input " << i;
    HostTensor expected(example->input_types[i]);
    for (int64_t e = 0; e < expected.size(); ++e) {
      double at = example->inputs[i].Get(e), loss[2];
      for (int side = 0; side < 2; ++side) {
        example->inputs[i].Set(e, at + (side == 0 ? -kStep : kStep));
        std::vector<HostTensor> outputs = example->outputs;
        ASSERT_TRUE(RunKernel(on_cpu, example->inputs, &outputs).ok());
        loss[side] = Loss(outputs, output_grads);
      }
      example->inputs[i].Set(e, at);
      expected.Set(e, (loss[1] - loss[0]) / (2 * kStep));
    }
    EXPECT_EQ(Difference(builder.tensor(grad), expected, kTolerance), "")
        << "gradient of input " << i;
  }
}

TEST_P(Gradient, IsOnlyComputedForTheInputsThatNeedIt) {
  auto example = Forward(GetParam());
  ASSERT_TRUE(example.ok()) << example.status();
  auto output_grads = OutputGrads(*example);
  KernelRun run = RunOf(GetParam(), *example);
  EagerGradient all(run, *example, output_grads, TakesGradient(*example));
  ASSERT_TRUE(example->def->gradient(all).ok());
  ASSERT_TRUE(all.status().ok()) << all.status();
  for (int i = 0; i < all.num_inputs(); ++i) {
    std::vector<bool> needs(all.num_inputs(), false);
    needs[i] = all.needs_grad(i);
    EagerGradient one(run, *example, output_grads, needs);
    ASSERT_TRUE(example->def->gradient(one).ok());
    ASSERT_TRUE(one.status().ok()) << one.status();
    ASSERT_EQ(one.grads().size(), needs[i] ? 1u : 0u);
    if (!needs[i]) continue;
    EXPECT_TRUE(one.tensor(one.grads().at(i)).SameBits(all.tensor(all.grads().at(i))))
        << "input " << i;
  }
}

TEST_P(Gradient, IsNothingWhereNoGradientArrives) {
  auto example = Forward(GetParam());
  ASSERT_TRUE(example.ok()) << example.status();
  EagerGradient builder(RunOf(GetParam(), *example), *example, {}, TakesGradient(*example));
  ASSERT_TRUE(example->def->gradient(builder).ok());
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  EXPECT_TRUE(builder.grads().empty());
}

// Compares the gradients of the case in f32 with those in a type of two bytes.
void Gradient::CompareWithF32(const char* type, double tolerance) {
  OpCase narrow = GetParam();
  for (std::string& input : narrow.inputs) input = absl::StrReplaceAll(input, {{"f32[", type}});
  auto wide_example = Forward(GetParam()), example = Forward(narrow);
  ASSERT_TRUE(wide_example.ok()) << wide_example.status();
  ASSERT_TRUE(example.ok()) << example.status();
  EagerGradient wide(RunOf(GetParam(), *wide_example), *wide_example, OutputGrads(*wide_example),
                     TakesGradient(*wide_example));
  EagerGradient builder(RunOf(narrow, *example), *example, OutputGrads(*example),
                        TakesGradient(*example));
  ASSERT_TRUE(wide_example->def->gradient(wide).ok());
  ASSERT_TRUE(example->def->gradient(builder).ok());
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  ASSERT_EQ(builder.grads().size(), wide.grads().size());
  for (const auto& [i, grad] : builder.grads()) {
    EXPECT_TRUE(IsReal(builder.type(grad).dtype));
    EXPECT_EQ(Difference(builder.tensor(grad), wide.tensor(wide.grads().at(i)), tolerance), "")
        << "input " << i;
  }
}

TEST_P(Gradient, InBf16ComesNearTheOneInF32) {
  if (GetParam().op == "cast") GTEST_SKIP() << "cast names its type";
  // A tie made by rounding moves the whole gradient of a maximum.
  if (GetParam().op == "reduce_max" || GetParam().op == "max_pool")
    GTEST_SKIP() << "rounding moves the maximum";
  CompareWithF32("bf16[", kBf16Tolerance);
}

TEST_P(Gradient, InF16ComesNearTheOneInF32) {
  if (GetParam().op == "cast") GTEST_SKIP() << "cast names its type";
  if (GetParam().op == "reduce_max" || GetParam().op == "max_pool")
    GTEST_SKIP() << "rounding moves the maximum";
  CompareWithF32("f16[", kF16Tolerance);
}

std::string TestName(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradient, ::testing::ValuesIn(DifferentiableCases()), TestName);

TEST(GradientOfStatistics, IsRefusedWithTheNameOfTheOutput) {
  for (const char* op : {"layer_norm", "rms_norm", "attention", "softmax_cross_entropy"}) {
    for (OpCase op_case : OpCases()) {
      if (op_case.op != op) continue;
      op_case.num_outputs = -1;
      auto example = MakeExample(op_case, kSeed);
      ASSERT_TRUE(example.ok()) << example.status();
      HostTensor grad(example->output_types[1]);
      EagerGradient builder({op_case.op, example->attrs}, *example, {{1, grad}},
                            std::vector<bool>(example->inputs.size(), true));
      absl::Status status = example->def->gradient(builder);
      EXPECT_NE(status.message().find("W0315"), absl::string_view::npos) << op << ": " << status;
      EXPECT_NE(status.message().find(example->def->schema.outputs[1].name),
                absl::string_view::npos)
          << status;
    }
  }
}

}  // namespace

void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

}  // namespace weir::ops
