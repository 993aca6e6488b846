#include "tools/hosts/hosts_supervisor.h"

#include <signal.h>
#include <stdio.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/build_id.h"
#include "runtime/base/status.h"
#include "tools/hosts/agent.h"
#include "tools/hosts/meeting.h"
#include "tools/launch/supervisor_conformance.h"

namespace weir::hosts {
namespace {

using launch::Supervisor;
using launch::SupervisorOptions;
using launch::WorkerExit;
using launch::WorkerLaunch;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kTestAgent[] = "tools/hosts/testing/test_agent";

// Returns the build id of the test agent, which is a program of its own.
std::string BuildIdOfAgents() {
  FILE* const agent = ::popen(absl::StrCat(kTestAgent, " build-id").c_str(), "re");
  char text[256] = "";
  const size_t size = ::fread(text, 1, sizeof(text), agent);
  ::pclose(agent);
  return std::string(text, size);
}

HostsSupervisorOptions OptionsOf(const SupervisorOptions& workers) {
  HostsSupervisorOptions options;
  options.workers = workers;
  options.build_id = BuildIdOfAgents();
  options.program = launch::kTestWorker;
  return options;
}

HostAgent CommandOf(const std::string& host, const std::string& verb = "") {
  HostAgent command{host, {kTestAgent}, "another host"};
  if (!verb.empty()) command.arguments.push_back(verb);
  return command;
}

// Starts the workers on three hosts in turn.
absl::StatusOr<std::unique_ptr<Supervisor>> StartOn(const IdVector<HostId, HostAgent>& three_hosts,
                                                    const IdVector<WorkerId, WorkerLaunch>& workers,
                                                    const HostsSupervisorOptions& options) {
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach(three_hosts, options);
  if (!supervisor.ok()) return supervisor.status();
  IdVector<WorkerId, WorkerLaunch> spread = workers;
  for (const WorkerId w : spread.ids()) spread[w].host = HostId(w.value() % 3);
  if (absl::Status status = (*supervisor)->StartWorkers(spread); !status.ok()) return status;
  return std::unique_ptr<Supervisor>(*std::move(supervisor));
}

// Starts the workers on agents of this host, one of which speaks after a greeting.
absl::StatusOr<std::unique_ptr<Supervisor>> StartOnThreeHosts(
    const IdVector<WorkerId, WorkerLaunch>& workers, const SupervisorOptions& options) {
  return StartOn({CommandOf("a"), CommandOf("b", "greet"), CommandOf("c")}, workers,
                 OptionsOf(options));
}

// Returns hosts of which each is reached through the one before it.
IdVector<HostId, HostAgent> Chain(IdVector<HostId, HostAgent> hosts) {
  ReachThroughOthers(1, &hosts);
  return hosts;
}

absl::StatusOr<std::unique_ptr<Supervisor>> StartOnAChain(
    const IdVector<WorkerId, WorkerLaunch>& workers, const SupervisorOptions& options) {
  return StartOn(Chain({CommandOf("a"), CommandOf("b", "greet"), CommandOf("c")}), workers,
                 OptionsOf(options));
}

// Starts the workers on three agents that have come to a meeting, and that threads of this process
// are.
absl::StatusOr<std::unique_ptr<Supervisor>> StartAtAMeeting(
    const IdVector<WorkerId, WorkerLaunch>& workers, const SupervisorOptions& options) {
  std::unique_ptr<Meeting> meeting = *Meeting::Open({"127.0.0.1"}, 0, *MakeSecret());
  for (int task = 0; task < 3; ++task) {
    std::thread([invitation = meeting->invitation(), task] {
      absl::StatusOr<Joined> joined =
          Join([&] { return invitation; }, TaskId(task), absl::StrCat("h", task), 10'000);
      ASSERT_TRUE(joined.ok()) << joined.status();
      const std::string address = joined->starter_address;
      EXPECT_EQ(address, "127.0.0.1");
      EXPECT_EQ(RunAgent(std::move(joined->stream), address, AgentOptions()), 69);
    }).detach();
  }
  absl::StatusOr<std::vector<Visitor>> visitors =
      meeting->Await({TaskId(0), TaskId(1), TaskId(2)}, 10'000, [] { return absl::OkStatus(); });
  if (!visitors.ok()) return visitors.status();
  IdVector<HostId, HostAgent> agents;
  for (Visitor& visitor : *visitors) agents.push_back({visitor.name, {}, "", visitor.stream});
  HostsSupervisorOptions of_hosts = OptionsOf(options);
  of_hosts.build_id = BuildId();
  return StartOn(agents, workers, of_hosts);
}

// Agents that have come to a meeting, and that threads of this process are.
class MetAgents {
 public:
  explicit MetAgents(const std::vector<AgentOptions>& options) : codes_(options.size(), -1) {
    std::unique_ptr<Meeting> meeting = *Meeting::Open({"127.0.0.1"}, 0, *MakeSecret());
    std::vector<TaskId> tasks;
    for (size_t task = 0; task < options.size(); ++task) {
      tasks.emplace_back(static_cast<int32_t>(task));
      threads_.emplace_back(
          [this, invitation = meeting->invitation(), of = options[task], task, id = tasks.back()] {
            absl::StatusOr<Joined> joined = Join([&] { return invitation; }, id, "h", 10'000);
            ASSERT_TRUE(joined.ok()) << joined.status();
            codes_[task] = RunAgent(std::move(joined->stream), "", of);
          });
    }
    absl::StatusOr<std::vector<Visitor>> visitors =
        meeting->Await(tasks, 10'000, [] { return absl::OkStatus(); });
    EXPECT_TRUE(visitors.ok()) << visitors.status();
    for (Visitor& visitor : *visitors) agents_.push_back({visitor.name, {}, "", visitor.stream});
  }
  ~MetAgents() { codes(); }

  const IdVector<HostId, HostAgent>& agents() const { return agents_; }
  // Waits for the ends of the agents.
  const std::vector<int>& codes() {
    for (const HostAgent& agent : agents_) agent.stream->Close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    agents_.clear();
    return codes_;
  }

 private:
  std::vector<int> codes_;  // by agent
  IdVector<HostId, HostAgent> agents_;
  std::vector<std::thread> threads_;
};

constexpr AgentOptions kOfJob = {AgentSignals::kIgnored, AgentCode::kOfJob};
constexpr AgentOptions kDone = {AgentSignals::kIgnored, AgentCode::kDone};

TEST(AgentCodeTest, TasksThatAreJudgedByThemselvesEndWithTheCodeOfTheJob) {
  MetAgents agents({kOfJob, kDone});
  HostsSupervisorOptions options;
  options.build_id = BuildId();
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach(agents.agents(), options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  (*supervisor)->TellEnd(137);
  supervisor->reset();
  EXPECT_THAT(agents.codes(), ::testing::ElementsAre(137, 0));
}

TEST(AgentCodeTest, AgentsOfARefusedJobEndWithItsCode) {
  MetAgents agents({kOfJob, kDone});
  EndAgents(agents.agents(), 65);
  EXPECT_THAT(agents.codes(), ::testing::ElementsAre(65, 0));
}

TEST(AgentCodeTest, AgentsOfAnotherBuildEndWithTheCodeOfTheRefusal) {
  MetAgents agents({kOfJob});
  HostsSupervisorOptions options;
  options.build_id = "of-yesterday";
  const absl::Status refused = HostsSupervisor::Reach(agents.agents(), options).status();
  EXPECT_THAT(agents.codes(), ::testing::ElementsAre(ExitCode(refused)));
}

TEST(AgentCodeTest, AStarterThatIsGoneWithoutAWordIsAFailure) {
  MetAgents agents({kOfJob, kDone});
  EXPECT_THAT(agents.codes(), ::testing::ElementsAre(69, 69));
}

using launch::SupervisorConformance;
INSTANTIATE_TEST_SUITE_P(Meeting, SupervisorConformance, ::testing::Values(&StartAtAMeeting));
INSTANTIATE_TEST_SUITE_P(ThreeHosts, SupervisorConformance, ::testing::Values(&StartOnThreeHosts));
INSTANTIATE_TEST_SUITE_P(Chain, SupervisorConformance, ::testing::Values(&StartOnAChain));

TEST(ReachThroughOthersTest, NobodyStartsMoreThanItsShareOfCommands) {
  IdVector<HostId, HostAgent> hosts = {CommandOf("h0"), CommandOf("localhost")};
  for (int host = 1; host < 9; ++host) hosts.push_back(CommandOf(absl::StrCat("h", host)));
  ReachThroughOthers(2, &hosts);
  std::vector<int> through;
  for (const HostAgent& host : hosts) through.push_back(host.through.value());
  EXPECT_THAT(through, ::testing::ElementsAre(-1, -1, -1, 0, 0, 2, 2, 3, 3, 4));
}

class HostsSupervisorTest : public ::testing::Test {
 protected:
  HostsSupervisorTest() {
    options_.log_directory = folder_.path();
    options_.console = &console_;
  }
  ~HostsSupervisorTest() override {
    supervisor_.reset();
    EXPECT_EQ(census_.Leftovers(), "");
  }
  absl::Status Reach(const IdVector<HostId, HostAgent>& hosts) {
    absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
        HostsSupervisor::Reach(hosts, OptionsOf(options_));
    if (supervisor.ok()) supervisor_ = *std::move(supervisor);
    return supervisor.status();
  }
  void Start(const std::vector<std::string>& verbs) {
    IdVector<WorkerId, WorkerLaunch> workers;
    for (const std::string& verb : verbs) {
      const int number = workers.next_id().value();
      workers.push_back(
          {{"", verb}, absl::StrCat("rank ", number), {RankId(number)}, HostId(number)});
    }
    ASSERT_TRUE(supervisor_->StartWorkers(workers).ok());
  }
  WorkerExit NextExit() { return launch::NextExitOf(supervisor_.get()); }
  void WaitForText(const std::string& text) {
    while (console_.str().find(text) == std::string::npos) ASSERT_TRUE(supervisor_->Wait(10).ok());
  }

  const TemporaryFolder folder_;
  launch::ProcessCensus census_;
  std::ostringstream console_;
  SupervisorOptions options_;
  std::unique_ptr<HostsSupervisor> supervisor_;
};

TEST_F(HostsSupervisorTest, AgentsTellOfTheirHosts) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  ASSERT_EQ(supervisor_->facts().size(), 2u);
  for (const HostFacts& facts : supervisor_->facts()) {
    EXPECT_FALSE(facts.name.empty());
    EXPECT_GT(facts.agent_pid, 0);
    EXPECT_FALSE(facts.cores.empty());
    EXPECT_GT(facts.memory_bytes, 0);
  }
}

TEST_F(HostsSupervisorTest, EveryHostThatDoesNotComeIsNamedWithWhatItsCommandPrinted) {
  const absl::Status status =
      Reach({CommandOf("good"), CommandOf("shut", "refuse"), CommandOf("loud", "chatter")});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("W0872 at host 'shut': expected an agent through "
                              "`test_agent`; found `test_agent` ended: exit code 255; it printed: "
                              "user@host: Permission denied (publickey). Try: another host; `weir "
                              "doctor --commands` shows the whole command."));
  EXPECT_THAT(text, HasSubstr("W0872 at host 'loud'"));
  EXPECT_THAT(text, HasSubstr("something other than an agent speaks"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("'good'")));
}

TEST_F(HostsSupervisorTest, ACommandThatCannotBeStartedEndsTheOthers) {
  HostAgent none = CommandOf("b");
  none.arguments[0] = "/no/such/program";
  const absl::Status status = Reach({CommandOf("a"), none});
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program"));
}

TEST_F(HostsSupervisorTest, AHostThatSaysNothingIsNamedAfterTheLimit) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.hello_limit_ms = 1000;
  const absl::Status status =
      HostsSupervisor::Reach({CommandOf("mute", "silent")}, options).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("found nothing within 1 s"));
}

TEST_F(HostsSupervisorTest, AHostBehindOneThatSaysNothingIsReachedFromHere) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.hello_limit_ms = 3000;
  const std::string text(
      HostsSupervisor::Reach(Chain({CommandOf("a"), CommandOf("mute", "silent"), CommandOf("c")}),
                             options)
          .status()
          .message());
  EXPECT_THAT(text, HasSubstr("W0872 at host 'mute'"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("'c'")));
  EXPECT_THAT(console_.str(), HasSubstr("host 'mute' is not reached from 'a' (nothing within "));
  EXPECT_THAT(console_.str(), HasSubstr("host 'c' is not reached from 'mute' (it says nothing "));
}

TEST_F(HostsSupervisorTest, AHostWhoseCommandHangsOnAnotherIsReachedFromHere) {
  ::setenv("KEY_OF_TEST", "of the starter", 1);
  HostsSupervisorOptions options = OptionsOf(options_);
  options.hello_limit_ms = 3000;
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor = HostsSupervisor::Reach(
      Chain({CommandOf("a", "bare"), CommandOf("b", "silent-without-key"), CommandOf("c")}),
      options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  supervisor_ = *std::move(supervisor);
  EXPECT_THAT(console_.str(), HasSubstr("host 'b' is not reached from 'a' (nothing within 1.0 s), "
                                        "so the starter reaches it itself\n"));
  Start({"exit", "exit", "exit"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NextExit().lost, "");
}

TEST_F(HostsSupervisorTest, HostsBehindOneWhoseCommandCannotBeStartedAreReachedFromHere) {
  HostAgent none = CommandOf("b");
  none.arguments[0] = "/no/such/program";
  HostsSupervisorOptions options = OptionsOf(options_);
  options.hello_limit_ms = 3'600'000;  // nobody waits for it
  const std::string text(
      HostsSupervisor::Reach(Chain({CommandOf("a"), none, CommandOf("c")}), options)
          .status()
          .message());
  EXPECT_THAT(text, HasSubstr("W0872 at host 'b'"));
  EXPECT_THAT(text, HasSubstr("/no/such/program"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("'c'")));
}

TEST_F(HostsSupervisorTest, AStoppedAgentIsNamedAndNotTheHostsBehindIt) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.hello_limit_ms = 5000;
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach(Chain({CommandOf("a"), CommandOf("b"), CommandOf("c")}), options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  supervisor_ = *std::move(supervisor);
  const pid_t stopped = static_cast<pid_t>(supervisor_->facts()[HostId(1)].agent_pid);
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  const absl::Status status =
      supervisor_->StartWorkers({{{"", "wait"}, "rank 0", {RankId(0)}, HostId(2)}});
  ASSERT_EQ(::kill(stopped, SIGCONT), 0);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("W0874 at host 'b': expected its workers; found no answer of its agent, "
                         "through which host 'c' is reached. Try: look at that host"));
}

TEST_F(HostsSupervisorTest, AnAgentOfAnotherBuildIsRefused) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.build_id = "of-yesterday";
  const absl::Status status = HostsSupervisor::Reach({CommandOf("a")}, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("W0873 at host 'a': expected build of-yesterday; found build "));
}

TEST_F(HostsSupervisorTest, ALostAgentIsTheEndOfItsWorkersAndOfNoOthers) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  Start({"wait", "wait"});
  WaitForText("[rank 0] ready");
  WaitForText("[rank 1] ready");
  ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->facts()[HostId(1)].agent_pid), SIGKILL), 0);
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, WorkerId(1));
  EXPECT_EQ(launch::ExitText(exit),
            "the connection to host 'b' has ended: `test_agent` ended: killed by SIGKILL (9)");
  EXPECT_EQ(supervisor_->num_running(), 1);
  EXPECT_FALSE(supervisor_->Look({WorkerId(1)}).front().is_seen);
  supervisor_.reset();
  EXPECT_EQ(census_.CollectOrphans(), 1);  // its death signal has ended it
}

