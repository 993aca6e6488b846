#include "actors/testing/test_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir {

std::vector<RankPlan> ParseTestJob(const std::string& text) {
  std::vector<RankPlan> plans;
  for (absl::string_view part : absl::StrSplit(text, "\n---\n")) {
    if (!google::protobuf::TextFormat::ParseFromString(std::string(part), &plans.emplace_back())) {
      std::fprintf(stderr, "bad plan text:\n%s\n", std::string(part).c_str());
      std::abort();
    }
  }
  return plans;
}

std::vector<RankPlan> LoadTestJob(const std::string& name) {
  std::ifstream file("actors/testing/plans/" + name + ".textproto");
  if (!file) {
    std::fprintf(stderr, "no plan '%s'\n", name.c_str());
    std::abort();
  }
  std::stringstream text;
  text << file.rdbuf();
  return ParseTestJob(text.str());
}

absl::Status TestFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch, const TensorSlice& slice,
                            void* out) {
  if (step == fail_at_) return absl::DataLossError("the test feed was told to fail");
  const uint64_t key = MixKey(MixKey(KeyOf(feed.data(), feed.size()), step), micro_batch);
  uint32_t* words = static_cast<uint32_t*>(out);
  const int64_t first = slice.offset.empty() ? 0 : slice.offset[0];
  for (int64_t i = 0; i < slice.num_elements(); ++i) words[i] = static_cast<uint32_t>(MixKey(key, first + i));
  return absl::OkStatus();
}

void TestSink::Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<float>& values = values_[{metric, step, micro_batch}];
  values.insert(std::upper_bound(values.begin(), values.end(), value), value);
}

TestSink::Values TestSink::values() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return values_;
}

namespace {

// States and bytes of the session's ranks.
absl::Status Gather(const Session& session, Outcome* outcome) {
  for (int rank : session.local_ranks()) {
    for (const PlanState& state : session.plan(rank).states) {
      WEIR_ASSIGN_OR_RETURN(outcome->states[std::make_pair(rank, state.name)], session.ReadState(rank, state.name));
    }
  }
  for (const EdgeReport& edge : session.Edges()) outcome->bytes_by_edge[edge.edge] = edge.payload_bytes;
  return absl::OkStatus();
}

// Calls body(i) for i < n, on a thread each; the first error in time.
absl::Status OnThreads(size_t n, const std::function<absl::Status(size_t)>& body) {
  std::mutex mutex;
  absl::Status first;  // guarded by mutex
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = body(i);
      std::lock_guard<std::mutex> lock(mutex);
      if (first.ok()) first = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace

absl::StatusOr<Outcome> RunTestJob(const std::vector<RankPlan>& plans, SessionOptions options, int64_t steps,
                                   int64_t steps_per_call) {
  TestFeed feed;
  TestSink sink;
  if (options.feed == nullptr) options.feed = &feed;
  options.sink = &sink;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(plans, options));
  for (int64_t done = 0; done < steps; done += steps_per_call) {
    WEIR_RETURN_IF_ERROR(session->RunSteps(std::min(steps_per_call, steps - done)));
  }
  Outcome outcome;
  WEIR_RETURN_IF_ERROR(Gather(*session, &outcome));
  outcome.metrics = sink.values();
  return outcome;
}

absl::StatusOr<std::unique_ptr<SplitJob>> SplitJob::Create(const std::vector<RankPlan>& plans, const Options& options) {
  std::unique_ptr<SplitJob> job(new SplitJob(plans.size(), options));
  WEIR_RETURN_IF_ERROR(OnThreads(options.parts.size(), [&](size_t i) -> absl::Status {
    SessionOptions session_options = options.session;
    session_options.network = &job->network_;
    if (!options.epochs.empty()) session_options.epoch = options.epochs[i];
    std::vector<RankPlan> part;
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

absl::StatusOr<Outcome> RunSplitJob(const std::vector<RankPlan>& plans, SplitJob::Options options, int64_t steps,
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
  for (int i = 0; i < job->num_sessions(); ++i) WEIR_RETURN_IF_ERROR(Gather(job->session(i), &outcome));
  outcome.metrics = sink.values();
  return outcome;
}

}  // namespace weir
