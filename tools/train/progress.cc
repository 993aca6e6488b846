#include "tools/train/progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/unit_text.h"

namespace weir::train {
namespace {

constexpr int64_t kQuietNs = 2'000'000'000;
constexpr int64_t kRedrawNs = 80'000'000;

}  // namespace

std::vector<std::string> ProgressForms(const live::LiveStep& step, const std::string& item) {
  const std::string steps = absl::StrCat(step.step, "/", step.steps),
                    loss = absl::StrFormat("  loss %.4f", step.loss);
  const std::string gradient =
      step.gradient_norm.has_value() ? absl::StrFormat("  grad %.3g", *step.gradient_norm) : "";
  const std::string rate = absl::StrFormat("  lr %.2e", step.learning_rate),
                    speed = absl::StrCat("  ", ShortCount(step.items_per_second));
  const std::string left =
      step.seconds_left.has_value() ? absl::StrCat("  ", DurationText(*step.seconds_left)) : "";
  const std::string words = left.empty() ? "" : absl::StrCat(left, " left");
  return {absl::StrCat("step ", steps, loss, gradient, rate, speed, " ", item, "/s", words),
          absl::StrCat("step ", steps, loss, gradient, speed, " ", item, "/s", words),
          absl::StrCat("step ", steps, loss, speed, " ", item, "/s", words),
          absl::StrCat(steps, loss, speed, " ", item, "/s", left),
          absl::StrCat(steps, loss, speed, "/s")};
}

void Progress::Enter(live::Phase phase) {
  if (live_ != nullptr) live_->Enter(phase);
}

void Progress::Say(const std::string& line) {
  console_->Say(line);
  if (live_ != nullptr) live_->Say(line);
}

void Progress::Show(const live::LiveStep& step) {
  int64_t now = clock_->NowNs();
  bool last = step.step == step.steps;
  int64_t pause = console_->style() == console::Console::Style::kTerminal ? kRedrawNs : kQuietNs;
  if (shown_ && !last && now - last_shown_ns_ < pause) return;
  shown_ = true;
  last_shown_ns_ = now;
  console_->ShowStatus(ProgressForms(step, item_));
}

}  // namespace weir::train
