#include "compiler/search/job_trial.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/check_training.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/import_settings.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/parameter_groups.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/passes/assign_stages.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// Returns the job with one call in place of each chain of calls of `main`, and without a pipeline,
// on one stage with this mesh. Boxings of the job know no hosts: BoxingCosts knows them.
proto::Job Reduced(const proto::Job& job, const sbp::Mesh& stage_mesh) {
  proto::Job reduced = job;
  for (proto::Function& function : *reduced.mutable_graph()->mutable_function()) {
    if (function.name() != job.graph().main()) continue;
    for (proto::Node& node : *function.mutable_node()) {
      if (node.repeat() > 1) node.set_repeat(1);
    }
  }
  reduced.mutable_mesh()->Clear();
  for (const sbp::MeshAxis& axis : stage_mesh.axes()) {
    proto::MeshAxisSpec* const of_reduced = reduced.mutable_mesh()->add_axis();
    of_reduced->set_name(axis.name);
    of_reduced->set_size(axis.size);
  }
  reduced.mutable_mesh()->set_devices_per_host(1);
  reduced.clear_pipeline();
  return reduced;
}

// Returns the groups of the weights of a reduced job, by their names. The call in the place of a
// chain has the group of the most calls of the chain. It is frozen only if all of these are,
// because else the gradients of all of them are computed.
google::protobuf::RepeatedPtrField<proto::ParameterGroup> ReducedGroups(const proto::Job& job,
                                                                        const Model& whole,
                                                                        const Model& reduced) {
  std::map<std::string, int64_t> rounds;  // by call of main
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::Node& node : function.node()) rounds[node.name()] = node.repeat();
  }
  std::vector<std::map<int, int64_t>> calls(reduced.weights.size());  // by weight and group
  size_t c = 0;
  for (const ModelCall& call : reduced.calls) {
    const auto chain = rounds.find(call.name);
    const int64_t end = chain == rounds.end() ? 1 : std::max<int64_t>(1, chain->second);
    for (int64_t round = 0; round < end && c < whole.calls.size(); ++round, ++c) {
      const std::vector<int>& weights = whole.calls[c].weights;
      for (size_t p = 0; p < std::min(weights.size(), call.weights.size()); ++p)
        ++calls[call.weights[p]][whole.weights[weights[p]].group];
    }
  }
  std::vector<proto::ParameterGroup> groups(job.training().group().begin(),
                                            job.training().group().end());
  for (proto::ParameterGroup& group : groups) group.clear_pattern();
  const auto rank = [&groups](const std::pair<const int, int64_t>& group) {
    return std::pair(group.first < 0 || !groups[group.first].frozen(), group.second);
  };
  for (size_t w = 0; w < calls.size(); ++w) {
    const auto most =
        std::max_element(calls[w].begin(), calls[w].end(),
                         [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
    if (most != calls[w].end() && most->first >= 0)
      groups[most->first].add_pattern(reduced.weights[w].name);
  }
  google::protobuf::RepeatedPtrField<proto::ParameterGroup> with_weights;
  for (const proto::ParameterGroup& group : groups) {
    if (group.pattern_size() > 0) *with_weights.Add() = group;
  }
  return with_weights;
}

// Returns the most cost that a part need have, if consecutive costs are cut into `parts`.
double LeastLargestPart(const std::vector<double>& costs, int64_t parts) {
  double low = *std::max_element(costs.begin(), costs.end()), high = 0;
  for (double cost : costs) high += cost;
  for (int round = 0; round < 60; ++round) {
    const double bound = (low + high) / 2;
    int64_t used = 1;
    double sum = 0;
    for (double cost : costs) {
      if (sum + cost > bound) {
        ++used;
        sum = 0;
      }
      sum += cost;
    }
    (used <= parts ? high : low) = bound;
  }
  return high;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobTrial>> JobTrial::Create(const proto::Job& job,
                                                           const CostModel* costs) {
  const sbp::Mesh written = WrittenMesh(job);
  WEIR_RETURN_IF_ERROR(written.Validate());
  WEIR_RETURN_IF_ERROR(ImportStageMeshes(job, written).status());
  const sbp::Mesh mesh = LargestMeshOf(job);
  WEIR_RETURN_IF_ERROR(mesh.Validate());
  if (HasStageMeshes(job) && mesh.num_ranks() > kDevicesMax) {
    return Rejected({"W0447", "the search for layouts on the stages of pipeline.stage_mesh",
                     absl::StrCat("at most ", kDevicesMax,
                                  " devices if each stage had the largest size of each axis"),
                     absl::StrCat(mesh.num_ranks(), ", with mesh ", mesh.ToText()),
                     "rules: WRITTEN, or smaller meshes in pipeline.stage_mesh"});
  }
  std::vector<int> order;
  const std::vector<std::string> names(job.mesh().rank_order().begin(),
                                       job.mesh().rank_order().end());
  if (!names.empty()) {
    WEIR_ASSIGN_OR_RETURN(order, mesh.OrderOf(names, "mesh.rank_order"));
  }
  WEIR_ASSIGN_OR_RETURN(const auto dims, ImportDims(job));
  WEIR_ASSIGN_OR_RETURN(Module model, ImportGraph(job, dims, ModeOf(job)));
  sbp::Places places = sbp::PipelinePlaces(mesh, job.mesh().devices_per_host(), order);
  Groups groups;
  if (job.training().group_size() > 0 && ModeOf(job) == PlanMode::kTrain) {
    WEIR_RETURN_IF_ERROR(CheckTraining(job, places.mesh(0), ModeOf(job)));
    WEIR_ASSIGN_OR_RETURN(const JobSettings settings, ImportSettings(job));
    Module whole = model;
    WEIR_RETURN_IF_ERROR(ApplyGroups(settings.training.groups, &whole));
    WEIR_ASSIGN_OR_RETURN(const Module reduced,
                          ImportGraph(Reduced(job, places.mesh(0)), dims, ModeOf(job)));
    groups = ReducedGroups(job, whole.model, reduced.model);
  }
  return std::unique_ptr<JobTrial>(new JobTrial(costs, std::move(places), std::move(model),
                                                std::move(groups),
                                                job.runtime().chunk_bytes_max()));
}

const std::string& JobTrial::FunctionOf(const ModelCall& call) const {
  return model_.functions[model_.model.functions[call.model_function].forward].name;
}

absl::StatusOr<std::unique_ptr<LogicalPlan>> JobTrial::Compile(const proto::Job& variant) {
  CompileOptions options;
  options.mode = ModeOf(variant);
  options.kept = &kept_;
  options.costs = &costs_;
  options.program_only = true;
  // Bundles change no estimate, and their making plans each boxing.
  options.disabled = {"bundle-boxings"};
  proto::Job reduced = Reduced(variant, places_.mesh(0));
  *reduced.mutable_training()->mutable_group() = groups_;
  return CompileJob(reduced, options);
}

absl::StatusOr<ModelShape> JobTrial::ShapeOf(const proto::Job& variant) {
  const std::string key =
      absl::StrCat(variant.training().micro_batches(), ";", variant.pipeline().SerializeAsString());
  if (const auto known = shapes_.find(key); known != shapes_.end()) return known->second;
  WEIR_ASSIGN_OR_RETURN(const JobSettings settings, ImportSettings(variant));
  ModelShape shape;
  shape.schedule = ScheduleOf(settings.pipeline, places_.size(),
                              std::max<int64_t>(1, variant.training().micro_batches()));
  Module model = model_;
  WEIR_RETURN_IF_ERROR(AssignStages(settings.pipeline, LayoutRules(), &shape.schedule, &model));
  shape.calls.resize(places_.size());
  for (const ModelCall& call : model.model.calls) shape.calls[call.stage][FunctionOf(call)] += 1;
  shapes_[key] = shape;
  return shape;
}

absl::StatusOr<StepEstimate> JobTrial::Estimate(const proto::Job& variant) {
  WEIR_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(variant));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LogicalPlan> plan, Compile(variant));
  StepEstimate estimate = EstimateStep(*plan, shape, costs_, &boxings_);
  estimate.uses_mesh = CheckMeshUse(*plan).ok();
  return estimate;
}

