#include "compiler/rhythm/play_schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace weir::compiler {
namespace {

constexpr int64_t kActsMax = 400000;
constexpr double kSliver = 1e-6;  // of a column
constexpr int64_t kLater = std::numeric_limits<int64_t>::max();

class Player {
 public:
  Player(const PipelineSchedule& schedule, const PartCosts& costs)
      : schedule_(schedule), costs_(costs) {
    passes_ = {PipelinePass::kForward, PipelinePass::kBackward};
    if (schedule.splits_backward()) passes_.push_back(PipelinePass::kWeightGradient);
    for (auto& ends : ends_) ends.resize(schedule.num_parts());
    for (int64_t part = 0; part < schedule.num_parts(); ++part) {
      before_.push_back(schedule.PartsBefore(part));
      after_.push_back(schedule.PartsAfter(part));
    }
    free_at_.assign(schedule.num_stages, 0);
    play_.stages.resize(schedule.num_stages);
  }

  SchedulePlay Run() {
    const int64_t acts =
        static_cast<int64_t>(passes_.size()) * schedule_.num_parts() * schedule_.micro_batches;
    if (acts > kActsMax) return {};
    std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> events;
    events.push(0);
    int64_t busy = 0;
    while (!events.empty()) {
      const int64_t now = events.top();
      while (!events.empty() && events.top() == now) events.pop();
      for (int64_t s = 0; s < schedule_.num_stages; ++s) {
        if (free_at_[s] > now) continue;
        SchedulePlay::Act act = Best(s, now);
        if (act.end == 0) continue;
        ends_[static_cast<int>(act.pass)][act.part].push_back(act.end);
        free_at_[s] = act.end;
        busy += act.end - act.begin;
        play_.span = std::max(play_.span, act.end);
        play_.stages[s].push_back(act);
        events.push(act.end);
      }
    }
    if (play_.span > 0) {
      play_.bubble = 1 - static_cast<double>(busy) / (static_cast<double>(play_.span) *
                                                      static_cast<double>(schedule_.num_stages));
    }
    return std::move(play_);
  }

 private:
  const std::vector<int64_t>& Ends(PipelinePass pass, int64_t part) const {
    return ends_[static_cast<int>(pass)][part];
  }

  // Returns the end of act k of a pass, or kLater if the act has not begun. Returns 0 for an act
  // before the first.
  int64_t EndOf(PipelinePass pass, int64_t part, int64_t k) const {
    if (k < 0) return 0;
    return k < static_cast<int64_t>(Ends(pass, part).size()) ? Ends(pass, part)[k] : kLater;
  }

  // Returns the time at which act k has its tokens and slots.
  int64_t ReadyAt(PipelinePass pass, int64_t part, int64_t k) const {
    constexpr PipelinePass kForward = PipelinePass::kForward, kBackward = PipelinePass::kBackward,
                           kWeights = PipelinePass::kWeightGradient;
    auto slot = [&](PipelinePass read) {
      return EndOf(read, part, k - schedule_.Kept(pass, part, read, part));
    };
    int64_t at = 0;
    if (pass == kForward) {
      at = std::max(at, slot(kBackward));
      for (const int64_t before : before_[part]) at = std::max(at, EndOf(kForward, before, k));
      if (schedule_.splits_backward()) at = std::max(at, slot(kWeights));
    } else if (pass == kBackward) {
      at = std::max(
          at, EndOf(kForward, part,
                    after_[part].empty() && schedule_.gates_backward() ? schedule_.micro_batches - 1
                                                                       : k));
      for (const int64_t after : after_[part]) at = std::max(at, EndOf(kBackward, after, k));
      if (schedule_.splits_backward()) at = std::max(at, slot(kWeights));
    } else {
      at = EndOf(kBackward, part, k);
    }
    return at;
  }

  // Returns the act that stage s begins now. `end` is 0 if nothing is ready.
  SchedulePlay::Act Best(int64_t s, int64_t now) const {
    SchedulePlay::Act best;
    std::tuple<int, int64_t, int64_t> best_key;
    for (PipelinePass pass : passes_) {
      for (int64_t part = s; part < schedule_.num_parts(); part += schedule_.num_stages) {
        const int64_t k = static_cast<int64_t>(Ends(pass, part).size());
        if (k == schedule_.micro_batches || ReadyAt(pass, part, k) > now) continue;
        const std::tuple<int, int64_t, int64_t> key{
            -schedule_.PriorityOf(pass, PipelineSchedule::Begin::kBegins),
            schedule_.PrecedenceOf(pass, part).At(k), part};
        if (best.end > 0 && best_key < key) continue;
        best_key = key;
        best = {pass, part, k, now, now + costs_[static_cast<int>(pass)][part]};
      }
    }
    return best;
  }

