// Sets the order of the passes, in one place.
#include "compiler/compile.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/check_training.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/import_settings.h"
#include "compiler/job/parameter_groups.h"
#include "compiler/job/precision_rules.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/lower/known_calls.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/passes/assign_stages.h"
#include "compiler/passes/build_program.h"
#include "compiler/passes/bundle_boxings.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/passes.h"
#include "compiler/registers/allocate_registers.h"
#include "compiler/registers/twin_memory.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "compiler/rhythm/stage_twins.h"
#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::StatusOr<sbp::Mesh> MeshOf(const proto::Job& job) {
  std::vector<sbp::MeshAxis> axes;
  for (const auto& axis : job.mesh().axis()) axes.push_back({axis.name(), axis.size()});
  sbp::Mesh mesh(std::move(axes));
  WEIR_RETURN_IF_ERROR(mesh.Validate());
  return mesh;
}

absl::Status CheckDevices(const sbp::Mesh& mesh, const std::vector<sbp::Mesh>& of_stages) {
  int64_t devices = of_stages.empty() ? mesh.num_ranks() : 0;
  for (const sbp::Mesh& of_stage : of_stages) devices += of_stage.num_ranks();
  if (devices <= kDevicesMax) return absl::OkStatus();
  return Rejected({"W0447", absl::StrCat("mesh ", mesh.ToText()),
                   absl::StrCat("at most ", kDevicesMax, " devices"), absl::StrCat(devices),
                   of_stages.empty() ? "smaller axes" : "smaller meshes in pipeline.stage_mesh"});
}

// A list in a --set grows by one element with each --set, which the names alone do not tell.
absl::Status WithWayToWrite(const absl::Status& flaw, const sbp::Mesh& mesh) {
  std::optional<Problem> problem = ProblemOf(flaw);
  if (!problem.has_value() || mesh.num_axes() < 2) return flaw;
  std::string sets;
  for (const sbp::MeshAxis& axis : mesh.axes())
    absl::StrAppend(&sets, " --set mesh.rank_order=", axis.name);
  problem->hint = absl::StrCat(problem->hint, "; --place ", problem->hint,
                               " says that, as does a --set for each name:", sets);
  return ErrorOf(flaw.code(), *problem);
}

absl::StatusOr<sbp::Places> PlacesOf(const proto::Job& job, const sbp::Mesh& mesh) {
  const proto::MeshSpec& spec = job.mesh();
  WEIR_ASSIGN_OR_RETURN(std::vector<sbp::Mesh> of_stages, ImportStageMeshes(job, mesh));
  WEIR_RETURN_IF_ERROR(CheckDevices(mesh, of_stages));
  if (!of_stages.empty())
    return sbp::PlacesWithMeshes(std::move(of_stages), spec.devices_per_host());
  std::vector<int> order;
  const std::vector<std::string> names(spec.rank_order().begin(), spec.rank_order().end());
  if (!names.empty()) {
    absl::StatusOr<std::vector<int>> found = mesh.OrderOf(names, "mesh.rank_order");
    if (!found.ok()) return WithWayToWrite(found.status(), mesh);
    order = *std::move(found);
  }
  return sbp::PipelinePlaces(mesh, spec.devices_per_host(), order);
}

std::vector<sbp::Mesh> MeshesOf(const sbp::Places& places) {
  std::vector<sbp::Mesh> meshes;
  for (int64_t place = 0; place < places.size(); ++place) meshes.push_back(places.mesh(place));
  return meshes;
}

std::string PlanId(const LogicalPlan& plan) {
  std::string text;
  plan.job->SerializeToString(&text);
  absl::StrAppend(&text, static_cast<int>(plan.mode));
  for (const Function& function : plan.module.functions)
    absl::StrAppend(&text, ToText(function, plan.stage_mesh));
  return absl::StrCat(absl::Hex(KeyOf(text.data(), text.size()), absl::kZeroPad16));
}

std::string KeyOfKept(const proto::Job& job, PlanMode mode) {
  proto::Job key = job;
  key.clear_rule();
  return absl::StrCat(static_cast<int>(mode), ";", key.SerializeAsString());
}

// Returns whether rules or meshes are for some stages only. Rules of stages decide which functions
// a module has, and rules on stages with meshes of their own decide where a balanced cut lies.
bool DiffersByStage(const proto::Job& job) {
  return HasStageMeshes(job) || std::any_of(job.rule().begin(), job.rule().end(),
                                            [](const auto& rule) { return rule.stage_size() > 0; });
}

