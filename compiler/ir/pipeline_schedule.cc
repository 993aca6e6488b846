#include "compiler/ir/pipeline_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// Returns how many virtual micro-batches (micro-batches times parts) stage `s` sends forward before
// its first backward act.
int64_t Lead(const PipelineSchedule& schedule, int64_t s) {
  const int64_t p = schedule.num_stages, v = schedule.virtual_stages;
  return v == 1 ? schedule.StagesAfter(s) : 2 * (p - s - 1) + (v - 1) * p;
}

struct VirtualAct {
  int64_t precedence = 0;
  int64_t part = 0;
  bool forward = true;
};

// Plays one stage in the order of precedences and counts the most that each of its parts holds.
void CountInFlight(int64_t s, PipelineSchedule* schedule) {
  std::vector<VirtualAct> forward, backward;
  for (int64_t part = s; part < schedule->num_parts(); part += schedule->num_stages) {
    for (int64_t k = 0; k < schedule->micro_batches; ++k) {
      forward.push_back({schedule->PrecedenceOf(PipelinePass::kForward, part).At(k), part, true});
      backward.push_back(
          {schedule->PrecedenceOf(PipelinePass::kBackward, part).At(k), part, false});
    }
  }
  auto earlier = [](const VirtualAct& a, const VirtualAct& b) {
    return a.precedence < b.precedence;
  };
  std::sort(forward.begin(), forward.end(), earlier);
  std::sort(backward.begin(), backward.end(), earlier);
  const int64_t lead = Lead(*schedule, s);
  std::vector<int64_t> held(schedule->num_parts(), 0);
  size_t next = 0;
  for (size_t n = 0; n < backward.size(); ++n) {
    for (; next < forward.size() && static_cast<int64_t>(next) <= static_cast<int64_t>(n) + lead;
         ++next) {
      int64_t& count = held[forward[next].part];
      schedule->in_flight[forward[next].part] =
          std::max(schedule->in_flight[forward[next].part], ++count);
    }
    --held[backward[n].part];
  }
}

// Sets in_flight for the kind of the schedule and for the place of each stage.
void SetInFlight(PipelineSchedule* schedule) {
  const int64_t m = schedule->micro_batches;
  schedule->in_flight.assign(schedule->num_parts(), 1);
  for (int64_t s = 0; s < schedule->num_stages; ++s) {
    const int64_t after = schedule->StagesAfter(s);
    switch (schedule->kind) {
      case ScheduleKind::kGpipe: schedule->in_flight[s] = m; break;
      case ScheduleKind::kInterleaved: CountInFlight(s, schedule); break;
      case ScheduleKind::kZeroBubble:
        schedule->in_flight[s] = std::min({schedule->stages_in_a_row(), 2 * after + 1, m});
        break;
      default: schedule->in_flight[s] = std::min(after + 1, m); break;
    }
  }
}

}  // namespace

int64_t PipelineSchedule::stages_in_a_row() const {
  return is_placed() ? 1 + *std::max_element(stages_after.begin(), stages_after.end()) : num_stages;
}

std::vector<int64_t> PipelineSchedule::PartsBefore(int64_t part) const {
  if (is_placed()) return stages_before[part];
  return part > 0 ? std::vector<int64_t>{part - 1} : std::vector<int64_t>{};
}

std::vector<int64_t> PipelineSchedule::PartsAfter(int64_t part) const {
  std::vector<int64_t> after;
  if (!is_placed()) {
    if (part + 1 < num_parts()) after.push_back(part + 1);
    return after;
  }
  for (int64_t reader = 0; reader < num_stages; ++reader) {
    const std::vector<int64_t>& before = stages_before[reader];
    if (std::find(before.begin(), before.end(), part) != before.end()) after.push_back(reader);
  }
  return after;
}

Precedence PipelineSchedule::PrecedenceOf(PipelinePass pass, int64_t part) const {
  const int64_t p = num_stages, v = virtual_stages, s = StageOf(part), chunk = part / p;
  if (kind == ScheduleKind::kZeroBubble) {
    if (pass == PipelinePass::kForward) return {-2 * Lead(*this, s), 1, 2, 0};
    return {pass == PipelinePass::kBackward ? 1 : 0, 1, 2, 0};
  }
  if (kind == ScheduleKind::kGpipe) return {0, 1, 1, 0};
  if (kind != ScheduleKind::kInterleaved) return {};
  // A group of `stages` micro-batches goes through one part after the other before the next group
  // starts. The n-th forward act of a stage goes just before the stage's backward act n - lead.
  if (pass == PipelinePass::kForward) return {2 * (chunk * p - Lead(*this, s)), p, 2 * p * v, 2};
  return {2 * (v - 1 - chunk) * p + 1, p, 2 * p * v, 2};
}

