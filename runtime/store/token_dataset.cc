#include "runtime/store/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/sample_order.h"

namespace weir::store {
namespace {

constexpr char kTokens[] = "tokens", kTargets[] = "targets";
constexpr int64_t kPieceTokens = 1 << 20;
// Values of larger files are checked when they are read, not before.
constexpr int64_t kCheckedTokensMax = int64_t{1} << 31;

// Returns a number that is uniform in [0, range), from 64 random bits.
int64_t UniformBelow(uint64_t key, uint64_t counter, int64_t range) {
  auto words = RandomBits(key, counter);
  uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(range)) >> 64);
}

struct File {
  std::unique_ptr<TokenFile> tokens;
  int64_t train = 0;  // tokens to train on
  int64_t held() const { return tokens->size() - train; }
};

int64_t Windows(int64_t tokens, int64_t sequence) {
  return tokens < 1 ? 0 : (tokens - 1) / sequence;
}

SampleOrder OrderOf(const std::vector<File>& files, const TokenDataOptions& options) {
  std::vector<int64_t> windows;  // of the files to train on, which come first
  for (const File& file : files) {
    if (file.train > 0) windows.push_back(Windows(file.train, options.sequence));
  }
  return {std::move(windows), options.weights, MixKey(options.seed, KeyOf("token epochs", 12))};
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(std::vector<File> files, TokenDataOptions options)
      : files_(std::move(files)),
        options_(std::move(options)),
        order_(OrderOf(files_, options_)),
        anywhere_key_(MixKey(options_.seed, KeyOf("text windows", 12))) {}

  std::vector<FeedType> feeds() const override { return {Feed(kTokens), Feed(kTargets)}; }

  // Tokens and targets are the same numbers.
  absl::Status CheckValues(const FeedRequest& request) const override {
    if (request.below == 0) return absl::OkStatus();
    std::vector<int32_t> piece;
    for (const File& file : files_) {
      const int64_t size = std::min(file.tokens->size(), kCheckedTokensMax);
      // Tokens in holes are 0, which every range has.
      for (int64_t begin = file.tokens->SkipHole(0); begin < size;
           begin = file.tokens->SkipHole(begin + static_cast<int64_t>(piece.size()))) {
        piece.resize(static_cast<size_t>(std::min(kPieceTokens, size - begin)));
        WEIR_RETURN_IF_ERROR(
            file.tokens->ReadAt(begin, static_cast<int64_t>(piece.size()), piece.data()));
        const auto found = std::find_if(piece.begin(), piece.end(), [&](int32_t token) {
          return token >= request.below && token != request.ignored;
        });
        if (found == piece.end()) continue;
        return Rejected({"W0051",
                         absl::StrCat(file.tokens->path(), ", ", options_.noun, " ",
                                      begin + (found - piece.begin())),
                         absl::StrCat(options_.noun, "s below ", request.below, " for input ",
                                      request.input, ", ", request.reader),
                         absl::StrCat(options_.noun, " value ", *found),
                         options_.type == TokenType::kU8
                             ? "give that dimension a size of 256, or clean the text"
                             : "give that dimension the size of the tokenizer's vocabulary"});
      }
    }
    return absl::OkStatus();
  }

  int64_t num_held_out_batches() const override {
    int64_t windows = 0;
    for (const File& file : files_) windows += Windows(file.held(), options_.sequence);
    return windows / options_.batch;
  }

  std::string Describe() const override {
    int64_t train = 0, held = 0;
    for (const File& file : files_) {
      train += file.train;
      held += file.held();
    }
    const std::string& first = files_[0].tokens->path();
    const bool is_text = options_.type == TokenType::kU8;
    return absl::StrCat(
        is_text ? "text " : absl::StrCat(files_[0].tokens->form(), " "), first,
        files_.size() > 1 ? absl::StrCat(" and ", files_.size() - 1,
                                         files_.size() > 2 ? " more files" : " more file")
                          : "",
        ": ",
        options_.use == DataUse::kInOrder
            ? absl::StrCat(held, " ", options_.noun, "s")
            : absl::StrCat(train, " ", options_.noun, "s to train on, ", held, " held out"));
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
    for (int64_t row = 0; row < slice.shape[0]; ++row) {
      const int64_t sample = SampleNumber(position, slice.global_shape[0], slice.offset[0] + row);
      WEIR_ASSIGN_OR_RETURN(const Place place, position.part == DataPart::kTrain
                                                   ? Place(TrainingPlace(sample))
                                                   : HeldOutPlace(sample));
      WEIR_RETURN_IF_ERROR(files_[place.file].tokens->ReadAt(
          place.begin + slice.offset[1] + (is_targets ? 1 : 0), slice.shape[1], to));
      to += slice.shape[1];
    }
    return absl::OkStatus();
  }

 private:
  // The begin of a window.
  struct Place {
    size_t file = 0;
    int64_t begin = 0;
  };

  Place TrainingPlace(int64_t sample) const {
    if (options_.order == WindowOrder::kAnywhere) {
      return {0, UniformBelow(anywhere_key_, static_cast<uint64_t>(sample),
                              files_[0].train - options_.sequence)};
    }
    const SampleOrder::Place place = order_.At(sample);
    return {place.part, place.sample * options_.sequence};
  }

  absl::StatusOr<Place> HeldOutPlace(int64_t sample) const {
    int64_t window = sample;
    for (size_t f = 0; f < files_.size(); ++f) {
      const int64_t windows = Windows(files_[f].held(), options_.sequence);
      if (window < windows) return Place{f, files_[f].train + window * options_.sequence};
      window -= windows;
    }
    return absl::InternalError(absl::StrCat("held-out sample ", sample, " lies beyond the end of ",
                                            files_.back().tokens->path()));
  }

  FeedType Feed(const std::string& name) const {
    return {name,
            {{FeedForm::Role::kIndex, DType::kI32}},
            FeedType::Sample::kWindow,
            options_.sequence};
  }

  std::vector<File> files_;
  TokenDataOptions options_;
  SampleOrder order_;
  uint64_t anywhere_key_;
};

