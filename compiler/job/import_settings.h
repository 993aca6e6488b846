// Reads the settings and the layout rules of a job from the job's message, once and with the
// defaults filled in. No pass reads the message. Not here: the graph (import_graph.h), the checks
// of numbers (check_training.h). Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/job_settings.h"
#include "compiler/ir/layout_rules.h"
#include "proto/job.pb.h"
#include "runtime/base/dtype.h"
#include "runtime/base/product.h"
#include "sbp/mesh.h"

namespace weir::compiler {

// Returns the type in which model functions compute.
DType DTypeOf(proto::Training::Precision precision);

// Returns the settings. kInvalidArgument (W0476): the job names a schedule that does not exist, or
// the schedule has no use for pipeline.virtual_stages. Precondition: CheckTraining.
absl::StatusOr<JobSettings> ImportSettings(const proto::Job& job);

// Returns the ways of products that the job names. kInvalidArgument (W0843): one of them, or its
// class, does not exist.
absl::StatusOr<ProductChoices> ImportProducts(const proto::Job& job);

// Returns the rules. Leaves out rules about axes that the mesh does not have, so that a job keeps
// its rules when the mesh shrinks. kInvalidArgument: a rule or an override that cannot be meant
// (W0481, W0482, W0484, W0485, or the code of a layout's text). LayoutRules::CheckOverrides checks
// the overrides against the graph.
absl::StatusOr<LayoutRules> ImportRules(const proto::Job& job, const sbp::Mesh& stage_mesh,
                                        const std::map<std::string, sbp::TensorDim>& dims);

}  // namespace weir::compiler
