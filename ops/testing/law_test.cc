// The law of layouts: for every op and every legal signature, cutting the inputs by the signature,
// running the kernel on each device alone and merging the outputs gives the result of the whole op.
// WEIR_TEST_DEVICE names the kind of device (ops/kernels/testing/kernel_trial.h). A kind other than
// the CPU must also give the CPU's results.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ops/kernels/testing/kernel_trial.h"
#include "ops/testing/layout_law.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "sbp/factor_rule.h"

namespace weir::ops {
namespace {

constexpr uint64_t kSeed = 20;
constexpr double kBf16Step = 0.0079, kF16Step = 0.00098;

absl::StatusOr<LawSubject> MakeSubject(const OpCase& op_case) {
  auto example = MakeExample(op_case, kSeed);
  if (!example.ok()) return example.status();
  const Attributes attrs = example->attrs;
  KernelRun run{op_case.op, attrs, op_case.step, op_case.micro_batch, kSeed, 1, op_case.transfer};
  run.device = kernels::DeviceOfTests();
  auto subject = MakeLawSubject(op_case.name, *std::move(example), run);
  if (!subject.ok()) return subject.status();
  subject->in_place = !op_case.initial.empty();
  subject->tolerance = op_case.tolerance;
  return subject;
}

class Law : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    auto subject = MakeSubject(GetParam());
    // The completeness test names the ops that lack a kernel.
    if (absl::IsUnimplemented(subject.status())) GTEST_SKIP() << subject.status();
    ASSERT_TRUE(subject.ok()) << subject.status();
    subject_.emplace(*std::move(subject));
  }
  std::optional<LawSubject> subject_;
};

TEST_P(Law, TheRuleFitsTheTypes) {
  absl::Status status = sbp::CheckUnits(subject_->rule, subject_->example.input_types,
                                        subject_->example.output_types);
  // W0232 means that the units of this case do not agree, which only forbids some splits.
  EXPECT_TRUE(status.ok() || status.message().find("W0232") != absl::string_view::npos) << status;
}

TEST_P(Law, TheResultDoesNotDependOnTheNumberOfThreads) {
  KernelRun run = subject_->run;
  run.num_threads = 3;
  std::vector<HostTensor> outputs = subject_->example.outputs;
  ASSERT_TRUE(RunKernel(run, subject_->example.inputs, &outputs).ok());
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_TRUE(outputs[i].SameBits(subject_->whole[i])) << "output " << i;
}

TEST_P(Law, TheResultDoesNotDependOnTheOrderOfThreads) {
  for (uint64_t order : kernels::ThreadOrdersOf(subject_->run.device)) {
    KernelRun run = subject_->run;
    run.thread_order = order;
    std::vector<HostTensor> outputs = subject_->example.outputs;
    ASSERT_EQ(RunKernel(run, subject_->example.inputs, &outputs), absl::OkStatus());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(outputs[i].SameBits(subject_->whole[i]))
          << "output " << i << " differs in thread order " << order
          << ": look for a barrier that is missing between a write and a read of shared memory";
    }
  }
}

TEST_P(Law, AGraphOfTheKernelGivesTheSameBits) {
  if (subject_->run.device == "cpu") GTEST_SKIP() << "the CPU has no graphs";
  KernelRun run = subject_->run;
  run.launches = kernels::KernelTrial::Launches::kGraph;
  std::vector<HostTensor> outputs = subject_->example.outputs;
  ASSERT_EQ(RunKernel(run, subject_->example.inputs, &outputs), absl::OkStatus());
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(outputs[i].SameBits(subject_->whole[i]))
        << "output " << i << " differs: look for a parameter that the recorder of the stream does "
        << "not see";
  }
}

