#include "tools/live/top_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"

namespace weir::live {
namespace {

constexpr double kMsPerSecond = 1e3;
constexpr int kBarCells = 30;
constexpr int kBusyCells = 10;
constexpr size_t kHostColumns = 12;
constexpr size_t kReportLines = 12;
// A record that is not written for this long says so, because a step may be long or a run stopped.
constexpr int64_t kStaleMs = 3'000;
// A step that is not done after this many times the mean step, and these seconds, is late.
constexpr double kStepLateFactor = 5;
constexpr double kStepLateSeconds = 3;

double SecondsSince(int64_t then_unix_ms, int64_t now_unix_ms) {
  return static_cast<double>(std::max<int64_t>(0, now_unix_ms - then_unix_ms)) / kMsPerSecond;
}

std::string BarOf(double share, int cells) {
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * cells));
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(cells - full), '.'), "]");
}

// Returns the text, or so much of it that it fits `columns` with a mark behind it.
std::string Cut(const std::string& text, size_t columns) {
  size_t end = 0, width = 0, before_mark = 0;
  while (end < text.size()) {
    if (width + 1 == columns) before_mark = end;
    size_t next = end + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
    if (++width > columns) return text.substr(0, before_mark) + "…";
    end = next;
  }
  return text;
}

// A Screen holds lines that fit its columns.
class Screen {
 public:
  explicit Screen(int columns) : columns_(static_cast<size_t>(columns)) {}
  void Add(const std::string& line) { absl::StrAppend(&text_, Cut(line, columns_), "\n"); }
  const std::string& text() const { return text_; }

 private:
  const size_t columns_;
  std::string text_;
};

std::string NumberText(double value, const char* format) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Returns "ended (exit 0)", "killed" or the phase with its age.
std::string PhaseText(const SeenRun& run, int64_t now_unix_ms) {
  const LiveState& state = run.state;
  if (state.has_ended) return absl::StrCat("ended with exit code ", state.code);
  if (!run.is_alive) return "gone: its process ended without a word (killed?)";
  return absl::StrCat(state.phase, " for ",
                      DurationText(SecondsSince(state.phase_since_unix_ms, now_unix_ms)));
}

void AddHead(const SeenRun& run, int64_t now_unix_ms, Screen* screen) {
  const LiveState& state = run.state;
  screen->Add(absl::StrCat(state.title, "  pid ", run.pid, "  ", PhaseText(run, now_unix_ms)));
  if (state.has_facts) {
    screen->Add(absl::StrCat(ShortCount(static_cast<double>(state.parameters)), " parameters, ",
                             Plural(state.ranks, "device"),
                             state.mesh.empty() ? "" : absl::StrCat(" (", state.mesh, ")"),
                             state.where.empty() ? "" : absl::StrCat(" ", state.where), ", ",
                             BytesText(static_cast<double>(state.bytes_per_rank)), " each"));
  }
  const double age_ms = static_cast<double>(now_unix_ms - state.updated_unix_ms);
  if (!state.has_ended && run.is_alive && age_ms > kStaleMs) {
    screen->Add(absl::StrCat("no news for ", DurationText(age_ms / kMsPerSecond),
                             ": a long step, or the starter is stopped"));
  }
}

void AddStep(const SeenRun& run, int64_t now_unix_ms, Screen* screen) {
  const LiveState& state = run.state;
  if (!state.has_step) return;
  const LiveState::Step& step = state.step;
  const double done =
      state.steps > 0 ? static_cast<double>(step.step) / static_cast<double>(state.steps) : 0;
  screen->Add(absl::StrFormat("step %d/%d %s %.0f %%%s", step.step, state.steps,
                              BarOf(done, kBarCells), done * 100,
                              std::isfinite(step.seconds_left) && !run.is_over()
                                  ? absl::StrCat("  ", DurationText(step.seconds_left), " left")
                                  : ""));
  screen->Add(absl::StrCat("loss ", NumberText(step.loss, "%.6g"), "  grad ",
                           NumberText(step.gradient_norm, "%.3g"), "  lr ",
                           NumberText(step.learning_rate, "%.3g")));
  const double waited = SecondsSince(state.stepped_unix_ms, now_unix_ms);
  if (!run.is_over() && state.phase == "training" &&
      waited > std::max(kStepLateSeconds, kStepLateFactor * step.step_seconds)) {
    screen->Add(absl::StrCat("no step for ", DurationText(waited),
                             ": look at the heartbeats below for a process that is stopped"));
  }
  std::string speed = absl::StrCat(TimeText(step.step_seconds * 1e9), " a step  ",
                                   ShortCount(step.items_per_second), " ", state.item, "/s");
  if (std::isfinite(state.flops_per_step) && state.flops_per_step > 0 && step.step_seconds > 0)
    absl::StrAppend(&speed, "  ", ShortCount(state.flops_per_step / step.step_seconds), "FLOP/s");
  screen->Add(speed);
  if (!state.evaluation.empty()) screen->Add(state.evaluation);
}

