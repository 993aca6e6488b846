// Measures the check of fed integers: the time per integer, with all integers in range.
#include <vector>

#include "actors/engine/feed.h"
#include "benchmark/benchmark.h"

namespace weir::actors {
namespace {

class NoFeed final : public DataFeed {
 public:
  absl::Status Fill(const std::string&, int64_t, int64_t, const TensorSlice&, void*) override {
    return absl::OkStatus();
  }
};

void CheckFedIntegers(benchmark::State& state) {
  PlanActor actor;
  actor.feed_slice = TensorSlice::Whole(DType::kI32, {state.range(0) / 128, 128});
  actor.feed_below = 50257;
  std::vector<int32_t> values(static_cast<size_t>(state.range(0)), 50256);
  NoFeed feed;
  for (auto _ : state) benchmark::DoNotOptimize(CheckFed(feed, actor, 0, 0, values.data()));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(CheckFedIntegers)->Arg(2048)->Arg(16384)->Arg(1 << 20);

}  // namespace
}  // namespace weir::actors

BENCHMARK_MAIN();
