// Tests virtual time against closed forms: pipelines, transfers, links and cores that several ranks
// share.
#include "actors/session/virtual_run.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "actors/testing/job_sketch.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

constexpr int64_t kForwardNs = 1000;

std::vector<Plan> Plans(const std::vector<proto::RankPlan>& protos) {
  std::vector<Plan> plans;
  for (const proto::RankPlan& proto : protos) plans.push_back(*PlanFromProto(proto));
  return plans;
}

std::vector<Plan> Pipeline(int stages, int micro_batches) {
  PipelineJob job;
  job.num_stages = stages;
  job.micro_batches = micro_batches;
  return Plans(Certified(MakePipelineJob(job)));
}

// Forward takes one unit, backward takes two, and all else takes no time.
int64_t StageCost(const Plan&, const PlanActor& actor) {
  if (actor.phase == ActorPhase::kForward) return kForwardNs;
  return actor.phase == ActorPhase::kBackward ? 2 * kForwardNs : 0;
}

std::unique_ptr<VirtualRun> RunIt(std::vector<Plan> plans, VirtualRunOptions options,
                                  int64_t steps) {
  auto run = VirtualRun::Create(std::move(plans), std::move(options));
  EXPECT_TRUE(run.ok()) << run.status();
  const absl::Status ran = (*run)->RunSteps(steps);
  EXPECT_TRUE(ran.ok()) << ran;
  return *std::move(run);
}

// Returns the end of the last act; credits may be under way for longer.
int64_t StepNs(const VirtualRun& run) { return run.engine().step_end_ns().back(); }

VirtualRunOptions Costs() {
  VirtualRunOptions options;
  options.cost_ns = StageCost;
  return options;
}

TEST(VirtualRunTest, APipelineStepTakesMicroBatchesPlusStagesLessOneSlots) {
  for (int stages : {1, 2, 4, 7}) {
    for (int micro_batches : {1, 4, 16}) {
      auto run = RunIt(Pipeline(stages, micro_batches), Costs(), 1);
      EXPECT_EQ(run->now_ns(), (micro_batches + stages - 1) * 3 * kForwardNs)
          << stages << " stages, " << micro_batches;
    }
  }
}

// The collective takes its time once its last rank is there.
TEST(VirtualRunTest, ACollectiveEndsForAllRanksWhenTheLastHasDoneIt) {
  JobSketch job(2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const JobSketch::Actor make = job.Add(rank, "make"), use = job.Add(rank, "use"),
                           reduce = job.AddCollective(rank, "reduce", {0, 1}, "f32");
    job.SetTime(make, 0, 1000);
    job.SetTime(reduce, 10, 1000);
    job.SetTime(use, 20, 1000);
    job.Connect("a", {make}, {{reduce}}, 1);
    job.Connect("sum", {reduce}, {{use}}, 1);
  }
  VirtualRunOptions options;
  options.cost_ns = [](const Plan& plan, const PlanActor& actor) -> int64_t {
    if (actor.name == "make") return plan.rank == RankId(1) ? 100 : 10;
    return actor.name == "reduce" ? 5 : 7;
  };
  auto run = RunIt(Plans(job.plans()), std::move(options), 1);
  EXPECT_EQ(run->now_ns(), 100 + 5 + 7);
}

TEST(VirtualRunTest, QueuesThatTakeActsAheadWorkBesideEachOther) {
  for (int micro_batches : {1, 4, 16}) {
    PipelineJob job{.num_stages = 1, .micro_batches = micro_batches, .stash_slots = 2};
    const auto step_ns = [&job](int num_queues, int depth) {
      job.num_queues = num_queues;
      job.depth = depth;
      return StepNs(*RunIt(Plans(Certified(MakePipelineJob(job))), Costs(), 1));
    };
    const int64_t one_after_another = micro_batches * 3 * kForwardNs;
    EXPECT_EQ(step_ns(1, 1), one_after_another);
    EXPECT_EQ(step_ns(1, 64), one_after_another);
    EXPECT_EQ(step_ns(3, 1), one_after_another);
    // A forward act runs beside the backward act before it, which takes twice as long.
    EXPECT_EQ(step_ns(3, 64), kForwardNs + micro_batches * 2 * kForwardNs);
  }
}

