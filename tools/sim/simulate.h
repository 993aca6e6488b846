// Simulates a job on a cluster that need not exist. The production plans of the job's ranks run in
// virtual time, and a report gives the result.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "runtime/base/ids.h"
#include "tools/sim/act_costs.h"

namespace weir::sim {

struct SimulateOptions {
  // 0: two steps, so that the second step is past the start, or one step for a very large job. The
  // simulation always continues to an update that uses gradients (Training::update_every,
  // gradient_delay).
  int64_t steps = 0;
  uint64_t seed = 1;  // of jitter, if the cluster has any
  std::string trace;  // where to write a trace; empty: none
  // Likewise, for a caller that may open no file; null: none.
  std::ostream* trace_to = nullptr;
  enum class Symmetry : uint8_t {
    kAuto,  // beyond kRanksInFull ranks
    kOn,    // one rank of each stage stands for all of the stage
    kOff,
  } symmetry = Symmetry::kAuto;
};

// More ranks than this are simulated by symmetry, unless the options say otherwise.
inline constexpr int64_t kRanksInFull = 256;
// Returns whether a simulation with Symmetry::kAuto lets one rank stand for all of its stage.
inline bool IsBySymmetry(const compiler::LogicalPlan& plan) {
  return plan.places.num_ranks() > kRanksInFull && plan.places.has_equal_meshes();
}

struct SimulateReport {
  std::string job, cluster, mesh, plan_id;
  // The source of the costs: "the costs of here.textproto". The caller may set it; may be empty.
  std::string costs;
  int64_t ranks = 1;
  int64_t hosts = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  int64_t ranks_simulated = 1;  // fewer than ranks: by symmetry
  // The simulated steps. Figures are of the steps after the first update, if there are such steps.
  int64_t steps = 1;
  double step_ns = 0;
  double items_per_second = 0;
  std::string item;  // "tokens"
  // Shares of the step, means over devices; they sum to 1. Time in which several queues of a device
  // work counts once, as compute if there is any.
  double compute = 0;   // acts of the model
  double transfer = 0;  // acts that pack and fill messages
  double exposed = 0;   // idle while the needed data was under way
  double waiting = 0;   // idle while the needed data was not sent yet
  // The formula of the schedule gives the bubble of even stages. 0 and empty: there is no formula.
  double bubble_formula = 0;
  std::string bubble_formula_text;  // "(p-1)/(m+p-1)"
  double model_flops = 0;           // of a step: three times the flops of the forward pass
  double mfu = 0;                   // of all devices' peaks; 0 if the cluster names none
  double sent_bytes = 0;            // of a step, over all links
  ActCosts::Sources kernels;        // the numbers of kernels looked up and estimated
  struct Device {
    RankId rank;
    std::string device;
    double compute = 0, transfer = 0, exposed = 0, waiting = 0;
    double arena_bytes = 0, memory_bytes = 0;  // planned; memory of the device, 0: not known
  };
  std::vector<Device> devices;  // the simulated devices
  // The cost of the simulation; not part of the answer.
  int64_t acts = 0, events = 0;
  double compile_seconds = 0, simulate_seconds = 0;
  uint64_t history_hash = 0;
};

// Compiles the job with the costs of the cluster, and simulates the job there. Errors: those of the
// job (W03xx, W04xx) and of the cluster (W0703, W0704), W0705, W0516.
absl::StatusOr<SimulateReport> Simulate(const proto::Job& job, const proto::Cluster& cluster,
                                        const SimulateOptions& options);
// Simulates a plan that was already compiled. `weir plan` and `weir sim` both predict with this
// function.
absl::StatusOr<SimulateReport> SimulatePlan(const compiler::LogicalPlan& plan,
                                            const proto::Cluster& cluster,
                                            const SimulateOptions& options);

// Returns the output of `weir sim`, as text and as JSON.
std::string ToText(const SimulateReport& report);
std::string ToJson(const SimulateReport& report);

}  // namespace weir::sim
