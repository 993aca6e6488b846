#include "actors/testing/test_plans.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {

std::vector<proto::RankPlan> ParseTestJob(const std::string& text) {
  std::vector<proto::RankPlan> plans;
  for (absl::string_view part : absl::StrSplit(text, "\n---\n")) {
    if (!google::protobuf::TextFormat::ParseFromString(std::string(part), &plans.emplace_back())) {
      std::fprintf(stderr, "bad plan text:\n%s\n", std::string(part).c_str());
      std::abort();
    }
  }
  return plans;
}

std::vector<proto::RankPlan> LoadTestJob(const std::string& name) {
  std::ifstream file("actors/testing/plans/" + name + ".textproto");
  if (!file) {
    std::fprintf(stderr, "no plan '%s'\n", name.c_str());
    std::abort();
  }
  std::stringstream text;
  text << file.rdbuf();
  return ParseTestJob(text.str());
}

absl::Status TestFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                            const TensorSlice& slice, void* out) {
  if (step == fail_at_) return absl::DataLossError("the test feed was told to fail");
  const uint64_t key = MixKey(MixKey(KeyOf(feed.data(), feed.size()), step), micro_batch);
  uint32_t* words = static_cast<uint32_t*>(out);
  const int64_t first = slice.offset.empty() ? 0 : slice.offset[0];
  for (int64_t i = 0; i < slice.num_elements(); ++i)
    words[i] = static_cast<uint32_t>(MixKey(key, first + i));
  return absl::OkStatus();
}

void TestSink::Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) {
  MutexLock lock(&mutex_);
  std::vector<float>& values = values_[{metric, step, micro_batch}];
  values.insert(std::upper_bound(values.begin(), values.end(), value), value);
}

TestSink::Values TestSink::values() const {
  MutexLock lock(&mutex_);
  return values_;
}

}  // namespace weir::actors
