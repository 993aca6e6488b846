#include "tools/fleet/fleet_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::fleet {
namespace {

constexpr int64_t kLookMs = 200;  // the length of one wait for workers
// All workers together send at most so many bytes between two bursts of steps.
constexpr int64_t kFetchBytesOfAll = 16 << 20;
constexpr int64_t kFetchBytesMin = 1 << 20;

train::SavedShards NonfiniteOf(const proto::WorkerAnswer& answer) {
  train::SavedShards saved;
  for (const proto::PartFact& part : answer.part())
    saved.nonfinite.emplace(part.name(), part.nonfinite());
  return saved;
}

}  // namespace

absl::Status FleetCheckpoint::Prepare() {
  proto::WorkerCommand command;
  command.mutable_checkpoint()->mutable_prepare();
  return fleet_->Call(command, Fleet::Watch::kNone).status();
}

absl::Status FleetCheckpoint::Begin(const train::CheckpointOrder& order,
                                    const std::map<std::string, train::StateType>& states) {
  parts_ = IdVector<WorkerId, Part>(fleet_->num_workers());
  pace_ = std::make_unique<train::WritePace>(order.bytes_per_second, &clock_);
  WEIR_RETURN_IF_ERROR(commit_.Begin(order, states));
  const absl::Status begun = BeginAll(order, states);
  if (!begun.ok()) GiveUp(begun);
  return begun;
}

// A worker that still wrote would keep a part of the folder, and the space that the part takes.
void FleetCheckpoint::GiveUp(const absl::Status& reason) {
  if (!train::RanksAreGone(reason)) {
    proto::WorkerCommand command;
    command.mutable_checkpoint()->mutable_give_up();
    // The reason is reported, and an error of this command follows from it.
    fleet_->Call(command, Fleet::Watch::kNone).status().IgnoreError();
  }
  for (Part& part : parts_) part.sender.reset();
  commit_.GiveUp();
}

absl::Status FleetCheckpoint::Probe() {
  if (!fleet_->is_spread_over_hosts()) return absl::OkStatus();
  proto::WorkerCommand command;
  std::error_code error;
  command.mutable_checkpoint()->mutable_probe()->set_folder(
      std::filesystem::absolute(commit_.folder(), error).string());
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->Call(command, Fleet::Watch::kNone));
  for (const WorkerId worker : fleet_->workers()) {
    if (!answers[worker].sees_folder()) parts_[worker].sender.emplace();
  }
  return absl::OkStatus();
}

absl::Status FleetCheckpoint::BeginAll(const train::CheckpointOrder& order,
                                       const std::map<std::string, train::StateType>& states) {
  WEIR_RETURN_IF_ERROR(Probe());
  std::error_code error;
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) {
    auto* begin = commands[worker].mutable_checkpoint()->mutable_begin();
    begin->set_directory(std::filesystem::absolute(order.directory, error).string());
    begin->set_step(order.facts.step);
    begin->set_token(commit_.token());
    begin->set_job_id(order.facts.job_id);
    const auto share = static_cast<int64_t>(fleet_->workers().size());
    begin->set_bytes_per_second((order.bytes_per_second + share - 1) / share);
    begin->set_sends(parts_[worker].sender.has_value());
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  for (const WorkerId worker : fleet_->workers()) {
    Part& part = parts_[worker];
    if (part.sender.has_value())
      WEIR_RETURN_IF_ERROR(OpenFiles(answers[worker], states, &*part.sender));
  }
  return absl::OkStatus();
}

absl::Status FleetCheckpoint::OpenFiles(const proto::WorkerAnswer& answer,
                                        const std::map<std::string, train::StateType>& states,
                                        Sender* sender) {
  for (const proto::CheckpointFile& file : answer.file()) {
    std::vector<store::ShardEntry> entries;
    for (const proto::CheckpointShard& shard : file.shard()) {
      const auto state = states.find(shard.tensor());
      if (state == states.end())
        return absl::InternalError(absl::StrCat("a worker sends the state ", shard.tensor()));
      entries.push_back({shard.tensor(), shard.dtype(),
                         Shape(shard.offset().begin(), shard.offset().end()),
                         Shape(shard.shape().begin(), shard.shape().end()), state->second.shape});
    }
    WEIR_ASSIGN_OR_RETURN(
        std::unique_ptr<store::ShardWriter> writer,
        store::ShardWriter::Create({commit_.folder(), file.name(), "", commit_.order().facts.step,
                                    commit_.final_path(), commit_.order().facts.job_id},
                                   entries));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (writer->entries()[i].tensor != entries[i].tensor)
        return absl::InternalError(absl::StrCat(file.name(), " has another order of states"));
    }
    sender->writers.push_back(std::move(writer));
  }
  return absl::OkStatus();
}

