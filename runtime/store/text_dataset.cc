#include "runtime/store/text_dataset.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/watched_file.h"

namespace weir::store {
namespace {

constexpr char kTokens[] = "tokens", kTargets[] = "targets";
constexpr int64_t kByteValues = 256;
constexpr size_t kPieceBytes = 1 << 20;

// Returns a number that is uniform in [0, range), from 64 random bits.
int64_t UniformBelow(uint64_t key, uint64_t counter, int64_t range) {
  auto words = RandomBits(key, counter);
  uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(range)) >> 64);
}

class TextDataset : public Dataset {
 public:
  TextDataset(std::unique_ptr<WatchedFile> file, const TextDataOptions& options,
              int64_t train_bytes)
      : file_(std::move(file)),
        options_(options),
        train_bytes_(train_bytes),
        key_(MixKey(options.seed, KeyOf("text windows", 12))) {}

  std::vector<FeedType> feeds() const override { return {Feed(kTokens), Feed(kTargets)}; }

  // Tokens and targets are the same bytes.
  absl::Status CheckValues(const FeedRequest& request) const override {
    if (request.below == 0 || request.below >= kByteValues) return absl::OkStatus();
    std::vector<uint8_t> piece(kPieceBytes);
    for (int64_t begin = 0; begin < file_->size(); begin += static_cast<int64_t>(piece.size())) {
      piece.resize(std::min(piece.size(), static_cast<size_t>(file_->size() - begin)));
      WEIR_RETURN_IF_ERROR(file_->ReadAt(begin, static_cast<int64_t>(piece.size()), piece.data()));
      const auto found = std::find_if(piece.begin(), piece.end(),
                                      [&](uint8_t byte) { return byte >= request.below; });
      if (found == piece.end()) continue;
      return Rejected({"W0051",
                       absl::StrCat(file_->path(), ", byte ", begin + (found - piece.begin())),
                       absl::StrCat("bytes below ", request.below, " for input ", request.input,
                                    ", ", request.reader),
                       absl::StrCat("byte value ", *found),
                       "give that dimension a size of 256, or clean the text"});
    }
    return absl::OkStatus();
  }

  int64_t num_held_out_batches() const override {
    int64_t held = file_->size() - train_bytes_;
    return held <= options_.sequence ? 0 : (held - 1) / options_.sequence / options_.batch;
  }

  std::string Describe() const override {
    return absl::StrCat("text ", options_.path, ": ", train_bytes_, " bytes to train on, ",
                        file_->size() - train_bytes_, " held out");
  }

  absl::Status Fill(const std::string& feed, const BatchPosition& position,
                    const TensorSlice& slice, void* out) const override {
    bool is_targets = feed == kTargets;
    if (!is_targets && feed != kTokens) return UnknownFeed(feed, feed, feeds());
    if (slice.dtype != DType::kI32 || slice.global_shape.size() != 2 ||
        slice.global_shape[1] != options_.sequence) {
      return WrongFeedType(Feed(feed), slice);
    }
    int32_t* to = static_cast<int32_t*>(out);
    std::vector<uint8_t> window;
    for (int64_t row = 0; row < slice.shape[0]; ++row) {
      int64_t sample = SampleNumber(position, slice.global_shape[0], slice.offset[0] + row);
      int64_t start = 0;
      if (position.part == DataPart::kTrain) {
        start = UniformBelow(key_, static_cast<uint64_t>(sample), train_bytes_ - options_.sequence);
      } else {
        start = train_bytes_ + sample * options_.sequence;
        if (start + options_.sequence >= file_->size()) {
          return absl::InternalError(
              absl::StrCat("held-out sample ", sample, " lies beyond the end of ", options_.path));
        }
      }
      window.resize(static_cast<size_t>(slice.shape[1]));
      WEIR_RETURN_IF_ERROR(file_->ReadAt(start + slice.offset[1] + (is_targets ? 1 : 0),
                                         slice.shape[1], window.data()));
      to = std::copy(window.begin(), window.end(), to);
    }
    return absl::OkStatus();
  }

 private:
  FeedType Feed(const std::string& name) const {
    return {name,
            {{FeedForm::Role::kIndex, DType::kI32}},
            FeedType::Sample::kWindow,
            options_.sequence};
  }

  std::unique_ptr<WatchedFile> file_;
  TextDataOptions options_;
  int64_t train_bytes_;
  uint64_t key_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const TextDataOptions& options) {
  if (!(options.held_out >= 0) || !(options.held_out < 1)) {
    return Rejected({"W0052", "data.text.held_out", "a share from 0 to below 1",
                     absl::StrCat(options.held_out), "0.1"});
  }
  if (options.batch < 1 || options.sequence < 1) {
    return Rejected({"W0052", "data.text", "a batch and a sequence of at least 1",
                     absl::StrCat("batch ", options.batch, ", sequence ", options.sequence), ""});
  }
  WEIR_ASSIGN_OR_RETURN(auto file, WatchedFile::Open(options.path, "text to train on"));
  int64_t held =
      static_cast<int64_t>(std::floor(static_cast<double>(file->size()) * options.held_out));
  int64_t train_bytes = file->size() - held;
  if (train_bytes <= options.sequence) {
    return Rejected({"W0053", options.path,
                     absl::StrCat("at least ", options.sequence + 1,
                                  " bytes to train on (one window of sequence + 1)"),
                     absl::StrCat(train_bytes, " of the file's ", file->size(), " bytes"),
                     "use a longer text or a shorter sequence"});
  }
  // Held-out windows share their border byte, so a batch takes batch * sequence + 1 bytes.
  if (held > 0 || options.held_out > 0) {
    int64_t windows = held > 0 ? (held - 1) / options.sequence : 0;
    if (windows < options.batch) {
      return Rejected({"W0054", options.path,
                       absl::StrCat("held-out text for one batch of ", options.batch,
                                    " windows of ", options.sequence, " bytes"),
                       absl::StrCat(held, " bytes held out, ", windows, " windows"),
                       "hold out a larger share, or 0 for no evaluation, or use a smaller batch"});
    }
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<TextDataset>(std::move(file), options, train_bytes));
}

}  // namespace weir::store
