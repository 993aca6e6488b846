#include "runtime/control/coordinator.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/control/control_testing.h"
#include "runtime/control/worker_link.h"

namespace weir::control {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<std::string> Echo(int worker, const std::string& command) {
  return absl::StrCat(worker, " did ", command);
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(CoordinatorTest, WorkersComeAnswerAndLeave) {
  TestJob job(3);
  TestWorkers workers(&job, 3, Echo);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto answers = job->CallAll("this", kPatienceMs);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_THAT(*answers, ElementsAre("0 did this", "1 did this", "2 did this"));
  const auto own = job->CallEach({"a", "b", "c"}, 0);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(*own, ElementsAre("0 did a", "1 did b", "2 did c"));
  job->Shutdown(kPatienceMs);
  workers.Join();
  for (int w = 0; w < 3; ++w) EXPECT_TRUE(workers.ended(w).ok()) << workers.ended(w);
  for (int w = 0; w < 3; ++w) EXPECT_TRUE(workers.aborted(w).empty());
  EXPECT_TRUE(job.lost().empty());
}

TEST(CoordinatorTest, WorkersThatDoNotComeAreNamedAtTheDeadline) {
  TestJob job(3);
  auto link = WorkerLink::Connect(job.WorkerOptions(1));
  ASSERT_TRUE(link.ok()) << link.status();
  const absl::Status status = job->WaitForWorkers(50);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("W0601"), HasSubstr("worker 0, worker 2"),
                                       Not(HasSubstr("worker 1"))));
  const auto answers = job->CallAll("too early", kPatienceMs);
  EXPECT_EQ(answers.status().code(), absl::StatusCode::kUnavailable) << answers.status();
  EXPECT_THAT(MessageOf(answers.status()), AllOf(HasSubstr("worker 0"), HasSubstr("not come")));
}

TEST(CoordinatorTest, OfManyWorkersThatDoNotComeTheFirstAreNamed) {
  TestJob job(18);
  EXPECT_THAT(
      MessageOf(job->WaitForWorkers(1)),
      AllOf(HasSubstr("worker 0, "), HasSubstr("worker 15, others"), Not(HasSubstr("worker 16"))));
}

