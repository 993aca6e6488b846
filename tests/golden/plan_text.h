// A RankPlan as text that is reviewed: protobuf text with one call, actor, register or
// state on a line.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace weir {

// The same plan always gives the same text; google::protobuf::TextFormat reads it back.
std::string PlanText(const RankPlan& plan);

}  // namespace weir
