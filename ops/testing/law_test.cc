// The law of layouts: for every op and every legal signature, cutting the inputs by the signature,
// running the kernel on each device alone and merging the outputs gives the result of the whole op.
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "runtime/base/random.h"
#include "sbp/factor_rule.h"

namespace weir::ops {
namespace {

constexpr uint64_t kSeed = 20;

// A Subject is one example of an op, run as a whole and cut by signatures.
struct Subject {
  OpCase op_case;
  OpExample example;
  sbp::FactorRule rule;
  KernelRun run;
  std::vector<HostTensor> whole;  // outputs of the whole op
};

absl::StatusOr<Subject> MakeSubject(const OpCase& op_case) {
  auto example = MakeExample(op_case, kSeed);
  if (!example.ok()) return example.status();
  Subject subject{op_case, *std::move(example), {}, {}, {}};
  const OpExample& e = subject.example;
  subject.rule = e.def->rule(e.attrs, e.input_types, e.output_types);
  subject.run = {op_case.op, e.attrs, op_case.step,    op_case.micro_batch,
                 kSeed,      1,       op_case.transfer};
  subject.whole = e.outputs;
  absl::Status status = RunKernel(subject.run, e.inputs, &subject.whole);
  if (!status.ok()) return status;
  return subject;
}

// Returns the signatures that may be used: their units agree.
std::vector<sbp::AxisSignature> Signatures(const Subject& subject) {
  const OpExample& e = subject.example;
  std::vector<sbp::AxisSignature> usable;
  for (sbp::AxisSignature& signature : sbp::LegalSignatures(subject.rule)) {
    if (signature.factor >= 0 &&
        !sbp::UnitsAgree(subject.rule, signature.factor, e.input_types, e.output_types))
      continue;
    usable.push_back(std::move(signature));
  }
  return usable;
}

// shards[rank][tensor]
using Shards = std::vector<std::vector<HostTensor>>;

Shards CutAll(const std::vector<HostTensor>& tensors, const std::vector<sbp::TensorType>& types,
              const std::vector<sbp::Layout>& layouts, const sbp::Mesh& mesh, uint64_t key) {
  Shards shards(mesh.num_ranks());
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<HostTensor> of_tensor = Cut(tensors[i], types[i], layouts[i], mesh, MixKey(key, i));
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) shards[rank].push_back(of_tensor[rank]);
  }
  return shards;
}

// Runs every rank alone on its shards.
absl::StatusOr<Shards> RunShards(const Subject& subject, const sbp::Signature& signature,
                                 const sbp::Mesh& mesh) {
  const OpExample& e = subject.example;
  Shards inputs = CutAll(e.inputs, e.input_types, signature.inputs, mesh, kSeed);
  bool in_place = !subject.op_case.initial.empty();
  Shards outputs(mesh.num_ranks());
  if (in_place) outputs = CutAll(e.outputs, e.output_types, signature.outputs, mesh, kSeed + 1);
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    for (size_t i = 0; !in_place && i < e.outputs.size(); ++i) {
      outputs[rank].emplace_back(
          sbp::LocalSlice(e.output_types[i], signature.outputs[i], mesh, mesh.CoordsOf(rank)));
    }
    absl::Status status = RunKernel(subject.run, inputs[rank], &outputs[rank]);
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
  }
  return outputs;
}

bool AnyPartial(const std::vector<sbp::Layout>& layouts) {
  for (const sbp::Layout& layout : layouts) {
    for (const sbp::Sbp& sbp : layout) {
      if (sbp.is_partial()) return true;
    }
  }
  return false;
}

// Returns "" if the op, split by one signature per mesh axis, gives the result of the whole op.
std::string Violation(const Subject& subject, const std::vector<sbp::AxisSignature>& per_axis,
                      const sbp::Mesh& mesh) {
  const OpExample& e = subject.example;
  std::string about = absl::StrCat(subject.op_case.name, " on ", mesh.ToText());
  for (const sbp::AxisSignature& signature : per_axis)
    absl::StrAppend(&about, "; ", signature.ToText());
  sbp::Signature signature = Join(per_axis);
  signature.inputs.resize(e.inputs.size(), sbp::Broadcast(mesh));
  auto outputs = RunShards(subject, signature, mesh);
  if (!outputs.ok()) return absl::StrCat(about, ": ", outputs.status().ToString());
  double tolerance = subject.op_case.tolerance;
  if (tolerance == 0 && AnyPartial(signature.inputs)) tolerance = 2e-5;
  for (size_t i = 0; i < e.outputs.size(); ++i) {
    std::vector<HostTensor> shards;
    for (auto& of_rank : *outputs) shards.push_back(of_rank[i]);
    auto merged = Merge(shards, e.output_types[i], signature.outputs[i], mesh);
    std::string difference = merged.ok() ? Difference(*merged, subject.whole[i], tolerance)
                                         : std::string(merged.status().message());
    if (!difference.empty()) return absl::StrCat(about, ", output ", i, ": ", difference);
  }
  return "";
}

class Law : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    auto subject = MakeSubject(GetParam());
    ASSERT_TRUE(subject.ok()) << subject.status();
    subject_.emplace(*std::move(subject));
  }
  std::optional<Subject> subject_;
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

TEST_P(Law, SplitOverTwoOrThreeDevicesEqualsWhole) {
  for (const char* text : {"a=2", "a=3"}) {
    sbp::Mesh mesh = *sbp::Mesh::Parse(text);
    for (const sbp::AxisSignature& signature : Signatures(*subject_))
      EXPECT_EQ(Violation(*subject_, {signature}, mesh), "");
  }
}

TEST_P(Law, SplitOverTwoByTwoDevicesEqualsWholeForEveryPairOfSignatures) {
  sbp::Mesh mesh = *sbp::Mesh::Parse("a=2,b=2");
  std::vector<sbp::AxisSignature> signatures = Signatures(*subject_);
  for (const sbp::AxisSignature& first : signatures) {
    for (const sbp::AxisSignature& second : signatures)
      EXPECT_EQ(Violation(*subject_, {first, second}, mesh), "");
  }
}

std::string TestName(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Law, ::testing::ValuesIn(OpCases()), TestName);

// The law must find rules that claim too much.
bool FoundOut(const Subject& subject) {
  sbp::Mesh mesh = *sbp::Mesh::Parse("a=2");
  for (const sbp::AxisSignature& signature : Signatures(subject)) {
    if (!Violation(subject, {signature}, mesh).empty()) return true;
  }
  return false;
}

template <typename Falsify>
void ExpectFoundOut(const std::string& name, Falsify&& falsify) {
  SCOPED_TRACE(name);
  for (const OpCase& op_case : OpCases()) {
    if (op_case.name != name) continue;
    auto subject = MakeSubject(op_case);
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