TEST_F(HostsSupervisorTest, AWorkerStartsAgainOnItsHostAndOnOthers) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b"), CommandOf("c")}).ok());
  Start({"wait", "wait"});
  const int64_t first = supervisor_->pid(WorkerId(0)), second = supervisor_->pid(WorkerId(1));
  ASSERT_EQ(::kill(static_cast<pid_t>(second), SIGKILL), 0);
  EXPECT_EQ(NextExit().signal, SIGKILL);
  ASSERT_TRUE(supervisor_->StartAgain(WorkerId(1)).ok());
  const int64_t again = supervisor_->pid(WorkerId(1));
  EXPECT_NE(again, second);
  ASSERT_EQ(::kill(static_cast<pid_t>(again), SIGKILL), 0);
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.pid, again);

  // A host without workers, and one that has some.
  EXPECT_EQ(supervisor_->LostText(HostId(1)), "");
  for (const int host : {2, 0}) {
    ASSERT_TRUE(supervisor_->StartAgainOn(WorkerId(1), HostId(host)).ok());
    EXPECT_TRUE(supervisor_->Tell(WorkerId(1), "hello").ok());
    ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->pid(WorkerId(1))), SIGKILL), 0);
    EXPECT_EQ(NextExit().worker, WorkerId(1));
  }
  ASSERT_TRUE(supervisor_->StartAgainOn(WorkerId(1), HostId(2)).ok());
  ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->facts()[HostId(1)].agent_pid), SIGKILL), 0);
  while (supervisor_->LostText(HostId(1)).empty()) ASSERT_TRUE(supervisor_->Wait(10).ok());
  EXPECT_EQ(supervisor_->num_running(), 2) << "its worker has another host";
  EXPECT_EQ(supervisor_->pid(WorkerId(0)), first);
  const absl::Status lost = supervisor_->StartAgainOn(WorkerId(1), HostId(1));
  EXPECT_THAT(std::string(lost.message()), StartsWith("W0874 at host 'b'"));
}

