#include "runtime/store/array_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/sample_order.h"
#include "runtime/store/slice_runs.h"

namespace weir::store {
namespace {

constexpr int64_t kPieceElements = 1 << 18;
// A sample up to this size is read whole, even if a device needs only a part of it.
constexpr int64_t kWholeSampleElements = 1 << 18;
// Values of larger arrays are checked when they are read, not before.
constexpr int64_t kCheckedElementsMax = int64_t{1} << 31;

struct Part {
  std::string path;  // for messages
  std::map<std::string, StoredArray> arrays;
  int64_t samples = 0;
  int64_t train = 0;  // samples to train on, at the beginning
  int64_t held() const { return samples - train; }
};

Shape SampleShape(const StoredArray& array) {
  return {array.shape().begin() + 1, array.shape().end()};
}

// Returns whether finite elements may become infinite as f32.
bool MayOverflow(ElementType type, const std::optional<ElementScale>& scale) {
  constexpr double kLargestF32 = std::numeric_limits<float>::max();
  const ElementScale by = scale.value_or(ElementScale());
  double largest = kLargestF32;
  if (type == ElementType::kF64) largest = std::numeric_limits<double>::max();
  if (!IsReal(type)) largest = 0x1p64;
  return largest * std::abs(by.by) + std::abs(by.plus) > kLargestF32;
}

bool NeedsCheck(const FeedRequest& request, ElementType type,
                const std::optional<ElementScale>& scale) {
  if (request.dtype == DType::kF32) return MayOverflow(type, scale);
  if (request.dtype == DType::kBool) return type != ElementType::kBool;
  if (request.dtype != DType::kI32) return false;
  return request.below > 0 || type == ElementType::kU32 || type == ElementType::kU64 ||
         type == ElementType::kI64;
}

absl::Status OutOfRange(const FeedRequest& request, const StoredArray& array, int64_t position,
                        int32_t value) {
  return Rejected(
      {"W0793", absl::StrCat(array.place(), ", ", array.PositionText(position)),
       absl::StrCat("values from 0 to below ", request.below, " for input ", request.input, ", ",
                    request.reader),
       absl::StrCat(value),
       value < 0 ? absl::StrCat("ignore_index: ", value,
                                " on the operations that read the input, if the value marks what "
                                "does not count; else correct the data")
                 : "correct the data, or give that dimension a larger size"});
}

// Returns what to do about an array whose elements are not of the type of the input.
std::string ElementHint(const FeedRequest& request, const StoredArray& array, bool has_scale) {
  if (has_scale && request.dtype != DType::kF32)
    return "remove the scale of the array, or give the input the type f32";
  switch (request.dtype) {
    case DType::kI32: return "save the array with .astype(\"int32\")";
    case DType::kBool: return "save the array with .astype(\"bool\")";
    case DType::kF32:
      return absl::StrCat("data { arrays { scale { name: \"", request.feed,
                          "\" by: ", array.type() == ElementType::kU8 ? "0.00392156862745098" : "1",
                          " } } }, which makes real numbers of the integers");
    case DType::kBF16:
    case DType::kF16: break;
  }
  return "give the input the type f32";
}

// Returns what to do about an array whose samples are not of the shape of the input.
// Returns the sizes that an array for an input must have: "samples, 28, 28".
std::vector<std::string> WantedShape(const FeedRequest& request) {
  std::vector<std::string> sizes = {"samples"};
  for (size_t d = 1; d < request.shape.size(); ++d) sizes.push_back(absl::StrCat(request.shape[d]));
  return sizes;
}

std::string ShapeHint(const FeedRequest& request, const StoredArray& array) {
  const Shape wanted(request.shape.begin() + 1, request.shape.end());
  if (NumElements(wanted) == NumElements(SampleShape(array))) {
    return absl::StrCat("save the array with .reshape(-1", wanted.empty() ? "" : ", ",
                        absl::StrJoin(wanted, ", "), ")");
  }
  if (array.shape().size() == 1 && request.shape.size() == 2) {
    return "data { tokens { path: \"FILE.npy\" } } cuts one long array of tokens into windows; "
           "arrays need one row a sample";
  }
  return "change the sizes of the input's dimensions, or the array";
}

class ArrayDataset final : public Dataset {
 public:
  ArrayDataset(std::vector<Part> parts, ArrayDataOptions options)
      : parts_(std::move(parts)), options_(std::move(options)), order_(OrderOf(parts_, options_)) {}

