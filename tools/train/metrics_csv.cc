#include "tools/train/metrics_csv.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kFirstColumns[] = {"step",
                                         "loss",
                                         "grad_norm",
                                         "loss_scale",
                                         "skipped_updates",
                                         "lr",
                                         "tokens_per_second",
                                         "samples_per_second",
                                         "step_seconds",
                                         "mfu",
                                         "checkpoint_seconds",
                                         "checkpoint_stall_seconds",
                                         "recovery_seconds",
                                         "growth_seconds"};
constexpr size_t kLineBytesMax = 1 << 20;

absl::Status NoMetrics(absl::string_view name, int64_t line, absl::string_view found) {
  return ErrorOf(absl::StatusCode::kDataLoss,
                 {"W0536", absl::StrCat(name, ":", line),
                  "a line of `weir train --metrics`, such as {\"step\":1,\"loss\":2.5}",
                  std::string(found), "weir train JOB --metrics FILE"});
}

// Calls `take` with each whole line.
absl::Status ForEachLine(absl::string_view file, absl::string_view name,
                         const std::function<void(const Json& line)>& take) {
  int64_t number = 0;
  while (!file.empty()) {
    const size_t end = file.find('\n');
    if (end == absl::string_view::npos) break;
    const absl::string_view text = file.substr(0, end);
    file.remove_prefix(end + 1);
    ++number;
    if (text.size() > kLineBytesMax) return NoMetrics(name, number, "a line of over 1 MiB");
    // Texts, lists and objects inside are refused as they come, so that depth costs no memory.
    const Json line = Json::parse(
        text.begin(), text.end(), [](int depth, Json::parse_event_t, Json&) { return depth < 2; },
        /*allow_exceptions=*/false);
    if (!line.is_object()) return NoMetrics(name, number, "something else");
    for (const auto& [key, value] : line.items()) {
      if (!value.is_number() && !value.is_null())
        return NoMetrics(name, number, absl::StrCat("no number as `", key, "`"));
    }
    take(line);
  }
  return number > 0 ? absl::OkStatus() : NoMetrics(name, 1, "no whole line");
}

std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::vector<std::string> ColumnsOf(std::set<std::string> names) {
  std::vector<std::string> columns;
  for (const char* name : kFirstColumns) {
    if (names.erase(name) > 0) columns.push_back(name);
  }
  columns.insert(columns.end(), names.begin(), names.end());
  return columns;
}

}  // namespace

absl::Status WriteMetricsCsv(absl::string_view file, absl::string_view name, std::ostream& out) {
  std::set<std::string> names;
  WEIR_RETURN_IF_ERROR(ForEachLine(file, name, [&names](const Json& line) {
    for (const auto& [key, value] : line.items()) names.insert(key);
  }));
  const std::vector<std::string> columns = ColumnsOf(std::move(names));
  for (size_t i = 0; i < columns.size(); ++i) out << (i == 0 ? "" : ",") << Cell(columns[i]);
  out << "\n";
  return ForEachLine(file, name, [&columns, &out](const Json& line) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto value = line.find(columns[i]);
      const bool is_empty = value == line.end() || value->is_null();
      out << (i == 0 ? "" : ",") << (is_empty ? "" : value->dump());
    }
    out << "\n";
  });
}

}  // namespace weir::train
