// Measures the cost of passing a register on: on one thread beside a TBB flow graph and CAF, and
// between two threads beside CAF. An act does everything that a real act does (protocol, ready set,
// device, trace, transport); only the program is empty.
//   tools/bench hop
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/engine/caf_engine.h"
#include "actors/engine/rank_executor.h"
#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "actors/testing/certified.h"
#include "caf/all.hpp"
#include "runtime/device/cpu_device.h"
#include "runtime/transport/loopback_transport.h"
#include "tbb/flow_graph.h"
#include "tbb/global_control.h"
#include "tbb/task_arena.h"
#include "tests/bench/bench_row.h"
#include "tests/bench/hop_plans.h"

namespace weir::bench {
namespace {

constexpr int kHopsPerSample = 200000;
constexpr int kTokensInFlight = 64;  // in TBB's chain, so that waiting for it costs nothing

class Chain {
 public:
  Chain(int length, int slots)
      : num_acts_(kHopsPerSample / length),
        length_(length),
        plan_(Must(
            actors::PlanFromProto(actors::Certified({ChainPlan(length, slots, num_acts_)})[0]))),
        device_(1),
        network_(1) {
    Must(actors::CheckCertificate(plan_));
    actors::RankExecutorOptions options;
    options.trace_capacity = 1 << 16;
    executor_ =
        Must(actors::RankExecutor::Create(&plan_, &device_, network_.endpoint(RankId(0)), options));
    Must(executor_->Connect());
  }
  double NsPerHop() {
    const double begin = ThreadCpuNs();
    executor_->RaiseLimits(1);
    Must(executor_->RunUntilIdle(stop_));
    return (ThreadCpuNs() - begin) / (static_cast<double>(num_acts_) * length_);
  }

 private:
  const int num_acts_;
  const int length_;
  const actors::Plan plan_;
  device::CpuDevice device_;
  transport::LoopbackNetwork network_;
  std::unique_ptr<actors::RankExecutor> executor_;
  std::atomic<bool> stop_{false};
};

// Nodes that take a number, queue it and pass it on.
struct TbbFunctionNodes {
  using Node = tbb::flow::function_node<int, int>;
  static std::unique_ptr<Node> Make(tbb::flow::graph& graph) {
    return std::make_unique<Node>(graph, tbb::flow::serial, [](int x) { return x + 1; });
  }
  static void Put(Node& node) { node.try_put(1); }
};

// Nodes that only continue: TBB's cheapest nodes, which carry and queue nothing.
struct TbbContinueNodes {
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
  static std::unique_ptr<Node> Make(tbb::flow::graph& graph) {
    return std::make_unique<Node>(graph, [](const tbb::flow::continue_msg& x) { return x; });
  }
  static void Put(Node& node) { node.try_put(tbb::flow::continue_msg()); }
};

// A chain of nodes on this one thread.
template <typename Kind>
class TbbChain {
 public:
  explicit TbbChain(int length)
      : one_thread_(tbb::global_control::max_allowed_parallelism, 1), arena_(1), length_(length) {
    arena_.execute([this] {
      graph_ = std::make_unique<tbb::flow::graph>();
      for (int i = 0; i < length_; ++i) {
        nodes_.push_back(Kind::Make(*graph_));
        if (i > 0) tbb::flow::make_edge(*nodes_[i - 1], *nodes_[i]);
      }
    });
  }
  double NsPerHop() {
    double ns = 0;
    arena_.execute([&] {
      const double begin = ThreadCpuNs();
      for (int i = 0; i < kHopsPerSample / length_; ++i) {
        Kind::Put(*nodes_[0]);
        if (i % kTokensInFlight == 0) graph_->wait_for_all();
      }
      graph_->wait_for_all();
      ns = ThreadCpuNs() - begin;
    });
    return ns / kHopsPerSample;
  }

