#include "tools/train/prepare_training.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "actors/plan/verify_plans.h"
#include "compiler/job/check_training.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/precision_rules.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/job/zero_weights.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/collective/nccl_library.h"
#include "runtime/collective/nccl_placement.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/checkpoint/transition.h"
#include "tools/launch/placement.h"
#include "tools/train/buddy_memory.h"
#include "tools/train/checkpoint_header.h"
#include "tools/train/earlier_run.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/job_variant.h"
#include "tools/train/output_paths.h"
#include "tools/train/run_folder.h"
#include "tools/train/session_states.h"
#include "tools/train/shared_cores.h"

namespace weir::train {
namespace {

// The number of ranks of a large mesh that are lowered and proven one by one. More ranks would only
// take longer, and each rank takes longer on a larger mesh. When a session opens, it proves the
// ranks that it holds.
int64_t RanksProven(int64_t ranks) {
  return std::min<int64_t>(ranks, std::clamp<int64_t>(16384 / ranks, 1, 64));
}

// A run without steps is only useful to write weights: the first weights, or those of a checkpoint.
absl::Status CheckSteps(const proto::Job& job, const TrainOptions& options) {
  if (job.training().steps() > 0 || !options.save.empty() || !options.checkpoint.empty())
    return absl::OkStatus();
  return Rejected(
      {"W0924", "training.steps", "at least 1 step to train", "0, or none",
       "training { steps: 100 }, or --steps 100; --steps 0 is for writing weights, with --save"});
}

// Reads the first and the last row of a feed's slice at `position`, as ranks will do.
absl::Status ReadEnds(const store::Dataset& dataset, const std::string& feed,
                      const store::BatchPosition& position, const sbp::TensorType& type) {
  TensorSlice row = TensorSlice::Whole(type.dtype, type.shape());
  const bool has_rows = !row.shape.empty();
  const int64_t last = has_rows ? row.global_shape[0] - 1 : 0;
  if (has_rows) row.shape[0] = 1;
  std::vector<char> memory(static_cast<size_t>(row.bytes()));
  for (const int64_t at : {int64_t{0}, last}) {
    if (has_rows) row.offset[0] = at;
    WEIR_RETURN_IF_ERROR(dataset.Fill(feed, position, row, memory.data()));
  }
  return absl::OkStatus();
}

// Reads every feed of `plan`, at the start of the first of `batches` batches and at the end of the
// last.
absl::Status TryFeeds(const compiler::LogicalPlan& plan, const store::Dataset& dataset,
                      store::DataPart part, int64_t batches) {
  const std::string where = part == store::DataPart::kTrain ? "training data" : "held-out data";
  for (const compiler::ProgramItem& item : plan.module.items) {
    if (item.kind != compiler::ItemKind::kSource) continue;
    const sbp::TensorType& type = plan.module.values[item.outputs[0]].type;
    for (const store::BatchPosition& position :
         {store::BatchPosition{part, 0, 0, plan.micro_batches},
          store::BatchPosition{part, batches - 1, plan.micro_batches - 1, plan.micro_batches}}) {
      WEIR_RETURN_IF_ERROR(At(where, ReadEnds(dataset, item.feed, position, type)));
    }
  }
  return absl::OkStatus();
}

// Makes the proofs that a session makes for its ranks' plans.
absl::Status ProvePlans(const compiler::LogicalPlan& plan,
                        const std::map<RankId, proto::RankPlan>& lowered,
                        const live::TellDoing& tell, PreparedTraining* prepared) {
  std::vector<actors::Plan> plans;
  const auto add = [&](const proto::RankPlan& rank_plan) -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(actors::Plan loaded, actors::PlanFromProto(rank_plan));
    WEIR_RETURN_IF_ERROR(actors::CheckCertificate(loaded));
    plans.push_back(std::move(loaded));
    if (plan.mode == compiler::PlanMode::kTrain)
      prepared->actors = std::max<int64_t>(prepared->actors, rank_plan.actor_size());
    return absl::OkStatus();
  };
  const char* const what = plan.mode == compiler::PlanMode::kTrain
                               ? "proving the training plan, rank by rank"
                               : "proving the evaluation plan, rank by rank";
  int64_t num_proven = RanksProven(plan.places.num_ranks());
  for (const auto& [rank, rank_plan] : lowered)
    num_proven += rank.value() >= RanksProven(plan.places.num_ranks()) ? 1 : 0;
  for (const auto& [rank, rank_plan] : lowered) {
    tell({what, static_cast<int64_t>(plans.size()), num_proven});
    WEIR_RETURN_IF_ERROR(add(rank_plan));
  }
  for (int32_t rank = 0; rank < RanksProven(plan.places.num_ranks()); ++rank) {
    if (lowered.count(RankId(rank)) > 0) continue;
    tell({what, static_cast<int64_t>(plans.size()), num_proven});
    WEIR_ASSIGN_OR_RETURN(const proto::RankPlan rank_plan,
                          compiler::LowerForRank(plan, RankId(rank)));
    WEIR_RETURN_IF_ERROR(add(rank_plan));
  }
  std::sort(plans.begin(), plans.end(),
            [](const actors::Plan& a, const actors::Plan& b) { return a.rank < b.rank; });
  if (static_cast<int64_t>(plans.size()) == plan.places.num_ranks())
    return actors::VerifyPlans(plans);
  return actors::VerifyLocalPlans(plans);
}

MemoryBudget BudgetFor(const proto::Job& job, PrepareScope::Machine machine) {
  MemoryBudget budget = BudgetOf(job);
  if (machine == PrepareScope::Machine::kAny)
    budget.machine_bytes = std::numeric_limits<int64_t>::max();
  return budget;
}

// Returns the weights and states of all ranks that were checked. These include a rank of each
// stage.
std::map<std::string, StateType> StatesOfPlans(const std::map<RankId, proto::RankPlan>& plans) {
  std::map<std::string, StateType> states;
  for (const auto& [rank, plan] : plans) {
    for (const proto::StateSpec& state : plan.state()) {
      const proto::TensorSliceProto& slice = state.slice();
      const auto& shape = slice.global_shape().empty() ? slice.shape() : slice.global_shape();
      const std::optional<DType> dtype = DTypeFromName(slice.dtype());
      const std::optional<actors::StateClass> state_class = actors::FromProto(state.state_class());
      if (dtype.has_value() && state_class.has_value())
        states[state.name()] = {*dtype, Shape(shape.begin(), shape.end()), *state_class};
    }
  }
  return states;
}

// Opens the file, or the folder, and takes it through the transition gate with its values.
absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenSound(
    const std::string& path, std::vector<std::string>* notes,
    weights::Values values = weights::Values::kWeights) {
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        weights::OpenValues(path, values));
  checkpoint::TransitionOptions options;
  options.purpose = checkpoint::TransitionOptions::Purpose::kKeep;
  options.depth = checkpoint::TransitionOptions::Depth::kContentsIfHere;
  WEIR_ASSIGN_OR_RETURN(const checkpoint::Contents contents,
                        checkpoint::CheckTransition(*file, options));
  switch (contents) {
    case checkpoint::Contents::kChecked: break;
    case checkpoint::Contents::kNotRead:
      notes->push_back(
          absl::StrCat(file->shards()->folder(),
                       " is large or on several hosts: each rank checks the bytes that it reads, "
                       "and `weir checkpoint verify` checks all of them"));
      break;
    case checkpoint::Contents::kHaveNoChecksums:
      notes->push_back(path + " carries no checksums: its values are unverified");
      break;
  }
  return file;
}

