// A VirtualWorker is a worker process of the simulation of recovery: it serves the commands of the
// starter one at a time, as tools/fleet/worker.cc does, and writes its shards of a checkpoint
// beside them. What it decides about epochs and states, it decides with the product's code
// (command_queue.h, epoch_start.h, state_parts.h); what it writes and reads goes through the
// product's checkpoint folder.
// It keeps copies of its states, and of those of other workers whose buddy it is (step_copies.h,
// guarded_states.h), as tools/fleet/worker_states.cc does.
//
// A worker moves in small acts, which the world orders: one step, one shard, one piece of a file or
// of a copy that travels to a buddy.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/update_rate.h"
#include "runtime/control/command_queue.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/shard_file.h"
#include "tests/chaos/recovery_model.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/guarded_states.h"
#include "tools/fleet/recovery_plan.h"
#include "tools/fleet/state_parts.h"
#include "tools/fleet/step_copies.h"

namespace weir::chaos {

// All workers of one mesh of a job share these facts.
struct WorkerFacts {
  RecoveryLayout layout;
  IdVector<WorkerId, std::vector<RankId>> ranks_of;  // a worker may have none
  IdVector<RankId, std::vector<fleet::HeldState>> shards_of;
  IdVector<RankId, std::vector<bool>> writes;  // whether the rank writes that shard
  UpdateRate updates;
  bool tells_broken = false;  // a worker that waits for a lost peer notices that, and says so

  WorkerId WorkerOf(RankId rank) const;
};

// A command of the starter (proto/worker.proto).
struct VirtualCommand {
  enum class Kind : uint8_t {
    kOpen,  // opens the ranks of `facts` in `epoch` at `step`; goes_on: with this worker's states
    kLoad,  // reads all states from the checkpoint at `path`
    kStanding,  // tells of which steps it has the states
    kGive,      // returns the bytes of `moves` from the copies
    kTake,      // puts `data`, the bytes of `moves`, and its own of own_moves into the ranks
    kBuddy,     // joins its buddy and its charges
    kRun,       // runs `step` steps; keeps_copy: copies the states before; sends_copy: to the buddy
    kSave,      // copies the states for a checkpoint of `step` in the folder `path`
    kLook,      // tells whether its shards are written
    kGiveUp,    // ends the writing of shards
  };
  Kind kind = Kind::kStanding;
  uint32_t epoch = 0;
  int64_t step = 0;
  int64_t sample_offset = 0, samples_per_step = 1;
  std::shared_ptr<const WorkerFacts> facts;
  uint32_t layout = 0, states_layout = 0;  // as in OpenCommand
  bool goes_on = false, keeps_copy = false, sends_copy = false;
  bool is_last = false;  // all states are moved, and the ranks are at rest
  std::string path, token;
  std::vector<fleet::StateMove> moves, own_moves;
  std::vector<std::string> data;
  WorkerId buddy;
  std::vector<fleet::GuardedShard> lone;  // the shards of which the buddy keeps copies
  std::vector<fleet::Charge> charges;     // whose copies this worker keeps
};
const char* Name(VirtualCommand::Kind kind);

struct VirtualAnswer {
  absl::Status status;
  fleet::WorkerStanding standing;
  fleet::MeshesOfStates meshes;  // of the standing
  std::vector<std::string> given;
  std::vector<store::ShardFileRecord> files;
  bool is_done = false;    // the shards are written
  int64_t sent_step = -1;  // of the last copy that has arrived at the buddy
};

// The ranks of a worker in one epoch, as other workers see them.
struct VirtualGroup {
  int64_t id = 0;  // no two groups have the same
  uint32_t epoch = 0;
  int64_t steps_done = 0;
  int64_t sample_offset = 0, samples_per_step = 1;
  IdVector<RankId, std::vector<ShardValues>> values;  // of the ranks of this worker
  std::vector<int64_t> gathered;                      // samples that wait for the next update
  std::vector<int64_t> peers;                         // groups of the other workers
  bool is_stopped = false;                            // the epoch has ended
  bool is_gone = false;  // its process has ended; what it sent before arrives
};

// What a worker can do to the world around it.
class WorkerWorld {
 public:
  virtual ~WorkerWorld() = default;
  virtual void Answer(WorkerId worker, int64_t call, uint32_t epoch, VirtualAnswer answer) = 0;
  virtual void Publish(WorkerId worker, uint32_t epoch, const std::string& key,
                       const std::string& value) = 0;
  virtual void Fetch(WorkerId worker, uint32_t epoch, const std::string& key, int64_t request) = 0;
  // Sends a piece of the copy of `step` from a worker to its buddy.
  virtual void Carry(WorkerId from, WorkerId to, uint32_t epoch, int64_t step,
                     const std::string& piece) = 0;
  virtual int64_t NewGroupId() = 0;
  // Returns the group; null if its process has left it.
  virtual const VirtualGroup* FindGroup(int64_t id) const = 0;
  // Returns a number below `bound` that the seed decides.
  virtual uint64_t Draw(uint64_t bound) = 0;
  // Notes that something happened that may never happen.
  virtual void Violate(const std::string& what) = 0;
  virtual bool tells() const = 0;
  virtual void Tell(WorkerId worker, const std::string& what) = 0;
};

// A copy of the states of a worker's ranks (kept_states.h).
class VirtualCopy {
 public:
  int64_t step() const { return step_; }
  void Forget() { step_ = -1; }
  void Take(const VirtualGroup& group, const WorkerFacts& facts, WorkerId worker);
  // Writes the copy into ranks of the same mesh.
  void PutInto(const WorkerFacts& facts, WorkerId worker, VirtualGroup* group) const;
  // Returns the bytes of a shard; null: the copy does not have it.
  const std::string* Read(RankId rank, const std::string& name) const;

