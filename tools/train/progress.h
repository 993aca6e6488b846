// The progress of a run as people see it: on a terminal one redrawn line, elsewhere plain lines
// (the first, the last, and at most one per two seconds). Programs that watch the run see the same
// in its record (tools/live). Not here: the sharing of the terminal with other lines
// (tools/console).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "tools/console/console.h"
#include "tools/live/live_run.h"

namespace weir::train {

class Progress {
 public:
  // `console`, `clock` and `live` must outlive this object. `item` is "tokens" or "samples".
  // `live`: the record of the run; null: none is kept.
  Progress(const std::string& item, const Clock* clock, console::Console* console,
           live::LiveRun* live)
      : item_(item), clock_(clock), console_(console), live_(live) {}

  void Enter(live::Phase phase);
  void Show(const live::LiveStep& step);
  // A line that stays, such as an evaluation or a warning.
  void Say(const std::string& line);
  // A line that stays, below the last redrawn line, which may be of an earlier step.
  void SayLast(const std::string& line) {
    Finish();
    Say(line);
  }
  // Leaves the redrawn line on the screen.
  void Finish() { console_->EndStatus(); }

 private:
  std::string item_;
  const Clock* clock_;
  console::Console* console_;
  live::LiveRun* live_;
  bool shown_ = false;
  int64_t last_shown_ns_ = 0;
};

// Returns "step 12/500  loss 2.3412  grad 0.87  lr 9.1e-04  52.3k tokens/s  1m12s left", and
// shorter forms for narrow terminals. The shorter forms drop the least important parts first: the
// learning rate, the norm, words. Step, loss and speed stay. The time left is missing while it is
// not known.
std::vector<std::string> ProgressForms(const live::LiveStep& step, const std::string& item);

}  // namespace weir::train
