// Simulates jobs of the zoo on given clusters: rank classes against every rank, seeds, jobs that do
// not fit, text and JSON.
#include "tools/sim/simulate.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/explain/rhythm_curve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/job/job_file.h"
#include "tools/sim/cluster_costs.h"
#include "tools/sim/cluster_file.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/why_slow.h"
#include "tools/zoo/gpt.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;
using Symmetry = SimulateOptions::Symmetry;

proto::Cluster GivenCluster(const std::string& more = "") {
  absl::StatusOr<proto::Cluster> cluster = ParseCluster(R"(
    name: "a small cluster"
    device {
      name: "accelerator" memory_bytes: 1e9 act_ns: 500 kernel_ns: 1000 bytes_per_second: 1e11
      peak { dtype: "f32" flops_per_second: 1e12 efficiency: 0.5 }
    }
    host { device: "accelerator" devices: 8 count: 4 }
    within_host { latency_ns: 2000 bytes_per_second: 1e10 message_ns: 300 }
    between_hosts { latency_ns: 9000 bytes_per_second: 2e9 message_ns: 300 shared: DEVICE }
  )" + more,
                                                        "cluster");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *cluster;
}

proto::Job SmallGpt(const std::string& mesh) {
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 128;
  options.heads = 8;
  options.sequence = 64;
  options.vocab = 256;
  options.training.batch = 32;
  options.training.micro_batches = 4;
  options.training.mesh = mesh;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

SimulateReport Simulated(const proto::Job& job, const proto::Cluster& cluster,
                         const SimulateOptions& options = {}) {
  absl::StatusOr<SimulateReport> report = Simulate(job, cluster, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

TEST(SimulateTest, OneRankOfEachStageStandsForAllOfIt) {
  for (const char* mesh : {"dp=2", "tp=2", "dp=4", "tp=4", "dp=2,tp=2", "pp=2,dp=2",
                           "dp=2,tp=2,pp=2", "pp=4", "dp=8", "dp=4,tp=2"}) {
    const proto::Job job = SmallGpt(mesh);
    SimulateOptions options;
    options.symmetry = Symmetry::kOff;
    const SimulateReport full = Simulated(job, GivenCluster(), options);
    options.symmetry = Symmetry::kOn;
    const SimulateReport classes = Simulated(job, GivenCluster(), options);
    EXPECT_EQ(full.ranks_simulated, full.ranks) << mesh;
    EXPECT_EQ(classes.ranks_simulated, classes.stages) << mesh;
    EXPECT_NEAR(classes.step_ns / full.step_ns, 1, 0.03) << mesh;
    EXPECT_NEAR(classes.compute, full.compute, 0.03) << mesh;
    // Scalars go through one rank of a stage, so bytes differ by a few.
    EXPECT_NEAR(classes.sent_bytes / std::max(1.0, full.sent_bytes), full.sent_bytes > 0 ? 1 : 0,
                0.01)
        << mesh;
  }
}

// The job on devices with queues that take acts ahead.
proto::Job OnQueues(proto::Job job, int queues, int depth) {
  job.mutable_runtime()->set_device("walled");
  job.mutable_runtime()->set_device_queues(queues);
  job.mutable_runtime()->set_device_depth(depth);
  return job;
}

TEST(SimulateTest, OneRankOfEachStageStandsForAllOfItOnDevicesWithQueuesToo) {
  for (const char* mesh : {"dp=2", "tp=4", "pp=2,dp=2", "dp=2,tp=2,pp=2", "pp=4"}) {
    for (const int queues : {2, 4}) {
      SCOPED_TRACE(absl::StrCat(mesh, ", ", queues, " queues"));
      const proto::Job job = OnQueues(SmallGpt(mesh), queues, 64);
      SimulateOptions options;
      options.symmetry = Symmetry::kOff;
      const SimulateReport full = Simulated(job, GivenCluster(), options);
      options.symmetry = Symmetry::kOn;
      const SimulateReport classes = Simulated(job, GivenCluster(), options);
      EXPECT_EQ(classes.ranks_simulated, classes.stages);
      EXPECT_NEAR(classes.step_ns / full.step_ns, 1, 0.03);
      EXPECT_NEAR(classes.compute, full.compute, 0.03);
      // Acts ahead belong to the next step, so the last step has a little more than the first left.
      for (const SimulateReport::Device& device : full.devices)
        EXPECT_NEAR(device.compute + device.transfer + device.exposed + device.waiting, 1, 1e-3);
    }
  }
}

TEST(SimulateTest, QueuesHideTransfersBehindComputing) {
  proto::Cluster cluster = GivenCluster();
  cluster.mutable_within_host()->set_send_bytes_per_second(1e9);  // sending keeps the device busy
  const proto::Job job = SmallGpt("dp=4");
  const SimulateReport one = Simulated(job, cluster);
  EXPECT_DOUBLE_EQ(Simulated(OnQueues(job, 1, 1), cluster).step_ns, one.step_ns);
  EXPECT_DOUBLE_EQ(Simulated(OnQueues(job, 4, 1), cluster).step_ns, one.step_ns)
      << "one act at a time";
  const SimulateReport four = Simulated(OnQueues(job, 4, 64), cluster);
  EXPECT_LT(four.step_ns, 0.99 * one.step_ns);
  EXPECT_LT(four.transfer, one.transfer);
}

TEST(SimulateTest, RanksStayInStepInExchangesOfManyChunks) {
  for (const proto::Link::Shared shared : {proto::Link::PAIR, proto::Link::DEVICE}) {
    for (const char* mesh : {"tp=4", "tp=8", "tp=4,dp=2", "dp=4,tp=2"}) {
      proto::Cluster cluster = GivenCluster();
      cluster.mutable_within_host()->set_shared(shared);
      proto::Job job = SmallGpt(mesh);
      job.mutable_runtime()->set_chunk_bytes_max(1 << 14);
      SimulateOptions options;
      options.symmetry = Symmetry::kOff;
      const double full = Simulated(job, cluster, options).step_ns;
      options.symmetry = Symmetry::kOn;
      EXPECT_NEAR(Simulated(job, cluster, options).step_ns / full, 1, 0.03)
          << mesh << ", " << proto::Link::Shared_Name(shared);
    }
  }
}

TEST(SimulateTest, TheSameSeedGivesTheSameTraceAndAnotherSeedAnotherTime) {
  proto::Cluster cluster = GivenCluster();
  cluster.mutable_device(0)->set_jitter(0.1);
  const proto::Job job = SmallGpt("dp=2,pp=2");
  std::vector<std::string> traces;
  std::vector<double> steps;
  for (uint64_t seed : {3, 3, 4}) {
    SimulateOptions options;
    options.seed = seed;
    options.trace = TemporaryPath("sim.pftrace");
    steps.push_back(Simulated(job, cluster, options).step_ns);
    std::ostringstream bytes;
    bytes << std::ifstream(options.trace, std::ios::binary).rdbuf();
    traces.push_back(bytes.str());
  }
  EXPECT_GT(traces[0].size(), 1000u);
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_NE(steps[0], steps[2]);
}

// Simulates the job with a trace, and compares the step that the trace's report tells.
void ExpectTheSameStepInItsTrace(const proto::Job& job, int64_t steps,
                                 Symmetry symmetry = Symmetry::kAuto) {
  SimulateOptions options;
  options.steps = steps;
  options.symmetry = symmetry;
  options.trace = TemporaryPath("step.pftrace");
  const SimulateReport simulated = Simulated(job, GivenCluster(), options);
  std::stringstream bytes;
  bytes << std::ifstream(options.trace, std::ios::binary).rdbuf();
  trace::TraceReader trace;
  ASSERT_EQ(trace.Read(bytes.str()), absl::OkStatus());
  EXPECT_NEAR(trace::MakeTraceReport(trace).step_ns / simulated.step_ns, 1, 0.01);
  const absl::StatusOr<trace::WhySlow> why = trace::FindWhySlow(trace, {});
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_NEAR(why->path.step_ns / simulated.step_ns, 1, 0.01);
  EXPECT_NEAR(why->replayed_step_ns / simulated.step_ns, 1, 0.01);
  for (const trace::WhatIfRow& row : why->what_ifs) EXPECT_LT(row.gain, 0.95) << row.about;
}

TEST(SimulateTest, TheReportOfItsTraceTellsTheSameStep) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2", "pp=4", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    for (const int64_t steps : {0, 4}) {
      for (const int zero : {0, 2}) {
        SCOPED_TRACE(absl::StrCat(mesh, ", ", steps, " steps, zero ", zero));
        proto::Job job = SmallGpt(mesh);
        job.mutable_training()->set_zero_stage(zero);
        ExpectTheSameStepInItsTrace(job, steps);
      }
    }
  }
}

