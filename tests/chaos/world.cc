#include "tests/chaos/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/plan/verify_plans.h"
#include "runtime/base/status.h"

namespace weir::chaos {
namespace {

// A run is this many times as long as one without faults only if it will never end.
constexpr int64_t kEndless = 20;

// The first code in a message, "" if there is none.
std::string CodeOf(const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.find('W');
  if (at == std::string::npos || message.size() < at + 5) return "";
  const std::string code = message.substr(at, 5);
  return std::all_of(code.begin() + 1, code.end(), [](char c) { return c >= '0' && c <= '9'; })
             ? code
             : "";
}

}  // namespace

void World::Sink::Report(const std::string& metric, int64_t step, int64_t micro_batch,
                         float value) {
  ++num_reports;
  const auto found = reference->metrics.find({metric, step, micro_batch});
  if (found != reference->metrics.end() &&
      std::any_of(found->second.begin(), found->second.end(), [value](float right) {
        return std::memcmp(&right, &value, sizeof(value)) == 0;
      })) {
    return;
  }
  if (wrong.empty())
    wrong = absl::StrCat("I9 metric '", metric, "', step ", step, ", micro-batch ", micro_batch,
                         ": ", value);
}

absl::StatusOr<std::unique_ptr<World>> World::Create(const StandardPlan& plan,
                                                     transport::SimNetwork::Mapping mapping) {
  std::unique_ptr<World> world(new World(plan));
  WEIR_RETURN_IF_ERROR(world->Load(mapping));
  return world;
}

absl::Status World::Load(transport::SimNetwork::Mapping mapping) {
  for (const proto::RankPlan& proto : plan_.ranks) {
    WEIR_ASSIGN_OR_RETURN(actors::Plan plan, actors::PlanFromProto(proto));
    plans_.push_back(std::move(plan));
  }
  WEIR_RETURN_IF_ERROR(actors::VerifyPlans(plans_));
  WEIR_ASSIGN_OR_RETURN(reference_, RunSequentially(plans_, plan_.steps, feed_));
  sink_.reference = &reference_;
  for (const auto& [key, values] : reference_.metrics)
    num_metrics_ += static_cast<int64_t>(values.size());

  network_ = std::make_unique<transport::SimNetwork>(static_cast<int>(plans_.size()), mapping);
  actors::RankExecutorOptions options;
  options.feed = &feed_;
  options.sink = &sink_;
  options.state_init = [](const actors::PlanState& state, void* memory) {
    std::memset(memory, 0, state.slice.bytes());
    return absl::OkStatus();
  };
  options.clock = &clock_;
  options.trace_capacity = 16;
  std::vector<actors::RankExecutor*> ranks;
  std::vector<device::WalledDevice*> devices;
  for (const actors::Plan& plan : plans_) {
    devices_.push_back(std::make_unique<device::WalledDevice>(actors::SimDeviceOptions(plan)));
    devices.push_back(devices_.back().get());
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<actors::RankExecutor> executor,
                          actors::RankExecutor::Create(&plan, devices.back(),
                                                       network_->endpoint(plan.rank), options));
    ranks.push_back(executor.get());
    executors_.push_back(std::move(executor));
  }
  for (actors::RankExecutor* rank : ranks) WEIR_RETURN_IF_ERROR(rank->Connect());
  for (actors::RankExecutor* rank : ranks) rank->MarkBeginning();
  engine_ = std::make_unique<actors::SimEngine>(ranks, devices, network_.get(), &clock_,
                                                actors::SimEngineOptions());
  shape_.num_ranks = static_cast<int>(plans_.size());
  shape_.num_lanes = network_->num_lanes();
  shape_.num_events = 1000;  // if the run below fails, which those that follow will tell
  (void)Play({});
  shape_.num_events = engine_->num_events();
  shape_.num_deliveries = engine_->num_deliveries();
  return absl::OkStatus();
}

absl::Status World::RunAll(const Run& run) {
  for (int64_t done = 0; done < plan_.steps; done += run.steps_per_call) {
    WEIR_RETURN_IF_ERROR(engine_->RunSteps(std::min(run.steps_per_call, plan_.steps - done)));
    if (engine_->seen()) return absl::OkStatus();
    for (const auto& executor : executors_) WEIR_RETURN_IF_ERROR(executor->CheckAtRest());
  }
  return absl::OkStatus();
}

