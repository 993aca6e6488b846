// Tests a fleet of scripted workers (tools/fleet/testing/scripted_worker.h): real processes and a
// real control plane, without ranks. This program is the worker, too, because a fleet refuses
// workers of another build. tests/processes tries the same with whole jobs.
#include "tools/fleet/fleet.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/fleet/fleet_start.h"
#include "tools/fleet/testing/scripted_worker.h"
#include "tools/launch/process_threads.h"

namespace weir::fleet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the processes of workers that this process has started, by the labels of their ranks.
std::vector<pid_t> WorkersWith(const std::vector<std::string>& labels) {
  std::vector<pid_t> workers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::vector<std::string> arguments =
        absl::StrSplit(launch::ReadProcFile(entry.path() / "cmdline"), '\0');
    const std::string parent = absl::StrCat("PPid:\t", ::getpid(), "\n");
    const bool is_child = absl::StrContains(launch::ReadProcFile(entry.path() / "status"), parent);
    if (is_child && arguments.size() > 2 &&
        std::find(labels.begin(), labels.end(), arguments[2]) != labels.end())
      workers.push_back(pid);
  }
  return workers;
}

// While an object of this class exists, processes of the worker with this label stop before they
// say hello. A file tells them the label: the environment of a process with threads may not change.
class StopsAtStart {
 public:
  explicit StopsAtStart(const std::string& label) {
    // A process reads a whole file or none.
    std::ofstream(File() + ".new") << label;
    std::filesystem::rename(File() + ".new", File());
  }
  ~StopsAtStart() { std::filesystem::remove(File()); }
  StopsAtStart(const StopsAtStart&) = delete;
  StopsAtStart& operator=(const StopsAtStart&) = delete;

  // Called by the program of the test before it has threads.
  static void NameFile() {
    ::setenv(kVariable, absl::StrCat(::testing::TempDir(), "fleet_test_stops_", ::getpid()).c_str(),
             /*overwrite=*/1);
  }
  // Called by each worker with its label.
  static void StopIfTold(const std::string& label) {
    std::string told;
    if (std::getline(std::ifstream(File()), told) && told == label) ::raise(SIGSTOP);
  }

 private:
  // Workers inherit a variable of this prefix (tools/launch/worker_environment.h).
  static constexpr char kVariable[] = "WEIR_FLEET_TEST_STOPS_AT_START";

  static std::string File() {
    const char* const file = std::getenv(kVariable);
    return file == nullptr ? "" : file;
  }
};

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() {
    options_.log_base = ::testing::TempDir() + "fleet_test_logs";
    options_.heartbeat_ms = 50;
    options_.console = &console_;
  }

  // Starts workers of two ranks each.
  void Launch(int num_workers) {
    IdVector<WorkerId, std::vector<RankId>> ranks_of;
    for (int worker = 0; worker < num_workers; ++worker)
      ranks_of.push_back({RankId(2 * worker), RankId(2 * worker + 1)});
    fleet_ = std::make_unique<Fleet>(std::move(ranks_of), options_);
    launched_ = fleet_->Launch();
  }
  // Does so, and lets the job go on after a loss.
  void LaunchToRecover(int num_workers) {
    options_.recovers = true;
    Launch(num_workers);
    ASSERT_EQ(launched_, absl::OkStatus());
    fleet_->AllowRecovery();
  }

  // Has worker 1 follow a script, and all other workers answer.
  absl::Status CallWith(Script script, Fleet::Watch watch = Fleet::Watch::kNone) {
    IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers(),
                                                      CommandFor(Script::kAnswers));
    commands[WorkerId(1)] = CommandFor(script);
    return fleet_->CallEach(commands, watch).status();
  }

  std::ostringstream said_;
  console::Console console_{console::Console::Style::kPlain, &said_};
  FleetOptions options_;
  std::unique_ptr<Fleet> fleet_;
  absl::Status launched_;
};

