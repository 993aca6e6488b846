#include "tools/train/buddy_memory.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/dtype.h"
#include "runtime/base/unit_text.h"

namespace weir::train {
namespace {

constexpr double kCopies = 2;

struct StateBytes {
  double all = 0;
  double lone = 0;  // of shards that no other rank holds
};

// Returns the bytes of the states of a rank, one of `num_ranks` that share the states of a stage.
StateBytes BytesOf(const proto::RankPlan& plan, int64_t num_ranks) {
  StateBytes bytes;
  for (const proto::StateSpec& state : plan.state()) {
    const proto::TensorSliceProto& slice = state.slice();
    const std::optional<DType> dtype = DTypeFromName(slice.dtype());
    if (state.state_class() == proto::StateSpec::FETCHED || !dtype.has_value()) continue;
    double local = 1, whole = 1;
    for (const int64_t size : slice.shape()) local *= static_cast<double>(size);
    for (const int64_t size : slice.global_shape()) whole *= static_cast<double>(size);
    if (slice.global_shape().empty()) whole = local;
    const double of_shard = local * static_cast<double>(SizeOf(*dtype));
    bytes.all += of_shard;
    // The shards of all ranks together have each element as often as there are replicas.
    if (local * static_cast<double>(num_ranks) < 2 * whole) bytes.lone += of_shard;
  }
  return bytes;
}

}  // namespace

BuddyNeed BuddyNeedOf(const compiler::LogicalPlan& plan,
                      const std::map<RankId, proto::RankPlan>& plans) {
  BuddyNeed need;
  double most_own = 0, most_lone = 0;
  for (int64_t stage = 0; stage < plan.places.size(); ++stage) {
    const int64_t num_ranks = plan.places.mesh(stage).num_ranks();
    const StateBytes first = BytesOf(plans.at(plan.places.RankAt(stage, 0)), num_ranks);
    for (int64_t i = 0; i < num_ranks; ++i) {
      const auto own = plans.find(plan.places.RankAt(stage, i));
      const StateBytes bytes = own == plans.end() ? first : BytesOf(own->second, num_ranks);
      need.all_bytes += kCopies * (bytes.all + bytes.lone);
      need.moved_bytes += bytes.lone;
      most_own = std::max(most_own, bytes.all);
      most_lone = std::max(most_lone, bytes.lone);
    }
  }
  need.rank_bytes = kCopies * (most_own + most_lone);
  return need;
}

std::string BuddyText(const compiler::LogicalPlan& plan,
                      const std::map<RankId, proto::RankPlan>& plans) {
  const int64_t every = plan.job->runtime().buddy_every();
  if (every <= 0 || plan.places.num_ranks() < 2) return "";
  const BuddyNeed need = BuddyNeedOf(plan, plans);
  if (need.moved_bytes == 0)
    return "; every state has a replica, so buddy copies are made only of what one host alone has";
  return absl::StrCat("; buddy copies every ", every == 1 ? "step" : Plural(every, "step"),
                      " take up to ", BytesText(need.rank_bytes),
                      " of the memory of a process of one device, ", BytesText(need.all_bytes),
                      " in all, and move ", BytesText(need.moved_bytes), " each time");
}

std::string BuddyWarning(const compiler::LogicalPlan& plan, const NeedAndPlans& of,
                         const MemoryBudget& budget) {
  if (plan.job->runtime().buddy_every() <= 0 || plan.places.num_ranks() < 2) return "";
  // The memory of GPUs is not that of the processes.
  if (plan.job->runtime().device() == "cuda") return "";
  const BuddyNeed need = BuddyNeedOf(plan, of.plans);
  const double sum = of.need.all_bytes + need.all_bytes;
  if (need.moved_bytes == 0 || sum <= static_cast<double>(budget.machine_bytes)) return "";
  return absl::StrCat("the job and its buddy copies (runtime.buddy_every) need ", BytesText(sum),
                      " of the ", BytesText(static_cast<double>(budget.machine_bytes)), " of ",
                      budget.machine, "; --set runtime.buddy_every=0 makes none");
}

}  // namespace weir::train