std::vector<FunctionCalls> JobTrial::CallsOf(const LogicalPlan& plan) const {
  std::map<std::string, double> calls;
  for (const ModelCall& call : model_.model.calls) calls[FunctionOf(call)] += 1;
  std::vector<FunctionCalls> functions;
  for (const ModelFunction& function : plan.module.model.functions) {
    const Function& forward = plan.module.functions[function.forward];
    const auto found = calls.find(forward.name);
    if (found == calls.end()) continue;
    functions.push_back({&forward, function.num_results, found->second});
  }
  return functions;
}

absl::StatusOr<std::vector<std::string>> JobTrial::BestCut(const proto::Job& variant) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LogicalPlan> plan, Compile(variant));
  WEIR_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(variant));
  const std::map<std::string, double> times = CallTimes(*plan, costs_, &boxings_);
  std::vector<double> costs;
  for (const ModelCall& call : calls()) {
    const auto found = times.find(FunctionOf(call));
    costs.push_back(found == times.end() ? 0 : found->second);
  }
  const int64_t parts = shape.schedule.num_parts();
  const double bound = LeastLargestPart(costs, parts) * (1 + 1e-9);
  // The last parts are filled first: the first stages keep more micro-batches in memory.
  std::vector<std::string> cut;
  double sum = 0;
  int64_t part = parts - 1;
  for (size_t c = costs.size(); c-- > 0;) {
    const bool each_call_left_is_a_part = static_cast<int64_t>(c) + 1 == part;
    if (part > 0 && c + 1 < costs.size() && (sum + costs[c] > bound || each_call_left_is_a_part)) {
      cut.insert(cut.begin(), calls()[c + 1].name);
      --part;
      sum = 0;
    }
    sum += costs[c];
  }
  if (static_cast<int64_t>(cut.size()) != parts - 1) cut.clear();
  return cut;
}

}  // namespace weir::compiler
