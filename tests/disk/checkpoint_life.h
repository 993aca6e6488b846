// The life of a run's folder of checkpoints on a simulated disk: the product's code saves, commits,
// points `latest`, sweeps and loads, while the power fails, the process is killed, and the disk
// refuses. After each of these the life checks what users rely on:
//
//   readable   every committed checkpoint is whole: index, checksums, content sums
//   unmixed    all values of a checkpoint are those of one save
//   kept       a checkpoint whose commit has returned is there, unless retention removes it
//   latest     `latest` names a readable checkpoint that is not older than the last such one
//   goes on    the next save succeeds, and leaves nothing but checkpoints and `latest`
//
// Where the disk cannot exchange two names, a checkpoint that is saved again under the same step
// has another name for a moment; then `kept` and `latest` do not hold for that step until the next
// save. Everything follows from the seed. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "tests/disk/planted_faults.h"
#include "tests/disk/simulated_disk.h"

namespace weir::disk {

class CheckpointLife {
 public:
  struct Options {
    uint64_t seed = 1;
    bool exchanges_names = true;
    Planted planted = Planted::kNothing;
  };
  explicit CheckpointLife(const Options& options);

  SimulatedDisk* disk() { return &disk_; }
  // Saves the next checkpoint: of a later step, or now and then of an earlier or the same step.
  absl::Status Save();
  // Returns what does not hold; "" if all holds. The disk must be calm.
  std::string Check();
  // Returns what does not hold after a Save on a calm disk that returned `saved`.
  std::string CheckClean(const absl::Status& saved);

 private:
  struct Attempt {
    int64_t step = 0;
    int64_t version = 0;  // counts attempts; all values of the checkpoint follow from it
    int32_t ranks = 1;
    store::Retention retention;
  };

  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  Attempt NextAttempt();
  absl::Status Write(const Attempt& attempt);
  void NoteOutcome(const Attempt& attempt, const absl::Status& status);
  // Returns what is wrong with a checkpoint; sets the version that it has.
  std::string CheckOne(const std::string& path, int64_t step, int64_t* version);

  const Options options_;
  std::mt19937_64 random_;
  SimulatedDisk disk_;
  PlantedFaults files_;
  int64_t versions_ = 0, last_step_ = 0;
  std::set<int64_t> kept_;                            // steps that must be there
  std::set<int64_t> uncertain_;                       // steps that may be there
  std::map<int64_t, std::set<int64_t>> versions_of_;  // that a step may have
  int64_t latest_version_min_ = 0;                    // 0: no commit has returned
};

struct LifeOutcome {
  int64_t crashes = 0, errors = 0, saves = 0;
  std::string problem;  // what does not hold, and when; empty: all holds
};
// A life of a few saves with crashes, errors and losses of power that the seed draws.
LifeOutcome LiveAtRandom(const CheckpointLife::Options& options);
// Lives the same few saves again and again, with a loss of power, a kill, or an error of the disk
// at each operation in turn. Returns the outcomes of all.
LifeOutcome LiveThroughEachFault(const CheckpointLife::Options& options);

}  // namespace weir::disk