// Returns the acts of an actor of a rank, by number.
std::vector<trace::ActRecord> ActsOf(const VirtualRun& run, int rank, const std::string& name) {
  std::vector<trace::ActRecord> acts;
  for (int64_t i = 0; i < run.acts(rank).size(); ++i) {
    const trace::ActRecord& act = run.acts(rank).at(i);
    if (act.actor.has_value() && run.plans()[rank].actors[act.actor].name == name)
      acts.push_back(act);
  }
  return acts;
}

// Returns how many acts of a rank run at once, at most; -1 if two of one queue do.
int MostAtOnce(const VirtualRun& run, int rank) {
  std::vector<std::tuple<int64_t, int, QueueId>> changes;  // at, by, queue: ends before begins
  for (int64_t i = 0; i < run.acts(rank).size(); ++i) {
    const trace::ActRecord& act = run.acts(rank).at(i);
    if (!act.actor.has_value() || act.start == act.end) continue;
    const QueueId queue = run.plans()[rank].actors[act.actor].queue;
    changes.emplace_back(act.start, 1, queue);
    changes.emplace_back(act.end, -1, queue);
  }
  std::sort(changes.begin(), changes.end());
  std::map<QueueId, int> of_queue;
  int now = 0, most = 0;
  for (const auto& [at, by, queue] : changes) {
    if ((of_queue[queue] += by) > 1) return -1;
    most = std::max(most, now += by);
  }
  return most;
}

TEST(VirtualRunTest, ADeviceWithQueuesKeepsTheirOrderTheirWaitsAndItsDepth) {
  for (const int num_queues : {1, 2, 3, 4}) {
    for (const int depth : {1, 2, 3, 64}) {
      SCOPED_TRACE(absl::StrCat(num_queues, " queues, depth ", depth));
      PipelineJob job{.num_stages = 2, .micro_batches = 6, .stash_slots = 3};
      job.num_queues = num_queues;
      job.depth = depth;
      VirtualRunOptions options;
      options.trace_capacity = 1000;
      options.engine.devices.assign(2, {.wake_ns = 40, .jitter = 0.2});
      options.cost_ns = [](const Plan&, const PlanActor& actor) {
        return 500 + 100 * actor.id.value();
      };
      options.ways = [](RankId, RankId) {
        return TimeNetwork::Way{.latency_ns = 70, .receive_ns = 30};
      };
      const auto run = RunIt(Plans(Certified(MakePipelineJob(job))), std::move(options), 3);
      for (int rank : {0, 1}) {
        const int at_once = MostAtOnce(*run, rank);
        EXPECT_GE(at_once, depth > 2 && num_queues > 1 ? 2 : 1);
        EXPECT_LE(at_once, std::min(num_queues, depth));
        const std::vector<trace::ActRecord> forward = ActsOf(*run, rank, "forward"),
                                            backward = ActsOf(*run, rank, "backward"),
                                            sum = ActsOf(*run, rank, "accumulate");
        ASSERT_EQ(forward.size(), 18u);
        ASSERT_EQ(backward.size(), 18u);
        for (size_t i = 0; i < forward.size(); ++i) {
          EXPECT_LE(forward[i].end, backward[i].start);
          EXPECT_LE(backward[i].end, sum[i].start) << "a token is read after it is written";
          if (i + 3 < forward.size()) {
            EXPECT_LE(backward[i].end, forward[i + 3].start)
                << "a slot is written after it is read";
          }
        }
        const RankTimes& times = run->engine().times(rank);
        int64_t all = times.exposed_ns + times.waiting_ns;
        for (const int64_t ns : times.busy_ns) all += ns;
        EXPECT_LE(all, run->now_ns());
        EXPECT_GT(all, run->now_ns() / 3);
      }
    }
  }
}

