// Attributes holds the attributes of a node or kernel, as value types. Attributes are converted
// once from proto NamedAttr at the edge of the program, and are ordered by name, so text forms are
// stable.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace weir {

using AttrValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, AttrValue>> list) : map_(list) {}

  void Set(const std::string& name, AttrValue value) { map_[name] = std::move(value); }
  bool Has(const std::string& name) const { return map_.count(name) > 0; }
  void Erase(const std::string& name) { map_.erase(name); }

  // Returns the value, or `fallback` if the value is absent or of another kind. An integer is
  // accepted in place of a real. Schemas have checked kinds before any call.
  int64_t Int(const std::string& name, int64_t fallback = 0) const;
  double Real(const std::string& name, double fallback = 0) const;
  bool Bool(const std::string& name, bool fallback = false) const;
  std::string Str(const std::string& name, const std::string& fallback = "") const;
  std::vector<int64_t> Ints(const std::string& name) const;

  const std::map<std::string, AttrValue>& map() const { return map_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, AttrValue> map_;
};

// "{axis: 1, causal: true}"
std::string ToText(const Attributes& attributes);

}  // namespace weir
