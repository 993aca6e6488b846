#include "compiler/lower/check_sizes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using plan_limits::kActsPerStepMax;
using plan_limits::kBytesMax;

// The sums are doubles, because they only serve as a bound.
double BytesOfStates(const RankGraph& graph) {
  double total = 0, scratch = 0;
  for (const RankState& state : graph.states) total += static_cast<double>(state.slice.bytes());
  for (const RankActor& actor : graph.actors) {
    if (actor.chain == nullptr) continue;
    double sum = 0;
    for (int64_t bytes : actor.chain->scratch) sum += static_cast<double>(bytes);
    scratch = std::max(scratch, sum);
  }
  return total + scratch;
}

}  // namespace

absl::Status CheckBytes(const RankGraph& graph, double register_bytes) {
  const double total = BytesOfStates(graph) + register_bytes;
  if (total <= kBytesMax) return absl::OkStatus();
  return Rejected({"W0480", absl::StrCat("rank ", graph.rank),
                   absl::StrCat("a plan of at most ", kBytesMax, " bytes for one device"),
                   absl::StrCat(total, " bytes"),
                   "smaller dimensions, more devices or fewer register slots"});
}

absl::Status CheckSizes(const RankGraph& graph) {
  double registers = 0;
  for (const RankTensor& tensor : graph.tensors) {
    if (tensor.producer.has_value() || tensor.side != proto::RegisterSpec::LOCAL)
      registers += static_cast<double>(tensor.bytes);
  }
  WEIR_RETURN_IF_ERROR(CheckBytes(graph, registers));
  for (const RankActor& actor : graph.actors) {
    if (actor.acts_per_step <= kActsPerStepMax) continue;
    return Rejected({"W0486", absl::StrCat("rank ", graph.rank, ", ", actor.name),
                     absl::StrCat("at most ", kActsPerStepMax,
                                  " pieces a step: micro-batches times chunks of a transfer"),
                     absl::StrCat(actor.acts_per_step),
                     "a larger runtime.chunk_bytes_max or fewer training.micro_batches"});
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
