#include "tools/train/generator.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/dims/decode_job.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"
#include "tools/train/generation_cache.h"

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
  if (options.batch < 0)
    return refused("--batch", "1 or more", absl::StrCat(options.batch), "--batch 64");
  if (options.cache_tokens < 0)
    return refused("--cache-tokens", "1 or more", absl::StrCat(options.cache_tokens), "");
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

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

int64_t PagesOf(int64_t positions) { return CeilDiv(positions, compiler::kPageSize); }

// The most positions that one run over the prompts computes, unless there are more rows. A plan has
// the logits of all of them at once, and a longer prompt is read in several runs.
constexpr int64_t kPromptPositions = 4096;

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
    const int64_t batch = options_.batch > 0 ? options_.batch : kBatchDefault;
    rows_ = std::clamp<int64_t>(static_cast<int64_t>(options_.prompts.size()), 1, batch);
    WEIR_ASSIGN_OR_RETURN(variant_, GenerationJob(job_, rows_, options_.devices));
    WEIR_RETURN_IF_ERROR(CheckOptions(options_, variant_.below));
    if (!options_.init.empty()) {
      WEIR_ASSIGN_OR_RETURN(weights_, weights::OpenValues(options_.init, options_.values));
      WEIR_RETURN_IF_ERROR(weights_->CheckSums().status());
    }
    int64_t longest = 0;
    for (const Tokens& prompt : options_.prompts) {
      sequences_.push_back({prompt, options_.max_tokens == 0});
      longest = std::max(longest, sequences_.back().size());
    }
    if (longest > variant_.window && options_.max_tokens > 0) {
      Note(absl::StrCat("a prompt of ", longest, " tokens is longer than the window of ",
                        variant_.window, "; the model reads the last ", variant_.window));
    }
    result_.ends.assign(sequences_.size(), Generated::End::kLength);
    WEIR_RETURN_IF_ERROR(GenerateWithCache());
    WEIR_RETURN_IF_ERROR(GenerateByWindows());
    return result_;
  }

 private:
  struct Sequence {
    Tokens tokens;  // the prompt and what follows
    bool ended = false;
    int64_t cached = 0;  // the positions whose keys and values are in the cache

    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  };
  // A sequence whose next token is to be drawn, and the row of the logits for it.
  struct Drawn {
    size_t sequence = 0;
    int64_t row = 0;
  };

  // Returns whether to end now. Then all sequences have ended.
  bool IsInterrupted() {
    if (!options_.interrupted || !options_.interrupted()) return false;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      if (!std::exchange(sequences_[s].ended, true)) result_.ends[s] = Generated::End::kInterrupted;
    }
    return true;
  }

  void Note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }

  absl::Status Open(GenerationPlan plan, const proto::Job& job,
                    const weights::WeightTypes& unused = {}) {
    return runner_->Open(plan, {&job, weights_, options_.job_file, unused, options_.values});
  }

  // Returns the most positions of a sequence that the cache has at a time.
  int64_t MostPositions(size_t s) const {
    const auto prompt = static_cast<int64_t>(options_.prompts[s].size());
    return prompt + std::min(options_.max_tokens - 1, variant_.window - 1 - prompt);
  }

  // Returns the pages of the pool for each row. By default, each part into which the mesh may split
  // the rows has room for the longest sequences, as many as the part has rows. So nobody gives way.
  int64_t PagesPerRow(const std::set<size_t>& waiting) const {
    if (options_.cache_tokens > 0) {
      // Sequences cannot use more than a whole table for each row.
      return std::min(entries_ + 1, CeilDiv(PagesOf(options_.cache_tokens) + 1, rows_));
    }
    int64_t parts = variant_.job.pipeline().stage_mesh_size() > 0 ? rows_ : 1;
    for (const proto::MeshAxisSpec& axis : variant_.job.mesh().axis()) {
      if (axis.name() != sbp::kPipelineAxis)
        parts = std::min(rows_, parts * std::max<int64_t>(1, axis.size()));
    }
    // The smallest part needs most pages for each row, because its mean is over the longest ones.
    const int64_t part_rows = rows_ / parts;
    std::vector<int64_t> pages;
    for (const size_t s : waiting) pages.push_back(PagesOf(MostPositions(s)));
    std::sort(pages.rbegin(), pages.rend());
    pages.resize(std::min<size_t>(pages.size(), static_cast<size_t>(part_rows)));
    // Page 0 is nobody's.
    return CeilDiv(std::accumulate(pages.begin(), pages.end(), int64_t{1}), part_rows);
  }

  // Computes one position of each sequence in a step, until all have ended or fill the window.
  // Leaves everything to GenerateByWindows if the model has no such form.
  absl::Status GenerateWithCache() {
    if (options_.cache == GenerateOptions::Cache::kNever || IsInterrupted())
      return absl::OkStatus();
    std::set<size_t> waiting;
    int64_t longest = 0, longest_first = 0, most = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      if (sequences_[s].ended) continue;
      if (sequences_[s].size() >= variant_.window) {
        why_windows_ = absl::StrCat("the longest prompt fills the window of ", variant_.window,
                                    " tokens, so each of its tokens runs the whole window");
        continue;
      }
      waiting.insert(s);
      longest = std::max(longest, sequences_[s].size());
      if (static_cast<int64_t>(waiting.size()) <= rows_) longest_first = longest;
      most = std::max(most, MostPositions(s));
    }
    if (waiting.empty()) return absl::OkStatus();
    compiler::DecodeSizes sizes;
    sizes.rows = rows_;
    sizes.entries = entries_ = PagesOf(most);
    sizes.pages = PagesPerRow(waiting);
    sizes.positions = std::min(longest_first, std::max<int64_t>(1, kPromptPositions / rows_));
    absl::StatusOr<compiler::DecodeJob> reading =
        compiler::DecodeJobOf(variant_.written, variant_.input, sizes);
    if (!reading.ok()) {
      why_windows_ =
          absl::StrCat("no cache of keys and values, so each token runs the whole window: ",
                       reading.status().message());
      return absl::OkStatus();
    }
    const int64_t width = std::exchange(sizes.positions, 1);
    WEIR_ASSIGN_OR_RETURN(const compiler::DecodeJob step,
                          compiler::DecodeJobOf(variant_.written, variant_.input, sizes));
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kSteps, step.job, TypesOf(step.unused)));
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kPrompts, reading->job, TypesOf(reading->unused)));
    WEIR_RETURN_IF_ERROR(MakeCache(sizes.pages, most));
    // These lines come before the text, because a line in the middle of the text would break it.
    if (!why_windows_.empty()) Note(std::exchange(why_windows_, ""));
    if (options_.max_tokens > variant_.window - longest) {
      Note(absl::StrCat("the longest sequence fills the window of ", variant_.window,
                        " tokens after ", variant_.window - longest,
                        " new ones; from there on each token runs the whole window"));
    }
    AdmitWaiting(&waiting);
    WEIR_RETURN_IF_ERROR(ReadFirstPrompts(*reading, width));
    while (!IsInterrupted()) {
      AdmitWaiting(&waiting);
      GrowOrPreempt(&waiting);
      if (cache_->places().empty()) break;
      WEIR_RETURN_IF_ERROR(Step(step));
    }
    if (result_.pages > 0) result_.peak_pages = cache_->peak_pages();
    WEIR_RETURN_IF_ERROR(runner_->Close(GenerationPlan::kSteps));
    if (waiting.empty() || sequences_[*waiting.begin()].ended) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("prompt ", *waiting.begin() + 1, " waits for pages that nobody has"));
  }

  // Both plans with a cache are open, and may split the rows in two ways. The pages of a sequence
  // belong to the part of its row in either plan.
  absl::Status MakeCache(int64_t pages_per_row, int64_t most) {
    std::set<int64_t> ends;
    for (const auto plan : {GenerationPlan::kPrompts, GenerationPlan::kSteps}) {
      for (const int64_t end : runner_->RowEnds(plan)) ends.insert(end);
    }
    if (ends.empty()) {
      // The model keeps nothing. No sequence lacks a page of a pool that does not exist.
      cache_.emplace(std::vector<int64_t>{rows_}, entries_ + 1);
      return absl::OkStatus();
    }
    const std::vector<int64_t> row_ends(ends.begin(), ends.end());
    cache_.emplace(row_ends, pages_per_row);
    result_.pages = cache_->num_pages();
    if (cache_->capacity() >= PagesOf(most)) return absl::OkStatus();
    int64_t part_rows = 0, begin = 0;  // of the largest part
    for (const int64_t end : row_ends)
      part_rows = std::max(part_rows, end - std::exchange(begin, end));
    const int64_t per_row = CeilDiv(PagesOf(most) + 1, part_rows);
    return Rejected(
        {"W0078", "--cache-tokens",
         absl::StrCat("room for the longest sequence, ", most, " positions with its new tokens"),
         absl::StrCat("room for ", cache_->capacity() * compiler::kPageSize,
                      row_ends.size() == 1
                          ? ""
                          : absl::StrCat(" in a part of the cache, which the mesh splits into ",
                                         row_ends.size())),
         absl::StrCat("--cache-tokens ", (per_row * rows_ - 1) * compiler::kPageSize,
                      ", or a lower --max-tokens")});
  }

  // Gives rows and pages to the oldest sequences that wait, as far as both suffice.
  void AdmitWaiting(std::set<size_t>* waiting) {
    while (!waiting->empty()) {
      const size_t oldest = *waiting->begin();
      if (!cache_->Admit(oldest, PagesOf(sequences_[oldest].size()),
                         PagesOf(MostPositions(oldest))))
        return;
      waiting->erase(waiting->begin());
    }
  }

  // Gives each sequence the page of its next position. Where pages run out, the youngest sequence
  // of the part gives up its row and waits again. The oldest one of a part never does, because the
  // part alone has room for it. So the run ends.
  void GrowOrPreempt(std::set<size_t>* waiting) {
    std::vector<size_t> oldest_first;
    for (const auto& [s, place] : cache_->places()) oldest_first.push_back(s);
    for (const size_t s : oldest_first) {
      const auto lacks_page = [&] {
        const auto place = cache_->places().find(s);
        return place != cache_->places().end() &&
               PagesOf(sequences_[s].cached + 1) > static_cast<int64_t>(place->second.pages.size());
      };
      while (lacks_page() && !cache_->Grow(s)) {
        const size_t youngest = cache_->YoungestBeside(s);
        Release(youngest);
        waiting->insert(youngest);
        ++result_.read_again;
      }
    }
  }

  void Release(size_t s) {
    cache_->Release(s);
    sequences_[s].cached = 0;
  }

  // Releases the sequences that have ended or fill the window.
  void ReleaseDone(const std::vector<Drawn>& drawn) {
    for (const Drawn& of : drawn) {
      const Sequence& sequence = sequences_[of.sequence];
      if (sequence.ended || sequence.size() >= variant_.window) Release(of.sequence);
    }
  }

  // Returns the inputs of a plan with a cache: `width` positions of each row, none of which has a
  // page yet. The tables end with the last entry that has a page.
  TokenRows Rows(const compiler::DecodeJob& job, int64_t width) const {
    TokenRows tokens(rows_);
    tokens.Add(variant_.input, width);
    tokens.Add(job.positions, width);
    if (job.table.empty()) return tokens;
    size_t entries = 0;
    for (const auto& [s, place] : cache_->places()) entries = std::max(entries, place.pages.size());
    tokens.Add(job.table, static_cast<int64_t>(entries));
    return tokens;
  }

  // Fills the table of a row. Entries without a page are 0.
  static void FillTable(const GenerationCache::Place& place, const std::string& table,
                        TokenRows* tokens) {
    if (table.empty()) return;
    std::copy(place.pages.begin(), place.pages.end(), tokens->Row(table, place.row));
  }

  // Reads the prompts of the sequences in rows, draws the first token of each, and fills the cache
  // of kSteps.
  absl::Status ReadFirstPrompts(const compiler::DecodeJob& reading, int64_t width) {
    std::vector<Drawn> all_drawn;
    for (int64_t begin = 0; all_drawn.size() < cache_->places().size(); begin += width) {
      if (IsInterrupted()) break;
      TokenRows tokens = Rows(reading, width);
      std::vector<Drawn> drawn;
      for (const auto& [s, place] : cache_->places()) {
        const Sequence& sequence = sequences_[s];
        FillTable(place, reading.table, &tokens);
        int32_t* const positions = tokens.Row(reading.positions, place.row);
        int32_t* const read = tokens.Row(variant_.input, place.row);
        const int64_t prompt = static_cast<int64_t>(options_.prompts[s].size());
        // What the padding behind a prompt leaves in pages is overwritten before any query sees it.
        for (int64_t i = 0; i < width; ++i) {
          positions[i] = static_cast<int32_t>(std::min(begin + i, variant_.window - 1));
          if (begin + i < prompt) read[i] = sequence.tokens[begin + i];
        }
        if (prompt > begin && prompt <= begin + width)
          drawn.push_back({s, place.row * width + prompt - 1 - begin});
      }
      WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kPrompts, tokens));
      WEIR_RETURN_IF_ERROR(Draw(GenerationPlan::kPrompts, drawn));
      all_drawn.insert(all_drawn.end(), drawn.begin(), drawn.end());
    }
    result_.first_seconds = result_.seconds;
    result_.first_tokens = result_.tokens;
    WEIR_ASSIGN_OR_RETURN(const bool is_carried, runner_->CarryCache());
    WEIR_RETURN_IF_ERROR(runner_->Close(GenerationPlan::kPrompts));
    // If the cache is not carried, the plans lay it out in two ways, and no process has all that it
    // needs. So the steps read the prompts once more.
    for (const Drawn& of : all_drawn) {
      if (is_carried)
        sequences_[of.sequence].cached = static_cast<int64_t>(options_.prompts[of.sequence].size());
    }
    ReleaseDone(all_drawn);
    return absl::OkStatus();
  }

  // Computes the next position of each sequence in a row, and draws a token where the position is
  // the last one so far.
  absl::Status Step(const compiler::DecodeJob& step) {
    TokenRows tokens = Rows(step, 1);
    std::vector<Drawn> drawn;
    for (const auto& [s, place] : cache_->places()) {
      Sequence& sequence = sequences_[s];
      FillTable(place, step.table, &tokens);
      *tokens.Row(variant_.input, place.row) = sequence.tokens[sequence.cached];
      *tokens.Row(step.positions, place.row) = static_cast<int32_t>(sequence.cached);
      if (++sequence.cached == sequence.size()) drawn.push_back({s, place.row});
    }
    WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kSteps, tokens));
    WEIR_RETURN_IF_ERROR(Draw(GenerationPlan::kSteps, drawn));
    result_.cached_tokens += static_cast<int64_t>(drawn.size());
    ReleaseDone(drawn);
    return absl::OkStatus();
  }

  // Computes the window again for each token of the sequences that have not ended.
  absl::Status GenerateByWindows() {
    if (IsInterrupted()) return absl::OkStatus();
    std::set<size_t> waiting;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      if (!sequences_[s].ended) waiting.insert(s);
    }
    if (waiting.empty()) return absl::OkStatus();
    // The sequences that are left may be fewer than the rows of the steps were.
    rows_ = std::min(rows_, static_cast<int64_t>(waiting.size()));
    WEIR_ASSIGN_OR_RETURN(variant_, GenerationJob(job_, rows_, options_.devices));
    WEIR_RETURN_IF_ERROR(Open(GenerationPlan::kWindows, variant_.job));
    if (!why_windows_.empty()) Note(why_windows_);
    std::map<int64_t, size_t> at_work;  // sequences by row
    do {
      for (int64_t row = 0; row < rows_ && !waiting.empty(); ++row) {
        if (at_work.emplace(row, *waiting.begin()).second) waiting.erase(waiting.begin());
      }
      WEIR_RETURN_IF_ERROR(RunWindows(at_work));
      for (auto of = at_work.begin(); of != at_work.end();)
        of = sequences_[of->second].ended ? at_work.erase(of) : std::next(of);
    } while (!(at_work.empty() && waiting.empty()) && !IsInterrupted());
    return absl::OkStatus();
  }

  // Draws the next token of each of the sequences, which are given by their rows.
  absl::Status RunWindows(const std::map<int64_t, size_t>& at_work) {
    TokenRows tokens(rows_);
    tokens.Add(variant_.input, variant_.window);
    std::vector<Drawn> drawn;
    for (const auto& [row, s] : at_work) {
      const Tokens& sequence = sequences_[s].tokens;
      const int64_t shown = std::min(sequences_[s].size(), variant_.window);
      std::copy(sequence.end() - shown, sequence.end(), tokens.Row(variant_.input, row));
      drawn.push_back({s, row * variant_.window + shown - 1});
    }
    WEIR_RETURN_IF_ERROR(RunStep(GenerationPlan::kWindows, tokens));
    WEIR_RETURN_IF_ERROR(Draw(GenerationPlan::kWindows, drawn));
    if (result_.first_tokens > 0) return absl::OkStatus();
    result_.first_seconds = result_.seconds;
    result_.first_tokens = result_.tokens;
    return absl::OkStatus();
  }

  absl::Status RunStep(GenerationPlan plan, const TokenRows& tokens) {
    const auto begin = std::chrono::steady_clock::now();
    WEIR_RETURN_IF_ERROR(runner_->RunStep(plan, tokens));
    result_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return absl::OkStatus();
  }

  // Draws the next token of each of the sequences. The draw is a function of the seed, the sequence
  // and the number of its tokens.
  absl::Status Draw(GenerationPlan plan, const std::vector<Drawn>& drawn) {
    if (drawn.empty()) return absl::OkStatus();
    const bool bytes = options_.alphabet == GenerateOptions::Alphabet::kBytes;
    // Tokens that the model does not read cannot be fed back.
    const int64_t below = bytes ? std::min<int64_t>(variant_.below, 256) : variant_.below;
    std::vector<int64_t> rows;
    for (const Drawn& of : drawn) rows.push_back(of.row);
    WEIR_ASSIGN_OR_RETURN(std::vector<std::vector<float>> of_rows, runner_->Logits(plan, rows));
    for (size_t i = 0; i < drawn.size(); ++i) {
      const size_t s = drawn[i].sequence;
      std::vector<float> logits = std::move(of_rows[i]);
      logits.resize(std::min<size_t>(logits.size(), static_cast<size_t>(below)));
      uint64_t key = MixKey(options_.seed, KeyOf("generate", 8));
      if (s > 0) key = MixKey(key, s);
      const int64_t token =
          SampleToken(logits, options_.sampling, UniformAt(key, static_cast<uint64_t>(NumNew(s))));
      if (token < 0) {
        return Damaged({"W0079", options_.init.empty() ? "the model" : options_.init,
                        "finite logits", "not a number",
                        "the weights hold NaN; train again with a lower learning rate"});
      }
      sequences_[s].tokens.push_back(static_cast<int32_t>(token));
      ++result_.tokens;
      emit_(s, static_cast<int32_t>(token));
      const bool stops = EndsWithStop(s);
      if (stops) result_.ends[s] = Generated::End::kStop;
      sequences_[s].ended = stops || NumNew(s) >= options_.max_tokens;
    }
    return absl::OkStatus();
  }

  // Returns the number of new tokens of a sequence.
  int64_t NumNew(size_t s) const {
    return sequences_[s].size() - static_cast<int64_t>(options_.prompts[s].size());
  }

  // Returns whether the new tokens of a sequence end with a stop.
  bool EndsWithStop(size_t s) const {
    const Tokens& tokens = sequences_[s].tokens;
    return std::any_of(options_.stops.begin(), options_.stops.end(), [&](const Tokens& stop) {
      const auto size = static_cast<int64_t>(stop.size());
      return size <= NumNew(s) && std::equal(stop.begin(), stop.end(), tokens.end() - size);
    });
  }

  const proto::Job& job_;
  const GenerateOptions& options_;
  const std::function<void(size_t, int32_t)>& emit_;
  const std::unique_ptr<GenerationRunner> local_;  // null: the options have a runner
  GenerationRunner* const runner_;
  int64_t rows_ = 1;     // of the plans: the most sequences at a time
  int64_t entries_ = 1;  // of the table of a row
  GenerationVariant variant_;
  std::shared_ptr<const store::SafetensorsReader> weights_;  // null: the first values
  std::vector<Sequence> sequences_;                          // by prompt
  std::optional<GenerationCache> cache_;                     // of kSteps
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
