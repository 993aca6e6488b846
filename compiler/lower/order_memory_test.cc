#include "compiler/lower/order_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/testing/small_job.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using Role = MemoryRings::Role;

std::unique_ptr<LogicalPlan> PlanOf(const std::string& mesh, int zero_stage, int gather_ahead,
                                    int layers = 8) {
  proto::Job job = SmallJob(mesh, layers, 2);
  job.mutable_training()->set_zero_stage(zero_stage);
  job.mutable_runtime()->set_gather_ahead(gather_ahead);
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << mesh << ": " << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

// Every order points forward in the program, or to the next micro-batch. So a run through the
// program keeps all orders, and orders cannot cause a deadlock.
TEST(OrderMemory, ARunThroughTheProgramKeepsEveryOrder) {
  size_t num_orders = 0;
  for (const char* mesh : {"dp=2", "dp=2,tp=2", "pp=2,dp=2", "tp=2"}) {
    for (int zero_stage : {0, 2, 3}) {
      for (int ahead : {1, 2}) {
        const std::unique_ptr<LogicalPlan> plan = PlanOf(mesh, zero_stage, ahead);
        ASSERT_NE(plan, nullptr);
        for (const StageShape& shape : plan->stages) {
          for (const MemoryOrder& order : shape.orders) {
            ASSERT_FALSE(order.after.empty());
            for (const Station& after : order.after) {
              EXPECT_GE(order.lag, order.before < after ? 0 : 1)
                  << mesh << ", item " << order.before.item << " before " << after.item;
            }
            ++num_orders;
          }
        }
      }
    }
  }
  EXPECT_GT(num_orders, 100u);
}

TEST(OrderMemory, WithoutABoundThereAreNoRingsAndNoOrders) {
  const std::unique_ptr<LogicalPlan> plan = PlanOf("dp=2", 3, -1);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(MemoryRings(*plan, 0).rings().empty());
  EXPECT_TRUE(plan->stages[0].orders.empty());
}

// Plays one micro-batch of the shape of a stage, without devices and times: an actor acts when all
// that it reads from this micro-batch is there. Gathers go as early as they may, and the seed
// chooses among the others. Returns the most calls whose weights were gathered though the call was
// not done.
int MostGathered(const LogicalPlan& plan, bool with_orders, uint64_t seed) {
  const RankGraph& graph = plan.stages[0].graph;
  const MemoryRings rings(plan, 0);
  const size_t num_actors = graph.actors.size();
  IdVector<ActorId, std::set<ActorId>> needs(num_actors);
  std::map<Station, std::vector<ActorId>> actors_at;
  for (ActorId a : graph.actors.ids()) actors_at[graph.actors[a].station].push_back(a);
  const auto per_micro_batch = [&](ActorId actor) {
    return graph.actors[actor].acts_per_step == plan.micro_batches * graph.actors[actor].chunks;
  };
  for (const RankTensor& tensor : graph.tensors) {
    // Tokens of orders have no bytes, and here the orders are given apart.
    if (!tensor.producer.has_value() || tensor.delay > 0 || tensor.variable >= 0 ||
        tensor.name.rfind("room for ", 0) == 0)
      continue;
    for (ActorId consumer : tensor.consumers) needs[consumer].insert(tensor.producer);
  }
  // A fill needs the messages of its sends, which arrive from like ranks.
  for (const TransferSite& site : graph.sites) {
    for (const TransferSite::End& end : site.ends) {
      if (end.role != TransferRole::kSends) continue;
      for (ActorId fill : actors_at[end.peer]) {
        for (ActorId send : actors_at[end.station]) needs[fill].insert(send);
      }
    }
  }
  if (with_orders) {
    for (const MemoryOrder& order : plan.stages[0].orders) {
      if (order.lag > 0) continue;
      for (const Station& after : order.after) {
        for (ActorId a : actors_at[after]) {
          for (ActorId b : actors_at[order.before]) needs[a].insert(b);
        }
      }
    }
  }
  IdVector<ActorId, char> done(num_actors, 0);
  std::map<int, int> open;  // by call: actors that still act
  for (ActorId a : graph.actors.ids()) {
    const int item = graph.actors[a].station.item;
    if (rings.RoleOf(item) == Role::kCall) ++open[item];
  }
  std::set<int> gathered;
  size_t most = 0;
  for (uint64_t n = 0;; ++n) {
    std::vector<ActorId> ready;
    bool gather = false;
    for (ActorId a : graph.actors.ids()) {
      if (done[a] || !per_micro_batch(a)) continue;
      if (!std::all_of(needs[a].begin(), needs[a].end(),
                       [&](ActorId need) { return done[need] || !per_micro_batch(need); }))
        continue;
      const bool is_gather = rings.RoleOf(graph.actors[a].station.item) == Role::kGather;
      if (is_gather && !gather) ready.clear();
      gather = gather || is_gather;
      if (is_gather == gather) ready.push_back(a);
    }
    if (ready.empty()) break;
    const ActorId next =
        ready[static_cast<size_t>(UniformAt(seed, n) * static_cast<float>(ready.size()))];
    done[next] = 1;
    const int item = graph.actors[next].station.item;
    // The fill of a gather takes memory; its sends only read the shard of the rank.
    if (rings.RoleOf(item) == Role::kGather && graph.actors[next].kind != proto::ActorSpec::SEND)
      gathered.insert(rings.CallOf(item));
    if (rings.RoleOf(item) == Role::kCall && --open[item] == 0) gathered.erase(item);
    most = std::max(most, gathered.size());
  }
  for (ActorId a : graph.actors.ids())
    EXPECT_TRUE(done[a] || !per_micro_batch(a)) << graph.actors[a].name;
  return static_cast<int>(most);
}

TEST(OrderMemory, OrdersBoundTheWeightsThatLieGatheredAndLetThePlayEnd) {
  for (int ahead : {1, 2, 3}) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf("dp=2", 3, ahead);
    ASSERT_NE(plan, nullptr);
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      EXPECT_EQ(MostGathered(*plan, true, seed), ahead + 1) << "seed " << seed;
      EXPECT_GT(MostGathered(*plan, false, seed), ahead + 1) << "without orders there is no bound";
    }
  }
}