  std::vector<FeedType> feeds() const override {
    std::vector<FeedType> feeds;
    for (const auto& [name, array] : parts_[0].arrays) {
      FeedType feed;
      feed.name = name;
      feed.sample = FeedType::Sample::kShape;
      feed.shape = SampleShape(array);
      feed.elements = NumElements(feed.shape);
      const bool has_scale = options_.scales.contains(name);
      using Role = FeedForm::Role;
      for (const FeedForm form :
           {FeedForm{Role::kIndex, DType::kI32}, FeedForm{Role::kReal, DType::kF32},
            FeedForm{Role::kMask, DType::kBool}}) {
        if (Converts(array.type(), form.dtype, has_scale)) feed.forms.push_back(form);
      }
      feeds.push_back(std::move(feed));
    }
    return feeds;
  }

  absl::Status CheckType(const FeedRequest& request) const override {
    const std::optional<ElementScale> scale = ScaleOf(request.feed);
    for (const Part& part : parts_) {
      const StoredArray& array = part.arrays.at(request.feed);
      const bool fits_shape =
          !request.shape.empty() && std::equal(request.shape.begin() + 1, request.shape.end(),
                                               array.shape().begin() + 1, array.shape().end());
      const bool converts = Converts(array.type(), request.dtype, scale.has_value());
      if (fits_shape && converts) continue;
      return Rejected(
          {"W0792", absl::StrCat("input ", request.input, " of main, from ", array.place()),
           request.shape.empty()
               ? absl::StrCat(Name(request.dtype), "[], by the type of the input")
               : absl::StrCat(Name(request.dtype), "[", absl::StrJoin(WantedShape(request), ", "),
                              "], by the type of the input, with any number of samples"),
           absl::StrCat(array.TypeText(), scale.has_value() ? " with a scale" : ""),
           fits_shape ? ElementHint(request, array, scale.has_value())
                      : (request.shape.empty() ? "let the input begin with a dimension of samples"
                                               : ShapeHint(request, array))});
    }
    return absl::OkStatus();
  }

  absl::Status CheckValues(const FeedRequest& request) const override {
    const std::optional<ElementScale> scale = ScaleOf(request.feed);
    std::vector<int32_t> piece;  // elements of any type need as many bytes at most
    for (const Part& part : parts_) {
      const StoredArray& array = part.arrays.at(request.feed);
      if (!NeedsCheck(request, array.type(), scale)) continue;
      const int64_t size = std::min(NumElements(array.shape()), kCheckedElementsMax);
      // Elements in holes are 0, which every range has.
      for (int64_t begin = array.SkipHole(0); begin < size;) {
        const int64_t count = std::min(kPieceElements, size - begin);
        piece.resize(static_cast<size_t>(count));
        WEIR_RETURN_IF_ERROR(array.Read(begin, count, request.dtype, scale, piece.data()));
        for (int64_t i = 0; request.dtype == DType::kI32 && request.below > 0 && i < count; ++i) {
          const int32_t value = piece[static_cast<size_t>(i)];
          if ((value < 0 || value >= request.below) && value != request.ignored)
            return OutOfRange(request, array, begin + i, value);
        }
        begin = array.SkipHole(begin + count);
      }
    }
    return absl::OkStatus();
  }

  int64_t num_held_out_batches() const override {
    int64_t held = 0;
    for (const Part& part : parts_) held += part.held();
    return held / options_.batch;
  }