  const PipelineSchedule& schedule_;
  const PartCosts& costs_;
  std::vector<PipelinePass> passes_;
  std::vector<std::vector<int64_t>> before_, after_;       // by part: PartsBefore, PartsAfter
  std::array<std::vector<std::vector<int64_t>>, 3> ends_;  // by pass, part, micro-batch
  std::vector<int64_t> free_at_;
  SchedulePlay play_;
};

// Returns the mean time of a part's forward pass over a micro-batch.
double MeanForward(const SchedulePlay& play) {
  double sum = 0;
  std::set<std::pair<int64_t, int64_t>> passes;
  for (const auto& acts : play.stages) {
    for (const SchedulePlay::Act& act : acts) {
      if (act.pass != PipelinePass::kForward) continue;
      sum += static_cast<double>(act.end - act.begin);
      passes.emplace(act.part, act.micro_batch);
    }
  }
  return passes.empty() ? 0 : sum / static_cast<double>(passes.size());
}

// Returns by column the act that takes the largest share of the column, or null if idle time takes
// more.
std::vector<const SchedulePlay::Act*> MostOfColumns(const std::vector<SchedulePlay::Act>& acts,
                                                    double column, size_t num_columns) {
  std::vector<const SchedulePlay::Act*> most(num_columns, nullptr);
  std::vector<double> best(num_columns, 0), used(num_columns, 0);
  using Key = std::tuple<PipelinePass, int64_t, int64_t>;
  std::map<std::pair<size_t, Key>, double> share;  // acts of one pass of a part count together
  for (const SchedulePlay::Act& act : acts) {
    const double begin = static_cast<double>(act.begin) / column,
                 end = static_cast<double>(act.end) / column;
    for (auto c = static_cast<size_t>(begin);
         c < num_columns && static_cast<double>(c) < end - kSliver; ++c) {
      const double part =
          std::min(end, static_cast<double>(c) + 1) - std::max(begin, static_cast<double>(c));
      double& sum = share[{c, Key{act.pass, act.part, act.micro_batch}}];
      sum += part;
      used[c] += part;
      if (sum > best[c] + kSliver) {
        best[c] = sum;
        most[c] = &act;
      }
    }
  }
  for (size_t c = 0; c < num_columns; ++c) {
    if (1 - used[c] > best[c]) most[c] = nullptr;
  }
  return most;
}

}  // namespace

PartCosts EvenCosts(const PipelineSchedule& schedule) {
  const std::vector<int64_t> one(schedule.num_parts(), 1);
  if (schedule.splits_backward()) return {one, one, one};
  return {one, std::vector<int64_t>(schedule.num_parts(), 2),
          std::vector<int64_t>(schedule.num_parts(), 0)};
}

SchedulePlay PlaySchedule(const PipelineSchedule& schedule, const PartCosts& costs) {
  return Player(schedule, costs).Run();
}

ScheduleChart DrawSchedule(const SchedulePlay& play, size_t columns_max) {
  ScheduleChart chart;
  chart.column = MeanForward(play);
  if (chart.column <= 0) return chart;
  const size_t num_stages = play.stages.size();
  const auto span =
      static_cast<size_t>(std::ceil(static_cast<double>(play.span) / chart.column - kSliver));
  chart.numbered = 2 * span <= columns_max;
  const size_t shown = chart.numbered ? span : std::min(span, columns_max);
  const size_t tail = shown < span ? shown / 3 : 0, head = shown - tail;
  for (size_t s = 0; s < num_stages; ++s) {
    const std::vector<const SchedulePlay::Act*> most =
        MostOfColumns(play.stages[s], chart.column, span);
    auto add = [&](size_t column) {
      const SchedulePlay::Act* act = most[column];
      if (act == nullptr) {
        chart.text += chart.numbered ? "··" : "·";
        return;
      }
      chart.text +=
          (act->part >= static_cast<int64_t>(num_stages) ? "fbw"
                                                         : "FBW")[static_cast<int>(act->pass)];
      if (chart.numbered) absl::StrAppend(&chart.text, act->micro_batch % 10);
    };
    absl::StrAppend(&chart.text, "  stage ", s, num_stages > 10 && s < 10 ? "  " : " ");
    for (size_t column = 0; column < head; ++column) add(column);
    if (tail > 0) absl::StrAppend(&chart.text, " … ");
    for (size_t column = span - tail; column < span && tail > 0; ++column) add(column);
    absl::StrAppend(&chart.text, "\n");
  }
  return chart;
}

}  // namespace weir::compiler
