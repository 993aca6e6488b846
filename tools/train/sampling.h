// Draws a token from the logits of a language model.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::train {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // only the likeliest top_k tokens may come; 0: all
  // Only the likeliest tokens that together have this probability may come, the last of them
  // whole; 1: all.
  double top_p = 1;
};

// Returns a token, drawn with the random number `uniform` in [0, 1) by softmax(logits /
// temperature), and -1 if a logit is not a number. Of tokens with equal logits the lower one is the
// likelier.
int64_t SampleToken(const std::vector<float>& logits, const SamplingOptions& options,
                    double uniform);

}  // namespace weir::train
