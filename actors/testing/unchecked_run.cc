#include "actors/testing/unchecked_run.h"

#include <memory>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"
#include "runtime/transport/loopback_transport.h"

namespace weir::actors {

absl::Status RunUnchecked(const std::vector<proto::RankPlan>& protos, const UncheckedRun& run) {
  const bool sim = run.engine == SessionOptions::EngineKind::kSim;
  std::vector<Plan> plans;
  for (const proto::RankPlan& proto : protos) {
    WEIR_ASSIGN_OR_RETURN(Plan plan, PlanFromProto(proto));
    plans.push_back(std::move(plan));
  }
  ManualClock clock;
  transport::SimNetwork sim_network(static_cast<int>(plans.size()),
                                    transport::SimNetwork::Mapping::kCopied);
  transport::LoopbackNetwork threads_network(static_cast<int>(plans.size()));
  RankExecutorOptions options;
  options.compute = RankExecutorOptions::Compute::kSkip;
  options.clock = sim ? &clock : nullptr;
  options.trace_capacity = 64;
  options.first_step = run.first_step;
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<device::WalledDevice*> fake_devices;
  std::vector<std::unique_ptr<RankExecutor>> executors;
  std::vector<RankExecutor*> ranks;
  for (const Plan& plan : plans) {
    if (sim) {
      auto device = std::make_unique<device::WalledDevice>(SimDeviceOptions(plan));
      fake_devices.push_back(device.get());
      devices.push_back(std::move(device));
    } else {
      devices.push_back(std::make_unique<device::CpuDevice>(1));
    }
    transport::TransportEndpoint* endpoint =
        sim ? sim_network.endpoint(plan.rank) : threads_network.endpoint(plan.rank);
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> executor,
                          RankExecutor::Create(&plan, devices.back().get(), endpoint, options));
    ranks.push_back(executor.get());
    executors.push_back(std::move(executor));
  }
  std::unique_ptr<Engine> engine;
  if (!sim) engine = MakeCafEngine(ranks, {});
  for (auto& executor : executors) WEIR_RETURN_IF_ERROR(executor->Connect());
  if (sim) {
    SimEngineOptions sim_options;
    sim_options.seed = run.seed;
    sim_options.check = SimEngineOptions::Check::kEveryStep;
    engine = std::make_unique<SimEngine>(ranks, fake_devices, &sim_network, &clock, sim_options);
  }
  for (int64_t steps : run.steps) {
    WEIR_RETURN_IF_ERROR(engine->RunSteps(steps));
    for (RankExecutor* rank : ranks) WEIR_RETURN_IF_ERROR(rank->CheckAtRest());
  }
  return absl::OkStatus();
}

}  // namespace weir::actors
