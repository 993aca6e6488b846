#include "tools/train/job_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/device/device_factory.h"
#include "runtime/limits/process_limits.h"
#include "tools/sandbox/run_confined.h"
#include "tools/train/job_device.h"
#include "tools/train/memory_budget.h"
#include "tools/train/shared_cores.h"

namespace weir::train {
namespace {

// Devices share the cores of this machine, so more of them only cost; the bounds keep a slip
// in a mesh from taking the machine down.
constexpr int64_t kDevicesMax = 4096;
constexpr int64_t kThreadsMax = 4096;

absl::Status CheckDevices(const compiler::LogicalPlan& plan) {
  if (plan.places.num_ranks() <= kDevicesMax) return absl::OkStatus();
  return Rejected({"W0080", absl::StrCat("mesh ", plan.mesh_text),
                   absl::StrCat("at most ", kDevicesMax, " devices in one process"),
                   absl::StrCat(plan.places.num_ranks()),
                   "a smaller --mesh; `weir check --any-machine` and `weir plan` take any"});
}

absl::Status CheckThreads(int per_device, int64_t devices) {
  if (per_device <= kThreadsMax / std::max<int64_t>(1, devices)) return absl::OkStatus();
  if (per_device == 1) return absl::OkStatus();
  return Rejected({"W0081", "threads", absl::StrCat("at most ", kThreadsMax, " threads in all"),
                   absl::StrCat(per_device, " for each of ", devices, " devices"),
                   "leave it out: the cores are shared evenly"});
}

// Threads that a session makes besides those of its ranks; and what a thread takes of the address
// space, its stack and its heap.
constexpr int64_t kThreadsOfEngine = 3;
constexpr int64_t kAddressesPerThread = 16 << 20;

// A thread that cannot be made in the midst of a run leaves the others waiting for it.
absl::Status CheckRoom(int64_t threads) {
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForThreads("this process", static_cast<int>(threads)));
  return limits::CheckRoomForAddresses("this process", threads * kAddressesPerThread);
}

// Steps of a trace. Small plans then take little memory for it; those with many acts in a step keep
// fewer steps.
constexpr int64_t kTracedSteps = 100;
constexpr int64_t kTracedActsMin = 1 << 10;
constexpr int64_t kTracedActsMax = 1 << 16;

int64_t TraceCapacity(const std::vector<proto::RankPlan>& plans, JobSessionOptions::Trace trace) {
  if (trace == JobSessionOptions::Trace::kNone) return 0;
  int64_t acts = 0;  // of the rank that has most
  for (const proto::RankPlan& plan : plans) {
    int64_t of_rank = 0;
    for (const proto::ActorSpec& actor : plan.actor()) of_rank += actor.rate().acts_per_step();
    acts = std::max(acts, of_rank);
  }
  return std::clamp(acts, kTracedActsMin / kTracedSteps, kTracedActsMax / kTracedSteps) *
         kTracedSteps;
}

}  // namespace

int ThreadsPerDevice(const proto::Job& job, int asked, int64_t devices) {
  if (asked > 0) return asked;
  if (job.runtime().threads_per_device() > 0) return job.runtime().threads_per_device();
  return static_cast<int>(std::max<int64_t>(1, NumCores() / std::max<int64_t>(1, devices)));
}

std::function<void(const compiler::PassProgress&)> TellsPasses(const live::TellDoing& tell,
                                                               compiler::PlanMode mode) {
  const char* const plan = mode == compiler::PlanMode::kTrain ? "training" : "evaluation";
  return [&tell, plan](const compiler::PassProgress& progress) {
    tell({absl::StrCat("compiler pass ", progress.pass, " of the ", plan, " plan",
                       progress.functions == 0
                           ? ""
                           : absl::StrCat(", ", Plural(progress.functions, "function"))),
          progress.done, progress.of});
  };
}

absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> CompileConfined(
    const proto::Job& job, const compiler::CompileOptions& options) {
  std::unique_ptr<compiler::LogicalPlan> plan;
  WEIR_RETURN_IF_ERROR(sandbox::RunConfined([&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(plan, compiler::CompileJob(job, options));
    return absl::OkStatus();
  }));
  return plan;
}

