// A job on a cluster that need not exist: the production plans of its ranks run in virtual time,
// and what that says.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "tools/sim/act_costs.h"

namespace weir {

struct SimulateOptions {
  // 0: two, so that the second one is past the beginning; one where there is very much to do.
  // Always up to an update that uses gradients (Training::update_every, gradient_delay).
  int64_t steps = 0;
  uint64_t seed = 1;  // of jitter, if the cluster has any
  std::string trace;  // where to write one; empty: none
  enum class Symmetry : uint8_t {
    kAuto,  // beyond kRanksInFull ranks
    kOn,    // one rank of each stage stands for all of the stage
    kOff,
  } symmetry = Symmetry::kAuto;
};

// More ranks than this are simulated by symmetry unless asked otherwise.
inline constexpr int64_t kRanksInFull = 256;

struct SimulateReport {
  std::string job, cluster, mesh, plan_id;
  std::string costs;  // whose, "the costs of here.textproto"; for who asks for the simulation to
                      // say; may be empty
  int64_t ranks = 1;
  int64_t hosts = 1;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  int64_t ranks_simulated = 1;  // fewer than ranks: by symmetry
  int64_t steps = 1;  // simulated; figures are of those after the first that updates, if there are
  double step_ns = 0;
  double items_per_second = 0;
  std::string item;  // "tokens"
  // Shares of the step, means over devices; they sum to 1.
  double compute = 0;         // acts of the model
  double transfer = 0;        // acts that pack and fill messages
  double exposed = 0;         // idle while what was needed was under way
  double waiting = 0;         // idle, and what was needed had not been sent
  double bubble_formula = 0;  // (p - 1) / (m + p - 1)
  double model_flops = 0;     // of a step: three times those of the forward pass
  double mfu = 0;             // of all devices' peaks; 0 if the cluster names none
  double sent_bytes = 0;      // of a step, over all links
  ActCosts::Sources kernels;  // whose costs were looked up, or estimated
  struct Device {
    int64_t rank = 0;
    std::string device;
    double compute = 0, transfer = 0, exposed = 0, waiting = 0;
    double arena_bytes = 0, memory_bytes = 0;  // planned; what the device has, 0: not said
  };
  std::vector<Device> devices;  // those simulated
  // What it took; not part of the answer.
  int64_t acts = 0, events = 0;
  double compile_seconds = 0, simulate_seconds = 0;
  uint64_t history_hash = 0;
};

// Compiles the job with the costs of the cluster, and simulates it there.
// Errors of the job (W03xx, W04xx), of the cluster (W0703, W0704), W0705, W0516.
absl::StatusOr<SimulateReport> Simulate(const Job& job, const Cluster& cluster,
                                        const SimulateOptions& options);
// The same of a plan that was compiled already. `weir plan` and `weir sim` both predict with this.
absl::StatusOr<SimulateReport> SimulatePlan(const LogicalPlan& plan, const Cluster& cluster,
                                            const SimulateOptions& options);

// What `weir sim` prints, and the same as JSON.
std::string ToText(const SimulateReport& report);
std::string ToJson(const SimulateReport& report);

}  // namespace weir
