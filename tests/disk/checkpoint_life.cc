#include "tests/disk/checkpoint_life.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/checkpoint_testing.h"
#include "runtime/store/shard_file.h"

namespace weir::disk {
namespace {

constexpr char kDirectory[] = "/data/run";
constexpr int64_t kRowsOfRank = 3, kColumns = 11;

// All values of a save are alike but for their place, so a mixture of two saves shows.
float ValueOf(int64_t version, int64_t element) {
  return static_cast<float>(version * 1000 + element % 1000);
}

std::map<std::string, store::TensorFacts> TensorsOf(int32_t ranks) {
  return {{"w", {"F32", {ranks * kRowsOfRank, kColumns}, store::StateOwner::kWeight}},
          {"w/adam_m", {"F32", {40}, store::StateOwner::kOptimizerSlot}},
          {"b", {"F32", {7}, store::StateOwner::kWeight}}};
}

std::vector<store::ShardEntry> EntriesOf(int32_t rank, int32_t ranks) {
  std::vector<store::ShardEntry> entries = {{"w",
                                             "F32",
                                             {rank * kRowsOfRank, 0},
                                             {kRowsOfRank, kColumns},
                                             {ranks * kRowsOfRank, kColumns}}};
  if (rank == 0) entries.push_back({"b", "F32", {0}, {7}, {7}});
  if (rank == ranks - 1) entries.push_back({"w/adam_m", "F32", {0}, {40}, {40}});
  return entries;
}

// A process that writes its shards in pieces.
struct Writer {
  std::unique_ptr<store::PendingCheckpoint> joined;
  std::unique_ptr<store::ShardWriter> writer;
  std::vector<float> values;
  size_t done = 0;
};

}  // namespace

CheckpointLife::CheckpointLife(const Options& options)
    : options_(options),
      random_(options.seed * 2 + 1),
      disk_({options.seed, options.exchanges_names}),
      files_(&disk_, options.planted) {}

CheckpointLife::Attempt CheckpointLife::NextAttempt() {
  Attempt attempt;
  attempt.version = ++versions_;
  attempt.step = last_step_ + 10;
  const uint64_t way = Draw(8);
  if (way < 2 && last_step_ > 0) attempt.step = last_step_;
  if (way == 2 && last_step_ > 10) attempt.step = last_step_ - 10;
  last_step_ = attempt.step;
  attempt.ranks = static_cast<int32_t>(1 + Draw(3));
  attempt.retention = {static_cast<int64_t>(Draw(4)), Draw(2) == 0 ? 0 : 20};
  return attempt;
}

absl::Status CheckpointLife::Save() {
  const Attempt attempt = NextAttempt();
  const absl::Status status = Write(attempt);
  NoteOutcome(attempt, status);
  return status;
}

absl::Status CheckpointLife::Write(const Attempt& attempt) {
  const std::string token = files_.NewToken();
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<store::PendingCheckpoint> pending,
      store::PendingCheckpoint::Open(kDirectory, attempt.step, token,
                                     store::PendingCheckpoint::Role::kMake, &files_));
  std::vector<Writer> writers;
  for (int32_t rank = 0; rank < attempt.ranks; ++rank) {
    Writer next;
    WEIR_ASSIGN_OR_RETURN(next.joined, store::PendingCheckpoint::Open(
                                           kDirectory, attempt.step, token,
                                           store::PendingCheckpoint::Role::kJoin, &files_));
    store::ShardWriter::Options options;
    options.folder = next.joined->folder();
    options.file = store::ShardFileName(rank);
    options.step = attempt.step;
    options.purpose = next.joined->final_path();
    options.files = &files_;
    WEIR_ASSIGN_OR_RETURN(next.writer,
                          store::ShardWriter::Create(options, EntriesOf(rank, attempt.ranks)));
    for (const store::ShardEntry& entry : next.writer->entries()) {
      for (int64_t i = 0; i < NumElements(entry.shape); ++i)
        next.values.push_back(ValueOf(attempt.version, i));
    }
    writers.push_back(std::move(next));
  }
  std::vector<store::ShardFileRecord> files;
  while (!writers.empty()) {
    const size_t turn = Draw(writers.size());
    Writer& writer = writers[turn];
    const size_t count = std::min<size_t>(1 + Draw(60), writer.values.size() - writer.done);
    WEIR_RETURN_IF_ERROR(writer.writer->Append(writer.values.data() + writer.done,
                                               static_cast<int64_t>(count * sizeof(float))));
    writer.done += count;
    if (writer.done < writer.values.size()) continue;
    WEIR_ASSIGN_OR_RETURN(store::ShardFileRecord record, writer.writer->Finish());
    files.push_back(std::move(record));
    writers.erase(writers.begin() + static_cast<std::ptrdiff_t>(turn));
  }
  WEIR_ASSIGN_OR_RETURN(const store::CheckpointIndex index,
                        store::MakeIndex(store::FactsForTest(attempt.step),
                                         TensorsOf(attempt.ranks), files, pending->final_path()));
  WEIR_ASSIGN_OR_RETURN(const std::string warning, pending->Commit(index, attempt.retention));
  // A warning is no failure of the save. On a calm disk CheckClean finds what was left.
  (void)warning;
  return absl::OkStatus();
}