class Preparation {
 public:
  Preparation(const proto::Job& job, const TrainOptions& options, const PrepareScope& scope)
      : job_(job),
        options_(options),
        scope_(scope),
        tell_([live = options.live](const live::Doing& doing) {
          if (live != nullptr) live->SetDoing(doing);
        }) {}

  absl::StatusOr<PreparedTraining> Run() {
    WEIR_RETURN_IF_ERROR(compiler::CheckHasLoss(job_));
    WEIR_RETURN_IF_ERROR(CheckOptions(options_));
    if (scope_.data == PrepareScope::Data::kOpen) {
      WEIR_ASSIGN_OR_RETURN(prepared_.dataset, OpenJobData(job_));
    }
    WEIR_ASSIGN_OR_RETURN(prepared_.plans,
                          CompileTraining(job_, prepared_.dataset.get(), options_.costs, tell_));
    WEIR_RETURN_IF_ERROR(compiler::CheckLearningRates(job_.training()));
    WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*prepared_.plans.training));
    for (std::string& sentence : compiler::DevicesWithoutWork(*prepared_.plans.training))
      prepared_.warnings.push_back(std::move(sentence));
    for (std::string& sentence : compiler::PrecisionRulesWithoutUse(*prepared_.plans.training))
      prepared_.warnings.push_back(std::move(sentence));
    WarnOfZeroWeights();
    if (options_.processes > 0) {
      const int ranks = static_cast<int>(prepared_.plans.training->places.num_ranks());
      WEIR_RETURN_IF_ERROR(launch::PlaceRanks(ranks, options_.processes).status());
    }
    WEIR_RETURN_IF_ERROR(
        CheckCollectives(job_, static_cast<int>(prepared_.plans.training->places.num_ranks()),
                         options_.processes, options_.hosts, machine()));
    if (machine() == PrepareScope::Machine::kThis) {
      WEIR_RETURN_IF_ERROR(CheckMachine(*prepared_.plans.training, options_.threads_per_device));
      NoteSharedCores(prepared_.plans.training->places.num_ranks());
    }
    WEIR_RETURN_IF_ERROR(CheckPlans());
    if (prepared_.dataset != nullptr) WEIR_RETURN_IF_ERROR(CheckData());
    if (scope_.files != PrepareScope::Files::kLeave)
      WEIR_RETURN_IF_ERROR(CheckOutputPaths(job_, options_));
    if (scope_.files == PrepareScope::Files::kCheck) WEIR_RETURN_IF_ERROR(TryOutputs(options_));
    WEIR_RETURN_IF_ERROR(CheckSteps(job_, options_));
    return std::move(prepared_);
  }

 private:
  // Other hosts check themselves.
  PrepareScope::Machine machine() const {
    return options_.hosts > 0 ? PrepareScope::Machine::kAny : scope_.machine;
  }

  void WarnOfZeroWeights() {
    if (!options_.init.empty() || !options_.resume.empty()) return;  // a file gives the values
    std::string warning = compiler::WeightsWithoutInit(prepared_.plans.training->module);
    if (!warning.empty()) prepared_.warnings.push_back(std::move(warning));
  }

  void NoteSharedCores(int64_t devices) {
    if (std::string note = SharedCoresText(devices, NumCores()); !note.empty())
      prepared_.notes.push_back(std::move(note));
  }

  absl::Status CheckPlans() {
    const compiler::LogicalPlan& plan = *prepared_.plans.training;
    WEIR_ASSIGN_OR_RETURN(NeedAndPlans of,
                          NeedOf(prepared_.plans, options_.threads_per_device, tell_));
    AddDriver(options_.driver_bytes, plan.places.num_ranks(), &of.need);
    const Beside beside =
        prepared_.plans.evaluation != nullptr ? Beside::kEvaluation : Beside::kNothing;
    WEIR_RETURN_IF_ERROR(CheckNeed(plan, beside, of.need, BudgetFor(job_, machine())));
    prepared_.bytes_per_device = of.need.bytes;
    for (int32_t rank = 0; rank < plan.places.num_ranks(); ++rank)
      prepared_.bytes_of_rank.push_back(
          of.need.bytes_of_stage.at(plan.places.PlaceOf(RankId(rank))));
    WEIR_RETURN_IF_ERROR(ProvePlans(plan, of.plans, tell_, &prepared_));
    if (prepared_.plans.evaluation != nullptr)
      WEIR_RETURN_IF_ERROR(ProvePlans(*prepared_.plans.evaluation, {}, tell_, &prepared_));
    NoteCopies(CheckpointCopyBytes(of.plans), of.need.all_bytes);
    if (std::string warning = BuddyWarning(plan, of, BudgetFor(job_, machine())); !warning.empty())
      prepared_.warnings.push_back(std::move(warning));
    if (scope_.files == PrepareScope::Files::kLeave) return absl::OkStatus();
    return CheckInputs(StatesOfPlans(of.plans));
  }

  // Checks the files that give weights: their headers, and their values by checksums.
  absl::Status CheckInputs(const std::map<std::string, StateType>& states) {
    if (!options_.init.empty()) {
      WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                            OpenSound(options_.init, &prepared_.notes, options_.init_values));
      WEIR_ASSIGN_OR_RETURN(
          const weights::MappedWeights mapped,
          weights::MapWeights(std::move(file), {"", options_.job_file}, WeightTypesOf(states)));
      if (mapped.shared_map() != nullptr)
        prepared_.notes.push_back(absl::StrCat(
            "the names in ", options_.init, " are those of the map ", mapped.shared_map()->name()));
      if (mapped.CountFreshAdapters(WeightTypesOf(states)) > 0)
        prepared_.notes.push_back(
            absl::StrCat(options_.init, " has no adapters, so they begin with their first values"));
    }
    if (options_.resume.empty()) {
      WarnOfEarlierCheckpoint();
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const store::SafetensorsReader> file,
                          OpenSound(options_.resume, &prepared_.notes));
    WEIR_RETURN_IF_ERROR(CheckIsCheckpoint(*file));
    const store::CheckpointFacts facts = checkpoint::FactsIn(*file);
    WEIR_RETURN_IF_ERROR(CheckResume(job_, options_.resume, facts));
    WEIR_RETURN_IF_ERROR(CheckCheckpoint(*file, states));
    prepared_.first_step = facts.step;
    prepared_.sample_offset = SampleOffset(facts, SamplesPerStep(job_));
    NoteCursor(facts);
    WarnOfEarlierCheckpoint();
    if (std::string change = ScheduleChange(job_, facts); !change.empty())
      prepared_.warnings.push_back(std::move(change));
    if (std::string change = SeedChange(job_, facts); !change.empty())
      prepared_.warnings.push_back(std::move(change));
    return absl::OkStatus();
  }

  // Says how much memory checkpoints need beside the `plan_bytes` of all ranks.
  void NoteCopies(double bytes, double plan_bytes) {
    if (!IsFolderPath(options_.checkpoint)) return;
    prepared_.notes.push_back(
        absl::StrCat("checkpoints copy the states into memory beside the plan's, ",
                     BytesText(bytes), " over all processes"));
    const MemoryBudget budget = BudgetFor(job_, machine());
    const bool is_in_one_memory = job_.runtime().device() != "cuda";
    if (!is_in_one_memory || bytes + plan_bytes <= static_cast<double>(budget.machine_bytes))
      return;
    prepared_.warnings.push_back(absl::StrCat(
        "the job and the copy of its states for checkpoints need ", BytesText(bytes + plan_bytes),
        " of the ", BytesText(static_cast<double>(budget.machine_bytes)), " of ", budget.machine,
        "; a file, as in --checkpoint c.safetensors, needs no copy"));
  }

  // Says where the run goes on in its data, if the step alone does not say so.
  void NoteCursor(const store::CheckpointFacts& facts) {
    const int64_t samples = SamplesPerStep(job_);
    if (prepared_.sample_offset == 0) return;
    prepared_.notes.push_back(absl::StrCat(
        "the run goes on after the ", Plural(facts.cursor->samples, "sample"), " of its first ",
        Plural(facts.step, "step"), ", and a step now has ", Plural(samples, "sample")));
  }

  void WarnOfEarlierCheckpoint() {
    const std::string& path = options_.checkpoint;
    if (IsFolderPath(path)) {
      WarnOfEarlierFolder(path);
      return;
    }
    const std::optional<int64_t> step = FindEarlierRun(path, prepared_.first_step);
    if (!step.has_value()) return;
    prepared_.warnings.push_back(
        absl::StrCat(path, " holds a checkpoint of step ", *step,
                     ", and this run begins with step ", prepared_.first_step + 1,
                     ". A checkpoint of this run with fewer steps replaces the file, which "
                     "is then kept as ",
                     path, ".before. To go on from the file: --resume ", path));
  }

  void WarnOfEarlierFolder(const std::string& path) {
    const std::vector<int64_t> steps = store::CommittedSteps(path);
    if (steps.empty() || steps.back() <= prepared_.first_step) return;
    const std::string resumed = store::WithoutSlashes(options_.resume);
    const std::string directory = store::WithoutSlashes(path);
    if (resumed == directory || store::FolderAround(resumed) == directory) {
      prepared_.warnings.push_back(absl::StrCat(
          path, " has checkpoints of later steps, up to step ", steps.back(),
          ": this run replaces each one whose step it writes again, and leaves the others"));
      return;
    }
    prepared_.warnings.push_back(absl::StrCat(
        path, " holds checkpoints up to step ", steps.back(), ", and this run begins with step ",
        prepared_.first_step + 1,
        ". `latest` will name those of this run, and a checkpoint of this run replaces that of the "
        "same step. The others stay",
        options_.keep > 0 ? ", and --keep does not count them" : "",
        options_.resume.empty() ? absl::StrCat(". To go on from the latest: --resume ", path)
                                : ""));
  }

  absl::Status CheckData() {
    const int64_t steps = std::max<int64_t>(1, job_.training().steps());
    WEIR_RETURN_IF_ERROR(
        TryFeeds(*prepared_.plans.training, *prepared_.dataset, store::DataPart::kTrain, steps));
    if (prepared_.plans.evaluation == nullptr) return absl::OkStatus();
    return TryFeeds(*prepared_.plans.evaluation, *prepared_.dataset, store::DataPart::kHeldOut,
                    EvaluationBatches(job_, *prepared_.dataset));
  }

  const proto::Job& job_;
  const TrainOptions& options_;
  const PrepareScope& scope_;
  const live::TellDoing tell_;
  PreparedTraining prepared_;
};

