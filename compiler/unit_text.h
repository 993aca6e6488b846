// Sizes and times for people: "12.5 MiB", "1.204 ms".
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace weir::compiler {

inline std::string BytesText(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 10240 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes) : absl::StrFormat("%.1f %s", bytes, units[unit]);
}

inline std::string TimeText(int64_t ns) {
  if (ns < 10'000) return absl::StrFormat("%d ns", ns);
  if (ns < 10'000'000) return absl::StrFormat("%.1f us", static_cast<double>(ns) * 1e-3);
  if (ns < 10'000'000'000) return absl::StrFormat("%.2f ms", static_cast<double>(ns) * 1e-6);
  return absl::StrFormat("%.2f s", static_cast<double>(ns) * 1e-9);
}

}  // namespace weir::compiler
