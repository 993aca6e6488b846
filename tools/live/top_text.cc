#include "tools/live/top_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"

namespace weir::live {
namespace {

constexpr double kMsPerSecond = 1e3;
constexpr int kBarCells = 30;
constexpr int kBusyCells = 10;
constexpr int kPartCells = 20;
constexpr double kPartShownMin = 0.005;  // of a step
constexpr size_t kPartNameColumns = 32;
constexpr size_t kHostColumns = 12, kRanksColumns = 9;  // at most
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
                             state.where.empty() ? "" : absl::StrCat(" ", state.where),
                             state.epoch > 1 ? absl::StrCat(", epoch ", state.epoch) : "", ", ",
                             BytesText(static_cast<double>(state.bytes_per_rank)), " each"));
  }
  if (state.phase == "starting" && !run.is_over() && !state.doing.what.empty())
    screen->Add(TextOf(state.doing));
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
  if (std::isfinite(step.mfu) && step.mfu > 0)
    absl::StrAppend(&speed, absl::StrFormat("  MFU %.3g %%", step.mfu * 100));
  screen->Add(speed);
  if (!(state.peak_flops > 0) && !state.peak_from.empty())
    screen->Add(absl::StrCat("MFU unknown, because the peak is unknown: ", state.peak_from));
  if (!state.evaluation.empty()) screen->Add(state.evaluation);
}

std::string PercentText(double share) {
  return std::isfinite(share) ? absl::StrFormat("%.0f %%", share * 100) : "";
}

std::string NameOfPart(const LiveState& state, size_t part) {
  return part < state.part_names.size() ? state.part_names[part] : "";
}

// Shows where the time of a step goes, mean of all ranks.
void AddParts(const LiveState& state, Screen* screen) {
  const std::vector<double>& parts = state.step.parts;
  if (parts.empty()) return;
  screen->Add("");
  screen->Add(absl::StrFormat("%-32s %9s", "A STEP BY CAUSE", "TIME"));
  for (size_t part = 0; part < parts.size(); ++part) {
    if (!(parts[part] >= kPartShownMin)) continue;
    screen->Add(absl::StrFormat("%-32s %9s %5s %s", Cut(NameOfPart(state, part), kPartNameColumns),
                                TimeText(parts[part] * state.step.step_seconds * 1e9),
                                PercentText(parts[part]), BarOf(parts[part], kPartCells)));
  }
}

// Returns the share of all waits; NaN if the parts are not known.
double WaitsOf(const LiveState& state, const std::vector<double>& parts) {
  double waits = parts.empty() ? std::nan("") : 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (absl::StartsWith(NameOfPart(state, part), "waits")) waits += parts[part];
  }
  return waits;
}

std::string RanksText(const std::vector<int64_t>& ranks) {
  if (ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<int64_t>(ranks.size()))
    return absl::StrCat(ranks.front(), "-", ranks.back());
  return absl::StrJoin(ranks, ",");
}

std::string BusyText(double share) {
  return absl::StrFormat("%s %3.0f %%", BarOf(share, kBusyCells), share * 100);
}

// The shares of a worker are the means of its ranks'. NaN: not known.
struct WorkerShares {
  double busy = 0, waits = 0;
};

WorkerShares SharesOf(const LiveState& state, const LiveState::Worker& worker,
                      const std::map<int64_t, const LiveState::Busy*>& rank_of) {
  WorkerShares sum;
  int count = 0;
  for (const int64_t rank : worker.ranks) {
    const auto at = rank_of.find(rank);
    if (at == rank_of.end()) continue;
    sum.busy += at->second->share;
    sum.waits += WaitsOf(state, at->second->parts);
    ++count;
  }
  if (count == 0) return {std::nan(""), std::nan("")};
  return {sum.busy / count, sum.waits / count};
}

// Returns what a worker does. Its only rank stands in the row already.
std::string NowText(const LiveState::Worker& worker) {
  absl::string_view now = worker.activity;
  if (worker.ranks.size() == 1 && absl::ConsumePrefix(&now, absl::StrCat("rank ", worker.ranks[0])))
    absl::ConsumePrefix(&now, ":");
  return std::string(absl::StripAsciiWhitespace(now));
}