TEST_F(HostsSupervisorTest, ALostHostThatIsReachedAgainTakesWorkersAlsoWithoutLogs) {
  options_.log_directory = folder_.PathFor("logs");
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  Start({"wait", "wait"});
  WaitForText("[rank 1] ready");
  supervisor_->ReachAgain(HostId(1));  // it is there
  EXPECT_EQ(supervisor_->num_running(), 2);
  for (int time = 0; time < 2; ++time) {
    const int64_t agent = supervisor_->facts()[HostId(1)].agent_pid;
    ASSERT_EQ(::kill(static_cast<pid_t>(agent), SIGKILL), 0);
    const WorkerExit exit = NextExit();
    EXPECT_EQ(exit.worker, WorkerId(1));
    EXPECT_THAT(exit.lost, HasSubstr("the connection to host 'b' has ended"));
    supervisor_->ReachAgain(HostId(1));
    EXPECT_NE(supervisor_->LostText(HostId(1)), "") << "its agent has not spoken yet";
    while (!supervisor_->LostText(HostId(1)).empty()) ASSERT_TRUE(supervisor_->Wait(10).ok());
    EXPECT_NE(supervisor_->facts()[HostId(1)].agent_pid, agent);
    std::filesystem::remove_all(options_.log_directory);
    if (time == 1) std::ofstream(options_.log_directory) << "a file in the place of the folder";
    ASSERT_TRUE(supervisor_->StartAgain(WorkerId(1)).ok());
    EXPECT_TRUE(supervisor_->Tell(WorkerId(1), "hello").ok());
    EXPECT_EQ(supervisor_->num_running(), 2);
  }
  ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->pid(WorkerId(1))), SIGKILL), 0);
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, WorkerId(1));
  EXPECT_EQ(exit.signal, SIGKILL);
  supervisor_.reset();
  EXPECT_GE(census_.CollectOrphans(), 1);  // the workers whose agents were killed
}

