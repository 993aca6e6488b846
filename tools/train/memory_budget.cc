#include "tools/train/memory_budget.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/engine/program_binding.h"
#include "actors/plan/plan.h"
#include "actors/plan/shared_states.h"
#include "compiler/explain/memory_view.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/limits/machine_memory.h"
#include "tools/train/job_session.h"
#include "tools/train/job_variant.h"

namespace weir::train {
namespace {

// Meshes up to this size are looked at rank by rank.
constexpr int64_t kRanksLookedAt = 16;
constexpr int kTensorsNamed = 5;
constexpr int64_t kMicroBatchesMost = 8;  // times as many

constexpr char kGpus[] = "cuda";
constexpr double kH100Bytes = 80e9;
constexpr int64_t kDevicesEnough = 1 << 20;  // more than any mesh may have

MemoryBudget BudgetOnGpus(const proto::Job& job) {
  double bytes = 0;
  const device::CudaFacts facts = device::FindGpus();
  for (const device::GpuFacts& gpu : facts.gpus) bytes += static_cast<double>(gpu.memory_bytes);
  if (facts.gpus.empty()) {
    bytes = kH100Bytes * static_cast<double>(compiler::NumDevices(job, kDevicesEnough));
  }
  return {job.runtime().memory_bytes_max(), static_cast<int64_t>(std::min(bytes, 1e18)),
          facts.gpus.empty() ? "as many H100s as the job has devices" : "the GPUs of this machine"};
}

bool FitsDevice(const MemoryNeed& need, const MemoryBudget& budget) {
  return budget.device_bytes == 0 || need.bytes <= budget.device_bytes;
}

bool FitsMachine(const MemoryNeed& need, const MemoryBudget& budget) {
  return need.all_bytes <= static_cast<double>(budget.machine_bytes);
}

std::string Text(double bytes) { return BytesText(bytes); }

void TellNobody(const live::Doing&) {}

Beside BesideOf(const compiler::LogicalPlan& plan) {
  return plan.mode == compiler::PlanMode::kTrain ? Beside::kEvaluation : Beside::kNothing;
}

bool AreFirstRanksEnough(const compiler::LogicalPlan& plan) {
  return plan.places.num_ranks() > kRanksLookedAt;
}

// Ranks to look at, and for how many each stands.
std::map<RankId, int64_t> RanksLookedAt(const compiler::LogicalPlan& plan) {
  std::map<RankId, int64_t> stands_for;
  if (!AreFirstRanksEnough(plan)) {
    for (RankId rank : plan.places.all_ranks()) stands_for[rank] = 1;
  } else {
    for (int64_t stage = 0; stage < plan.places.size(); ++stage)
      stands_for[plan.places.RankAt(stage, 0)] = plan.places.mesh(stage).num_ranks();
  }
  return stands_for;
}

// StageWorkspaces finds the memory that the kernels of a rank take besides the arena. The
// kernels are made as a session makes kernels, and the kernels of all ranks of a stage are alike.
// No kernels are made of a rank that this machine cannot hold: such a rank does not fit even
// without its kernels, and libraries of kernels do not expect such sizes. A kernel that cannot be
// made counts as nothing, and the session reports the reason.
class StageWorkspaces {
 public:
  explicit StageWorkspaces(int threads_per_device) : threads_per_device_(threads_per_device) {}

  int64_t Of(const proto::RankPlan& plan) {
    const auto known = by_stage_.find(plan.stage());
    if (known != by_stage_.end()) return known->second;
    return by_stage_[plan.stage()] = CanHold(plan, plan.arena_bytes()) ? Make(plan) : 0;
  }

  // The same for the first rank of a stage. The kernels are those of the stage whose plan it has.
  int64_t Of(const compiler::FirstRank& rank) {
    if (!CanHold(*rank.plan, rank.arena_bytes)) return 0;
    const auto [known, is_new] = by_stage_.try_emplace(rank.plan->stage(), 0);
    if (is_new) known->second = Make(*rank.plan);
    return known->second;
  }

 private:
  // The kernels of a GPU take no memory of this machine.
  bool CanHold(const proto::RankPlan& plan, int64_t arena_bytes) const {
    return plan.device_kind() == kGpus || arena_bytes <= machine_bytes_;
  }

