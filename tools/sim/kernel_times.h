// The times of every kernel of a measured run. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"

namespace weir::sim {

// Returns the middle of the values; 0 if there are none.
inline int64_t Median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// KernelTimes keeps times by place: rank, actor, act of the step, kernel of the act. The plans
// outlive the times.
class KernelTimes {
 public:
  void Add(const actors::Plan& plan, const actors::PlanActor& actor,
           absl::Span<const int64_t> kernel_ns) {
    ActorTimes& times = actors_[{plan.rank, actor.id}];
    times.plan = &plan;
    times.kernels = kernel_ns.size();
    times.ns.insert(times.ns.end(), kernel_ns.begin(), kernel_ns.end());
  }
  void Clear() { actors_.clear(); }

  // Calls `told` with each kernel and its median at one place.
  void ForEachPlace(const std::function<void(const actors::Plan&, const actors::PlanActor&,
                                             size_t kernel, int64_t ns)>& told) const {
    for (const auto& [key, times] : actors_) {
      const actors::PlanActor& actor = times.plan->actors[key.second];
      const size_t acts = times.kernels == 0 ? 0 : times.ns.size() / times.kernels,
                   per_step = actor.acts_per_step;
      for (size_t act = 0; act < std::min(acts, per_step); ++act) {
        for (size_t k = 0; k < times.kernels; ++k) {
          std::vector<int64_t> samples;
          for (size_t at = act; at < acts; at += per_step)
            samples.push_back(times.ns[at * times.kernels + k]);
          told(*times.plan, actor, k, Median(std::move(samples)));
        }
      }
    }
  }
  int64_t Total() const {
    int64_t total = 0;
    ForEachPlace([&total](const actors::Plan&, const actors::PlanActor&, size_t, int64_t ns) {
      total += ns;
    });
    return total;
  }

 private:
  struct ActorTimes {
    const actors::Plan* plan = nullptr;
    size_t kernels = 0;
    std::vector<int64_t> ns;  // of all acts, in order
  };
  std::map<std::pair<RankId, ActorId>, ActorTimes> actors_;
};

}  // namespace weir::sim
