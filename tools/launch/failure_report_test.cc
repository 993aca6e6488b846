#include "tools/launch/failure_report.h"

#include <signal.h>

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Kind = FailureEvent::Kind;
using Sent = WorkerExit::Sent;

constexpr int64_t kNsPerMs = 1000 * 1000;
constexpr int64_t kStartNs = 5'000'000'000;

FailureEvent EventAt(Kind kind, int64_t time_ms, int worker) {
  FailureEvent event;
  event.kind = kind;
  event.time_ns = kStartNs + time_ms * kNsPerMs;
  event.worker = WorkerId(worker);
  if (worker >= 0) event.ranks = {RankId(2 * worker), RankId(2 * worker + 1)};
  if (worker >= 0) event.pid = 4000 + worker;
  return event;
}

FailureEvent Exit(int64_t time_ms, int worker, int code, Sent sent = Sent::kNothing) {
  FailureEvent event = EventAt(Kind::kExit, time_ms, worker);
  event.code = code;
  event.sent = sent;
  return event;
}

FailureEvent Death(int64_t time_ms, int worker, int signal, Sent sent = Sent::kNothing) {
  FailureEvent event = EventAt(Kind::kExit, time_ms, worker);
  event.signal = signal;
  event.sent = sent;
  return event;
}

FailureReport Report(std::vector<FailureEvent> events) {
  const FailedJob job = {kStartNs, "weir-logs/20310109-070500-4711", std::move(events), {}};
  return ReportFailure(job);
}

TEST(FailureReportTest, AKilledWorkerIsToldWithItsLastActLinesFollowersLogsAndAdvice) {
  FailureEvent first = Death(12345, 1, SIGKILL);
  first.last_activity = "rank 3: actor 'forward layers.1' since 2.1 s";
  first.last_lines = {"step 11 loss 3.25", "", "\x1b[31mred\x1b[0m and \x07 bell", "tab\there"};
  const FailureReport report =
      Report({Exit(12360, 0, kExitFollowing), first, Exit(12350, 2, kExitFollowing),
              Death(17400, 3, SIGKILL, Sent::kKilled)});
  EXPECT_EQ(report.text, R"(The job failed after 12.345 s of the run
  first failure: ranks 2-3 (pid 4001): killed by SIGKILL (9)
  last activity: rank 3: actor 'forward layers.1' since 2.1 s
  its last lines:
    | step 11 loss 3.25
    |
    | red and \x07 bell
    | tab	here
  3 other workers ended because of it
  logs: weir-logs/20310109-070500-4711; its own: ranks-2-3.log
  try: somebody killed it, or memory ran out: `dmesg | grep -i 'out of memory'` tells; `weir plan` tells what the job needs
)");
  EXPECT_EQ(report.exit_code, 137);
}

TEST(FailureReportTest, AnExitCodeIsTheJobs) {
  FailureEvent first = Exit(10, 0, 66);
  first.last_lines = {"W0071: expected weights of this model; found others."};
  const FailureReport report = Report({first, Exit(30, 1, kExitFollowing, Sent::kAsked)});
  EXPECT_EQ(report.text, R"(The job failed after 0.010 s of the run
  first failure: ranks 0-1 (pid 4000): exit code 66
  its last lines:
    | W0071: expected weights of this model; found others.
  1 other worker ended because of it
  logs: weir-logs/20310109-070500-4711; its own: ranks-0-1.log
  try: an input is missing or damaged; its last lines say which
)");
  EXPECT_EQ(report.exit_code, 66);
}

TEST(FailureReportTest, AFrozenWorkerIsToldThoughTheStarterKilledIt) {
  FailureEvent frozen = EventAt(Kind::kFrozen, 4000, 1);
  frozen.reason = "no heartbeat for 4.0 s";
  FailureEvent killed = Death(9000, 1, SIGKILL, Sent::kKilled);
  killed.last_lines = {"step 3"};
  const FailureReport report = Report({frozen, Exit(4100, 0, kExitFollowing), killed});
  EXPECT_EQ(report.text, R"(The job failed after 4.000 s of the run
  first failure: ranks 2-3 (pid 4001): frozen: no heartbeat for 4.0 s
  its last lines:
    | step 3
  1 other worker ended because of it
  logs: weir-logs/20310109-070500-4711; its own: ranks-2-3.log
  try: was it stopped (SIGSTOP, a debugger, a suspended machine) or the machine out of memory and swapping? `vmstat 1` shows the latter
)");
  EXPECT_EQ(report.exit_code, 69);
}

