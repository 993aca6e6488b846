#include "tests/chaos/recovery_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/rect.h"
#include "runtime/base/status.h"
#include "runtime/control/epoch_fence.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/file_system.h"

namespace weir::chaos {
namespace {

constexpr int64_t kPieceBytesMax = 48;
constexpr int64_t kValueBytes = sizeof(int32_t);

std::string CardOf(RankId rank) { return absl::StrCat("card ", rank); }

absl::Status EpochEnded() { return absl::UnavailableError("W0758 the epoch has ended"); }

// Copies what two shards of one tensor have in common.
void CopyCommon(const store::ShardRecord& from, const int32_t* values, const fleet::HeldState& to,
                ShardValues* taken) {
  const int64_t begin = std::max(from.offset[0], to.slice.offset[0]);
  const int64_t end =
      std::min(from.offset[0] + from.shape[0], to.slice.offset[0] + to.slice.shape[0]);
  for (int64_t i = begin; i < end; ++i)
    (*taken)[static_cast<size_t>(i - to.slice.offset[0])] = values[i - from.offset[0]];
}

const char* BytesOf(const ShardValues& values) {
  return reinterpret_cast<const char*>(values.data());
}

// Returns the place of a shard of that name among those of a rank; -1: the rank has none.
int64_t PlaceOf(const std::vector<fleet::HeldState>& shards, const std::string& name) {
  const auto found = std::find_if(shards.begin(), shards.end(),
                                  [&name](const auto& held) { return held.name == name; });
  return found == shards.end() ? -1 : found - shards.begin();
}

}  // namespace

const char* Name(VirtualCommand::Kind kind) {
  switch (kind) {
    case VirtualCommand::Kind::kOpen: return "open";
    case VirtualCommand::Kind::kLoad: return "load";
    case VirtualCommand::Kind::kStanding: return "standing";
    case VirtualCommand::Kind::kGive: return "give";
    case VirtualCommand::Kind::kTake: return "take";
    case VirtualCommand::Kind::kBuddy: return "join buddies";
    case VirtualCommand::Kind::kRun: return "run";
    case VirtualCommand::Kind::kSave: return "save";
    case VirtualCommand::Kind::kLook: return "look";
    case VirtualCommand::Kind::kGiveUp: return "give up";
  }
  return "?";
}

WorkerId WorkerFacts::WorkerOf(RankId rank) const {
  for (const WorkerId worker : ranks_of.ids()) {
    const std::vector<RankId>& ranks = ranks_of[worker];
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return worker;
  }
  return WorkerId();
}

// --- Copies ---

void VirtualCopy::Take(const VirtualGroup& group, const WorkerFacts& facts, WorkerId worker) {
  bytes_.clear();
  for (const RankId rank : facts.ranks_of[worker]) {
    for (size_t i = 0; i < facts.shards_of[rank].size(); ++i) {
      const ShardValues& values = group.values[rank][i];
      bytes_[{rank, facts.shards_of[rank][i].name}] =
          std::string(BytesOf(values), values.size() * kValueBytes);
    }
  }
  step_ = group.steps_done;
}

void VirtualCopy::PutInto(const WorkerFacts& facts, WorkerId worker, VirtualGroup* group) const {
  for (const RankId rank : facts.ranks_of[worker]) {
    for (size_t i = 0; i < facts.shards_of[rank].size(); ++i) {
      const std::string* const bytes = Read(rank, facts.shards_of[rank][i].name);
      ShardValues& values = group->values[rank][i];
      if (bytes != nullptr && bytes->size() == values.size() * kValueBytes)
        std::memcpy(values.data(), bytes->data(), bytes->size());
    }
  }
}

const std::string* VirtualCopy::Read(RankId rank, const std::string& name) const {
  const auto found = bytes_.find({rank, name});
  return step_ < 0 || found == bytes_.end() ? nullptr : &found->second;
}

VirtualWorker::VirtualWorker(WorkerId worker, uint32_t epoch,
                             std::shared_ptr<const WorkerFacts> facts, store::FileSystem* files,
                             WorkerWorld* world)
    : worker_(worker),
      started_in_(epoch),
      facts_(std::move(facts)),
      files_(files),
      world_(world),
      commands_(epoch) {}

fleet::WorkerStanding VirtualWorker::standing() const {
  return {.kept_step = kept_.last_step(),
          .resting_step = group_ == nullptr ? -1 : resting_step_,
          .older_kept_step = kept_.older_step(),
          .guarded = guarded_.Whole()};
}

std::string VirtualWorker::Activity() const {
  return running_.has_value() ? Name(running_->command.content.kind) : "waits for commands";
}

int64_t VirtualWorker::NextStep() const {
  const bool runs = running_.has_value() && running_->command.content.kind == Kind::kRun &&
                    group_ != nullptr && running_->progress > 0 && running_->left > 0;
  return runs && PeersAreReady() ? group_->steps_done : -1;
}

// --- What comes from the starter ---

void VirtualWorker::HearCommand(int64_t call, VirtualCommand command) {
  commands_.Push(call, std::move(command));
}

void VirtualWorker::HearEpoch(uint32_t epoch) {
  commands_.BeginEpoch(epoch);
  if (group_ != nullptr && group_->epoch != epoch) group_->is_stopped = true;
  if (running_.has_value()) running_->has_ended = true;
}

void VirtualWorker::HearValue(int64_t request, const std::string& value) {
  fetched_[request] = value;
}

// --- Commands ---

bool VirtualWorker::CanAct() const {
  if (!running_.has_value()) return !commands_.empty();
  const Running& running = *running_;
  if (running.has_ended) return true;
  switch (running.command.content.kind) {
    case Kind::kOpen:
      return running.progress == 0 || static_cast<int64_t>(fetched_.size()) == running.left;
    case Kind::kRun:
      return running.progress == 0 || running.left == 0 || group_->is_stopped || PeersAreReady() ||
             (facts_->tells_broken && HasLostPeer());
    default: return true;
  }
}

void VirtualWorker::Finish(VirtualAnswer answer) {
  if (world_->tells()) {
    world_->Tell(worker_,
                 absl::StrCat("has done the command '", Name(running_->command.content.kind),
                              "': ", answer.status.ok() ? "ok" : answer.status.message()));
  }
  world_->Answer(worker_, running_->command.call, running_->command.epoch, std::move(answer));
  running_.reset();
}

void VirtualWorker::Finish(const absl::Status& status) {
  VirtualAnswer answer;
  answer.status = status;
  Finish(std::move(answer));
}

void VirtualWorker::Act() {
  if (!running_.has_value()) {
    running_.emplace();
    running_->command = *commands_.Pop();
    return;
  }
  const VirtualCommand& command = running_->command.content;
  const bool needs_ranks = command.kind == Kind::kRun || command.kind == Kind::kLoad ||
                           command.kind == Kind::kBuddy || command.kind == Kind::kSave;
  if (needs_ranks && group_ == nullptr)
    return Finish(absl::FailedPreconditionError("no ranks are loaded yet"));
  VirtualAnswer answer;
  switch (command.kind) {
    case Kind::kOpen: return ActOpen(command);
    case Kind::kRun: return ActRun(command);
    case Kind::kLoad: return ActLoad(command);
    case Kind::kBuddy: answer.status = JoinBuddies(command); break;
    case Kind::kStanding:
      answer.standing = standing();
      answer.meshes = meshes_;
      break;
    case Kind::kGive: answer.status = Give(command, &answer.given); break;
    case Kind::kTake: answer.status = Take(command); break;
    case Kind::kSave:
      save_ = std::make_unique<Save>();
      save_->order = command;
      save_->values = group_->values;
      break;
    case Kind::kLook:
      answer.is_done = save_ != nullptr && save_->is_done;
      if (!answer.is_done) break;
      answer.status = save_->status;
      answer.files = std::move(save_->files);
      save_.reset();
      break;
    case Kind::kGiveUp: save_.reset(); break;
  }
  Finish(std::move(answer));
}

// --- Open ---

absl::Status VirtualWorker::LeaveEpoch(const VirtualCommand& command) {
  line_.reset();
  if (meshes_.copies != command.states_layout) {
    kept_.ForgetAllBut(-1);
    guarded_.ForgetAllBut(-1);
    meshes_.copies = command.states_layout;
  }
  const fleet::MeshesOfStates before = meshes_;
  meshes_.ranks = command.layout;
  WEIR_ASSIGN_OR_RETURN(
      const fleet::Leaving leaving,
      fleet::ChooseLeaving(fleet::StandingOn(command.states_layout, before, standing()),
                           command.goes_on, command.step));
  if (leaving == fleet::Leaving::kCopiesRanks) kept_.Next(1)->Take(*group_, *facts_, worker_);
  kept_.ForgetAllBut(leaving == fleet::Leaving::kForgetsCopy ? -1 : command.step);
  guarded_.ForgetAllBut(command.step);
  taken_.Clear();
  resting_step_ = -1;
  group_.reset();
  opening_.reset();
  save_.reset();
  facts_ = command.facts;
  return absl::OkStatus();
}

void VirtualWorker::ActOpen(const VirtualCommand& command) {
  const uint32_t epoch = command.epoch;
  if (running_->has_ended || epoch != commands_.epoch()) return Finish(EpochEnded());
  if (running_->progress++ == 0) {
    if (const absl::Status left = LeaveEpoch(command); !left.ok()) return Finish(left);
    if (ranks().empty()) return Finish(absl::OkStatus());  // it only gives states to others
    opening_ = std::make_unique<VirtualGroup>();
    opening_->id = world_->NewGroupId();
    opening_->epoch = epoch;
    fetched_.clear();
    first_request_ = next_request_;
    for (const RankId rank : ranks())
      world_->Publish(worker_, epoch, CardOf(rank), absl::StrCat(opening_->id));
    for (const RankId rank : facts_->shards_of.ids())
      world_->Fetch(worker_, epoch, CardOf(rank), next_request_++);
    running_->left = static_cast<int64_t>(facts_->shards_of.size());
    return;
  }
  OpenGroup(command);
  Finish(absl::OkStatus());
}

void VirtualWorker::OpenGroup(const VirtualCommand& command) {
  VirtualGroup& group = *opening_;
  group.steps_done = command.step;
  group.sample_offset = command.sample_offset;
  group.samples_per_step = command.samples_per_step;
  for (const auto& [request, card] : fetched_) {
    int64_t id = 0;
    if (request < first_request_ || !absl::SimpleAtoi(card, &id))
      world_->Violate(absl::StrCat("worker ", worker_, " gets a value of another epoch"));
    if (id != group.id && std::count(group.peers.begin(), group.peers.end(), id) == 0)
      group.peers.push_back(id);
  }
  group.values.resize(facts_->shards_of.size());
  for (const RankId rank : ranks()) {
    for (const fleet::HeldState& shard : facts_->shards_of[rank])
      group.values[rank].push_back(FirstValues(shard));
  }
  if (command.goes_on && command.layout == command.states_layout)
    kept_.last().PutInto(*facts_, worker_, &group);
  group_ = std::move(opening_);
}

// --- Run ---

// A rank updates when it has the gradients of all peers for that step.
bool VirtualWorker::PeersAreReady() const {
  return std::all_of(group_->peers.begin(), group_->peers.end(), [this](int64_t id) {
    const VirtualGroup* const peer = world_->FindGroup(id);
    return peer != nullptr && peer->steps_done >= group_->steps_done;
  });
}

bool VirtualWorker::HasLostPeer() const {
  return std::any_of(group_->peers.begin(), group_->peers.end(), [this](int64_t id) {
    const VirtualGroup* const peer = world_->FindGroup(id);
    return peer == nullptr || (peer->is_gone && peer->steps_done < group_->steps_done);
  });
}

void VirtualWorker::DoStep() {
  for (const int64_t id : group_->peers) {
    const VirtualGroup* const peer = world_->FindGroup(id);
    if (peer->epoch != group_->epoch) {
      world_->Violate(absl::StrCat("two epochs act on one state: worker ", worker_, " of epoch ",
                                   group_->epoch, " does step ", group_->steps_done + 1,
                                   " with ranks of epoch ", peer->epoch));
    }
  }
  store::BatchPosition position;
  position.step = group_->steps_done;
  position.sample_offset = group_->sample_offset;
  for (int64_t row = 0; row < group_->samples_per_step; ++row)
    group_->gathered.push_back(store::SampleNumber(position, group_->samples_per_step, row));
  ++group_->steps_done;
  if (!facts_->updates.IsBetweenUpdates(group_->steps_done)) return;
  for (const RankId rank : ranks()) {
    for (size_t i = 0; i < facts_->shards_of[rank].size(); ++i) {
      for (const int64_t sample : group_->gathered)
        SeeSample(facts_->shards_of[rank][i], sample, &group_->values[rank][i]);
    }
  }
  group_->gathered.clear();
}

void VirtualWorker::ActRun(const VirtualCommand& command) {
  if (running_->progress++ == 0) {
    if (command.keeps_copy) {
      if (const absl::Status kept = Keep(command); !kept.ok()) return Finish(kept);
    }
    resting_step_ = -1;
    running_->left = command.step;
    return;
  }
  if (running_->left == 0) {
    resting_step_ = group_->steps_done;
    VirtualAnswer answer;
    answer.sent_step = line_.has_value() ? line_->sent_step : -1;
    return Finish(std::move(answer));
  }
  if (group_->is_stopped) return Finish(EpochEnded());
  if (!PeersAreReady())
    return Finish(absl::UnavailableError("W0603 the connection to another rank broke"));
  DoStep();
  --running_->left;
  if (world_->tells()) world_->Tell(worker_, absl::StrCat("does step ", group_->steps_done));
}

// --- Buddies ---

void VirtualWorker::LeaveOldMesh() {
  if (std::exchange(meshes_.copies, meshes_.ranks) == meshes_.ranks) return;
  kept_.ForgetAllBut(-1);
  guarded_.ForgetAllBut(-1);
}

absl::Status VirtualWorker::JoinBuddies(const VirtualCommand& command) {
  LeaveOldMesh();
  lone_ = command.lone;
  line_.emplace();
  line_->epoch = command.epoch;
  line_->buddy = command.buddy;
  return guarded_.Expect(command.charges);
}

absl::Status VirtualWorker::Keep(const VirtualCommand& command) {
  LeaveOldMesh();
  kept_.Next(command.sends_copy ? 2 : 1)->Take(*group_, *facts_, worker_);
  if (!command.sends_copy || !line_.has_value() || lone_.empty()) return absl::OkStatus();
  line_->step = kept_.last_step();
  line_->copy.clear();
  line_->put = 0;
  line_->taken = 0;
  for (const fleet::GuardedShard& shard : lone_) {
    const std::string* const bytes = kept_.last().Read(shard.rank, shard.name);
    if (bytes == nullptr)
      return absl::NotFoundError(absl::StrCat("no copy of the state ", shard.name, " of rank ",
                                              shard.rank, " for the buddy"));
    line_->copy += *bytes;
  }
  return absl::OkStatus();
}

void VirtualWorker::Send() {
  const size_t bytes =
      kValueBytes * static_cast<size_t>(1 + world_->Draw(kPieceBytesMax / kValueBytes));
  const std::string piece = line_->copy.substr(line_->put, bytes);
  line_->put += piece.size();
  world_->Carry(worker_, line_->buddy, line_->epoch, line_->step, piece);
}

bool VirtualWorker::HearPiece(WorkerId charge, uint32_t epoch, int64_t step,
                              const std::string& piece) {
  if (!line_.has_value() || !control::EpochFence(line_->epoch).Admits(epoch)) return false;
  if (line_->epoch != epoch)
    world_->Violate(absl::StrCat("a copy of epoch ", epoch, " is taken in epoch ", line_->epoch));
  const absl::Status added = guarded_.Add(charge, step, piece);
  if (!added.ok()) world_->Violate(std::string(added.message()));
  return true;
}

void VirtualWorker::HearTaken(uint32_t epoch, int64_t step, int64_t bytes) {
  if (!line_.has_value() || line_->epoch != epoch || line_->step != step) return;
  line_->taken += bytes;
  if (line_->taken == static_cast<int64_t>(line_->copy.size())) line_->sent_step = step;
}

// --- Move and load states ---

// Returns the bytes of a move from a copy of this worker's ranks, or of those of a charge.
absl::StatusOr<std::string> VirtualWorker::Read(const fleet::StateMove& move) const {
  const auto read = [&](int64_t begin, int64_t bytes) -> absl::StatusOr<std::string> {
    const std::string* const own =
        kept_.last_step() < 0 ? nullptr : kept_.last().Read(move.from, move.name);
    if (own != nullptr && begin + bytes <= static_cast<int64_t>(own->size()))
      return own->substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
    WEIR_ASSIGN_OR_RETURN(const absl::string_view guarded,
                          guarded_.Read(move.from, move.name, begin, bytes));
    return std::string(guarded);
  };
  if (!move.moved.has_value()) return read(move.begin, move.bytes);
  WEIR_ASSIGN_OR_RETURN(const std::string shard, read(0, move.moved->given.bytes()));
  std::string part(static_cast<size_t>(move.moved->part.bytes()), '\0');
  CopyPart(move.moved->part, move.moved->given, shard.data(), move.moved->part, part.data());
  return part.substr(static_cast<size_t>(move.begin), static_cast<size_t>(move.bytes));
}

absl::Status VirtualWorker::Give(const VirtualCommand& command,
                                 std::vector<std::string>* given) const {
  for (const fleet::StateMove& move : command.moves) {
    WEIR_ASSIGN_OR_RETURN(std::string bytes, Read(move));
    given->push_back(std::move(bytes));
  }
  return absl::OkStatus();
}

absl::Status VirtualWorker::TakePart(const fleet::StateMove& move, const std::string& bytes) {
  const int64_t place = PlaceOf(facts_->shards_of[move.to], move.name);
  if (place < 0 || group_->values[move.to].empty())
    return absl::InternalError(absl::StrCat("rank ", move.to, " has no state ", move.name));
  ShardValues& values = group_->values[move.to][static_cast<size_t>(place)];
  const int64_t whole = static_cast<int64_t>(values.size()) * kValueBytes;
  WEIR_ASSIGN_OR_RETURN(std::optional<std::string> state,
                        taken_.Add(move.to, move.name, move.begin, bytes,
                                   move.moved.has_value() ? move.moved->part.bytes() : whole));
  if (!state.has_value()) return absl::OkStatus();
  if (move.moved.has_value()) {
    WEIR_ASSIGN_OR_RETURN(
        state, taken_.AddPart(move.to, move.name, move.moved->part, move.moved->taken, *state));
  }
  if (state.has_value()) std::memcpy(values.data(), state->data(), static_cast<size_t>(whole));
  return absl::OkStatus();
}

absl::Status VirtualWorker::Take(const VirtualCommand& command) {
  if (group_ == nullptr) {
    return command.moves.empty() && command.own_moves.empty()
               ? absl::OkStatus()
               : absl::FailedPreconditionError("no ranks are loaded yet");
  }
  for (const fleet::StateMove& move : command.own_moves) {
    WEIR_ASSIGN_OR_RETURN(const std::string bytes, Read(move));
    WEIR_RETURN_IF_ERROR(TakePart(move, bytes));
  }
  for (size_t i = 0; i < command.moves.size(); ++i)
    WEIR_RETURN_IF_ERROR(TakePart(command.moves[i], command.data[i]));
  if (command.is_last) resting_step_ = group_->steps_done;
  return absl::OkStatus();
}

absl::Status VirtualWorker::LoadRank(const VirtualCommand& command, RankId rank) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::CheckpointShards> shards,
                        store::CheckpointShards::Open(command.path, files_));
  for (size_t i = 0; i < facts_->shards_of[rank].size(); ++i) {
    const fleet::HeldState& held = facts_->shards_of[rank][i];
    for (const store::ShardPlace& place : shards->ShardsOf(held.name)) {
      const store::ShardRecord& record = shards->shard(place);
      WEIR_ASSIGN_OR_RETURN(const uint8_t* const bytes,
                            shards->Bytes(place, 0, record.end - record.begin));
      std::vector<int32_t> values(static_cast<size_t>((record.end - record.begin) / kValueBytes));
      std::memcpy(values.data(), bytes, values.size() * kValueBytes);
      CopyCommon(record, values.data(), held, &group_->values[rank][i]);
    }
  }
  return absl::OkStatus();
}

