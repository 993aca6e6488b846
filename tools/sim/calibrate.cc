#include "tools/sim/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/session/virtual_run.h"
#include "compiler/compile.h"
#include "compiler/job/import_graph.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/sim/calibrate_gpu.h"
#include "tools/sim/device_costs.h"
#include "tools/sim/kernel_times.h"
#include "tools/sim/measured_feed.h"
#include "tools/sim/simulate.h"
#include "tools/train/job_device.h"
#include "tools/train/job_runner.h"
#include "tools/train/shared_cores.h"
#include "tools/zoo/gpt.h"

namespace weir::sim {
namespace {

constexpr char kDeviceName[] = "device";
constexpr int64_t kActRounds = 9;
constexpr int64_t kActSteps = 5;
constexpr int64_t kWakeSteps = 400;
constexpr int64_t kWakeRounds = 5;
constexpr double kTrialWakeNs = 1e6;
constexpr int64_t kBytesSteps = 20;
constexpr int64_t kBytesRounds = 5;
constexpr double kTrialNsPerByte = 1;
constexpr double kLeastNsPerByte = 1e-3;

// A job with all its ranks here and with real kernels under virtual time.
struct MeasuredJob {
  std::unique_ptr<MeasuredFeed> data;
  KernelTimes times;
  std::unique_ptr<actors::VirtualRun> run;
};

absl::StatusOr<std::unique_ptr<MeasuredJob>> OpenMeasured(const proto::Job& job, int threads,
                                                          int64_t traced_steps = 1) {
  auto measured = std::make_unique<MeasuredJob>();
  WEIR_ASSIGN_OR_RETURN(measured->data, MeasuredFeed::Open(job));
  WEIR_ASSIGN_OR_RETURN(std::vector<actors::Plan> plans, PlansOf(job));
  int64_t acts = 0;
  for (const actors::Plan& plan : plans) {
    for (const actors::PlanActor& actor : plan.actors) acts += actor.acts_per_step;
  }
  actors::VirtualRunOptions options;
  options.work = actors::TimeDevice::Work::kMeasured;
  options.trace_capacity = acts * traced_steps;
  options.measured.threads_per_device = threads;
  options.measured.feed = measured->data->feed();
  options.measured.on_kernels = [times = &measured->times](
                                    const actors::Plan& plan, const actors::PlanActor& actor,
                                    absl::Span<const int64_t> ns) { times->Add(plan, actor, ns); };
  WEIR_ASSIGN_OR_RETURN(measured->run,
                        actors::VirtualRun::Create(std::move(plans), std::move(options)));
  return measured;
}

absl::Status Measure(MeasuredJob* measured, int64_t steps) {
  WEIR_RETURN_IF_ERROR(measured->run->RunSteps(1));  // caches, pages, first touches
  measured->times.Clear();
  return measured->run->RunSteps(steps);
}

class Calibration {
 public:
  Calibration(const proto::Job& job, const CalibrateOptions& options)
      : job_(job), options_(options) {}

  absl::StatusOr<proto::Cluster> Run() {
    std::vector<proto::Job> jobs{job_};
    jobs.insert(jobs.end(), options_.layouts.begin(), options_.layouts.end());
    for (const proto::Job& job : jobs) {
      WEIR_RETURN_IF_ERROR(MeasureKernels(job, &job == &jobs.front() ? options_.trace : ""));
      WEIR_RETURN_IF_ERROR(MeasureBusyKernels(job));
    }
    WEIR_RETURN_IF_ERROR(MeasureActs(jobs[0]));
    DescribeMachine();
    WEIR_RETURN_IF_ERROR(MeasureCores(jobs[0]));
    WEIR_ASSIGN_OR_RETURN(const double wake_ns, MeasureWake(Where::kOneProcess));
    cluster_.mutable_device(0)->set_wake_ns(wake_ns);
    if (!options_.in_processes) return cluster_;
    WEIR_ASSIGN_OR_RETURN(const double wake_in_processes_ns, MeasureWake(Where::kProcesses));
    cluster_.mutable_device(0)->set_wake_ns(wake_in_processes_ns);
    cluster_.set_name(absl::StrCat(cluster_.name(), ", a process for each device"));
    WEIR_RETURN_IF_ERROR(MeasureBytes(wake_ns));
    return cluster_;
  }

 private:
  using RowKey = std::tuple<std::string, std::string, std::string>;  // op, dtype, shapes
  struct Row {
    KernelWork work;
    double sum = 0;
    int64_t places = 0;
    double busy_sum = 0;
    int64_t busy_places = 0;
  };

  void Say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }
  void AddSample(const KernelWork& work, int64_t ns) {
    Row& row = rows_[{work.op, work.dtype, work.shapes}];
    row.work = work;
    row.sum += static_cast<double>(ns);
    ++row.places;
  }

