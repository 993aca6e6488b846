// Finds the rules of a job that asks for them (`rules: AUTO`, or --rules auto), before the job is
// compiled. The result is an ordinary job with written rules: its plan has the same id as the plan
// of a job into which a person has written them. The process that a user starts searches once, and
// the processes of the job get the job with the rules, so hosts with other costs or another memory
// lay the model out in the same way. The same job, costs and memory give the same rules.
//
// Only rules are found: the number of micro-batches, ZeRO and recomputation stay what the job says.
// `weir search` chooses these, too. Thread rule: pure functions, but for the facts about this
// machine's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "sbp/mesh.h"
#include "tools/search/rank_layouts.h"
#include "tools/sim/job_costs.h"

namespace weir::search {

// MachineMemory says whether the memory of this machine bounds a job that gives no bound
// (runtime.memory_bytes_max) and whose costs have none (--cluster).
enum class MachineMemory : uint8_t {
  kMust,    // the job is to run here: nothing that needs more will do
  kShould,  // if nothing fits, the memory does not count
  kIgnored,
};

struct SettledRules {
  RankedLayouts best;
  std::optional<RankedLayouts> usual;  // the best rules that people usually write
  size_t hints = 0;                    // rules of the job, which come first in the result
  sbp::Mesh mesh;  // with the largest size of each axis, if stages have meshes of their own
};

// Returns whether SettleRules searches: the job has `rules: AUTO`, and a stage of its mesh has
// several devices to lay tensors over.
bool IsSearched(const proto::Job& job);

// Writes the rules found into the job, which then has `rules: WRITTEN`. Nothing: the job has no
// such wish, or has no two devices to lay tensors over, and its rules stay. The job knows where
// hosts end (JobCosts::TellHosts).
//
// Errors: those of the job. W0761: nothing fits into the memory.
absl::StatusOr<std::optional<SettledRules>> SettleRules(const sim::JobCosts& costs,
                                                        MachineMemory machine, proto::Job* job);

// Returns a line for people: "rules found: dp batch; tp heads > ffn; a step of 13.8 ms (simulated),
// 12.1 % less than with the best of the usual rules (dp data, tp tensor)".
std::string SettledText(const SettledRules& settled);

// Returns the rules as the text of a job file, one line each, to paste into a job instead of
// `rules: AUTO`.
std::string RulesToPaste(const SettledRules& settled);

}  // namespace weir::search
