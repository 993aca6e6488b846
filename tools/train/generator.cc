#include "tools/train/generator.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/decode_job.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "sbp/layout.h"

namespace weir::train {
namespace {

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
    for (const int32_t token : stop) {
      if (token < below) continue;
      return refused("a stop",
                     absl::StrCat("tokens from 0 to below ", below, ", those of the model"),
                     absl::StrCat("token ", token), "");
    }
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

class Generator {
 public:
  Generator(const proto::Job& job, const GenerateOptions& options,
            const std::function<void(size_t, int32_t)>& emit)
      : job_(job),
        options_(options),
        emit_(emit),
        local_(options.runner == nullptr ? MakeLocalGeneration(options.threads) : nullptr),
        runner_(options.runner == nullptr ? local_.get() : options.runner) {}

  absl::StatusOr<Generated> Run() {
    const auto rows = static_cast<int64_t>(options_.prompts.size());
    WEIR_ASSIGN_OR_RETURN(variant_,
                          GenerationJob(job_, std::max<int64_t>(1, rows), options_.devices));
    WEIR_RETURN_IF_ERROR(CheckOptions(options_, variant_.below));
    if (!options_.init.empty()) {
      WEIR_ASSIGN_OR_RETURN(weights_, weights::OpenValues(options_.init, options_.values));
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

  absl::Status Open(GenerationPlan plan, const proto::Job& job,
                    const weights::WeightTypes& unused = {}) {
    return runner_->Open(plan, {&job, weights_, options_.job_file, unused, options_.values});
  }

  TokenRows Rows(int64_t width, const std::vector<std::string>& inputs) const {
    return {static_cast<int64_t>(options_.prompts.size()), width, inputs};
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
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kSteps, step.job, TypesOf(step.unused)));
    // This line comes before the text, because a line in the middle of the text would break it.
    if (fills) {
      Note(absl::StrCat("the longest sequence fills the window of ", variant_.window,
                        " tokens after ", variant_.window - prompt,
                        " new ones; from there on each token runs the whole window"));
    }
    TokenRows tokens = Rows(1, {variant_.input, step.positions});
    WEIR_RETURN_IF_ERROR(ReadPrompts(*reading, prompt, step.positions, &tokens));
    while (!IsDone() && static_cast<int64_t>(longest()) < variant_.window) {
      for (size_t r = 0; r < sequences_.size(); ++r) {
        *tokens.Row(variant_.input, r) = sequences_[r].back();
        *tokens.Row(step.positions, r) = static_cast<int32_t>(sequences_[r].size()) - 1;
      }
      WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kSteps, tokens));
      const int64_t before = result_.tokens;
      WEIR_RETURN_IF_ERROR(
          Draw(GenerationPlan::kSteps, [](size_t row) { return static_cast<int64_t>(row); }));
      result_.cached_tokens += result_.tokens - before;
    }
    return runner_->Close(GenerationPlan::kSteps);
  }

  // Draws the first token of each sequence, and fills the cache of kSteps. `step` are the inputs of
  // kSteps.
  absl::Status ReadPrompts(const compiler::DecodeJob& reading, int64_t width,
                           const std::string& step_positions, TokenRows* step) {
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kPrompts, reading.job, TypesOf(reading.unused)));
    TokenRows read = Rows(width, {variant_.input, reading.positions});
    for (size_t r = 0; r < sequences_.size(); ++r) {
      int32_t* positions = read.Row(reading.positions, r);
      std::copy(sequences_[r].begin(), sequences_[r].end(), read.Row(variant_.input, r));
      // The padding behind a shorter prompt goes to slots that later positions overwrite before
      // any query sees them.
      for (int64_t i = 0; i < width; ++i) positions[i] = static_cast<int32_t>(i);
    }
    WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kPrompts, read));
    WEIR_RETURN_IF_ERROR(Draw(GenerationPlan::kPrompts, [&](size_t row) {
      return static_cast<int64_t>(row) * width + static_cast<int64_t>(sequences_[row].size()) - 1;
    }));
    WEIR_ASSIGN_OR_RETURN(const bool is_carried, runner_->CarryCache());
    WEIR_RETURN_IF_ERROR(runner_->Close(GenerationPlan::kPrompts));
    if (is_carried) return absl::OkStatus();
    // The plans lay the cache out in two ways, and no process has all that it needs. So the
    // prompts are read once more, position by position.
    for (int64_t i = 0; i < width; ++i) {
      for (size_t r = 0; r < sequences_.size(); ++r) {
        *step->Row(variant_.input, r) = read.Row(variant_.input, r)[i];
        *step->Row(step_positions, r) = static_cast<int32_t>(i);
      }
      WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kSteps, *step));
    }
    return absl::OkStatus();
  }

  // Computes the window again for each token.
  absl::Status GenerateByWindows() {
    if (IsDone()) return absl::OkStatus();
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kWindows, variant_.job));
    TokenRows tokens = Rows(variant_.window, {variant_.input});
    if (!why_windows_.empty()) Note(why_windows_);
    while (!IsDone()) {
      for (size_t r = 0; r < sequences_.size(); ++r) {
        const Tokens& sequence = sequences_[r];
        const size_t shown = std::min<size_t>(sequence.size(), variant_.window);
        int32_t* row = tokens.Row(variant_.input, r);
        std::fill(row, row + variant_.window, 0);
        std::copy(sequence.end() - static_cast<int64_t>(shown), sequence.end(), row);
      }
      WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kWindows, tokens));
      WEIR_RETURN_IF_ERROR(Draw(GenerationPlan::kWindows, [&](size_t row) {
        return static_cast<int64_t>(row) * variant_.window +
               std::min<int64_t>(static_cast<int64_t>(sequences_[row].size()), variant_.window) - 1;
      }));
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens) {
    const auto begin = std::chrono::steady_clock::now();
    WEIR_RETURN_IF_ERROR(runner_->RunStep(plan, tokens));
    result_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (made_ == 0) result_.first_seconds = result_.seconds;
    return absl::OkStatus();
  }

  // Draws the next token of each sequence that has not ended, from row row_of(sequence) of the
  // logits.
  absl::Status Draw(GenerationPlan plan, const std::function<int64_t(size_t)>& row_of) {
    const bool bytes = options_.alphabet == GenerateOptions::Alphabet::kBytes;
    // Tokens that the model does not read cannot be fed back.
    const int64_t below = bytes ? std::min<int64_t>(variant_.below, 256) : variant_.below;
    std::vector<int64_t> rows;  // of the logits, by sequence that has not ended
    for (size_t r = 0; r < sequences_.size(); ++r) {
      if (!stopped_[r]) rows.push_back(row_of(r));
    }
    WEIR_ASSIGN_OR_RETURN(std::vector<std::vector<float>> of_rows, runner_->Logits(plan, rows));
    size_t next = 0;
    for (size_t r = 0; r < sequences_.size(); ++r) {
      if (stopped_[r]) continue;
      std::vector<float> logits = std::move(of_rows[next++]);
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
  const std::unique_ptr<GenerationRunner> local_;  // null: the options have a runner
  GenerationRunner* const runner_;
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