constexpr int kRanksOfNcclMax = 1 << 20;

// NCCL needs a process and a GPU for each rank. What this machine has counts if it runs the job.
absl::Status CheckNccl(const proto::Job& job, int num_ranks, int processes, int hosts,
                       PrepareScope::Machine machine) {
  if (processes == 0) processes = hosts > 0 ? num_ranks : 1;
  collective::NcclPlacement placement;
  placement.device_kind = job.runtime().device();
  placement.num_ranks = placement.devices_on_host = num_ranks;
  placement.ranks_here = (num_ranks + processes - 1) / processes;
  const auto num_gpus = machine == PrepareScope::Machine::kThis
                            ? static_cast<int>(device::FindGpus().gpus.size())
                            : 0;
  if (num_gpus > 0) placement.num_gpus = num_gpus;  // CheckMachine says why there are none
  WEIR_RETURN_IF_ERROR(CheckNcclPlacement(placement));
  return num_gpus > 0 ? collective::NcclLibrary::Open().status() : absl::OkStatus();
}

}  // namespace

int64_t EvaluationBatches(const proto::Job& job, const store::Dataset& dataset) {
  const int64_t batches = dataset.num_held_out_batches();
  return job.training().eval_batches() > 0 ? std::min(batches, job.training().eval_batches())
                                           : batches;
}