TEST(FailureReportTest, AStuckJobTellsWhatItsActorsWaitFor) {
  FailureEvent stuck = EventAt(Kind::kStuck, 60000, -1);
  stuck.reason = "no act for 60.0 s";
  stuck.details = {"rank 0: actor 'send x' waits for credit of rank 1",
                   "rank 1: actor 'forward' waits for input x"};
  const FailureReport report = Report(
      {stuck, Exit(60100, 0, kExitFollowing, Sent::kAsked), Exit(60200, 1, 0, Sent::kAsked)});
  EXPECT_EQ(report.text, R"(The job failed after 60.000 s of the run
  first failure: the job: stuck: no act for 60.0 s
  details:
    | rank 0: actor 'send x' waits for credit of rank 1
    | rank 1: actor 'forward' waits for input x
  2 workers ended because of it
  logs: weir-logs/20310109-070500-4711
  try: a job that cannot go on is a fault of Weir: report the job, the mesh and the logs
)");
  EXPECT_EQ(report.exit_code, 70);
}

TEST(FailureReportTest, ALostConnectionIsExplainedByTheEndThatFollows) {
  FailureEvent lost = EventAt(Kind::kLost, 100, 1);
  lost.reason = "its stream broke";
  // The starter has asked the worker already, but the request did not kill it.
  const FailureReport report =
      Report({lost, Exit(101, 0, kExitFollowing), Death(102, 1, SIGSEGV, Sent::kAsked)});
  EXPECT_THAT(report.text,
              HasSubstr("first failure: ranks 2-3 (pid 4001): killed by SIGSEGV (11)\n"));
  EXPECT_THAT(report.text, HasSubstr("try: this is a fault of Weir"));
  EXPECT_EQ(report.exit_code, 139);
  EXPECT_EQ(Report({lost, Death(102, 1, SIGKILL, Sent::kAsked)}).exit_code, 137);
}

TEST(FailureReportTest, ALostConnectionOfAWorkerThatRanOnIsNoFaultOfWeir) {
  const FailureReport report =
      Report({EventAt(Kind::kLost, 100, 1), Death(300, 1, SIGTERM, Sent::kAsked)});
  EXPECT_THAT(report.text, HasSubstr("ranks 2-3 (pid 4001): lost\n"));
  EXPECT_THAT(report.text, HasSubstr("both processes still ran"));
  EXPECT_EQ(report.exit_code, 69);
}

TEST(FailureReportTest, AWorkerThatFollowsIsNeverFirstThoughItWasSeenFirst) {
  const FailureReport report =
      Report({Exit(10, 0, kExitFollowing), EventAt(Kind::kLost, 5, 2), Exit(12, 2, kExitFollowing),
              Exit(1, 3, 0), Death(20, 1, SIGABRT)});
  EXPECT_THAT(report.text, HasSubstr("after 0.020 s of the run\n  first failure: ranks 2-3 (pid "
                                     "4001): killed by SIGABRT (6)\n"));
  EXPECT_THAT(report.text, Not(HasSubstr("other worker")));
  EXPECT_EQ(report.exit_code, 134);
}

TEST(FailureReportTest, WithNothingElseAFollowerIsToldAsSuch) {
  const FailureReport report = Report({Exit(10, 0, kExitFollowing), Exit(9, 1, kExitFollowing)});
  EXPECT_THAT(report.text, HasSubstr("first failure: ranks 2-3 (pid 4001): exit code 75\n  1 other "
                                     "worker ended because of it\n"));
  EXPECT_THAT(report.text, HasSubstr("try: every worker says that another ended"));
  EXPECT_EQ(report.exit_code, 75);
}

