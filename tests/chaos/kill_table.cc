#include "tests/chaos/kill_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/chaos/chaos_case.h"

#ifndef WEIR_PLANTED_BUGS
#error "compile with WEIR_PLANTED_BUGS, and link nothing that is not"
#endif

namespace weir::chaos {
namespace {

// A child that is still at it after this long is stuck.
constexpr unsigned kSecondsMax = 60;
constexpr size_t kHowMax = 64;

// "plan\nseed\nhow" of the first failure, "" if there is none.
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

}  // namespace

Kill TryToKill(PlantedBug bug, const std::string& name, const std::string& what, uint64_t seeds) {
  Kill kill{name, what};
  int ends[2];
  if (::pipe(ends) != 0) {
    kill.how = "no pipe";
    return kill;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSecondsMax);
    planted_bug = bug;
    const std::string failure = FirstFailure(seeds);
    const ssize_t written = ::write(ends[1], failure.data(), failure.size());
    ::_exit(written == static_cast<ssize_t>(failure.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  const std::string text = ReadAll(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    kill.killed = true;
    kill.how = WTERMSIG(status) == SIGALRM ? "never ends"
                                           : absl::StrCat("crash: ", strsignal(WTERMSIG(status)));
    return kill;
  }
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  if (parts.size() < 3) return kill;
  kill.killed = true;
  kill.plan = parts[0];
  kill.seed = std::stoull(parts[1]);
  kill.how = std::string(absl::StrSplit(parts[2], '\n').begin()->substr(0, kHowMax));
  return kill;
}

std::vector<Kill> MakeKillTable(uint64_t seeds) {
  std::vector<Kill> table;
  for (const CatalogueEntry& entry : BugCatalogue())
    table.push_back(TryToKill(entry.bug, entry.name, entry.what, seeds));
  return table;
}

void PrintKillTable(const std::vector<Kill>& table, std::ostream& out) {
  out << absl::StrFormat("%-28s %-8s %-22s %5s  %s\n", "planted bug", "killed", "plan", "seed",
                         "found as");
  for (const Kill& kill : table) {
    out << absl::StrFormat("%-28s %-8s %-22s %5u  %s\n", kill.name, kill.killed ? "yes" : "NO",
                           kill.plan, kill.seed, kill.how);
  }
  const auto killed =
      std::count_if(table.begin(), table.end(), [](const Kill& kill) { return kill.killed; });
  out << killed << " of " << table.size() << " killed\n";
}

}  // namespace weir::chaos
