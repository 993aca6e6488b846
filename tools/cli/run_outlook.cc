#include "tools/cli/run_outlook.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "runtime/base/unit_text.h"

namespace weir::cli {
namespace {

// Returns the word as a shell reads it.
std::string ForShell(const std::string& word) {
  constexpr absl::string_view kPlain = "_-+=:,./@%";
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
  return is_plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

bool NamesStart(absl::string_view flag) { return flag == "--resume" || flag == "--init"; }

std::string CommandToResume(const TypedCommand& command, const std::string& checkpoint) {
  std::vector<std::string> words = {ForShell(command.program)};
  const std::string resume = absl::StrCat("--resume ", ForShell(checkpoint));
  bool has_options = true;  // before "--", behind which each word is the job
  for (size_t i = 0; i < command.arguments.size(); ++i) {
    const std::string& word = command.arguments[i];
    if (has_options && word == "--") {
      has_options = false;
      words.push_back(resume);
    }
    if (has_options && word == "--average") continue;  // of --init
    if (has_options && NamesStart(word)) {
      ++i;  // its value
    } else if (!has_options || !NamesStart(word.substr(0, word.find('=')))) {
      words.push_back(ForShell(word));
    }
  }
  if (has_options) words.push_back(resume);
  return absl::StrJoin(words, " ");
}

// Returns what the user must do beside the command, if nobody can read the job a second time.
std::string HowToGiveJob(const std::string& job) {
  if (job == "-" || job == "/dev/stdin") return ", with the same job on standard input again";
  const bool is_stream =
      absl::StartsWith(job, "/dev/fd/") || absl::StartsWith(job, "/proc/self/fd/");
  return is_stream ? absl::StrCat(", with the same job in the place of ", job) : "";
}

}  // namespace

std::string HowToGoOn(const TypedCommand& command, const std::string& checkpoint) {
  return absl::StrCat("to go on from the last checkpoint", HowToGiveJob(command.job), ": ",
                      CommandToResume(command, checkpoint));
}

std::string EndedAfterTheWork(const std::vector<std::string>& incomplete) {
  if (incomplete.empty()) {
    return "WARNING: that came after the last step, when every file was written: nothing is lost, "
           "and the job does not start again";
  }
  return absl::StrCat(
      "WARNING: that came after the last step: no step is lost, and the job does not start again. "
      "Not complete: ",
      absl::StrJoin(incomplete, ", "));
}

std::string GrowthOutlook(const launch::GrowthPolicy& growth, const launch::RestartPolicy& restarts,
                          int64_t now_ms) {
  if (growth.has_given_up()) {
    return absl::StrCat(
        "WARNING: the mesh does not grow any more: processes were lost again ", growth.lost_again(),
        growth.lost_again() == 1 ? " time" : " times in a row",
        " soon after they had come back (--max-restarts, --restart-window). Try: find what ends "
        "them; then end this run (Ctrl-C) and start it with --resume, on the whole mesh");
  }
  const std::optional<int64_t> turn_ms = growth.NextTurnMs();
  if (!turn_ms.has_value())
    return "the mesh does not grow again by itself, because --grow-after is 0";
  const int64_t room_ms = restarts.RoomAtMs(now_ms);
  const int64_t wait_ms = std::max<int64_t>(std::max(*turn_ms, room_ms) - now_ms, 0);
  return absl::StrCat("the mesh grows again when the lost processes can start: that is tried in ",
                      DurationText(static_cast<double>(wait_ms) * 1e-3),
                      room_ms > *turn_ms
                          ? ", when fewer failures lie within --restart-window (--max-restarts)"
                          : " (--grow-after)");
}

}  // namespace weir::cli