absl::Status CheckCollectives(const proto::Job& job, int num_ranks, int processes, int hosts,
                              PrepareScope::Machine machine) {
  const proto::Runtime::Collectives asked = job.runtime().collectives();
  if (asked == proto::Runtime::EXCHANGES || asked == proto::Runtime::AUTO || num_ranks == 1)
    return absl::OkStatus();
  if (asked == proto::Runtime::NCCL && job.runtime().device() == "cuda")
    return CheckNccl(job, num_ranks, processes, hosts, machine);
  if (processes == 1 || (processes == 0 && hosts == 0)) return absl::OkStatus();
  return Rejected({"W0955", "runtime.collectives", "EXCHANGES between processes",
                   absl::StrCat(proto::Runtime::Collectives_Name(asked), " with ",
                                processes > 0 ? absl::StrCat(processes, " processes")
                                              : std::string("processes on hosts")),
                   "--processes 1, or runtime.collectives=EXCHANGES"});
}

std::string ObstacleToNccl(const proto::Job& job, int processes, int hosts,
                           PrepareScope::Machine machine) {
  proto::Job with_nccl;  // of the job, its runtime alone counts
  *with_nccl.mutable_runtime() = job.runtime();
  with_nccl.mutable_runtime()->set_collectives(proto::Runtime::NCCL);
  const auto num_ranks = static_cast<int>(compiler::NumDevices(job, kRanksOfNcclMax + 1));
  if (num_ranks > kRanksOfNcclMax) return "";  // refused later
  const absl::Status status = CheckCollectives(with_nccl, num_ranks, processes, hosts, machine);
  if (status.ok()) return "";
  const std::optional<Problem> problem = ProblemOf(status);
  return problem.has_value() ? problem->found : std::string(status.message());
}

