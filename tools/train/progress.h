// What a person sees of a run: on a terminal one line that is redrawn, elsewhere a
// plain line now and then (the first, the last, and at most one per two seconds).
// Not here: how lines share the terminal with those of others (tools/console).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "tools/console/console.h"

namespace weir {

struct ProgressStep {
  int64_t step = 0;   // steps done
  int64_t steps = 0;  // steps of the run
  double loss = 0;
  std::optional<double> gradient_norm;  // none before the first update
  double learning_rate = 0;
  double items_per_second = 0;
  double seconds_left = 0;
};

class Progress {
 public:
  // `console` and `clock` must outlive this. `item` is "tokens" or "samples".
  Progress(const std::string& item, const Clock* clock, Console* console)
      : item_(item), clock_(clock), console_(console) {}

  void Show(const ProgressStep& step);
  // A line that stays, such as an evaluation or a warning.
  void Say(const std::string& line) { console_->Say(line); }
  // Leaves the redrawn line standing.
  void Finish() { console_->EndStatus(); }

 private:
  std::string item_;
  const Clock* clock_;
  Console* console_;
  bool shown_ = false;
  int64_t last_shown_ns_ = 0;
};

// "step 12/500  loss 2.3412  grad 0.87  lr 9.1e-04  52.3k tokens/s  1m12s left", and shorter forms
// for narrow terminals. What a reader misses least goes first: the learning rate, the norm, words;
// step, loss and speed stay.
std::vector<std::string> ProgressForms(const ProgressStep& step, const std::string& item);
// "850ms", "12.3s", "1m12s", "3h05m".
std::string DurationText(double seconds);

}  // namespace weir