absl::Status CheckOptions(const TokenDataOptions& options) {
  const std::string& field = options.field;
  if (!(options.held_out >= 0) || !(options.held_out < 1)) {
    return Rejected({"W0052", absl::StrCat(field, ".held_out"), "a share from 0 to below 1",
                     absl::StrCat(options.held_out), "0.1"});
  }
  if (options.batch < 1 || options.sequence < 1) {
    return Rejected({"W0052", field, "a batch and a sequence of at least 1",
                     absl::StrCat("batch ", options.batch, ", sequence ", options.sequence), ""});
  }
  if (options.paths.empty()) {
    return Rejected({"W0052", absl::StrCat(field, ".path"), "the path of at least one file", "none",
                     "path: \"train.bin\""});
  }
  return SampleOrder::CheckWeights(field, options.weights, options.paths.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenDataset(const TokenDataOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckOptions(options));
  const std::string& noun = options.noun;
  const std::string purpose =
      options.type == TokenType::kU8 ? "text to train on" : "tokens to train on";
  std::vector<File> files;
  int64_t held = 0, held_windows = 0;
  for (const std::string& path : options.paths) {
    File file;
    WEIR_ASSIGN_OR_RETURN(file.tokens, TokenFile::Open(path, purpose, options.type));
    const int64_t size = file.tokens->size();
    const auto of_file =
        static_cast<int64_t>(std::floor(static_cast<double>(size) * options.held_out));
    if (options.use == DataUse::kInOrder) {
      held += size;
      held_windows += Windows(size, options.sequence);
      files.push_back(std::move(file));
      continue;
    }
    file.train = size - of_file;
    if (file.train <= options.sequence) {
      return Rejected({"W0053", path,
                       absl::StrCat("at least ", options.sequence + 1, " ", noun,
                                    "s to train on (one window of sequence + 1)"),
                       absl::StrCat(file.train, " of the file's ", size, " ", noun, "s"),
                       "use a longer file or a shorter sequence"});
    }
    held += of_file;
    held_windows += Windows(of_file, options.sequence);
    files.push_back(std::move(file));
  }
  for (const std::string& path : options.held_out_paths) {
    File file;
    WEIR_ASSIGN_OR_RETURN(
        file.tokens, TokenFile::Open(path, absl::StrCat("held-out ", noun, "s"), options.type));
    held += file.held();
    held_windows += Windows(file.held(), options.sequence);
    files.push_back(std::move(file));
  }
  // Held-out windows share their border token, so a batch takes batch * sequence + 1 tokens.
  const bool holds_out =
      options.held_out > 0 || !options.held_out_paths.empty() || options.use == DataUse::kInOrder;
  if (holds_out && held_windows < options.batch) {
    return Rejected(
        {"W0054",
         options.held_out_paths.empty() || options.use == DataUse::kInOrder
             ? options.paths[0]
             : options.held_out_paths[0],
         absl::StrCat(options.use == DataUse::kInOrder ? "" : "held-out ", noun,
                      "s for one batch of ", options.batch, " windows of ", options.sequence, " ",
                      noun, "s"),
         absl::StrCat(held, " ", noun, "s", options.use == DataUse::kInOrder ? ", " : " held out, ",
                      held_windows, " windows"),
         options.use == DataUse::kInOrder ? "use a longer file or a shorter sequence"
         : options.held_out == 0
             ? "longer files in data.tokens.held_out_path, or a smaller batch"
             : absl::StrCat("set ", options.field,
                            ".held_out (`--held-out` of weir zoo) to a larger share, or to 0 for "
                            "no evaluation, or use a smaller batch")});
  }
  return std::unique_ptr<Dataset>(std::make_unique<TokenDataset>(std::move(files), options));
}

}  // namespace weir::store