TEST_P(Law, TheResultIsThatOfTheCpu) {
  if (subject_->run.device == "cpu") GTEST_SKIP() << "the device is the CPU";
  KernelRun run = subject_->run;
  run.device = "cpu";
  std::vector<HostTensor> outputs = subject_->example.outputs;
  ASSERT_EQ(RunKernel(run, subject_->example.inputs, &outputs), absl::OkStatus());
  for (size_t i = 0; i < outputs.size(); ++i) {
    double tolerance = subject_->tolerance;
    // Two sums that round to neighbours differ by a step of the type.
    const DType dtype = outputs[i].slice().dtype;
    if (tolerance > 0 && IsHalf(dtype))
      tolerance = std::max(tolerance, dtype == DType::kBF16 ? kBf16Step : kF16Step);
    EXPECT_EQ(Difference(subject_->whole[i], outputs[i], tolerance), "") << "output " << i;
  }
}

TEST_P(Law, SplitOverTwoOrThreeDevicesEqualsWhole) {
  for (const char* text : {"a=2", "a=3"}) {
    sbp::Mesh mesh = *sbp::Mesh::Parse(text);
    for (const sbp::AxisSignature& signature : UsableSignatures(*subject_))
      EXPECT_EQ(LawViolation(*subject_, {signature}, mesh), "");
  }
}

TEST_P(Law, SplitOverTwoByTwoDevicesEqualsWholeForEveryPairOfSignatures) {
  sbp::Mesh mesh = *sbp::Mesh::Parse("a=2,b=2");
  std::vector<sbp::AxisSignature> signatures = UsableSignatures(*subject_);
  for (const sbp::AxisSignature& first : signatures) {
    for (const sbp::AxisSignature& second : signatures)
      EXPECT_EQ(LawViolation(*subject_, {first, second}, mesh), "");
  }
}

std::string TestName(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Law, ::testing::ValuesIn(OpCases()), TestName);

// The law must find rules that claim too much.
bool FoundOut(const LawSubject& subject) {
  sbp::Mesh mesh = *sbp::Mesh::Parse("a=2");
  for (const sbp::AxisSignature& signature : UsableSignatures(subject)) {
    if (!LawViolation(subject, {signature}, mesh).empty()) return true;
  }
  return false;
}

template <typename Falsify>
void ExpectFoundOut(const std::string& name, Falsify&& falsify) {
  SCOPED_TRACE(name);
  for (const OpCase& op_case : OpCases()) {
    if (op_case.name != name) continue;
    auto subject = MakeSubject(op_case);
    if (absl::IsUnimplemented(subject.status())) GTEST_SKIP() << subject.status();
    ASSERT_TRUE(subject.ok()) << subject.status();
    EXPECT_FALSE(FoundOut(*subject)) << "the true rule";
    falsify(subject->rule);
    EXPECT_TRUE(FoundOut(*subject)) << "the false rule";
    return;
  }
  FAIL() << "no such case";
}

TEST(FalseRule, ThatReluIsLinear) {
  ExpectFoundOut("relu", [](sbp::FactorRule& rule) { rule.linear.push_back({{0}, {0}}); });
}

TEST(FalseRule, ThatAWholeFactorMayBeSplit) {
  for (const char* name : {"softmax", "rms_norm", "rotary", "attention", "matmul with gelu",
                           "softmax_cross_entropy", "accuracy", "sum_squares of several"}) {
    ExpectFoundOut(name, [](sbp::FactorRule& rule) {
      for (sbp::Factor& factor : rule.factors) factor.whole = false;
    });
  }
}

TEST(FalseRule, ThatABiasMayBeCopiedWhereTheContractionIsSplit) {
  ExpectFoundOut("matmul and pre", [](sbp::FactorRule& rule) { rule.inputs[2].additive = false; });
}

TEST(FalseRule, ThatMaximaAddUp) {
  ExpectFoundOut("reduce_max", [](sbp::FactorRule& rule) {
    for (sbp::Factor& factor : rule.factors) factor.combiner = Combiner::kSum;
  });
}

TEST(FalseRule, ThatProductsAreLinearInBothFactorsAtOnce) {
  ExpectFoundOut("mul", [](sbp::FactorRule& rule) { rule.linear = {{{0, 1}, {0}}}; });
}

}  // namespace

void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

}  // namespace weir::ops
