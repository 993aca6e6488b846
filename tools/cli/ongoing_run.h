// A run of `weir train` as it goes on, with what outlives its steps and its starts.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/input_watch.h"
#include "tools/launch/signal_watch.h"
#include "tools/live/live_run.h"
#include "tools/train/run_folder.h"

namespace weir::cli {

struct OngoingRun {
  console::Console* console = nullptr;
  launch::SignalWatch* signals = nullptr;
  MonotonicClock clock;
  std::unique_ptr<live::LiveRun> live;  // null before the job is read
  // The run holds its checkpoints over all its starts; nullopt before the job is read.
  std::optional<train::RunFolder> folder;
  std::string first_init;                   // --init of the first start
  std::optional<fleet::InputWatch> inputs;  // of a run that may start again
  std::unique_ptr<fleet::Fleet> fleet;      // the processes of the job; null: this one
  bool has_loaded = false;                  // the last start after a failure has loaded all ranks
  std::string failure;                      // the report of a failed process
};

// Shows a line to people, here and wherever the run is watched.
inline void Tell(absl::string_view line, OngoingRun* run) {
  run->console->Say(line);
  if (run->live != nullptr) run->live->Say(line);
}

}  // namespace weir::cli