  std::string Describe() const override {
    int64_t train = 0, held = 0;
    for (const Part& part : parts_) {
      train += part.train;
      held += part.held();
    }
    std::string more;
    if (parts_.size() > 1) {
      more = absl::StrCat(" and ", parts_.size() - 1,
                          parts_.size() > 2 ? " more places" : " more place");
    }
    const std::string place = absl::StrCat("arrays in ", parts_[0].path, more, ": ");
    if (options_.use == DataUse::kInOrder) return absl::StrCat(place, held, " samples");
    return absl::StrCat(place, train, " samples to train on, ", held, " held out");
  }

  absl::Status Fill(const std::string& feed, const BatchPosition& position,
                    const TensorSlice& slice, void* out) const override {
    if (!parts_[0].arrays.contains(feed)) return UnknownFeed(feed, feed, feeds());
    FeedRequest request;
    request.input = request.feed = feed;
    request.dtype = slice.dtype;
    request.shape = slice.global_shape;
    WEIR_RETURN_IF_ERROR(CheckType(request));
    TensorSlice sample;  // what one row takes of a sample
    sample.dtype = slice.dtype;
    sample.shape.assign(slice.shape.begin() + 1, slice.shape.end());
    sample.offset.assign(slice.offset.begin() + 1, slice.offset.end());
    sample.global_shape.assign(slice.global_shape.begin() + 1, slice.global_shape.end());
    auto* to = static_cast<uint8_t*>(out);
    for (int64_t row = 0; row < slice.shape[0]; ++row, to += sample.bytes()) {
      const int64_t n = SampleNumber(position, slice.global_shape[0], slice.offset[0] + row);
      WEIR_ASSIGN_OR_RETURN(const SampleOrder::Place place, position.part == DataPart::kTrain
                                                                ? SampleOrder::Place(order_.At(n))
                                                                : HeldOutPlace(n));
      WEIR_RETURN_IF_ERROR(
          FillSample(parts_[place.part].arrays.at(feed), ScaleOf(feed), place.sample, sample, to));
    }
    return absl::OkStatus();
  }

 private:
  static SampleOrder OrderOf(const std::vector<Part>& parts, const ArrayDataOptions& options) {
    std::vector<int64_t> samples;  // of the parts to train on, which come first
    for (const Part& part : parts) {
      if (part.train > 0) samples.push_back(part.train);
    }
    return {std::move(samples), options.weights, MixKey(options.seed, KeyOf("array epochs", 12))};
  }

  std::optional<ElementScale> ScaleOf(const std::string& name) const {
    auto scale = options_.scales.find(name);
    return scale == options_.scales.end() ? std::nullopt : std::optional(scale->second);
  }

  absl::StatusOr<SampleOrder::Place> HeldOutPlace(int64_t n) const {
    int64_t sample = n;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (sample < parts_[p].held()) return SampleOrder::Place{p, parts_[p].train + sample};
      sample -= parts_[p].held();
    }
    return absl::InternalError(absl::StrCat("no held-out sample ", n));
  }

  // Writes the elements of `slice` of sample number `index` to `out`.
  static absl::Status FillSample(const StoredArray& array, const std::optional<ElementScale>& scale,
                                 int64_t index, const TensorSlice& slice, uint8_t* out) {
    const int64_t elements = NumElements(slice.global_shape), width = SizeOf(slice.dtype);
    const int64_t begin = index * elements;
    if (slice.is_whole()) return array.Read(begin, elements, slice.dtype, scale, out);
    std::vector<uint8_t> whole;
    if (elements <= kWholeSampleElements) {
      whole.resize(static_cast<size_t>(elements * width));
      WEIR_RETURN_IF_ERROR(array.Read(begin, elements, slice.dtype, scale, whole.data()));
    }
    absl::Status status;
    ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
      if (!status.ok()) return;
      if (whole.empty()) {
        status = array.Read(begin + global, count, slice.dtype, scale, out + local * width);
      } else {
        std::memcpy(out + local * width, whole.data() + global * width,
                    static_cast<size_t>(count * width));
      }
    });
    return status;
  }

  std::vector<Part> parts_;
  ArrayDataOptions options_;
  SampleOrder order_;
};