TEST(VirtualRunTest, TheShareOfIdleTimeIsTheFormulaOfTheBubble) {
  auto run = RunIt(Pipeline(4, 12), Costs(), 1);
  int64_t busy = 0, idle = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (int64_t ns : run->engine().times(rank).busy_ns) busy += ns;
    idle += run->now_ns();
  }
  EXPECT_DOUBLE_EQ(1 - static_cast<double>(busy) / static_cast<double>(idle), 3.0 / (12 + 3));
}

TEST(VirtualRunTest, LatencyIsPaidOnceOnTheWayUpAndOnceOnTheWayDown) {
  VirtualRunOptions options = Costs();
  options.ways = [](RankId, RankId) { return TimeNetwork::Way{.latency_ns = 70}; };
  auto run = RunIt(Pipeline(3, 1), std::move(options), 1);
  EXPECT_EQ(StepNs(*run), 3 * 3 * kForwardNs + 4 * 70);
}

TEST(VirtualRunTest, AMessageTakesItsBytesOverTheBandwidth) {
  VirtualRunOptions options = Costs();
  options.ways = [](RankId, RankId) {
    return TimeNetwork::Way{.latency_ns = 70, .message_ns = 5, .ns_per_byte = 2.5};
  };
  auto run = RunIt(Pipeline(2, 1), std::move(options), 1);
  EXPECT_EQ(StepNs(*run), 2 * 3 * kForwardNs + 2 * (70 + 5 + 80));  // 32 bytes
  EXPECT_EQ(run->network().payload_bytes(), 64);
}