void CheckpointLife::NoteOutcome(const Attempt& attempt, const absl::Status& status) {
  const bool was_kept = kept_.count(attempt.step) > 0;
  std::vector<int64_t> all = {attempt.step};
  for (const std::set<int64_t>* const steps : {&kept_, &uncertain_})
    for (const int64_t step : *steps)
      if (step < attempt.step) all.push_back(step);
  for (const int64_t step : store::StepsToRemove(all, attempt.retention, attempt.step, {})) {
    kept_.erase(step);
    uncertain_.insert(step);
  }
  if (status.ok()) {
    kept_.insert(attempt.step);
    uncertain_.erase(attempt.step);
    versions_of_[attempt.step] = {attempt.version};
    latest_version_min_ = attempt.version;
    return;
  }
  versions_of_[attempt.step].insert(attempt.version);
  if (!was_kept || !options_.exchanges_names) {
    kept_.erase(attempt.step);
    uncertain_.insert(attempt.step);
  }
}

std::string CheckpointLife::CheckOne(const std::string& path, int64_t step, int64_t* version) {
  const auto opened = store::CheckpointShards::Open(path, &disk_);
  if (!opened.ok()) return std::string(opened.status().message());
  const store::CheckpointShards& shards = **opened;
  for (size_t i = 0; i < shards.index().files.size(); ++i) {
    if (const absl::Status checked = shards.CheckFile(i); !checked.ok())
      return std::string(checked.message());
  }
  *version = 0;
  for (const auto& [name, tensor] : shards.index().tensors) {
    if (const absl::Status checked = shards.CheckContent(name); !checked.ok())
      return std::string(checked.message());
    for (const store::ShardPlace& place : shards.ShardsOf(name)) {
      const store::ShardRecord& record = shards.shard(place);
      const auto bytes = shards.Bytes(place, 0, record.end - record.begin);
      if (!bytes.ok()) return std::string(bytes.status().message());
      for (int64_t i = 0; i < NumElements(record.shape); ++i) {
        float value;
        std::memcpy(&value, *bytes + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
        const int64_t found = static_cast<int64_t>(value) / 1000;
        if (*version == 0) *version = found;
        if (value != ValueOf(found, i) || found != *version)
          return absl::StrCat(path, ", tensor ", name, ": a mixture of saves ", *version, " and ",
                              found);
      }
    }
  }
  if (versions_of_[step].count(*version) == 0)
    return absl::StrCat(path, ": has save ", *version, ", which was not one of that step");
  return "";
}

std::string CheckpointLife::Check() {
  const std::vector<int64_t> steps = store::CommittedSteps(kDirectory, &disk_);
  std::map<int64_t, int64_t> version_of;
  for (const int64_t step : steps) {
    const std::string path = absl::StrCat(kDirectory, "/", store::StepFolderName(step));
    if (std::string problem = CheckOne(path, step, &version_of[step]); !problem.empty())
      return absl::StrCat("a committed checkpoint is unreadable: ", problem);
  }
  for (const int64_t step : kept_) {
    if (version_of.count(step) == 0)
      return absl::StrCat("the checkpoint of step ", step, ", whose commit has returned, is gone");
  }
  const absl::StatusOr<std::optional<int64_t>> latest = store::ReadLatest(kDirectory, &disk_);
  if (!latest.ok()) return absl::StrCat("`latest` is damaged: ", latest.status().message());
  if (!latest->has_value())
    return latest_version_min_ == 0 ? "" : "there is no `latest`, though a commit has returned";
  const auto named = version_of.find(**latest);
  if (named == version_of.end()) {
    if (!options_.exchanges_names && uncertain_.count(**latest) > 0) return "";
    return absl::StrCat("`latest` names step ", **latest, ", of which there is no checkpoint");
  }
  if (named->second < latest_version_min_)
    return absl::StrCat("`latest` names save ", named->second, ", older than the committed save ",
                        latest_version_min_);
  return "";
}

std::string CheckpointLife::CheckClean(const absl::Status& saved) {
  if (!saved.ok()) return absl::StrCat("a save fails on a sound disk: ", saved.message());
  std::vector<std::string> others;
  for (const std::string& name : disk_.NamesIn(kDirectory)) {
    if (name != "latest" && !store::StepOfName(name).has_value()) others.push_back(name);
  }
  if (!others.empty()) return absl::StrCat("left over: ", absl::StrJoin(others, ", "));
  if (*store::ReadLatest(kDirectory, &disk_).value() != last_step_)
    return "`latest` does not name the checkpoint that was just committed";
  return "";
}

LifeOutcome LiveAtRandom(const CheckpointLife::Options& options) {
  constexpr uint64_t kOperationsOfSave = 110, kOperationsOfSweep = 30;
  LifeOutcome outcome;
  CheckpointLife life(options);
  SimulatedDisk* const disk = life.disk();
  std::mt19937_64 random(options.seed);
  const auto draw = [&](uint64_t bound) { return random() % bound; };
  const uint64_t saves = 3 + draw(6);
  bool was_killed = false;
  for (uint64_t i = 0; i <= saves && outcome.problem.empty(); ++i) {
    const uint64_t way = i == saves ? 9 : draw(10);
    // After a kill, a second failure often comes while the next save sweeps what the first has
    // left.
    const uint64_t span = was_killed && draw(2) == 0 ? kOperationsOfSweep : kOperationsOfSave;
    const int64_t at = disk->operations() + 1 + static_cast<int64_t>(draw(span));
    constexpr int kErrors[] = {EIO, ENOSPC};
    if (way < 5) disk->CrashAt(at);
    if (way == 5 || way == 6) disk->FailAt(at, kErrors[draw(2)]);
    const absl::Status saved = life.Save();
    ++outcome.saves;
    const bool has_crashed = disk->has_crashed();
    if (has_crashed) ++outcome.crashes;
    if (!has_crashed && !saved.ok()) ++outcome.errors;
    disk->Calm();
    if (way > 6) outcome.problem = life.CheckClean(saved);
    was_killed = has_crashed && draw(2) == 0;
    if (has_crashed || draw(3) == 0) {
      disk->Restart(was_killed ? SimulatedDisk::Loss::kProcess : SimulatedDisk::Loss::kPower);
    }
    if (outcome.problem.empty()) outcome.problem = life.Check();
    if (!outcome.problem.empty())
      absl::StrAppend(&outcome.problem, " (after save ", i + 1, "; last: ", disk->last_fault(),
                      ")");
  }
  return outcome;
}

namespace {

enum class EachFault : uint8_t { kPower, kProcess, kNoRoom, kBadDisk };

// Lives three saves, the fault comes at operation number `at`, and then a fourth.
std::string LiveWithFault(const CheckpointLife::Options& options, EachFault fault, int64_t at,
                          LifeOutcome* outcome, bool* has_come) {
  CheckpointLife life(options);
  SimulatedDisk* const disk = life.disk();
  const bool crashes = fault == EachFault::kPower || fault == EachFault::kProcess;
  if (crashes) {
    disk->CrashAt(at);
  } else {
    disk->FailAt(at, fault == EachFault::kNoRoom ? ENOSPC : EIO);
  }
  absl::Status saved;
  for (int i = 0; i < 3 && !disk->has_crashed(); ++i) {
    saved = life.Save();
    ++outcome->saves;
    if (!saved.ok()) break;
  }
  *has_come = disk->operations() >= at;
  if (crashes && disk->has_crashed()) {
    ++outcome->crashes;
    disk->Restart(fault == EachFault::kPower ? SimulatedDisk::Loss::kPower
                                             : SimulatedDisk::Loss::kProcess);
  } else if (!saved.ok()) {
    ++outcome->errors;
  }
  disk->Calm();
  std::string problem = life.Check();
  if (problem.empty()) problem = life.CheckClean(life.Save());
  if (problem.empty()) problem = life.Check();
  if (!problem.empty()) absl::StrAppend(&problem, " (", disk->last_fault(), ")");
  return problem;
}

}  // namespace

LifeOutcome LiveThroughEachFault(const CheckpointLife::Options& options) {
  LifeOutcome outcome;
  for (const EachFault fault :
       {EachFault::kPower, EachFault::kProcess, EachFault::kNoRoom, EachFault::kBadDisk}) {
    bool has_come = true;
    for (int64_t at = 1; has_come && outcome.problem.empty(); ++at)
      outcome.problem = LiveWithFault(options, fault, at, &outcome, &has_come);
  }
  return outcome;
}

}  // namespace weir::disk