absl::Status Contradiction(const std::string& field, const std::string& expected,
                           const std::string& found, const std::string& hint) {
  return Rejected({"W0791", absl::StrCat("data.arrays", field), expected, found, hint});
}

absl::Status CheckOptions(const ArrayDataOptions& options) {
  if (!(options.held_out >= 0) || !(options.held_out < 1)) {
    return Rejected({"W0052", "data.arrays.held_out", "a share from 0 to below 1",
                     absl::StrCat(options.held_out), "0.1"});
  }
  if (options.batch < 1) {
    return Rejected(
        {"W0052", "data.arrays", "a batch of at least 1", absl::StrCat(options.batch), ""});
  }
  const bool has_paths = !options.paths.empty() || !options.held_out_paths.empty();
  if (has_paths != options.arrays.empty()) {
    return Contradiction("", "either `path`, for files with several arrays, or `array`",
                         has_paths ? "both" : "neither",
                         "data { arrays { array { name: \"x\" path: \"x.npy\" } } }");
  }
  if (has_paths && options.paths.empty())
    return Contradiction(".path", "the path of at least one file to train on", "none", "");
  std::map<std::string, int> seen;
  for (const ArrayDataOptions::Array& array : options.arrays) {
    const std::string field = absl::StrCat(".array \"", array.name, "\"");
    if (array.name.empty())
      return Contradiction(".array", "the name of the array", "none", "name: \"x\"");
    if (++seen[array.name] > 1) {
      return Contradiction(field, "each array once", "two entries",
                           "remove one of them, or join their paths");
    }
    const ArrayDataOptions::Array& first = options.arrays[0];
    if (array.paths.empty())
      return Contradiction(field, "the path of at least one file", "none", "path: \"x.npy\"");
    if (array.paths.size() != first.paths.size() ||
        array.held_out_paths.size() != first.held_out_paths.size()) {
      return Contradiction(
          field,
          absl::StrCat(first.paths.size(), " `path` and ", first.held_out_paths.size(),
                       " `held_out_path`, as array \"", first.name, "\" has"),
          absl::StrCat(array.paths.size(), " and ", array.held_out_paths.size()),
          "give every array a file for the same samples");
    }
  }
  for (const auto& [name, scale] : options.scales) {
    if (std::isfinite(scale.by) && std::isfinite(scale.plus) && scale.by != 0) continue;
    return Contradiction(
        absl::StrCat(".scale \"", name, "\""), "finite numbers, and `by` other than 0",
        absl::StrCat("by ", scale.by, ", plus ", scale.plus), "by: 0.00392156862745098");
  }
  return SampleOrder::CheckWeights(
      "data.arrays", options.weights,
      has_paths ? options.paths.size() : options.arrays[0].paths.size());
}

// Opens the arrays of part `p`; its wanted arrays have one number of samples.
absl::StatusOr<Part> OpenPart(const ArrayDataOptions& options, size_t p, bool is_held_out) {
  const std::string purpose = is_held_out ? "arrays to evaluate on" : "arrays to train on";
  Part part;
  if (options.arrays.empty()) {
    part.path = is_held_out ? options.held_out_paths[p] : options.paths[p];
    WEIR_ASSIGN_OR_RETURN(part.arrays, ArraysIn(part.path, purpose));
  }
  for (const ArrayDataOptions::Array& array : options.arrays) {
    const std::string& path = is_held_out ? array.held_out_paths[p] : array.paths[p];
    if (part.path.empty()) part.path = path;
    WEIR_ASSIGN_OR_RETURN(StoredArray opened, OpenNpyArray(path, purpose));
    part.arrays.emplace(array.name, std::move(opened));
  }
  const StoredArray* first = nullptr;
  for (const std::string& name : options.wanted) {
    auto array = part.arrays.find(name);
    if (array == part.arrays.end()) continue;  // CheckRequest says so, with the names
    if (first == nullptr) first = &array->second;
    if (array->second.samples() == first->samples()) continue;
    return Rejected({"W0794", array->second.place(),
                     absl::StrCat(first->samples(), first->samples() == 1 ? " sample" : " samples",
                                  ", as in ", first->place()),
                     absl::StrCat(array->second.samples(), ", by the first dimension of ",
                                  array->second.TypeText()),
                     "give every array one row for each sample"});
  }
  part.samples = first == nullptr ? part.arrays.begin()->second.samples() : first->samples();
  const auto held = static_cast<int64_t>(
      std::floor(static_cast<double>(part.samples) * (is_held_out ? 1 : options.held_out)));
  if (options.use == DataUse::kInOrder) return part;  // nothing to train on
  part.train = part.samples - held;
  if (part.train == 0 && !is_held_out) {
    return Rejected(
        {"W0794", part.path, "at least one sample to train on",
         absl::StrCat("none of ", part.samples),
         part.samples == 0 ? "save arrays with samples" : "a smaller data.arrays.held_out"});
  }
  return part;
}

