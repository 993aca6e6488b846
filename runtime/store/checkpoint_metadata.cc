#include "runtime/store/checkpoint_metadata.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weir::store {
namespace {

constexpr char kFormatKey[] = "format", kFormat[] = "weir";
constexpr char kJobKey[] = "job", kPlanIdKey[] = "plan_id";
constexpr char kScheduleKey[] = "schedule";
constexpr char kSamplesKey[] = "samples", kSeedKey[] = "seed";
constexpr char kSamplesPerEpochKey[] = "samples_per_epoch", kDataKey[] = "data";
constexpr char kRandomKeyPrefix[] = "key:";
constexpr char kSealKey[] = "seal", kKeySealPrefix[] = "seal:";
constexpr char kTrainingKey[] = "training";

std::string TextOf(const Metadata& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? "" : it->second;
}

template <typename T>
std::optional<T> NumberOf(const Metadata& metadata, const std::string& key) {
  T number = 0;
  if (!absl::SimpleAtoi(TextOf(metadata, key), &number)) return std::nullopt;
  return number;
}

std::string SealText(uint64_t seal) { return absl::StrCat(absl::Hex(seal, absl::kZeroPad16)); }

uint64_t SealOf(const Metadata& metadata, const std::string& key) {
  uint64_t seal = 0;
  return absl::SimpleHexAtoi(TextOf(metadata, key), &seal) ? seal : 0;
}

// Returns whether the file is of a version that wrote seals. A file without a cursor has no seal of
// one, and has those of its keys.
bool HasSeals(const Metadata& metadata) {
  return std::any_of(metadata.begin(), metadata.end(), [](const auto& entry) {
    return entry.first == kSealKey || absl::StartsWith(entry.first, kKeySealPrefix);
  });
}

void AddText(const std::string& key, const std::string& text, Metadata* metadata) {
  if (!text.empty()) (*metadata)[key] = text;
}

}  // namespace

Metadata CheckpointMetadataOf(const CheckpointFacts& facts) {
  Metadata metadata = {{kFormatKey, kFormat},
                       {kJobKey, facts.job},
                       {kStepKey, absl::StrCat(facts.step)},
                       {kOptimizerStepKey, absl::StrCat(facts.optimizer_step)},
                       {kScheduleKey, facts.schedule}};
  AddText(kJobIdKey, facts.job_id, &metadata);
  AddText(kPlanIdKey, facts.plan_id, &metadata);
  if (facts.cursor.has_value()) {
    metadata[kSamplesKey] = absl::StrCat(facts.cursor->samples);
    metadata[kSeedKey] = absl::StrCat(facts.cursor->seed);
    metadata[kSealKey] = SealText(facts.cursor->seal);
    if (facts.cursor->samples_per_epoch > 0)
      metadata[kSamplesPerEpochKey] = absl::StrCat(facts.cursor->samples_per_epoch);
    AddText(kDataKey, facts.cursor->data, &metadata);
  }
  for (const RandomKey& key : facts.keys) {
    metadata[absl::StrCat(kRandomKeyPrefix, key.name)] = absl::StrCat(key.key);
    metadata[absl::StrCat(kKeySealPrefix, key.name)] = SealText(key.seal);
  }
  return metadata;
}

Metadata WeightsMetadataOf(const std::string& job, int64_t step) {
  return {{kFormatKey, kFormat}, {kJobKey, job}, {kTrainedStepsKey, absl::StrCat(step)}};
}

bool IsOfCheckpoint(const Metadata& metadata) {
  return NumberOf<int64_t>(metadata, kStepKey).value_or(-1) >= 0;
}

CheckpointFacts FactsOf(const Metadata& metadata) {
  CheckpointFacts facts;
  facts.job = TextOf(metadata, kJobKey);
  facts.job_id = RunOf(metadata);
  facts.plan_id = TextOf(metadata, kPlanIdKey);
  facts.schedule = TextOf(metadata, kScheduleKey);
  const int64_t step = StepsBehind(metadata).value_or(0);
  facts.step = step < 0 ? 0 : step;
  facts.optimizer_step = NumberOf<int64_t>(metadata, kOptimizerStepKey)
                             .value_or(metadata.count(kOptimizerStepKey) > 0 ? -1 : facts.step);
  if (!IsOfCheckpoint(metadata)) return facts;
  const std::optional<int64_t> samples = NumberOf<int64_t>(metadata, kSamplesKey);
  const std::optional<uint64_t> seed = NumberOf<uint64_t>(metadata, kSeedKey);
  if (samples.has_value() && *samples >= 0 && seed.has_value()) {
    const int64_t of_epoch = NumberOf<int64_t>(metadata, kSamplesPerEpochKey).value_or(0);
    facts.cursor =
        DataCursor{*samples, of_epoch < 0 ? 0 : of_epoch, *seed, TextOf(metadata, kDataKey)};
  }
  for (const auto& [key, text] : metadata) {
    absl::string_view name = key;
    uint64_t value = 0;
    if (absl::ConsumePrefix(&name, kRandomKeyPrefix) && absl::SimpleAtoi(text, &value))
      facts.keys.push_back(
          {std::string(name), value, SealOf(metadata, absl::StrCat(kKeySealPrefix, name))});
  }
  if (HasSeals(metadata)) {
    if (facts.cursor.has_value()) facts.cursor->seal = SealOf(metadata, kSealKey);
    return facts;
  }
  if (facts.keys.empty() && facts.cursor.has_value()) facts.keys = {{kTrainingKey, *seed}};
  SealFacts(&facts);
  return facts;
}

MetadataPart PartOf(const std::string& key) {
  for (const char* of_cursor :
       {kSamplesKey, kSeedKey, kSamplesPerEpochKey, kDataKey, kSealKey, kOptimizerStepKey}) {
    if (key == of_cursor) return MetadataPart::kCursor;
  }
  return absl::StartsWith(key, kRandomKeyPrefix) || absl::StartsWith(key, kKeySealPrefix)
             ? MetadataPart::kRandomKey
             : MetadataPart::kOther;
}

std::string RunOf(const Metadata& metadata) { return TextOf(metadata, kJobIdKey); }

bool AreOfTwoRuns(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

std::optional<int64_t> StepsBehind(const Metadata& metadata) {
  for (const char* key : {kStepKey, kTrainedStepsKey}) {
    if (const auto steps = NumberOf<int64_t>(metadata, key); steps.has_value()) return steps;
  }
  return std::nullopt;
}

}  // namespace weir::store
