#include "tests/training/trace_check.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/register_count.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/status.h"

namespace weir::training {
namespace {

struct Act {
  int64_t start = 0, end = 0;
};

// Returns the acts of each actor of a rank, in order.
IdVector<ActorId, std::vector<Act>> ActsOf(const actors::Session& session, RankId rank) {
  IdVector<ActorId, std::vector<Act>> acts(session.plan(rank).actors.size());
  const trace::ActRing& ring = session.executor(rank).trace();
  for (int64_t i = 0; i < ring.size(); ++i) {
    const trace::ActRecord& record = ring.at(i);
    if (record.actor.has_value()) acts[record.actor].push_back({record.start, record.end});
  }
  return acts;
}

absl::Status CheckRegister(const actors::Plan& plan, const actors::PlanRegister& reg, int64_t steps,
                           const IdVector<ActorId, std::vector<Act>>& acts, RankId rank) {
  std::string where = absl::StrCat("rank ", rank, ", register '", reg.name, "'");
  std::vector<std::pair<int64_t, int>> events;  // (time, change); releases before acquisitions
  int64_t tokens = reg.initial_tokens, released = 0;
  if (reg.producer.actor.has_value()) {
    const actors::PlanPort& port = plan.actors[reg.producer.actor].outputs[reg.producer.port];
    const std::vector<Act>& producer = acts[reg.producer.actor];
    for (size_t n = 0; n < producer.size(); n += port.period - (n == 0 ? port.phase : 0))
      events.push_back({producer[n].start, 1});
    tokens += port.Ended(static_cast<int64_t>(producer.size()));
  }
  for (int64_t token = 0; token < tokens; ++token) {
    int64_t freed = 0;
    bool done = true;
    for (const actors::PortRef& consumer : reg.consumers) {
      const actors::PlanPort& port = plan.actors[consumer.actor].inputs[consumer.port];
      size_t last = static_cast<size_t>((token + 1) * port.period - 1 - port.phase);
      if (last >= acts[consumer.actor].size()) {
        done = false;
      } else {
        freed = std::max(freed, acts[consumer.actor][last].end);
      }
    }
    if (!done) continue;
    ++released;
    events.push_back({freed, -1});
  }
  // Between updates the values made from weights stay.
  const int64_t expected = actors::CountAt(plan, reg, steps).in_use();
  if (tokens - released != expected ||
      (plan.rhythm.steps_per_iteration == 1 && expected != reg.initial_tokens)) {
    return absl::InternalError(absl::StrCat(where, " ends with ", tokens - released,
                                            " tokens, not ", expected, "; began with ",
                                            reg.initial_tokens));
  }
  std::sort(events.begin(), events.end());
  int64_t held = reg.initial_tokens;
  for (const auto& [time, change] : events) {
    held += change;
    if (held > reg.slots)
      return absl::InternalError(absl::StrCat(where, " held ", held, " of ", reg.slots, " slots"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRegistersByTrace(const actors::Session& session) {
  for (const RankId rank : session.local_ranks()) {
    if (session.executor(rank).trace().num_dropped() > 0)
      return absl::InternalError("the ring of records was too small for the run");
    IdVector<ActorId, std::vector<Act>> acts = ActsOf(session, rank);
    for (const actors::PlanRegister& reg : session.plan(rank).registers) {
      if (reg.side != actors::RegisterSide::kLocal) continue;
      WEIR_RETURN_IF_ERROR(
          CheckRegister(session.plan(rank), reg, session.steps_done(), acts, rank));
    }
  }
  return absl::OkStatus();
}

int MostInFlight(const actors::Session& session, RankId rank, actors::ActorPhase until) {
  const actors::Plan& plan = session.plan(rank);
  const trace::ActRing& ring = session.executor(rank).trace();
  std::map<std::pair<int64_t, int>, Act>
      span;  // by (step, micro-batch): first forward start, last backward end
  for (int64_t i = 0; i < ring.size(); ++i) {
    const trace::ActRecord& record = ring.at(i);
    if (!record.actor.has_value()) continue;
    actors::ActorPhase phase = plan.actors[record.actor].phase;
    auto key = std::make_pair(record.step, static_cast<int>(record.micro_batch));
    if (phase == actors::ActorPhase::kForward) {
      auto known = span.emplace(key, Act{record.start, 0});
      known.first->second.start = std::min(known.first->second.start, record.start);
    } else if (phase == until) {
      span[key].end = std::max(span[key].end, record.end);
    }
  }
  std::vector<std::pair<int64_t, int>> events;
  for (const auto& [key, act] : span) {
    events.push_back({act.start, 1});
    events.push_back({act.end, -1});
  }
  std::sort(events.begin(), events.end());
  int held = 0, most = 0;
  for (const auto& [time, change] : events) most = std::max(most, held += change);
  return most;
}

double MeasuredBubble(const actors::Session& session) {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0, busy = 0;
  for (const RankId rank : session.local_ranks()) {
    const trace::ActRing& ring = session.executor(rank).trace();
    for (int64_t i = 0; i < ring.size(); ++i) {
      const trace::ActRecord& record = ring.at(i);
      if (!record.actor.has_value()) continue;
      const actors::ActorPhase phase = session.plan(rank).actors[record.actor].phase;
      if (phase != actors::ActorPhase::kForward && phase != actors::ActorPhase::kBackward &&
          phase != actors::ActorPhase::kWeightGradient)
        continue;
      begin = std::min(begin, record.start);
      end = std::max(end, record.end);
      busy += record.end - record.start;
    }
  }
  if (end <= begin) return 0;
  return 1 - static_cast<double>(busy) / (static_cast<double>(end - begin) *
                                          static_cast<double>(session.local_ranks().size()));
}

}  // namespace weir::training