  int64_t Make(const proto::RankPlan& plan) const {
    const absl::StatusOr<actors::Plan> read = actors::PlanFromProto(plan);
    if (!read.ok()) return 0;
    const absl::StatusOr<actors::KernelSet> kernels =
        actors::KernelSet::Create(*read, read->device_kind, threads_per_device_);
    return kernels.ok() ? kernels->workspace_bytes() : 0;
  }

  const int threads_per_device_;
  const int64_t machine_bytes_ = BudgetOf(proto::Job()).machine_bytes;
  std::map<int, int64_t> by_stage_;
};

// Returns what the graphs of a rank's acts take of the memory of its GPU: an estimate, since nobody
// has measured it. An act has two graphs where its slots take turns.
int64_t GraphBytesOf(const proto::RankPlan& plan) {
  constexpr int64_t kBytesOfKernel = int64_t{8} << 10;
  constexpr int64_t kGraphsOfAct = 2;
  if (plan.device_kind() != kGpus || plan.graphs() == proto::RankPlan::GRAPHS_OFF) return 0;
  const absl::StatusOr<actors::Plan> read = actors::PlanFromProto(plan);
  if (!read.ok()) return 0;
  int64_t bytes = 0;
  for (const actors::PlanActor& actor : read->actors) {
    if (!actor.program.has_value() || actor.kind == actors::ActorKind::kCollective) continue;
    const auto num_kernels = static_cast<int64_t>(read->programs[actor.program].calls.size());
    if (actors::IsGraph(read->graphs, num_kernels, actor.timing.time_ns))
      bytes += num_kernels * kBytesOfKernel * kGraphsOfAct;
  }
  return bytes;
}

// Returns the bytes of the arena of `beside` without the weights that it shares with `own`. An
// evaluation of averages shares none. A plan that cannot be read shares nothing, and the session
// reports the reason.
int64_t ArenaBeside(const proto::RankPlan& own, const proto::RankPlan& beside,
                    const proto::Job& job) {
  if (EvaluatesAverages(job)) return beside.arena_bytes();
  const absl::StatusOr<actors::Plan> owner = actors::PlanFromProto(own);
  absl::StatusOr<actors::Plan> plan = actors::PlanFromProto(beside);
  if (!owner.ok() || !plan.ok()) return beside.arena_bytes();
  actors::ShareWeights(*owner, &*plan);
  return plan->arena_bytes;
}

// Counts a rank that stands for `ranks` ranks of its stage.
struct RankNeed {
  RankId rank;
  int64_t bytes = 0, beside_bytes = 0, graph_bytes = 0;  // as in MemoryNeed
};
void Count(const RankNeed& of, int64_t ranks, int64_t stage, MemoryNeed* need) {
  need->all_bytes += static_cast<double>(of.bytes) * static_cast<double>(ranks);
  int64_t& of_stage = need->bytes_of_stage[stage];
  of_stage = std::max(of_stage, of.bytes);
  if (of.bytes <= need->bytes) return;
  need->rank = of.rank;
  need->bytes = of.bytes;
  need->beside_bytes = of.beside_bytes;
  need->graph_bytes = of.graph_bytes;
}

// Returns the need of the ranks of `plan` and, unless `evaluation` is null, of the ranks of
// `evaluation` beside them.
absl::StatusOr<NeedAndPlans> NeedBeside(const compiler::LogicalPlan& plan,
                                        const compiler::LogicalPlan* evaluation, int threads_asked,
                                        const live::TellDoing& tell) {
  NeedAndPlans of;
  const int threads = ThreadsPerDevice(*plan.job, threads_asked, plan.places.num_ranks());
  StageWorkspaces own_workspaces(threads), beside_workspaces(threads);
  const std::map<RankId, int64_t> looked_at = RanksLookedAt(plan);
  for (const auto& [rank, ranks] : looked_at) {
    tell({"lowering ranks to find their memory", static_cast<int64_t>(of.plans.size()),
          static_cast<int64_t>(looked_at.size())});
    WEIR_ASSIGN_OR_RETURN(proto::RankPlan own, compiler::LowerForRank(plan, rank));
    int64_t beside_bytes = 0, graph_bytes = GraphBytesOf(own);
    if (evaluation != nullptr) {
      WEIR_ASSIGN_OR_RETURN(const proto::RankPlan beside,
                            compiler::LowerForRank(*evaluation, rank));
      beside_bytes = ArenaBeside(own, beside, *plan.job) + beside_workspaces.Of(beside);
      graph_bytes += GraphBytesOf(beside);
    }
    const int64_t bytes = own.arena_bytes() + own_workspaces.Of(own) + beside_bytes + graph_bytes;
    Count({rank, bytes, beside_bytes, graph_bytes}, ranks, plan.places.PlaceOf(rank), &of.need);
    of.plans.emplace(rank, std::move(own));
  }
  return of;
}

// Returns whether the first rank of a stage has the weights of `beside` where the plans that stand
// for both have them: two weights of the plans have one name exactly if the weights of the stage in
// their places have one name.
bool WeightsStandAlike(const compiler::FirstRank& own, const compiler::FirstRank& beside) {
  std::map<std::string, std::string> place_of;  // by name on the stage: name in the plan
  for (const auto& [name, here] : own.weights) place_of[here] = name;
  return own.plan_stage == beside.plan_stage &&
         std::all_of(beside.weights.begin(), beside.weights.end(), [&](const auto& weight) {
           const auto place = place_of.find(weight.second);
           return place == place_of.end() ? own.weights.count(weight.first) == 0
                                          : place->second == weight.first;
         });
}

// FirstRankNeeds counts the need of jobs of which one rank of each stage is looked at. Stages of
// equal work share plans, and what is read of the plans.
class FirstRankNeeds {
 public:
  // `evaluation` may be null.
  FirstRankNeeds(const compiler::LogicalPlan& plan, const compiler::LogicalPlan* evaluation)
      : plan_(plan),
        evaluation_(evaluation),
        threads_(ThreadsPerDevice(*plan.job, 0, plan.places.num_ranks())) {}

