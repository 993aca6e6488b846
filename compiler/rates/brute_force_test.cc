// Compares slot counts with all others: on small graphs no slot vector of fewer bytes reaches the
// period.
#include <algorithm>
#include <functional>
#include <random>

#include "compiler/rates/graph_testing.h"
#include "compiler/rates/solve_registers.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

constexpr int kActors = 7;

// Makes seven actors of one act a micro-batch, each on its own device. A chain has edges across it,
// and some edges have two readers.
TimedGraph SmallGraph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int least, int most) {
    return static_cast<int>(random() % (most - least + 1)) + least;
  };
  GraphMaker maker;
  for (int a = 0; a < kActors; ++a) maker.Actor("a", 1 << 20, draw(1, 9));
  const auto edge = [&](int from, std::vector<TimedGraph::Port> to) {
    maker.Register(
        "r", {ActorId(from)}, std::move(to),
        {.slots = 0, .bytes = draw(1, 9), .latency_ns = draw(0, 3) == 0 ? draw(1, 4) : 0});
  };
  for (int a = 0; a + 1 < kActors; ++a) {
    const int skip = a + draw(2, 4);
    if (draw(0, 2) == 0 && skip < kActors) {
      edge(a, {{ActorId(a + 1)}, {ActorId(skip)}});
    } else {
      edge(a, {{ActorId(a + 1)}});
    }
  }
  for (int i = draw(1, 3); i > 0; --i) {
    const int from = draw(0, kActors - 3);
    edge(from, {{ActorId(draw(from + 2, kActors - 1))}});
  }
  return maker.graph;
}

// Finds the exact period of a run in which every act starts as soon as possible, by playing acts
// until they repeat.
class SelfTimed {
 public:
  explicit SelfTimed(const TimedGraph& graph) : graph_(graph) {}

  // Returns whether an act takes at most `period_ns` in the long run.
  bool Reaches(const IdVector<RegisterId, int64_t>& slots, int64_t period_ns) {
    const int64_t depth = *std::max_element(slots.begin(), slots.end()) + 1;
    starts_.clear();
    for (int64_t k = 0; k < 4000; ++k) {
      std::array<int64_t, kActors>& start = starts_.emplace_back();
      for (ActorId actor : graph_.actors.ids()) {  // actors are numbered along the edges
        const int a = actor.value();
        start[a] = k == 0 ? 0 : starts_[k - 1][a] + graph_.actors[actor].time_ns;
        for (RegisterId r : graph_.registers.ids()) {
          const TimedGraph::Register& reg = graph_.registers[r];
          const ActorId from = reg.producer.actor;
          for (const TimedGraph::Port& port : reg.consumers) {
            if (port.actor == actor)
              start[a] = std::max(
                  start[a], start[from.value()] + graph_.actors[from].time_ns + reg.latency_ns);
            if (from != actor || k < slots[r]) continue;
            start[a] = std::max(start[a], starts_[k - slots[r]][port.actor.value()] +
                                              graph_.actors[port.actor].time_ns + reg.latency_ns);
          }
        }
      }
      for (int64_t cycle = 1; cycle <= 60 && cycle + depth <= k; ++cycle) {
        if (!Repeats(k, cycle, depth)) continue;
        return starts_[k][0] - starts_[k - cycle][0] <= cycle * period_ns;
      }
    }
    ADD_FAILURE() << "no steady state";
    return false;
  }

 private:
  bool Repeats(int64_t k, int64_t cycle, int64_t depth) const {
    const int64_t by = starts_[k][0] - starts_[k - cycle][0];
    for (int64_t j = k; j > k - depth; --j) {
      for (int a = 0; a < kActors; ++a) {
        if (starts_[j][a] - starts_[j - cycle][a] != by) return false;
      }
    }
    return true;
  }

  const TimedGraph& graph_;
  std::vector<std::array<int64_t, kActors>> starts_;
};

int64_t BytesOf(const TimedGraph& graph, const IdVector<RegisterId, int64_t>& slots) {
  int64_t bytes = 0;
  for (RegisterId r : slots.ids()) bytes += slots[r] * graph.registers[r].bytes;
  return bytes;
}

// Returns the fewest bytes below `limit` that reach the period, or `limit` if there are none.
int64_t FewestBytes(const TimedGraph& graph, int64_t period_ns,
                    IdVector<RegisterId, int64_t> enough, int64_t limit) {
  SelfTimed play(graph);
  const size_t num_registers = graph.registers.size();
  for (int64_t& slots : enough) slots += 2;
  // With plenty of slots in all other registers, a register still needs this many.
  IdVector<RegisterId, int64_t> least(num_registers, 1);
  for (RegisterId r : least.ids()) {
    IdVector<RegisterId, int64_t> slots(num_registers, 24);
    for (slots[r] = 1; !play.Reaches(slots, period_ns); ++slots[r]) {
    }
    least[r] = slots[r];
  }
  IdVector<RegisterId, int64_t> slots = least;
  int64_t best = limit;
  const std::function<void(RegisterId, int64_t)> search = [&](RegisterId r, int64_t bytes) {
    if (bytes >= best) return;
    if (!graph.registers.Has(r)) {
      if (play.Reaches(slots, period_ns)) best = bytes;
      return;
    }
    for (slots[r] = least[r]; slots[r] <= enough[r] + 2; ++slots[r]) {
      search(RegisterId(r.value() + 1), bytes + (slots[r] - least[r]) * graph.registers[r].bytes);
    }
    slots[r] = least[r];
  };
  search(RegisterId(0), BytesOf(graph, least));
  return best;
}

TEST(BruteForceTest, NoOtherSlotsOfFewerBytesReachThePeriodOnFiveHundredRandomGraphs) {
  int above_one = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const TimedGraph graph = SmallGraph(seed);
    const int64_t bound = BoundPeriod(graph).micro_batch_ns;
    const absl::StatusOr<RegisterSolution> solution =
        SolveRegisters(graph, {.micro_batch_ns = bound + seed % 4});
    ASSERT_TRUE(solution.ok()) << solution.status();
    EXPECT_TRUE(SelfTimed(graph).Reaches(solution->slots, solution->micro_batch_ns))
        << "seed " << seed;
    EXPECT_EQ(FewestBytes(graph, solution->micro_batch_ns, solution->slots, solution->bytes),
              solution->bytes)
        << "seed " << seed;
    above_one += *std::max_element(solution->slots.begin(), solution->slots.end()) > 1 ? 1 : 0;
  }
  EXPECT_GT(above_one, 400) << "graphs whose registers all have one slot test nothing";
}

}  // namespace
}  // namespace weir::compiler
