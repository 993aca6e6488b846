#include "runtime/store/npy_header.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kDimensionsMax = 32;  // as in NumPy

// Returns the text between `key` and the first of the characters `end`.
std::string FieldOf(const std::string& header, const std::string& key, const char* end) {
  size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == std::string::npos) return "";
  at += key.size() + 3;
  return std::string(
      absl::StripAsciiWhitespace(header.substr(at, header.find_first_of(end, at) - at)));
}

}  // namespace

bool IsNpy(const std::vector<uint8_t>& bytes) {
  return bytes.size() >= 6 && std::memcmp(bytes.data(), kMagic, 6) == 0;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& code, const std::string& path,
                                         const std::vector<uint8_t>& bytes) {
  if (bytes.size() > 7 && (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)) {
    return Rejected({code, path, "version 1.0, 2.0 or 3.0 of a file of NumPy",
                     absl::StrCat("version ", bytes[6], ".", bytes[7]),
                     "save the array again with numpy.save"});
  }
  const bool is_v1 = bytes.size() > 6 && bytes[6] == 1;
  const size_t begin = is_v1 ? 10 : 12;
  if (bytes.size() < begin)
    return Rejected(
        {code, path, "a whole header of NumPy", absl::StrCat(bytes.size(), " bytes"), ""});
  size_t length = size_t{bytes[8]} | size_t{bytes[9]} << 8;
  if (!is_v1) length |= size_t{bytes[10]} << 16 | size_t{bytes[11]} << 24;
  if (length > bytes.size() - begin)
    return Rejected({code, path, "a whole header of NumPy",
                     absl::StrCat("a header of ", length, " bytes"), ""});
  const auto first = bytes.begin() + static_cast<int64_t>(begin);
  const std::string text(first, first + static_cast<int64_t>(length));
  NpyHeader header;
  header.begin = static_cast<int64_t>(begin + length);
  header.descr = FieldOf(text, "descr", ",}");
  if (absl::StartsWith(header.descr, "[")) header.descr = FieldOf(text, "descr", "]") + "]";
  const std::string order = FieldOf(text, "fortran_order", ",}");
  if (order != "True" && order != "False") {
    return Rejected({code, path, "fortran_order True or False in the header of NumPy",
                     order.empty() ? "none" : order, "save the array again with numpy.save"});
  }
  header.fortran_order = order == "True";
  const std::string shape = FieldOf(text, "shape", ")}");
  header.shape_text = absl::StrCat(shape, ")");
  bool is_shape = absl::StartsWith(shape, "(");
  const std::vector<std::string> sizes =
      absl::StrSplit(std::string(absl::StripPrefix(shape, "(")), ',', absl::SkipWhitespace());
  for (const std::string& size : sizes) {
    int64_t number = 0;
    is_shape = is_shape && absl::SimpleAtoi(size, &number) && number >= 0;
    header.shape.push_back(number);
  }
  if (!is_shape || header.shape.size() > kDimensionsMax || NumElements(header.shape) < 0)
    return Rejected({code, path, "a shape in the header of NumPy", header.shape_text,
                     "save the array again with numpy.save"});
  return header;
}

}  // namespace weir::store
