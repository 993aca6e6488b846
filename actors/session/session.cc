#include "actors/session/session.h"

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/stall_report.h"
#include "actors/plan/certificate.h"
#include "actors/plan/group_statement.h"
#include "actors/plan/verify_plans.h"
#include "actors/session/initialize_state.h"
#include "actors/session/traced_job.h"
#include "runtime/base/first_error.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/collective/nccl_collective.h"
#include "runtime/collective/nccl_placement.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/device/device_factory.h"
#include "runtime/device/walled_device.h"
#include "runtime/trace/kept_acts.h"
#include "runtime/trace/trace_file.h"
#include "runtime/transport/loopback_transport.h"

namespace weir::actors {
namespace {

constexpr char kCuda[] = "cuda";
constexpr int64_t kExchangeLimitMs = 60'000;  // for the id of a group, between threads

// Adds the host to the names of the devices of all ranks.
void TellHost(const std::string& host, trace::TracedJob* job) {
  if (host.empty()) return;
  for (trace::TracedRank& rank : job->ranks)
    absl::StrAppend(&rank.device, rank.device.empty() ? "" : ", ", "host ", host);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const std::vector<proto::RankPlan>& plans,
                                                         SessionOptions options) {
  std::unique_ptr<Session> session(new Session());
  session->plans_.reserve(plans.size());
  for (const proto::RankPlan& proto : plans) {
    WEIR_ASSIGN_OR_RETURN(Plan plan, PlanFromProto(proto));
    session->plans_.push_back(std::move(plan));
  }
  WEIR_RETURN_IF_ERROR(session->Verify(options));
  if (options.weights_of != nullptr) {
    for (Plan& plan : session->plans_)
      session->shared_.push_back(ShareWeights(options.weights_of->plan(plan.rank), &plan));
  }
  WEIR_RETURN_IF_ERROR(session->Load(std::move(options)));
  return session;
}

Session::~Session() {
  engine_.reset();  // no rank's thread runs from here
  // After an error a device may still work on memory of another rank, or of the network.
  for (const auto& device : devices_) {
    if (simulator_ != nullptr) break;
    for (const QueueId queue : IdRange<QueueId>(device->num_queues()))
      (void)device->queue(queue).Finish();
  }
  if (given_network_ != nullptr) {
    for (const RankId rank : local_ranks_) given_network_->endpoint(rank)->Close();
  }
  executors_.clear();  // before the libraries of their groups
}

absl::Status Session::Verify(const SessionOptions& options) {
  if (options.network == nullptr) {
    WEIR_RETURN_IF_ERROR(VerifyPlans(plans_));
  } else {
    if (options.engine == SessionOptions::EngineKind::kSim) {
      return absl::InvalidArgumentError(
          "a simulated session has a network of its own; one was given");
    }
    WEIR_RETURN_IF_ERROR(VerifyLocalPlans(plans_));
    // NCCL connects processes. The other libraries, its emulation too, are for one.
    const bool is_nccl = options.collectives == SessionOptions::Collectives::kNccl &&
                         std::all_of(plans_.begin(), plans_.end(),
                                     [](const Plan& plan) { return plan.device_kind == kCuda; });
    if (!is_nccl) WEIR_RETURN_IF_ERROR(CheckGroupsAreHere(plans_));
    std::sort(plans_.begin(), plans_.end(),
              [](const Plan& a, const Plan& b) { return a.rank < b.rank; });
  }
  for (const Plan& plan : plans_) WEIR_RETURN_IF_ERROR(CheckCertificate(plan));
  place_of_rank_.assign(plans_.empty() ? 0 : plans_[0].num_ranks, -1);
  for (const Plan& plan : plans_) {
    place_of_rank_[plan.rank] = static_cast<int>(local_ranks_.size());
    local_ranks_.push_back(plan.rank);
  }
  return absl::OkStatus();
}

absl::Status Session::Load(SessionOptions options) {
  given_network_ = options.network;
  first_step_ = steps_done_ = options.first_step;
  if (options.engine == SessionOptions::EngineKind::kSim) {
    sim_network_ = std::make_unique<transport::SimNetwork>(num_ranks(), options.sim_mapping);
    sim_network_->set_latency(options.sim_latency_ns);
    WEIR_RETURN_IF_ERROR(MakeExecutors(options));
    WEIR_RETURN_IF_ERROR(Connect());
    MakeSimEngine(options.sim);
    return absl::OkStatus();
  }
  if (given_network_ == nullptr)
    loopback_network_ = std::make_unique<transport::LoopbackNetwork>(num_ranks());
  tick_scale_ = TickScale::Open();
  WEIR_RETURN_IF_ERROR(MakeExecutors(options));
  MakeCafEngine(options.caf);  // before connecting, since it hears the endpoints' wake-ups
  return Connect();
}

absl::Status Session::MakeExecutors(const SessionOptions& options) {
  const bool sim = options.engine == SessionOptions::EngineKind::kSim;
  RankExecutorOptions rank_options;
  rank_options.feed = options.feed;
  rank_options.sink = options.sink;
  rank_options.state_init = options.state_init
                                ? options.state_init
                                : SeededInitializer(plans_.empty() ? 0 : plans_[0].seed);
  rank_options.compute = sim ? options.compute : RankExecutorOptions::Compute::kRun;
  rank_options.clock = sim ? &virtual_clock_ : nullptr;
  rank_options.trace_capacity = options.trace_capacity;
  rank_options.first_step = options.first_step;
  rank_options.epoch = options.epoch;
  rank_options.role = options.role;
  if (rank_options.compute == RankExecutorOptions::Compute::kRun) {
    WEIR_RETURN_IF_ERROR(OpenCollectives(options));
  } else {
    virtual_collectives_ = std::make_unique<collective::VirtualCollectives>(local_ranks_);
    means_.polled = virtual_collectives_.get();
  }
  rank_options.collectives = &means_;
  if (sim) rank_options.cost_ns = options.sim_cost_ns;
  transport::TransportNetwork* network = given_network_;
  if (network == nullptr)
    network = sim ? static_cast<transport::TransportNetwork*>(sim_network_.get())
                  : loopback_network_.get();
  for (const Plan& plan : plans_) {
    if (sim) {
      devices_.push_back(std::make_unique<device::WalledDevice>(SimDeviceOptions(plan)));
    } else {
      device::DeviceOptions device;
      device.kind = plan.device_kind;
      device.num_threads = options.threads_per_device;
      const int joint = means_.library == nullptr ? 0 : NumCollectivesInFlight(plan);
      device.num_queues = plan.num_queues + (joint > 0 ? 1 : 0);
      device.depth = plan.depth + joint;
      if (joint > 0) device.collective_queue = QueueId(plan.num_queues);
      device.seed = MixKey(plan.seed, static_cast<uint64_t>(plan.rank.value()));
      device.number_on_host =
          plan.rank.value() % (options.devices_on_host > 0 ? options.devices_on_host : num_ranks());
      WEIR_ASSIGN_OR_RETURN(devices_.emplace_back(), device::MakeDevice(device));
    }
    if (options.on_kernels) {
      rank_options.on_kernels = [&plan, told = options.on_kernels](
                                    const PlanActor& actor, absl::Span<const int64_t> kernel_ns) {
        told(plan, actor, kernel_ns);
      };
    }
    if (options.weights_of != nullptr) {
      rank_options.shared = &shared_[place_of_rank_[plan.rank]];
      rank_options.owner_arena = options.weights_of->executor(plan.rank).arena();
    }
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> executor,
                          RankExecutor::Create(&plan, devices_.back().get(),
                                               network->endpoint(plan.rank), rank_options));
    ranks_.push_back(executor.get());
    executors_.push_back(std::move(executor));
  }
  return absl::OkStatus();
}

// Simulated ranks are tasks of one thread, so they meet at the host whatever the job asks for.
absl::Status Session::OpenCollectives(const SessionOptions& options) {
  const auto collects = [](const Plan& plan) { return NumCollectivesInFlight(plan) > 0; };
  const auto plan = std::find_if(plans_.begin(), plans_.end(), collects);
  if (plan == plans_.end()) return absl::OkStatus();
  const bool sim = options.engine == SessionOptions::EngineKind::kSim;
  if (sim || options.collectives == SessionOptions::Collectives::kLocal) {
    means_.polled = &collectives_;
    return absl::OkStatus();
  }
  const int num_here = static_cast<int>(plans_.size());
  const int on_host = options.devices_on_host > 0 ? options.devices_on_host : num_ranks();
  collective::NcclPlacement placement{plan->device_kind, num_ranks(), num_here, on_host};
  const bool is_cuda = plan->device_kind == kCuda;
  if (is_cuda) placement.num_gpus = static_cast<int>(device::FindGpus().gpus.size());
  WEIR_RETURN_IF_ERROR(CheckNcclPlacement(placement));
  if (is_cuda) {
    collective::ShareGpu(plan->rank);
    WEIR_ASSIGN_OR_RETURN(const collective::NcclLibrary library, collective::NcclLibrary::Open());
    nccl_ = std::make_unique<collective::NcclCollectives>(library);
    means_.library = nccl_.get();
  } else {
    means_.library = &collectives_;
  }
  means_.exchange = options.exchange;
  if (options.exchange == nullptr) {
    exchange_ = std::make_unique<transport::LocalExchange>(kExchangeLimitMs);
    means_.exchange = exchange_.get();
  }
  return absl::OkStatus();
}

// With a network that others share a rank may wait for ranks of other processes, and those
// for ranks of this one, so all connect at once. The first error is the cause of the rest.
absl::Status Session::Connect() {
  if (given_network_ == nullptr) {
    for (auto& executor : executors_) WEIR_RETURN_IF_ERROR(executor->Connect());
    return absl::OkStatus();
  }
  FirstError first_error;
  std::vector<std::thread> threads;
  for (auto& executor : executors_) {
    threads.emplace_back([&executor, &first_error] { first_error.Update(executor->Connect()); });
  }
  for (std::thread& thread : threads) thread.join();
  return first_error.status();
}

void Session::MakeCafEngine(CafEngineOptions options) {
  options.rest = plans_.size() == place_of_rank_.size() ? CafEngineOptions::Rest::kBalanced
                                                        : CafEngineOptions::Rest::kLocal;
  engine_ = weir::actors::MakeCafEngine(ranks_, options);
}

void Session::MakeSimEngine(const SimEngineOptions& options) {
  std::vector<device::WalledDevice*> devices;
  for (auto& device : devices_) devices.push_back(static_cast<device::WalledDevice*>(device.get()));
  auto simulator = std::make_unique<SimEngine>(ranks_, std::move(devices), sim_network_.get(),
                                               &virtual_clock_, options);
  simulator_ = simulator.get();
  engine_ = std::move(simulator);
}

absl::Status Session::RunSteps(int64_t steps) {
  if (steps < 0 || steps > (int64_t{1} << 32)) {
    return CodedError(absl::StatusCode::kInvalidArgument, "W0519",
                      absl::StrCat("expected 0 to 2^32 steps; found ", steps));
  }
  WEIR_RETURN_IF_ERROR(engine_->RunSteps(steps));
  steps_done_ += steps;
  // Where other processes may begin the next run, the engine has checked each rank as it
  // came to rest, and its ranks may hear of that run already.
  return local_ranks_.size() == place_of_rank_.size() ? CheckAtRest() : absl::OkStatus();
}

absl::StatusOr<std::vector<NonfiniteFinding>> Session::InspectStep(int64_t as_step) {
  std::vector<FiniteWatch> watches;
  watches.reserve(executors_.size());
  for (const auto& executor : executors_)
    executor->Watch(&watches.emplace_back(&executor->plan(), &executor->device()->memory()),
                    as_step - steps_done_);
  const absl::Status status = RunSteps(1);
  for (const auto& executor : executors_) executor->Unwatch();
  WEIR_RETURN_IF_ERROR(status);
  std::vector<NonfiniteFinding> findings;
  for (const FiniteWatch& watch : watches) {
    if (watch.first().has_value()) findings.push_back(*watch.first());
  }
  return findings;
}

SessionProgress Session::Progress() const {
  SessionProgress progress = ReadProgress(ranks_, ClosedScale());
  progress.fault = engine_->fault();
  return progress;
}

std::string Session::DescribeStall() const {
  return weir::actors::DescribeStall(ranks_, kStallLogLinesMax);
}

std::vector<Wait> Session::ListWaits() const { return weir::actors::ListWaits(ranks_); }

absl::Status Session::CheckAtRest() const {
  for (const auto& executor : executors_) WEIR_RETURN_IF_ERROR(executor->CheckAtRest());
  return absl::OkStatus();
}

absl::StatusOr<StateId> Session::FindState(RankId rank, const std::string& name) const {
  if (place_of_rank_.Has(rank) && place_of_rank_[rank] >= 0) {
    const IdVector<StateId, PlanState>& states = plan(rank).states;
    for (const StateId id : states.ids()) {
      if (states[id].name == name) return id;
    }
  }
  return Missing(
      {"W0507", absl::StrCat("rank ", rank), absl::StrCat("a state '", name, "'"), "none", ""});
}

bool Session::IsShared(RankId rank, const std::string& name) const {
  const absl::StatusOr<StateId> state = FindState(rank, name);
  return state.ok() && !shared_.empty() && shared_[place_of_rank_[rank]].Has(*state);
}

absl::StatusOr<device::HostView> Session::ReadState(RankId rank, const std::string& name) const {
  WEIR_ASSIGN_OR_RETURN(const StateId state, FindState(rank, name));
  return executor(rank).ReadState(state);
}

absl::Status Session::FillState(RankId rank, const std::string& name,
                                absl::FunctionRef<absl::Status(char* host)> fill) {
  WEIR_ASSIGN_OR_RETURN(const StateId state, FindState(rank, name));
  return executors_[place_of_rank_[rank]]->FillState(state, fill);
}

absl::Status Session::WriteState(RankId rank, const std::string& name,
                                 absl::Span<const char> bytes) {
  WEIR_ASSIGN_OR_RETURN(const StateId state, FindState(rank, name));
  const int64_t size = plan(rank).states[state].slice.bytes();
  if (size != static_cast<int64_t>(bytes.size())) {
    return Rejected({"W0507", absl::StrCat("rank ", rank, ", state '", name, "'"),
                     absl::StrCat(size, " bytes"), absl::StrCat(bytes.size()), ""});
  }
  return FillState(rank, name, [bytes](char* host) {
    std::copy(bytes.begin(), bytes.end(), host);
    return absl::OkStatus();
  });
}

std::vector<EdgeReport> Session::Edges() const {
  std::vector<EdgeReport> reports;
  for (const auto& executor : executors_) {
    for (const PlanRegister& r : executor->plan().registers) {
      if (r.side != RegisterSide::kOutbound) continue;
      const transport::EdgeTraffic traffic = executor->Traffic(r.id);
      reports.push_back(
          {r.edge, r.name, executor->plan().rank, r.peer, traffic.payload_bytes, traffic.tokens});
    }
  }
  return reports;
}

std::vector<RankWorkReport> Session::Work() const {
  const TickScale scale = ClosedScale();
  const auto ns = [&scale](int64_t ticks) { return scale.ToNs(ticks) - scale.ToNs(0); };
  std::vector<RankWorkReport> reports;
  for (const auto& executor : executors_) {
    const RankWork work = executor->work();
    reports.push_back({executor->plan().rank, executor->plan().stage, ns(work.busy_ticks),
                       work.planned_ns, ns(work.measured_ticks), work.cpu_ns});
    for (size_t part = 0; part < kNumTimeParts; ++part)
      reports.back().part_ns[part] = ns(work.part_ticks[part]);
  }
  return reports;
}

TickScale Session::ClosedScale() const {
  TickScale scale = tick_scale_;
  scale.Close();
  return scale;
}

absl::Status Session::WriteTrace(const std::string& path) const {
  const trace::TracedJob job = MakeTracedJob(ranks_, first_step_, ClosedScale());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file)
    return CodedError(absl::StatusCode::kUnavailable, "W0532",
                      absl::StrCat("cannot write the trace '", path, "'"));
  return weir::trace::WriteTrace(job, weir::trace::TraceBeginNs(job), file);
}