  absl::StatusOr<MemoryNeed> Count() {
    WEIR_ASSIGN_OR_RETURN(const std::vector<compiler::FirstRank> own,
                          compiler::LowerFirstRanks(plan_));
    std::vector<compiler::FirstRank> beside;
    if (evaluation_ != nullptr) {
      WEIR_ASSIGN_OR_RETURN(beside, compiler::LowerFirstRanks(*evaluation_));
    }
    MemoryNeed need;
    for (const auto& [rank, ranks] : RanksLookedAt(plan_)) {
      const int64_t stage = plan_.places.PlaceOf(rank);
      const compiler::FirstRank& here = own[stage];
      int64_t beside_bytes = 0, graph_bytes = own_graphs_.Of(here);
      if (evaluation_ != nullptr) {
        WEIR_ASSIGN_OR_RETURN(beside_bytes, ArenaBesideOf(rank, here, beside[stage]));
        beside_bytes += beside_workspaces_.Of(beside[stage]);
        graph_bytes += beside_graphs_.Of(beside[stage]);
      }
      const int64_t bytes =
          here.arena_bytes + own_workspaces_.Of(here) + beside_bytes + graph_bytes;
      train::Count({rank, bytes, beside_bytes, graph_bytes}, ranks, stage, &need);
    }
    return need;
  }

 private:
  class Graphs {
   public:
    int64_t Of(const compiler::FirstRank& rank) {
      const auto [known, is_new] = by_stage_.try_emplace(rank.plan_stage, 0);
      if (is_new) known->second = GraphBytesOf(*rank.plan);
      return known->second;
    }

   private:
    std::map<int64_t, int64_t> by_stage_;  // whose plan counts
  };

  absl::StatusOr<int64_t> ArenaBesideOf(RankId rank, const compiler::FirstRank& own,
                                        const compiler::FirstRank& beside) {
    if (!WeightsStandAlike(own, beside) || beside.arena_bytes != beside.plan->arena_bytes()) {
      WEIR_ASSIGN_OR_RETURN(const proto::RankPlan training, compiler::LowerForRank(plan_, rank));
      WEIR_ASSIGN_OR_RETURN(const proto::RankPlan evaluation,
                            compiler::LowerForRank(*evaluation_, rank));
      return ArenaBeside(training, evaluation, *plan_.job);
    }
    const auto [known, is_new] = arenas_beside_.try_emplace(own.plan_stage, 0);
    if (is_new) known->second = ArenaBeside(*own.plan, *beside.plan, *plan_.job);
    return known->second;
  }

