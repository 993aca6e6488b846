// Finds the runs of this user on this machine, and reads the records that they keep of themselves
// (live_run.h). A reader trusts nothing in a record: any process may make such files.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tools/live/live_run.h"

namespace weir::live {

// The present state of a run, as far as `weir top` and Prometheus show it. Names as in live_run.h.
struct LiveState {
  struct Step {
    int64_t step = 0;
    double loss = 0, gradient_norm = 0, learning_rate = 0;  // NaN: not finite or not known
    double items_per_second = 0, step_seconds = 0, seconds_left = 0;
    double mfu = 0;
    std::vector<double> parts;  // by part_names; empty: not known
  };
  struct Busy {
    int64_t rank = 0, stage = 0;
    double share = 0;
    std::vector<double> parts;
  };
  struct Worker {
    std::vector<int64_t> ranks;
    std::string host, state, activity;
    int64_t pid = 0, silent_ms = 0, acts = 0, resident_bytes = 0;
  };
  int64_t pid = 0;
  std::string title, phase;
  int64_t started_unix_ms = 0, updated_unix_ms = 0, phase_since_unix_ms = 0;
  Doing doing;  // of no words: nothing is told
  int64_t resident_bytes = 0;
  std::vector<std::string> part_names;
  bool has_facts = false;
  int64_t steps = 0, parameters = 0, ranks = 0, bytes_per_rank = 0, threads_per_rank = 0;
  std::vector<int64_t> bytes_of_rank;
  double flops_per_step = 0, peak_flops = 0;  // NaN: not known
  std::string item, mesh, where, peak_from;
  bool has_step = false;
  Step step;
  int64_t stepped_unix_ms = 0;       // when it was reported
  std::string evaluation;            // empty: none yet
  int64_t restarts = 0;              // so far, and
  int64_t restarted_after_step = 0;  // the steps that were done at the last one
  int64_t recoveries = 0;            // so far, and of the last one:
  std::string recovered;             // the lost ranks, in words
  int64_t recovered_to_step = 0;
  double recovery_seconds = 0;
  int64_t growths = 0;  // so far, and of the last one:
  int64_t grown_after_step = 0;
  double growth_seconds = 0;
  std::vector<Busy> work;
  int64_t epoch = 0;  // of the workers; 0: not told
  std::vector<Worker> workers;
  int64_t warnings = 0;
  std::string said;
  bool has_ended = false;
  int64_t code = 0;
  std::string report;
};

// A run as it is seen now.
struct SeenRun {
  int64_t pid = 0;  // as the reader sees it
  bool is_alive = true;
  LiveState state;
  bool is_over() const { return state.has_ended || !is_alive; }
};

class LiveReader {
 public:
  // Opens the record of a process. kNotFound: the process has none, or this user may not read it.
  static absl::StatusOr<std::unique_ptr<LiveReader>> Open(int64_t pid);
  ~LiveReader();
  LiveReader(const LiveReader&) = delete;
  LiveReader& operator=(const LiveReader&) = delete;

  int64_t pid() const { return pid_; }  // as this process sees it
  // Returns whether the process of the run still exists.
  bool IsAlive() const;
  // Returns the state as text, a JSON object. kUnavailable: none can be read now.
  absl::StatusOr<std::string> StateText() const;
  absl::StatusOr<LiveState> State() const;
  // Returns the state, and whether the process existed before it was read. A run writes its end
  // before its process ends, so a run that is gone without an end was killed.
  absl::StatusOr<SeenRun> See() const;
  // Returns whole lines of the history from byte `from` on, at most `bytes_max`.
  std::string History(int64_t from, int64_t bytes_max) const;

 private:
  LiveReader(int64_t pid, int process, int now, int history)
      : pid_(pid), process_(process), now_(now), history_(history) {}

  const int64_t pid_;
  const int process_;  // descriptor of the process
  const int now_, history_;
};

// Returns the object of a state without what lies deeper than a state does, in which a foreign
// record might hide anything. A text that is no JSON gives null.
nlohmann::ordered_json ParseState(absl::string_view text);

// Returns readers of all runs of this user, oldest first; runs that have ended are gone.
std::vector<std::unique_ptr<LiveReader>> FindRuns();

// Returns the run that a person means: by its process id, or by its title; "" means the only run.
// kNotFound (W0891): none or several fit; the message lists the runs.
absl::StatusOr<std::unique_ptr<LiveReader>> FindRun(absl::string_view name);

}  // namespace weir::live
