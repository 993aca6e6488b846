// Chooses which axes of a mesh lie inside hosts, and explains how the mesh of a plan lies over
// hosts.
//
// Ranks that are neighbours share a host, so the order in which ranks run over the axes
// (MeshSpec.rank_order) decides which devices share one. Layouts do not depend on that order, and
// neither do bits. Of all orders the choice takes the one with the fewest bytes between hosts in a
// step of training, unless it saves next to nothing. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"
#include "tools/plan/boxing_costs.h"

namespace weir::plan {

// Values of --place, besides the names of all axes from slowest to fastest, "dp,tp".
inline constexpr char kPlaceAuto[] = "auto";
inline constexpr char kPlaceAsWritten[] = "as-written";

struct PlacedAxes {
  enum class By : uint8_t {
    kJob,    // the order of the job
    kNamed,  // --place
    kChoice,
  };
  By by = By::kJob;
  // kChoice: bytes of a step of training between hosts, with the chosen order and with the job's.
  double bytes = 0, bytes_as_written = 0;
  // A sentence on why no order was chosen although the job has hosts and several orders; mostly
  // empty.
  std::string why_not;
};

// Writes the order that `place`, a value of --place, asks for into the job. kPlaceAuto: the job's
// own mesh.rank_order, else the choice. A job that says nothing of hosts, that no order changes, or
// that cannot be compiled stays as it is. kInvalidArgument (W0106): a wrong order.
absl::StatusOr<PlacedAxes> PlaceAxes(const std::string& place, proto::Job* job);

// Returns a line for people: "tp inside hosts, dp between them: 1.2 MiB a step between hosts
// instead of 9.6 MiB in the order as written; --place as-written keeps that". Empty if the order is
// the job's and there is nothing to explain, or if hosts do not cut the ranks evenly. Precondition:
// PlaceAxes has returned `placed` for `job`.
std::string PlacedText(const PlacedAxes& placed, const proto::Job& job);

// Returns "2 of 4 devices; tp inside them, dp between them; 1.2 MiB a step between hosts", and why,
// if the order was chosen. Empty if the plan knows of one host. `boxings` are those of the plan.
std::string HostsText(const compiler::LogicalPlan& plan, const std::vector<BoxingCost>& boxings,
                      const PlacedAxes& placed);

}  // namespace weir::plan