 private:
  tbb::global_control one_thread_;
  tbb::task_arena arena_;
  const int length_;
  std::unique_ptr<tbb::flow::graph> graph_;
  std::vector<std::unique_ptr<typename Kind::Node>> nodes_;
};

using BallAtom = caf::atom_constant<caf::atom("ball")>;
using DoneAtom = caf::atom_constant<caf::atom("done")>;

// Returns the ball until the count ends, and then tells the referee.
caf::behavior Player(caf::event_based_actor* self, caf::actor referee) {
  return {[self, referee](BallAtom, int left, const caf::actor& other) {
    if (left == 0) {
      self->send(referee, DoneAtom::value);
    } else {
      self->send(other, BallAtom::value, left - 1, caf::actor_cast<caf::actor>(self));
    }
  }};
}

// Plays two CAF actors that throw a number back and forth.
template <caf::spawn_options kOptions>
class CafPingPong {
 public:
  explicit CafPingPong(int workers) : system_(config_.Set(workers)), referee_(system_) {
    auto referee = caf::actor_cast<caf::actor>(referee_.ptr());
    a_ = system_.spawn<kOptions>(Player, referee);
    b_ = system_.spawn<kOptions>(Player, referee);
  }
  ~CafPingPong() {
    for (const caf::actor& actor : {a_, b_})
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  double NsPerHop(int hops) {
    const double begin = WallNs();
    caf::anon_send(a_, BallAtom::value, hops, b_);
    referee_->receive([](DoneAtom) {});
    return (WallNs() - begin) / hops;
  }

 private:
  struct Config : caf::actor_system_config {
    Config& Set(int workers) {
      set("scheduler.max-threads", static_cast<size_t>(workers));
      return *this;
    }
  };
  Config config_;
  caf::actor_system system_;
  caf::scoped_actor referee_;
  caf::actor a_;
  caf::actor b_;
};

// Two ranks on threads of the engine, with one token between them.
class RankPingPong {
 public:
  RankPingPong(int acts, int polls_before_parking) : acts_(acts), network_(2) {
    for (const proto::RankPlan& proto : actors::Certified(PingPongPlans(acts))) {
      plans_.push_back(std::make_unique<actors::Plan>(Must(actors::PlanFromProto(proto))));
      Must(actors::CheckCertificate(*plans_.back()));
    }
    std::vector<actors::RankExecutor*> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      devices_.push_back(std::make_unique<device::CpuDevice>(1));
      executors_.push_back(Must(actors::RankExecutor::Create(
          plans_[rank].get(), devices_[rank].get(), network_.endpoint(RankId(rank)), {})));
      ranks.push_back(executors_.back().get());
    }
    for (actors::RankExecutor* rank : ranks) Must(rank->Connect());
    actors::CafEngineOptions options;
    options.polls_before_parking = polls_before_parking;
    engine_ = MakeCafEngine(ranks, options);
  }
  double NsPerHop() {
    const double begin = WallNs();
    Must(engine_->RunSteps(1));
    return (WallNs() - begin) / (2.0 * acts_);
  }

 private:
  const int acts_;
  transport::LoopbackNetwork network_;
  std::vector<std::unique_ptr<actors::Plan>> plans_;
  std::vector<std::unique_ptr<device::CpuDevice>> devices_;
  std::vector<std::unique_ptr<actors::RankExecutor>> executors_;
  std::unique_ptr<actors::Engine> engine_;
};

void SameThread(const BenchArgs& args) {
  const int repeats = args.Repeats(15);
  for (int length : {4, 32, 256}) {
    Chain ours(length, 2);
    TbbChain<TbbContinueNodes> continue_nodes(length);
    Pairs pairs = Alternate(
        repeats, [&] { return ours.NsPerHop(); }, [&] { return continue_nodes.NsPerHop(); });
    const std::string what = absl::StrCat("hop on one thread, chain of ", length);
    PrintRow({what,
              "ns",
              pairs.ours,
              "budget 40 ns",
              {40},
              BenchRow::Better::kLower,
              1.0,
              "thread time"});
    PrintRow({what, "ns", pairs.ours, "TBB continue nodes", pairs.theirs, BenchRow::Better::kLower,
              1.5, "limit as for Taskflow, which Debian lacks; no value, no credit"});
    if (length != 32) continue;
    TbbChain<TbbFunctionNodes> function_nodes(length);
    pairs = Alternate(
        repeats, [&] { return ours.NsPerHop(); }, [&] { return function_nodes.NsPerHop(); });
    PrintRow({what, "ns", pairs.ours, "TBB function nodes", pairs.theirs, BenchRow::Better::kLower,
              1.5, "a value, no credit"});
  }
  Chain ours(32, 2);
  CafPingPong<caf::no_spawn_options> caf(1);
  Pairs pairs = Alternate(
      repeats, [&] { return ours.NsPerHop(); }, [&] { return caf.NsPerHop(kHopsPerSample); });
  PrintRow({"hop on one thread, chain of 32", "ns", pairs.ours, "CAF ping-pong, one way",
            pairs.theirs, BenchRow::Better::kLower, 1.0, "CAF in wall time, one worker"});
}

void TwoThreads(const BenchArgs& args) {
  const int repeats = args.Repeats(151);  // short ones, so that few meet another program
  {
    constexpr int kActs = 1000;
    RankPingPong ours(kActs, 1 << 30);
    CafPingPong<caf::no_spawn_options> caf(2);
    Pairs pairs = Alternate(
        repeats, [&] { return ours.NsPerHop(); }, [&] { return caf.NsPerHop(2 * kActs); });
    const std::string what = "hop between two threads, 64 B, spinning";
    PrintRow({what,
              "ns",
              pairs.ours,
              "budget 250 ns",
              {250},
              BenchRow::Better::kLower,
              1.0,
              "wall time"});
    PrintRow({what, "ns", pairs.ours, "CAF ping-pong, 2 workers", pairs.theirs,
              BenchRow::Better::kLower, 1.0, "CAF's two actors mostly share one worker"});
  }
  constexpr int kActs = 100;
  RankPingPong ours(kActs, 0);
  CafPingPong<caf::detached> caf(1);
  Pairs pairs = Alternate(
      repeats, [&] { return ours.NsPerHop(); }, [&] { return caf.NsPerHop(2 * kActs); });
  const std::string what = "hop between two threads, 64 B, parked";
  PrintRow({what,
            "ns",
            pairs.ours,
            "budget 15 us",
            {15000},
            BenchRow::Better::kLower,
            1.0,
            "wall time; every hop wakes a thread"});
  PrintRow({what, "ns", pairs.ours, "CAF ping-pong, own threads", pairs.theirs,
            BenchRow::Better::kLower, 1.0, ""});
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  weir::bench::SameThread(args);
  weir::bench::TwoThreads(args);
}
