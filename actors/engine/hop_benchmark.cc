// What one act costs the runtime: chains of actors that compute nothing, on one thread,
// through everything a real act goes through (protocol, ready set, device, trace); and
// what a hop between two threads costs, whose ranks look for messages or sleep.
// Prints nanoseconds, median and range of runs, and counts allocations.
//   bazel run //actors/engine:hop_benchmark
// On a busy machine build first, then: chrt -f 50 bazel-bin/actors/engine/hop_benchmark
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "actors/engine/caf_engine.h"
#include "actors/engine/rank_executor.h"
#include "actors/plan.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu_device.h"
#include "runtime/transport/loopback_transport.h"

namespace {

std::atomic<int64_t> num_allocations{0};

}  // namespace

void* operator new(size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weir {
namespace {

constexpr int kRuns = 15;

// `length` actors in a row, each handing a register of `slots` slots to the next, with
// an empty program.
RankPlan Chain(int length, int slots, int acts_per_step) {
  RankPlan plan;
  plan.set_num_ranks(1);
  plan.set_micro_batches(acts_per_step);
  plan.set_arena_bytes(int64_t{64} * slots * length);
  plan.add_program()->set_name("empty");
  for (int i = 0; i < length; ++i) {
    ActorSpec* actor = plan.add_actor();
    actor->set_id(i);
    actor->set_name(absl::StrFormat("actor %d", i));
    actor->set_acts_per_step(acts_per_step);
    actor->set_chunks(1);
    actor->set_priority(i);
    if (i > 0) {
      InputPort* input = actor->add_input();
      input->set_register_id(i - 1);
      input->set_period(1);
    }
    if (i + 1 == length) break;
    OutputPort* output = actor->add_output();
    output->set_register_id(i);
    output->set_period(1);
    RegisterSpec* r = plan.add_registers();
    r->set_id(i);
    r->set_name(absl::StrFormat("register %d", i));
    r->set_bytes(64);
    r->set_slots(slots);
    r->set_stride(64);
    r->set_arena_offset(int64_t{64} * slots * i);
    r->set_tokens_per_step(acts_per_step);
  }
  return plan;
}

void Measure(int length, int slots) {
  const int acts_per_step = std::max(1, 200000 / length);
  absl::StatusOr<Plan> plan = PlanFromProto(Chain(length, slots, acts_per_step));
  if (!plan.ok()) {
    std::printf("%s\n", std::string(plan.status().message()).c_str());
    std::exit(1);
  }
  CpuDevice device(1);
  LoopbackNetwork network(1);
  auto executor = RankExecutor::Create(&*plan, &device, network.endpoint(0), {});
  if (!executor.ok() || !(*executor)->Connect().ok()) std::exit(1);
  std::atomic<bool> stop{false};
  std::vector<double> ns_per_act;
  int64_t allocations = 0;
  for (int run = 0; run <= kRuns; ++run) {
    (*executor)->RaiseLimits(1);
    const int64_t allocations_before = num_allocations.load();
    const int64_t begin = MonotonicClock().NowNs();
    if (!(*executor)->RunUntilIdle(stop).ok() || !(*executor)->all_done()) std::exit(1);
    const int64_t end = MonotonicClock().NowNs();
    if (run == 0) continue;
    allocations += num_allocations.load() - allocations_before;
    ns_per_act.push_back(static_cast<double>(end - begin) / (static_cast<double>(acts_per_step) * length));
  }
  std::sort(ns_per_act.begin(), ns_per_act.end());
  std::printf("chain of %4d actors, %d slots: %.1f ns per act (%.1f to %.1f), %lld allocations\n", length, slots,
              ns_per_act[kRuns / 2], ns_per_act.front(), ns_per_act.back(), static_cast<long long>(allocations));
}

// One token that goes round two ranks, 64 bytes at a time; each rank sends it on.
std::vector<RankPlan> Ring(int rounds) {
  std::vector<RankPlan> plans(2);
  for (int rank : {0, 1}) {
    RankPlan& plan = plans[rank];
    plan.set_rank(rank);
    plan.set_num_ranks(2);
    plan.set_arena_bytes(64);
    for (int side : {0, 1}) {  // in, out
      RegisterSpec* r = plan.add_registers();
      r->set_id(side);
      r->set_name(side == 0 ? "in" : "out");
      r->set_side(side == 0 ? RegisterSpec::INBOUND : RegisterSpec::OUTBOUND);
      r->set_peer(1 - rank);
      r->set_edge(static_cast<uint64_t>(rank ^ side));  // edge 0 leads to rank 0 and holds the token
      r->set_initial_tokens((rank ^ side) == 0 ? 1 : 0);
      r->set_bytes(64);
      r->set_slots(1);
      r->set_tokens_per_step(rounds);
    }
    ActorSpec* send = plan.add_actor();
    send->set_name("send");
    send->set_kind(ActorSpec::SEND);
    send->set_program(-1);
    send->set_acts_per_step(rounds);
    send->add_input()->set_period(1);
    OutputPort* out = send->add_output();
    out->set_register_id(1);
    out->set_period(1);
  }
  return plans;
}

void MeasureThreads(const char* what, int polls, int rounds) {
  std::vector<Plan> plans;
  for (const RankPlan& proto : Ring(rounds)) {
    absl::StatusOr<Plan> plan = PlanFromProto(proto);
    if (!plan.ok()) {
      std::printf("%s\n", std::string(plan.status().message()).c_str());
      std::exit(1);
    }
    plans.push_back(*std::move(plan));
  }
  CpuDevice devices[2] = {CpuDevice(1), CpuDevice(1)};
  LoopbackNetwork network(2);
  std::vector<std::unique_ptr<RankExecutor>> executors;
  std::vector<RankExecutor*> ranks;
  for (int rank : {0, 1}) {
    executors.push_back(RankExecutor::Create(&plans[rank], &devices[rank], network.endpoint(rank), {}).value());
    ranks.push_back(executors.back().get());
  }
  for (RankExecutor* rank : ranks) {
    if (!rank->Connect().ok()) std::exit(1);
  }
  CafEngineOptions options;
  options.polls_before_parking = polls;
  std::unique_ptr<Engine> engine = MakeCafEngine(ranks, options);
  std::vector<double> ns_per_hop;
  for (int run = 0; run <= kRuns; ++run) {
    const int64_t begin = MonotonicClock().NowNs();
    if (!engine->RunSteps(1).ok()) std::exit(1);
    const int64_t end = MonotonicClock().NowNs();
    if (run > 0) ns_per_hop.push_back(static_cast<double>(end - begin) / (2.0 * rounds));
  }
  std::sort(ns_per_hop.begin(), ns_per_hop.end());
  std::printf("hop between two threads, %s: %.1f ns (%.1f to %.1f)\n", what, ns_per_hop[kRuns / 2], ns_per_hop.front(),
              ns_per_hop.back());
}

}  // namespace
}  // namespace weir

int main() {
  weir::MeasureThreads("looking", 1000000, 20000);
  weir::MeasureThreads("sleeping", 0, 1000);
  for (int slots : {1, 2, 4}) {
    for (int length : {4, 32, 256}) weir::Measure(length, slots);
  }
}