TEST(FailureReportTest, AWorkerThatLeftEarlyIsFirstIfTheOthersOnlyFollow) {
  const FailureReport report = Report({Exit(10, 0, kExitFollowing), EventAt(Kind::kLost, 5, 1),
                                       Exit(6, 1, 0), Exit(12, 2, 0, Sent::kAsked)});
  EXPECT_THAT(
      report.text,
      HasSubstr("first failure: ranks 2-3 (pid 4001): exit code 0, before the job was done\n"));
  EXPECT_THAT(report.text, HasSubstr("2 other workers ended because of it"));
  EXPECT_EQ(report.exit_code, 70);
}

TEST(FailureReportTest, OfTwoAtTheSameMomentADeathBySignalIsFirst) {
  for (bool turned : {false, true}) {
    std::vector<FailureEvent> events = {Exit(10, 0, 70), Death(10, 1, SIGKILL)};
    if (turned) std::reverse(events.begin(), events.end());
    EXPECT_EQ(Report(events).exit_code, 137);
  }
}

TEST(FailureReportTest, TheEarliestIsFirstInWhateverOrderEventsCome) {
  std::vector<FailureEvent> events = {Exit(30, 0, 70), Death(20, 1, SIGSEGV),
                                      EventAt(Kind::kFrozen, 40, 2), Exit(15, 3, kExitFollowing)};
  std::sort(events.begin(), events.end(),
            [](const FailureEvent& a, const FailureEvent& b) { return a.worker < b.worker; });
  const std::string text = Report(events).text;
  do {
    EXPECT_EQ(Report(events).text, text);
  } while (std::next_permutation(
      events.begin(), events.end(),
      [](const FailureEvent& a, const FailureEvent& b) { return a.worker < b.worker; }));
  EXPECT_THAT(text, HasSubstr("SIGSEGV"));
}

// The starter and the worker both see their connection broken, and the worker leaves.
TEST(FailureReportTest, AConnectionThatWasCutIsToldThoughItsWorkerLeftBecauseOfIt) {
  FailureEvent lost = EventAt(Kind::kLost, 100, 1);
  lost.reason = "its connection closed";
  FailureEvent left = Exit(90, 1, kExitFollowing);
  left.last_lines = {
      "W0609 at worker 1: expected the coordinator until the job ends; found its connection "
      "closed."};
  const FailureReport report = Report({lost, left, Exit(150, 0, kExitFollowing)});
  EXPECT_THAT(report.text,
              HasSubstr("first failure: ranks 2-3 (pid 4001): lost: its connection closed\n"));
  EXPECT_THAT(report.text, HasSubstr("    | W0609 at worker 1"));
  EXPECT_EQ(report.exit_code, 69);
}

TEST(FailureReportTest, WhatAWorkerSaysItMetIsToldUnlessAnotherWorkersFailureExplainsIt) {
  FailureEvent broken = EventAt(Kind::kBroken, 100, 0);
  broken.reason =
      "W0980 at rank 0: expected a connection to rank 2 until the job ends; found it broke: "
      "Connection reset";
  broken.advice = "look for what cuts connections";
  const FailureReport report =
      Report({broken, Exit(200, 0, kExitFollowing), Exit(200, 1, kExitFollowing)});
  EXPECT_THAT(
      report.text,
      HasSubstr(
          "first failure: ranks 0-1 (pid 4000): W0980 at rank 0: expected a connection to rank 2"));
  EXPECT_THAT(report.text, HasSubstr("try: look for what cuts connections\n"));
  EXPECT_EQ(report.exit_code, 69);
  EXPECT_EQ(Report({broken, Death(300, 1, SIGKILL)}).exit_code, 137);
  EXPECT_THAT(Report({broken, EventAt(Kind::kFrozen, 300, 1)}).text,
              HasSubstr("ranks 2-3 (pid 4001): frozen"));
}

