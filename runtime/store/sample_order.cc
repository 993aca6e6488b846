#include "runtime/store/sample_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/store/index_permutation.h"

namespace weir::store {
namespace {

// The samples of a block follow one another, and each source has its share of a block.
constexpr int64_t kBlockSamples = 4096;

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

}  // namespace

SampleOrder::SampleOrder(std::vector<int64_t> samples, const std::vector<double>& weights,
                         uint64_t key)
    : samples_(std::move(samples)), key_(key) {
  if (weights.empty()) {
    sources_.push_back({{}, 0, kBlockSamples});
    for (size_t part = 0; part < samples_.size(); ++part) sources_[0].parts.push_back(part);
  } else {
    const std::vector<int64_t> quotas = Quotas(weights);
    for (size_t part = 0; part < samples_.size(); ++part)
      sources_.push_back({{part}, 0, quotas[part]});
  }
  for (Source& source : sources_) {
    for (size_t part : source.parts) source.samples += samples_[part];
  }
}

SampleOrder::Place SampleOrder::At(int64_t n) const {
  // The samples of a block are dealt to the sources. The deal is another one in each block.
  const int64_t block = n / kBlockSamples;
  int64_t slot = n % kBlockSamples;
  size_t s = 0;
  if (sources_.size() > 1) {
    slot = IndexPermutation(MixKey(key_, static_cast<uint64_t>(block)), kBlockSamples).At(slot);
    for (; slot >= sources_[s].quota; ++s) slot -= sources_[s].quota;
  }
  const Source& source = sources_[s];
  const int64_t of_source = block * source.quota + slot;
  const uint64_t key = MixKey(MixKey(key_, KeyOf("source", 6) + s),
                              static_cast<uint64_t>(of_source / source.samples));
  int64_t sample = IndexPermutation(key, source.samples).At(of_source % source.samples);
  size_t p = 0;
  for (; p + 1 < source.parts.size(); ++p) {
    if (sample < samples_[source.parts[p]]) break;
    sample -= samples_[source.parts[p]];
  }
  return {source.parts[p], sample};
}

absl::Status SampleOrder::CheckWeights(const std::string& field, const std::vector<double>& weights,
                                       size_t num_parts) {
  if (!weights.empty() && weights.size() != num_parts) {
    return Rejected({"W0052", absl::StrCat(field, ".weight"),
                     absl::StrCat("as many weights as paths, ", num_parts, ", or none"),
                     absl::StrCat(weights.size()), ""});
  }
  for (double weight : weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return Rejected({"W0052", absl::StrCat(field, ".weight"), "weights above 0",
                     absl::StrCat(weight), "leave a file out that no sample shall come from"});
  }
  if (weights.size() > kBlockSamples / 2) {
    return Rejected({"W0052", absl::StrCat(field, ".weight"),
                     absl::StrCat("at most ", kBlockSamples / 2, " files with weights"),
                     absl::StrCat(weights.size()), "join files"});
  }
  return absl::OkStatus();
}

}  // namespace weir::store