 private:
  int64_t step_ = -1;
  std::map<std::pair<RankId, std::string>, std::string> bytes_;
};

class VirtualWorker {
 public:
  // `world` and `files` must outlive this object. `epoch` is that of the job when the process was
  // started.
  VirtualWorker(WorkerId worker, uint32_t epoch, std::shared_ptr<const WorkerFacts> facts,
                store::FileSystem* files, WorkerWorld* world);

  uint32_t started_in() const { return started_in_; }
  const VirtualGroup* group() const { return group_.get(); }
  const fleet::StepCopies<VirtualCopy>& kept() const { return kept_; }
  // Returns whole copies of others, as WorkerStanding has them.
  std::vector<fleet::WholeCopy> guarded() const { return guarded_.Whole(); }
  // Returns what the worker does, for reports of its failure.
  std::string Activity() const;
  // Returns the step that the next act does; -1: the next act does no step.
  int64_t NextStep() const;

  // What comes from the starter.
  void HearCommand(int64_t call, VirtualCommand command);
  void HearEpoch(uint32_t epoch);
  void HearValue(int64_t request, const std::string& value);
  // Other workers send a piece of a charge's copy, in `epoch`, and the news that the buddy has
  // taken `bytes` of the copy of `step`. HearPiece returns whether the piece counts.
  bool HearPiece(WorkerId charge, uint32_t epoch, int64_t step, const std::string& piece);
  void HearTaken(uint32_t epoch, int64_t step, int64_t bytes);

  bool CanAct() const;
  void Act();
  // The writing of shards goes on beside the commands.
  bool CanWrite() const { return save_ != nullptr && !save_->is_done; }
  void Write();
  // So does the way of a copy to the buddy.
  bool CanSend() const { return line_.has_value() && line_->put < line_->copy.size(); }
  void Send();

 private:
  using Kind = VirtualCommand::Kind;
  struct Running {
    control::CommandQueue<VirtualCommand>::Command command;
    int64_t progress = 0;    // acts that the command has taken
    int64_t left = 0;        // steps, or values that were fetched and have not come
    bool has_ended = false;  // the epoch of the command has ended
  };
  // The way to the buddy and from the charges (buddy_line.h).
  struct Line {
    uint32_t epoch = 0;
    WorkerId buddy;     // none: this worker sends nothing
    int64_t step = -1;  // of the copy under way
    std::string copy;   // its bytes
    size_t put = 0;     // bytes that are sent
    int64_t taken = 0;  // bytes that the buddy has taken
    int64_t sent_step = -1;
  };
  struct Save {
    VirtualCommand order;
    IdVector<RankId, std::vector<ShardValues>> values;
    std::unique_ptr<store::PendingCheckpoint> joined;
    struct File {
      std::unique_ptr<store::ShardWriter> writer;
      std::string bytes;
      int64_t done = 0;
    };
    std::vector<File> writers;
    std::vector<store::ShardFileRecord> files;
    absl::Status status;
    bool is_done = false;
  };

  const std::vector<RankId>& ranks() const { return facts_->ranks_of[worker_]; }
  fleet::WorkerStanding standing() const;
  void Finish(VirtualAnswer answer);
  void Finish(const absl::Status& status);
  void ActOpen(const VirtualCommand& command);
  absl::Status LeaveEpoch(const VirtualCommand& command);
  void OpenGroup(const VirtualCommand& command);
  void ActRun(const VirtualCommand& command);
  bool PeersAreReady() const;
  bool HasLostPeer() const;
  void DoStep();
  void ActLoad(const VirtualCommand& command);
  absl::Status LoadRank(const VirtualCommand& command, RankId rank);
  absl::StatusOr<std::string> Read(const fleet::StateMove& move) const;
  absl::Status Give(const VirtualCommand& command, std::vector<std::string>* given) const;
  absl::Status TakePart(const fleet::StateMove& move, const std::string& bytes);
  absl::Status Take(const VirtualCommand& command);
  void LeaveOldMesh();
  absl::Status JoinBuddies(const VirtualCommand& command);
  absl::Status Keep(const VirtualCommand& command);
  absl::Status WritePiece();
  absl::Status CreateFile();

  const WorkerId worker_;
  const uint32_t started_in_;
  std::shared_ptr<const WorkerFacts> facts_;  // of the mesh of its ranks
  store::FileSystem* const files_;
  WorkerWorld* const world_;
  control::CommandQueue<VirtualCommand> commands_;
  std::optional<Running> running_;
  std::unique_ptr<VirtualGroup> group_;
  std::unique_ptr<VirtualGroup> opening_;
  std::map<int64_t, std::string> fetched_;  // values that have come, by request
  int64_t next_request_ = 1, first_request_ = 1;
  fleet::StepCopies<VirtualCopy> kept_;
  fleet::GuardedStates guarded_;
  std::vector<fleet::GuardedShard> lone_;
  fleet::MeshesOfStates meshes_;
  std::optional<Line> line_;
  int64_t resting_step_ = -1;
  fleet::StateParts taken_;
  std::unique_ptr<Save> save_;
};

}  // namespace weir::chaos