std::string RanksText(const std::vector<int64_t>& ranks) {
  if (ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<int64_t>(ranks.size()))
    return absl::StrCat(ranks.front(), "-", ranks.back());
  return absl::StrJoin(ranks, ",");
}

std::string BusyText(double share) {
  return absl::StrFormat("%s %3.0f %%", BarOf(share, kBusyCells), share * 100);
}

// A worker's busy share is the mean of its ranks'.
double MeanBusy(const std::vector<int64_t>& ranks, const std::map<int64_t, double>& busy) {
  double sum = 0;
  int count = 0;
  for (const int64_t rank : ranks) {
    const auto at = busy.find(rank);
    if (at == busy.end()) continue;
    sum += at->second;
    ++count;
  }
  return count == 0 ? std::nan("") : sum / count;
}

void AddWorkers(const LiveState& state, const std::map<int64_t, double>& busy, int rows_max,
                Screen* screen) {
  const bool has_hosts =
      std::any_of(state.workers.begin(), state.workers.end(),
                  [](const LiveState::Worker& worker) { return !worker.host.empty(); });
  const auto row = [&](const std::string& ranks, const std::string& host, const std::string& pid,
                       const std::string& beat, const std::string& busy_text,
                       const std::string& now) {
    screen->Add(absl::StrCat(absl::StrFormat("%-9s ", ranks),
                             has_hosts ? absl::StrFormat("%-12s ", Cut(host, kHostColumns)) : "",
                             absl::StrFormat("%8s %-10s %7s  ", pid, beat, busy_text), now));
  };
  screen->Add("");
  row("RANKS", "HOST", "PID", "HEARTBEAT", "IN ACTS", "NOW");
  int rows = 0;
  for (const LiveState::Worker& worker : state.workers) {
    if (rows++ == rows_max) break;
    const double share = MeanBusy(worker.ranks, busy);
    const std::string beat =
        worker.state == "connected"
            ? DurationText(static_cast<double>(worker.silent_ms) / kMsPerSecond)
            : worker.state;
    row(RanksText(worker.ranks), worker.host, absl::StrCat(worker.pid), beat,
        std::isfinite(share) ? absl::StrFormat("%.0f %%", share * 100) : "", worker.activity);
  }
  if (const int more = static_cast<int>(state.workers.size()) - rows_max; more > 0)
    screen->Add(absl::StrCat("and ", Plural(more, "more process")));
}

void AddRanks(const LiveState& state, int rows_max, Screen* screen) {
  screen->Add("");
  screen->Add(absl::StrFormat("%-9s %-6s %-16s", "RANK", "STAGE", "IN ACTS"));
  int rows = 0;
  for (const LiveState::Busy& rank : state.work) {
    if (rows++ == rows_max) break;
    screen->Add(absl::StrFormat("%-9d %-6d %-16s", rank.rank, rank.stage, BusyText(rank.share)));
  }
  if (const int more = static_cast<int>(state.work.size()) - rows_max; more > 0)
    screen->Add(absl::StrCat("and ", Plural(more, "more rank")));
}

void AddEnd(const LiveState& state, Screen* screen) {
  if (!state.report.empty()) {
    screen->Add("");
    const std::vector<std::string> lines = absl::StrSplit(state.report, '\n', absl::SkipEmpty());
    for (size_t i = 0; i < std::min(lines.size(), kReportLines); ++i) screen->Add(lines[i]);
  } else if (!state.said.empty()) {
    screen->Add("");
    screen->Add(state.said);
  }
  if (state.warnings > 0) screen->Add(absl::StrCat(Plural(state.warnings, "warning"), " so far"));
}

std::string LabelText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

