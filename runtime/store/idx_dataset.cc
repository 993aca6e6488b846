#include "runtime/store/idx_dataset.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/idx_file.h"
#include "runtime/store/index_permutation.h"
#include "runtime/store/slice_runs.h"

namespace weir::store {
namespace {

constexpr char kImages[] = "images", kLabels[] = "labels";
constexpr int64_t kByteValues = 256;

struct LabelledImages {
  std::string images_path, labels_path;  // labels_path empty: no labels
  IdxArray images;
  IdxArray labels;
  int64_t size() const { return images.shape.empty() ? 0 : images.shape[0]; }
  int64_t pixels() const { return images.shape[1] * images.shape[2]; }
};

class IdxDataset : public Dataset {
 public:
  IdxDataset(LabelledImages train, LabelledImages test, const IdxDataOptions& options)
      : train_(std::move(train)), test_(std::move(test)), options_(options) {}

  std::vector<FeedType> feeds() const override {
    std::vector<FeedType> feeds{ImagesFeed()};
    if (!train_.labels_path.empty()) feeds.push_back(LabelsFeed());
    return feeds;
  }
  int64_t num_held_out_batches() const override { return test_.size() / options_.batch; }
  std::string Describe() const override {
    if (options_.use == DataUse::kInOrder)
      return absl::StrCat("images ", options_.images, ": ", test_.size());
    return absl::StrCat("images ", options_.images, ": ", train_.size(), " to train on, ",
                        test_.size(), " held out");
  }