int PipelineSchedule::PriorityOf(PipelinePass pass, Begin begin) const {
  // Forward goes before backward. Slots limit the number of micro-batches under way. A backward
  // pass frees the slots of one micro-batch, so the next forward pass then runs to its end and
  // sends its result: 1F1B. In the other order, an early gradient would stop a forward pass that
  // other stages wait for.
  constexpr int kForward = 40, kBackward = 30, kWeightGradient = 5;
  if (pass == PipelinePass::kWeightGradient) return kWeightGradient;
  // In these schedules forward and backward passes alternate, as their precedences say.
  const bool alternates = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubble;
  // A part that has begun a pass continues, whatever becomes ready meanwhile, because the next
  // stage waits for the result. This matters most on the first stage, where several micro-batches
  // can begin at once.
  const bool goes_on = begin == Begin::kGoesOn && num_stages > 1;
  return (pass == PipelinePass::kForward || alternates ? kForward : kBackward) + (goes_on ? 1 : 0);
}

int64_t PipelineSchedule::Kept(PipelinePass made, int64_t made_part, PipelinePass read,
                               int64_t read_part) const {
  if (made == read) {
    // Between two parts of a stage, a whole group passes the first part before the group comes to
    // the second part.
    return made_part == read_part ? 1 : std::min(num_stages, micro_batches);
  }
  if (read != PipelinePass::kWeightGradient)
    return std::max(in_flight[made_part], in_flight[read_part]);
  const int64_t row = stages_in_a_row();
  if (made == PipelinePass::kForward) return std::min(row, micro_batches);
  // Slots that wait for weight gradients replace slots that wait for the backward pass. Their sum
  // is the same on all stages.
  return std::min(row + 1 - std::min(row, in_flight[read_part]), micro_batches);
}

double PipelineSchedule::BubbleFormula(double backward, double weight_gradient) const {
  const double p = static_cast<double>(num_stages), m = static_cast<double>(micro_batches),
               v = static_cast<double>(virtual_stages);
  if (kind != ScheduleKind::kZeroBubble) return (p - 1) / (m * v + p - 1);
  const double idle = (p - 1) * std::max(0.0, 1 + backward - weight_gradient);
  return idle / (idle + m * (1 + backward + weight_gradient));
}

std::string PipelineSchedule::FormulaText() const {
  switch (kind) {
    case ScheduleKind::kInterleaved: return "(p-1)/(mv+p-1)";
    case ScheduleKind::kZeroBubble: return "(p-1)/(3m+p-1)";
    default: return "(p-1)/(m+p-1)";
  }
}

PipelineSchedule ScheduleOf(const PipelineSettings& pipeline, int64_t num_stages,
                            int64_t micro_batches) {
  PipelineSchedule schedule;
  schedule.num_stages = num_stages;
  schedule.micro_batches = micro_batches;
  if (num_stages > 1) {
    schedule.kind = pipeline.schedule;
    if (schedule.kind == ScheduleKind::kInterleaved)
      schedule.virtual_stages = pipeline.virtual_stages == 0 ? 2 : pipeline.virtual_stages;
  }
  SetInFlight(&schedule);
  return schedule;
}

void SetStageGraph(std::vector<std::vector<int64_t>> stages_before, PipelineSchedule* schedule) {
  schedule->stages_before = std::move(stages_before);
  schedule->stages_after.assign(schedule->num_stages, 0);
  // A way has fewer steps than there are stages, so this many rounds find the longest ways.
  for (int64_t round = 1; round < schedule->num_stages; ++round) {
    bool changed = false;
    for (int64_t s = 0; s < schedule->num_stages; ++s) {
      for (const int64_t before : schedule->stages_before[s]) {
        int64_t& after = schedule->stages_after[before];
        changed = changed || after < schedule->stages_after[s] + 1;
        after = std::max(after, schedule->stages_after[s] + 1);
      }
    }
    if (!changed) break;
  }
  SetInFlight(schedule);
}

}  // namespace weir::compiler