TEST_F(FleetTest, AnswersComeInTheOrderOfWorkersAndAnOrderlyEndHasNoReport) {
  Launch(3);
  ASSERT_EQ(launched_, absl::OkStatus());
  for (int call = 0; call < 3; ++call) {
    const auto answers = fleet_->Call(CommandFor(Script::kAnswers), Fleet::Watch::kNone);
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_EQ(answers->size(), 3u);
    EXPECT_EQ((*answers)[WorkerId(0)].plan_id(), "worker 0");
    EXPECT_EQ((*answers)[WorkerId(2)].plan_id(), "worker 2");
  }
  const launch::FailureReport report = fleet_->Finish(absl::OkStatus());
  EXPECT_THAT(report.text, IsEmpty());
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_THAT(said_.str(), IsEmpty());
}

TEST_F(FleetTest, AnErrorOfACommandNamesItsRanksAndIsNoFailureOfAProcess) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status refused = CallWith(Script::kRefuses);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("W0001"), HasSubstr("worker 1")));
  EXPECT_THAT(fleet_->Finish(refused).text, IsEmpty());
}

TEST_F(FleetTest, AfterAnErrorTheWorkersTakeCommandsAsBefore) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  EXPECT_FALSE(CallWith(Script::kRefuses).ok());
  EXPECT_EQ(CallWith(Script::kAnswers), absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, AnAnswerThatIsNoneNamesItsRanks) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status nonsense = CallWith(Script::kAnswersNonsense);
  EXPECT_EQ(nonsense.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(nonsense.message()), HasSubstr("2-3"));
}

TEST_F(FleetTest, AWorkerPublishesNoCardOfARankOfAnother) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status forged = CallWith(Script::kForges);
  EXPECT_EQ(forged.code(), absl::StatusCode::kPermissionDenied) << forged;
  EXPECT_THAT(std::string(forged.message()), HasSubstr("W0810"));
  const auto own = fleet_->CallEach({CommandFor(Script::kForges), CommandFor(Script::kAnswers)},
                                    Fleet::Watch::kNone);
  EXPECT_TRUE(own.ok()) << "worker 0 has rank 0: " << own.status();
}

TEST(FleetStartTest, AProcessorWithOtherKernelsIsNamed) {
  EXPECT_EQ(CheckSameProcessors({}), absl::OkStatus());
  EXPECT_EQ(CheckSameProcessors({{"host a", "AVX2"}, {"host b", "AVX2"}}), absl::OkStatus());
  const absl::Status other =
      CheckSameProcessors({{"host a", "AVX2"}, {"host b", "AVX2"}, {"host c", "AVX3"}});
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("W0844 at the processor of host c: expected kernels as on host a (AVX2); "
                        "found AVX3"));
}

TEST_F(FleetTest, AProcessThatEndsIsTheFirstFailureAndTheOthersFollow) {
  Launch(3);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status status = CallWith(Script::kExits);
  EXPECT_FALSE(status.ok());
  const launch::FailureReport report = fleet_->Finish(status);
  EXPECT_EQ(report.exit_code, 3);
  EXPECT_THAT(report.text, AllOf(HasSubstr("ranks 2-3"), HasSubstr("code 3")));
  EXPECT_THAT(report.text, Not(HasSubstr("ranks 0-1 (")));
}

TEST_F(FleetTest, AProcessThatEndsAfterTheWorkIsNoFailureOfTheJob) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  EXPECT_FALSE(CallWith(Script::kExits).ok());
  fleet_->ReportLoss();  // waits until the end of the process is known
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text,
              AllOf(StartsWith("A process failed after "), HasSubstr("ranks 2-3")));
}

TEST_F(FleetTest, AProcessThatIsKilledGivesTheJobTheCodeOfTheSignal) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status status = CallWith(Script::kIsKilled);
  const launch::FailureReport report = fleet_->Finish(status);
  EXPECT_EQ(report.exit_code, 128 + 9);
  EXPECT_THAT(report.text, AllOf(HasSubstr("ranks 2-3"), HasSubstr("SIGKILL")));
}

TEST_F(FleetTest, AProcessThatIsStoppedIsNamedAsFrozenWithItsState) {
  options_.dead_after_ms = 1500;
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status status = CallWith(Script::kStops);
  EXPECT_FALSE(status.ok());
  const launch::FailureReport report = fleet_->Finish(status);
  EXPECT_EQ(report.exit_code, launch::kExitSurroundings);
  EXPECT_THAT(report.text, AllOf(HasSubstr("ranks 2-3"), HasSubstr("no heartbeat for 1.5 s"),
                                 HasSubstr("stopped")));
  EXPECT_THAT(said_.str(), HasSubstr("is frozen"));
}