void AddWorkers(const LiveState& state, int rows_max, Screen* screen) {
  bool has_hosts = false;
  size_t ranks_columns = std::string("RANKS").size(), host_columns = std::string("HOST").size();
  for (const LiveState::Worker& worker : state.workers) {
    has_hosts = has_hosts || !worker.host.empty();
    ranks_columns = std::max(ranks_columns, RanksText(worker.ranks).size());
    host_columns = std::max(host_columns, worker.host.size());
  }
  ranks_columns = std::min(ranks_columns, kRanksColumns);
  host_columns = std::min(host_columns, kHostColumns);
  std::map<int64_t, const LiveState::Busy*> rank_of;
  for (const LiveState::Busy& rank : state.work) rank_of[rank.rank] = &rank;
  const auto row = [&](const std::string& ranks, const std::string& host, const std::string& pid,
                       const std::string& beat, const std::string& busy, const std::string& waits,
                       const std::string& memory, const std::string& now) {
    screen->Add(absl::StrCat(
        absl::StrFormat("%-*s ", static_cast<int>(ranks_columns), ranks),
        has_hosts
            ? absl::StrFormat("%-*s ", static_cast<int>(host_columns), Cut(host, host_columns))
            : "",
        absl::StrFormat("%8s %-10s %7s %5s %9s  ", pid, beat, busy, waits, memory), now));
  };
  screen->Add("");
  row("RANKS", "HOST", "PID", "HEARTBEAT", "IN ACTS", "WAITS", "MEMORY", "NOW");
  int rows = 0;
  for (const LiveState::Worker& worker : state.workers) {
    if (rows++ == rows_max) break;
    const WorkerShares shares = SharesOf(state, worker, rank_of);
    const std::string beat =
        worker.state == "connected"
            ? DurationText(static_cast<double>(worker.silent_ms) / kMsPerSecond)
            : worker.state;
    row(RanksText(worker.ranks), worker.host, absl::StrCat(worker.pid), beat,
        PercentText(shares.busy), PercentText(shares.waits),
        worker.resident_bytes > 0 ? BytesText(static_cast<double>(worker.resident_bytes)) : "",
        NowText(worker));
  }
  if (const int more = static_cast<int>(state.workers.size()) - rows_max; more > 0)
    screen->Add(absl::StrCat("and ", Plural(more, "more process")));
}

std::string PlannedText(const LiveState& state, int64_t rank) {
  if (rank < 0 || rank >= static_cast<int64_t>(state.bytes_of_rank.size())) return "";
  return BytesText(static_cast<double>(state.bytes_of_rank[static_cast<size_t>(rank)]));
}

void AddRanks(const LiveState& state, int rows_max, Screen* screen) {
  screen->Add("");
  screen->Add(
      absl::StrFormat("%-9s %-6s %-18s %5s %10s", "RANK", "STAGE", "IN ACTS", "WAITS", "PLANNED"));
  int rows = 0;
  for (const LiveState::Busy& rank : state.work) {
    if (rows++ == rows_max) break;
    screen->Add(absl::StrFormat("%-9d %-6d %-18s %5s %10s", rank.rank, rank.stage,
                                BusyText(rank.share), PercentText(WaitsOf(state, rank.parts)),
                                PlannedText(state, rank.rank)));
  }
  if (const int more = static_cast<int>(state.work.size()) - rows_max; more > 0)
    screen->Add(absl::StrCat("and ", Plural(more, "more rank")));
  if (state.resident_bytes > 0) {
    screen->Add(absl::StrCat("memory of the process: ",
                             BytesText(static_cast<double>(state.resident_bytes))));
  }
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
  if (state.restarts > 0) {
    screen->Add(absl::StrCat(Plural(state.restarts, "restart"), " so far, the last after step ",
                             state.restarted_after_step));
  }
  if (state.recoveries > 0) {
    screen->Add(absl::StrCat(state.recoveries, state.recoveries == 1 ? " recovery" : " recoveries",
                             " so far, the last of ", state.recovered, ", to step ",
                             state.recovered_to_step, " in ",
                             NumberText(state.recovery_seconds, "%.2f"), " s"));
  }
  if (state.growths > 0) {
    screen->Add(absl::StrCat("the mesh has grown again ",
                             state.growths == 1 ? "once" : absl::StrCat(state.growths, " times"),
                             ", the last time after step ", state.grown_after_step, " in ",
                             NumberText(state.growth_seconds, "%.2f"), " s"));
  }
  if (state.warnings > 0) screen->Add(absl::StrCat(Plural(state.warnings, "warning"), " so far"));
}

std::string LabelText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string Label(const std::string& name, const std::string& value) {
  return absl::StrCat(name, "=\"", LabelText(value), "\"");
}

// Gauges are lines in the text format of Prometheus. Each has the labels of the job. The values of
// one gauge come one after another, and the first of them describes the gauge.
class Gauges {
 public:
  explicit Gauges(std::string job) : job_(std::move(job)) {}

  void Add(const std::string& name, const std::string& help, double value,
           const std::vector<std::string>& labels = {}) {
    if (!std::isfinite(value)) return;
    if (name != last_name_) {
      absl::StrAppend(&text_, "# HELP weir_", name, " ", help, "\n# TYPE weir_", name, " gauge\n");
    }
    last_name_ = name;
    absl::StrAppend(&text_, "weir_", name, "{", job_, labels.empty() ? "" : ",",
                    absl::StrJoin(labels, ","), "} ", absl::StrFormat("%.10g", value), "\n");
  }
  const std::string& text() const { return text_; }

 private:
  const std::string job_;
  std::string last_name_, text_;
};

