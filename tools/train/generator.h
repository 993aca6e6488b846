// Continues prompts with a trained language model, on one device or on the mesh of a job, whose
// ranks are in this process or in others (generation_runner.h). The generator keeps the keys and
// values of earlier positions in states of the ranks (compiler/dims/decode_job.h), and each step
// computes one position of each sequence that has a row. When a sequence ends, the next prompt gets
// its row and its pages (generation_cache.h). Another plan reads the first prompts; later ones are
// read by the steps, position by position. Where the model has no such form, and where a sequence
// is longer than the window of the model, each token runs the whole window again. The tokens are
// the same either way, apart from the rounding of equal sums in another order.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/train/generation_runner.h"
#include "tools/train/job_variant.h"
#include "tools/train/sampling.h"
#include "tools/weights/averages.h"

namespace weir::train {

using Tokens = std::vector<int32_t>;

// Returns the bytes of a text as tokens.
Tokens TokensOf(const std::string& text);

// The most sequences at a time, unless the options say something else. The sequences of a step read
// the weights once together, and the keys and values of each one take memory.
constexpr int64_t kBatchDefault = 64;

struct GenerateOptions {
  std::string init;  // safetensors of weights; empty: first values (noise)
  weights::Values values = weights::Values::kWeights;  // of `init`
  std::string job_file;  // where a map of weights may lie; empty: nowhere
  // At least one, none of them empty.
  std::vector<Tokens> prompts = {TokensOf("\n")};
  int64_t max_tokens = 200;  // for each prompt
  // The most sequences at a time; 0: kBatchDefault. The tokens do not depend on this number.
  int64_t batch = 0;
  // The positions that all sequences together can have in the cache, rounded up to pages of each
  // row; 0: so many that no sequence has to give its pages back. The number has no effect if the
  // model keeps nothing or has no cache.
  int64_t cache_tokens = 0;
  std::vector<Tokens> stops;  // a sequence ends with the first of these; none of them empty
  SamplingOptions sampling;
  // The draws of prompt i are a function of the seed, i and the place.
  uint64_t seed = 1;
  GenerationRunner* runner = nullptr;  // null: all ranks are in this process
  int threads = 0;  // of each device of this process; 0: all cores, shared evenly
  // kBytes: only tokens below 256 may come, which can be written as bytes.
  enum class Alphabet : uint8_t { kBytes, kAll } alphabet = Alphabet::kBytes;
  GenerationDevices devices = GenerationDevices::kOneDevice;
  enum class Cache : uint8_t { kWherePossible, kNever } cache = Cache::kWherePossible;
  std::function<bool()> interrupted;  // asked before each token: whether to end; null: never
  std::function<void(const std::string&)> note;  // why whole windows are computed; may be null
};

struct Generated {
  // For each prompt, why it ended.
  enum class End : uint8_t { kLength, kStop, kInterrupted };
  std::vector<End> ends;
  int64_t tokens = 0;         // of all prompts together
  int64_t cached_tokens = 0;  // of these, by steps that computed one position of each sequence
  int64_t first_tokens = 0;   // of these, by the plan that read the first prompts
  double first_seconds = 0;   // which took so long
  double seconds = 0;         // of all steps, without compiling and loading
  int64_t pages = 0;          // of the cache, for positions of sequences; 0: nothing is kept
  int64_t peak_pages = 0;     // the most in use at a time
  int64_t read_again = 0;     // how often a sequence gave its pages back and was read again
};

// Calls `emit` with the number of the prompt for each new token, in order. The tokens are a
// function of weights, prompts, sampling options and seed. Errors: W0070, W0078, W0079, those of
// the compiler and of the runner.
absl::StatusOr<Generated> Generate(const proto::Job& job, const GenerateOptions& options,
                                   const std::function<void(size_t prompt, int32_t token)>& emit);

}  // namespace weir::train