TEST(SimulateTest, TheReportOfItsTraceTellsTheSameStepOnDevicesWithQueues) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=4", "dp=2,tp=2,pp=2"}) {
    for (const int queues : {1, 2, 4}) {
      for (const int depth : {2, 64}) {
        SCOPED_TRACE(absl::StrCat(mesh, ", ", queues, " queues, depth ", depth));
        ExpectTheSameStepInItsTrace(OnQueues(SmallGpt(mesh), queues, depth), 4);
      }
    }
  }
}

// Simulates the job by symmetry or in full, and returns its trace.
trace::TraceReader TraceOf(const proto::Job& job, Symmetry symmetry) {
  std::stringstream bytes;
  SimulateOptions options;
  options.symmetry = symmetry;
  options.trace_to = &bytes;
  Simulated(job, GivenCluster(), options);
  trace::TraceReader trace;
  EXPECT_EQ(trace.Read(bytes.str()), absl::OkStatus());
  return trace;
}

TEST(SimulateTest, TheReportOfATraceBySymmetryTellsTheSameStep) {
  for (const char* mesh : {"dp=2", "tp=4", "dp=2,pp=2", "dp=2,tp=2,pp=2", "dp=4,tp=2"}) {
    for (const int queues : {1, 4}) {
      SCOPED_TRACE(absl::StrCat(mesh, ", ", queues, " queues"));
      const proto::Job job = OnQueues(SmallGpt(mesh), queues, queues == 1 ? 1 : 64);
      ExpectTheSameStepInItsTrace(job, 4, Symmetry::kOn);
    }
  }
}