  const compiler::LogicalPlan& plan_;
  const compiler::LogicalPlan* const evaluation_;
  const int threads_;
  StageWorkspaces own_workspaces_{threads_}, beside_workspaces_{threads_};
  Graphs own_graphs_, beside_graphs_;
  std::map<int64_t, int64_t> arenas_beside_;  // by the stage whose plans count
};

// Compiles the evaluation beside a training, if there is one.
absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> EvaluationBeside(
    const compiler::LogicalPlan& plan, Beside beside) {
  if (beside == Beside::kNothing) return nullptr;
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  return compiler::CompileJob(EvaluationJob(*plan.job), options);
}

absl::StatusOr<MemoryNeed> NeedOfJob(const proto::Job& job, compiler::PlanMode mode,
                                     Beside beside) {
  compiler::CompileOptions options;
  options.mode = mode;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<compiler::LogicalPlan> plan,
                        compiler::CompileJob(job, options));
  return NeedOf(*plan, beside);
}

// A way to need less, as the user would write it.
struct Change {
  std::string text;
  std::function<void(proto::Job*)> make;
};

void AddRecomputation(const proto::Job& job, std::vector<Change>* changes) {
  std::vector<std::string> names;
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) names.push_back(function.name());
  }
  const auto make = [names](proto::Job* changed) {
    changed->mutable_runtime()->clear_recompute();
    for (const std::string& name : names)
      changed->mutable_runtime()->add_recompute()->set_function(name);
  };
  if (!names.empty())
    changes->push_back({absl::StrCat("runtime.recompute of ", absl::StrJoin(names, ", ")), make});
}

void AddZero(const compiler::LogicalPlan& plan, std::vector<Change>* changes) {
  const compiler::TrainingSettings& training = plan.settings.training;
  const int index = plan.stage_mesh.AxisIndex(training.zero_axis);
  if (index < 0 || plan.stage_mesh.size(index) < 2) return;
  for (int stage = std::max(0, training.zero_stage) + 1; stage <= 3; ++stage) {
    changes->push_back({absl::StrCat("training.zero_stage=", stage), [stage](proto::Job* job) {
                          job->mutable_training()->set_zero_stage(stage);
                        }});
  }
}

void AddMicroBatches(const compiler::LogicalPlan& plan, std::vector<Change>* changes) {
  const auto dims = compiler::ImportDimTable(*plan.job);
  if (!dims.ok()) return;
  const absl::StatusOr<std::string> batch = compiler::BatchDim(*plan.job, *dims);
  if (!batch.ok()) return;
  for (const proto::Dim& dim : plan.job->graph().dim()) {
    if (dim.name() != *batch) continue;
    for (int64_t factor = 2; factor <= kMicroBatchesMost; factor *= 2) {
      const int64_t more = plan.micro_batches * factor;
      if (more > dim.size() || dim.size() % more != 0) break;
      changes->push_back({absl::StrCat("training.micro_batches=", more), [more](proto::Job* job) {
                            job->mutable_training()->set_micro_batches(more);
                          }});
    }
  }
}

std::vector<Change> Changes(const compiler::LogicalPlan& plan) {
  std::vector<Change> changes;
  AddMicroBatches(plan, &changes);
  AddZero(plan, &changes);
  AddRecomputation(*plan.job, &changes);
  if (plan.settings.runtime.registers != compiler::RegisterChoice::kOne) {
    changes.push_back({"runtime.registers=ONE", [](proto::Job* job) {
                         job->mutable_runtime()->set_registers(proto::Runtime::ONE);
                       }});
  }
  return changes;
}

// The changes that help, each with what it gives.
std::vector<std::string> Remedies(const compiler::LogicalPlan& plan, Beside beside,
                                  const MemoryNeed& need, const MemoryBudget& budget) {
  std::vector<std::string> remedies;
  const bool of_device = !FitsDevice(need, budget);
  const auto measure = [&](const std::string& text, const proto::Job& job) {
    const absl::StatusOr<MemoryNeed> then = NeedOfJob(job, plan.mode, beside);
    if (!then.ok()) return false;  // the job does not allow it
    const double before = of_device ? static_cast<double>(need.bytes) : need.all_bytes;
    const double after = of_device ? static_cast<double>(then->bytes) : then->all_bytes;
    if (after >= before) return false;
    remedies.push_back(
        absl::StrCat(text, " (needs ", Text(after), Fits(*then, budget) ? ", fits)" : ")"));
    return true;
  };
  proto::Job all = *plan.job;
  for (const Change& change : Changes(plan)) {
    proto::Job job = *plan.job;
    change.make(&job);
    if (measure(change.text, job)) change.make(&all);
  }
  if (remedies.size() > 1) measure("all together", all);
  if (remedies.empty()) remedies.push_back("smaller dimensions, or more devices");
  return remedies;
}