// Adds the passes whose results do not depend on the rules, unless the job differs by stage.
// `imported`: where the module of the first pass goes, too; null: nowhere.
void AddPassesBeforeLayouts(LogicalPlan* plan, Module* imported, PassPipeline* passes) {
  passes->Add({"import-graph", "the functions and calls of the graph, with a type for every value",
               true, [plan, imported](const PassContext& facts, Module* module) -> absl::Status {
                 WEIR_ASSIGN_OR_RETURN(*module, ImportGraph(*plan->job, facts.dims, plan->mode));
                 if (plan->mode == PlanMode::kTrain)
                   WEIR_RETURN_IF_ERROR(ApplyGroups(plan->settings.training.groups, module));
                 ApplyPrecisionRules(plan->settings.training, plan->job->graph().main(), module);
                 if (imported != nullptr) *imported = *module;
                 return facts.rules.CheckOverrides(*module);
               }});
  passes->Add({"assign-stages", "a part of the pipeline for every call", true,
               [plan](const PassContext& facts, Module* module) -> absl::Status {
                 WEIR_RETURN_IF_ERROR(
                     AssignStages(plan->settings.pipeline, facts.rules, &plan->schedule, module));
                 GiveStagesTheirFunctions(facts.rules, module);
                 return absl::OkStatus();
               },
               [plan] { return CallsText(plan->module); }});
  passes->Add({"apply-precision", "parameters and activations to bf16 or f16, where the job asks",
               true, ApplyPrecision});
  passes->Add({"compute-ahead", "what the micro-batches of a step know of all their data", true,
               ComputeAhead});
  if (plan->mode == PlanMode::kTrain) {
    passes->Add(
        {"differentiate", "a backward function for every model function", true, Differentiate});
  }
}

}  // namespace

const KeptModules::Kept* KeptModules::Find(const proto::Job& job, PlanMode mode) const {
  const auto found = kept_.find(KeyOfKept(job, mode));
  return found == kept_.end() ? nullptr : &found->second;
}

void KeptModules::Keep(const proto::Job& job, PlanMode mode, Kept modules) {
  kept_.insert_or_assign(KeyOfKept(job, mode), std::move(modules));
}

absl::StatusOr<std::unique_ptr<LogicalPlan>> CompileJob(const proto::Job& job,
                                                        const CompileOptions& options) {
  auto plan = std::make_unique<LogicalPlan>();
  plan->job = std::make_shared<const proto::Job>(job);
  plan->mode = options.mode;
  WEIR_ASSIGN_OR_RETURN(plan->mesh, MeshOf(job));
  WEIR_ASSIGN_OR_RETURN(plan->places, PlacesOf(job, plan->mesh));
  plan->stage_mesh = LargestMesh(plan->places);
  if (HasStageMeshes(job)) plan->mesh = MeshOfStages(plan->mesh, plan->places);
  plan->mesh_text = MeshText(plan->mesh, plan->places);
  WEIR_RETURN_IF_ERROR(CheckTraining(job, plan->stage_mesh, options.mode));
  plan->micro_batches = std::max<int64_t>(1, job.training().micro_batches());
  WEIR_ASSIGN_OR_RETURN(plan->settings, ImportSettings(job));
  WEIR_ASSIGN_OR_RETURN(plan->products, ImportProducts(job));
  if (plan->settings.runtime.chunk_bytes_max > 0)
    plan->chunk_bytes_max = plan->settings.runtime.chunk_bytes_max;

  PassContext context;
  context.stage_mesh = plan->stage_mesh;
  if (options.mode == PlanMode::kTrain) plan->updates = UpdateRateOf(job.training());
  context.micro_batches = plan->micro_batches;
  context.micro_batches_per_update = plan->micro_batches * plan->updates.every;
  context.precision = plan->settings.training.precision;
  context.loss_scale = plan->settings.training.loss_scale;
  WEIR_ASSIGN_OR_RETURN(context.dims, ImportDims(job));
  WEIR_ASSIGN_OR_RETURN(context.rules, ImportRules(job, plan->stage_mesh, context.dims));
  if (HasStageMeshes(job)) context.rules.SetMeshes(MeshesOf(plan->places));
  plan->schedule = ScheduleOf(plan->settings.pipeline, plan->places.size(), plan->micro_batches);

  PassPipeline passes({options.dump_after, options.disabled, options.dump_to,
                       options.text_for_second_run, options.on_pass,
                       options.program_only ? PassPipelineOptions::Verification::kNone
                                            : PassPipelineOptions::Verification::kAfterEachPass});
  const bool may_share = options.kept != nullptr && !DiffersByStage(job);
  const KeptModules::Kept* const kept = may_share ? options.kept->Find(job, options.mode) : nullptr;
  std::optional<KeptModules::Kept> to_keep;
  if (may_share && kept == nullptr) to_keep.emplace();
  if (kept != nullptr) {
    WEIR_RETURN_IF_ERROR(context.rules.CheckOverrides(kept->imported));
    plan->module = kept->without_layouts;
    plan->schedule = kept->schedule;
  } else {
    AddPassesBeforeLayouts(plan.get(), to_keep.has_value() ? &to_keep->imported : nullptr, &passes);
  }
  passes.Add({"expand-cross-entropy", "vocabulary-parallel cross entropy where a rule splits it",
              false, [&](const PassContext& facts, Module* module) {
                if (to_keep.has_value()) {
                  to_keep->without_layouts = *module;
                  to_keep->schedule = plan->schedule;
                  options.kept->Keep(job, options.mode, *std::exchange(to_keep, std::nullopt));
                }
                return ExpandCrossEntropy(facts, module);
              }});
  passes.Add({"remove-dead-nodes", "drop what no result needs", false, RemoveDeadNodes});
  passes.Add({"propagate-layouts", "a layout for every value, and boxings between them", true,
              PropagateLayouts});
  if (options.mode == PlanMode::kTrain) {
    passes.Add({"recompute-values", "what is not kept is computed again by the backward function",
                false, RecomputeValues});
  }
  if (options.mode == PlanMode::kTrain && plan->schedule.splits_backward()) {
    passes.Add(
        {"split-backward", "gradients of weights in functions of their own", false, SplitBackward});
  }
  passes.Add({"build-program", "sources, forward, backward, gradients, norm, update", true,
              [&plan](const PassContext& facts, Module*) {
                return BuildProgram(facts.rules, plan.get());
              }});
  passes.Add({"bundle-boxings", "boxings that can travel together do", false,
              [&plan](const PassContext&, Module* module) {
                return BundleBoxings(plan->places, module);
              }});
  const PeakCosts defaults;
  const CostModel& costs = options.costs != nullptr ? *options.costs : defaults;
  if (!options.program_only) {
    passes.Add({"shape-stages", "what the ranks of each stage do together", true,
                [&plan](const PassContext&, Module*) { return ShapeStages(plan.get()); },
                [&plan] { return ToText(plan->stages); }});
    passes.Add({"solve-rhythm", "slots of registers, and the start of every act", true,
                [&](const PassContext&, Module*) -> absl::Status {
                  if (options.rhythm != nullptr) {
                    plan->rhythm = *options.rhythm;
                    return absl::OkStatus();
                  }
                  WEIR_ASSIGN_OR_RETURN(plan->rhythm, SolveRhythm(*plan, costs));
                  return absl::OkStatus();
                },
                [&plan] { return ToText(plan->rhythm); }});
  }
  WEIR_RETURN_IF_ERROR(passes.Run(context, &plan->module));
  plan->timings = passes.timings();
  if (!options.program_only) plan->plan_id = PlanId(*plan);
  plan->predicted_bubble = plan->rhythm.bubble;
  return plan;
}

