// Compiles variants of a job for a search, each as small as possible: every function of the model
// is called once, without a pipeline, and no rhythm is solved. What the whole model has of each
// function is known apart from that. If stages have meshes of their own, the variants are compared
// on equal stages, each with the largest size that an axis has. Thread rule: one thread per object.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/cost/boxing_cost.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/search/layout_problem.h"
#include "compiler/search/step_estimate.h"
#include "proto/job.pb.h"
#include "sbp/places.h"

namespace weir::compiler {

class JobTrial {
 public:
  // Errors: those of the job's mesh, graph and cut. `costs` outlives the object.
  static absl::StatusOr<std::unique_ptr<JobTrial>> Create(const proto::Job& job,
                                                          const CostModel* costs);

  const sbp::Mesh& stage_mesh() const { return places_.mesh(0); }
  int64_t num_stages() const { return places_.size(); }
  const std::vector<ModelCall>& calls() const { return model_.model.calls; }
  const std::string& FunctionOf(const ModelCall& call) const;
  BoxingCosts* boxings() { return &boxings_; }

  // Compiles a variant: the job with other rules and settings.
  absl::StatusOr<std::unique_ptr<LogicalPlan>> Compile(const proto::Job& variant);
  absl::StatusOr<StepEstimate> Estimate(const proto::Job& variant);
  // Returns the forward functions of a plan of Compile, with the number of their calls in the
  // model.
  std::vector<FunctionCalls> CallsOf(const LogicalPlan& plan) const;
  // Returns the names of the calls that begin the parts of a pipeline, except the first: the cut
  // whose slowest part takes the least time. Empty if the job's own cut is as good.
  absl::StatusOr<std::vector<std::string>> BestCut(const proto::Job& variant);

 private:
  using Groups = google::protobuf::RepeatedPtrField<proto::ParameterGroup>;

  JobTrial(const CostModel* costs, sbp::Places places, Module model, Groups groups,
           int64_t chunk_bytes_max)
      : costs_(*costs),
        places_(places),
        model_(std::move(model)),
        groups_(std::move(groups)),
        boxings_(costs, std::move(places), chunk_bytes_max) {}

  absl::StatusOr<ModelShape> ShapeOf(const proto::Job& variant);

  const CostModel& costs_;
  const sbp::Places places_;
  const Module model_;   // of the whole job, as written
  const Groups groups_;  // of the weights that variants have
  BoxingCosts boxings_;
  KeptModules kept_;                          // of variants
  std::map<std::string, ModelShape> shapes_;  // of variants, by what they say of the pipeline
};

}  // namespace weir::compiler