  absl::Status CheckValues(const FeedRequest& request) const override {
    if (request.below == 0 || request.below >= kByteValues) return absl::OkStatus();
    for (const LabelledImages* part : {&train_, &test_}) {
      const bool labels = request.feed == kLabels;
      const std::vector<uint8_t>& values = labels ? part->labels.data : part->images.data;
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] < request.below || values[i] == request.ignored) continue;
        return Rejected({"W0059",
                         absl::StrCat(labels ? part->labels_path : part->images_path,
                                      labels ? ", label " : ", pixel ", i),
                         absl::StrCat("values below ", request.below, " for input ", request.input,
                                      ", ", request.reader),
                         absl::StrCat(values[i]),
                         "correct the data, or give that dimension a larger size"});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Fill(const std::string& feed, const BatchPosition& position,
                    const TensorSlice& slice, void* out) const override {
    const LabelledImages& from = position.part == DataPart::kTrain ? train_ : test_;
    if (feed == kLabels && !train_.labels_path.empty()) {
      if (slice.dtype != DType::kI32 || slice.shape.size() != 1)
        return WrongFeedType(LabelsFeed(), slice);
      int32_t* to = static_cast<int32_t*>(out);
      for (int64_t row = 0; row < slice.shape[0]; ++row) {
        WEIR_ASSIGN_OR_RETURN(int64_t index,
                              IndexOf(position, slice.global_shape[0], slice.offset[0] + row));
        to[row] = from.labels.data[static_cast<size_t>(index)];
      }
      return absl::OkStatus();
    }
    if (feed != kImages) return UnknownFeed(feed, feed, feeds());
    if (slice.dtype == DType::kI32) {
      return FillImages(from, position, slice, static_cast<int32_t*>(out),
                        [](uint8_t pixel) { return int32_t{pixel}; });
    }
    if (slice.dtype == DType::kBool) {
      return FillImages(from, position, slice, static_cast<uint8_t*>(out),
                        [](uint8_t pixel) { return static_cast<uint8_t>(pixel != 0); });
    }
    return FillImages(from, position, slice, static_cast<float*>(out),
                      [](uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  }

 private:
  FeedType ImagesFeed() const {
    return {kImages,
            {{FeedForm::Role::kReal, DType::kF32},
             {FeedForm::Role::kIndex, DType::kI32},
             {FeedForm::Role::kMask, DType::kBool}},
            FeedType::Sample::kElements,
            train_.pixels()};
  }
  static FeedType LabelsFeed() {
    return {kLabels, {{FeedForm::Role::kIndex, DType::kI32}}, FeedType::Sample::kOne, 1};
  }

  // Returns the image of row `row`, or an error beyond the held-out part.
  absl::StatusOr<int64_t> IndexOf(const BatchPosition& position, int64_t rows, int64_t row) const {
    int64_t sample = SampleNumber(position, rows, row);
    if (position.part == DataPart::kHeldOut) {
      if (sample >= test_.size())
        return absl::InternalError(absl::StrCat("no held-out image ", sample));
      return sample;
    }
    uint64_t key = MixKey(MixKey(options_.seed, KeyOf("idx order", 9)),
                          static_cast<uint64_t>(sample / train_.size()));
    return IndexPermutation(key, train_.size()).At(sample % train_.size());
  }

  template <class T, class Convert>
  absl::Status FillImages(const LabelledImages& from, const BatchPosition& position,
                          const TensorSlice& slice, T* to, Convert&& convert) const {
    int64_t pixels = from.pixels();
    bool fits = !IsHalf(slice.dtype) && !slice.shape.empty();
    TensorSlice image;  // what one row takes of an image
    if (fits) {
      image.shape.assign(slice.shape.begin() + 1, slice.shape.end());
      image.offset.assign(slice.offset.begin() + 1, slice.offset.end());
      image.global_shape.assign(slice.global_shape.begin() + 1, slice.global_shape.end());
      fits = NumElements(image.global_shape) == pixels;
    }
    if (!fits) return WrongFeedType(ImagesFeed(), slice);
    int64_t width = image.num_elements();
    for (int64_t row = 0; row < slice.shape[0]; ++row) {
      WEIR_ASSIGN_OR_RETURN(int64_t index,
                            IndexOf(position, slice.global_shape[0], slice.offset[0] + row));
      const uint8_t* data = from.images.data.data() + index * pixels;
      ForEachRun(image, [&](int64_t local, int64_t global, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[local + i] = convert(data[global + i]);
      });
      to += width;
    }
    return absl::OkStatus();
  }

  LabelledImages train_, test_;
  IdxDataOptions options_;
};

absl::StatusOr<LabelledImages> ReadPart(const std::string& images, const std::string& labels,
                                        const std::string& purpose) {
  LabelledImages part;
  part.images_path = images;
  part.labels_path = labels;
  WEIR_ASSIGN_OR_RETURN(part.images, ReadIdxFile(images, 3, purpose + " images"));
  if (labels.empty()) return part;
  WEIR_ASSIGN_OR_RETURN(part.labels, ReadIdxFile(labels, 1, purpose + " labels"));
  if (part.images.shape[0] == part.labels.shape[0]) return part;
  return Rejected({"W0058", labels,
                   absl::StrCat(part.images.shape[0], " labels, one for each image of ", images),
                   absl::StrCat(part.labels.shape[0]), "name the files that belong together"});
}

absl::Status CheckHoldsABatch(const LabelledImages& part, const std::string& path, int64_t batch) {
  if (part.size() >= batch) return absl::OkStatus();
  return Rejected({"W0058", path, absl::StrCat("at least one batch of ", batch, " images"),
                   absl::StrCat(part.size()), "use a smaller batch"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const IdxDataOptions& options) {
  const bool held_out = !options.test_images.empty();
  if ((held_out && options.labels.empty() != options.test_labels.empty()) ||
      (!held_out && !options.test_labels.empty())) {
    return Rejected({"W0052", "data.idx",
                     options.labels.empty() ? "test_images alone, as images has no labels"
                                            : "test_images and test_labels, or neither",
                     absl::StrCat("test_images \"", options.test_images, "\", test_labels \"",
                                  options.test_labels, "\""),
                     "name the files that belong together"});
  }
  if (options.batch < 1) {
    return Rejected(
        {"W0052", "data.idx", "a batch of at least 1", absl::StrCat(options.batch), ""});
  }
  WEIR_ASSIGN_OR_RETURN(LabelledImages train, ReadPart(options.images, options.labels, "training"));
  WEIR_RETURN_IF_ERROR(CheckHoldsABatch(train, options.images, options.batch));
  LabelledImages test;
  if (options.use == DataUse::kInOrder) {
    test = train;
  } else if (held_out) {
    WEIR_ASSIGN_OR_RETURN(test, ReadPart(options.test_images, options.test_labels, "test"));
    WEIR_RETURN_IF_ERROR(CheckHoldsABatch(test, options.test_images, options.batch));
    if (test.pixels() != train.pixels()) {
      return Rejected(
          {"W0058", options.test_images,
           absl::StrCat("images of ", train.pixels(), " pixels, as in ", options.images),
           absl::StrCat(test.pixels()), "name the files that belong together"});
    }
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<IdxDataset>(std::move(train), std::move(test), options));
}

}  // namespace weir::store