TEST_F(FleetTest, AProcessThatIsStoppedBeforeItsHelloIsTheFirstFailureOfTheStart) {
  options_.dead_after_ms = 1500;
  const StopsAtStart stops("ranks 2-3");
  Launch(3);
  EXPECT_EQ(launched_.code(), absl::StatusCode::kUnavailable) << launched_;
  const launch::FailureReport report = fleet_->Finish(launched_);
  EXPECT_EQ(report.exit_code, launch::kExitSurroundings);
  EXPECT_EQ(report.who, "ranks 2-3");
  EXPECT_THAT(report.text, AllOf(HasSubstr("): has not said hello within "),
                                 HasSubstr(" s; its process is stopped (state T)\n"),
                                 HasSubstr("at that time: the processes of the job were starting"),
                                 Not(HasSubstr("either"))));
}

TEST_F(FleetTest, ANewProcessThatIsStoppedBeforeItsHelloIsALossAndStartsAnew) {
  options_.dead_after_ms = 1500;
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(3));
  EXPECT_FALSE(CallWith(Script::kIsKilled).ok());
  EXPECT_THAT(fleet_->ReportLoss().everyone, ::testing::ElementsAre("ranks 2-3"));
  {
    const StopsAtStart stops("ranks 2-3");
    EXPECT_EQ(fleet_->BeginEpoch().status().code(), absl::StatusCode::kUnavailable);
  }
  const std::vector<pid_t> stopped = WorkersWith({"ranks 2-3"});
  const launch::FailureReport report = fleet_->ReportLoss();
  EXPECT_THAT(report.everyone, ::testing::ElementsAre("ranks 2-3")) << "the others are sound";
  EXPECT_THAT(report.text, HasSubstr("has not said hello within "));
  const auto anew = fleet_->BeginEpoch();
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(*anew, ::testing::ElementsAre(WorkerId(1)));
  EXPECT_THAT(WorkersWith({"ranks 2-3"}), Not(::testing::IsSupersetOf(stopped)));
  EXPECT_EQ(CallWith(Script::kAnswers), absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, AProcessThatIsStoppedAsItComesBackIsALossOfTheGrowthAndTheOthersLiveOn) {
  options_.dead_after_ms = 1500;
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(3));
  EXPECT_FALSE(CallWith(Script::kIsKilled).ok());
  EXPECT_THAT(fleet_->ReportLoss().everyone, ::testing::ElementsAre("ranks 2-3"));
  ASSERT_TRUE(fleet_->BeginEpoch(Fleet::Replace::kNone).ok());
  ASSERT_EQ(fleet_->Spread(4), absl::OkStatus());
  fleet_->Enter(launch::FailureMoment::kGrowth);
  {
    const StopsAtStart stops("ranks 2-3");
    EXPECT_EQ(fleet_->BeginGrowth().status().code(), absl::StatusCode::kUnavailable);
  }
  const launch::FailureReport report = fleet_->ReportLoss();
  EXPECT_THAT(report.everyone, ::testing::ElementsAre("ranks 2-3"));
  EXPECT_THAT(report.text, AllOf(HasSubstr("has not said hello within "),
                                 HasSubstr("at that time: the mesh was growing\n")));
  ASSERT_TRUE(fleet_->BeginEpoch(Fleet::Replace::kNone).ok());
  ASSERT_EQ(fleet_->Spread(4), absl::OkStatus());
  EXPECT_TRUE(fleet_->Call(CommandFor(Script::kAnswers), Fleet::Watch::kNone).ok());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, StepsWithoutProgressEndTheJob) {
  options_.stuck_after_ms = 1000;
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status status = CallWith(Script::kWaits, Fleet::Watch::kProgress);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0516"));
  const launch::FailureReport report = fleet_->Finish(status);
  EXPECT_EQ(report.exit_code, launch::kExitNoProgress);
  EXPECT_THAT(report.text, AllOf(HasSubstr("no actor of any rank has acted for 1.0 s"),
                                 HasSubstr("no account came from ranks 2-3")));
}

