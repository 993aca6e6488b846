#include "tools/train/generator.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/decode_job.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "sbp/layout.h"
#include "tools/train/copy_fetched_states.h"
#include "tools/train/job_session.h"
#include "tools/train/session_states.h"

namespace weir::train {
namespace {

constexpr char kLogitsState[] = "fetch/logits";

// Feeds tokens and positions, i32[rows, width] each. All other inputs of the model are zero.
class TokenFeed final : public actors::DataFeed {
 public:
  TokenFeed(int64_t rows, int64_t width) : rows_(rows), width_(width) {}

  void Add(const std::string& input) {
    values_[input].assign(static_cast<size_t>(rows_ * width_), 0);
  }
  int32_t* Row(const std::string& input, size_t row) {
    return values_.at(input).data() + static_cast<int64_t>(row) * width_;
  }

  absl::Status Fill(const std::string& feed, int64_t, int64_t, const TensorSlice& slice,
                    void* out) override {
    if (slice.bytes() == 0) return absl::OkStatus();
    memset(out, 0, static_cast<size_t>(slice.bytes()));
    const auto found = values_.find(feed);
    if (found == values_.end()) return absl::OkStatus();
    if (slice.dtype != DType::kI32 || slice.global_shape != Shape{rows_, width_}) {
      return Rejected({"W0070", absl::StrCat("input ", feed),
                       absl::StrCat("i32[", rows_, ", ", width_, "]"), ToText(slice), ""});
    }
    for (int64_t r = 0; r < slice.shape[0]; ++r) {
      memcpy(static_cast<int32_t*>(out) + r * slice.shape[1],
             found->second.data() + (slice.offset[0] + r) * width_ + slice.offset[1],
             static_cast<size_t>(slice.shape[1]) * sizeof(int32_t));
    }
    return absl::OkStatus();
  }

 private:
  int64_t rows_, width_;
  std::map<std::string, std::vector<int32_t>> values_;  // by input of main
};

// Returns row `row` of the logits as floats, counted over all positions of all sequences.
absl::StatusOr<std::vector<float>> LogitsAt(const actors::Session& session, int64_t row) {
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.name != kLogitsState) continue;
      const Shape& shape = state.slice.shape;
      if (shape.size() < 2 || (row + 1) * shape.back() > state.slice.num_elements()) break;
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(rank, state.name));
      std::vector<float> logits(static_cast<size_t>(shape.back()));
      const int64_t width = SizeOf(state.slice.dtype);
      const char* from = memory.data() + row * shape.back() * width;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (state.slice.dtype == DType::kBF16) {
          BFloat16 value;
          memcpy(&value.bits, from + i * 2, 2);
          logits[i] = ToFloat(value);
        } else {
          memcpy(&logits[i], from + i * 4, 4);
        }
      }
      return logits;
    }
  }
  return absl::InternalError("the plan fetches no logits with a row for each token");
}

absl::Status CheckOptions(const GenerateOptions& options, int64_t below) {
  const SamplingOptions& sampling = options.sampling;
  const auto refused = [](const std::string& flag, const std::string& expected,
                          const std::string& found, const std::string& hint) {
    return Rejected({"W0078", flag, expected, found, hint});
  };
  if (options.prompts.empty())
    return refused("--prompt", "at least one prompt", "none", "--prompt \"Once\"");
  if (!(sampling.temperature >= 0))
    return refused("--temperature", "0 or more", absl::StrCat(sampling.temperature), "");
  if (sampling.top_k < 0) return refused("--top-k", "0 or more", absl::StrCat(sampling.top_k), "");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return refused("--top-p", "above 0 and at most 1", absl::StrCat(sampling.top_p), "--top-p 0.9");
  if (options.max_tokens < 0)
    return refused("--max-tokens", "0 or more", absl::StrCat(options.max_tokens), "");
  for (const Tokens& stop : options.stops) {
    if (stop.empty()) return refused("--stop", "at least one byte", "nothing", "leave it out");
  }
  for (size_t p = 0; p < options.prompts.size(); ++p) {
    const std::string prompt =
        options.prompts.size() == 1 ? "the prompt" : absl::StrCat("prompt ", p + 1);
    if (options.prompts[p].empty())
      return refused(prompt, "at least one token", "nothing", "--prompt \"Once\"");
    for (const int32_t token : options.prompts[p]) {
      if (token >= 0 && token < below) continue;
      return refused(prompt, absl::StrCat("tokens from 0 to below ", below, ", those of the model"),
                     absl::StrCat("token ", token), "");
    }
  }
  return absl::OkStatus();
}