TEST(FailureReportTest, WhatIsFoundToBeBehindAFailureIsToldWithItsAdviceAndIsNotWeirsFault) {
  FailureEvent stuck = EventAt(Kind::kStuck, 60000, -1);
  stuck.reason = "no act for 60.0 s";
  stuck.cause = "data between processes does not arrive";
  stuck.advice = "look at the network";
  const FailureReport report = Report({stuck});
  EXPECT_THAT(
      report.text,
      HasSubstr("the job: stuck: no act for 60.0 s; data between processes does not arrive\n"));
  EXPECT_THAT(report.text, HasSubstr("try: look at the network\n"));
  EXPECT_EQ(report.exit_code, 69);
}

TEST(FailureReportTest, ProcessesThatSigkillDoesNotEndAreNamed) {
  const FailedJob job = {kStartNs,
                         "",
                         {EventAt(Kind::kFrozen, 4000, 1)},
                         {{{RankId(2), RankId(3)}, 4001, "is held in the kernel (state D)"}}};
  EXPECT_THAT(ReportFailure(job).text, HasSubstr("  still there: ranks 2-3 (pid 4001), killed by "
                                                 "SIGKILL, but is held in the kernel (state D)\n"));
}

TEST(FailureReportTest, TheAgeOfTheLastActivityIsTold) {
  FailureEvent killed = Death(100, 0, SIGKILL);
  killed.last_activity = "is loading its ranks";
  killed.activity_age_ms = 840;
  EXPECT_THAT(Report({killed}).text,
              HasSubstr("last activity, as of 0.8 s before: is loading its ranks\n"));
}

TEST(FailureReportTest, NothingFailedIfAllEndedWellOrAsAsked) {
  const FailureReport report =
      Report({Exit(10, 0, 0), Death(20, 1, SIGTERM, Sent::kAsked), Exit(20, 2, 130, Sent::kAsked),
              Death(30, 3, SIGKILL, Sent::kKilled), EventAt(Kind::kLost, 11, 0)});
  EXPECT_EQ(report.text, "");
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(Report({}).exit_code, 0);
}

TEST(FailureReportTest, TheCodesOfAProgramOfTheUserAreItsOwn) {
  FailedJob job;
  job.events = {Exit(10, 0, 75), Exit(20, 1, 143, Sent::kAsked)};
  job.program = WorkerProgram::kOfUser;
  FailureReport report = ReportFailure(job);
  EXPECT_EQ(report.exit_code, 75);
  EXPECT_THAT(report.text, HasSubstr("first failure: ranks 0-1 "));
  EXPECT_THAT(report.text, ::testing::Not(HasSubstr("try:")));
  job.events = {Death(10, 0, SIGSEGV)};
  report = ReportFailure(job);
  EXPECT_EQ(report.exit_code, 139);
  EXPECT_THAT(report.text, HasSubstr("try: the program crashed; its last lines may say where"));
}

TEST(FailureReportTest, ASignalFromOutsideIsAFailure) {
  EXPECT_EQ(Report({Death(20, 1, SIGTERM)}).exit_code, 143);
  EXPECT_EQ(Report({Exit(20, 1, 143)}).exit_code, 143);
  EXPECT_THAT(Report({Death(20, 1, SIGTERM)}).text,
              HasSubstr("somebody else asked this process to end"));
  EXPECT_THAT(Report({Death(20, 1, SIGBUS)}).text, HasSubstr("/dev/shm"));
}

TEST(FailureReportTest, TheFirstFailureInWordsIsTheSameInEveryRun) {
  FailureEvent first = Death(20, 1, SIGKILL);
  first.last_activity = "rank 3: actor 'forward layers.1' since 2.1 s";
  const FailureReport report = Report({first}), other = Report({Death(70, 1, SIGKILL)});
  EXPECT_EQ(report.where, "rank 3: actor 'forward layers.1'");
  EXPECT_EQ(other.where, "");
  EXPECT_EQ(report.who, "ranks 2-3");
  EXPECT_THAT(report.what, HasSubstr("SIGKILL"));
  EXPECT_EQ(report.what, other.what);
  EXPECT_EQ(report.time_ns, kStartNs + 20 * kNsPerMs);
  EXPECT_EQ(Report({}).who, "");
}

