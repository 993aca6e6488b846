#include "tests/chaos/recovery_checkpoints.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/pending_file.h"
#include "tests/chaos/recovery_model.h"

namespace weir::chaos {
namespace {

constexpr char kDirectory[] = "/data/run";

using Kind = VirtualCommand::Kind;

}  // namespace

std::string CheckpointPath(int64_t step) {
  return absl::StrCat(kDirectory, "/", store::StepFolderName(step));
}

bool RanksAreGone(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

void RecoveryCheckpoints::Violate(const std::string& what) {
  if (!world_->starter_is_gone()) world_->Violate(what);
}

void RecoveryCheckpoints::Open(const store::Retention& retention) {
  retention_ = retention;
  saved_ = begun_ = -1;
}

// --- Write ---

// A write that the disk refuses is a warning.
absl::Status RecoveryCheckpoints::WarnOf(const absl::Status& status) {
  if (status.ok() || RanksAreGone(status)) return status;
  if (store::IsCannotWrite(status)) {
    world_->TellStarter(absl::StrCat("WARNING: no checkpoint: ", status.message()));
    return absl::OkStatus();
  }
  return status;
}

absl::Status RecoveryCheckpoints::Begin(const store::CheckpointFacts& facts) {
  world_->Enter(RecoveryPhase::kSave);
  store::FileSystem* const files = world_->starter_files();
  VirtualCommand save;
  save.kind = Kind::kSave;
  save.path = kDirectory;
  save.step = facts.step;
  save.token = files->NewToken();
  auto opened = store::PendingCheckpoint::Open(kDirectory, save.step, save.token,
                                               store::PendingCheckpoint::Role::kMake, files);
  world_->EndStarterDisk();
  if (Ends()) return absl::CancelledError("the starter is gone");
  if (!opened.ok()) return WarnOf(opened.status());
  pending_ = *std::move(opened);
  parts_ = IdVector<WorkerId, bool>(world_->num_workers(), false);
  files_.clear();
  facts_ = facts;
  begun_ = save.step;
  if (const auto begun = world_->CallAll(save); !begun.ok()) return GiveUp(begun.status());
  return absl::OkStatus();
}

absl::Status RecoveryCheckpoints::GiveUp(const absl::Status& reason) {
  begun_ = -1;
  VirtualCommand command;
  command.kind = Kind::kGiveUp;
  if (!RanksAreGone(reason)) {
    const absl::Status told = world_->CallAll(command).status();
    if (RanksAreGone(told)) world_->TellStarter("a worker is lost as the checkpoint is given up");
  }
  pending_.reset();
  return WarnOf(reason);
}

absl::Status RecoveryCheckpoints::Await() {
  while (begun_ >= 0) WEIR_RETURN_IF_ERROR(End(Wait::kYes));
  return absl::OkStatus();
}

absl::Status RecoveryCheckpoints::End(Wait wait) {
  do {
    world_->Enter(RecoveryPhase::kSave);
    IdVector<WorkerId, VirtualCommand> looks(world_->num_workers());
    bool is_written = true;
    for (const WorkerId worker : world_->workers()) {
      if (!parts_[worker]) looks[worker].kind = Kind::kLook;
      is_written = is_written && parts_[worker];
    }
    if (is_written) return Commit();
    auto answers = world_->Call(looks);
    if (!answers.ok()) return GiveUp(answers.status());
    for (const WorkerId worker : world_->workers()) {
      VirtualAnswer& answer = (*answers)[worker];
      if (!answer.is_done) continue;
      parts_[worker] = true;
      for (store::ShardFileRecord& file : answer.files) files_.push_back(std::move(file));
    }
  } while (wait == Wait::kYes);
  return absl::OkStatus();
}

absl::Status RecoveryCheckpoints::Commit() {
  const int64_t step = std::exchange(begun_, -1);
  world_->Enter(RecoveryPhase::kCommit);
  world_->BeginStarterDisk();
  if (Ends()) return absl::CancelledError("the starter is gone");
  absl::Status status;
  const auto index =
      store::MakeIndex(facts_, RecoveryTensors(), std::move(files_), pending_->final_path());
  if (!index.ok()) {
    Violate(
        absl::StrCat("a checkpoint is committed before it is whole: ", index.status().message()));
  } else {
    status = pending_->Commit(*index, retention_).status();
  }
  world_->EndStarterDisk();
  if (Ends()) return absl::CancelledError("the starter is gone");
  pending_.reset();
  world_->Enter(RecoveryPhase::kRun);
  if (!status.ok()) return WarnOf(status);
  world_->TellStarter(absl::StrCat("the checkpoint of step ", step, " is committed"));
  ++num_commits_;
  saved_ = step;
  durable_ = std::max(durable_, step);
  return absl::OkStatus();
}

// --- Read ---

void RecoveryCheckpoints::CheckFolder() {
  if (Ends()) return;
  world_->Enter(RecoveryPhase::kStart);
  store::FileSystem* const files = world_->starter_files();
  const std::vector<int64_t> committed = store::CommittedSteps(kDirectory, files);
  for (const int64_t step : committed) {
    Check(step);
    if (Ends()) return;
  }
  const auto latest = store::ReadLatest(kDirectory, files);
  if (!latest.ok()) return Violate(absl::StrCat("`latest`: ", latest.status().message()));
  if (latest->has_value() && !std::binary_search(committed.begin(), committed.end(), **latest))
    return Violate(absl::StrCat("`latest` names step ", **latest, ", of which there is none"));
  if (durable_ >= 0 && (!latest->has_value() || **latest < durable_))
    Violate(absl::StrCat("`latest` does not name step ", durable_, ", or a later one"));
}

// The product decides the same in tools/checkpoint/find_whole.h.
std::optional<RecoveryCheckpoints::Found> RecoveryCheckpoints::FindLast() {
  CheckFolder();
  store::FileSystem* const files = world_->starter_files();
  const std::vector<int64_t> committed = store::CommittedSteps(kDirectory, files);
  const auto latest = store::ReadLatest(kDirectory, files);
  if (!world_->violation().empty() || !latest.ok() || committed.empty()) return std::nullopt;
  const std::vector<int64_t> steps = store::StepsToResume(committed, *latest);
  world_->TellStarter(absl::StrCat("a person resumes the checkpoint of step ", steps.front()));
  if (steps.front() < durable_)
    Violate(absl::StrCat("the run is resumed at step ", steps.front(),
                         " though the commit of step ", durable_, " has returned"));
  return Check(steps.front());
}

RecoveryCheckpoints::Found RecoveryCheckpoints::Check(int64_t step) {
  Found found = {step, 0};
  const std::string problem = CheckOne(step, &found.samples);
  if (!problem.empty()) Violate(absl::StrCat("a committed checkpoint is unreadable: ", problem));
  return found;
}

// Returns what is wrong with the checkpoint of a step, and sets the samples of its cursor.
std::string RecoveryCheckpoints::CheckOne(int64_t step, int64_t* samples) {
  const auto opened = store::CheckpointShards::Open(CheckpointPath(step), world_->starter_files());
  if (!opened.ok()) return std::string(opened.status().message());
  const store::CheckpointShards& shards = **opened;
  for (size_t i = 0; i < shards.index().files.size(); ++i) {
    if (const absl::Status checked = shards.CheckFile(i); !checked.ok())
      return std::string(checked.message());
  }
  const store::CheckpointFacts& facts = shards.index().facts;
  if (!facts.cursor.has_value() ||
      facts.cursor->seal != store::CursorSeal(*facts.cursor, facts.step, facts.optimizer_step))
    return "its data cursor has another seal";
  *samples = facts.cursor->samples;
  for (const auto& [name, tensor] : shards.index().tensors) {
    if (const absl::Status checked = shards.CheckContent(name); !checked.ok())
      return std::string(checked.message());
    for (const store::ShardPlace& place : shards.ShardsOf(name)) {
      const store::ShardRecord& record = shards.shard(place);
      const auto bytes = shards.Bytes(place, 0, record.end - record.begin);
      if (!bytes.ok()) return std::string(bytes.status().message());
      const fleet::HeldState held{name, {DType::kI32, record.shape, record.offset, tensor.shape}};
      ShardValues values(static_cast<size_t>(NumElements(record.shape)));
      std::memcpy(values.data(), *bytes, values.size() * sizeof(values[0]));
      if (const std::string wrong = CompareValues(held, values, *samples); !wrong.empty())
        return absl::StrCat(CheckpointPath(step), ": ", wrong);
    }
  }
  return "";
}

}  // namespace weir::chaos