void AddGauge(const std::string& name, const std::string& help, const std::string& labels,
              double value, std::string* text) {
  if (!std::isfinite(value)) return;
  if (!help.empty())
    absl::StrAppend(text, "# HELP weir_", name, " ", help, "\n# TYPE weir_", name, " gauge\n");
  absl::StrAppend(text, "weir_", name, "{", labels, "} ", absl::StrFormat("%.10g", value), "\n");
}

}  // namespace

std::string TopText(const SeenRun& run, int64_t now_unix_ms, int rows_max, int columns) {
  Screen screen(columns);
  AddHead(run, now_unix_ms, &screen);
  AddStep(run, now_unix_ms, &screen);
  std::map<int64_t, double> busy;
  for (const LiveState::Busy& rank : run.state.work) busy[rank.rank] = rank.share;
  if (!run.state.workers.empty()) {
    AddWorkers(run.state, busy, rows_max, &screen);
  } else if (!run.state.work.empty()) {
    AddRanks(run.state, rows_max, &screen);
  }
  AddEnd(run.state, &screen);
  return screen.text();
}

std::string RunsText(const std::vector<SeenRun>& runs, int64_t now_unix_ms, int columns) {
  Screen screen(columns);
  screen.Add(absl::StrFormat("%8s  %-24s %-15s %-12s %s", "PID", "JOB", "STEP", "LOSS", "NOW"));
  for (const SeenRun& run : runs) {
    const LiveState& state = run.state;
    screen.Add(absl::StrFormat(
        "%8d  %-24s %-15s %-12s %s", run.pid, Cut(state.title, 24),
        state.has_step ? absl::StrCat(state.step.step, "/", state.steps) : "-",
        state.has_step ? NumberText(state.step.loss, "%.6g") : "-", PhaseText(run, now_unix_ms)));
  }
  return screen.text();
}

std::string PrometheusText(const SeenRun& run, int64_t now_unix_ms) {
  const LiveState& state = run.state;
  const std::string job = absl::StrCat("job_name=\"", LabelText(state.title), "\"");
  std::string text;
  const auto gauge = [&](const std::string& name, const std::string& help, double value) {
    AddGauge(name, help, job, value, &text);
  };
  gauge("up", "1 while the starter of the run lives and the run has not ended.",
        run.is_alive && !state.has_ended ? 1 : 0);
  gauge("state_age_seconds", "Time since the run last wrote its state.",
        SecondsSince(state.updated_unix_ms, now_unix_ms));
  gauge("warnings", "Warnings and errors that the run has printed.",
        static_cast<double>(state.warnings));
  if (state.has_facts) {
    gauge("steps", "Steps of the whole run.", static_cast<double>(state.steps));
    gauge("parameters", "Parameters of the model.", static_cast<double>(state.parameters));
    gauge("memory_bytes_per_device", "Memory that a device needs at most.",
          static_cast<double>(state.bytes_per_rank));
  }
  if (state.has_step) {
    gauge("step", "Steps done.", static_cast<double>(state.step.step));
    gauge("loss", "Loss of the last step.", state.step.loss);
    gauge("gradient_norm", "Norm of the gradients of the last update.", state.step.gradient_norm);
    gauge("learning_rate", "Learning rate of the last step.", state.step.learning_rate);
    gauge("step_seconds", "Mean time of the last steps.", state.step.step_seconds);
    AddGauge("items_per_second", "Items that the last steps learnt from, in a second.",
             absl::StrCat(job, ",item=\"", LabelText(state.item), "\""),
             state.step.items_per_second, &text);
  }
  if (state.has_ended) gauge("exit_code", "Exit code of the run.", static_cast<double>(state.code));
  if (run.is_over()) return text;
  bool is_first = true;
  for (const LiveState::Busy& rank : state.work) {
    AddGauge(
        "rank_busy_ratio",
        std::exchange(is_first, false) ? "Share of the last steps that a rank was in acts." : "",
        absl::StrCat(job, ",rank=\"", rank.rank, "\""), rank.share, &text);
  }
  is_first = true;
  for (const LiveState::Worker& worker : state.workers) {
    AddGauge("worker_silent_seconds",
             std::exchange(is_first, false) ? "Time since the last heartbeat of a worker." : "",
             absl::StrCat(job, ",ranks=\"", RanksText(worker.ranks), "\",host=\"",
                          LabelText(worker.host), "\""),
             static_cast<double>(worker.silent_ms) / kMsPerSecond, &text);
  }
  return text;
}

}  // namespace weir::live