TEST(FailureReportTest, EachWorkerThatFailsByItselfHasAMark) {
  const FailedJob job = {
      kStartNs,
      "logs",
      {EventAt(Kind::kLost, 1000, 2), Exit(1200, 0, kExitFollowing), Death(1100, 1, SIGSEGV),
       Death(1005, 2, SIGKILL), Death(1300, 3, SIGKILL, Sent::kKilled)},
      {}};
  const std::vector<FailureMark> marks = MarkFailures(job);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].time_ns, kStartNs + 1000 * kNsPerMs);
  EXPECT_EQ(marks[0].what, "killed by SIGKILL (9)");
  EXPECT_EQ(marks[0].ranks, (std::vector<RankId>{RankId(4), RankId(5)}));
  EXPECT_EQ(marks[1].what, "killed by SIGSEGV (11)");
  const std::vector<FailureMark> stuck =
      MarkFailures({kStartNs, "logs", {EventAt(Kind::kStuck, 5, -1)}, {}});
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_TRUE(stuck[0].ranks.empty()) << "the job as a whole";
  EXPECT_TRUE(MarkFailures({kStartNs, "logs", {}, {}}).empty());
}

TEST(FailureReportTest, AnExitBecomesAnEvent) {
  const WorkerExit exit = {WorkerId(3), 4711, 66, 0, Sent::kAsked, 17, {"last"}};
  const FailureEvent event = EventOf(exit, {RankId(6), RankId(7)});
  EXPECT_EQ(event.kind, Kind::kExit);
  EXPECT_EQ(event.worker, WorkerId(3));
  EXPECT_EQ(event.pid, 4711);
  EXPECT_EQ(event.code, 66);
  EXPECT_EQ(event.sent, Sent::kAsked);
  EXPECT_EQ(event.time_ns, 17);
  EXPECT_THAT(event.ranks, ::testing::ElementsAre(RankId(6), RankId(7)));
  EXPECT_THAT(event.last_lines, ::testing::ElementsAre("last"));
}

TEST(FailureReportTest, AFailureThatEndsAProcessAloneSaysSo) {
  FailedJob job = {kStartNs, "", {Death(2000, 1, SIGKILL)}, {}};
  job.ends = FailedJob::Ends::kProcess;
  EXPECT_THAT(ReportFailure(job).text,
              ::testing::StartsWith("A process failed after 2.000 s of the run\n"));
}

TEST(FailureReportTest, ProcessesThatFailTogetherWhileTheJobLivesOnAreAllNamed) {
  FailedJob job;
  job.start_ns = kStartNs;
  job.ends = FailedJob::Ends::kProcess;
  // Worker 0 only sees that its connection to worker 1 broke.
  job.events = {Death(100, 1, SIGKILL), EventAt(Kind::kLost, 101, 2),
                EventAt(Kind::kBroken, 102, 0), Death(105, 2, SIGKILL)};
  const FailureReport report = ReportFailure(job);
  EXPECT_THAT(report.text,
              HasSubstr("A process failed after 0.100 s of the run\n"
                        "  first failure: ranks 2-3 (pid 4001): killed by SIGKILL (9)\n"
                        "  also failed: ranks 4-5 (pid 4002): killed by SIGKILL (9)\n"));
  EXPECT_THAT(report.text, Not(HasSubstr("because of it")));
  EXPECT_THAT(report.everyone, ::testing::ElementsAre("ranks 2-3", "ranks 4-5"));
  job.ends = FailedJob::Ends::kJob;
  EXPECT_THAT(ReportFailure(job).everyone, ::testing::ElementsAre("ranks 2-3"));
}

TEST(FailureReportTest, OfAJobThatEndsOnlyAProcessThatSomebodyKilledHasAlsoFailedByItself) {
  const FailureReport report =
      Report({Death(100, 1, SIGKILL), Death(105, 2, SIGKILL), Exit(110, 0, kExitFollowing),
              Death(120, 3, SIGABRT), Death(900, 4, SIGKILL, Sent::kKilled)});
  EXPECT_THAT(report.text,
              HasSubstr("  first failure: ranks 2-3 (pid 4001): killed by SIGKILL (9)\n"
                        "  also failed: ranks 4-5 (pid 4002): killed by SIGKILL (9)\n"
                        "  3 other workers ended because of it\n"));
}

