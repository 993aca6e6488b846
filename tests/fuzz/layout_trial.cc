#include "tests/fuzz/layout_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "actors/engine/feed.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "tests/fuzz/compile_check.h"
#include "tests/training/train_run.h"

namespace weir::fuzz {
namespace {

// Tiny chunks make many acts; the check of registers needs them all.
constexpr int64_t kActsMax = 1 << 20;
constexpr int64_t kSteps = 2;
constexpr int64_t kDevicesMax = 24;
// The tolerance for a loss near 1: the sums have another order, over a handful of small layers.
constexpr double kToleranceF32 = 2e-4;
constexpr double kToleranceHalf = 5e-2;
// A model with a larger loss amplifies rounding.
constexpr double kLossMax = 30;

// A feed of values by global element. Each part of a tensor gets the same values, whatever the
// split.
class ElementFeed final : public actors::DataFeed {
 public:
  explicit ElementFeed(int64_t micro_batches) : micro_batches_(micro_batches) {}

  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    const uint64_t key = MixKey(KeyOf(feed.data(), feed.size()),
                                static_cast<uint64_t>(step * micro_batches_ + micro_batch));
    for (int64_t i = 0; i < slice.num_elements(); ++i) {
      int64_t rest = i, element = 0, stride = 1;
      for (size_t d = slice.shape.size(); d-- > 0;) {
        const int64_t offset = slice.offset.empty() ? 0 : slice.offset[d];
        const int64_t whole = slice.global_shape.empty() ? slice.shape[d] : slice.global_shape[d];
        element += (offset + rest % slice.shape[d]) * stride;
        rest /= slice.shape[d];
        stride *= whole;
      }
      const uint64_t drawn = MixKey(key, static_cast<uint64_t>(element));
      if (slice.dtype == DType::kI32) {
        const int32_t value = static_cast<int32_t>(drawn >> 40 & 1);
        std::memcpy(static_cast<char*>(out) + 4 * i, &value, 4);
      } else if (slice.dtype == DType::kF32) {
        const float value = static_cast<float>(drawn >> 40) / static_cast<float>(1 << 24) - 0.5F;
        std::memcpy(static_cast<char*>(out) + 4 * i, &value, 4);
      } else {
        return absl::InternalError("a feed is f32 or i32");
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t micro_batches_;
};

absl::StatusOr<std::vector<double>> Losses(const proto::Job& job) {
  training::TrainRunOptions options;
  options.steps = kSteps;
  options.session.trace_capacity = kActsMax;
  options.feed = [](const proto::Job& of) {
    return std::make_unique<ElementFeed>(std::max<int64_t>(1, of.training().micro_batches()));
  };
  WEIR_ASSIGN_OR_RETURN(training::TrainRun run, training::Train(job, options));
  return run.losses;
}

}  // namespace

absl::StatusOr<std::string> TrainOnMeshAndAlone(const proto::Job& job) {
  if (compiler::NumDevices(job, kDevicesMax + 1) > kDevicesMax) return "";
  // One device has one stage and no choice of layouts.
  proto::Job alone = training::WithMesh(job, "");
  alone.clear_rule();
  alone.clear_layout();
  alone.clear_pipeline();
  alone.mutable_training()->set_zero_stage(0);
  alone.mutable_training()->clear_zero_axis();
  for (const proto::Job* either : {&job, static_cast<const proto::Job*>(&alone)}) {
    WEIR_ASSIGN_OR_RETURN(const std::string refused, CheckCompile(*either));
    if (!refused.empty()) return refused;
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<double> expected, Losses(alone));
  WEIR_ASSIGN_OR_RETURN(const std::vector<double> found, Losses(job));
  const auto is_half = [](const proto::PrecisionRule& rule) {
    return rule.precision() != proto::Training::F32;
  };
  const auto& rules = job.training().precision_of();
  const double tolerance = job.training().precision() != proto::Training::F32 ||
                                   std::any_of(rules.begin(), rules.end(), is_half)
                               ? kToleranceHalf
                               : kToleranceF32;
  for (size_t step = 0; step < expected.size(); ++step) {
    if (!(std::abs(expected[step]) < kLossMax)) break;
    if (step < found.size() && std::abs(found[step] - expected[step]) <=
                                   tolerance * std::max(1.0, std::abs(expected[step])))
      continue;
    return absl::InternalError(
        absl::StrCat("step ", step, ": loss ", expected[step], " on one device, ",
                     step < found.size() ? absl::StrCat(found[step]) : "none", " on the mesh"));
  }
  return "";
}

}  // namespace weir::fuzz
