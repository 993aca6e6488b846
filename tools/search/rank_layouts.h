// Ranks the layouts that a search finds by the step that `weir sim` predicts for each, beside the
// rules of the job and the best of the known rules. Memory is what `weir plan` says: that of the
// fullest rank, with the workspace of its kernels and an evaluation beside the training. The plans
// decide what fits; the estimates of the search only say what to try. The virtual runs of large
// jobs take long, so that only the first rows of such a job have plans: others have the estimate,
// at the scale of the best. If stages have meshes of their own, those rows come last, and the first
// row has a plan if it fits.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/search_layouts.h"
#include "proto/job.pb.h"
#include "tools/sim/job_costs.h"

namespace weir::search {

struct RankOptions {
  double memory_bytes = 0;  // of a device; 0: no bound
  std::string memory_of;    // what the bound is, for messages: "--memory"
  int top = 5;
  compiler::FreeSettings free;
  enum class IfNothingFits : uint8_t {
    kIsAnError,
    kIsAResult
  } if_nothing_fits = IfNothingFits::kIsAnError;
  // The rows besides those found. Without the present rules there are no savings, either.
  enum class Beside : uint8_t { kPresentAndKnown, kKnown } beside = Beside::kPresentAndKnown;
};

// The source of a figure: a virtual run, the times of the plan, or the estimate of the search.
enum class Source : uint8_t { kSimulated, kPlanned, kEstimated };
const char* Name(Source source);  // "simulated"

struct RankedLayouts {
  enum class Row : uint8_t { kPresent, kKnown, kFound };
  compiler::FoundLayouts found;
  Row row = Row::kFound;
  Source source = Source::kEstimated;
  double step_ns = 0;
  double device_bytes = 0;
  bool fits = true;
};

// A ChoiceSaving says what one choice of a result saves against the job as it is: the figure of the
// result with this choice taken back, less the figure of the result. A negative number means that
// the choice costs time or memory, and that something else gains by it.
struct ChoiceSaving {
  std::string choice;  // "rules of dp", "ZeRO stage 1 instead of 0"
  double step_ns = 0;
  double device_bytes = 0;
};

struct RankedSearch {
  // In the order in which a user would want them: those that fit first, then by step_ns.
  std::vector<RankedLayouts> rows;
  // The savings of rows[0]; empty if these are the present rules. All of them are figures of one
  // source. A choice that the compiler refuses to take back has no entry.
  std::vector<ChoiceSaving> savings;
  Source savings_source = Source::kEstimated;
  int64_t compiled = 0, solved = 0;
  bool exact = true;
  std::string batch_statistics;  // as SearchReport has it
  int64_t devices = 1;
  double memory_bytes = 0;

  // Returns the row, or null.
  const RankedLayouts* Find(RankedLayouts::Row row) const;
};

// Errors: those of SearchLayouts and of the job. W0991: nothing fits into the memory, and that is
// an error.
absl::StatusOr<RankedSearch> RankLayouts(const proto::Job& job, const sim::JobCosts& costs,
                                         const RankOptions& options);

}  // namespace weir::search
