#include "runtime/base/attributes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {

int64_t Attributes::Int(const std::string& name, int64_t fallback) const {
  auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  const int64_t* value = std::get_if<int64_t>(&it->second);
  return value ? *value : fallback;
}

double Attributes::Real(const std::string& name, double fallback) const {
  auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  if (const double* value = std::get_if<double>(&it->second)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&it->second)) return static_cast<double>(*value);
  return fallback;
}

bool Attributes::Bool(const std::string& name, bool fallback) const {
  auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  const bool* value = std::get_if<bool>(&it->second);
  return value ? *value : fallback;
}

std::string Attributes::Str(const std::string& name, const std::string& fallback) const {
  auto it = map_.find(name);
  if (it == map_.end()) return fallback;
  const std::string* value = std::get_if<std::string>(&it->second);
  return value ? *value : fallback;
}

std::vector<int64_t> Attributes::Ints(const std::string& name) const {
  auto it = map_.find(name);
  if (it == map_.end()) return {};
  const auto* value = std::get_if<std::vector<int64_t>>(&it->second);
  return value ? *value : std::vector<int64_t>{};
}

namespace {
struct Printer {
  std::string operator()(int64_t v) const { return absl::StrCat(v); }
  std::string operator()(double v) const { return absl::StrCat(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const { return absl::StrCat("\"", v, "\""); }
  std::string operator()(const std::vector<int64_t>& v) const {
    return absl::StrCat("[", absl::StrJoin(v, ", "), "]");
  }
};
}  // namespace

std::string ToText(const Attributes& attributes) {
  std::string text = "{";
  const char* separator = "";
  for (const auto& [name, value] : attributes.map()) {
    absl::StrAppend(&text, separator, name, ": ", std::visit(Printer(), value));
    separator = ", ";
  }
  return text + "}";
}

}  // namespace weir
