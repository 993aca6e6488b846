#include "compiler/play_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "ops/defs/op_def.h"

namespace weir::compiler {
namespace {

constexpr int64_t kActsMax = 400000;
constexpr int64_t kLater = std::numeric_limits<int64_t>::max();

double FlopsOf(const Function& function) {
  double total = 0;
  for (const Node& node : function.nodes) {
    const OpDef* def = OpRegistry::Find(node.op);
    if (def == nullptr || !def->flops) continue;
    std::vector<TensorType> inputs, outputs;
    for (ValueId input : node.inputs) inputs.push_back(input < 0 ? TensorType{} : function.values[input].type);
    for (ValueId output : node.outputs) outputs.push_back(function.values[output].type);
    total += def->flops(node.attrs, inputs, outputs);
  }
  return total;
}

class Player {
 public:
  Player(const PipelineSchedule& schedule, const PartCosts& costs) : schedule_(schedule), costs_(costs) {
    passes_ = {PipelinePass::kForward, PipelinePass::kBackward};
    if (schedule.splits_backward()) passes_.push_back(PipelinePass::kWeightGradient);
    for (auto& ends : ends_) ends.resize(schedule.num_parts());
    free_at_.assign(schedule.num_stages, 0);
    play_.stages.resize(schedule.num_stages);
  }

  SchedulePlay Run() {
    const int64_t acts = static_cast<int64_t>(passes_.size()) * schedule_.num_parts() * schedule_.micro_batches;
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
      play_.bubble = 1 - static_cast<double>(busy) / (static_cast<double>(play_.span) * static_cast<double>(schedule_.num_stages));
    }
    return std::move(play_);
  }

 private:
  const std::vector<int64_t>& Ends(PipelinePass pass, int64_t part) const { return ends_[static_cast<int>(pass)][part]; }

  // When act k of a pass has ended; kLater if it has not begun. There is nothing to wait for before the first.
  int64_t EndOf(PipelinePass pass, int64_t part, int64_t k) const {
    if (k < 0) return 0;
    return k < static_cast<int64_t>(Ends(pass, part).size()) ? Ends(pass, part)[k] : kLater;
  }

  // When act k has its tokens and slots.
  int64_t ReadyAt(PipelinePass pass, int64_t part, int64_t k) const {
    constexpr PipelinePass kForward = PipelinePass::kForward, kBackward = PipelinePass::kBackward, kWeights = PipelinePass::kWeightGradient;
    const int64_t last_part = schedule_.num_parts() - 1;
    auto slot = [&](PipelinePass read) { return EndOf(read, part, k - schedule_.Kept(pass, part, read, part)); };
    int64_t at = 0;
    if (pass == kForward) {
      at = std::max(at, slot(kBackward));
      if (part > 0) at = std::max(at, EndOf(kForward, part - 1, k));
      if (schedule_.splits_backward()) at = std::max(at, slot(kWeights));
    } else if (pass == kBackward) {
      at = std::max(at, EndOf(kForward, part, part == last_part && schedule_.gates_backward() ? schedule_.micro_batches - 1 : k));
      if (part < last_part) at = std::max(at, EndOf(kBackward, part + 1, k));
      if (schedule_.splits_backward()) at = std::max(at, slot(kWeights));
    } else {
      at = EndOf(kBackward, part, k);
    }
    return at;
  }

  // What stage s begins now; `end` is 0 if nothing is ready.
  SchedulePlay::Act Best(int64_t s, int64_t now) const {
    SchedulePlay::Act best;
    std::tuple<int, int64_t, int64_t> best_key;
    for (PipelinePass pass : passes_) {
      for (int64_t part = s; part < schedule_.num_parts(); part += schedule_.num_stages) {
        const int64_t k = static_cast<int64_t>(Ends(pass, part).size());
        if (k == schedule_.micro_batches || ReadyAt(pass, part, k) > now) continue;
        const std::tuple<int, int64_t, int64_t> key{-schedule_.PriorityOf(pass, PipelineSchedule::Begin::kBegins),
                                                    schedule_.TurnOf(pass, part).At(k), part};
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
  std::array<std::vector<std::vector<int64_t>>, 3> ends_;  // by pass, part, micro-batch
  std::vector<int64_t> free_at_;
  SchedulePlay play_;
};

}  // namespace

PartCosts EvenCosts(const PipelineSchedule& schedule) {
  const std::vector<int64_t> one(schedule.num_parts(), 1);
  if (schedule.splits_backward()) return {one, one, one};
  return {one, std::vector<int64_t>(schedule.num_parts(), 2), std::vector<int64_t>(schedule.num_parts(), 0)};
}

PartCosts FlopCosts(const PipelineSchedule& schedule, const Module& module) {
  std::array<std::vector<double>, 3> flops;
  for (auto& list : flops) list.assign(schedule.num_parts(), 0);
  std::vector<double> of_function(module.functions.size(), -1);
  auto add = [&](int function, PipelinePass pass, int64_t part) {
    if (function < 0) return;
    if (of_function[function] < 0) of_function[function] = FlopsOf(module.functions[function]);
    flops[static_cast<int>(pass)][part] += of_function[function];
  };
  double most = 1;
  for (const ModelCall& call : module.model.calls) {
    const ModelFunction& function = module.model.functions[call.model_function];
    add(function.forward, PipelinePass::kForward, call.part);
    add(function.backward, PipelinePass::kBackward, call.part);
    add(function.weight_gradient, PipelinePass::kWeightGradient, call.part);
  }
  for (const auto& list : flops) most = std::max(most, *std::max_element(list.begin(), list.end()));
  PartCosts costs;
  for (size_t pass = 0; pass < costs.size(); ++pass) {
    for (double f : flops[pass]) costs[pass].push_back(std::max<int64_t>(1, static_cast<int64_t>(f / most * 1e6)));
  }
  return costs;
}

SchedulePlay PlaySchedule(const PipelineSchedule& schedule, const PartCosts& costs) { return Player(schedule, costs).Run(); }

std::string ScheduleChart(const SchedulePlay& play, size_t columns_max) {
  const size_t span = static_cast<size_t>(play.span), num_stages = play.stages.size();
  const bool numbered = 2 * span <= columns_max;
  const size_t shown = numbered ? span : std::min(span, columns_max);
  const size_t tail = shown < span ? shown / 3 : 0, head = shown - tail;
  std::string text;
  for (size_t s = 0; s < num_stages; ++s) {
    std::vector<std::string> cells(span, numbered ? "··" : "·");
    for (const SchedulePlay::Act& act : play.stages[s]) {
      const bool later = act.part >= static_cast<int64_t>(num_stages);
      const std::string letter(1, (later ? "fbw" : "FBW")[static_cast<int>(act.pass)]);
      for (int64_t t = act.begin; t < act.end; ++t) cells[t] = numbered ? absl::StrCat(letter, act.micro_batch % 10) : letter;
    }
    absl::StrAppend(&text, "  stage ", s, num_stages > 10 && s < 10 ? "  " : " ");
    for (size_t t = 0; t < head; ++t) absl::StrAppend(&text, cells[t]);
    if (tail > 0) absl::StrAppend(&text, " … ");
    for (size_t t = span - tail; t < span && tail > 0; ++t) absl::StrAppend(&text, cells[t]);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace weir::compiler