absl::Status CheckOptions(const TrainOptions& options) {
  if (!options.init.empty() && !options.resume.empty()) {
    return Rejected({"W0074", "--init and --resume", "one of them", "both",
                     "--resume alone: a checkpoint holds the weights"});
  }
  const bool is_repeated = options.checkpoint_every > 0 || options.checkpoint_every_seconds > 0;
  if (is_repeated && options.checkpoint.empty()) {
    return Rejected({"W0074", "--checkpoint-every", "--checkpoint PATH beside it", "no path", ""});
  }
  if (IsFolderPath(options.checkpoint)) return absl::OkStatus();
  for (const auto& [flag, value] :
       {std::make_pair("--keep", options.keep), std::make_pair("--keep-every", options.keep_every),
        std::make_pair("--checkpoint-bandwidth", options.checkpoint_bandwidth)}) {
    if (value <= 0) continue;
    return Rejected(
        {"W0074", flag, "--checkpoint with a folder beside it",
         options.checkpoint.empty() ? "no path" : "the file " + options.checkpoint,
         absl::StrCat("--checkpoint ", options.checkpoint.empty() ? "DIR" : options.checkpoint,
                      "/, whose / at the end says that it is a folder")});
  }
  return absl::OkStatus();
}

absl::StatusOr<PreparedTraining> PrepareTraining(const proto::Job& job, const TrainOptions& options,
                                                 const PrepareScope& scope) {
  return Preparation(job, options, scope).Run();
}

