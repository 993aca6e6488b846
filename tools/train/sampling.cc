#include "tools/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weir::train {

int64_t SampleToken(const std::vector<float>& logits, const SamplingOptions& options,
                    double uniform) {
  int64_t likeliest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[static_cast<size_t>(likeliest)]) likeliest = static_cast<int64_t>(i);
  }
  if (options.temperature == 0) return likeliest;
  std::vector<int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const bool is_cut = options.top_k > 0 || options.top_p < 1;
  if (is_cut) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  }
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(tokens.size()))
    tokens.resize(static_cast<size_t>(options.top_k));
  std::vector<double> weights;
  double total = 0;
  const double top = logits[static_cast<size_t>(likeliest)];
  for (const int64_t token : tokens) {
    weights.push_back(std::exp((logits[static_cast<size_t>(token)] - top) / options.temperature));
    total += weights.back();
  }
  if (options.top_p < 1) {
    size_t kept = 0;
    double sum = 0;
    while (kept < weights.size() && (kept == 0 || sum < options.top_p * total))
      sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  double at = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (at < weights[i]) return tokens[i];
    at -= weights[i];
  }
  return likeliest;  // rounding left a remainder
}

}  // namespace weir::train