void AddFactGauges(const LiveState& state, Gauges* gauges) {
  gauges->Add("steps", "Steps of the whole run.", static_cast<double>(state.steps));
  gauges->Add("parameters", "Parameters of the model.", static_cast<double>(state.parameters));
  gauges->Add("memory_bytes_per_device", "Memory that a device needs at most.",
              static_cast<double>(state.bytes_per_rank));
  for (size_t rank = 0; rank < state.bytes_of_rank.size(); ++rank) {
    gauges->Add("rank_planned_bytes", "Memory of a rank, as planned.",
                static_cast<double>(state.bytes_of_rank[rank]),
                {Label("rank", absl::StrCat(rank))});
  }
  gauges->Add("peak_flops", "Arithmetic that all devices can do in a second.", state.peak_flops);
  if (state.resident_bytes > 0) {
    gauges->Add("resident_bytes", "Memory in RAM of the process that started the run.",
                static_cast<double>(state.resident_bytes));
  }
}

void AddStepGauges(const LiveState& state, Gauges* gauges) {
  const LiveState::Step& step = state.step;
  gauges->Add("step", "Steps done.", static_cast<double>(step.step));
  gauges->Add("loss", "Loss of the last step.", step.loss);
  gauges->Add("gradient_norm", "Norm of the gradients of the last update.", step.gradient_norm);
  gauges->Add("learning_rate", "Learning rate of the last step.", step.learning_rate);
  gauges->Add("step_seconds", "Mean time of the last steps.", step.step_seconds);
  gauges->Add("items_per_second", "Items that the last steps learnt from, in a second.",
              step.items_per_second, {Label("item", state.item)});
  if (state.peak_flops > 0)
    gauges->Add("mfu_ratio", "Model flops of the last steps over the peak.", step.mfu);
  for (size_t part = 0; part < step.parts.size(); ++part) {
    gauges->Add("step_part_seconds", "Mean time of the last steps by cause, mean of all ranks.",
                step.parts[part] * step.step_seconds, {Label("part", NameOfPart(state, part))});
  }
}

void AddRankGauges(const LiveState& state, Gauges* gauges) {
  for (const LiveState::Busy& rank : state.work) {
    gauges->Add("rank_busy_ratio", "Share of the last steps that a rank was in acts.", rank.share,
                {Label("rank", absl::StrCat(rank.rank))});
  }
  for (const LiveState::Busy& rank : state.work) {
    for (size_t part = 0; part < rank.parts.size(); ++part) {
      gauges->Add("rank_part_ratio", "Share of the last steps of a rank by cause.",
                  rank.parts[part],
                  {Label("rank", absl::StrCat(rank.rank)), Label("part", NameOfPart(state, part))});
    }
  }
  const auto labels = [](const LiveState::Worker& worker) {
    return std::vector<std::string>{Label("ranks", RanksText(worker.ranks)),
                                    Label("host", worker.host)};
  };
  for (const LiveState::Worker& worker : state.workers) {
    gauges->Add("worker_silent_seconds", "Time since the last heartbeat of a worker.",
                static_cast<double>(worker.silent_ms) / kMsPerSecond, labels(worker));
  }
  for (const LiveState::Worker& worker : state.workers) {
    if (worker.resident_bytes <= 0) continue;
    gauges->Add("worker_resident_bytes", "Memory in RAM of a worker's process.",
                static_cast<double>(worker.resident_bytes), labels(worker));
  }
}

}  // namespace

std::string TopText(const SeenRun& run, int64_t now_unix_ms, int rows_max, int columns) {
  Screen screen(columns);
  AddHead(run, now_unix_ms, &screen);
  AddStep(run, now_unix_ms, &screen);
  AddParts(run.state, &screen);
  if (!run.state.workers.empty()) {
    AddWorkers(run.state, rows_max, &screen);
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
  Gauges gauges("job_name=\"" + LabelText(state.title) + "\"");
  gauges.Add("up", "1 while the starter of the run lives and the run has not ended.",
             run.is_alive && !state.has_ended ? 1 : 0);
  gauges.Add("state_age_seconds", "Time since the run last wrote its state.",
             SecondsSince(state.updated_unix_ms, now_unix_ms));
  gauges.Add("warnings", "Warnings and errors that the run has printed.",
             static_cast<double>(state.warnings));
  if (state.epoch > 0) {
    gauges.Add("epoch", "Epoch of the processes: each recovery, growth and restart begins one.",
               static_cast<double>(state.epoch));
  }
  gauges.Add("restarts", "Starts of all processes after a failure.",
             static_cast<double>(state.restarts));
  gauges.Add("recoveries", "Losses of processes after which the other processes lived on.",
             static_cast<double>(state.recoveries));
  if (state.recoveries > 0) {
    gauges.Add("recovery_seconds", "Time from the last such loss until a step was done again.",
               state.recovery_seconds);
  }
  gauges.Add("growths", "Times that a mesh which had become smaller has grown again.",
             static_cast<double>(state.growths));
  if (state.growths > 0) {
    gauges.Add("growth_seconds", "Time that the steps waited for the last such growth.",
               state.growth_seconds);
  }
  if (state.has_facts) AddFactGauges(state, &gauges);
  if (state.has_step) AddStepGauges(state, &gauges);
  if (state.has_ended)
    gauges.Add("exit_code", "Exit code of the run.", static_cast<double>(state.code));
  if (!run.is_over()) AddRankGauges(state, &gauges);
  return gauges.text();
}

}  // namespace weir::live