// Builds two pipelines side by side: ranks 0 and 1, 2 and 3.
std::vector<Plan> TwoPipelines() {
  std::vector<Plan> plans;
  for (int copy = 0; copy < 2; ++copy) {
    for (Plan& plan : Pipeline(2, 1)) {
      plan.rank = RankId(plan.rank.value() + 2 * copy);
      plan.num_ranks = 4;
      for (PlanRegister& r : plan.registers) {
        if (r.side == RegisterSide::kLocal) continue;
        r.peer = RankId(r.peer.value() + 2 * copy);
        r.edge = EdgeId(r.edge.value() + 100 * copy);
      }
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

TEST(VirtualRunTest, MessagesOnOneLinkFollowOneAnother) {
  for (int32_t shared : {0, 1}) {
    VirtualRunOptions options = Costs();
    // Both senders send at once, over one shared way out or over one each.
    options.ways = [shared](RankId from, RankId) {
      return TimeNetwork::Way{
          .ns_per_byte = 10, .out = shared == 1 ? from.value() % 2 : from.value(), .in = -1};
    };
    auto run = RunIt(TwoPipelines(), std::move(options), 1);
    // Each message takes 320 ns. On a shared way the second message up is late by one, and no way
    // down makes up for the delay.
    EXPECT_EQ(run->now_ns(), 6 * kForwardNs + 2 * 320 + shared * 320);
  }
}

// Returns the arrival times of the messages of `puts` (from, to; put at the same moment, in this
// order), with 100 ns for each message on every way.
std::vector<int64_t> ArrivalsOf(const std::vector<std::pair<int, int>>& puts) {
  ManualClock clock;
  TimeNetwork network(&clock, [](RankId from, RankId to) {
    return TimeNetwork::Way{.message_ns = 100, .out = from.value(), .in = 10 + to.value()};
  });
  std::vector<EdgeHandle> handles;
  for (size_t i = 0; i < puts.size(); ++i) {
    const RankId from(puts[i].first), to(puts[i].second);
    transport::TransportEdge edge{
        .direction = transport::TransportEdge::Direction::kOutgoing, .edge = EdgeId(i), .peer = to};
    handles.push_back(*network.endpoint(from)->AddEdge(edge));
    edge.direction = transport::TransportEdge::Direction::kIncoming;
    edge.peer = from;
    EXPECT_TRUE(network.endpoint(to)->AddEdge(edge).ok());
  }
  EXPECT_TRUE(network.endpoint(RankId(0))->Connect().ok());
  for (size_t i = 0; i < puts.size(); ++i)
    EXPECT_TRUE(network.endpoint(RankId(puts[i].first))->Put(handles[i], {}, nullptr).ok());
  // Lanes are numbered by the order in which senders were joined; the messages of one lane are told
  // apart by their time.
  std::map<int32_t, int64_t> arrivals;
  std::vector<TimeNetwork::Arrival> due;
  for (;;) {
    due.insert(due.end(), network.posted().begin(), network.posted().end());
    network.posted().clear();
    if (due.empty()) break;
    const auto next = std::min_element(
        due.begin(), due.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
    const TimeNetwork::Arrival arrival = *next;
    due.erase(next);
    clock.AdvanceTo(arrival.at_ns);
    if (arrival.at == TimeNetwork::Arrival::At::kWayIn) {
      network.Enter(arrival.lane, arrival.takes_ns);
    } else {
      arrivals[arrival.lane / 2] = arrival.at_ns;
    }
  }
  std::vector<int64_t> times;
  for (const auto& [lane, at_ns] : arrivals) times.push_back(at_ns);
  return times;
}

TEST(VirtualRunTest, AMessageThatWaitsAtTheReceiverDoesNotHoldUpTheNextOneOfItsSender) {
  EXPECT_THAT(ArrivalsOf({{0, 2}, {0, 3}}), testing::ElementsAre(100, 200)) << "one way out";
  EXPECT_THAT(ArrivalsOf({{0, 2}, {1, 2}}), testing::ElementsAre(100, 200)) << "one way in";
  // The second message of rank 1 leaves while its first waits for the way into rank 2.
  EXPECT_THAT(ArrivalsOf({{0, 2}, {1, 2}, {1, 3}}), testing::ElementsAre(100, 200, 200));
  // A message that leaves late does not keep the way in from messages that are there before.
  EXPECT_THAT(ArrivalsOf({{0, 2}, {0, 3}, {1, 3}}), testing::ElementsAre(100, 200, 100))
      << "the last to be put is the first there";
}

// Returns the arrival of a credit that rank 1 gives back to rank 0 at the moment at which rank 1
// sends three messages of 100 ns each.
int64_t ArrivalOfCredit(bool queues_credits) {
  ManualClock clock;
  TimeNetwork network(&clock, [&](RankId from, RankId to) {
    return TimeNetwork::Way{.latency_ns = 7,
                            .message_ns = 100,
                            .out = from.value(),
                            .in = 10 + to.value(),
                            .queues_credits = queues_credits};
  });
  using Direction = transport::TransportEdge::Direction;
  const auto add = [&](int edge, int from, int to, int32_t slots) {
    transport::TransportEdge spec{.direction = Direction::kIncoming, .edge = EdgeId(edge)};
    spec.slots = slots;
    spec.peer = RankId(from);
    const EdgeHandle in = *network.endpoint(RankId(to))->AddEdge(spec);
    spec.direction = Direction::kOutgoing;
    spec.peer = RankId(to);
    return std::pair(*network.endpoint(RankId(from))->AddEdge(spec), in);
  };
  const auto there = add(0, 0, 1, 1), back = add(1, 1, 0, 3);
  EXPECT_TRUE(network.endpoint(RankId(0))->Connect().ok());
  for (int32_t slot = 0; slot < 3; ++slot) {
    EXPECT_TRUE(network.endpoint(RankId(1))->Put(back.first, {.slot = slot}, nullptr).ok());
  }
  const size_t num_tokens = network.posted().size();
  EXPECT_TRUE(network.endpoint(RankId(1))->ReturnCredit(there.second, 0).ok());
  TimeNetwork::Arrival credit = network.posted()[num_tokens];
  if (credit.at == TimeNetwork::Arrival::At::kWayIn) {
    clock.AdvanceTo(credit.at_ns);
    network.Enter(credit.lane, credit.takes_ns);
    credit = network.posted().back();
  }
  return credit.at_ns;
}

TEST(VirtualRunTest, ACreditWaitsForTheMessagesBeforeItWhereWaysQueueCredits) {
  EXPECT_EQ(ArrivalOfCredit(false), 7);
  EXPECT_EQ(ArrivalOfCredit(true), 300 + 7);
}

TEST(VirtualRunTest, DevicesThatShareACoreTakeTwiceAsLong) {
  VirtualRunOptions options = Costs();
  options.engine.hosts = {{.cores = 1}};
  options.engine.devices.resize(4);
  auto run = RunIt(TwoPipelines(), std::move(options), 1);
  EXPECT_EQ(run->now_ns(), 2 * 6 * kForwardNs);
}

TEST(VirtualRunTest, CoresThatSlowEachOtherDownDoSoWhileBothAreBusy) {
  VirtualRunOptions options = Costs();
  options.engine.hosts = {{.cores = 2, .core_speed = {1, 0.8}}};
  options.engine.devices.resize(4);
  auto run = RunIt(TwoPipelines(), std::move(options), 1);
  EXPECT_EQ(run->now_ns(), 6 * kForwardNs * 10 / 8);
  options = Costs();
  options.engine.hosts = {{.cores = 2, .core_speed = {1, 0.8}}};
  options.engine.devices.resize(2);
  EXPECT_EQ(RunIt(Pipeline(2, 1), std::move(options), 1)->now_ns(), 6 * kForwardNs)
      << "one after the other";
}

TEST(VirtualRunTest, AnActThatSaysWhatBusyCoresMakeOfItGoesByThat) {
  VirtualRunOptions options = Costs();
  options.engine.hosts = {{.cores = 2, .core_speed = {1, 0.8}}};
  options.engine.devices.resize(4);
  options.engine.busy_speed = [](const Plan&, const PlanActor&) { return 0.5; };
  EXPECT_EQ(RunIt(TwoPipelines(), std::move(options), 1)->now_ns(), 6 * kForwardNs * 2);
  options = Costs();
  options.engine.hosts = {{.cores = 3}};
  options.engine.devices.resize(4);
  options.engine.busy_speed = [](const Plan&, const PlanActor&) { return 0.5; };
  EXPECT_EQ(RunIt(TwoPipelines(), std::move(options), 1)->now_ns(), 6 * kForwardNs * 4 / 3)
      << "two of three cores busy: half way";
  // Two pipelines run side by side. One is slowed down. The other is not, so the other has the
  // second half of the time for itself.
  options = Costs();
  options.engine.hosts = {{.cores = 2}};
  options.engine.devices.resize(4);
  options.engine.busy_speed = [](const Plan& plan, const PlanActor&) {
    return plan.rank.value() < 2 ? 0.5 : 1;
  };
  EXPECT_EQ(RunIt(TwoPipelines(), std::move(options), 1)->now_ns(), 6 * kForwardNs * 3 / 2);
}

TEST(VirtualRunTest, AnIdleDeviceWakesLateAndABusyOneDoesNotSleep) {
  VirtualRunOptions options = Costs();
  options.engine.devices.assign(2, {.wake_ns = 40});
  EXPECT_EQ(StepNs(*RunIt(Pipeline(2, 1), std::move(options), 1)), 6 * kForwardNs + 2 * 40);
}

TEST(VirtualRunTest, WhatAMessageCostsTheReceiverDelaysItsNextAct) {
  VirtualRunOptions options = Costs();
  options.ways = [](RankId, RankId) { return TimeNetwork::Way{.receive_ns = 30}; };
  EXPECT_EQ(RunIt(Pipeline(2, 1), std::move(options), 1)->now_ns(), 6 * kForwardNs + 2 * 30);
}

TEST(VirtualRunTest, WhatTheBytesOfAMessageCostTheReceiverDelaysItsNextAct) {
  VirtualRunOptions options = Costs();
  options.ways = [](RankId, RankId) {
    return TimeNetwork::Way{.receive_ns = 30, .receive_ns_per_byte = 0.5};
  };
  EXPECT_EQ(StepNs(*RunIt(Pipeline(2, 1), std::move(options), 1)),
            2 * 3 * kForwardNs + 2 * (30 + 16));  // 32 bytes
}

TEST(VirtualRunTest, IdleTimeAfterTheSendIsExposedAndBeforeItIsWaiting) {
  VirtualRunOptions options = Costs();
  options.ways = [](RankId, RankId) { return TimeNetwork::Way{.latency_ns = 70}; };
  auto run = RunIt(Pipeline(2, 1), std::move(options), 1);
  // Rank 0 waits for the way up, for three units of work on rank 1, and for the way down.
  EXPECT_EQ(run->engine().times(1).exposed_ns, 70);
  EXPECT_EQ(run->engine().times(1).waiting_ns, kForwardNs);
  EXPECT_EQ(run->engine().times(0).exposed_ns, 70);
  EXPECT_EQ(run->engine().times(0).waiting_ns, 70 + 3 * kForwardNs);
}

TEST(VirtualRunTest, JitterComesFromTheSeed) {
  std::vector<uint64_t> hashes;
  std::vector<int64_t> ends;
  for (uint64_t seed : {7, 7, 8}) {
    VirtualRunOptions options = Costs();
    options.engine.seed = seed;
    options.engine.devices.assign(4, {.jitter = 0.2});
    auto run = RunIt(Pipeline(4, 8), std::move(options), 2);
    hashes.push_back(run->engine().history_hash());
    ends.push_back(run->now_ns());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NE(ends[0], ends[2]);
}

std::string TraceOf(const VirtualRun& run, const std::string& name) {
  const std::string path = std::string(::testing::TempDir()) + "/" + name;
  EXPECT_TRUE(run.WriteTrace(path).ok());
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

TEST(VirtualRunTest, TheTraceIsTheSameByteForByte) {
  std::vector<std::string> traces;
  for (const char* name : {"first.pftrace", "second.pftrace"}) {
    VirtualRunOptions options = Costs();
    options.trace_capacity = 1000;
    options.ways = [](RankId, RankId) {
      return TimeNetwork::Way{.latency_ns = 70, .ns_per_byte = 1};
    };
    traces.push_back(TraceOf(*RunIt(Pipeline(4, 8), std::move(options), 3), name));
  }
  EXPECT_EQ(traces[0], traces[1]);
}

TEST(VirtualRunTest, ActsThatAreMeasuredTakeWhatTheyTakeAndTellTheirKernels) {
  TestFeed feed;
  VirtualRunOptions options;
  options.work = TimeDevice::Work::kMeasured;
  options.measured.feed = &feed;
  int64_t num_kernels = 0, total = 0;
  options.measured.on_kernels = [&](const Plan&, const PlanActor&,
                                    absl::Span<const int64_t> kernel_ns) {
    num_kernels += static_cast<int64_t>(kernel_ns.size());
    for (int64_t ns : kernel_ns) total += ns;
  };
  auto run = RunIt(Pipeline(2, 4), std::move(options), 1);
  EXPECT_EQ(num_kernels, 4 * (2 + 1 + 1) + 2 + 4 * (1 + 1 + 1) + 2);
  EXPECT_GE(total, 0);
  EXPECT_GE(run->now_ns(), total / 2);
}

TEST(VirtualRunTest, APlanWithoutACertificateIsRefused) {
  const absl::Status status = VirtualRun::Create(Plans(LoadTestJob("deadlock")), Costs()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "W0541")) << status;
}

// The plan is that of the middle of three stages, which stands for both its neighbours, so it would
// have to send before it receives. The proof of the plan holds for the job from which the plan
// comes.
TEST(VirtualRunTest, ARunThatCannotGoOnIsReportedWithWhatEachActorWaitsFor) {
  Plan middle = Pipeline(3, 2)[1];
  VirtualRunOptions options = Costs();
  for (const PlanRegister& out : middle.registers) {
    if (out.side != RegisterSide::kOutbound) continue;
    for (const PlanRegister& in : middle.registers) {
      if (in.side == RegisterSide::kInbound && in.peer != out.peer)
        options.images[out.edge] = in.edge;
    }
  }
  auto run = VirtualRun::Create({std::move(middle)}, std::move(options));
  ASSERT_TRUE(run.ok()) << run.status();
  const absl::Status ran = (*run)->RunSteps(1);
  EXPECT_EQ(ran.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(absl::StrContains(ran.message(), "W0516")) << ran;
  EXPECT_TRUE(absl::StrContains(ran.message(),
                                "actor 'forward': 0 of 2 acts, waits for input 'activation in'"))
      << ran;
}

}  // namespace
}  // namespace weir::actors
