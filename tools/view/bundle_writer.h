// Writes the bytes of a RunBundle (run_bundle.h). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "nlohmann/json.hpp"

namespace weir::view {

class BundleWriter {
 public:
  using Json = nlohmann::ordered_json;

  // Adds a column of 8- to 64-bit numbers.
  template <typename Number>
  void Add(const std::string& name, const std::vector<Number>& column) {
    columns_.push_back({{"name", name},
                        {"type", TypeName<Number>()},
                        {"offset", bytes_.size()},
                        {"count", column.size()}});
    const size_t at = bytes_.size();
    const size_t size = column.size() * sizeof(Number);
    bytes_.resize(at + RoundedUp(size), '\0');
    if (size > 0) std::memcpy(bytes_.data() + at, column.data(), size);
  }

  // Returns the place of a text among the strings.
  uint32_t StringId(const std::string& text) {
    const auto [at, is_new] = id_of_.try_emplace(text, static_cast<uint32_t>(strings_.size()));
    if (is_new) strings_.push_back(text);
    return at->second;
  }

  // Returns the bundle: the object with its strings and columns, and the columns.
  std::string Finish(Json object) &&;

 private:
  static size_t RoundedUp(size_t bytes) { return (bytes + 7) / 8 * 8; }

  template <typename Number>
  static const char* TypeName();

  Json columns_ = Json::array();
  std::string bytes_;  // of the columns
  std::vector<std::string> strings_;
  std::unordered_map<std::string, uint32_t> id_of_;
};

template <>
inline const char* BundleWriter::TypeName<uint8_t>() {
  return "u8";
}
template <>
inline const char* BundleWriter::TypeName<int32_t>() {
  return "i32";
}
template <>
inline const char* BundleWriter::TypeName<uint32_t>() {
  return "u32";
}
template <>
inline const char* BundleWriter::TypeName<float>() {
  return "f32";
}
template <>
inline const char* BundleWriter::TypeName<double>() {
  return "f64";
}

}  // namespace weir::view
