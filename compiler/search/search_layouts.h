// Searches the layouts of a job: rules, and, where the job leaves them free, the number of
// micro-batches, the ZeRO stage, recomputation and the cut of the pipeline. The result is a job
// with other rules, which propagate-layouts turns into layouts as always, so it is legal and a
// person can read it. Explicit layouts of the job stay and hold. Of a job with `rules: AUTO`, the
// rules stay, too, and come first; the result has no such wish any more.
//
//   rules      the exact solution of the layout problem (layout_problem.h), at several prices of
//              memory; known rules for each axis (data, tensor, sequence and so on); the present
//              rules; then small changes of the best, each compiled
//   settings   the best rules with all settings that are free, then rules again with the best
//
// If stages have meshes of their own (pipeline.stage_mesh), the rules found are for all of these.
// Estimates are then those of equal stages with the largest size of each axis, so that they only
// say what to try, and a balanced cut stays balanced: it is not free.
//
// Every candidate is compiled up to its program and compared by EstimateStep, the present rules and
// the known ones included, so the result is never worse than these by the estimate. Not here:
// virtual runs of the best (tools/search). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "compiler/search/rule_list.h"
#include "compiler/search/step_estimate.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// The settings that a search may change besides the rules.
struct FreeSettings {
  bool micro_batches = false;
  bool zero = false;
  bool recompute = false;
  bool cut = false;
};
// Returns the settings that the job leaves as they are by default: one micro-batch, ZeRO stage 0,
// no word about what is kept for the backward pass, no cut. If stages have meshes of their own, the
// cut is not free, even if these meshes repeat that of the job. A model without a loss has no
// setting but the cut.
FreeSettings SettingsLeftFree(const proto::Job& job);

struct SearchOptions {
  const CostModel* costs = nullptr;
  double memory_bytes = 0;  // of a device; 0: no bound
  FreeSettings free;
  int results_max = 8;
};

struct FoundLayouts {
  enum class Origin : uint8_t { kPresent, kKnown, kSolved, kChanged };
  proto::Job job;  // with rules and settings
  RuleList rules;
  StepEstimate estimate;
  Origin origin = Origin::kPresent;
  std::string name;  // kKnown: "dp data, tp tensor"
  bool fits = true;  // by the estimate
};

struct SearchReport {
  FoundLayouts present;
  // Ascending by estimate, those that fit first. Two have the same estimate and memory only if
  // stages have meshes of their own and the two differ in their rules.
  std::vector<FoundLayouts> best;
  std::optional<FoundLayouts> known;  // the best of the known rules with the settings of the job
  int64_t compiled = 0;               // candidates
  int64_t solved = 0;                 // layout problems
  bool exact = true;                  // all of them were solved exactly
  bool memory_bounds = false;         // some candidate does not fit, by the estimate
  // "function/node" of an operation whose statistics are those of one micro-batch, so that the
  // search kept the number of micro-batches although it was free. "": there is none.
  std::string batch_statistics;
};

// Rules that are found are for all stages. On a mesh of one stage, so are those of the job,
// whatever their Rule::stage says. Errors: those of CompileJob for the job as it is; W0459: the
// mesh has several stages, and a rule is for some of them; W0990: the mesh has no axis to lay out
// over, so there is nothing to search.
absl::StatusOr<SearchReport> SearchLayouts(const proto::Job& job, const SearchOptions& options);

// A job that the search has found, with one of its choices taken back.
struct ChoiceTakenBack {
  std::string choice;  // "rules of dp", "ZeRO stage 1 instead of 0"
  proto::Job job;
};

// Returns an entry for each axis on which `found` has other rules than `before`, and for each other
// setting. The compiler may refuse some of these jobs.
std::vector<ChoiceTakenBack> ChoicesOf(const proto::Job& found, const proto::Job& before);

}  // namespace weir::compiler
