#include "tools/fleet/fleet_outputs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/ir/rhythm_codec.h"
#include "compiler/job/mesh_use.h"
#include "runtime/base/status.h"
#include "tools/fleet/fleet_start.h"
#include "tools/fleet/load_codec.h"
#include "tools/fleet/plan_check.h"
#include "tools/fleet/worker_facts.h"
#include "tools/train/job_session.h"
#include "tools/train/prepare_training.h"

namespace weir::fleet {

absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> FleetOutputs::Open(
    const train::OutputOrder& order) {
  const proto::Job& job = *order.job;
  compiler::CompileOptions compile;
  compile.mode = compiler::PlanMode::kEvaluate;
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const compiler::LogicalPlan> compiled,
                        train::CompileConfined(job, compile));
  WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*compiled));
  const int num_ranks = static_cast<int>(compiled->places.num_ranks());
  WEIR_RETURN_IF_ERROR(train::CheckCollectives(
      job, num_ranks, options_.processes, static_cast<int>(options_.hosts.size()),
      options_.hosts.empty() ? train::PrepareScope::Machine::kThis
                             : train::PrepareScope::Machine::kAny));
  WEIR_ASSIGN_OR_RETURN(const auto bytes_of_rank,
                        CheckPlan(*compiled, threads_, !options_.hosts.empty()));
  WEIR_RETURN_IF_ERROR(LaunchFleet(options_, num_ranks, bytes_of_rank, fleet_));
  Fleet* const fleet = fleet_->get();
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet->num_workers());
  for (const WorkerId worker : fleet->workers()) {
    proto::OutputsCommand* const command = commands[worker].mutable_outputs();
    command->set_in_order(order.use == store::DataUse::kInOrder);
    *command->mutable_open() =
        OpenCommandFor(*fleet, worker, options_, job, threads_, compiled->plan_id);
    *command->mutable_open()->mutable_rhythm() = compiler::ToProto(compiled->rhythm);
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet->CallEach(commands, Fleet::Watch::kNone));
  WEIR_RETURN_IF_ERROR(CheckInputs(*fleet, options_.inputs, fleet->input_files(), answers));
  WEIR_RETURN_IF_ERROR(CheckProcessors(*fleet, job, answers));
  for (const WorkerId worker : answers.ids()) {
    for (const std::string& output : answers[worker].held_output())
      holder_of_.emplace(output, worker);
  }
  fleet->Enter(launch::FailureMoment::kSteps);
  if (order.weights != nullptr) WEIR_RETURN_IF_ERROR(Load(order, answers));
  return compiled;
}

absl::Status FleetOutputs::Load(const train::OutputOrder& order,
                                const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  std::map<std::string, train::StateType> states;
  for (const proto::WorkerAnswer& answer : answers)
    WEIR_RETURN_IF_ERROR(TakeStates(answer, &states));
  weights::WeightTypes types = train::WeightTypesOf(states);
  types.insert(order.unused.begin(), order.unused.end());
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                        weights::MapWeights(order.weights, {"", order.job_file}, types));
  const train::LoadOrder load_order{order.weights->path(), train::StateSet::kWeights,
                                    mapped.shared_map(), mapped.constants(), order.values};
  Fleet* const fleet = fleet_->get();
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet->num_workers());
  for (const WorkerId worker : fleet->workers()) {
    proto::LoadCommand* const load = commands[worker].mutable_outputs()->mutable_load();
    FillLoad(
        load_order, [&](const std::string& path) { return fleet->PathOn(worker, path); }, load);
  }
  return fleet->CallEach(commands, Fleet::Watch::kNone).status();
}

absl::Status FleetOutputs::RunStep() {
  proto::WorkerCommand command;
  command.mutable_outputs()->mutable_step();
  return (*fleet_)->Call(command, Fleet::Watch::kProgress).status();
}

absl::StatusOr<std::string> FleetOutputs::Read(const std::string& output, int64_t begin,
                                               int64_t bytes) {
  const auto holder = holder_of_.find(output);
  if (holder == holder_of_.end())
    return absl::InternalError(absl::StrCat("no worker has output ", output));
  Fleet* const fleet = fleet_->get();
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet->num_workers());
  for (const WorkerId worker : fleet->workers()) {
    proto::OutputsCommand::Read* const read = commands[worker].mutable_outputs()->mutable_read();
    if (worker != holder->second) continue;
    read->set_name(output);
    read->set_begin(begin);
    read->set_bytes(bytes);
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet->CallEach(commands, Fleet::Watch::kNone));
  return answers[holder->second].output();
}

}  // namespace weir::fleet
