#include "tools/train/generator.h"

#include <string.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "tools/train/job_variant.h"
#include "tools/train/session_states.h"

namespace weir::train {
namespace {

// Feeds the window of the last tokens. All other inputs of the model are zero.
class WindowFeed final : public actors::DataFeed {
 public:
  WindowFeed(std::string input, int64_t window)
      : input_(std::move(input)), tokens_(static_cast<size_t>(window), 0) {}

  // Puts the last tokens of `text` at the start of the window. Returns the place of the last token.
  int64_t Show(const std::string& text) {
    size_t count = std::min(text.size(), tokens_.size());
    std::fill(tokens_.begin(), tokens_.end(), 0);
    for (size_t i = 0; i < count; ++i)
      tokens_[i] = static_cast<unsigned char>(text[text.size() - count + i]);
    return static_cast<int64_t>(count) - 1;
  }

  absl::Status Fill(const std::string& feed, int64_t, int64_t, const TensorSlice& slice,
                    void* out) override {
    if (slice.bytes() == 0) return absl::OkStatus();
    memset(out, 0, static_cast<size_t>(slice.bytes()));
    if (feed != input_) return absl::OkStatus();
    if (slice.dtype != DType::kI32 || !slice.is_whole() ||
        slice.num_elements() != static_cast<int64_t>(tokens_.size())) {
      return Rejected({"W0070", absl::StrCat("input ", input_),
                       absl::StrCat("i32[1, ", tokens_.size(), "]"), ToText(slice), ""});
    }
    memcpy(out, tokens_.data(), tokens_.size() * sizeof(int32_t));
    return absl::OkStatus();
  }

 private:
  std::string input_;  // of main
  std::vector<int32_t> tokens_;
};

// Returns the logits of one place of the window, as floats. The logits are all that a plan which
// generates fetches.
absl::StatusOr<std::vector<float>> LogitsAt(const actors::Session& session, int64_t place) {
  for (const actors::PlanState& state : session.plan(RankId(0)).states) {
    if (state.state_class != actors::StateClass::kFetched) continue;
    const Shape& shape = state.slice.shape;
    if (shape.size() < 2 || place >= shape[shape.size() - 2]) break;
    WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(RankId(0), state.name));
    std::vector<float> logits(static_cast<size_t>(shape.back()));
    int64_t width = SizeOf(state.slice.dtype);
    const char* from = memory.data() + place * shape.back() * width;
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
  return absl::InternalError("the plan fetches no logits with a row for each token");
}

absl::Status CheckOptions(const GenerateOptions& options, int64_t below) {
  if (options.prompt.empty())
    return Rejected({"W0078", "--prompt", "at least one byte", "nothing", "--prompt \"Once\""});
  if (!(options.temperature >= 0)) {
    return Rejected({"W0078", "--temperature", "0 or more", absl::StrCat(options.temperature), ""});
  }
  if (options.tokens < 0)
    return Rejected({"W0078", "--tokens", "0 or more", absl::StrCat(options.tokens), ""});
  for (char c : options.prompt) {
    if (static_cast<unsigned char>(c) >= below) {
      return Rejected({"W0078", "--prompt",
                       absl::StrCat("bytes below ", below, ", the tokens of the model"),
                       absl::StrCat("byte value ", static_cast<unsigned char>(c)), ""});
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SampleToken(const std::vector<float>& logits, double temperature, double uniform) {
  int64_t likeliest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[static_cast<size_t>(likeliest)]) likeliest = static_cast<int64_t>(i);
  }
  if (temperature == 0) return likeliest;
  std::vector<double> weights;
  double total = 0, top = logits[static_cast<size_t>(likeliest)];
  for (float logit : logits) {
    weights.push_back(std::exp((logit - top) / temperature));
    total += weights.back();
  }
  double at = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (at < weights[i]) return static_cast<int64_t>(i);
    at -= weights[i];
  }
  return likeliest;  // rounding left a remainder
}

absl::Status Generate(const proto::Job& job, const GenerateOptions& options,
                      const std::function<void(char)>& emit) {
  WEIR_ASSIGN_OR_RETURN(const GenerationVariant variant, GenerationJob(job));
  WEIR_RETURN_IF_ERROR(CheckOptions(options, variant.below));
  WindowFeed feed(variant.input, variant.window);
  JobSessionOptions session_options;
  session_options.mode = compiler::PlanMode::kGenerate;
  session_options.threads_per_device = options.threads;
  session_options.feed = &feed;
  std::shared_ptr<const store::SafetensorsReader> weights;
  if (!options.init.empty()) {
    WEIR_ASSIGN_OR_RETURN(weights, store::SafetensorsReader::Open(options.init));
    WEIR_RETURN_IF_ERROR(weights->CheckSums().status());
  }
  WEIR_ASSIGN_OR_RETURN(JobSession opened, OpenJobSession(variant.job, session_options));
  if (weights != nullptr)
    WEIR_RETURN_IF_ERROR(LoadWeights(weights, {"", options.job_file}, opened.session.get()));
  std::string text = options.prompt;
  uint64_t key = MixKey(options.seed, KeyOf("generate", 8));
  for (int64_t i = 0; i < options.tokens; ++i) {
    if (options.interrupted != nullptr && options.interrupted->load()) break;
    int64_t place = feed.Show(text);
    WEIR_RETURN_IF_ERROR(opened.session->RunSteps(1));
    WEIR_ASSIGN_OR_RETURN(std::vector<float> logits, LogitsAt(*opened.session, place));
    // Tokens beyond a byte cannot be written, and tokens that the model does not read cannot be fed
    // back.
    logits.resize(std::min<size_t>(logits.size(), std::min<int64_t>(variant.below, 256)));
    int64_t token =
        SampleToken(logits, options.temperature, UniformAt(key, static_cast<uint64_t>(i)));
    if (token < 0) {
      return Damaged({"W0079", options.init.empty() ? "the model" : options.init, "finite logits",
                      "not a number",
                      "the weights hold NaN; train again with a lower learning rate"});
    }
    text.push_back(static_cast<char>(token));
    emit(static_cast<char>(token));
  }
  return absl::OkStatus();
}

}  // namespace weir::train