TEST_F(HostsSupervisorTest, ALostHostWhoseCommandFailsStaysLostUntilACommandBringsItsAgent) {
  const std::string command = absl::StrCat(folder_.path(), "/agent");
  const std::string agent = std::filesystem::absolute(kTestAgent).string();
  std::filesystem::create_symlink(agent, command);
  HostAgent b = CommandOf("b");
  b.arguments[0] = command;
  ASSERT_TRUE(Reach({CommandOf("a"), b}).ok());
  Start({"wait"});
  ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->facts()[HostId(1)].agent_pid), SIGKILL), 0);
  while (supervisor_->LostText(HostId(1)).empty()) ASSERT_TRUE(supervisor_->Wait(10).ok());
  for (const std::string& broken : {std::string("/bin/false"), std::string("/nowhere")}) {
    std::filesystem::remove(command);
    std::filesystem::create_symlink(broken, command);
    supervisor_->ReachAgain(HostId(1));
    for (int look = 0; look < 20; ++look) ASSERT_TRUE(supervisor_->Wait(10).ok());
    EXPECT_NE(supervisor_->LostText(HostId(1)), "");
    EXPECT_EQ(supervisor_->num_running(), 1);
  }
  std::filesystem::remove(command);
  std::filesystem::create_symlink(agent, command);
  supervisor_->ReachAgain(HostId(1));
  while (!supervisor_->LostText(HostId(1)).empty()) ASSERT_TRUE(supervisor_->Wait(10).ok());
}