absl::Status CheckMachine(const compiler::LogicalPlan& plan, int threads_per_device,
                          int64_t devices_here) {
  const int64_t devices = devices_here > 0 ? devices_here : plan.places.num_ranks();
  WEIR_RETURN_IF_ERROR(CheckDevices(plan));
  WEIR_RETURN_IF_ERROR(CheckDevice(plan.job->runtime()));
  WEIR_RETURN_IF_ERROR(
      At("runtime.device", device::CheckDeviceIsHere(plan.job->runtime().device())));
  return CheckThreads(ThreadsPerDevice(*plan.job, threads_per_device, devices), devices);
}

absl::StatusOr<JobSession> OpenJobSession(const proto::Job& job, const JobSessionOptions& options) {
  compiler::CompileOptions compile;
  compile.mode = options.mode;
  compile.rhythm = options.rhythm.get();
  if (options.tell != nullptr) compile.on_pass = TellsPasses(options.tell, options.mode);
  JobSession opened;
  opened.plan = options.plan;
  if (opened.plan == nullptr) {
    WEIR_ASSIGN_OR_RETURN(opened.plan, CompileConfined(job, compile));
  }
  if (!options.plan_id.empty() && options.plan_id != opened.plan->plan_id) {
    return ErrorOf(absl::StatusCode::kFailedPrecondition,
                   {"W0095", absl::StrCat("the plan of job ", job.name()), options.plan_id,
                    opened.plan->plan_id, "start all processes of a job from one program"});
  }
  const int64_t devices = opened.plan->places.num_ranks();
  const int64_t devices_here = options.devices_here > 0 ? options.devices_here : devices;
  WEIR_RETURN_IF_ERROR(CheckMachine(*opened.plan, options.threads_per_device, devices_here));
  opened.threads_per_device = ThreadsPerDevice(job, options.threads_per_device, devices_here);
  std::vector<RankId> ranks = options.ranks;
  if (ranks.empty()) {
    for (int32_t rank = 0; rank < devices; ++rank) ranks.emplace_back(rank);
  }
  std::vector<proto::RankPlan> plans;
  WEIR_RETURN_IF_ERROR(sandbox::RunConfined([&]() -> absl::Status {
    for (const RankId rank : ranks) {
      if (options.tell != nullptr) {
        options.tell({"lowering ranks to load them", static_cast<int64_t>(plans.size()),
                      static_cast<int64_t>(ranks.size())});
      }
      WEIR_ASSIGN_OR_RETURN(proto::RankPlan plan, compiler::LowerForRank(*opened.plan, rank));
      SetOnNonfinite(options.on_nonfinite, &plan);
      plans.push_back(std::move(plan));
    }
    return absl::OkStatus();
  }));
  // A starter of processes has checked the memory of all of them before.
  if (options.ranks.empty() && options.plan == nullptr)
    WEIR_RETURN_IF_ERROR(CheckNeed(*opened.plan, Beside::kNothing,
                                   NeedOf(plans, opened.threads_per_device), BudgetOf(job)));
  WEIR_RETURN_IF_ERROR(CheckRoom(
      static_cast<int64_t>(ranks.size()) * (opened.threads_per_device + 1) + kThreadsOfEngine));
  actors::SessionOptions session;
  session.threads_per_device = opened.threads_per_device;
  session.feed = options.feed;
  session.sink = options.sink;
  session.first_step = options.first_step;
  session.epoch = options.epoch;
  session.role = options.role;
  session.devices_on_host = static_cast<int>(devices_here);
  session.trace_capacity = TraceCapacity(plans, options.trace);
  session.state_init = options.state_init;
  if (opened.plan->job->runtime().collectives() == proto::Runtime::NCCL)
    session.collectives = actors::SessionOptions::Collectives::kNccl;
  session.exchange = options.exchange;
  session.weights_of = options.weights_of;
  if (options.network) {
    WEIR_ASSIGN_OR_RETURN(opened.network, options.network(static_cast<int>(devices), ranks));
    session.network = opened.network.get();
    session.caf.threads_on_machine = static_cast<int>(devices_here) * opened.threads_per_device;
  }
  WEIR_ASSIGN_OR_RETURN(opened.session, actors::Session::Create(plans, std::move(session)));
  return opened;
}

}  // namespace weir::train
