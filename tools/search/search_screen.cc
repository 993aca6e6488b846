#include "tools/search/search_screen.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/job/stage_meshes.h"
#include "nlohmann/json.hpp"
#include "runtime/base/unit_text.h"

namespace weir::search {
namespace {

constexpr size_t kLabel = 10;

std::string NameOf(const RankedLayouts& row, size_t place) {
  if (row.row == RankedLayouts::Row::kPresent) return "present";
  if (row.row == RankedLayouts::Row::kKnown) return "usual";
  return absl::StrCat("found ", place);
}

// Returns "micro-batches 8, ZeRO 1, recomputes": what differs from one micro-batch and no ZeRO.
std::string SettingsText(const proto::Job& job) {
  std::vector<std::string> parts;
  parts.push_back(Plural(std::max<int64_t>(1, job.training().micro_batches()), "micro-batch"));
  if (job.training().zero_stage() > 0) {
    parts.push_back(
        absl::StrCat("ZeRO ", job.training().zero_stage(), " over ",
                     job.training().zero_axis().empty() ? "dp" : job.training().zero_axis()));
  }
  if (job.runtime().recompute_size() > 0) parts.push_back("recomputes");
  if (job.pipeline().cut_size() > 0) parts.push_back("own cut");
  return absl::StrJoin(parts, ", ");
}

std::string Labelled(const std::string& label, const std::string& text) {
  std::string line = label;
  line.resize(std::max(kLabel, label.size() + 1), ' ');
  return line + text + "\n";
}

// Breaks a line that is too long after words.
std::string Wrapped(const std::string& line, size_t indent) {
  std::string rest = line, text;
  while (rest.size() > kSearchColumns) {
    size_t space = rest.rfind(' ', kSearchColumns);
    if (space == std::string::npos || space <= indent) break;
    absl::StrAppend(&text, rest.substr(0, space), "\n");
    rest = std::string(indent, ' ') + rest.substr(space + 1);
  }
  return absl::StrCat(text, rest, "\n");
}

std::string RulesText(const compiler::RuleList& rules, const sbp::Mesh& mesh,
                      const std::string& label) {
  std::string text;
  for (const std::string& line : compiler::AxisLines(rules, mesh)) {
    std::string labelled = Labelled(text.empty() ? label : "", line);
    labelled.pop_back();
    absl::StrAppend(&text, Wrapped(labelled, kLabel + 4));
  }
  return text;
}

// Returns "3.1 % less time", "2.0 GiB more memory".
std::string ChangeText(double before, double after, const std::string& what) {
  const double share = before > 0 ? (before - after) / before * 100 : 0;
  if (std::abs(share) < 0.05) return absl::StrCat("no other ", what);
  return absl::StrFormat("%.1f %% %s %s", std::abs(share), share > 0 ? "less" : "more", what);
}

std::string SavingText(const ChoiceSaving& saving) {
  const auto part = [](double amount, const std::string& text, const char* what) {
    if (text.empty()) return std::string();
    return absl::StrCat(amount > 0 ? "saves " : "costs ", text, what);
  };
  std::vector<std::string> parts;
  if (std::abs(saving.step_ns) >= 1)
    parts.push_back(part(saving.step_ns, TimeText(std::abs(saving.step_ns)), ""));
  if (std::abs(saving.device_bytes) >= 1)
    parts.push_back(
        part(saving.device_bytes, BytesText(std::abs(saving.device_bytes)), " of memory"));
  return absl::StrFormat("%-40s %s", saving.choice,
                         parts.empty() ? "changes nothing alone" : absl::StrJoin(parts, ", "));
}

}  // namespace

std::string SearchScreen(const RankedSearch& search, const proto::Job& job) {
  const sbp::Mesh mesh = compiler::LargestMeshOf(job);
  std::string text = Labelled(
      "search",
      absl::StrCat(
          job.name().empty() ? "the job" : job.name(), " on ", Plural(search.devices, "device"),
          " (", mesh.ToText(), compiler::HasStageMeshes(job) ? " at most): " : "): ",
          Plural(search.compiled, "candidate"), ", ", Plural(search.solved, "layout problem"),
          " solved", search.exact ? " exactly" : ", some not exactly: the mesh has many axes"));
  if (search.memory_bytes > 0)
    absl::StrAppend(
        &text, Labelled("memory",
                        absl::StrCat("at most ", BytesText(search.memory_bytes), " on a device")));
  if (!search.batch_statistics.empty())
    absl::StrAppend(
        &text,
        Labelled("kept", "the number of micro-batches, because this takes statistics of each:"),
        Labelled("", search.batch_statistics));
  absl::StrAppend(
      &text, "\n",
      absl::StrFormat("%-10s%-11s%-11s%-11s%s\n", "", "step", "", "memory", "settings"));
  size_t place = 0;
  for (const RankedLayouts& row : search.rows) {
    if (row.row == RankedLayouts::Row::kFound) ++place;
    absl::StrAppend(
        &text, absl::StrFormat("%-10s%-11s%-11s%-11s%s%s\n", NameOf(row, place),
                               TimeText(row.step_ns), Name(row.source), BytesText(row.device_bytes),
                               SettingsText(row.found.job), row.fits ? "" : "; DOES NOT FIT"));
  }
  if (const RankedLayouts* usual = search.Find(RankedLayouts::Row::kKnown); usual != nullptr) {
    absl::StrAppend(
        &text, "\n",
        Wrapped(absl::StrCat("usual     the best of the rules that people usually write: ",
                             usual->found.name),
                kLabel));
  }
  const RankedLayouts& first = search.rows[0];
  const RankedLayouts& present = *search.Find(RankedLayouts::Row::kPresent);
  absl::StrAppend(&text, "\n", RulesText(present.found.rules, mesh, "present"));
  if (&first == &present) {
    absl::StrAppend(&text, "\n", Labelled("result", "the present rules are the best found"));
    return text;
  }
  absl::StrAppend(
      &text, RulesText(first.found.rules, mesh, "best"),
      Labelled("", "an earlier dimension goes first; * is for activations alone"), "\n",
      Labelled("result",
               absl::StrCat(ChangeText(present.step_ns, first.step_ns, "time"), ", ",
                            ChangeText(present.device_bytes, first.device_bytes, "memory"),
                            " than with the present rules")));
  if (!search.savings.empty()) {
    absl::StrAppend(&text, Labelled("choices", absl::StrCat("what each saves alone, ",
                                                            Name(search.savings_source), ":")));
  }
  for (const ChoiceSaving& saving : search.savings)
    absl::StrAppend(&text, Labelled("", SavingText(saving)));
  return text;
}

std::string SearchJson(const RankedSearch& search) {
  nlohmann::ordered_json json;
  json["candidates"] = search.compiled;
  json["problems"] = search.solved;
  json["exact"] = search.exact;
  for (const RankedLayouts& row : search.rows) {
    nlohmann::ordered_json entry;
    entry["name"] = row.row == RankedLayouts::Row::kPresent ? "present"
                    : row.row == RankedLayouts::Row::kKnown ? "usual"
                                                            : "found";
    entry["step_seconds"] = row.step_ns * 1e-9;
    entry["step_source"] = Name(row.source);
    entry["estimated_seconds"] = row.found.estimate.step_ns * 1e-9;
    entry["memory_bytes"] = row.device_bytes;
    entry["estimated_bytes"] = row.found.estimate.device_bytes;
    entry["fits"] = row.fits;
    entry["micro_batches"] = std::max<int64_t>(1, row.found.job.training().micro_batches());
    entry["zero_stage"] = row.found.job.training().zero_stage();
    entry["recomputes"] = row.found.job.runtime().recompute_size() > 0;
    for (const compiler::RuleEntry& rule : row.found.rules)
      entry["rules"].push_back(compiler::ToText(rule));
    json["layouts"].push_back(std::move(entry));
  }
  for (const ChoiceSaving& saving : search.savings) {
    json["choices"].push_back({{"choice", saving.choice},
                               {"source", Name(search.savings_source)},
                               {"saves_seconds", saving.step_ns * 1e-9},
                               {"saves_bytes", saving.device_bytes}});
  }
  return json.dump(2) + "\n";
}

}  // namespace weir::search
