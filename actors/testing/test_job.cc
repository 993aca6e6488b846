#include "actors/testing/test_job.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "actors/plan/derive_certificate.h"
#include "runtime/base/first_error.h"
#include "runtime/base/status.h"

namespace weir::actors {

namespace {

// Adds the states and bytes of the session's ranks to `outcome`.
absl::Status Gather(const Session& session, Outcome* outcome) {
  for (const RankId rank : session.local_ranks()) {
    for (const PlanState& state : session.plan(rank).states) {
      WEIR_ASSIGN_OR_RETURN(const device::HostView view, session.ReadState(rank, state.name));
      outcome->states[std::make_pair(rank, state.name)] = std::string(view.data(), view.size());
    }
  }
  for (const EdgeReport& edge : session.Edges())
    outcome->bytes_by_edge[edge.edge] = edge.payload_bytes;
  return absl::OkStatus();
}

// Calls body(i) for i < n, on a thread each; returns the first error in time.
absl::Status OnThreads(size_t n, const std::function<absl::Status(size_t)>& body) {
  FirstError first_error;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] { first_error.Update(body(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  return first_error.status();
}

}  // namespace

absl::StatusOr<Outcome> RunTestJob(const std::vector<proto::RankPlan>& plans,
                                   SessionOptions options, int64_t steps, int64_t steps_per_call) {
  TestFeed feed;
  TestSink sink;
  if (options.feed == nullptr) options.feed = &feed;
  options.sink = &sink;
  std::vector<proto::RankPlan> certified = plans;
  WEIR_RETURN_IF_ERROR(DeriveCertificate(&certified));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(certified, options));
  for (int64_t done = 0; done < steps; done += steps_per_call) {
    WEIR_RETURN_IF_ERROR(session->RunSteps(std::min(steps_per_call, steps - done)));
  }
  Outcome outcome;
  WEIR_RETURN_IF_ERROR(Gather(*session, &outcome));
  outcome.metrics = sink.values();
  return outcome;
}

absl::StatusOr<std::unique_ptr<SplitJob>> SplitJob::Create(
    const std::vector<proto::RankPlan>& plans, const Options& options) {
  std::unique_ptr<SplitJob> job(new SplitJob(plans.size(), options));
  WEIR_RETURN_IF_ERROR(OnThreads(options.parts.size(), [&](size_t i) -> absl::Status {
    SessionOptions session_options = options.session;
    session_options.network = &job->network_;
    if (!options.epochs.empty()) session_options.epoch = options.epochs[i];
    std::vector<proto::RankPlan> part;
    for (int rank : options.parts[i]) part.push_back(plans[rank]);
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(part, session_options);
    if (session.ok()) {
      job->sessions_[i] = *std::move(session);
    } else {
      job->network_.Abandon(session.status());
    }
    return session.status();
  }));
  return job;
}

absl::Status SplitJob::RunSteps(int64_t steps) {
  return OnThreads(sessions_.size(), [&](size_t i) {
    const absl::Status status = sessions_[i]->RunSteps(steps);
    if (!status.ok()) {
      for (size_t other = 0; other < sessions_.size(); ++other) {
        if (other != i) sessions_[other]->Stop(status);
      }
    }
    return status;
  });
}

absl::StatusOr<Outcome> RunSplitJob(const std::vector<proto::RankPlan>& plans,
                                    SplitJob::Options options, int64_t steps,
                                    int64_t steps_per_call) {
  TestFeed feed;
  TestSink sink;
  if (options.session.feed == nullptr) options.session.feed = &feed;
  options.session.sink = &sink;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<SplitJob> job, SplitJob::Create(plans, options));
  for (int64_t done = 0; done < steps; done += steps_per_call) {
    WEIR_RETURN_IF_ERROR(job->RunSteps(std::min(steps_per_call, steps - done)));
  }
  Outcome outcome;
  for (int i = 0; i < job->num_sessions(); ++i)
    WEIR_RETURN_IF_ERROR(Gather(job->session(i), &outcome));
  outcome.metrics = sink.values();
  return outcome;
}

}  // namespace weir::actors
