#include "tests/chaos/kill_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/chaos/chaos_case.h"
#include "tests/chaos/mutant_switch.h"

namespace weir::chaos {
namespace {

// A child that still runs after this long is stuck.
constexpr unsigned kSecondsMax = 60;
constexpr size_t kHowMax = 64;
constexpr const char* kUnitTestPrograms = "tests/chaos/mutated_";  // and the name of the test

std::string IdOf(int mutant) { return mutant == kNoMutant ? "" : MutantCatalogue()[mutant].id; }

// Returns "plan\nseed\nhow" of the first failure, "" if there is none.
std::string FirstFailure(uint64_t seeds) {
  for (const StandardPlan& plan : StandardPlans()) {
    absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create(plan.name);
    if (!player.ok()) return absl::StrCat(plan.name, "\n0\n", player.status().message());
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const CaseResult result = (*player)->Play(seed, CaseChooser::kAll, CaseFaults::kBySeed);
      if (!result.failure.empty()) return absl::StrCat(plan.name, "\n", seed, "\n", result.failure);
    }
  }
  return "";
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')).substr(0, kHowMax));
}

// A ChildEnd is what a child wrote to its pipe, and its status as waitpid returns it.
struct ChildEnd {
  std::string text;
  int status = 0;
};

// Runs `body` in a child, which writes to the descriptor that it is given. kSecondsMax end it.
ChildEnd RunChild(absl::FunctionRef<void(int fd)> body) {
  int ends[2];
  if (::pipe(ends) != 0) return {"no pipe", 1};
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSecondsMax);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  ChildEnd end{ReadAll(ends[0])};
  ::close(ends[0]);
  ::waitpid(child, &end.status, 0);
  return end;
}

// Returns whether a signal ended the child. If one did, the mutant is killed.
bool EndedBySignal(const ChildEnd& end, Kill* kill) {
  if (!WIFSIGNALED(end.status)) return false;
  const int signal = WTERMSIG(end.status);
  kill->killed = true;
  kill->how = signal == SIGALRM ? "never ends" : absl::StrCat("crash: ", strsignal(signal));
  return true;
}

}  // namespace

Kill TryToKillByChaos(int mutant, uint64_t seeds) {
  Kill kill{IdOf(mutant)};
  const ChildEnd end = RunChild([&](int fd) {
    TurnOn(mutant);
    const std::string failure = FirstFailure(seeds);
    (void)!::write(fd, failure.data(), failure.size());
  });
  if (EndedBySignal(end, &kill)) return kill;
  const std::vector<std::string> parts = absl::StrSplit(end.text, absl::MaxSplits('\n', 2));
  if (parts.size() < 3) {
    kill.how = end.text;
    return kill;
  }
  kill.killed = true;
  kill.by = parts[0];
  kill.seed = std::stoull(parts[1]);
  kill.how = FirstLine(parts[2]);
  return kill;
}

Kill TryToKillByUnitTest(int mutant) {
  Kill kill{IdOf(mutant)};
  kill.by = MutantCatalogue()[mutant].killed_by;
  std::string program = absl::StrCat(kUnitTestPrograms, kill.by);
  // The program gets no other variable: Bazel's variables name the report of the caller's test,
  // and the program would overwrite that report.
  std::string variable = absl::StrCat("WEIR_MUTANT=", kill.mutant);
  const ChildEnd end = RunChild([&](int fd) {
    char* arguments[] = {program.data(), nullptr};
    char* environment[] = {variable.data(), nullptr};
    ::dup2(fd, STDOUT_FILENO);
    ::execve(program.c_str(), arguments, environment);
  });
  if (EndedBySignal(end, &kill)) return kill;
  // The first failed test is in a line "[  FAILED  ] NAME (TIME)".
  constexpr std::string_view kFailed = "[  FAILED  ] ";
  const size_t failed = end.text.find(kFailed);
  kill.killed = WEXITSTATUS(end.status) == 1 && failed != std::string::npos;
  if (kill.killed) {
    const std::string line = FirstLine(std::string_view(end.text).substr(failed + kFailed.size()));
    kill.how = line.substr(0, line.find(' '));
  } else {
    kill.how = "the program found nothing, or did not run";
  }
  return kill;
}

std::vector<Kill> MakeKillTable(uint64_t seeds) {
  std::vector<Kill> table;
  const absl::Span<const Mutant> mutants = MutantCatalogue();
  for (int i = 0; i < static_cast<int>(mutants.size()); ++i) {
    const bool by_chaos = std::string_view(mutants[i].killed_by) == kKilledByChaos;
    table.push_back(by_chaos ? TryToKillByChaos(i, seeds) : TryToKillByUnitTest(i));
  }
  return table;
}

void PrintKillTable(const std::vector<Kill>& table, std::ostream& out) {
  out << absl::StrFormat("%-28s %-8s %-22s %5s  %s\n", "mutant", "killed", "by", "seed",
                         "found as");
  for (const Kill& kill : table) {
    out << absl::StrFormat("%-28s %-8s %-22s %5u  %s\n", kill.mutant, kill.killed ? "yes" : "NO",
                           kill.by, kill.seed, kill.how);
  }
  const auto killed =
      std::count_if(table.begin(), table.end(), [](const Kill& kill) { return kill.killed; });
  out << killed << " of " << table.size() << " killed\n";
}

}  // namespace weir::chaos
