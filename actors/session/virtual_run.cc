#include "actors/session/virtual_run.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/verify_plans.h"
#include "actors/session/initialize_state.h"
#include "actors/session/traced_job.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer.h"
#include "runtime/trace/trace_file.h"

namespace weir::actors {
namespace {

// Returns the kernel that packs a message, if the producer of `r` ends with such a kernel.
const PlanCall* PackerOf(const Plan& plan, const PlanRegister& r) {
  if (r.side != RegisterSide::kOutbound || !r.producer.actor.has_value()) return nullptr;
  const PlanActor& actor = plan.actors[r.producer.actor];
  if (!actor.program.has_value()) return nullptr;
  for (const PlanCall& call : plan.programs[actor.program].calls) {
    if (TransferTrafficOf(call.op) == TransferTraffic::kMessage && !call.outputs.empty() &&
        call.outputs[0].place == PlanOperand::Place::kOutput &&
        call.outputs[0].index == r.producer.port) {
      return &call;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<int64_t> PayloadsOf(const Plan& plan, const PlanRegister& r) {
  const PlanCall* call = PackerOf(plan, r);
  if (call == nullptr) return {};
  const std::vector<int64_t> elements =
      MessageElements(call->transfer, plan.actors[r.producer.actor].chunks);
  std::vector<int64_t> bytes;
  for (int64_t n : elements)
    bytes.push_back(std::min(n * SizeOf(call->outputs[0].slice.dtype), r.bytes));
  return bytes;
}

absl::StatusOr<std::unique_ptr<VirtualRun>> VirtualRun::Create(std::vector<Plan> plans,
                                                               VirtualRunOptions options) {
  std::unique_ptr<VirtualRun> run(new VirtualRun());
  run->plans_ = std::move(plans);
  WEIR_RETURN_IF_ERROR(VerifyLocalPlans(run->plans_));
  for (const Plan& plan : run->plans_) WEIR_RETURN_IF_ERROR(CheckCertificate(plan));
  if (!options.ways) options.ways = [](RankId, RankId) { return TimeNetwork::Way(); };
  run->network_ = std::make_unique<TimeNetwork>(&run->clock_, options.ways);
  run->images_ = options.images;
  run->loose_.insert(options.loose.begin(), options.loose.end());
  run->stands_for_ = std::move(options.stands_for);
  run->network_->SetImages(std::move(options.images));
  run->network_->SetLoose(std::move(options.loose));
  const bool measured = options.work == TimeDevice::Work::kMeasured;
  RankExecutorOptions rank_options;
  rank_options.compute =
      measured ? RankExecutorOptions::Compute::kRun : RankExecutorOptions::Compute::kSkip;
  rank_options.feed = options.measured.feed;
  rank_options.sink = options.measured.sink;
  if (measured) rank_options.state_init = SeededInitializer(run->plans_[0].seed);
  rank_options.clock = &run->clock_;
  std::vector<RankId> ranks;
  int64_t collectives = 0;  // the most of a rank
  for (const Plan& plan : run->plans_) {
    ranks.push_back(plan.rank);
    collectives = std::max<int64_t>(collectives, NumCollectivesInFlight(plan));
  }
  run->collectives_ = std::make_unique<collective::VirtualCollectives>(ranks);
  run->means_.polled = run->collectives_.get();
  rank_options.collectives = &run->means_;
  rank_options.trace_capacity = std::max<int64_t>(1 + collectives, options.trace_capacity);
  rank_options.cost_ns = options.cost_ns;
  std::vector<TimeDevice*> devices;
  for (const Plan& plan : run->plans_) {
    for (const PlanRegister& r : plan.registers) {
      if (std::vector<int64_t> bytes = PayloadsOf(plan, r); !bytes.empty())
        run->network_->SetPayloads(r.edge, bytes);
    }
    if (measured && options.measured.on_kernels) {
      rank_options.on_kernels = [&plan, told = options.measured.on_kernels](
                                    const PlanActor& actor, absl::Span<const int64_t> kernel_ns) {
        told(plan, actor, kernel_ns);
      };
    }
    const int threads = measured ? std::max(1, options.measured.threads_per_device) : 1;
    devices.push_back(run->devices_
                          .emplace_back(std::make_unique<TimeDevice>(options.work, threads,
                                                                     plan.num_queues, plan.depth))
                          .get());
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> executor,
                          RankExecutor::Create(&plan, devices.back(),
                                               run->network_->endpoint(plan.rank), rank_options));
    run->ranks_.push_back(executor.get());
    run->executors_.push_back(std::move(executor));
  }
  for (RankExecutor* rank : run->ranks_) WEIR_RETURN_IF_ERROR(rank->Connect());
  run->engine_ = std::make_unique<TimeEngine>(run->ranks_, devices, run->network_.get(),
                                              &run->clock_, std::move(options.engine));
  return run;
}

absl::Status VirtualRun::WriteTrace(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file)
    return CodedError(absl::StatusCode::kUnavailable, "W0532",
                      absl::StrCat("cannot write the trace '", path, "'"));
  return WriteTrace(file);
}

absl::Status VirtualRun::WriteTrace(std::ostream& out) const {
  trace::TracedJob job = MakeTracedJob(ranks_, /*first_step=*/0, TickScale());
  TellClasses(&job);
  return weir::trace::WriteTrace(job, weir::trace::TraceBeginNs(job), out);
}

void VirtualRun::TellClasses(trace::TracedJob* job) const {
  for (trace::TracedRank& rank : job->ranks) {
    if (const auto of = stands_for_.find(rank.rank); of != stands_for_.end())
      rank.stands_for = of->second;
    for (trace::TracedRegister& r : rank.registers) {
      if (!r.crosses_ranks) continue;
      r.on_time = loose_.contains(r.edge);
      if (const auto image = images_.find(r.edge); image != images_.end()) r.edge = image->second;
    }
  }
}

}  // namespace weir::actors
