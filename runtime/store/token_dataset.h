// Files of tokens, text among them, whose tokens are bytes. A sample is a window of sequence + 1
// tokens; feed "tokens" has the first `sequence` of them, and feed "targets" the last `sequence`.
// Held-out windows follow one another, file by file: the ends of the files to train on, then the
// files that are wholly held out.
// Thread rule: see dataset.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"
#include "runtime/store/token_file.h"

namespace weir::store {

// The order of training windows.
enum class WindowOrder : uint8_t {
  // Windows begin anywhere in the training part, uniformly and independently. One file only.
  kAnywhere,
  // The training part is cut into windows that follow one another. Each epoch has each window once,
  // in an order of its own.
  kEpochs,
};

struct TokenDataOptions {
  std::string field = "data.text";  // of the job, for errors
  std::string noun = "byte";        // what a token is, for people
  std::vector<std::string> paths;
  // The shares of samples that come from each file; empty: all files are one long file. Each file
  // then has epochs of its own. Positive; only ratios count.
  std::vector<double> weights;
  TokenType type = TokenType::kU8;
  WindowOrder order = WindowOrder::kAnywhere;
  double held_out = 0;                      // share of each file, at its end; 0 <= held_out < 1
  std::vector<std::string> held_out_paths;  // files that are wholly held out
  int64_t batch = 1;                        // samples per step
  int64_t sequence = 1;                     // tokens per sample
  uint64_t seed = 0;
  DataUse use = DataUse::kTrain;
};

// kNotFound: no file. kInvalidArgument: no path, weights that do not fit the paths (W0052), a file
// that is not one of tokens (W0909), a file that is too short for one training window (W0053), or,
// if anything is held out, too few held-out windows for one batch (W0054).
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenDataset(const TokenDataOptions& options);

}  // namespace weir::store
