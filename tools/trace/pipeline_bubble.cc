#include "tools/trace/pipeline_bubble.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/trace/trace_names.h"

namespace weir::trace {
namespace {

struct StepSpan {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  double busy_ns = 0;
};

// The actors of a rank that compute a pass, and the queues on which they do.
struct PassActors {
  std::set<std::string> names;
  std::set<int> queues;
};

PassActors PassActorsOf(const proto::PlanFacts& facts) {
  auto text = [&facts](uint32_t index) {
    return index < static_cast<uint32_t>(facts.text_size()) ? facts.text(static_cast<int>(index))
                                                            : std::string();
  };
  PassActors found;
  for (const proto::ActorFacts& actor : facts.actor()) {
    if (!IsPassPhase(text(actor.phase_text()))) continue;
    found.names.insert(text(actor.name_text()));
    found.queues.insert(actor.queue());
  }
  return found;
}

}  // namespace

double MeasurePipelineBubble(const TraceReader& reader, int64_t first_step, int64_t last_step) {
  std::map<int64_t, StepSpan> steps;
  double devices = 0;
  for (const auto& [track, process] : reader.processes) {
    auto facts = reader.plans.find(process.rank);
    if (!process.rank.has_value() || facts == reader.plans.end()) continue;
    const PassActors actors = PassActorsOf(facts->second);
    devices += static_cast<double>(std::max<size_t>(1, actors.queues.size()));
    for (const TraceSlice& slice : process.slices) {
      if (slice.category != kTraceAct || actors.names.count(slice.name) == 0) continue;
      const std::optional<int64_t> step = reader.StepOf(slice);
      if (!step.has_value() || *step < first_step || *step > last_step) continue;
      StepSpan& span = steps[*step];
      span.begin = std::min(span.begin, slice.begin);
      span.end = std::max(span.end, slice.end);
      span.busy_ns += static_cast<double>(slice.end - slice.begin);
    }
  }
  double sum = 0;
  for (const auto& [step, span] : steps) {
    if (span.end > span.begin)
      sum += 1 - span.busy_ns / (static_cast<double>(span.end - span.begin) * devices);
  }
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

}  // namespace weir::trace
