#include "tools/train/progress.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

constexpr int64_t kQuietNs = 2'000'000'000;
constexpr int64_t kRedrawNs = 80'000'000;

}  // namespace

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1) return absl::StrFormat("%.0fms", seconds * 1000);
  if (seconds < 60) return absl::StrFormat("%.1fs", seconds);
  int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

std::string CountText(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 1000) return absl::StrFormat("%.0f", count);
  if (count < 1e6) return absl::StrFormat("%.1fk", count / 1e3);
  if (count < 1e9) return absl::StrFormat("%.2fM", count / 1e6);
  return absl::StrFormat("%.2fG", count / 1e9);
}

std::string ProgressText(const ProgressStep& step, const std::string& item) {
  const std::string gradient = step.gradient_norm.has_value() ? absl::StrFormat("  grad %.3g", *step.gradient_norm) : "";
  return absl::StrFormat("step %d/%d  loss %.4f%s  lr %.2e  %s %s/s  %s left", step.step, step.steps, step.loss, gradient, step.learning_rate, CountText(step.items_per_second), item,
                         DurationText(step.seconds_left));
}

void Progress::Show(const ProgressStep& step) {
  int64_t now = clock_->NowNs();
  bool last = step.step == step.steps;
  int64_t pause = console_->style() == Console::Style::kTerminal ? kRedrawNs : kQuietNs;
  if (shown_ && !last && now - last_shown_ns_ < pause) return;
  shown_ = true;
  last_shown_ns_ = now;
  console_->ShowStatus(ProgressText(step, item_));
}

}  // namespace weir