TEST(CoordinatorTest, AnErrorIsAnAnswerWithCodeAndMessageAndServingGoesOn) {
  TestJob job(2);
  TestWorkers workers(&job, 2,
                      [](int worker, const std::string& command) -> absl::StatusOr<std::string> {
                        if (worker == 1 && command == "fail")
                          return Damaged({"W0203", "page 3", "a whole page", "a torn one", "glue"});
                        return std::string("fine");
                      });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto failed = job->CallAll("fail", kPatienceMs);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(MessageOf(failed.status()),
            "W0203 at worker 1, page 3: expected a whole page; found a torn one. Try: glue.");
  EXPECT_TRUE(job->CallAll("again", kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
}

TEST(CoordinatorTest, ACallThatNobodyAnswersEndsAtItsLimitAndNamesWhoOwes) {
  TestJob job(2);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  TestWorkers workers(&job, 2,
                      [&](int worker, const std::string& command) -> absl::StatusOr<std::string> {
                        if (worker == 1 && command == "slow") released.wait();
                        return command;
                      });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto slow = job->CallAll("slow", 30);
  EXPECT_EQ(slow.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(slow.status()),
              AllOf(HasSubstr("W0611"), HasSubstr("worker 1"), Not(HasSubstr("worker 0"))));
  release.set_value();
  // The late answer is dropped; the next call gets its own answer.
  const auto next = job->CallAll("next", kPatienceMs);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(*next, ElementsAre("next", "next"));
  job->Shutdown(kPatienceMs);
}

TEST(CoordinatorTest, SeveralCallsAtOnceEachGetTheirOwnAnswers) {
  TestJob job(2);
  TestWorkers workers(&job, 2, Echo);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&job, c] {
      for (int i = 0; i < 50; ++i) {
        const auto answers = job->CallAll(absl::StrCat(c, ".", i), kPatienceMs);
        ASSERT_TRUE(answers.ok()) << answers.status();
        EXPECT_THAT(*answers, ElementsAre(absl::StrCat("0 did ", c, ".", i),
                                          absl::StrCat("1 did ", c, ".", i)));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  job->Shutdown(kPatienceMs);
}

TEST(CoordinatorTest, LargeCommandsAndAnswersTravelAndTooLargeOnesAreErrors) {
  TestJob job(1, [](CoordinatorOptions* options) { options->message_bytes_max = 8 << 20; });
  TestWorkers workers(
      &job, 1,
      [](int, const std::string& command) {
        return command.size() == 1 ? std::string((8 << 20) + 1, 'x') : command;
      },
      [](int, WorkerLinkOptions* options) { options->message_bytes_max = 8 << 20; });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  std::string large(8 << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 24);
  const auto answers = job->CallAll(large, kPatienceMs);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_TRUE(answers->front() == large);
  const auto empty = job->CallAll("", kPatienceMs);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->front(), "");
  EXPECT_EQ(job->CallAll(large + "x", kPatienceMs).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto huge_answer = job->CallAll("x", kPatienceMs);
  EXPECT_EQ(huge_answer.status().code(), absl::StatusCode::kResourceExhausted)
      << huge_answer.status();
  EXPECT_TRUE(job->CallAll("still well", kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
}

TEST(CoordinatorTest, EventsArriveInOrderAndBeforeTheEnd) {
  constexpr int kEvents = 5000;
  TestJob job(2);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&job, w] {
      auto link = WorkerLink::Connect(job.WorkerOptions(w));
      ASSERT_TRUE(link.ok()) << link.status();
      const absl::Status end = (*link)->Serve([&](const std::string&) {
        for (int i = 0; i < kEvents; ++i) (*link)->Send(absl::StrCat(i));
        return std::string();
      });
      EXPECT_TRUE(end.ok()) << end;
    });
  }
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  ASSERT_TRUE(job->CallAll("send", kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
  for (std::thread& thread : threads) thread.join();
  const auto events = job.WaitForEvents(2 * kEvents);
  ASSERT_EQ(events.size(), 2u * kEvents);
  int next[2] = {0, 0};
  for (const auto& [worker, event] : events) EXPECT_EQ(event, absl::StrCat(next[worker]++));
}

TEST(CoordinatorTest, MoreEventsThanCanWaitEndTheLinkWithAReason) {
  TestJob job(1);
  std::promise<absl::Status> aborted;
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.on_abort = [&](const absl::Status& why) { aborted.set_value(why); };
  auto link = WorkerLink::Connect(options);
  ASSERT_TRUE(link.ok()) << link.status();
  const std::string event(1 << 20, 'x');
  for (int i = 0; i < 1000; ++i) (*link)->Send(event);
  const absl::Status why = aborted.get_future().get();
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
  EXPECT_THAT(MessageOf(why), HasSubstr("W0610"));
  EXPECT_EQ((*link)->Serve([](const std::string&) { return std::string(); }), why);
  EXPECT_EQ(job.WaitForLost(1).size(), 1u);
}

TEST(CoordinatorTest, AFetchFindsWhatWasPublishedBeforeOrAfter) {
  TestJob job(2);
  std::vector<std::unique_ptr<WorkerLink>> links;
  for (int w = 0; w < 2; ++w) links.push_back(*WorkerLink::Connect(job.WorkerOptions(w)));
  const std::string value("\0a value\xff", 9);
  ASSERT_TRUE(links[0]->Publish("before", value).ok());
  const auto before = links[1]->Fetch("before");
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(*before, value);
  auto after = std::async(std::launch::async, [&] { return links[1]->Fetch("after"); });
  auto own = std::async(std::launch::async, [&] { return links[0]->Fetch("after"); });
  ASSERT_TRUE(links[0]->Publish("after", "late").ok());
  EXPECT_EQ(*after.get(), "late");
  EXPECT_EQ(*own.get(), "late");
  EXPECT_EQ(links[1]->Publish("before", "again").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*links[0]->Fetch("before"), value);
  EXPECT_EQ(links[1]->Publish(std::string(2000, 'k'), "").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CoordinatorTest, AWorkerPublishesUnderItsOwnKeysAlone) {
  TestJob job(2, [](CoordinatorOptions* options) {
    options->may_publish = [](WorkerId worker, const std::string& key) {
      return key == absl::StrCat("card ", worker);
    };
  });
  auto honest = *WorkerLink::Connect(job.WorkerOptions(0)),
       forger = *WorkerLink::Connect(job.WorkerOptions(1));
  const absl::Status refused = forger->Publish("card 0", "forged");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(MessageOf(refused),
              AllOf(HasSubstr("W0810"), HasSubstr("worker 1"), HasSubstr("card 0")));
  EXPECT_TRUE(honest->Publish("card 0", "true").ok());
  EXPECT_EQ(*forger->Fetch("card 0"), "true");
  EXPECT_TRUE(forger->Publish("card 1", "").ok());
}

TEST(CoordinatorTest, AFetchOfWhatNobodyPublishesEndsAtItsLimitAndNamesTheKey) {
  TestJob job(1);
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.fetch_limit_ms = 40;
  auto link = *WorkerLink::Connect(options);
  const auto value = link->Fetch("rank 7");
  EXPECT_EQ(value.status().code(), absl::StatusCode::kDeadlineExceeded) << value.status();
  EXPECT_THAT(MessageOf(value.status()), AllOf(HasSubstr("W0611"), HasSubstr("rank 7")));
}

TEST(CoordinatorTest, AnAbortReachesAllWorkersAndEndsAllWaits) {
  TestJob job(3);
  std::atomic<int> begun{0};
  std::vector<std::promise<absl::Status>> fetched(3);
  TestWorkers workers(&job, 3, [&](int, const std::string&) {
    ++begun;
    return std::string();
  });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  job->Abort(absl::DataLossError("W0203: worker 2 tore a page"));
  job->Abort(absl::InternalError("a later reason"));
  workers.Join();
  for (int w = 0; w < 3; ++w) {
    EXPECT_EQ(workers.ended(w), absl::DataLossError("W0203: worker 2 tore a page"));
    EXPECT_THAT(workers.aborted(w),
                ElementsAre(absl::DataLossError("W0203: worker 2 tore a page")));
  }
  EXPECT_EQ(job->CallAll("more", kPatienceMs).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(job->WaitForWorkers(kPatienceMs).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(job.lost().empty());
}

TEST(CoordinatorTest, AnAbortEndsCallsAndFetchesUnderWay) {
  TestJob job(1);
  std::promise<void> begun;
  auto link = *WorkerLink::Connect(job.WorkerOptions(0));
  auto served = std::async(std::launch::async, [&] {
    return link->Serve([&](const std::string&) -> absl::StatusOr<std::string> {
      begun.set_value();
      return link->Fetch("never");
    });
  });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  auto called = std::async(std::launch::async, [&] { return job->CallAll("fetch", 0); });
  begun.get_future().wait();
  job->Abort(absl::CancelledError("interrupted"));
  EXPECT_EQ(called.get().status(), absl::AbortedError("interrupted"));
  EXPECT_EQ(served.get(), absl::CancelledError("interrupted"));
  EXPECT_EQ(link->Fetch("never").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(link->Publish("never", "").code(), absl::StatusCode::kUnavailable);
}

TEST(CoordinatorTest, LastWordsOfAnAbortedJobArriveWhenTheCommandHasEnded) {
  TestJob job(4);
  std::atomic<int> running{0};
  std::promise<void> begun;
  const auto work = [&](int worker, const std::string&) -> absl::StatusOr<std::string> {
    if (++running == 4) begun.set_value();
    while (job->Health()[WorkerId(worker)].connected) std::this_thread::yield();  // until the abort
    --running;
    return std::string(1 << 20, 'x');  // an answer that nobody awaits any more
  };
  TestWorkers workers(&job, 4, work, [&](int worker, WorkerLinkOptions* options) {
    if (worker == 3) return;  // has none to say
    options->last_words = [&running, worker](const absl::Status& reason) {
      if (worker == 2) return std::string(kLastWordsBytesMax + 1, 'x');
      return absl::StrCat(worker, " heard: ", reason.message(),
                          worker == 1 ? std::string(kLastWordsBytesMax - 20, '.') : "");
    };
  });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  auto called = std::async(std::launch::async, [&] { return job->CallAll("work", 0); });
  begun.get_future().wait();
  EXPECT_EQ(job->Health()[WorkerId(0)].last_words, "");
  job->Abort(absl::AbortedError("stuck"));
  workers.Join();
  EXPECT_EQ(called.get().status(), absl::AbortedError("stuck"));
  EXPECT_EQ(running.load(), 0);
  EXPECT_EQ(job->Health()[WorkerId(0)].last_words, "0 heard: stuck");
  EXPECT_EQ(job->Health()[WorkerId(1)].last_words.size(), kLastWordsBytesMax - 20 + 14);
  EXPECT_EQ(job->Health()[WorkerId(2)].last_words, "") << "longer than words may be";
  EXPECT_EQ(job->Health()[WorkerId(3)].last_words, "");
}

TEST(CoordinatorTest, AWorkerThatIsNotAbortedSaysNoLastWords) {
  TestJob job(1);
  std::atomic<int> asked{0};
  TestWorkers workers(&job, 1, Echo, [&](int, WorkerLinkOptions* options) {
    options->last_words = [&](const absl::Status&) {
      ++asked;
      return std::string("words");
    };
  });
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
  workers.Join();
  EXPECT_EQ(asked.load(), 0);
  EXPECT_EQ(job->Health()[WorkerId(0)].last_words, "");
}

TEST(CoordinatorTest, AHookMayAbort) {
  TestJob* the_job = nullptr;
  TestJob job(2, [&](CoordinatorOptions* options) {
    options->on_event = [&](WorkerId, std::string event) {
      (*the_job)->Abort(absl::InternalError(event));
    };
  });
  the_job = &job;
  auto sender = *WorkerLink::Connect(job.WorkerOptions(0));
  auto other = *WorkerLink::Connect(job.WorkerOptions(1));
  sender->Send("enough");
  EXPECT_EQ(other->Serve([](const std::string&) { return std::string(); }),
            absl::InternalError("enough"));
}

TEST(CoordinatorTest, WorkersEndWhenTheCoordinatorIsGone) {
  TestJob job(2);
  TestWorkers workers(&job, 2, Echo);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  job.DestroyCoordinator();
  workers.Join();
  for (int w = 0; w < 2; ++w) {
    EXPECT_EQ(workers.ended(w).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(MessageOf(workers.ended(w)), HasSubstr("W0609"));
    EXPECT_THAT(workers.aborted(w), ElementsAre(workers.ended(w)));
  }
}

TEST(CoordinatorTest, AnAbortArrivesEvenIfTheCoordinatorGoesAtOnce) {
  for (int round = 0; round < 10; ++round) {
    TestJob job(2);
    TestWorkers workers(&job, 2, Echo);
    ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
    job->Abort(absl::InternalError("a reason to be told"));
    job.DestroyCoordinator();
    workers.Join();
    for (int w = 0; w < 2; ++w)
      EXPECT_EQ(workers.ended(w), absl::InternalError("a reason to be told"));
  }
}

TEST(CoordinatorTest, AWorkerThatGoesWithoutLeavingIsLostOnceAndItsCallsEnd) {
  TestJob job(2);
  std::promise<void> begun;
  auto stays = *WorkerLink::Connect(job.WorkerOptions(0));
  auto goes = *WorkerLink::Connect(job.WorkerOptions(1));
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  auto called = std::async(std::launch::async, [&] { return job->CallAll("work", 0); });
  goes.reset();
  const auto answers = called.get();
  EXPECT_EQ(answers.status().code(), absl::StatusCode::kUnavailable) << answers.status();
  EXPECT_THAT(MessageOf(answers.status()), HasSubstr("worker 1"));
  const auto lost = job.WaitForLost(1);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].first, 1);
  EXPECT_EQ(lost[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(lost[0].second), AllOf(HasSubstr("W0603"), HasSubstr("worker 1")));
  EXPECT_FALSE(job->Health()[WorkerId(1)].connected);
  EXPECT_TRUE(job->Health()[WorkerId(0)].connected);
  const auto later = job->CallAll("more", kPatienceMs);
  EXPECT_EQ(later.status(), lost[0].second);
  EXPECT_EQ(job->WaitForWorkers(kPatienceMs), lost[0].second);
  EXPECT_EQ(job.lost().size(), 1u);
}

TEST(CoordinatorTest, AnEndAwaitsTheCommandUnderWayAndItsEvents) {
  TestJob job(1);
  std::promise<void> begun;
  std::promise<void> release;
  auto link = *WorkerLink::Connect(job.WorkerOptions(0));
  auto served = std::async(std::launch::async, [&] {
    return link->Serve([&](const std::string&) {
      begun.set_value();
      release.get_future().wait();
      link->Send("last words");
      return std::string();
    });
  });
  EXPECT_EQ(job->CallAll("work", 20).status().code(), absl::StatusCode::kDeadlineExceeded);
  begun.get_future().wait();
  job->Shutdown(20);
  EXPECT_TRUE(job->Health()[WorkerId(0)].connected);
  release.set_value();
  EXPECT_TRUE(served.get().ok());
  job->Shutdown(kPatienceMs);
  EXPECT_FALSE(job->Health()[WorkerId(0)].connected);
  EXPECT_THAT(job.WaitForEvents(1), ElementsAre(std::pair<int, std::string>(0, "last words")));
  EXPECT_TRUE(job.lost().empty());
}

TEST(CoordinatorTest, HealthTellsProgressAndClocks) {
  TestJob job(1);
  std::atomic<int64_t> acts{0};
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.progress = [&] { return WorkerProgress{++acts, true, "rank 0: at work", 4096}; };
  auto link = *WorkerLink::Connect(options);
  // The first pings follow one another, each answered by a heartbeat.
  WorkerHealth health;
  do {
    health = job->Health()[WorkerId(0)];
    std::this_thread::yield();
  } while (health.progress.acts < 20);
  EXPECT_TRUE(health.connected);
  EXPECT_TRUE(health.progress.done);
  EXPECT_EQ(health.progress.activity, "rank 0: at work");
  EXPECT_EQ(health.progress.resident_bytes, 4096);
  EXPECT_EQ(health.pid, getpid());
  EXPECT_LT(health.since_progress_ms, kPatienceMs);
  // One process has one clock.
  EXPECT_GT(health.round_trip_ns, 0);
  EXPECT_LE(std::abs(health.clock_offset_ns), health.round_trip_ns);
}

TEST(CoordinatorTest, AJobGoesOnInANewEpochWithANewWorkerInThePlaceOfALostOne) {
  TestJob job(2);
  std::atomic<uint32_t> told_epoch = 0;
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.on_epoch = [&](uint32_t epoch, const absl::Status& /*reason*/) { told_epoch = epoch; };
  auto survivor = *WorkerLink::Connect(std::move(options));
  auto lost = *WorkerLink::Connect(job.WorkerOptions(1));
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  absl::Status fetched;
  std::promise<void> begun;
  std::thread serving([&] {
    const absl::Status end = survivor->Serve([&](const std::string& command) {
      if (command == "wait") {
        begun.set_value();
        fetched = survivor->ExchangeOf(1)->Fetch("never").status();
      }
      return absl::StatusOr<std::string>(command);
    });
    EXPECT_TRUE(end.ok()) << end;
  });
  std::thread calling(
      [&] { EXPECT_EQ(job->CallAll("wait", 0).status().code(), absl::StatusCode::kUnavailable); });
  begun.get_future().wait();
  lost.reset();
  calling.join();
  job.WaitForLost(1);
  job->BeginEpoch(2, {WorkerId(1)}, absl::UnavailableError("rank 1 was lost"));

  const absl::Status late = WorkerLink::Connect(job.WorkerOptions(1)).status();
  EXPECT_THAT(MessageOf(late), AllOf(HasSubstr("W0605"), HasSubstr("epoch 2")));
  WorkerLinkOptions anew = job.WorkerOptions(1);
  anew.epoch = 2;
  anew.credentials = *job.authority().Issue(WorkerIdentity(job.job_id(), WorkerId(1), 2));
  auto replaced = WorkerLink::Connect(std::move(anew));
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  std::thread serving_anew([&] {
    const absl::Status end = (*replaced)->Serve(
        [](const std::string& command) { return absl::StatusOr<std::string>(command); });
    EXPECT_TRUE(end.ok()) << end;
  });
  EXPECT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto answers = job->CallAll("again", kPatienceMs);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_THAT(*answers, ElementsAre("again", "again"));
  EXPECT_EQ(told_epoch.load(), 2u);
  EXPECT_THAT(MessageOf(fetched), AllOf(HasSubstr("W0758"), HasSubstr("rank 1 was lost")));
  EXPECT_THAT(MessageOf(survivor->ExchangeOf(1)->JobStatus()), HasSubstr("W0758"));
  EXPECT_TRUE(survivor->ExchangeOf(2)->JobStatus().ok());
  // The answer to the command of epoch 1, and the hello of epoch 1, which may come more than once.
  EXPECT_GE(job->num_fenced(), 2);
  job->Shutdown(kPatienceMs);
  serving.join();
  serving_anew.join();
}

TEST(CoordinatorTest, OptionsThatMakeNoSenseAreRefused) {
  for (const auto& change : std::vector<std::function<void(CoordinatorOptions*)>>{
           [](CoordinatorOptions* options) { options->num_workers = 0; },
           [](CoordinatorOptions* options) { options->dead_after_ms = options->heartbeat_ms; },
           [](CoordinatorOptions* options) { options->bind_address = "localhost:80"; },
           [](CoordinatorOptions* options) { options->credentials.key_pem = "no key"; }}) {
    CoordinatorOptions options;
    options.job_id = MakeJobId();
    options.credentials =
        *JobAuthority::Create(options.job_id)->Issue(CoordinatorIdentity(options.job_id));
    change(&options);
    EXPECT_EQ(Coordinator::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CoordinatorTest, AnAddressOfAnotherMachineCannotBeListenedAt) {
  CoordinatorOptions options;
  options.job_id = MakeJobId();
  options.credentials =
      *JobAuthority::Create(options.job_id)->Issue(CoordinatorIdentity(options.job_id));
  options.bind_address = "192.0.2.1";
  const absl::Status status = Coordinator::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("W0614"), HasSubstr("192.0.2.1")));
}

}  // namespace
}  // namespace weir::control