TEST_F(FleetTest, AReasonThatAWorkerTellsReachesTheReportWithItsAdvice) {
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  const absl::Status status = CallWith(Script::kTells);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(fleet_->Finish(status).text, AllOf(HasSubstr("W0522 at the connection: it broke"),
                                                 HasSubstr("a network that holds")));
}

TEST_F(FleetTest, ProcessesThatAreKilledAtOnceAreOneLossAndStartAnew) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(4));
  const std::vector<pid_t> victims = WorkersWith({"ranks 2-3", "ranks 6-7"});
  ASSERT_EQ(victims.size(), 2u);
  std::thread killer([&victims] {
    for (const pid_t victim : victims) ::kill(victim, SIGKILL);
  });
  IdVector<WorkerId, proto::WorkerCommand> commands(4, CommandFor(Script::kAnswers));
  commands[WorkerId(1)] = commands[WorkerId(3)] = CommandFor(Script::kWaits);
  EXPECT_FALSE(fleet_->CallEach(commands, Fleet::Watch::kNone).ok());
  killer.join();
  const launch::FailureReport report = fleet_->ReportLoss();
  EXPECT_THAT(report.everyone, ::testing::UnorderedElementsAre("ranks 2-3", "ranks 6-7"));
  const auto anew = fleet_->BeginEpoch();
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(*anew, ::testing::ElementsAre(WorkerId(1), WorkerId(3)));
  EXPECT_EQ(fleet_->Call(CommandFor(Script::kAnswers), Fleet::Watch::kNone).status(),
            absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
  EXPECT_THAT(said_.str(), Not(HasSubstr("a moment later")));
  const size_t named = report.text.find("logs: ") + strlen("logs: ");
  const std::string logs = report.text.substr(named, report.text.find(';', named) - named);
  EXPECT_TRUE(std::filesystem::is_regular_file(logs + "/ranks-2-3.log"))
      << "the report names a log that is gone:\n"
      << report.text;
}

TEST_F(FleetTest, AJobThatStartsAgainNeedsNoFolderOfItsOwnForLogs) {
  options_.log_base = "/proc";
  Launch(2);
  EXPECT_THAT(std::string(launched_.message()), StartsWith("W0092 at /proc"));
  EXPECT_THAT(said_.str(), IsEmpty());
  options_.epoch = 2;
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  EXPECT_THAT(said_.str(), AllOf(HasSubstr("WARNING: W0092 at /proc"),
                                 HasSubstr("From now on the logs are in /")));
  EXPECT_EQ(CallWith(Script::kAnswers), absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, WithoutAReplacementTheOthersGoOnWithOtherRanksAndTheIdleLeave) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(4));
  IdVector<WorkerId, proto::WorkerCommand> commands(4, CommandFor(Script::kAnswers));
  commands[WorkerId(1)] = CommandFor(Script::kIsKilled);
  EXPECT_FALSE(fleet_->CallEach(commands, Fleet::Watch::kNone).ok());
  EXPECT_THAT(fleet_->ReportLoss().everyone, ::testing::ElementsAre("ranks 2-3"));
  const Fleet::Replacement lost = fleet_->ForeseeReplacement();
  EXPECT_EQ(lost.lost, "the process of ranks 2-3");
  EXPECT_THAT(lost.workers, ::testing::ElementsAre(WorkerId(1)));
  EXPECT_EQ(lost.ranks_left, 6);
  EXPECT_EQ(lost.num_others, 3);
  const auto gone = fleet_->BeginEpoch(Fleet::Replace::kNone);
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_THAT(*gone, ::testing::ElementsAre(WorkerId(1)));
  EXPECT_THAT(fleet_->workers(), ::testing::ElementsAre(WorkerId(0), WorkerId(2), WorkerId(3)));
  EXPECT_EQ(fleet_->Spread(7).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(fleet_->Spread(4), absl::OkStatus());
  EXPECT_THAT(fleet_->ranks_of(WorkerId(2)), ::testing::ElementsAre(RankId(2), RankId(3)));
  EXPECT_EQ(CallWith(Script::kAnswers), absl::OkStatus()) << "also the idle one answers";
  EXPECT_THAT(fleet_->DismissIdle(), ::testing::ElementsAre(WorkerId(3)));
  EXPECT_THAT(fleet_->workers(), ::testing::ElementsAre(WorkerId(0), WorkerId(2)));
  EXPECT_THAT(fleet_->exchanged(), ::testing::ElementsAre(WorkerId(1))) << "worker 3 is sound";
  const auto answers = fleet_->Call(CommandFor(Script::kAnswers), Fleet::Watch::kNone);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ((*answers)[WorkerId(2)].plan_id(), "worker 2");
  EXPECT_EQ((*answers)[WorkerId(3)].plan_id(), "") << "it has left";
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, AStoppedProcessThatDoesNotComeBackIsKilled) {
  options_.dead_after_ms = 1500;
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(2));
  EXPECT_FALSE(CallWith(Script::kStops).ok());
  EXPECT_THAT(fleet_->ReportLoss().everyone, ::testing::ElementsAre("ranks 2-3"));
  EXPECT_EQ(WorkersWith({"ranks 2-3"}).size(), 1u);
  ASSERT_TRUE(fleet_->BeginEpoch(Fleet::Replace::kNone).ok());
  while (!WorkersWith({"ranks 2-3"}).empty()) std::this_thread::yield();
  EXPECT_EQ(WorkersWith({"ranks 0-1"}).size(), 1u);
  EXPECT_EQ(fleet_->Call(CommandFor(Script::kAnswers), Fleet::Watch::kNone).status(),
            absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty());
}