RunResult World::Play(const Run& run) {
  for (auto& executor : executors_) executor->Rewind();
  for (auto& device : devices_) device->Rewind();
  network_->Rewind();
  sink_.num_reports = 0;
  sink_.wrong.clear();
  actors::SimEngineOptions options = run.engine;
  options.faults = run.faults;
  options.num_events_expected = shape_.num_events;
  options.num_events_max = kEndless * shape_.num_events;
  engine_->Rewind(options);

  const absl::Status status = RunAll(run);
  RunResult result;
  result.failure = engine_->seen() ? "" : Judge(status);
  result.history_hash = engine_->history_hash();
  result.num_events = engine_->num_events();
  result.ended_with_error = !status.ok();
  return result;
}

std::string World::Judge(const absl::Status& status) const {
  if (!sink_.wrong.empty()) return sink_.wrong;
  if (!status.ok()) {
    const actors::SimFault* harm = engine_->harm();
    const std::string code = CodeOf(status);
    if (harm == nullptr || !actors::MayEndWith(*harm, code) ||
        (code.empty() && status.code() != absl::StatusCode::kCancelled)) {
      return absl::StrCat(status.message(),
                          harm == nullptr ? "" : absl::StrCat(", after: ", Describe(*harm)));
    }
    return CompareStates(status);
  }
  if (sink_.num_reports != num_metrics_) {
    return absl::StrCat("I9 ", sink_.num_reports, " reports of metrics instead of ", num_metrics_);
  }
  return CompareStates(status);
}

// A run that ends well leaves the last value of each state, one that does not any of them.
std::string World::CompareStates(const absl::Status& status) const {
  for (const auto& [key, values] : reference_.states) {
    const device::HostView memory = executors_[key.first.value()]->ReadState(key.second);
    const auto is_memory = [&memory](const std::string& value) {
      return std::memcmp(value.data(), memory.data(), value.size()) == 0;
    };
    const bool right = status.ok() ? is_memory(values.back())
                                   : std::any_of(values.begin(), values.end(), is_memory);
    if (right) continue;
    return absl::StrCat("I9 rank ", key.first, ", state '",
                        plans_[key.first.value()].states[key.second].name,
                        status.ok() ? "': not the bits of the sequential run"
                                    : "': bits that it never holds in the sequential run");
  }
  return "";
}

RunResult World::Explain(const Run& run, std::ostream& out) {
  Run told = run;
  told.engine.on_event = [this, &out](int64_t number, const actors::SimEvent& event) {
    Tell(number, event, out);
  };
  for (const actors::SimFault& fault : run.faults) out << "fault: " << Describe(fault) << "\n";
  return Play(told);
}

void World::Tell(int64_t number, const actors::SimEvent& event, std::ostream& out) const {
  out << "  " << number << "  ";
  const auto actor = [&] {
    return absl::StrCat("rank ", event.index, " '", plans_[event.index].actors[event.actor].name,
                        "'");
  };
  switch (event.kind) {
    case actors::SimEvent::Kind::kDeliver: {
      const transport::SimNetwork::Lane lane = network_->lane(event.index);
      out << (lane.carries == transport::SimNetwork::Lane::Carries::kTokens ? "token" : "credit")
          << " of edge " << lane.edge << " arrives, rank " << lane.from << " to " << lane.to
          << " (delivery " << engine_->num_deliveries() << ", lane " << event.index << ", "
          << lane.num_messages << " under way)";
      break;
    }
    case actors::SimEvent::Kind::kStart:
      out << actor() << " starts act " << executors_[event.index]->machine(event.actor).acts_done();
      break;
    case actors::SimEvent::Kind::kComplete:
      out << actor() << " ends act " << executors_[event.index]->machine(event.actor).acts_done();
      break;
    case actors::SimEvent::Kind::kWork:
      out << "rank " << event.index << ", queue " << event.choice << " goes on";
      break;
    case actors::SimEvent::Kind::kSettle:
      out << "rank " << network_->open_rank(event.index) << ": what was open of a message is there";
      break;
    case actors::SimEvent::Kind::kNotice:
      out << "rank " << event.index << " learns that a peer is gone";
      break;
    case actors::SimEvent::Kind::kMeet:
      out << "rank " << event.index << " learns that all ranks have come to a collective";
      break;
  }
  out << "\n";
}

}  // namespace weir::chaos
