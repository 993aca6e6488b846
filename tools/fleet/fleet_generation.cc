#include "tools/fleet/fleet_generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/ir/rhythm_codec.h"
#include "runtime/base/status.h"
#include "tools/fleet/fleet_start.h"
#include "tools/fleet/load_codec.h"
#include "tools/fleet/plan_check.h"
#include "tools/fleet/worker_facts.h"
#include "tools/fleet/worker_generation.h"
#include "tools/train/generation_cache.h"
#include "tools/train/job_session.h"
#include "tools/train/prepare_training.h"

namespace weir::fleet {
namespace {

// The rows of logits in one answer. A vocabulary of 256k tokens then makes 8 MiB of them.
constexpr size_t kRowsPerAnswer = 8;

}  // namespace

absl::Status FleetGeneration::Open(train::GenerationPlan plan,
                                   const train::GenerationOrder& order) {
  const proto::Job& job = *order.job;
  compiler::CompileOptions compile;
  compile.mode = compiler::PlanMode::kGenerate;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> compiled,
                        train::CompileConfined(job, compile));
  WEIR_RETURN_IF_ERROR(
      train::CheckCollectives(job, static_cast<int>(compiled->places.num_ranks()),
                              options_.processes, static_cast<int>(options_.hosts.size()),
                              options_.hosts.empty() ? train::PrepareScope::Machine::kThis
                                                     : train::PrepareScope::Machine::kAny));
  WEIR_ASSIGN_OR_RETURN(const auto bytes_of_rank,
                        CheckPlan(*compiled, threads_, !options_.hosts.empty()));
  if (*fleet_ == nullptr) {
    WEIR_RETURN_IF_ERROR(LaunchFleet(options_, static_cast<int>(compiled->places.num_ranks()),
                                     bytes_of_rank, fleet_));
  }
  Fleet* const fleet = fleet_->get();
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet->num_workers());
  for (const WorkerId worker : fleet->workers()) {
    proto::GenerationCommand* const command = commands[worker].mutable_generation();
    command->set_plan(ToProto(plan));
    *command->mutable_open() =
        OpenCommandFor(*fleet, worker, options_, job, threads_, compiled->plan_id);
    *command->mutable_open()->mutable_rhythm() = compiler::ToProto(compiled->rhythm);
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet->CallEach(commands, Fleet::Watch::kNone));
  WEIR_RETURN_IF_ERROR(CheckInputs(*fleet, options_.inputs, fleet->input_files(), answers));
  WEIR_RETURN_IF_ERROR(CheckProcessors(*fleet, job, answers));
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [](const auto& answer) { return answer.has_logits(); });
  if (found == answers.end()) return absl::InternalError("no worker has the logits");
  row_ends_[plan] = train::CacheRowEnds(*compiled);
  has_logits_[plan] = WorkerId(static_cast<int32_t>(found - answers.begin()));
  fleet->Enter(launch::FailureMoment::kSteps);
  return order.weights == nullptr ? absl::OkStatus() : Load(plan, order, answers);
}

absl::Status FleetGeneration::Load(train::GenerationPlan plan, const train::GenerationOrder& order,
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
    proto::GenerationCommand* const command = commands[worker].mutable_generation();
    command->set_plan(ToProto(plan));
    proto::LoadCommand* const load = command->mutable_load();
    FillLoad(
        load_order, [&](const std::string& path) { return fleet->PathOn(worker, path); }, load);
  }
  return fleet->CallEach(commands, Fleet::Watch::kNone).status();
}

absl::Status FleetGeneration::RunStep(train::GenerationPlan plan, const train::TokenRows& tokens) {
  proto::WorkerCommand command;
  command.mutable_generation()->set_plan(ToProto(plan));
  proto::GenerationCommand::Step* const step = command.mutable_generation()->mutable_step();
  step->set_rows(tokens.rows());
  for (const auto& [name, values] : tokens.values()) {
    proto::GenerationCommand::Input* const input = step->add_input();
    input->set_name(name);
    input->mutable_value()->Add(values.begin(), values.end());
  }
  return (*fleet_)->Call(command, Fleet::Watch::kProgress).status();
}

absl::StatusOr<std::vector<std::vector<float>>> FleetGeneration::Logits(
    train::GenerationPlan plan, const std::vector<int64_t>& rows) {
  Fleet* const fleet = fleet_->get();
  const WorkerId asked = has_logits_.at(plan);
  std::vector<std::vector<float>> logits;
  for (size_t begin = 0; begin < rows.size(); begin += kRowsPerAnswer) {
    const size_t count = std::min(kRowsPerAnswer, rows.size() - begin);
    IdVector<WorkerId, proto::WorkerCommand> commands(fleet->num_workers());
    for (const WorkerId worker : fleet->workers()) {
      proto::GenerationCommand* const command = commands[worker].mutable_generation();
      command->set_plan(ToProto(plan));
      proto::GenerationCommand::Logits* const wanted = command->mutable_logits();
      if (worker == asked) wanted->mutable_row()->Add(&rows[begin], &rows[begin] + count);
    }
    WEIR_ASSIGN_OR_RETURN(const auto answers, fleet->CallEach(commands, Fleet::Watch::kNone));
    const auto& values = answers[asked].logits();
    if (values.empty() || values.size() % static_cast<int>(count) != 0) {
      return absl::InternalError(
          absl::StrCat("a worker sends ", values.size(), " logits for ", count, " rows"));
    }
    const int width = values.size() / static_cast<int>(count);
    for (auto row = values.begin(); row != values.end(); row += width)
      logits.emplace_back(row, row + width);
  }
  return logits;
}

absl::StatusOr<bool> FleetGeneration::CarryCache() {
  proto::WorkerCommand command;
  command.mutable_generation()->set_plan(ToProto(train::GenerationPlan::kSteps));
  command.mutable_generation()->mutable_carry_cache();
  WEIR_ASSIGN_OR_RETURN(const auto answers, (*fleet_)->Call(command, Fleet::Watch::kNone));
  return std::none_of(answers.begin(), answers.end(),
                      [](const auto& answer) { return answer.lacks_cache(); });
}

absl::Status FleetGeneration::Close(train::GenerationPlan plan) {
  proto::WorkerCommand command;
  command.mutable_generation()->set_plan(ToProto(plan));
  command.mutable_generation()->mutable_close();
  return (*fleet_)->Call(command, Fleet::Watch::kNone).status();
}

}  // namespace weir::fleet