  // `trace` is the path for a trace of all steps; empty: no trace.
  absl::Status MeasureKernels(const proto::Job& job, const std::string& trace) {
    const int64_t traced_steps = trace.empty() ? 1 : options_.steps + 1;
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<MeasuredJob> measured,
                          OpenMeasured(job, options_.threads_per_device, traced_steps));
    const size_t ranks = measured->run->plans().size();
    devices_ = std::max(devices_, static_cast<int>(ranks));
    Say(absl::StrFormat("kernels of %d device%s, %d steps", ranks, ranks == 1 ? "" : "s",
                        options_.steps));
    WEIR_RETURN_IF_ERROR(Measure(measured.get(), options_.steps));
    measured->times.ForEachPlace([this](const actors::Plan& plan, const actors::PlanActor& actor,
                                        size_t kernel, int64_t ns) {
      AddSample(WorkOf(plan.programs[actor.program].calls[kernel], actor.chunks), ns);
    });
    for (size_t i = 0; i < ranks; ++i)
      AddOthers(measured->run->plans()[i], measured->run->acts(static_cast<int>(i)));
    return trace.empty() ? absl::OkStatus() : measured->run->WriteTrace(trace);
  }

  // Runs as many ranks at once as there are cores for.
  absl::Status MeasureBusyKernels(const proto::Job& job) {
    if (CopiesAtOnce() < 2) return absl::OkStatus();
    Say(absl::StrFormat("the same, %d at once", CopiesAtOnce()));
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<MeasuredJob>> copies,
                          MeasureAtOnce(job, CopiesAtOnce()));
    for (const auto& copy : copies) {
      copy->times.ForEachPlace([this](const actors::Plan& plan, const actors::PlanActor& actor,
                                      size_t kernel, int64_t ns) {
        const KernelWork work = WorkOf(plan.programs[actor.program].calls[kernel], actor.chunks);
        Row& row = rows_[{work.op, work.dtype, work.shapes}];
        row.busy_sum += static_cast<double>(ns);
        ++row.busy_places;
      });
    }
    return absl::OkStatus();
  }

  int CopiesAtOnce() const { return std::max(1, Cores() / options_.threads_per_device); }
  static int Cores() { return static_cast<int>(train::NumCores()); }

  absl::StatusOr<std::vector<std::unique_ptr<MeasuredJob>>> MeasureAtOnce(const proto::Job& job,
                                                                          int k) const {
    std::vector<std::unique_ptr<MeasuredJob>> copies;
    for (int i = 0; i < k; ++i) {
      WEIR_ASSIGN_OR_RETURN(std::unique_ptr<MeasuredJob> copy,
                            OpenMeasured(job, options_.threads_per_device));
      copies.push_back(std::move(copy));
    }
    std::vector<absl::Status> statuses(k);
    std::vector<std::thread> threads;
    for (int i = 0; i < k; ++i) {
      threads.emplace_back([&, i] { statuses[i] = Measure(copies[i].get(), options_.steps); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) WEIR_RETURN_IF_ERROR(status);
    return copies;
  }

  // Measures the cost that protocol, ready set and trace add to an act, with the same ranks without
  // kernels. The engine of virtual time costs about as much as the engine of threads.
  absl::Status MeasureActs(const proto::Job& job) {
    WEIR_ASSIGN_OR_RETURN(std::vector<actors::Plan> plans, PlansOf(job));
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<actors::VirtualRun> run,
                          actors::VirtualRun::Create(std::move(plans), {}));
    const MonotonicClock clock;
    std::vector<int64_t> rounds;
    for (int64_t round = 0; round < kActRounds; ++round) {
      const int64_t begin = clock.NowNs(), acts = run->engine().num_acts();
      WEIR_RETURN_IF_ERROR(run->RunSteps(kActSteps));
      rounds.push_back((clock.NowNs() - begin) /
                       std::max<int64_t>(1, run->engine().num_acts() - acts));
    }
    act_ns_ = static_cast<double>(Median(rounds));
    return absl::OkStatus();
  }

  // Adds acts without a program: feeds, reports, copies.
  void AddOthers(const actors::Plan& plan, const trace::ActRing& acts) {
    std::map<ActorId, std::vector<int64_t>> by_actor;
    for (int64_t i = 0; i < acts.size(); ++i) {
      const trace::ActRecord& record = acts.at(i);
      if (record.actor.has_value() && record.step > 0 &&
          !plan.actors[record.actor].program.has_value()) {
        by_actor[record.actor].push_back(record.end - record.start);
      }
    }
    for (auto& [actor, ns] : by_actor)
      AddSample(WorkOf(plan, plan.actors[actor]), Median(std::move(ns)));
  }

  void DescribeMachine() {
    const int cores = Cores();
    cluster_.set_name(absl::StrCat("this machine, ", cores, " cores"));
    proto::DeviceModel* device = cluster_.add_device();
    device->set_name(kDeviceName);
    device->set_cores(options_.threads_per_device);
    device->set_act_ns(act_ns_);
    std::map<std::string, double> peaks;
    for (const auto& [key, row] : rows_) {
      proto::KernelCost* kernel = device->add_kernel();
      kernel->set_op(row.work.op);
      kernel->set_dtype(row.work.dtype);
      kernel->set_shapes(row.work.shapes);
      kernel->set_flops(row.work.flops);
      kernel->set_bytes(row.work.bytes);
      kernel->set_ns(std::round(row.sum / static_cast<double>(row.places)));
      if (row.busy_places > 0)
        kernel->set_busy_ns(std::round(row.busy_sum / static_cast<double>(row.busy_places)));
      if (row.work.op == "matmul" && kernel->ns() > 0) {
        double& peak = peaks[row.work.dtype];
        peak = std::max(peak, row.work.flops / kernel->ns() * 1e9);
      }
    }
    for (const auto& [dtype, flops] : peaks) {
      proto::Peak* peak = device->add_peak();
      peak->set_dtype(dtype);
      peak->set_flops_per_second(std::round(flops));
    }
    proto::HostGroup* host = cluster_.add_host();
    host->set_name("this machine");
    host->set_device(kDeviceName);
    host->set_devices(std::max(devices_, cores));
    host->set_cores(cores);
    host->add_core_speed(1);
  }

  // Measures k copies of the job at once, each on a core, against one copy alone.
  absl::Status MeasureCores(const proto::Job& job) {
    proto::HostGroup* host = cluster_.mutable_host(0);
    int64_t alone = 0;
    for (int k = 1; k <= CopiesAtOnce(); ++k) {
      Say(absl::StrFormat("%d device%s busy at once", k, k == 1 ? "" : "s"));
      WEIR_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<MeasuredJob>> copies,
                            MeasureAtOnce(job, k));
      int64_t total = 0;
      for (const auto& copy : copies) total += copy->times.Total() / k;
      if (k == 1) alone = total;
      if (k > 1) {
        const double speed = std::clamp(
            static_cast<double>(alone) / static_cast<double>(std::max<int64_t>(1, total)), 0.05,
            1.0);
        // On devices of several threads, each of their cores has the same speed.
        while (host->core_speed_size() < k * options_.threads_per_device)
          host->add_core_speed(std::round(speed * 1000) / 1000);
      }
    }
    return absl::OkStatus();
  }

  enum class Where : uint8_t { kOneProcess, kProcesses };

  // Returns the median over rounds of the time of a step.
  absl::StatusOr<double> StepNs(Where where, const proto::Job& job, int64_t rounds,
                                int64_t steps) const {
    std::vector<int64_t> samples;
    if (where == Where::kProcesses) {
      WEIR_ASSIGN_OR_RETURN(samples,
                            options_.in_processes(job, options_.threads_per_device, rounds, steps));
    } else {
      WEIR_ASSIGN_OR_RETURN(std::unique_ptr<train::JobRunner> runner,
                            train::LocalRunner::Open(job, {options_.threads_per_device, 0}));
      WEIR_ASSIGN_OR_RETURN(samples, TimeRounds(runner.get(), rounds, steps));
    }
    return static_cast<double>(Median(std::move(samples)));
  }

  // Measures two stages and one tiny micro-batch: a step is then a chain of messages between
  // waiting ranks.
  absl::StatusOr<double> MeasureWake(Where where) {
    Say(where == Where::kProcesses ? "waking of a rank that waits, in two processes"
                                   : "waking of a rank that waits");
    zoo::TransformerOptions tiny;
    tiny.layers = 2;
    tiny.hidden = 8;
    tiny.heads = 2;
    tiny.vocab = 16;
    tiny.sequence = 8;
    tiny.training.batch = 2;
    tiny.training.mesh = "pp=2";
    WEIR_ASSIGN_OR_RETURN(proto::Job job, zoo::GptJob(tiny));
    WEIR_ASSIGN_OR_RETURN(const double step_ns, StepNs(where, job, kWakeRounds, kWakeSteps));
    WEIR_ASSIGN_OR_RETURN(proto::Cluster tiny_cluster, WithKernelsOf(job));
    WEIR_ASSIGN_OR_RETURN(const SimulateReport at_once, Simulate(job, tiny_cluster, {.steps = 4}));
    tiny_cluster.mutable_device(0)->set_wake_ns(kTrialWakeNs);
    WEIR_ASSIGN_OR_RETURN(const SimulateReport late, Simulate(job, tiny_cluster, {.steps = 4}));
    const double wakes = (late.step_ns - at_once.step_ns) / kTrialWakeNs;
    return wakes > 0 ? std::max(0.0, std::round((step_ns - at_once.step_ns) / wakes)) : 0.0;
  }

  // Measures many weights and few tokens over two data-parallel ranks: a step then mostly exchanges
  // gradients and updates.
  absl::Status MeasureBytes(double wake_in_one_ns) {
    Say("bytes between two processes");
    zoo::TransformerOptions wide;
    wide.layers = 2;
    wide.hidden = 384;
    wide.heads = 2;
    wide.vocab = 16;
    wide.sequence = 8;
    wide.training.batch = 2;
    wide.training.mesh = "dp=2";
    WEIR_ASSIGN_OR_RETURN(proto::Job job, zoo::GptJob(wide));
    WEIR_ASSIGN_OR_RETURN(const double one_ns,
                          StepNs(Where::kOneProcess, job, kBytesRounds, kBytesSteps));
    WEIR_ASSIGN_OR_RETURN(const double two_ns,
                          StepNs(Where::kProcesses, job, kBytesRounds, kBytesSteps));
    WEIR_ASSIGN_OR_RETURN(proto::Cluster wide_cluster, WithKernelsOf(job));
    wide_cluster.mutable_device(0)->set_wake_ns(wake_in_one_ns);
    WEIR_ASSIGN_OR_RETURN(const SimulateReport in_one, Simulate(job, wide_cluster, {.steps = 4}));
    wide_cluster.mutable_device(0)->set_wake_ns(cluster_.device(0).wake_ns());
    WEIR_ASSIGN_OR_RETURN(const SimulateReport for_nothing,
                          Simulate(job, wide_cluster, {.steps = 4}));
    for (auto set :
         {&proto::Link::set_send_bytes_per_second, &proto::Link::set_receive_bytes_per_second}) {
      (wide_cluster.mutable_within_host()->*set)(1e9 / kTrialNsPerByte);
    }
    WEIR_ASSIGN_OR_RETURN(const SimulateReport dear, Simulate(job, wide_cluster, {.steps = 4}));
    const double bytes = (dear.step_ns - for_nothing.step_ns) / kTrialNsPerByte;
    const double ns_per_byte =
        bytes > 0 ? (two_ns - one_ns - (for_nothing.step_ns - in_one.step_ns)) / bytes : 0;
    if (ns_per_byte <= kLeastNsPerByte) return absl::OkStatus();  // too little to count
    for (auto set :
         {&proto::Link::set_send_bytes_per_second, &proto::Link::set_receive_bytes_per_second}) {
      (cluster_.mutable_within_host()->*set)(std::round(1e9 / ns_per_byte));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<proto::Cluster> WithKernelsOf(const proto::Job& job) {
    CalibrateOptions options;
    options.threads_per_device = options_.threads_per_device;
    options.steps = 20;
    Calibration of_job(job, options);
    of_job.act_ns_ = act_ns_;
    WEIR_RETURN_IF_ERROR(of_job.MeasureKernels(job, ""));
    of_job.DescribeMachine();
    return of_job.cluster_;
  }

  const proto::Job& job_;
  const CalibrateOptions& options_;
  std::map<RowKey, Row> rows_;
  int devices_ = 1;
  double act_ns_ = 0;
  proto::Cluster cluster_;
};

}  // namespace