TEST(FailureReportTest, AProcessThatHasSaidNoHelloIsNamedWithWhatHoldsIt) {
  FailureEvent silent = EventAt(Kind::kNoHello, 5000, 1);
  silent.reason = "has not said hello within 5.0 s";
  EXPECT_THAT(Report({silent}).text, HasSubstr("first failure: ranks 2-3 (pid 4001): has not said "
                                               "hello within 5.0 s\n"));
  EXPECT_THAT(Report({silent}).text, HasSubstr("try: its log may say how far it has come"));
  silent.cause = "its process is stopped (state T)";
  silent.advice = "let it go on";
  FailureEvent killed = Death(5100, 1, SIGKILL);
  killed.sent = Sent::kKilled;
  const FailureReport report = Report({silent, killed, Exit(5200, 0, kExitFollowing)});
  EXPECT_THAT(report.text,
              HasSubstr("said hello within 5.0 s; its process is stopped (state T)\n"));
  EXPECT_THAT(report.text, HasSubstr("try: let it go on\n"));
  EXPECT_EQ(report.who, "ranks 2-3");
  EXPECT_EQ(report.what, "no hello");
  EXPECT_EQ(report.exit_code, kExitSurroundings);
}

TEST(FailureReportTest, ASlowProcessIsToldWithTheEvidence) {
  FailureEvent slow = EventAt(Kind::kSlow, 100, 1);
  slow.reason = "for 6 s its acts have taken 3.0 times as long as the same acts of rank 0";
  const FailureReport report = Report({slow});
  EXPECT_THAT(report.text,
              HasSubstr("first failure: ranks 2-3 (pid 4001): slow: for 6 s its acts"));
  EXPECT_THAT(report.text, HasSubstr("--on-slow warn"));
  EXPECT_EQ(report.what, kSlowProcess);
}

TEST(FailureReportTest, TheMomentOfAFailureIsToldUnlessStepsRan) {
  const std::pair<FailureMoment, std::string> kWords[] = {
      {FailureMoment::kStart, "the processes of the job were starting"},
      {FailureMoment::kRestart, "all processes of the job were starting again"},
      {FailureMoment::kRecovery, "the job was coming back from an earlier loss"},
      {FailureMoment::kGrowth, "the mesh was growing"},
      {FailureMoment::kEvaluation, "the job was evaluating its weights"},
      {FailureMoment::kSaving, "the job was writing weights or a checkpoint, and no step ran"},
      {FailureMoment::kEnding, "the work was done, and the processes were ending"},
  };
  for (const auto& [moment, words] : kWords) {
    FailureEvent first = Death(100, 1, SIGKILL);
    first.moment = moment;
    first.host = "node-3";
    EXPECT_THAT(Report({first, Exit(120, 0, kExitFollowing)}).text,
                HasSubstr("  first failure: ranks 2-3 (pid 4001 on node-3): killed by SIGKILL (9)\n"
                          "  at that time: " +
                          words + "\n"));
  }
  EXPECT_THAT(Report({Death(100, 1, SIGKILL)}).text, Not(HasSubstr("at that time")));
}

TEST(FailureReportTest, TheMomentIsThePlaceOfAFailureUnlessStepsRan) {
  FailureEvent first = Death(100, 1, SIGKILL);
  first.last_activity = "rank 3: actor 'forward layers.1' since 2.1 s";
  EXPECT_EQ(Report({first}).where, "rank 3: actor 'forward layers.1'");
  first.moment = FailureMoment::kGrowth;
  EXPECT_EQ(Report({first}).where, "when the mesh was growing");
  EXPECT_EQ(Report({first}).what, "killed by SIGKILL (9)") << "the moment is no part of it";
  first.moment = FailureMoment::kStart;
  const std::string at_start = Report({first}).where;
  EXPECT_EQ(at_start, "when the processes of the job were starting");
  first.moment = FailureMoment::kRestart;
  EXPECT_EQ(Report({first}).where, at_start) << "each start is the same place";
}