TEST_F(HostsSupervisorTest, AHostThatMayLackIsLostIfItDoesNotCome) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.may_lack = {HostId(1)};
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach({CommandOf("a"), CommandOf("b", "refuse")}, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  EXPECT_EQ((*supervisor)->LostText(HostId(0)), "");
  EXPECT_THAT((*supervisor)->LostText(HostId(1)), HasSubstr("Permission denied"));
}

TEST_F(HostsSupervisorTest, ALostHostIsTheEndOfThoseThatAreReachedThroughIt) {
  ASSERT_TRUE(Reach(Chain({CommandOf("a"), CommandOf("b"), CommandOf("c")})).ok());
  Start({"wait", "wait", "wait"});
  for (const char* text : {"[rank 0] ready", "[rank 1] ready", "[rank 2] ready"}) WaitForText(text);
  ASSERT_EQ(::kill(static_cast<pid_t>(supervisor_->facts()[HostId(1)].agent_pid), SIGKILL), 0);
  const WorkerExit first = NextExit();
  EXPECT_EQ(first.worker, WorkerId(1));
  EXPECT_EQ(launch::ExitText(first),
            "the connection to host 'b' has ended: `test_agent` ended: killed by SIGKILL (9)");
  const WorkerExit second = NextExit();
  EXPECT_EQ(second.worker, WorkerId(2));
  EXPECT_EQ(launch::ExitText(second),
            "the connection to host 'c' has ended: the connection to its agent ended: host 'b', "
            "through which it is reached, is lost");
  EXPECT_EQ(supervisor_->num_running(), 1);
  supervisor_.reset();
  // The worker of b, the agent of c, and that agent's worker, unless the agent has collected it.
  EXPECT_GE(census_.CollectOrphans(), 2);
}