TEST(SimulateTest, ATraceBySymmetrySaysWhoStandsForWhomAndHasTheBytesOfAll) {
  const proto::Job job = SmallGpt("dp=4,pp=2");
  const trace::TraceReader classes = TraceOf(job, Symmetry::kOn);
  EXPECT_THAT(
      ToText(trace::MakeTraceReport(classes)),
      HasSubstr(
          "8 ranks are simulated by 2: rank 0 stands for ranks 0, 2, ..., 6, rank 1 for ranks 1"));
  const absl::StatusOr<trace::WhySlow> of_classes = trace::FindWhySlow(classes, {});
  ASSERT_TRUE(of_classes.ok()) << of_classes.status();
  const absl::StatusOr<trace::WhySlow> of_all =
      trace::FindWhySlow(TraceOf(job, Symmetry::kOff), {});
  ASSERT_TRUE(of_all.ok()) << of_all.status();
  const auto bytes = [](const trace::WhySlow& why) {
    double sum = 0;
    for (const trace::TransferRow& row : why.transfers) sum += row.bytes_per_step;
    return sum;
  };
  // Scalars go through one rank of a stage, so bytes differ by a few.
  EXPECT_NEAR(bytes(*of_classes) / bytes(*of_all), 1, 0.01);
}

TEST(SimulateTest, SharesOfEveryDeviceSumToOne) {
  const SimulateReport report = Simulated(SmallGpt("dp=2,pp=2"), GivenCluster());
  ASSERT_EQ(report.devices.size(), 4u);
  for (const auto& device : report.devices) {
    EXPECT_NEAR(device.compute + device.transfer + device.exposed + device.waiting, 1, 1e-9);
  }
  EXPECT_NEAR(report.bubble_formula, 1.0 / 5, 1e-12);
  // A device of several queues that never idles begins acts of a step while the step before ends.
  const SimulateReport busy = Simulated(OnQueues(SmallGpt(""), 4, 64), GivenCluster());
  ASSERT_EQ(busy.devices.size(), 1u);
  EXPECT_LE(busy.compute + busy.transfer + busy.exposed + busy.waiting, 1 + 1e-9);
}

TEST(SimulateTest, GradientsThatTravelRarelyOrLateTakeLessOfAStep) {
  const proto::Job job = SmallGpt("dp=8");
  const double plain = Simulated(job, GivenCluster()).step_ns;
  struct Case {
    int64_t every, delay, steps;  // simulated steps
  };
  for (const Case& c : {Case{4, 0, 8}, Case{1, 1, 3}, Case{3, 2, 12}}) {
    proto::Job other = job;
    other.mutable_training()->set_update_every(c.every);
    other.mutable_training()->set_gradient_delay(c.delay);
    const SimulateReport report = Simulated(other, GivenCluster());
    EXPECT_LT(report.step_ns, 0.97 * plain) << c.every << ", " << c.delay;
    EXPECT_EQ(report.steps, c.steps);
    for (const SimulateReport::Device& device : report.devices) {
      // Steps leave work to later steps. The work that the last steps begin is not quite the work
      // that the first steps find.
      EXPECT_NEAR(device.compute + device.transfer + device.exposed + device.waiting, 1, 0.1)
          << device.device;
    }
  }
}

TEST(SimulateTest, ALinkBetweenHostsThatIsSlowerMakesTheStepSlower) {
  proto::Cluster slow = GivenCluster();
  slow.mutable_host(0)->set_devices(1);
  EXPECT_GT(Simulated(SmallGpt("tp=2"), slow).step_ns,
            Simulated(SmallGpt("tp=2"), GivenCluster()).step_ns);
}