TEST_F(FleetTest, IfAllProcessesAreLostNoOthersAreForeseen) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(1));
  EXPECT_FALSE(fleet_->Call(CommandFor(Script::kIsKilled), Fleet::Watch::kNone).ok());
  fleet_->ReportLoss();
  const Fleet::Replacement lost = fleet_->ForeseeReplacement();
  EXPECT_EQ(lost.num_lost, 1);
  EXPECT_EQ(lost.num_others, 0);
  EXPECT_THAT(fleet_->Finish(absl::UnavailableError("all are lost")).text, Not(IsEmpty()));
}

TEST_F(FleetTest, UntilAStepIsDoneOnTheNewMeshALossIsToldByTheRanksOfTheOld) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(4));
  const auto kill = [this](WorkerId worker) {
    IdVector<WorkerId, proto::WorkerCommand> commands(4, CommandFor(Script::kAnswers));
    commands[worker] = CommandFor(Script::kIsKilled);
    EXPECT_FALSE(fleet_->CallEach(commands, Fleet::Watch::kNone).ok());
    return fleet_->ReportLoss();
  };
  kill(WorkerId(0));
  ASSERT_TRUE(fleet_->BeginEpoch(Fleet::Replace::kNone).ok());
  ASSERT_EQ(fleet_->Spread(4), absl::OkStatus());
  EXPECT_THAT(fleet_->ranks_of(WorkerId(1)), ::testing::ElementsAre(RankId(0), RankId(1)));
  // Worker 3 has no ranks of the new mesh.
  const launch::FailureReport idle = kill(WorkerId(3));
  EXPECT_THAT(idle.everyone, ::testing::ElementsAre("ranks 6-7"));
  EXPECT_THAT(idle.text, HasSubstr("ranks 6-7"));
  EXPECT_EQ(fleet_->ForeseeReplacement().lost, "the process of ranks 6-7");
  ASSERT_TRUE(fleet_->BeginEpoch(Fleet::Replace::kNone).ok());
  ASSERT_EQ(fleet_->Spread(2), absl::OkStatus());
  fleet_->DismissIdle();
  EXPECT_THAT(fleet_->known_ranks(WorkerId(1)), ::testing::ElementsAre(RankId(2), RankId(3)));
  EXPECT_THAT(fleet_->exchanged(), ::testing::ElementsAre(WorkerId(0), WorkerId(3)))
      << "both are lost since the last step, though in two epochs";
  fleet_->NoteStepDone();
  EXPECT_THAT(fleet_->exchanged(), IsEmpty());
  EXPECT_THAT(fleet_->known_ranks(WorkerId(1)), ::testing::ElementsAre(RankId(0), RankId(1)));
  const launch::FailureReport renamed = kill(WorkerId(1));
  EXPECT_THAT(renamed.everyone, ::testing::ElementsAre("ranks 0-1"));
  EXPECT_THAT(renamed.text, HasSubstr("; its own: ranks-2-3.log\n")) << "since its start";
}