bool FleetCheckpoint::IsWritten() const {
  return std::all_of(fleet_->workers().begin(), fleet_->workers().end(),
                     [this](WorkerId worker) { return parts_[worker].is_done; });
}

bool FleetCheckpoint::MayFetch(train::JobRunner::Wait wait) {
  if (wait == train::JobRunner::Wait::kYes) pace_->Lift();
  return pace_->NsToSleep(0) == 0;
}

absl::Status FleetCheckpoint::LookAt(int64_t limit_ms, train::JobRunner::Wait wait) {
  const bool may_fetch = MayFetch(wait);
  if (!may_fetch && wait != train::JobRunner::Wait::kNo) pace_->Spend(0);
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  bool asks = false;
  for (const WorkerId worker : fleet_->workers()) {
    proto::CheckpointCommand* const command = commands[worker].mutable_checkpoint();
    const Part& part = parts_[worker];
    if (part.is_done) continue;
    if (!part.sender.has_value()) {
      command->mutable_look()->set_limit_ms(limit_ms);
      command->mutable_look()->set_lifts_pace(wait == train::JobRunner::Wait::kYes);
    } else if (may_fetch) {
      command->mutable_fetch()->set_begin(part.sender->position);
      command->mutable_fetch()->set_bytes_max(
          std::max(kFetchBytesMin, kFetchBytesOfAll / fleet_->num_workers()));
    } else {
      continue;
    }
    asks = true;
  }
  if (!asks) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  for (const WorkerId worker : fleet_->workers()) {
    const proto::CheckpointCommand& command = commands[worker].checkpoint();
    Part& part = parts_[worker];
    if (command.has_fetch()) WEIR_RETURN_IF_ERROR(TakeBytes(answers[worker], &part));
    if (command.has_look() && answers[worker].is_done())
      WEIR_RETURN_IF_ERROR(TakeFiles(answers[worker], &part));
  }
  return absl::OkStatus();
}

absl::Status FleetCheckpoint::TakeFiles(const proto::WorkerAnswer& answer, Part* part) {
  train::SavedShards saved = NonfiniteOf(answer);
  for (const proto::CheckpointFile& file : answer.file()) {
    WEIR_ASSIGN_OR_RETURN(store::ShardFileRecord record,
                          store::FromProto(file, "the report of a worker"));
    saved.files.push_back(std::move(record));
  }
  part->is_done = true;
  return commit_.Add(std::move(saved));
}

absl::Status FleetCheckpoint::TakeBytes(const proto::WorkerAnswer& answer, Part* part) {
  Sender& sender = *part->sender;
  train::SavedShards saved = NonfiniteOf(answer);
  const char* next = answer.shard_bytes().data();
  int64_t bytes = static_cast<int64_t>(answer.shard_bytes().size());
  pace_->NsToSleep(bytes);
  sender.position = answer.end();
  while (sender.current < sender.writers.size()) {
    store::ShardWriter& writer = *sender.writers[sender.current];
    const int64_t taken = std::min(bytes, writer.bytes_left());
    WEIR_RETURN_IF_ERROR(writer.Append(next, taken));
    next += taken;
    bytes -= taken;
    if (writer.bytes_left() > 0) break;
    WEIR_ASSIGN_OR_RETURN(store::ShardFileRecord record, writer.Finish());
    saved.files.push_back(std::move(record));
    ++sender.current;
  }
  part->is_done = answer.is_last();
  if (bytes > 0 || part->is_done != (sender.current == sender.writers.size()))
    return absl::InternalError("a worker sends other bytes than it has announced");
  return commit_.Add(std::move(saved));
}

absl::StatusOr<std::optional<train::CheckpointWritten>> FleetCheckpoint::End(
    train::JobRunner::Wait wait) {
  const int64_t limit_ms = wait == train::JobRunner::Wait::kNo ? 0 : kLookMs;
  do {
    if (!commit_.is_committing()) {
      absl::Status status = IsWritten() ? absl::OkStatus() : LookAt(limit_ms, wait);
      if (!status.ok()) {
        GiveUp(status);
        return status;
      }
      if (!IsWritten()) continue;
      commit_.Commit();
    }
    if (auto written = commit_.Take(limit_ms); written.has_value()) {
      WEIR_RETURN_IF_ERROR(written->status());
      return **std::move(written);
    }
  } while (wait == train::JobRunner::Wait::kYes);
  return std::nullopt;
}

}  // namespace weir::fleet