TEST(SimulateTest, MeasuredCostsAreTakenAsTheyAreAndInterpolatedBetween) {
  proto::Cluster cluster = GivenCluster();
  const SimulateReport peaks = Simulated(SmallGpt(""), cluster);
  for (double flops : {1e3, 1e12}) {  // a thousand times slower than the peak, at any size
    proto::KernelCost* row = cluster.mutable_device(0)->add_kernel();
    row->set_op("matmul");
    row->set_dtype("f32");
    row->set_flops(flops);
    row->set_ns(flops);
  }
  EXPECT_GT(Simulated(SmallGpt(""), cluster).step_ns, 50 * peaks.step_ns);
}

TEST(SimulateTest, TheReportSaysHowMuchOfTheWorkIsEstimated) {
  const SimulateReport report = Simulated(SmallGpt(""), GivenCluster());
  EXPECT_GT(report.kernels.kernels, 20);
  EXPECT_EQ(report.kernels.estimated, report.kernels.kernels);
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(ToJson(report))["estimated_share"].get<double>(),
                   report.kernels.estimated_ns / report.kernels.step_ns);
  EXPECT_THAT(ToText(report), HasSubstr("distinct, all estimated (interpolated, or from peaks)"));
}

TEST(SimulateTest, AKernelThatSuffersFromBusyCoresSlowsAStepOfTwoDevicesDown) {
  proto::Cluster cluster = GivenCluster();
  cluster.mutable_host(0)->set_cores(2);
  cluster.mutable_device(0)->set_cores(1);
  proto::KernelCost* row =
      cluster.mutable_device(0)->add_kernel();  // for all products, by proportion
  row->set_op("matmul");
  row->set_dtype("f32");
  row->set_flops(1e9);
  row->set_ns(1e6);
  const double one = Simulated(SmallGpt(""), cluster).step_ns,
               two = Simulated(SmallGpt("dp=2"), cluster).step_ns;
  cluster.mutable_device(0)->mutable_kernel(0)->set_busy_ns(3e6);
  EXPECT_DOUBLE_EQ(Simulated(SmallGpt(""), cluster).step_ns, one)
      << "its core is the only busy one";
  EXPECT_GT(Simulated(SmallGpt("dp=2"), cluster).step_ns, 1.5 * two);
}

TEST(SimulateTest, BytesThatDevicesWorkThroughKeepThemFromActing) {
  proto::Cluster cluster = GivenCluster();
  const SimulateReport free = Simulated(SmallGpt("dp=2"), cluster);
  cluster.mutable_within_host()->set_send_bytes_per_second(1e9);
  const SimulateReport sending = Simulated(SmallGpt("dp=2"), cluster);
  cluster.mutable_within_host()->set_receive_bytes_per_second(1e9);
  const SimulateReport both = Simulated(SmallGpt("dp=2"), cluster);
  const double bytes_ns = free.sent_bytes / 2;  // of a rank, at one byte per nanosecond
  EXPECT_NEAR((sending.step_ns - free.step_ns) / bytes_ns, 1, 0.2);
  EXPECT_NEAR((both.step_ns - free.step_ns) / bytes_ns, 2, 0.4);
}