void VirtualWorker::ActLoad(const VirtualCommand& command) {
  const auto rank = static_cast<size_t>(running_->progress++);
  if (const absl::Status loaded = LoadRank(command, ranks()[rank]); !loaded.ok())
    return Finish(loaded);
  if (rank + 1 == ranks().size()) Finish(absl::OkStatus());
}

// --- Checkpoints ---

void VirtualWorker::Write() {
  const absl::Status status = WritePiece();
  if (status.ok()) return;
  save_->status = status;
  save_->is_done = true;
  save_->writers.clear();
  save_->joined.reset();
}

// Makes the file of the next rank of this worker that writes shards.
absl::Status VirtualWorker::CreateFile() {
  Save& save = *save_;
  const RankId rank = ranks()[save.writers.size()];
  Save::File file;
  std::vector<store::ShardEntry> entries;
  for (size_t i = 0; i < facts_->shards_of[rank].size(); ++i) {
    if (!facts_->writes[rank][i]) continue;
    const fleet::HeldState& shard = facts_->shards_of[rank][i];
    entries.push_back(
        {shard.name, "I32", shard.slice.offset, shard.slice.shape, shard.slice.global_shape});
    const ShardValues& values = save.values[rank][i];
    file.bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * kValueBytes);
  }
  if (!entries.empty()) {
    store::ShardWriter::Options options;
    options.folder = save.joined->folder();
    options.file = store::ShardFileName(rank.value());
    options.step = save.order.step;
    options.purpose = save.joined->final_path();
    options.files = files_;
    WEIR_ASSIGN_OR_RETURN(file.writer, store::ShardWriter::Create(options, std::move(entries)));
  }
  save.writers.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status VirtualWorker::WritePiece() {
  Save& save = *save_;
  if (save.joined == nullptr) {
    WEIR_ASSIGN_OR_RETURN(save.joined, store::PendingCheckpoint::Open(
                                           save.order.path, save.order.step, save.order.token,
                                           store::PendingCheckpoint::Role::kJoin, files_));
    return absl::OkStatus();
  }
  if (save.writers.size() < ranks().size()) return CreateFile();
  for (Save::File& file : save.writers) {
    if (file.writer == nullptr) continue;
    const int64_t left = static_cast<int64_t>(file.bytes.size()) - file.done;
    if (left > 0) {
      const int64_t bytes = std::min<int64_t>(
          left, kValueBytes * static_cast<int64_t>(1 + world_->Draw(kPieceBytesMax / kValueBytes)));
      WEIR_RETURN_IF_ERROR(file.writer->Append(file.bytes.data() + file.done, bytes));
      file.done += bytes;
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(store::ShardFileRecord record, file.writer->Finish());
    save.files.push_back(std::move(record));
    file.writer.reset();
    return absl::OkStatus();
  }
  save.joined.reset();
  save.is_done = true;
  return absl::OkStatus();
}

}  // namespace weir::chaos