std::string LargestTensors(const compiler::LogicalPlan& plan, RankId rank) {
  const absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, rank);
  if (!lowered.ok()) return "";
  std::vector<std::string> tensors;
  for (const auto& tensor :
       compiler::ViewMemory(*lowered, /*columns_max=*/0, kTensorsNamed).largest) {
    // A register of several values has the names of all.
    const std::string first = tensor.name.substr(0, tensor.name.find(", "));
    tensors.push_back(
        absl::StrCat("`", first, first.size() < tensor.name.size() ? ", …` " : "` ",
                     Text(static_cast<double>(tensor.bytes)),
                     tensor.slots > 1 ? absl::StrCat(" in ", tensor.slots, " slots") : ""));
  }
  return absl::StrCat(", the largest: ", absl::StrJoin(tensors, ", "));
}

// Returns " (19.0 KiB of it for evaluation)", or "" if no evaluation stands beside the training.
std::string EvaluationText(const MemoryNeed& need) {
  if (need.beside_bytes <= 0) return "";
  return absl::StrCat(" (", Text(static_cast<double>(need.beside_bytes)), " of it for evaluation)");
}

}  // namespace

MemoryBudget BudgetOf(const proto::Job& job) {
  if (job.runtime().device() == kGpus) return BudgetOnGpus(job);
  const limits::MachineMemory memory = limits::OwnMachineMemory();
  return {job.runtime().memory_bytes_max(), memory.bytes,
          memory.is_of_control_group ? "the control group of this process" : "this machine"};
}

absl::StatusOr<MemoryNeed> NeedOf(const compiler::LogicalPlan& plan, Beside beside) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> evaluation,
                        EvaluationBeside(plan, beside));
  if (AreFirstRanksEnough(plan)) return FirstRankNeeds(plan, evaluation.get()).Count();
  WEIR_ASSIGN_OR_RETURN(const NeedAndPlans of, NeedBeside(plan, evaluation.get(), 0, TellNobody));
  return of.need;
}

absl::StatusOr<MemoryNeed> NeedOf(const compiler::LogicalPlan& plan) {
  return NeedOf(plan, BesideOf(plan));
}

absl::StatusOr<NeedAndPlans> NeedAndPlansOf(const compiler::LogicalPlan& plan, Beside beside) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> evaluation,
                        EvaluationBeside(plan, beside));
  return NeedBeside(plan, evaluation.get(), 0, TellNobody);
}

absl::StatusOr<NeedAndPlans> NeedAndPlansOf(const compiler::LogicalPlan& plan) {
  return NeedAndPlansOf(plan, BesideOf(plan));
}

MemoryNeed NeedOf(const std::vector<proto::RankPlan>& plans, int threads_per_device) {
  MemoryNeed need;
  StageWorkspaces workspaces(threads_per_device);
  for (const proto::RankPlan& plan : plans) {
    const int64_t bytes = plan.arena_bytes() + workspaces.Of(plan);
    need.all_bytes += static_cast<double>(bytes);
    if (bytes <= need.bytes) continue;
    need.rank = RankId(static_cast<int32_t>(plan.rank()));
    need.bytes = bytes;
  }
  return need;
}

void AddDriver(int64_t bytes_per_device, int64_t num_ranks, MemoryNeed* need) {
  need->driver_bytes = bytes_per_device;
  need->bytes += bytes_per_device;
  need->all_bytes += static_cast<double>(bytes_per_device) * static_cast<double>(num_ranks);
  for (auto& [stage, bytes] : need->bytes_of_stage) bytes += bytes_per_device;
}