TEST(MemoryRings, RolesSayWhatAnItemDoesForWhichCall) {
  const std::unique_ptr<LogicalPlan> plan = PlanOf("dp=2", 3, 1, 3);
  ASSERT_NE(plan, nullptr);
  const MemoryRings rings(*plan, 0);
  std::map<Role, int> count;
  for (size_t i = 0; i < plan->module.items.size(); ++i) {
    const ProgramItem& item = plan->module.items[i];
    const Role role = rings.RoleOf(static_cast<int>(i));
    ++count[role];
    if (role == Role::kNone) {
      EXPECT_EQ(rings.CallOf(static_cast<int>(i)), -1);
      continue;
    }
    const ProgramItem& call = plan->module.items[rings.CallOf(static_cast<int>(i))];
    EXPECT_EQ(call.kind, ItemKind::kCall);
    if (role == Role::kGather) {
      // The call reads what the gather brings.
      EXPECT_EQ(std::count(call.inputs.begin(), call.inputs.end(), item.outputs[0]), 1);
    } else if (role == Role::kGradient) {
      EXPECT_EQ(std::count(call.outputs.begin(), call.outputs.end(), item.inputs[0]), 1);
    }
  }
  // Three layers and the end, forward and backward. Each of these calls gathers its weights, and
  // each backward call sends its gradients.
  EXPECT_EQ(count[Role::kCall], 8);
  EXPECT_EQ(count[Role::kGather], 8);
  EXPECT_EQ(count[Role::kGradient], 4);
}

TEST(MemoryRings, TransfersLandWholeOnlyInRingsLongEnoughToShare) {
  for (int layers : {1, 4}) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf("dp=2", 3, 1, layers);
    ASSERT_NE(plan, nullptr);
    const MemoryRings rings(*plan, 0);
    for (size_t i = 0; i < plan->module.items.size(); ++i) {
      if (rings.RoleOf(static_cast<int>(i)) != Role::kGradient) continue;
      EXPECT_EQ(rings.LandsWhole(static_cast<int>(i)), layers == 4);
    }
    plan->settings.runtime.chunk_bytes_max = 100;
    for (size_t i = 0; i < plan->module.items.size(); ++i)
      EXPECT_FALSE(rings.LandsWhole(static_cast<int>(i))) << "the job sets the size of chunks";
  }
}

}  // namespace
}  // namespace weir::compiler
