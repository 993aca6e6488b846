// A World is one standard plan, loaded once and run many times: ranks, devices, network and engine
// of the product, the kernels of the tests, and the answers that must come out. standard_plans_test
// proves that the plans cannot come to a standstill by themselves.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/engine/rank_executor.h"
#include "actors/engine/sim_engine.h"
#include "actors/testing/test_plans.h"
#include "runtime/base/clock.h"
#include "runtime/device/walled_device.h"
#include "runtime/transport/sim_transport.h"
#include "tests/chaos/sequential_reference.h"
#include "tests/chaos/standard_plans.h"

namespace weir::chaos {

struct RunResult {
  std::string failure;  // what must not have been; empty if all was as it must be
  uint64_t history_hash = 0;
  int64_t num_events = 0;
  bool ended_with_error = false;  // as it had to, since something harmful happened
};

class World {
 public:
  // Runs the plan sequentially for its answers, and once to see how long runs are.
  static absl::StatusOr<std::unique_ptr<World>> Create(const StandardPlan& plan,
                                                       transport::SimNetwork::Mapping mapping);

  struct Run {
    actors::SimEngineOptions engine;  // without `faults`
    std::vector<actors::SimFault> faults;
    int64_t steps_per_call = 1;
  };
  // Makes one run from the beginning and checks everything.
  RunResult Play(const Run& run);
  // The same, telling each event.
  RunResult Explain(const Run& run, std::ostream& out);

  const StandardPlan& plan() const { return plan_; }
  const actors::SimShape& shape() const { return shape_; }
  const actors::SimEngine& engine() const { return *engine_; }

 private:
  // Compares each report with the reference as it comes.
  class Sink final : public actors::MetricSink {
   public:
    void Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) override;
    const Reference* reference = nullptr;
    int64_t num_reports = 0;
    std::string wrong;
  };

  explicit World(const StandardPlan& plan) : plan_(plan) {}
  absl::Status Load(transport::SimNetwork::Mapping mapping);
  absl::Status RunAll(const Run& run);
  std::string Judge(const absl::Status& status) const;
  std::string CompareStates(const absl::Status& status) const;
  void Tell(int64_t number, const actors::SimEvent& event, std::ostream& out) const;

  const StandardPlan& plan_;
  std::vector<actors::Plan> plans_;  // by rank, as the devices and executors
  Reference reference_;
  int64_t num_metrics_ = 0;
  actors::TestFeed feed_;
  Sink sink_;
  ManualClock clock_;
  std::unique_ptr<transport::SimNetwork> network_;
  std::vector<std::unique_ptr<device::WalledDevice>> devices_;
  std::vector<std::unique_ptr<actors::RankExecutor>> executors_;
  std::unique_ptr<actors::SimEngine> engine_;
  actors::SimShape shape_;
};

}  // namespace weir::chaos
