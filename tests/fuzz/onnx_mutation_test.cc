// Makes a few seeded changes to each of the exported models of tests/onnx. Each result is imported,
// or refused with a code.
//   WEIR_FUZZ_SEED=N      the first seed
//   WEIR_FUZZ_KEEP=PATH   where to keep the last model, for after a crash
#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/fuzz/job_mutator.h"
#include "tools/onnx/import_model.h"
#include "tools/onnx/model_file.h"

namespace weir::fuzz {
namespace {

constexpr int kMutationsPerModel = 400;

std::vector<proto::OnnxModel> Models() {
  std::vector<proto::OnnxModel> models;
  for (const char* name : {"gpt_16", "gpt_17", "mlp_15"}) {
    auto model = onnx::ReadModelFile(std::string("tests/onnx/models/") + name + "/model.onnx");
    EXPECT_TRUE(model.ok()) << model.status();
    if (model.ok()) models.push_back(*std::move(model));
  }
  return models;
}

TEST(OnnxMutationTest, AChangedModelIsImportedOrRefusedWithACode) {
  uint64_t seed = 1;
  if (const char* text = std::getenv("WEIR_FUZZ_SEED")) seed = std::strtoull(text, nullptr, 10);
  int imported = 0, refused = 0;
  const std::vector<proto::OnnxModel> models = Models();
  for (int i = 0; i < kMutationsPerModel; ++i, ++seed) {
    for (const proto::OnnxModel& model : models) {
      proto::OnnxModel changed = model;
      MutateMessage(seed, &changed);
      if (const char* path = std::getenv("WEIR_FUZZ_KEEP")) {
        std::ofstream file(path, std::ios::binary);
        changed.SerializeToOstream(&file);
      }
      onnx::ImportOptions options;
      options.loss = "cross_entropy";
      for (const proto::OnnxValue& input : changed.graph().input()) {
        for (const proto::OnnxDim& dim : input.type().tensor().shape().dim()) {
          if (!dim.symbol().empty()) options.dims[dim.symbol()] = 6;
        }
      }
      const auto result = onnx::ImportModel(changed, options);
      ASSERT_TRUE(result.ok() || absl::StartsWith(result.status().message(), "W"))
          << "WEIR_FUZZ_SEED=" << seed << ": " << result.status();
      ++(result.ok() ? imported : refused);
    }
  }
  // Both outcomes must happen, or the changes are too tame or too wild to test anything.
  EXPECT_GT(imported, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace weir::fuzz