weights::WeightTypes TypesOf(const std::map<std::string, sbp::TensorType>& parameters) {
  weights::WeightTypes types;
  for (const auto& [name, type] : parameters) {
    Shape shape;
    for (const sbp::TensorDim& dim : type.dims) shape.push_back(dim.size);
    types[name] = {type.dtype, std::move(shape)};
  }
  return types;
}

// A plan that is loaded, and what it is fed.
struct Loaded {
  std::unique_ptr<TokenFeed> feed;
  JobSession opened;
};

class Generator {
 public:
  Generator(const proto::Job& job, const GenerateOptions& options,
            const std::function<void(size_t, int32_t)>& emit)
      : job_(job), options_(options), emit_(emit) {}

  absl::StatusOr<Generated> Run() {
    const auto rows = static_cast<int64_t>(options_.prompts.size());
    WEIR_ASSIGN_OR_RETURN(variant_,
                          GenerationJob(job_, std::max<int64_t>(1, rows), options_.devices));
    WEIR_RETURN_IF_ERROR(CheckOptions(options_, variant_.below));
    if (!options_.init.empty()) {
      WEIR_ASSIGN_OR_RETURN(weights_, store::SafetensorsReader::Open(options_.init));
      WEIR_RETURN_IF_ERROR(weights_->CheckSums().status());
    }
    sequences_ = options_.prompts;
    if (static_cast<int64_t>(longest()) > variant_.window && options_.max_tokens > 0) {
      Note(absl::StrCat("a prompt of ", longest(), " tokens is longer than the window of ",
                        variant_.window, "; the model reads the last ", variant_.window));
    }
    stopped_.assign(sequences_.size(), false);
    result_.ends.assign(sequences_.size(), Generated::End::kLength);
    WEIR_RETURN_IF_ERROR(GenerateWithCache());
    WEIR_RETURN_IF_ERROR(GenerateByWindows());
    return result_;
  }

 private:
  size_t longest() const {
    size_t longest = 0;
    for (const Tokens& sequence : sequences_) longest = std::max(longest, sequence.size());
    return longest;
  }

  bool IsDone() {
    if (options_.interrupted && options_.interrupted()) {
      for (size_t r = 0; r < stopped_.size(); ++r) {
        if (!stopped_[r]) result_.ends[r] = Generated::End::kInterrupted;
      }
      return true;
    }
    return made_ >= options_.max_tokens ||
           std::all_of(stopped_.begin(), stopped_.end(), [](bool stopped) { return stopped; });
  }

  void Note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  absl::StatusOr<Loaded> Load(const proto::Job& job, int64_t width,
                              const std::vector<std::string>& inputs,
                              const weights::WeightTypes& unused = {}) const {
    Loaded loaded;
    loaded.feed = std::make_unique<TokenFeed>(static_cast<int64_t>(options_.prompts.size()), width);
    for (const std::string& input : inputs) loaded.feed->Add(input);
    JobSessionOptions session;
    session.mode = compiler::PlanMode::kGenerate;
    session.threads_per_device = options_.threads;
    session.feed = loaded.feed.get();
    session.trace = JobSessionOptions::Trace::kNone;
    WEIR_ASSIGN_OR_RETURN(loaded.opened, OpenJobSession(job, session));
    if (weights_ != nullptr) {
      WEIR_RETURN_IF_ERROR(
          LoadWeights(weights_, {"", options_.job_file}, loaded.opened.session.get(), unused));
    }
    return loaded;
  }