double CheckpointCopyBytes(const std::map<RankId, proto::RankPlan>& plans) {
  std::map<std::string, double> bytes_of;
  for (const auto& [rank, plan] : plans) {
    for (const proto::StateSpec& state : plan.state()) {
      const proto::TensorSliceProto& slice = state.slice();
      const std::optional<DType> dtype = DTypeFromName(slice.dtype());
      if (state.state_class() == proto::StateSpec::FETCHED || !dtype.has_value()) continue;
      double bytes = static_cast<double>(SizeOf(*dtype));
      for (const int64_t size : slice.global_shape().empty() ? slice.shape() : slice.global_shape())
        bytes *= static_cast<double>(size);
      bytes_of[state.name()] = bytes;
    }
  }
  double all = 0;
  for (const auto& [name, bytes] : bytes_of) all += bytes;
  return all;
}

bool Fits(const MemoryNeed& need, const MemoryBudget& budget) {
  return FitsDevice(need, budget) && FitsMachine(need, budget);
}

absl::Status CheckNeed(const compiler::LogicalPlan& plan, Beside beside, const MemoryNeed& need,
                       const MemoryBudget& budget) {
  if (Fits(need, budget)) return absl::OkStatus();
  const std::string remedies = absl::StrJoin(Remedies(plan, beside, need, budget), "; ");
  const std::string evaluation = EvaluationText(need);
  const std::string largest = LargestTensors(plan, need.rank);
  if (!FitsDevice(need, budget)) {
    return Rejected(
        {"W0487", absl::StrCat("memory of rank ", need.rank),
         absl::StrCat("at most ", Text(static_cast<double>(budget.device_bytes)),
                      " (runtime.memory_bytes_max)"),
         absl::StrCat(Text(static_cast<double>(need.bytes)), " planned", evaluation, largest),
         remedies});
  }
  const std::string of_rank = absl::StrCat(
      "; rank ", need.rank, " takes ", Text(static_cast<double>(need.bytes)), evaluation, largest);
  return Rejected({"W0487",
                   plan.places.num_ranks() > 1
                       ? absl::StrCat("memory of all ", plan.places.num_ranks(), " ranks")
                       : "memory of rank 0",
                   absl::StrCat("at most ", Text(static_cast<double>(budget.machine_bytes)), " (",
                                budget.machine, ")"),
                   absl::StrCat(Text(need.all_bytes), " planned", of_rank), remedies});
}

absl::StatusOr<TrainingPlans> CompileTraining(const proto::Job& job, const store::Dataset* dataset,
                                              const compiler::CostModel* costs,
                                              const live::TellDoing& tell) {
  TrainingPlans plans;
  compiler::CompileOptions options;
  options.costs = costs;
  options.on_pass = TellsPasses(tell, options.mode);
  WEIR_ASSIGN_OR_RETURN(plans.training, CompileConfined(job, options));
  if (dataset == nullptr || dataset->num_held_out_batches() == 0) return plans;
  options.mode = compiler::PlanMode::kEvaluate;
  options.on_pass = TellsPasses(tell, options.mode);
  WEIR_ASSIGN_OR_RETURN(plans.evaluation, CompileConfined(EvaluationJob(job), options));
  return plans;
}

absl::StatusOr<NeedAndPlans> NeedOf(const TrainingPlans& plans, int threads_per_device,
                                    const live::TellDoing& tell) {
  return NeedBeside(*plans.training, plans.evaluation.get(), threads_per_device, tell);
}

std::string NeedText(const compiler::LogicalPlan& plan, const MemoryNeed& need,
                     const MemoryBudget& budget) {
  const std::string evaluation = EvaluationText(need);
  const bool several = plan.places.num_ranks() > 1;
  std::string text = Fits(need, budget) ? "fits: " : "DOES NOT FIT: ";
  if (several)
    absl::StrAppend(&text, "all ", CountText(static_cast<double>(plan.places.num_ranks())),
                    " ranks need ", Text(need.all_bytes));
  if (!several) absl::StrAppend(&text, "the job needs ", Text(need.all_bytes), evaluation);
  absl::StrAppend(&text, " of the ", Text(static_cast<double>(budget.machine_bytes)), " of ",
                  budget.machine);
  if (several)
    absl::StrAppend(&text, "; rank ", need.rank, " needs most, ",
                    Text(static_cast<double>(need.bytes)), evaluation);
  if (budget.device_bytes > 0) {
    absl::StrAppend(&text, several ? ", of " : "; a device has ", "at most ",
                    Text(static_cast<double>(budget.device_bytes)), " (runtime.memory_bytes_max)");
  }
  return text;
}

}  // namespace weir::train
