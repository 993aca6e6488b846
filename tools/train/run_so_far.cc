#include "tools/train/run_so_far.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/unit_text.h"

namespace weir::train {
namespace {

// A run that goes back finds at most this number of losses, and of steps without update.
constexpr size_t kStepsKeptMax = 4096;

CheckpointTotals Sum(const CheckpointTotals& a, const CheckpointTotals& b) {
  CheckpointTotals sum;
  sum.written = a.written + b.written;
  sum.bytes = a.bytes + b.bytes;
  sum.write_seconds = a.write_seconds + b.write_seconds;
  sum.stall_seconds = a.stall_seconds + b.stall_seconds;
  sum.num_stalls = a.num_stalls + b.num_stalls;
  return sum;
}

}  // namespace

void RunSoFar::Begin(int64_t steps) {
  earlier_ = Whole();
  start_ = TrainResult();
  start_.steps_done = steps;
  if (!began_at_.has_value()) began_at_ = most_steps_ = steps;
  if (StepsAt(steps) == 0) earlier_.evaluation.reset();  // its weights are lost
  GoBackTo(steps);
}

void RunSoFar::NoteLoss(int64_t step, double loss) {
  if (began_at_ == step) first_loss_ = loss;
  most_steps_ = std::max(most_steps_, step + 1);
  losses_[step] = loss;
  if (losses_.size() > kStepsKeptMax) losses_.erase(losses_.begin());
}

void RunSoFar::NoteSkipped(int64_t step) {
  skipped_.insert(step);
  if (skipped_.size() <= kStepsKeptMax) return;
  skipped_.erase(skipped_.begin());
  ++old_skipped_;
}

void RunSoFar::GoBackTo(int64_t steps) {
  losses_.erase(losses_.lower_bound(steps), losses_.end());
  skipped_.erase(skipped_.lower_bound(steps), skipped_.end());
}

void RunSoFar::Note(const TrainResult& start) { start_ = start; }

int64_t RunSoFar::StepsAt(int64_t steps_done) const {
  return std::max<int64_t>(0, steps_done - began_at_.value_or(steps_done));
}

std::optional<double> RunSoFar::last_loss() const {
  if (losses_.empty()) return std::nullopt;
  return losses_.rbegin()->second;
}

TrainResult RunSoFar::Whole() const {
  TrainResult whole = start_;
  whole.steps_here = StepsAt(start_.steps_done);
  whole.seconds_here += earlier_.seconds_here;
  whole.checkpoints = Sum(earlier_.checkpoints, start_.checkpoints);
  whole.first_loss = first_loss_.value_or(0);
  whole.last_loss = last_loss().value_or(0);
  if (!whole.evaluation.has_value()) whole.evaluation = earlier_.evaluation;
  return whole;
}

std::string RunSoFar::NothingDoneText() const {
  const int64_t lost = StepsAt(most_steps_);
  if (lost == 0)
    return "interrupted before the first step of this run: no file is written or changed";
  return absl::StrCat("interrupted before a step was done again: ", Plural(lost, "step"),
                      " of this run ", lost == 1 ? "is" : "are",
                      " lost, because no checkpoint has ", lost == 1 ? "it" : "them",
                      ". No weights and no checkpoint are written");
}

}  // namespace weir::train
