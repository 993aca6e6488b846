// Faults of a simulated run: messages that are tampered with, links and ranks that are slow, a rank
// that dies, an abort. Faults are drawn from a seed, so that a run can be repeated.
//
//   harmless   the run ends well with the same bits: slow, overtaken, of another epoch or job
//   harmful    the run may end with an error that names the fault, never with other bits
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/transport/sim_transport.h"

namespace weir::actors {

struct SimFault {
  enum class Kind : uint8_t {
    kTamper,    // the `at`-th delivery is not as it should be
    kSlowLane,  // from event `at` to `until` the lane moves only if nothing else can
    kSlowRank,  // the same, for the rank
    kDeadRank,  // at event `at` the process of the rank is gone
    kAbort,     // at event `at` the job is told to stop
  } kind = Kind::kTamper;
  int64_t at = 0;
  int64_t until = 0;
  int target = 0;  // lane or rank
  transport::SimNetwork::Delivery::Tamper tamper = transport::SimNetwork::Delivery::Tamper::kNone;
  uint32_t bit = 0;
};

bool IsHarmless(const SimFault& fault);
std::string Describe(const SimFault& fault);
// Returns whether a run that met the fault may end with an error of this code ("W0521"; "" for a
// run that was aborted).
bool MayEndWith(const SimFault& fault, absl::string_view code);

// A SimShape holds the lengths of a plan's runs, so that faults fall into them.
struct SimShape {
  int num_ranks = 1;
  int num_lanes = 0;
  int64_t num_events = 1;
  int64_t num_deliveries = 0;
};
enum class SimFaultLevel : uint8_t { kNone, kHarmless, kAny };
// Draws up to three harmless faults and, with kAny, often one harmful fault. Ordered by `at`.
std::vector<SimFault> DrawFaults(uint64_t seed, SimFaultLevel level, const SimShape& shape);

}  // namespace weir::actors
