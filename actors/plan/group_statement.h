// The ranks of a group state the same of their collectives, so that the proof holds: each
// collective is there on all ranks, with one kind and count, and starts at one time.
//
// The argument is that of the certificate (certificate.h), for the job as a whole. The collectives
// of a rank begin in the order of their planned starts, and those of one start in the order of
// their actors, which is one order on all ranks that share groups if their statements are equal.
// An act of a collective waits for the acts of the same start on the other ranks, and for what it
// needs, which has ended before. So taking acts in the order of their starts never waits.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/plan/plan.h"

namespace weir::actors {

// Returns the group of a COLLECTIVE, by the first operation of its program.
const Collective& GroupOf(const Plan& plan, const PlanActor& actor);

struct GroupStatement {
  std::vector<RankId> ranks;
  std::vector<std::string> operations;  // of the rank, in the order of its actors
};
// Returns what the plan says about each of its groups, in the order of their first actors.
std::vector<GroupStatement> GroupStatements(const Plan& plan);

// W0954 if two of the plans are of one group and state different things, with the first difference.
absl::Status VerifyGroups(absl::Span<const Plan> plans);

// W0955 if a group of the plans has a rank that is not among the plans: the ranks of a group are in
// one process.
absl::Status CheckGroupsAreHere(absl::Span<const Plan> plans);

}  // namespace weir::actors
