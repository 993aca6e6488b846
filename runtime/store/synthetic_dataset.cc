#include "runtime/store/synthetic_dataset.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/store/slice_runs.h"

namespace weir {
namespace {

class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(const SyntheticDataOptions& options) : options_(options) {}

  std::vector<std::string> feeds() const override { return options_.feeds; }
  int64_t num_held_out_batches() const override { return 0; }
  std::string Describe() const override {
    return absl::StrCat("synthetic: uniform tokens below ", options_.vocabulary, ", seed ", options_.seed);
  }

  absl::Status Fill(const std::string& feed, const BatchPosition& position, const TensorSlice& slice,
                    void* out) const override {
    if (std::find(options_.feeds.begin(), options_.feeds.end(), feed) == options_.feeds.end()) {
      return UnknownFeed(feed, options_.feeds);
    }
    if (slice.shape.empty() || slice.dtype == DType::kBF16) {
      return WrongFeedType(feed, "f32[rows, ...] or i32[rows, ...]", slice);
    }
    bool stream = feed == "tokens" || feed == "targets";
    if (stream && slice.dtype != DType::kI32) return WrongFeedType(feed, "i32[rows, sequence]", slice);
    // One stream of numbers per feed; tokens and targets share one, a number apart.
    std::string name = stream ? "tokens" : feed;
    uint64_t key = MixKey(MixKey(options_.seed, KeyOf(name.data(), name.size())), static_cast<uint64_t>(position.part));
    int64_t rows = slice.global_shape[0];
    int64_t width = rows == 0 ? 0 : NumElements(slice.global_shape) / rows;
    int64_t first_sample = SampleNumber(position, rows, 0);
    int64_t bound = stream ? options_.vocabulary : options_.classes;
    ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        int64_t sample = first_sample + (global + i) / width, element = (global + i) % width;
        int64_t place = stream ? sample * (width + 1) + element + (feed == "targets" ? 1 : 0) : sample * width + element;
        float uniform = UniformAt(key, static_cast<uint64_t>(place));
        if (slice.dtype == DType::kF32) {
          static_cast<float*>(out)[local + i] = uniform;
        } else {
          static_cast<int32_t*>(out)[local + i] = static_cast<int32_t>(uniform * static_cast<double>(bound));
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  SyntheticDataOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> MakeSyntheticDataset(const SyntheticDataOptions& options) {
  return std::make_unique<SyntheticDataset>(options);
}

}  // namespace weir