TEST(FailureReportTest, AJobThatEndsNamesAllProcessesThatHaveNotSaidHello) {
  const std::vector<FailureEvent> silent = {EventAt(Kind::kNoHello, 100, 1),
                                            EventAt(Kind::kNoHello, 101, 3),
                                            EventAt(Kind::kNoHello, 101, 2)};
  const std::string either = "  details:\n    | ranks 4-7 have not said hello either\n";
  EXPECT_THAT(Report(silent).text, HasSubstr(either));
  FailedJob lives_on;
  lives_on.events = silent;
  lives_on.ends = FailedJob::Ends::kProcess;
  EXPECT_THAT(ReportFailure(lives_on).text, Not(HasSubstr("either")))
      << "each is a failure of its own";
  EXPECT_THAT(Report({silent[0]}).text, Not(HasSubstr("either")));
}

TEST(FailureReportTest, SignalsOfOthersAndSilenceMayComeFromOutsideOfTheJob) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP})
    EXPECT_EQ(Report({Death(100, 1, signal)}).origin, FailureOrigin::kOutside) << signal;
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGXCPU})
    EXPECT_EQ(Report({Death(100, 1, signal)}).origin, FailureOrigin::kJob) << signal;
  EXPECT_EQ(Report({Exit(100, 1, 128 + SIGTERM)}).origin, FailureOrigin::kOutside);
  EXPECT_EQ(Report({Exit(100, 1, 3)}).origin, FailureOrigin::kJob);
  for (const int code : {kExitSurroundings, kExitFollowing}) {
    EXPECT_EQ(Report({Exit(100, 1, code)}).origin, FailureOrigin::kOutside) << code;
    FailedJob of_user;
    of_user.events = {Exit(100, 1, code)};
    of_user.program = WorkerProgram::kOfUser;
    EXPECT_EQ(ReportFailure(of_user).origin, FailureOrigin::kJob) << "its meaning is the user's";
  }
  for (const Kind kind : {Kind::kFrozen, Kind::kNoHello, Kind::kLost, Kind::kBroken})
    EXPECT_EQ(Report({EventAt(kind, 100, 1)}).origin, FailureOrigin::kOutside);
  EXPECT_EQ(Report({EventAt(Kind::kStuck, 100, -1)}).origin, FailureOrigin::kJob);
  EXPECT_EQ(Report({EventAt(Kind::kFrozen, 100, 1), Exit(200, 1, 3)}).origin, FailureOrigin::kJob)
      << "its own end says more";
}

TEST(FailureReportTest, ThePolicyOfRestartsTakesAllThatMakesAFailureTheSame) {
  FailureEvent first = Death(100, 1, SIGKILL);
  first.last_activity = "rank 3: actor 'forward layers.1' since 2.1 s";
  const JobFailure failure = FailureOf(Report({first}), "ranks 2-3 and ranks 4-5", 7);
  EXPECT_EQ(failure.who, "ranks 2-3 and ranks 4-5");
  EXPECT_EQ(failure.what, "killed by SIGKILL (9)");
  EXPECT_EQ(failure.where, "rank 3: actor 'forward layers.1'");
  EXPECT_EQ(failure.step, 7);
  EXPECT_EQ(failure.time_ms, 5'100);
  EXPECT_EQ(failure.origin, FailureOrigin::kOutside);
}

TEST(FailureReportTest, AFailureInOneLineNamesHostRanksProcessAndSignal) {
  FailedJob job;
  EXPECT_EQ(FirstFailureText(job), "");
  job.events = {Death(100, 1, SIGKILL)};
  job.events[0].host = "node-3";
  EXPECT_EQ(FirstFailureText(job), "ranks 2-3 (pid 4001 on node-3): killed by SIGKILL (9)");
  job.events = {Exit(100, 1, 66)};
  EXPECT_EQ(FirstFailureText(job), "ranks 2-3 (pid 4001): exit code 66");
}

}  // namespace
}  // namespace weir::launch