absl::StatusOr<PreparedEvaluation> PrepareEvaluation(const proto::Job& job,
                                                     const std::string& weights,
                                                     int threads_per_device,
                                                     const std::string& job_file,
                                                     weights::Values values) {
  PreparedEvaluation prepared;
  std::vector<std::string> notes;
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        OpenSound(weights, &notes, values));
  WEIR_ASSIGN_OR_RETURN(prepared.dataset, OpenJobData(job));
  const int64_t batches = EvaluationBatches(job, *prepared.dataset);
  if (batches == 0) {
    return Rejected({"W0077", "data", "something held out to evaluate on", "nothing",
                     job.data().has_tokens()   ? "data { tokens { held_out: 0.1 } }"
                     : job.data().has_arrays() ? "data { arrays { held_out: 0.1 } }"
                     : job.data().has_idx()    ? "data { idx { test_images test_labels } }"
                     : job.data().has_text()
                         ? "data { text { held_out: 0.1 } }"
                         : "data of files; synthetic data have no held-out part"});
  }
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  WEIR_ASSIGN_OR_RETURN(prepared.plan, CompileConfined(EvaluationJob(job), options));
  WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*prepared.plan));
  WEIR_RETURN_IF_ERROR(CheckMachine(*prepared.plan, threads_per_device));
  WEIR_ASSIGN_OR_RETURN(const NeedAndPlans of, NeedAndPlansOf(*prepared.plan, Beside::kNothing));
  WEIR_RETURN_IF_ERROR(CheckNeed(*prepared.plan, Beside::kNothing, of.need, BudgetOf(job)));
  WEIR_RETURN_IF_ERROR(
      weights::MapWeights(std::move(file), {"", job_file}, WeightTypesOf(StatesOfPlans(of.plans)))
          .status());
  WEIR_RETURN_IF_ERROR(
      TryFeeds(*prepared.plan, *prepared.dataset, store::DataPart::kHeldOut, batches));
  return prepared;
}

}  // namespace weir::train