  // Reads the prompts, and then computes one position of each sequence in a step, until a sequence
  // fills the window. Leaves everything to GenerateByWindows if the model has no such form.
  absl::Status GenerateWithCache() {
    if (options_.cache == GenerateOptions::Cache::kNever || IsDone()) return absl::OkStatus();
    const auto prompt = static_cast<int64_t>(longest());
    if (prompt >= variant_.window) {
      why_windows_ = absl::StrCat("the longest prompt fills the window of ", variant_.window,
                                  " tokens, so each token runs the whole window");
      return absl::OkStatus();
    }
    const bool fills = options_.max_tokens > variant_.window - prompt;
    compiler::DecodeSizes sizes;
    sizes.rows = static_cast<int64_t>(sequences_.size());
    sizes.slots = fills ? variant_.window : prompt + options_.max_tokens;
    sizes.positions = prompt;
    absl::StatusOr<compiler::DecodeJob> reading =
        compiler::DecodeJobOf(variant_.written, variant_.input, sizes);
    if (!reading.ok()) {
      why_windows_ =
          absl::StrCat("no cache of keys and values, so each token runs the whole window: ",
                       reading.status().message());
      return absl::OkStatus();
    }
    sizes.positions = 1;
    WEIR_ASSIGN_OR_RETURN(compiler::DecodeJob step,
                          compiler::DecodeJobOf(variant_.written, variant_.input, sizes));
    WEIR_ASSIGN_OR_RETURN(
        Loaded steps, Load(step.job, 1, {variant_.input, step.positions}, TypesOf(step.unused)));
    // This line comes before the text, because a line in the middle of the text would break it.
    if (fills) {
      Note(absl::StrCat("the longest sequence fills the window of ", variant_.window,
                        " tokens after ", variant_.window - prompt,
                        " new ones; from there on each token runs the whole window"));
    }
    WEIR_RETURN_IF_ERROR(ReadPrompts(*reading, prompt, steps.opened.session.get()));
    while (!IsDone() && static_cast<int64_t>(longest()) < variant_.window) {
      for (size_t r = 0; r < sequences_.size(); ++r) {
        *steps.feed->Row(variant_.input, r) = sequences_[r].back();
        *steps.feed->Row(step.positions, r) = static_cast<int32_t>(sequences_[r].size()) - 1;
      }
      WEIR_RETURN_IF_ERROR(RunStep(&steps));
      const int64_t before = result_.tokens;
      WEIR_RETURN_IF_ERROR(
          Draw(*steps.opened.session, [](size_t row) { return static_cast<int64_t>(row); }));
      result_.cached_tokens += result_.tokens - before;
    }
    return absl::OkStatus();
  }

  // Draws the first token of each sequence, and fills the states of `steps`.
  absl::Status ReadPrompts(const compiler::DecodeJob& reading, int64_t width,
                           actors::Session* steps) {
    WEIR_ASSIGN_OR_RETURN(
        Loaded loaded,
        Load(reading.job, width, {variant_.input, reading.positions}, TypesOf(reading.unused)));
    for (size_t r = 0; r < sequences_.size(); ++r) {
      int32_t* tokens = loaded.feed->Row(variant_.input, r);
      int32_t* positions = loaded.feed->Row(reading.positions, r);
      std::copy(sequences_[r].begin(), sequences_[r].end(), tokens);
      // The padding behind a shorter prompt goes to slots that later positions overwrite before
      // any query sees them.
      for (int64_t i = 0; i < width; ++i) positions[i] = static_cast<int32_t>(i);
    }
    WEIR_RETURN_IF_ERROR(RunStep(&loaded));
    WEIR_RETURN_IF_ERROR(Draw(*loaded.opened.session, [&](size_t row) {
      return static_cast<int64_t>(row) * width + static_cast<int64_t>(sequences_[row].size()) - 1;
    }));
    return CopyFetchedStates(*loaded.opened.session, kLogitsState, steps);
  }

