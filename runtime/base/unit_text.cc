#include "runtime/base/unit_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {
namespace {

constexpr const char* kByteUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
constexpr const char* kTimeUnits[] = {"ns", "us", "ms", "s"};

// Writes three significant digits, but at most two behind the point.
std::string Digits(double value) {
  const double size = std::abs(value);
  return size < 9.995   ? absl::StrFormat("%.2f", value)
         : size < 99.95 ? absl::StrFormat("%.1f", value)
                        : absl::StrFormat("%.0f", value);
}

double ScaleOf(ByteUnit unit) { return std::pow(1024.0, static_cast<int>(unit)); }
double ScaleOf(TimeUnit unit) { return std::pow(1000.0, static_cast<int>(unit)); }

// Returns the largest unit that leaves at least 1, also where a value rounds up to the next unit.
template <typename Unit>
Unit LargestUnit(double value, double base, Unit last) {
  int unit = 0;
  while (unit < static_cast<int>(last) && value >= base - 0.5) {
    value /= base;
    ++unit;
  }
  return static_cast<Unit>(unit);
}

}  // namespace

ByteUnit ByteUnitOf(double bytes) { return LargestUnit(std::abs(bytes), 1024, ByteUnit::kTiB); }
TimeUnit TimeUnitOf(double ns) { return LargestUnit(std::abs(ns), 1000, TimeUnit::kS); }

std::string BytesText(double bytes) { return BytesText(bytes, ByteUnitOf(bytes)); }

std::string BytesText(double bytes, ByteUnit unit) {
  if (unit == ByteUnit::kB) return absl::StrFormat("%.0f B", bytes);
  const double value = bytes / ScaleOf(unit);
  return absl::StrFormat(std::abs(value) < 999.95 ? "%.1f %s" : "%.0f %s", value,
                         kByteUnits[static_cast<int>(unit)]);
}

std::string TimeText(double ns) { return TimeText(ns, TimeUnitOf(ns)); }

std::string TimeText(double ns, TimeUnit unit) {
  if (!std::isfinite(ns) || ns < 0) return "?";
  if (unit == TimeUnit::kNs) return absl::StrFormat("%.0f ns", ns);
  return absl::StrCat(Digits(ns / ScaleOf(unit)), " ", kTimeUnits[static_cast<int>(unit)]);
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1) return absl::StrFormat("%.0fms", seconds * 1000);
  if (seconds < 60) return absl::StrFormat("%.1fs", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

std::string CountText(double count) {
  if (!std::isfinite(count)) return "?";
  const std::string digits = absl::StrFormat("%.0f", std::abs(count));
  std::string text = count < 0 && digits != "0" ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string ShortCount(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 1000) return absl::StrFormat("%.0f", count);
  if (count < 1e6) return absl::StrFormat("%.1fk", count / 1e3);
  if (count < 1e9) return absl::StrFormat("%.2fM", count / 1e6);
  return absl::StrFormat("%.2fG", count / 1e9);
}

std::string Plural(int64_t count, const std::string& word) {
  const bool hisses =
      absl::EndsWith(word, "ch") || absl::EndsWith(word, "s") || absl::EndsWith(word, "x");
  return absl::StrCat(CountText(static_cast<double>(count)), " ", word,
                      count == 1 ? ""
                      : hisses   ? "es"
                                 : "s");
}

}  // namespace weir
