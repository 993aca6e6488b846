#include "tools/cli/cli_checks.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weir::cli {

CLI::Validator IsPath() {
  return CLI::Validator(
      [](std::string& path) -> std::string {
        return path.empty() ? "expected a path; found an empty text" : "";
      },
      "", "path");
}

CLI::Validator IsCount(int64_t least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        int64_t count = 0;
        if (absl::SimpleAtoi(text, &count) && count >= least) return "";
        return absl::StrCat("expected a whole number from ", least, " to 2^63 - 1; found ", text);
      },
      "", "count");
}

CLI::Validator IsCountOrTime() {
  constexpr int64_t kMost = 1'000'000'000;
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const bool has_unit =
            !text.empty() && std::string("smh").find(text.back()) != std::string::npos;
        int64_t count = 0;
        if (absl::SimpleAtoi(has_unit ? text.substr(0, text.size() - 1) : text, &count) &&
            count > 0 && count <= kMost)
          return "";
        return absl::StrCat("expected a number of steps from 1 to ", kMost,
                            ", or a time such as 60s, 10m or 1h; found ", text);
      },
      "", "count or time");
}

CLI::Validator IsSeconds(double least) {
  constexpr double kMost = 1e6;
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        double seconds = 0;
        if (absl::SimpleAtod(text, &seconds) && seconds >= least && seconds <= kMost) return "";
        return absl::StrCat("expected ", least, " to ", kMost, " seconds; found ", text);
      },
      "", "seconds");
}

}  // namespace weir::cli
