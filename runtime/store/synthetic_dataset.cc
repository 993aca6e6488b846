#include "runtime/store/synthetic_dataset.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/slice_runs.h"

namespace weir::store {
namespace {

// A Draw says how one feed is drawn.
struct Draw {
  DType dtype = DType::kF32;
  int64_t below = kUnknownRangeBelow;  // integers
  std::string reader;                  // who asks for that range; empty: nobody
  std::optional<int64_t> ignored;      // integers: the value of a quarter of them
  uint64_t key = 0;                    // of the stream of random numbers
  // `first` is the position of a sample's first number in the stream. `gap` is the number of
  // numbers between samples beyond a sample's elements.
  int64_t first = 0;
  int64_t gap = 0;
};

Draw DrawOf(const FeedRequest& request, uint64_t seed) {
  Draw draw;
  draw.dtype = request.dtype;
  // "tokens" and "targets" share a stream with one number more than a sample has; targets begin one
  // number later.
  const bool stream =
      request.dtype == DType::kI32 && (request.feed == "tokens" || request.feed == "targets");
  const std::string name = stream ? "tokens" : request.feed;
  draw.key = MixKey(seed, KeyOf(name.data(), name.size()));
  if (stream) draw.gap = 1;
  if (stream && request.feed == "targets") draw.first = 1;
  return draw;
}

FeedForm::Role RoleOf(DType dtype) {
  if (dtype == DType::kBool) return FeedForm::Role::kMask;
  return dtype == DType::kI32 ? FeedForm::Role::kIndex : FeedForm::Role::kReal;
}

// Returns the integer that a draw makes of a uniform number in [0, 1).
int32_t IntegerOf(const Draw& draw, double uniform) {
  constexpr double kIgnoredShare = 0.25;
  if (draw.ignored.has_value()) {
    if (uniform < kIgnoredShare) return static_cast<int32_t>(*draw.ignored);
    uniform = (uniform - kIgnoredShare) / (1 - kIgnoredShare);
  }
  return static_cast<int32_t>(uniform * static_cast<double>(draw.below));
}

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(std::map<std::string, Draw> draws, uint64_t seed)
      : draws_(std::move(draws)), seed_(seed) {}

  std::vector<FeedType> feeds() const override {
    std::vector<FeedType> feeds;
    for (const auto& [name, draw] : draws_) {
      feeds.push_back({name, {{RoleOf(draw.dtype), draw.dtype}}, FeedType::Sample::kAny, 0});
    }
    return feeds;
  }

  absl::Status CheckValues(const FeedRequest&) const override { return absl::OkStatus(); }
  int64_t num_held_out_batches() const override { return 0; }

  std::string Describe() const override {
    std::vector<std::string> parts;
    for (const auto& [name, draw] : draws_) {
      if (draw.dtype == DType::kF32) {
        parts.push_back(absl::StrCat(name, " real numbers uniform in [0, 1)"));
      } else if (draw.dtype == DType::kBool) {
        parts.push_back(absl::StrCat(name, " masks of sequences of random lengths"));
      } else {
        parts.push_back(
            absl::StrCat(name, " integers uniform below ", draw.below,
                         draw.ignored.has_value()
                             ? absl::StrCat(", a quarter of them the ignored ", *draw.ignored)
                             : "",
                         draw.reader.empty() ? ", since nothing reads them as indices" : ""));
      }
    }
    return absl::StrCat("synthetic data, seed ", seed_, ": ", absl::StrJoin(parts, "; "));
  }

  absl::Status Fill(const std::string& feed, const BatchPosition& position,
                    const TensorSlice& slice, void* out) const override {
    auto known = draws_.find(feed);
    if (known == draws_.end()) return UnknownFeed(feed, feed, feeds());
    const Draw& draw = known->second;
    if (slice.shape.empty() || slice.dtype != draw.dtype) {
      return WrongFeedType({feed, {{RoleOf(draw.dtype), draw.dtype}}, FeedType::Sample::kAny, 0},
                           slice);
    }
    const uint64_t key = MixKey(draw.key, static_cast<uint64_t>(position.part));
    const int64_t rows = slice.global_shape[0];
    const int64_t width = rows == 0 ? 0 : NumElements(slice.global_shape) / rows;
    const int64_t first_sample = SampleNumber(position, rows, 0);
    if (slice.dtype == DType::kBool) {
      FillMask(key, first_sample, width, slice, static_cast<uint8_t*>(out));
      return absl::OkStatus();
    }
    ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t sample = first_sample + (global + i) / width, element = (global + i) % width;
        const int64_t place = sample * (width + draw.gap) + element + draw.first;
        const float uniform = UniformAt(key, static_cast<uint64_t>(place));
        if (slice.dtype == DType::kF32) {
          static_cast<float*>(out)[local + i] = uniform;
        } else {
          static_cast<int32_t*>(out)[local + i] = IntegerOf(draw, uniform);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Along the last dimension, a mask begins with true places, as many as a uniform number from 1 to
  // all says, and false places follow. A mask with one place a sample is true with probability 1/2.
  static void FillMask(uint64_t key, int64_t first_sample, int64_t width, const TensorSlice& slice,
                       uint8_t* out) {
    const int64_t length = slice.global_shape.size() > 1 ? slice.global_shape.back() : 1;
    ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = first_sample * width + global + i, row = place / length;
        const double uniform = UniformAt(key, static_cast<uint64_t>(row));
        const int64_t seen = 1 + static_cast<int64_t>(uniform * static_cast<double>(length));
        out[local + i] = length > 1 ? place % length < seen : uniform < 0.5;
      }
    });
  }

  std::map<std::string, Draw> draws_;  // by feed
  uint64_t seed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticDataset(const SyntheticDataOptions& options) {
  std::map<std::string, Draw> draws;
  for (const FeedRequest& request : options.requests) {
    const std::string where = absl::StrCat("input ", request.input, " of main");
    if (request.shape.empty() || IsHalf(request.dtype)) {
      return Rejected(
          {"W0056", where,
           "f32[samples, ...], i32[samples, ...] or bool[samples, ...] for synthetic data",
           absl::StrCat(Name(request.dtype), weir::ToText(request.shape)),
           "change the type of the input"});
    }
    auto [known, is_new] = draws.emplace(request.feed, DrawOf(request, options.seed));
    Draw& draw = known->second;
    if (draw.dtype != request.dtype) {
      return Rejected(
          {"W0056", where,
           absl::StrCat(Name(draw.dtype), ", as another input takes of feed ", request.feed),
           absl::StrCat(Name(request.dtype), weir::ToText(request.shape)),
           "bind the inputs to feeds of their own"});
    }
    // A value is ignored if every input that takes the feed ignores the value.
    if (is_new) draw.ignored = request.ignored;
    if (draw.ignored != request.ignored) draw.ignored.reset();
    // The narrowest request decides the range.
    if (request.below > 0 && (draw.reader.empty() || request.below < draw.below)) {
      draw.below = request.below;
      draw.reader = request.reader;
    }
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<SyntheticDataset>(std::move(draws), options.seed));
}

}  // namespace weir::store