TEST_F(HostsSupervisorTest, AHostThatAnotherDoesNotReachIsReachedFromHere) {
  ::setenv("KEY_OF_TEST", "of the starter", 1);
  ASSERT_TRUE(
      Reach(Chain({CommandOf("a", "bare"), CommandOf("b", "need-key"), CommandOf("c")})).ok());
  EXPECT_THAT(
      console_.str(),
      HasSubstr("host 'b' is not reached from 'a' (`test_agent` ended: exit code 255; it "
                "printed: user@host: Permission denied (publickey)), so the starter reaches "
                "it itself\n"));
  Start({"exit", "exit", "exit"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(NextExit().lost, "");
}

TEST_F(HostsSupervisorTest, AHostThatNobodyReachesIsNamedBesideThoseBehindIt) {
  const std::string text(
      Reach(Chain({CommandOf("a"), CommandOf("shut", "refuse"), CommandOf("c")})).message());
  EXPECT_THAT(text, HasSubstr("W0872 at host 'shut': expected an agent through `test_agent`; found "
                              "`test_agent` ended: exit code 255"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("'c'")));
  EXPECT_THAT(console_.str(), HasSubstr("host 'c' is not reached from 'shut'"));
}

TEST_F(HostsSupervisorTest, OneWorkerIsKilledOnItsHostAndTheOthersRunOn) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b"), CommandOf("c")}).ok());
  Start({"exit", "wait", "stop-itself"});
  EXPECT_EQ(NextExit().worker, WorkerId(0));
  supervisor_->Kill(WorkerId(0));  // it has ended
  supervisor_->Kill(WorkerId(2));
  const WorkerExit killed = NextExit();
  EXPECT_EQ(killed.worker, WorkerId(2));
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.sent, WorkerExit::Sent::kKilled);
  EXPECT_THAT(supervisor_->running(), ::testing::ElementsAre(WorkerId(1)));
}

