#include "runtime/trace/why_slow.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/trace/recorded_run.h"
#include "runtime/trace/replay.h"

namespace weir {
namespace {

constexpr double kShareShownMin = 0.001;
constexpr double kErrorTrusted = 0.1;  // of the replay; above it, its figures are hints

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }
std::string Milliseconds(double ns) { return absl::StrFormat("%.3f ms", ns * 1e-6); }

std::string Bytes(int64_t bytes) {
  if (bytes < 1 << 10) return absl::StrCat(bytes, " B");
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// One line of the path: what ranks do under one name, or one exchange between them.
struct Line {
  double share = 0;
  double ns = 0;
  std::string text;
  std::set<std::string> places;  // "1", or "0 to 1"
};

std::vector<Line> LinesOf(const CriticalPath& path) {
  std::map<std::string, Line> by_text;
  const auto add = [&by_text](const std::string& text, const std::string& place, double share, double ns) {
    Line& line = by_text[text];
    line.text = text;
    line.share += share;
    line.ns += ns;
    if (share >= kShareShownMin) line.places.insert(place);
  };
  for (const PathActs& acts : path.acts) {
    add(absl::StrCat("`", acts.function, "` on rank "), absl::StrCat(acts.rank), acts.share, acts.ns_per_step);
  }
  for (const PathEdge& edge : path.edges) {
    const std::string place = absl::StrCat(edge.from, " to ", edge.to);
    const absl::string_view name = absl::StripSuffix(edge.name, absl::StrCat(" rank ", place));
    add(absl::StrCat(edge.kind == PathEdge::Kind::kToken ? "waits for `" : "waits for a free slot of `", name,
                     edge.kind == PathEdge::Kind::kToken ? "`, sent but not there, rank " : "`, given back but not there, rank "),
        place, edge.share, edge.ns_per_step);
  }
  std::vector<Line> lines;
  for (auto& [text, line] : by_text) lines.push_back(std::move(line));
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.share > b.share; });
  return lines;
}

// The first few, and how many more.
std::string Places(const std::set<std::string>& places) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown(places.begin(), places.end());
  if (shown.size() <= kShown) return absl::StrJoin(shown, ", ");
  const size_t more = shown.size() - kShown;
  shown.resize(kShown);
  return absl::StrCat(absl::StrJoin(shown, ", "), " and ", more, " more");
}

template <typename Key>
std::string Shares(const std::map<Key, double>& shares, const char* before) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [key, share] : shares) {
    if (share >= kShareShownMin) order.emplace_back(-share, absl::StrCat(before, key));
  }
  std::sort(order.begin(), order.end());
  return absl::StrJoin(order, ", ", [](std::string* out, const auto& part) {
    absl::StrAppend(out, part.second, " ", Percent(-part.first));
  });
}

void AppendPath(const CriticalPath& path, size_t rows_max, std::string* text) {
  absl::StrAppend(text, "\ncritical path of ",
                  path.first_step == path.last_step
                      ? absl::StrCat("step ", path.first_step)
                      : absl::StrCat("a step, mean of steps ", path.first_step, " to ", path.last_step),
                  ": what held the job at each moment of ", Milliseconds(path.step_ns), "\n");
  const std::vector<Line> lines = LinesOf(path);
  double left_out = 0;
  size_t num_left_out = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < rows_max && lines[i].share >= kShareShownMin) {
      absl::StrAppendFormat(text, "  %8s  %9.3f ms  %s\n", Percent(lines[i].share), lines[i].ns * 1e-6,
                            lines[i].text + Places(lines[i].places));
    } else {
      left_out += lines[i].share;
      ++num_left_out;
    }
  }
  if (left_out >= kShareShownMin) {
    absl::StrAppendFormat(text, "  %8s  %9.3f ms  (%d more)\n", Percent(left_out), left_out * path.step_ns * 1e-6,
                          num_left_out);
  }
  std::map<std::string, double> phases = path.phases;
  if (path.in_transfer > 0) phases["on the way between ranks"] = path.in_transfer;
  if (path.between_acts > 0) phases["between acts"] = path.between_acts;
  absl::StrAppend(text, "  by phase: ", Shares(phases, ""), "\n");
  if (path.ranks.size() > 1) absl::StrAppend(text, "  by rank: ", Shares(path.ranks, "rank "), "\n");
}

