#include "compiler/rates/start_times.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {
namespace {

absl::Status Early(const std::string& what) {
  return absl::InternalError(absl::StrCat("start times: ", what));
}

bool InRange(int64_t value, int64_t max) { return value >= 0 && value <= max; }

// Checks that the acts of one actor do not overlap: within a micro-batch, between micro-batches,
// and between iterations. Every offset is then below iteration_ns, so no offset overflows.
absl::Status CheckActor(const TimedGraph::Actor& actor, const Timing& times, int64_t iteration_ns) {
  if (times.start_ns < -kTimeMaxNs || times.start_ns > kTimeMaxNs ||
      !InRange(times.micro_batch_stride_ns, kTimeMaxNs) ||
      !InRange(times.chunk_stride_ns, kTimeMaxNs)) {
    return Early(absl::StrCat("`", actor.name, "` starts at ", times.start_ns, ", every ",
                              times.micro_batch_stride_ns, " and ", times.chunk_stride_ns,
                              " ns: not between 0 and 2^60"));
  }
  __int128 end = actor.time_ns;
  if (actor.chunks > 1) {
    if (times.chunk_stride_ns < actor.time_ns) {
      return Early(absl::StrCat("acts of `", actor.name, "` overlap: each takes ", actor.time_ns,
                                " ns, the next chunk starts after ", times.chunk_stride_ns));
    }
    end += static_cast<__int128>(actor.chunks - 1) * times.chunk_stride_ns;
  }
  if (actor.acts > actor.chunks) {
    if (times.micro_batch_stride_ns < end) {
      return Early(absl::StrCat("acts of `", actor.name, "` overlap: those of a micro-batch take ",
                                static_cast<int64_t>(end),
                                " ns, the next micro-batch starts after ",
                                times.micro_batch_stride_ns));
    }
    end += static_cast<__int128>(actor.acts / actor.chunks - 1) * times.micro_batch_stride_ns;
  }
  if (iteration_ns < end) {
    return Early(absl::StrCat("acts of `", actor.name,
                              "` overlap: an iteration of it ends later than ", iteration_ns,
                              " ns after its start, when the next iteration starts"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStartTimes(const TimedGraph& graph, const StartTimes& times) {
  if (absl::Status status = CheckGraph(graph); !status.ok()) return status;
  if (times.actors.size() != graph.actors.size()) {
    return Early(
        absl::StrCat(times.actors.size(), " actors, where the graph has ", graph.actors.size()));
  }
  if (!InRange(times.iteration_ns, kTimeMaxNs))
    return Early(absl::StrCat("an iteration of ", times.iteration_ns, " ns"));
  for (ActorId a : graph.actors.ids()) {
    absl::Status status = CheckActor(graph.actors[a], times.actors[a], times.iteration_ns);
    if (!status.ok()) return status;
  }
  absl::Status result;
  const auto check = [&](const Wait& wait) {
    const TimedGraph::Actor& waiter = graph.actors[wait.waiter];
    const TimedGraph::Actor& other = graph.actors[wait.other];
    const Timing& waiter_times = times.actors[wait.waiter];
    const Timing& other_times = times.actors[wait.other];
    const int64_t delay = wait.latency_ns + (wait.kind == Wait::Kind::kJoint ? 0 : other.time_ns);
    ForEachNeed(graph, wait, [&](const Need& need) {
      const __int128 start = static_cast<__int128>(waiter_times.start_ns) +
                             waiter_times.OffsetOf(need.act, waiter.chunks);
      const __int128 ready = static_cast<__int128>(other_times.start_ns) +
                             other_times.OffsetOf(need.other_act, other.chunks) + delay +
                             static_cast<__int128>(need.iterations) * times.iteration_ns;
      if (start >= ready || !result.ok()) return;
      result = Early(absl::StrCat(Describe(graph, wait, need), ", but starts ",
                                  static_cast<double>(ready - start), " ns too early"));
    });
    return result.ok();
  };
  for (RegisterId r : graph.registers.ids()) {
    const TimedGraph::Register& reg = graph.registers[r];
    if (reg.slots < 1) return Early(absl::StrCat("`", reg.name, "` has no slots yet"));
    for (size_t c = 0; c < reg.consumers.size(); ++c) {
      if (!check(TokenWait(graph, r, static_cast<int>(c)))) return result;
      if (!check(SlotWait(graph, r, static_cast<int>(c), reg.slots))) return result;
    }
  }
  for (size_t o = 0; o < graph.orders.size(); ++o) {
    Wait wait = OrderWait(graph, static_cast<int>(o));
    if (!check(wait)) return result;
    if (wait.kind != Wait::Kind::kJoint) continue;
    std::swap(wait.waiter, wait.other);
    std::swap(wait.waiter_port, wait.other_port);
    if (!check(wait)) return result;
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