absl::StatusOr<proto::RankPlan> LowerForRank(const LogicalPlan& plan, RankId rank) {
  if (rank < RankId(0) || rank.value() >= plan.places.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", plan.places.num_ranks()));
  }
  WEIR_ASSIGN_OR_RETURN(RankGraph graph, LowerToRankGraph(plan, rank));
  return AllocateRegisters(plan, graph);
}

absl::StatusOr<std::vector<FirstRank>> LowerFirstRanks(const LogicalPlan& plan) {
  const std::vector<std::vector<StageTwin>> twins = FindStageTwins(plan);
  std::vector<FirstRank> ranks(static_cast<size_t>(plan.places.size()));
  TransferFactory transfers(plan.settings.runtime);
  for (size_t s = 0; s < ranks.size(); ++s) {
    if (ranks[s].plan != nullptr) continue;
    const auto stage = static_cast<int64_t>(s);
    std::vector<StageTwin> sharing;
    std::vector<std::map<std::string, std::string>> weights;  // by element of `sharing`
    for (const StageTwin& twin : twins[s]) {
      if (twin.stage == stage) continue;
      std::optional<std::map<std::string, std::string>> pairs = PairWeights(plan, twin);
      if (!pairs.has_value()) continue;
      sharing.push_back(twin);
      weights.push_back(*std::move(pairs));
    }
    KnownCalls known;
    WEIR_ASSIGN_OR_RETURN(const RankGraph graph,
                          LowerToRankGraph(plan, plan.places.RankAt(stage, 0), &known, &transfers));
    WEIR_ASSIGN_OR_RETURN(PlanAndArenas made, AllocateRegisters(plan, graph, sharing));
    const auto shared = std::make_shared<const proto::RankPlan>(std::move(made.plan));
    ranks[s] = {shared, stage, shared->arena_bytes(), {}};
    for (const proto::StateSpec& state : shared->state()) {
      if (state.state_class() == proto::StateSpec::WEIGHT)
        ranks[s].weights.emplace(state.name(), state.name());
    }
    for (size_t i = 0; i < sharing.size(); ++i) {
      if (made.arena_bytes[i].has_value())
        ranks[sharing[i].stage] = {shared, stage, *made.arena_bytes[i], std::move(weights[i])};
    }
  }
  return ranks;
}

}  // namespace weir::compiler
