#include "tests/chaos/recovery_model.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace weir::chaos {
namespace {

constexpr int64_t kElements = 24;  // of w and of m; a multiple of all products of dp and tp
constexpr int64_t kSeen = 2;
constexpr int64_t kAll = 2 * kElements + kSeen;
constexpr int64_t kSamplesMax = 1024;  // of a run
constexpr char kWeight[] = "w", kSlot[] = "m", kSeenName[] = "seen";

// The place of a shard's first value among all values of the model.
int64_t PlaceOf(const fleet::HeldState& shard) {
  const int64_t base = shard.name == kWeight ? 0 : shard.name == kSlot ? kElements : 2 * kElements;
  return base + shard.slice.offset[0];
}

int32_t See(int64_t place, int64_t sample, int32_t value) {
  if (place == 2 * kElements) return value + 1;
  if (place == 2 * kElements + 1) return value + static_cast<int32_t>(sample);
  uint32_t x = static_cast<uint32_t>(value) ^ (static_cast<uint32_t>(sample) * 0x9e3779b9u) ^
               (static_cast<uint32_t>(place) << 20);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return static_cast<int32_t>(x ^ (x >> 16));
}

// All values of the model, after each number of samples.
const std::array<int32_t, kAll>& ModelAfter(int64_t num_samples) {
  static std::vector<std::array<int32_t, kAll>>* const models =
      new std::vector<std::array<int32_t, kAll>>(1);
  while (static_cast<int64_t>(models->size()) <= num_samples) {
    std::array<int32_t, kAll> next = models->back();
    for (int64_t place = 0; place < kAll; ++place)
      next[place] = See(place, static_cast<int64_t>(models->size()) - 1, next[place]);
    models->push_back(next);
  }
  return (*models)[static_cast<size_t>(num_samples)];
}

fleet::HeldState Shard(const std::string& name, int64_t elements, int64_t parts, int64_t part) {
  TensorSlice slice;
  slice.dtype = DType::kI32;
  slice.shape = {elements / parts};
  slice.offset = {elements / parts * part};
  slice.global_shape = {elements};
  return {name, slice};
}

}  // namespace

IdVector<WorkerId, std::vector<RankId>> RecoveryLayout::RanksOf() const {
  IdVector<WorkerId, std::vector<RankId>> ranks_of(static_cast<size_t>(num_workers()));
  for (int32_t rank = 0; rank < num_ranks(); ++rank)
    ranks_of[WorkerId(rank / ranks_per_worker)].push_back(RankId(rank));
  return ranks_of;
}

IdVector<RankId, std::vector<fleet::HeldState>> RecoveryLayout::ShardsOf() const {
  IdVector<RankId, std::vector<fleet::HeldState>> shards_of;
  for (int32_t rank = 0; rank < num_ranks(); ++rank) {
    const int32_t replica = rank / tp, part = rank % tp;
    shards_of.push_back({Shard(kWeight, kElements, tp, part),
                         shards_over_dp ? Shard(kSlot, kElements, tp * dp, part * dp + replica)
                                        : Shard(kSlot, kElements, tp, part),
                         Shard(kSeenName, kSeen, 1, 0)});
  }
  return shards_of;
}

std::string RecoveryLayout::ToText() const {
  return absl::StrCat("dp=", dp, ",tp=", tp, shards_over_dp ? " with ZeRO" : "", " in ",
                      num_workers(), num_workers() == 1 ? " process" : " processes");
}

std::map<std::string, store::TensorFacts> RecoveryTensors() {
  return {{kWeight, {"I32", {kElements}, store::StateOwner::kWeight}},
          {kSlot, {"I32", {kElements}, store::StateOwner::kOptimizerSlot}},
          {kSeenName, {"I32", {kSeen}, store::StateOwner::kWeight}}};
}

ShardValues FirstValues(const fleet::HeldState& shard) { return ValuesAfter(shard, 0); }

void SeeSample(const fleet::HeldState& shard, int64_t sample, ShardValues* values) {
  int64_t place = PlaceOf(shard);
  for (int32_t& value : *values) value = See(place++, sample, value);
}

ShardValues ValuesAfter(const fleet::HeldState& shard, int64_t num_samples) {
  const std::array<int32_t, kAll>& model = ModelAfter(num_samples);
  const int32_t* const begin = model.data() + PlaceOf(shard);
  return ShardValues(begin, begin + shard.slice.num_elements());
}

std::string CompareValues(const fleet::HeldState& shard, const ShardValues& values,
                          int64_t num_samples) {
  if (num_samples < 0 || num_samples > kSamplesMax)
    return absl::StrCat("state ", shard.name, ": a run of ", num_samples, " samples");
  const ShardValues expected = ValuesAfter(shard, num_samples);
  if (values == expected) return "";
  if (shard.name == kSeenName) {
    return absl::StrCat("state seen: expected ", expected[0], " samples with the sum ", expected[1],
                        "; found ", values[0], " with the sum ", values[1]);
  }
  return absl::StrCat("state ", shard.name, ", ", ToText(shard.slice), ": expected ", expected[0],
                      ", which has seen ", num_samples, " samples; found ", values[0]);
}

}  // namespace weir::chaos