TEST_F(FleetTest, AReportSaysWhatTheJobDidWhenAProcessWasLost) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(2));
  fleet_->Enter(launch::FailureMoment::kSteps);
  EXPECT_FALSE(CallWith(Script::kIsKilled).ok());
  EXPECT_THAT(fleet_->ReportLoss().text, Not(HasSubstr("at that time")));
  fleet_->Enter(launch::FailureMoment::kGrowth);
  ASSERT_TRUE(fleet_->BeginEpoch().ok());
  EXPECT_FALSE(CallWith(Script::kIsKilled).ok());
  EXPECT_THAT(fleet_->ReportLoss().text, HasSubstr("at that time: the mesh was growing\n"));
}

TEST_F(FleetTest, AFailureBeforeTheFirstStepIsOfTheStartOrOfARestart) {
  options_.program = "/bin/false";
  Launch(2);
  EXPECT_THAT(fleet_->Finish(launched_).text,
              HasSubstr("at that time: the processes of the job were starting\n"));
  options_.epoch = 3;
  Launch(2);
  EXPECT_THAT(fleet_->Finish(launched_).text,
              HasSubstr("at that time: all processes of the job were starting again\n"));
}

TEST_F(FleetTest, ReportsCountFromTheStartOfTheRunWhicheverStartThisIs) {
  // The run began a day ago, and its processes start for the second time.
  constexpr double kDaySeconds = 86'400;
  options_.run_began_ns = MonotonicClock().NowNs() - static_cast<int64_t>(kDaySeconds * 1e9);
  options_.epoch = 2;
  options_.recovers = true;
  const auto seconds_of = [](const launch::FailureReport& report) {
    double seconds = 0;
    std::sscanf(report.text.c_str(), "%*s %*s failed after %lf s of the run\n", &seconds);
    return seconds;
  };
  Launch(2);
  ASSERT_EQ(launched_, absl::OkStatus());
  fleet_->AllowRecovery();
  EXPECT_FALSE(CallWith(Script::kIsKilled).ok());
  EXPECT_GE(seconds_of(fleet_->ReportLoss()), kDaySeconds);
  EXPECT_GE(seconds_of(fleet_->Finish(absl::UnavailableError("it ends"))), kDaySeconds);
}

TEST_F(FleetTest, AProcessThatIsGivenUpBecauseItIsSlowIsALossWithTheEvidence) {
  ASSERT_NO_FATAL_FAILURE(LaunchToRecover(2));
  EXPECT_EQ(fleet_->GiveUp(WorkerId(1), "its acts take long").code(),
            absl::StatusCode::kUnavailable);
  const launch::FailureReport report = fleet_->ReportLoss();
  EXPECT_EQ(report.what, launch::kSlowProcess);
  EXPECT_THAT(report.text, HasSubstr("ranks 2-3"));
  EXPECT_THAT(report.text, HasSubstr("slow: its acts take long"));
  const auto anew = fleet_->BeginEpoch();
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(*anew, ::testing::ElementsAre(WorkerId(1)));
  EXPECT_EQ(CallWith(Script::kAnswers), absl::OkStatus());
  EXPECT_THAT(fleet_->Finish(absl::OkStatus()).text, IsEmpty()) << "the old process is forgotten";
}

TEST_F(FleetTest, AProgramThatDoesNotExistIsAnErrorOfLaunch) {
  options_.program = "/no/such/worker";
  Launch(2);
  EXPECT_THAT(std::string(launched_.message()), HasSubstr("/no/such/worker"));
  EXPECT_THAT(fleet_->Finish(launched_).text, IsEmpty());
}

TEST_F(FleetTest, AProgramThatIsNoWorkerIsNamedWithItsEnd) {
  options_.program = "/bin/false";
  Launch(2);
  EXPECT_FALSE(launched_.ok());
  EXPECT_THAT(fleet_->Finish(launched_).text, HasSubstr("code 1"));
}

}  // namespace
}  // namespace weir::fleet

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "worker") {
    weir::fleet::StopsAtStart::StopIfTold(argv[2]);
    return weir::fleet::RunScriptedWorker();
  }
  ::testing::InitGoogleMock(&argc, argv);
  weir::fleet::StopsAtStart::NameFile();
  return RUN_ALL_TESTS();
}
