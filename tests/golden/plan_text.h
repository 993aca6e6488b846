// Prints a RankPlan as text for review: protobuf text with one call, actor, register or state on a
// line.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace weir::golden {

// Returns the text of a plan. The same plan always gives the same text, and
// google::protobuf::TextFormat reads the text back.
std::string PlanText(const proto::RankPlan& plan);

}  // namespace weir::golden
