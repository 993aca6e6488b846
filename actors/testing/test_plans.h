// Hand-written plans, and a feed and a sink for them, for tests of the runtime. Nothing here runs
// the plans. A job is a text file under actors/testing/plans: RankPlan messages in text form, one
// per rank, separated by lines "---".
// Thread rule: the feed and the sink may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "actors/engine/feed.h"
#include "proto/plan.pb.h"
#include "runtime/base/mutex.h"

namespace weir::actors {

// Ends the program with the parser's message if the file is missing or wrong.
std::vector<proto::RankPlan> LoadTestJob(const std::string& name);
std::vector<proto::RankPlan> ParseTestJob(const std::string& text);

// Fills every element from (feed, step, micro-batch, global element).
class TestFeed final : public DataFeed {
 public:
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override;
  // Makes the feed fail at this step.
  void FailAt(int64_t step) { fail_at_ = step; }

 private:
  int64_t fail_at_ = -1;
};

class TestSink final : public MetricSink {
 public:
  using Values = std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<float>>;
  void Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) override;
  Values values() const;

 private:
  mutable Mutex mutex_;
  Values values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::actors