TEST(ClusterCostsTest, TheCompilerPlansWithTheCostsOfTheCluster) {
  proto::Cluster cluster = GivenCluster();
  const proto::Job job = SmallGpt("pp=4");
  const auto period_ns = [&job](const proto::Cluster& of) {
    const ClusterCosts costs(of);
    compiler::CompileOptions options;
    options.costs = &costs;
    const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
        compiler::CompileJob(job, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const absl::StatusOr<std::vector<compiler::RhythmPoint>> points =
        compiler::CompareRegisterChoices(**plan, costs);
    EXPECT_TRUE(points.ok()) << points.status();
    const auto scheduled = std::find_if(points->begin(), points->end(),
                                        [](const auto& point) { return point.name == "SCHEDULE"; });
    return scheduled == points->end() ? 0 : static_cast<double>(scheduled->step_ns);
  };
  const double fast = period_ns(cluster);
  EXPECT_NEAR(Simulated(job, cluster).step_ns / fast, 1, 0.5) << "both know what acts cost";
  for (proto::Peak& peak : *cluster.mutable_device(0)->mutable_peak())
    peak.set_flops_per_second(peak.flops_per_second() / 100);
  EXPECT_GT(period_ns(cluster), 20 * fast);
}

TEST(ClusterCostsTest, LinksAreOfTheLevelBetweenTwoRanksInTheOrderOfTheFile) {
  const ClusterCosts costs(GivenCluster());
  using compiler::LinkLevel;
  EXPECT_EQ(costs.LevelBetween(RankId(0), RankId(7)), LinkLevel::kWithinHost);
  EXPECT_EQ(costs.LevelBetween(RankId(7), RankId(8)), LinkLevel::kBetweenHosts);
  EXPECT_EQ(costs.LevelBetween(RankId(8), RankId(15)), LinkLevel::kWithinHost);
  EXPECT_EQ(costs.LatencyNs(LinkLevel::kWithinHost, 1000), 2000 + 300 + 100);
  EXPECT_EQ(costs.LatencyNs(LinkLevel::kBetweenHosts, 1000), 9000 + 300 + 500);
  EXPECT_EQ(costs.ActNs(), 500);
}

TEST(SimulateTest, ErrorsSayWhatIsMissing) {
  const absl::StatusOr<SimulateReport> few = Simulate(SmallGpt("dp=32,tp=2"), GivenCluster(), {});
  EXPECT_THAT(
      std::string(few.status().message()),
      HasSubstr("W0704 at cluster a small cluster: expected a device for each of 64 ranks"));
  proto::Cluster bare = GivenCluster();
  bare.mutable_device(0)->clear_peak();
  const absl::StatusOr<SimulateReport> no_cost = Simulate(SmallGpt(""), bare, {});
  EXPECT_THAT(std::string(no_cost.status().message()), HasSubstr("W0703"));
}

TEST(SimulateTest, RanksThatDoNotDoTheSameDoNotStandForEachOther) {
  zoo::TransformerOptions uneven;
  uneven.layers = 1;
  uneven.hidden = 96;
  uneven.heads = 3;
  uneven.vocab = 64;
  uneven.sequence = 16;
  uneven.training.batch = 4;
  uneven.training.mesh = "tp=2";
  SimulateOptions options;
  options.symmetry = Symmetry::kOn;
  const absl::StatusOr<SimulateReport> report =
      Simulate(*zoo::GptJob(uneven), GivenCluster(), options);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("W0705 at ranks 0 and 1"));
  options.symmetry = Symmetry::kOff;
  EXPECT_TRUE(Simulate(*zoo::GptJob(uneven), GivenCluster(), options).ok());
}

TEST(SimulateTest, ADeviceThatIsTooSmallIsNamed) {
  proto::Cluster small = GivenCluster();
  small.mutable_device(0)->set_memory_bytes(1e5);
  EXPECT_THAT(ToText(Simulated(SmallGpt(""), small)), HasSubstr("DOES NOT FIT"));
}

TEST(SimulateTest, TheTextSaysWhatAUserAsksFor) {
  SimulateOptions options;
  options.symmetry = Symmetry::kOn;
  const SimulateReport report = Simulated(SmallGpt("dp=4,pp=2"), GivenCluster(), options);
  const std::string text = ToText(report);
  EXPECT_THAT(text,
              HasSubstr("gpt on a small cluster: 8 devices (dp=4,pp=2), 2 stages, 4 micro-batches\n"
                        "by symmetry: 2 ranks, one of each stage, stand for all 8\n"));
  for (const char* line : {"  step  ", "  tokens/s  ", "  idle  ", "  bubble  ", "  exposed  ",
                           "  memory  ", "  MFU  ", "rank 1 · stage 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const auto json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_EQ(json["by_symmetry"], true);
  EXPECT_EQ(json["devices"].size(), 2u);
  EXPECT_GT(json["tokens_per_second"], 0);
  // Without a pipeline there is no bubble to report.
  EXPECT_THAT(ToText(Simulated(SmallGpt("dp=2"), GivenCluster())),
              ::testing::Not(HasSubstr("bubble")));
}

TEST(SimulateTest, TheLastLineSaysWhatIsInTheWay) {
  EXPECT_THAT(ToText(Simulated(SmallGpt(""), GivenCluster())),
              HasSubstr("  so: work is in the way: devices compute"));
  proto::Cluster slow = GivenCluster();
  slow.mutable_within_host()->set_bytes_per_second(1e7);
  EXPECT_THAT(ToText(Simulated(SmallGpt("tp=2"), slow)),
              HasSubstr("  so: communication is in the way"));
  proto::Cluster small = GivenCluster();
  small.mutable_device(0)->set_memory_bytes(1e5);
  EXPECT_THAT(ToText(Simulated(SmallGpt(""), small)),
              HasSubstr("  so: rank 0 has too little memory"));
}

}  // namespace
}  // namespace weir::sim
