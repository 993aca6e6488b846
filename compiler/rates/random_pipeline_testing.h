// Makes random training pipelines as timed graphs, for tests and benches: a chain of forward acts,
// the mirrored chain of backward acts, and the values that forward keeps for backward. Stages are
// devices.
#pragma once

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/rates/graph_testing.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct RandomPipeline {
  uint64_t seed = 1;
  int layers = 20;  // two actors each
  int stages = 4;   // one device each, consecutive layers; 0: every actor has its own device
  int micro_batches = 16;
  int64_t time_max_ns = 100;  // of a forward act; backward takes up to twice as long
  int64_t bytes_max = 1000;
  int64_t latency_max_ns = 0;  // between stages
  // The percentage of layers whose output is also read two to five layers further on.
  int skips_percent = 15;
  // kYes: each iteration ends with an update. Weights and summed gradients pass between the update
  // and its stage.
  enum class Updates : uint8_t { kNo, kYes } updates = Updates::kNo;
};

// Makes a pipeline whose registers have no slots yet, except that weights have one slot. Forward
// has priority, as in a compiled plan.
inline TimedGraph MakeRandomPipeline(const RandomPipeline& options) {
  std::mt19937_64 random(options.seed);
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1;
  };
  GraphMaker maker;
  const int layers = options.layers;
  const auto stage = [&](int layer) {
    return options.stages == 0 ? -1 : static_cast<int>(int64_t{layer} * options.stages / layers);
  };
  const auto latency = [&](int from, int to) -> int64_t {
    return options.latency_max_ns == 0 || stage(from) == stage(to) ? 0
                                                                   : draw(options.latency_max_ns);
  };
  for (int layer = 0; layer < layers; ++layer) {
    const int64_t time_ns = draw(options.time_max_ns);
    maker.Actor(absl::StrCat("forward layers.", layer), options.micro_batches, time_ns, 1,
                stage(layer));
    maker.graph.actors.back().priority = 1;
    maker.Actor(absl::StrCat("backward layers.", layer), options.micro_batches,
                time_ns + draw(time_ns), 1, stage(layer));
  }
  const auto forward = [](int layer) { return ActorId(2 * layer); };
  const auto backward = [](int layer) { return ActorId(2 * layer + 1); };
  for (int layer = 0; layer < layers; ++layer) {
    maker.Register(absl::StrCat("kept layers.", layer), {forward(layer)}, {{backward(layer)}},
                   {.slots = 0, .bytes = draw(options.bytes_max)});
    if (layer + 1 == layers) continue;
    std::vector<TimedGraph::Port> readers = {{forward(layer + 1)}};
    const int skip = layer + 2 + static_cast<int>(random() % 4);
    if (static_cast<int>(random() % 100) < options.skips_percent && skip < layers)
      readers.push_back({forward(skip)});
    maker.Register(
        absl::StrCat("x layers.", layer), {forward(layer)}, readers,
        {.slots = 0, .bytes = draw(options.bytes_max), .latency_ns = latency(layer, layer + 1)});
    maker.Register(
        absl::StrCat("d_x layers.", layer), {backward(layer + 1)}, {{backward(layer)}},
        {.slots = 0, .bytes = draw(options.bytes_max), .latency_ns = latency(layer, layer + 1)});
  }
  if (options.updates == RandomPipeline::Updates::kYes) {
    const int64_t all = options.micro_batches;
    for (int layer = 0; layer < layers; ++layer) {
      const ActorId update = maker.Actor(absl::StrCat("update layers.", layer), 1,
                                         draw(options.time_max_ns), 1, stage(layer));
      const int64_t bytes = draw(options.bytes_max);
      maker.Register(absl::StrCat("gradients layers.", layer), {backward(layer), all, 1},
                     {{update}}, {.slots = 0, .bytes = bytes});
      maker.Register(absl::StrCat("weights layers.", layer), {update},
                     {{forward(layer), all, 1}, {backward(layer), all, 1}},
                     {.slots = 1, .initial_tokens = 1, .bytes = bytes});
    }
  }
  return maker.graph;
}

// Makes p equal stages of one forward and one backward act. 1F1B keeps p - s micro-batches at stage
// s.
inline TimedGraph EqualStages(int stages, int micro_batches, int64_t forward_ns,
                              int64_t backward_ns) {
  GraphMaker maker;
  for (int s = 0; s < stages; ++s) {
    maker.Actor(absl::StrCat("forward stage ", s), micro_batches, forward_ns, 1, s);
    maker.graph.actors.back().priority = 1;
    maker.Actor(absl::StrCat("backward stage ", s), micro_batches, backward_ns, 1, s);
  }
  const auto forward = [](int s) { return ActorId(2 * s); };
  const auto backward = [](int s) { return ActorId(2 * s + 1); };
  for (int s = 0; s < stages; ++s) {
    maker.Register(absl::StrCat("kept stage ", s), {forward(s)}, {{backward(s)}},
                   {.slots = 0, .bytes = 1000});
    if (s + 1 == stages) continue;
    maker.Register(absl::StrCat("x stage ", s), {forward(s)}, {{forward(s + 1)}},
                   {.slots = 0, .bytes = 100});
    maker.Register(absl::StrCat("d_x stage ", s), {backward(s + 1)}, {{backward(s)}},
                   {.slots = 0, .bytes = 100});
  }
  return maker.graph;
}

}  // namespace weir::compiler