  // Computes the window again for each token.
  absl::Status GenerateByWindows() {
    if (IsDone()) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(Loaded loaded, Load(variant_.job, variant_.window, {variant_.input}));
    if (!why_windows_.empty()) Note(why_windows_);
    while (!IsDone()) {
      for (size_t r = 0; r < sequences_.size(); ++r) {
        const Tokens& sequence = sequences_[r];
        const size_t shown = std::min<size_t>(sequence.size(), variant_.window);
        int32_t* row = loaded.feed->Row(variant_.input, r);
        std::fill(row, row + variant_.window, 0);
        std::copy(sequence.end() - static_cast<int64_t>(shown), sequence.end(), row);
      }
      WEIR_RETURN_IF_ERROR(RunStep(&loaded));
      WEIR_RETURN_IF_ERROR(Draw(*loaded.opened.session, [&](size_t row) {
        return static_cast<int64_t>(row) * variant_.window +
               std::min<int64_t>(static_cast<int64_t>(sequences_[row].size()), variant_.window) - 1;
      }));
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(Loaded* loaded) {
    const auto begin = std::chrono::steady_clock::now();
    WEIR_RETURN_IF_ERROR(loaded->opened.session->RunSteps(1));
    result_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (made_ == 0) result_.first_seconds = result_.seconds;
    return absl::OkStatus();
  }

  // Draws the next token of each sequence that has not ended, from row row_of(sequence) of the
  // logits.
  absl::Status Draw(const actors::Session& session, const std::function<int64_t(size_t)>& row_of) {
    const bool bytes = options_.alphabet == GenerateOptions::Alphabet::kBytes;
    // Tokens that the model does not read cannot be fed back.
    const int64_t below = bytes ? std::min<int64_t>(variant_.below, 256) : variant_.below;
    for (size_t r = 0; r < sequences_.size(); ++r) {
      if (stopped_[r]) continue;
      WEIR_ASSIGN_OR_RETURN(std::vector<float> logits, LogitsAt(session, row_of(r)));
      logits.resize(std::min<size_t>(logits.size(), static_cast<size_t>(below)));
      uint64_t key = MixKey(options_.seed, KeyOf("generate", 8));
      if (r > 0) key = MixKey(key, r);
      const int64_t token =
          SampleToken(logits, options_.sampling, UniformAt(key, static_cast<uint64_t>(made_)));
      if (token < 0) {
        return Damaged({"W0079", options_.init.empty() ? "the model" : options_.init,
                        "finite logits", "not a number",
                        "the weights hold NaN; train again with a lower learning rate"});
      }
      sequences_[r].push_back(static_cast<int32_t>(token));
      ++result_.tokens;
      emit_(r, static_cast<int32_t>(token));
      stopped_[r] = EndsWithStop(r);
      if (stopped_[r]) result_.ends[r] = Generated::End::kStop;
    }
    ++made_;
    return absl::OkStatus();
  }

  // Returns whether the new tokens of a sequence end with a stop.
  bool EndsWithStop(size_t row) const {
    const Tokens& sequence = sequences_[row];
    const size_t made = sequence.size() - options_.prompts[row].size();
    return std::any_of(options_.stops.begin(), options_.stops.end(), [&](const Tokens& stop) {
      return stop.size() <= made && std::equal(stop.begin(), stop.end(),
                                               sequence.end() - static_cast<int64_t>(stop.size()));
    });
  }

  const proto::Job& job_;
  const GenerateOptions& options_;
  const std::function<void(size_t, int32_t)>& emit_;
  GenerationVariant variant_;
  std::shared_ptr<const store::SafetensorsReader> weights_;  // null: the first values
  std::vector<Tokens> sequences_;                            // prompts and what follows
  std::vector<bool> stopped_;
  int64_t made_ = 0;         // tokens of a sequence that has not stopped
  std::string why_windows_;  // a note; empty: no cache was wanted, or the cache was used
  Generated result_;
};

}  // namespace

Tokens TokensOf(const std::string& text) {
  Tokens tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

absl::StatusOr<Generated> Generate(const proto::Job& job, const GenerateOptions& options,
                                   const std::function<void(size_t prompt, int32_t token)>& emit) {
  return Generator(job, options, emit).Run();
}

}  // namespace weir::train
