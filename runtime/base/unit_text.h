// Writes sizes, times and counts for people: "12.5 MiB", "1.20 ms", "685,997". Every text of the
// program that shows a figure uses these functions, so that a figure reads the same everywhere.
// Machine-readable output (JSON, traces) has plain numbers.
//
//   BytesText     the largest binary unit that leaves at least 1: 388.8 KiB, 2.0 MiB, 111.5 GiB
//   TimeText      the largest of ns, us, ms, s that leaves at least 1: 421 us, 85.2 ms
//   DurationText  a time that a person waits: 850ms, 12.3s, 1m12s, 3h05m
//   CountText     all digits, in groups of three: 12,345
//   ShortCount    three digits and a letter: 512, 52.3k, 1.20M
//
// A column of a table has one unit: call UnitOf with the largest value, and pass the unit for every
// row. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

enum class ByteUnit : uint8_t { kB, kKiB, kMiB, kGiB, kTiB };
enum class TimeUnit : uint8_t { kNs, kUs, kMs, kS };

ByteUnit ByteUnitOf(double bytes);
TimeUnit TimeUnitOf(double ns);

std::string BytesText(double bytes);
std::string BytesText(double bytes, ByteUnit unit);

// `ns` is a time in nanoseconds. A value that is not finite or is negative gives "?".
std::string TimeText(double ns);
std::string TimeText(double ns, TimeUnit unit);

// `seconds` that are not finite or are negative give "?".
std::string DurationText(double seconds);

std::string CountText(double count);
std::string ShortCount(double count);

// Returns "1 device", "4 devices", "1 match", "2 matches".
std::string Plural(int64_t count, const std::string& word);

}  // namespace weir