absl::StatusOr<std::vector<actors::Plan>> PlansOf(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<compiler::LogicalPlan> logical,
                        compiler::CompileJob(job, {.mode = compiler::ModeOf(job)}));
  std::vector<actors::Plan> plans;
  for (RankId rank : logical->places.all_ranks()) {
    WEIR_ASSIGN_OR_RETURN(proto::RankPlan proto, compiler::LowerForRank(*logical, rank));
    WEIR_ASSIGN_OR_RETURN(actors::Plan plan, actors::PlanFromProto(proto));
    plans.push_back(std::move(plan));
  }
  return plans;
}

absl::StatusOr<std::vector<int64_t>> TimeRounds(train::JobRunner* runner, int64_t rounds,
                                                int64_t steps) {
  std::vector<int64_t> samples;
  const MonotonicClock clock;
  for (int64_t round = 0; round <= rounds; ++round) {
    const int64_t begin = clock.NowNs();
    WEIR_RETURN_IF_ERROR(runner->RunSteps(steps).status());
    if (round > 0) samples.push_back((clock.NowNs() - begin) / steps);
  }
  return samples;
}

absl::StatusOr<proto::Cluster> Calibrate(const proto::Job& job, const CalibrateOptions& options) {
  proto::Job settled = job;
  WEIR_RETURN_IF_ERROR(train::SettleDevice(&settled));
  if (absl::StartsWith(settled.runtime().device(), "cuda")) return CalibrateGpu(settled, options);
  return Calibration(job, options).Run();
}

}  // namespace weir::sim
