// weir top: shows the runs of this user on this machine, as they go on, in a terminal.
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/cli/cli_verbs.h"
#include "tools/console/console.h"
#include "tools/launch/signal_watch.h"
#include "tools/live/live_reader.h"
#include "tools/live/top_text.h"

namespace weir::cli {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kMsPerSecond = 1000;
constexpr int kRowsMax = 16;
constexpr char kClearScreen[] = "\x1b[H\x1b[J";  // from the first line on

struct TopArguments {
  std::string run;
  double every_seconds = 1;
  bool once = false;
  bool json = false;
};

std::vector<live::SeenRun> Seen(const std::vector<std::unique_ptr<live::LiveReader>>& readers) {
  std::vector<live::SeenRun> seen;
  for (const std::unique_ptr<live::LiveReader>& reader : readers) {
    absl::StatusOr<live::SeenRun> run = reader->See();
    if (run.ok()) seen.push_back(*std::move(run));
  }
  return seen;
}

// Returns the screen: the run that is followed, or a table of all runs if there are several.
std::string ScreenOf(const std::vector<live::SeenRun>& seen) {
  const int64_t now_unix_ms = RealTimeNs() / kNsPerMs;
  const int terminal = console::TerminalColumns(STDOUT_FILENO);
  const int columns = terminal > 0 ? terminal : live::kTopColumns;
  if (seen.empty()) return "no run of this user goes on on this machine\n";
  if (seen.size() == 1) return live::TopText(seen.front(), now_unix_ms, kRowsMax, columns);
  return live::RunsText(seen, now_unix_ms, columns) +
         "\nweir top RUN shows one of them, by its process id or its name\n";
}

absl::Status Top(const TopArguments& arguments, const CliContext& context) {
  std::vector<std::unique_ptr<live::LiveReader>> readers;
  if (!arguments.run.empty()) {
    WEIR_ASSIGN_OR_RETURN(auto reader, live::FindRun(arguments.run));
    readers.push_back(std::move(reader));
  } else {
    readers = live::FindRuns();
  }
  if (arguments.json) {
    for (const auto& reader : readers) {
      WEIR_ASSIGN_OR_RETURN(const std::string state, reader->StateText());
      *context.out << live::ParseState(state).dump(-1, ' ', /*ensure_ascii=*/true,
                                                   nlohmann::json::error_handler_t::replace)
                   << "\n";
    }
    return absl::OkStatus();
  }
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
  if (arguments.once || !is_terminal) {
    *context.out << ScreenOf(Seen(readers));
    return absl::OkStatus();
  }
  launch::SignalWatch watch(launch::SecondSignal::kEndsTheProcess);
  pollfd signal = {watch.descriptor(), POLLIN, 0};
  while (!watch.interrupted()) {
    if (arguments.run.empty() && readers.size() != 1) readers = live::FindRuns();
    const std::vector<live::SeenRun> seen = Seen(readers);
    // The text itself has no control characters, whoever wrote the record.
    *context.raw_out << kClearScreen << std::flush;
    *context.out << ScreenOf(seen) << std::flush;
    if (seen.size() == 1 && seen.front().is_over()) break;
    (void)::poll(&signal, 1, static_cast<int>(arguments.every_seconds * kMsPerSecond));
  }
  return absl::OkStatus();
}

}  // namespace

void AddTopVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* verb = AddVerb(
      app, context, "top", "Show the runs of this user on this machine as they go on",
      "  weir top                 the run that goes on, or a table of several; until Ctrl-C\n"
      "  weir top 4711            one of several, by its process id or its name\n"
      "  weir top --once          once, as lines of text\n"
      "  ssh HOST weir top --once the machine on which weir train was started\n"
      "weir view --attach shows the same run in a browser, with its curves.",
      [arguments, context] { return Top(*arguments, *context); });
  verb->add_option("RUN", arguments->run, "Process id of weir train, or the name of the job");
  verb->add_option("--every", arguments->every_seconds, "Seconds between two screens")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  verb->add_flag("--once", arguments->once, "Show one screen and end, as without a terminal");
  verb->add_flag("--json", arguments->json,
                 "Print the state of each run as a JSON object in a line (tools/live/live_run.h)");
}

}  // namespace weir::cli