absl::Status CheckSamePartNames(const std::vector<Part>& parts, const ArrayDataOptions& options) {
  for (const auto& [name, scale] : options.scales) {
    if (parts[0].arrays.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [known, array] : parts[0].arrays) names.push_back(known);
    const std::string nearest = Nearest(name, names);
    return Contradiction(
        ".scale", absl::StrCat("`name` to be one of the arrays ", absl::StrJoin(names, ", ")),
        absl::StrCat("\"", name, "\""),
        nearest.empty() ? "" : absl::StrCat("name: \"", nearest, "\""));
  }
  for (const Part& part : parts) {
    for (const std::string& name : options.wanted) {
      if (!parts[0].arrays.contains(name) || part.arrays.contains(name)) continue;
      return Rejected({"W0791", part.path,
                       absl::StrCat("an array \"", name, "\", as in ", parts[0].path), "none",
                       "save the same arrays in every file"});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenArrayDataset(const ArrayDataOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckOptions(options));
  const bool by_array = !options.arrays.empty();
  const size_t num_train = by_array ? options.arrays[0].paths.size() : options.paths.size();
  const size_t num_held_out =
      by_array ? options.arrays[0].held_out_paths.size() : options.held_out_paths.size();
  std::vector<Part> parts;
  int64_t train = 0, held = 0;
  for (size_t p = 0; p < num_train + num_held_out; ++p) {
    const bool is_held_out = p >= num_train;
    WEIR_ASSIGN_OR_RETURN(Part part,
                          OpenPart(options, is_held_out ? p - num_train : p, is_held_out));
    train += part.train;
    held += part.held();
    parts.push_back(std::move(part));
  }
  WEIR_RETURN_IF_ERROR(CheckSamePartNames(parts, options));
  if (options.use == DataUse::kInOrder && held < options.batch) {
    return Rejected({"W0794", parts[0].path,
                     absl::StrCat("at least one batch of ", options.batch, " samples"),
                     absl::StrCat(held), "save arrays with samples"});
  }
  if (options.use == DataUse::kTrain && train < options.batch) {
    return Rejected({"W0794", parts[0].path,
                     absl::StrCat("at least one batch of ", options.batch, " samples to train on"),
                     absl::StrCat(train),
                     "use a smaller batch, or a smaller data.arrays.held_out"});
  }
  if ((options.held_out > 0 || num_held_out > 0) && held < options.batch) {
    return Rejected({"W0794", parts[num_held_out > 0 ? num_train : 0].path,
                     absl::StrCat("at least one batch of ", options.batch, " held-out samples"),
                     absl::StrCat(held),
                     num_held_out > 0
                         ? "name more samples in `held_out_path`, or use a smaller batch"
                         : "set data.arrays.held_out to a larger share, or to 0 for no "
                           "evaluation, or use a smaller batch"});
  }
  return std::unique_ptr<Dataset>(std::make_unique<ArrayDataset>(std::move(parts), options));
}

}  // namespace weir::store