// What the best row suggests.
std::string Advice(const WhatIfRow& row) {
  if (absl::StartsWith(row.spec, "slots:")) {
    return "registers are too few: give those above more slots, or let the compiler solve for them";
  }
  if (absl::StartsWith(row.spec, "link:") || row.spec == "free:boxing") {
    return "communication is in the way: another layout (`weir plan` has the bytes), or more micro-batches to hide it behind";
  }
  return "work is in the way: give that rank less of it (another cut or layout) or more threads, or make the op faster";
}

void AppendWhatIfs(const WhySlow& why, size_t rows_max, std::string* text) {
  if (why.replayed_step_ns == 0) {
    absl::StrAppend(text, "\nwhat if: the recorded run, replayed, came to a standstill, so nothing can be predicted\n");
    return;
  }
  absl::StrAppend(text, "\nwhat if: the recorded run replayed with one change. Without any it takes ",
                  Milliseconds(why.replayed_step_ns), " per step, recorded ", Milliseconds(why.recorded_step_ns), ": ",
                  absl::StrFormat("%+.1f %%", why.replay_error() * 100),
                  std::abs(why.replay_error()) > kErrorTrusted ? ", so take what follows as hints only" : "", "\n");
  if (why.what_ifs.empty()) {
    absl::StrAppend(text, "  nothing that was tried (slots, links, single ops for nothing) gains 0.2 %\n");
    return;
  }
  absl::StrAppend(text, "    saves   per step     memory  change\n");
  for (size_t i = 0; i < why.what_ifs.size() && i < rows_max; ++i) {
    const WhatIfRow& row = why.what_ifs[i];
    if (!row.finished) {
      absl::StrAppend(text, "    would come to a standstill: ", row.about, "\n");
      continue;
    }
    const bool bound = absl::StrContains(row.spec, "*=+");
    const std::string memory =
        row.more_bytes == 0 || bound ? "" : absl::StrCat(row.more_bytes > 0 ? "+" : "-", Bytes(std::abs(row.more_bytes)));
    absl::StrAppendFormat(text, "  %7s  %9s  %9s  %s\n", Percent(row.gain), Milliseconds(row.step_ns), memory, row.about);
  }
  if (why.what_ifs[0].gain > 0) absl::StrAppend(text, "  so: ", Advice(why.what_ifs[0]), "\n");
}

}  // namespace

absl::StatusOr<WhySlow> FindWhySlow(const TraceReader& trace, const WhySlowOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const RecordedRun run, ReadRecordedRun(trace));
  int64_t first = std::min(run.first_step + 1, run.last_step), last = run.last_step;
  if (options.step.has_value()) {
    if (*options.step < run.first_step || *options.step > run.last_step) {
      return Rejected({"W0534", absl::StrCat("--step ", *options.step),
                       absl::StrCat("a step from ", run.first_step, " to ", run.last_step, ", which the trace holds in full"),
                       absl::StrCat(*options.step), ""});
    }
    first = last = *options.step;
  }
  const Replayer replayer(&run);
  WhySlow why;
  why.path = FindCriticalPath(run, first, last);
  why.recorded_step_ns = replayer.recorded().step_ns;
  why.replayed_step_ns = replayer.as_it_was().finished ? replayer.as_it_was().step_ns : 0;
  if (options.what_ifs.empty()) {
    why.what_ifs = TryWhatIfs(replayer, run, why.path);
    return why;
  }
  for (const std::string& spec : options.what_ifs) {
    WEIR_ASSIGN_OR_RETURN(WhatIfRow row, TryWhatIf(replayer, run, spec));
    why.what_ifs.push_back(std::move(row));
  }
  std::stable_sort(why.what_ifs.begin(), why.what_ifs.end(),
                   [](const WhatIfRow& a, const WhatIfRow& b) { return a.gain > b.gain; });
  return why;
}

std::string ToText(const WhySlow& why, size_t rows_max) {
  std::string text;
  AppendPath(why.path, rows_max, &text);
  AppendWhatIfs(why, rows_max, &text);
  return text;
}

}  // namespace weir
