// A GrowingRun is what a page gets of a run while the run is analysed: first the run itself, then
// the analysis, and meanwhile what the analysis does.
//
//   reading -- GiveRun --> run known -- GiveAnalysis --> complete
//      '------------------ Fail ------------------> failed
//
// Thread rule: any thread. A text that was given stays where it is until the GrowingRun ends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace weir::view {

class GrowingRun {
 public:
  // Says what goes on, for people: "reads the trace".
  void Tell(const std::string& doing);
  // Gives the bundle of the run (run_bundle.h), and then that of its analysis; each once.
  void GiveRun(std::string bundle);
  void GiveAnalysis(std::string bundle);
  // Gives the run up.
  void Fail(const absl::Status& status);

  // Waits at most `limit_ms` for the run or a failure. Returns the bundle; null: not yet, or never.
  const std::string* WaitForRun(int64_t limit_ms) const;
  // Returns the bundle of the analysis; null: not yet, or never.
  const std::string* analysis() const;
  // Returns whether there is nothing more to come.
  bool is_over() const;
  // Waits at most `limit_ms` until there is nothing more to come; returns whether that is so.
  bool WaitUntilOver(int64_t limit_ms) const;
  absl::Status status() const;  // what Fail was given
  // Returns {"ready": whether the analysis is there, "doing": text, "failed": text}; the last is
  // there only after a failure.
  std::string ProgressJson() const;

 private:
  bool IsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !status_.ok() || has_analysis_;
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::string doing_ ABSL_GUARDED_BY(mutex_) = "reads the trace";
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool has_run_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_analysis_ ABSL_GUARDED_BY(mutex_) = false;
  std::string run_ ABSL_GUARDED_BY(mutex_);
  std::string analysis_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::view
