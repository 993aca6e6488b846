#include "runtime/store/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/index_permutation.h"

namespace weir::store {
namespace {

constexpr char kTokens[] = "tokens", kTargets[] = "targets";
constexpr int64_t kPieceTokens = 1 << 20;
// Values of larger files are checked when they are read, not before.
constexpr int64_t kCheckedTokensMax = int64_t{1} << 31;
// The samples of a block follow one another, and each source has its share of a block.
constexpr int64_t kBlockSamples = 4096;

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

// Files that share epochs.
struct Source {
  std::vector<size_t> files;
  int64_t windows = 0;            // of an epoch
  int64_t quota = kBlockSamples;  // samples of a block
};

// Returns the quotas of a block by the shares: whole numbers of samples, each at least 1, that add
// up to a block. The largest remainders get what rounding down leaves.
std::vector<int64_t> Quotas(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;  // of weights of at most 1, so that large weights do not overflow
  for (double weight : weights) sum += weight / largest;
  std::vector<int64_t> quotas;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = kBlockSamples;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / largest / sum * static_cast<double>(kBlockSamples);
    quotas.push_back(std::max<int64_t>(1, static_cast<int64_t>(share)));
    remainders.emplace_back(static_cast<double>(quotas[i]) - share, i);
    left -= quotas[i];
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left)
    ++quotas[remainders[i].second];
  for (; left < 0; ++left) --*std::max_element(quotas.begin(), quotas.end());
  return quotas;
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(std::vector<File> files, std::vector<Source> sources, TokenDataOptions options)
      : files_(std::move(files)),
        sources_(std::move(sources)),
        options_(std::move(options)),
        anywhere_key_(MixKey(options_.seed, KeyOf("text windows", 12))),
        epochs_key_(MixKey(options_.seed, KeyOf("token epochs", 12))) {}

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
    return absl::StrCat(is_text ? "text " : absl::StrCat(files_[0].tokens->form(), " "), first,
                        files_.size() > 1
                            ? absl::StrCat(" and ", files_.size() - 1,
                                           files_.size() > 2 ? " more files" : " more file")
                            : "",
                        ": ", train, " ", options_.noun, "s to train on, ", held, " held out");
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
    // The samples of a block are dealt to the sources. The deal is another one in each block.
    const int64_t block = sample / kBlockSamples;
    int64_t slot = sample % kBlockSamples;
    size_t s = 0;
    if (sources_.size() > 1) {
      slot = IndexPermutation(MixKey(epochs_key_, static_cast<uint64_t>(block)), kBlockSamples)
                 .At(slot);
      for (; slot >= sources_[s].quota; ++s) slot -= sources_[s].quota;
    }
    const Source& source = sources_[s];
    const int64_t of_source = block * source.quota + slot;
    const uint64_t key = MixKey(MixKey(epochs_key_, KeyOf("source", 6) + s),
                                static_cast<uint64_t>(of_source / source.windows));
    int64_t window = IndexPermutation(key, source.windows).At(of_source % source.windows);
    size_t f = 0;
    for (; f + 1 < source.files.size(); ++f) {
      const int64_t windows = Windows(files_[source.files[f]].train, options_.sequence);
      if (window < windows) break;
      window -= windows;
    }
    return {source.files[f], window * options_.sequence};
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
  std::vector<Source> sources_;
  TokenDataOptions options_;
  uint64_t anywhere_key_, epochs_key_;
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
  if (!options.weights.empty() && options.weights.size() != options.paths.size()) {
    return Rejected({"W0052", absl::StrCat(field, ".weight"),
                     absl::StrCat("as many weights as paths, ", options.paths.size(), ", or none"),
                     absl::StrCat(options.weights.size()), ""});
  }
  for (double weight : options.weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return Rejected({"W0052", absl::StrCat(field, ".weight"), "weights above 0",
                     absl::StrCat(weight), "leave a file out that no sample shall come from"});
  }
  if (options.weights.size() > kBlockSamples / 2) {
    return Rejected({"W0052", absl::StrCat(field, ".weight"),
                     absl::StrCat("at most ", kBlockSamples / 2, " files with weights"),
                     absl::StrCat(options.weights.size()), "join files"});
  }
  return absl::OkStatus();
}

std::vector<Source> SourcesOf(const std::vector<File>& files, const TokenDataOptions& options) {
  std::vector<Source> sources;
  if (options.weights.empty()) {
    sources.emplace_back();
    for (size_t f = 0; f < files.size(); ++f) sources[0].files.push_back(f);
  } else {
    const std::vector<int64_t> quotas = Quotas(options.weights);
    for (size_t f = 0; f < files.size(); ++f) sources.push_back({{f}, 0, quotas[f]});
  }
  for (Source& source : sources) {
    for (size_t f : source.files) source.windows += Windows(files[f].train, options.sequence);
  }
  return sources;
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
  // Held-out windows share their border token, so a batch takes batch * sequence + 1 tokens.
  if (options.held_out > 0 && held_windows < options.batch) {
    return Rejected({"W0054", options.paths[0],
                     absl::StrCat("held-out ", noun, "s for one batch of ", options.batch,
                                  " windows of ", options.sequence, " ", noun, "s"),
                     absl::StrCat(held, " ", noun, "s held out, ", held_windows, " windows"),
                     "hold out a larger share, or 0 for no evaluation, or use a smaller batch"});
  }
  std::vector<Source> sources = SourcesOf(files, options);
  return std::unique_ptr<Dataset>(
      std::make_unique<TokenDataset>(std::move(files), std::move(sources), options));
}

}  // namespace weir::store
