// The law of layouts: for every op and every legal signature, cutting the inputs by the
// signature, running the kernel on each device alone and merging the outputs gives
// what the op gives as a whole.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "sbp/factor_rule.h"

namespace weir::testing {
namespace {

constexpr uint64_t kSeed = 20;

class Law : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    auto example = MakeExample(GetParam(), kSeed);
    ASSERT_TRUE(example.ok()) << example.status();
    example_.emplace(*std::move(example));
    rule_ = example_->def->rule(example_->attrs, example_->input_types, example_->output_types);
    run_ = {GetParam().op, example_->attrs, GetParam().step, GetParam().micro_batch, kSeed, 1};
    whole_ = example_->outputs;
    absl::Status status = RunKernel(run_, example_->inputs, &whole_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Signatures that may be used: units agree.
  std::vector<AxisSignature> Signatures() const {
    std::vector<AxisSignature> usable;
    for (AxisSignature& signature : LegalSignatures(rule_)) {
      if (signature.factor >= 0 && !UnitsAgree(rule_, signature.factor, example_->input_types, example_->output_types)) continue;
      usable.push_back(std::move(signature));
    }
    return usable;
  }

  std::vector<std::vector<HostTensor>> CutAll(const std::vector<HostTensor>& tensors, const std::vector<TensorType>& types,
                                              const std::vector<Layout>& layouts, const Mesh& mesh, uint64_t key) const {
    std::vector<std::vector<HostTensor>> by_rank(mesh.num_ranks());
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<HostTensor> shards = Cut(tensors[i], types[i], layouts[i], mesh, MixKeyOf(key, i));
      for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) by_rank[rank].push_back(shards[rank]);
    }
    return by_rank;
  }

  void Check(const std::vector<AxisSignature>& per_axis, const Mesh& mesh) {
    std::string about = absl::StrCat(GetParam().name, " on ", mesh.ToText());
    for (const AxisSignature& signature : per_axis) absl::StrAppend(&about, "; ", signature.ToText());
    SCOPED_TRACE(about);
    Signature signature = Join(per_axis);
    signature.inputs.resize(example_->inputs.size(), Broadcast(mesh));
    auto inputs = CutAll(example_->inputs, example_->input_types, signature.inputs, mesh, kSeed);
    bool in_place = !GetParam().initial.empty();
    std::vector<std::vector<HostTensor>> outputs(mesh.num_ranks());
    if (in_place) outputs = CutAll(example_->outputs, example_->output_types, signature.outputs, mesh, kSeed + 1);
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      for (size_t i = 0; !in_place && i < example_->outputs.size(); ++i) {
        outputs[rank].emplace_back(LocalSlice(example_->output_types[i], signature.outputs[i], mesh, mesh.CoordsOf(rank)));
      }
      absl::Status status = RunKernel(run_, inputs[rank], &outputs[rank]);
      ASSERT_TRUE(status.ok()) << "rank " << rank << ": " << status;
    }
    bool partial_in = false;
    for (const Layout& layout : signature.inputs) {
      for (const Sbp& sbp : layout) partial_in = partial_in || sbp.is_partial();
    }
    double tolerance = GetParam().tolerance > 0 ? GetParam().tolerance : partial_in ? 2e-5 : 0;
    for (size_t i = 0; i < example_->outputs.size(); ++i) {
      std::vector<HostTensor> shards;
      for (auto& of_rank : outputs) shards.push_back(of_rank[i]);
      auto merged = Merge(shards, example_->output_types[i], signature.outputs[i], mesh);
      ASSERT_TRUE(merged.ok()) << "output " << i << ": " << merged.status();
      EXPECT_EQ(Difference(*merged, whole_[i], tolerance), "") << "output " << i;
    }
  }

  static uint64_t MixKeyOf(uint64_t key, size_t i) { return key * 1000 + i; }

  std::optional<OpExample> example_;
  FactorRule rule_;
  KernelRun run_;
  std::vector<HostTensor> whole_;
};

TEST_P(Law, TheRuleFitsTheTypes) {
  absl::Status status = CheckUnits(rule_, example_->input_types, example_->output_types);
  // W0232: units of this case do not agree, which only forbids some splits.
  EXPECT_TRUE(status.ok() || status.message().find("W0232") != absl::string_view::npos) << status;
}

TEST_P(Law, TheResultDoesNotDependOnTheNumberOfThreads) {
  KernelRun run = run_;
  run.num_threads = 3;
  std::vector<HostTensor> outputs = example_->outputs;
  ASSERT_TRUE(RunKernel(run, example_->inputs, &outputs).ok());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(outputs[i].SameBits(whole_[i])) << "output " << i;
}

TEST_P(Law, SplitOverTwoOrThreeDevicesEqualsWhole) {
  for (const char* text : {"a=2", "a=3"}) {
    Mesh mesh = *Mesh::Parse(text);
    for (const AxisSignature& signature : Signatures()) Check({signature}, mesh);
  }
}

TEST_P(Law, SplitOverTwoByTwoDevicesEqualsWholeForEveryPairOfSignatures) {
  Mesh mesh = *Mesh::Parse("a=2,b=2");
  std::vector<AxisSignature> signatures = Signatures();
  for (const AxisSignature& first : signatures) {
    for (const AxisSignature& second : signatures) Check({first, second}, mesh);
  }
}

std::string TestName(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Law, ::testing::ValuesIn(OpCases()), TestName);

}  // namespace

void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

}  // namespace weir::testing