TEST_F(HostsSupervisorTest, AWorkerIsLookedAtOnItsHost) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  Start({"wait", "stop-itself"});
  WaitForText("[rank 0] ready");
  while (supervisor_->Look({WorkerId(1)}).front().kind != launch::ProcessState::Kind::kStopped) {
  }
  const std::vector<launch::WorkerLook> looks = supervisor_->Look({WorkerId(1), WorkerId(0)});
  ASSERT_EQ(looks.size(), 2u);
  EXPECT_EQ(looks[0].kind, launch::ProcessState::Kind::kStopped);
  EXPECT_TRUE(looks[1].is_seen);
  EXPECT_EQ(looks[1].kind, launch::ProcessState::Kind::kAsleep);
  const std::vector<launch::WorkerLook> glances = supervisor_->Glance({WorkerId(1)});
  EXPECT_TRUE(glances.front().is_seen);
  EXPECT_EQ(glances.front().kind, launch::ProcessState::Kind::kStopped);
  while (!supervisor_->Use(WorkerId(0)).has_value() || supervisor_->Use(WorkerId(0))->is_ready)
    ASSERT_TRUE(supervisor_->Wait(100).ok());
}

TEST_F(HostsSupervisorTest, EveryHostTriesTheAddresses) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  absl::StatusOr<std::unique_ptr<ProbeTarget>> target = ProbeTarget::Open("127.0.0.1");
  ASSERT_TRUE(target.ok()) << target.status();
  const IdVector<HostId, std::vector<AddressProbe>> probes =
      supervisor_->Probe({(*target)->address(), "127.0.0.1:1", "nowhere"}, 1000);
  ASSERT_EQ(probes.size(), 2u);
  for (const std::vector<AddressProbe>& of_host : probes) {
    ASSERT_EQ(of_host.size(), 3u);
    EXPECT_EQ(of_host[0].error, "");
    EXPECT_EQ(of_host[0].local_address, "127.0.0.1");
    EXPECT_EQ(of_host[0].interface, "lo");
    EXPECT_EQ(of_host[1].error, "Connection refused");
    EXPECT_EQ(of_host[2].error, "it is no address");
  }
}

TEST_F(HostsSupervisorTest, VariablesThatTuneLibrariesReachTheHostsThatDoNotSetThem) {
  ::setenv("UCX_OF_TEST", "of the starter", 1);
  ::setenv("OMP_OF_TEST", "of the starter", 1);
  ASSERT_TRUE(Reach({CommandOf("a", "bare")}).ok());
  Start({"variables"});
  EXPECT_EQ(NextExit().code, 0);
  EXPECT_THAT(console_.str(), HasSubstr("UCX_OF_TEST=of the starter\n"));
  EXPECT_THAT(console_.str(), HasSubstr("OMP_OF_TEST=of this host\n"));
}