absl::Status Session::WriteTrace(std::ostream& out, const TraceClock& clock) const {
  TickScale scale = ClosedScale();
  scale.Subtract(clock.offset_ns);
  trace::TracedJob job = MakeTracedJob(ranks_, first_step_, scale);
  job.describing_rank = clock.describing_rank;
  TellHost(clock.host, &job);
  return weir::trace::WriteTrace(job, clock.begin_ns.value_or(weir::trace::TraceBeginNs(job)), out);
}

absl::Status Session::KeepActs(const std::string& host, trace::KeptActs* kept) const {
  std::vector<trace::ActRing*> rings;
  for (RankExecutor* const rank : ranks_) rings.push_back(rank->mutable_trace());
  trace::TracedJob job = MakeTracedJob(ranks_, first_step_, ClosedScale());
  TellHost(host, &job);
  return kept->Keep(job, rings);
}

bool Session::HasDroppedActs() const {
  const trace::TracedJob job = MakeTracedJob(ranks_, first_step_, ClosedScale());
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const trace::TracedRank& rank) { return rank.acts->num_dropped() > 0; });
}

int64_t Session::TraceBeginNs() const {
  return weir::trace::TraceBeginNs(MakeTracedJob(ranks_, first_step_, ClosedScale()));
}

}  // namespace weir::actors
