// The progress of a run as people see it: on a terminal one redrawn line, elsewhere plain lines
// (the first, the last, and at most one per two seconds). Not here: the sharing of the terminal
// with other lines (tools/console).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "tools/console/console.h"

namespace weir::train {

struct ProgressStep {
  int64_t step = 0;   // steps done
  int64_t steps = 0;  // steps of the run
  double loss = 0;
  std::optional<double> gradient_norm;  // none before the first update
  double learning_rate = 0;
  double items_per_second = 0;
  std::optional<double> seconds_left;  // none: not known yet
};

class Progress {
 public:
  // `console` and `clock` must outlive this object. `item` is "tokens" or "samples".
  Progress(const std::string& item, const Clock* clock, console::Console* console)
      : item_(item), clock_(clock), console_(console) {}

  void Show(const ProgressStep& step);
  // A line that stays, such as an evaluation or a warning.
  void Say(const std::string& line) { console_->Say(line); }
  // Leaves the redrawn line on the screen.
  void Finish() { console_->EndStatus(); }

 private:
  std::string item_;
  const Clock* clock_;
  console::Console* console_;
  bool shown_ = false;
  int64_t last_shown_ns_ = 0;
};

// Returns "step 12/500  loss 2.3412  grad 0.87  lr 9.1e-04  52.3k tokens/s  1m12s left", and
// shorter forms for narrow terminals. The shorter forms drop the least important parts first: the
// learning rate, the norm, words. Step, loss and speed stay. The time left is missing while it is
// not known.
std::vector<std::string> ProgressForms(const ProgressStep& step, const std::string& item);
// Returns "850ms", "12.3s", "1m12s" or "3h05m".
std::string DurationText(double seconds);

}  // namespace weir::train
