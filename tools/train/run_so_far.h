// RunSoFar is what a run has done over all starts of its processes. The final report of the run
// tells of it. A run whose processes fail may start them again: from its last checkpoint, or from
// where the run began.
//
//   { Begin -> { NoteLoss | NoteSkipped | GoBackTo | Note }* }*    Begin once in each start
//
// A step that is lost and done again counts once. Its time counts as often as the step was done.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tools/train/trainer.h"

namespace weir::train {

class RunSoFar {
 public:
  // A start begins, after `steps` steps. What earlier starts had done beyond is lost.
  void Begin(int64_t steps);
  // The loss of step `step`, counted from 0, is known.
  void NoteLoss(int64_t step, double loss);
  // The update after step `step`, counted from 0, is left out.
  void NoteSkipped(int64_t step);
  // The run goes back, and `steps` steps are done: what is noted of later steps does not count.
  void GoBackTo(int64_t steps);
  // The start has come to `start` so far, which has the steps and the time of this start alone.
  // Replaces what was noted of the same start.
  void Note(const TrainResult& start);

  // Returns how many steps of this run are done when `steps_done` are done, with those before a
  // resume. Steps that are lost are none of them.
  int64_t StepsAt(int64_t steps_done) const;
  // Returns the loss of the last step that is done; nullopt: none is, or its loss is forgotten.
  std::optional<double> last_loss() const;
  // Returns how many updates the run has left out. An update that is lost is none of them.
  int64_t num_skipped() const { return old_skipped_ + static_cast<int64_t>(skipped_.size()); }
  // Returns what the run has come to: the facts of the last start, and the steps, the time and the
  // checkpoints of all starts.
  TrainResult Whole() const;
  // Says why a run that is interrupted now, when none of its steps is done, writes no file.
  std::string NothingDoneText() const;

 private:
  std::optional<int64_t> began_at_;  // steps done before the first start
  int64_t most_steps_ = 0;           // that were ever done
  TrainResult earlier_;              // of the starts before the last one, as far as they add up
  TrainResult start_;                // of the last start
  std::optional<double> first_loss_;
  std::map<int64_t, double> losses_;  // of the last steps
  std::set<int64_t> skipped_;         // the last steps whose updates were left out
  int64_t old_skipped_ = 0;           // of the steps before those
};

}  // namespace weir::train