TEST_F(HostsSupervisorTest, HostsListenForEachOtherAndTellTheTime) {
  ASSERT_TRUE(Reach({CommandOf("a"), CommandOf("b")}).ok());
  const IdVector<HostId, std::vector<std::string>> addresses = supervisor_->ListenForProbes();
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_EQ(addresses[HostId(0)].size(), OwnAddresses().size());
  for (const HostId host : addresses.ids()) {
    const IdVector<HostId, std::vector<AddressProbe>> probes =
        supervisor_->Probe(addresses[HostId(1 - host.value())], 1000);
    for (const AddressProbe& probe : probes[host]) EXPECT_EQ(probe.error, "");
  }
  for (const std::optional<int64_t>& offset_ns : supervisor_->ClockOffsetsNs()) {
    ASSERT_TRUE(offset_ns.has_value());
    EXPECT_LT(std::abs(*offset_ns), 1'000'000'000);  // it is one clock
  }
}

TEST_F(HostsSupervisorTest, AWorkerHasVariablesOfItsOwnAndInheritsAllIfItShall) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.workers.program = launch::WorkerProgram::kOfUser;
  ::setenv("NOT_LISTED_OF_TEST", "of the host", 1);
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach({CommandOf("a")}, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  supervisor_ = *std::move(supervisor);
  WorkerLaunch worker = {{"", "variables"}, "rank 0", {RankId(0)}};
  worker.variables = {"UCX_OF_TEST=of the rank", "NEW_OF_TEST="};
  ASSERT_TRUE(supervisor_->StartWorkers({worker}).ok());
  EXPECT_EQ(NextExit().code, 0);
  EXPECT_THAT(console_.str(), HasSubstr("UCX_OF_TEST=of the rank\n"));
  EXPECT_THAT(console_.str(), HasSubstr("NEW_OF_TEST=\n"));
  EXPECT_THAT(console_.str(), HasSubstr("NOT_LISTED_OF_TEST=of the host\n"));
}

TEST_F(HostsSupervisorTest, FilesTravelToTheHostsAndFromThem) {
  ASSERT_TRUE(Reach(Chain({CommandOf("a"), CommandOf("b")})).ok());
  const std::string content = absl::StrCat(std::string(9'000'000, 'x'), "end");
  const std::string from = folder_.PathFor("data");
  std::ofstream(from, std::ios::binary) << content;
  const IdVector<HostId, std::string> to = {folder_.PathFor("a/data"), folder_.PathFor("b/data")};
  ASSERT_TRUE(supervisor_->ShipFile(from, to).ok());
  for (const HostId host : to.ids()) {
    absl::StatusOr<std::string> fetched = supervisor_->FetchFile(host, to[host], 16'000'000);
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    EXPECT_TRUE(*fetched == content);
  }
  EXPECT_EQ(supervisor_->FetchFile(HostId(0), to[HostId(0)], 5).status().code(),
            absl::StatusCode::kResourceExhausted);
  supervisor_->RemoveFiles({{to[HostId(0)], to[HostId(0)] + "no"}, {}});
  EXPECT_EQ(supervisor_->FetchFile(HostId(0), to[HostId(0)], 5).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(supervisor_->FetchFile(HostId(1), to[HostId(0)] + "no", 5).status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status refused =
      supervisor_->ShipFile(from, {to[HostId(0)], absl::StrCat(from, "/below/a/file")});
  EXPECT_THAT(std::string(refused.message()),
              StartsWith(absl::StrCat("W0881 at ", from, "/below/a/file on host 'b'")));
  EXPECT_THAT(std::string(supervisor_->ShipFile(folder_.PathFor("none"), to).message()),
              HasSubstr("cannot read"));
}

TEST_F(HostsSupervisorTest, WorkersThatCannotStartAreNamedWithTheirHost) {
  HostsSupervisorOptions options = OptionsOf(options_);
  options.program = "no/such/program";
  absl::StatusOr<std::unique_ptr<HostsSupervisor>> supervisor =
      HostsSupervisor::Reach({CommandOf("a")}, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  const absl::Status status = (*supervisor)->StartWorkers({{{"", "wait"}, "rank 0", {RankId(0)}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("W0874 at host 'a': "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/program"));
}

}  // namespace
}  // namespace weir::hosts
