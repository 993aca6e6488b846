#include "ops/defs/type_text.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

std::string Trim(const std::string& text) {
  size_t begin = 0, end = text.size();
  while (begin < end && std::isspace(static_cast<unsigned char>(text[begin]))) ++begin;
  while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  return text.substr(begin, end - begin);
}

bool IsName(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  for (char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return true;
}

std::string Quote(const std::string& text) { return absl::StrCat("\"", text, "\""); }

// Returns the element type that a type of another library, or a misspelt one, stands for.
std::string MeantElementType(std::string name) {
  static const auto* const kForeign = new std::map<std::string, std::string>{
      {"float", "f32"},    {"float32", "f32"}, {"fp32", "f32"},   {"double", "f32"},
      {"float64", "f32"},  {"f64", "f32"},     {"fp64", "f32"},   {"real", "f32"},
      {"half", "f16"},     {"float16", "f16"}, {"fp16", "f16"},   {"bfloat16", "bf16"},
      {"int", "i32"},      {"integer", "i32"}, {"long", "i32"},   {"short", "i32"},
      {"byte", "i32"},     {"int8", "i32"},    {"int16", "i32"},  {"int32", "i32"},
      {"int64", "i32"},    {"i8", "i32"},      {"i16", "i32"},    {"i64", "i32"},
      {"uint8", "i32"},    {"uint16", "i32"},  {"uint32", "i32"}, {"uint64", "i32"},
      {"u8", "i32"},       {"u16", "i32"},     {"u32", "i32"},    {"u64", "i32"},
      {"boolean", "bool"}, {"mask", "bool"},   {"b1", "bool"}};
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  name = name.substr(name.rfind('.') + 1);  // torch.float32
  const auto foreign = kForeign->find(name);
  if (foreign != kForeign->end()) return foreign->second;
  const std::string nearest =
      Nearest(name, std::vector<std::string>{"f32", "bf16", "f16", "i32", "bool"});
  return nearest.empty() ? "f32" : nearest;
}

// Returns the type that was probably meant by a text whose element type or brackets are wrong.
// `range` is the range that the text had in angle brackets, with them, or empty.
std::string MeantType(const std::string& text, const std::string& range) {
  const size_t open = text.find_first_of("[({");
  std::string dims = open == std::string::npos ? "" : text.substr(open + 1);
  while (!dims.empty() && std::string("])} ").find(dims.back()) != std::string::npos)
    dims.pop_back();
  const std::string element = MeantElementType(Trim(text.substr(0, open)));
  return absl::StrCat(element, element == "i32" ? range : "", "[", dims, "]");
}

std::string TableText(const DimTable& table) {
  if (table.empty()) return "none";
  std::string text;
  for (const auto& [name, dim] : table) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, "=", dim.size);
    if (text.size() > 200) return text + ", ...";
  }
  return text;
}

// Parses a number of 1 to 63 bits; `what` is "size" or "unit".
absl::StatusOr<int64_t> ParseCount(const std::string& text, const std::string& item,
                                   const std::string& what) {
  bool digits = !text.empty();
  for (char c : text) digits = digits && std::isdigit(static_cast<unsigned char>(c));
  if (!digits) {
    return Rejected({"W0311", "", absl::StrCat("a whole number as the ", what, " in ", Quote(item)),
                     Quote(text), "name=size or name=size/unit, such as heads=4/1"});
  }
  int64_t value = 0;
  for (char c : text) {
    int digit = c - '0';
    if (value > (std::numeric_limits<int64_t>::max() - digit) / 10) {
      return Rejected(
          {"W0313", "", absl::StrCat("a ", what, " below 2^63 in ", Quote(item)), text, ""});
    }
    value = value * 10 + digit;
  }
  if (value < 1) {
    return Rejected(
        {"W0313", "", absl::StrCat("a ", what, " of at least 1 in ", Quote(item)), text, ""});
  }
  return value;
}

absl::Status UnknownDim(const std::string& name, const DimTable& table) {
  std::vector<std::string> names;
  for (const auto& [known, unused] : table) names.push_back(known);
  const std::string nearest = Nearest(name, names);
  return Rejected({"W0312", "", absl::StrCat("a dimension of the table (", TableText(table), ")"),
                   Quote(name),
                   nearest.empty() ? absl::StrCat("give its size here: ", name, "=16") : nearest});
}

// Parses "heads*head_dim". A shard holds whole multiples of all names but the first.
absl::StatusOr<sbp::TensorDim> ParseProduct(const std::string& item, const DimTable& table) {
  sbp::TensorDim product;
  for (size_t begin = 0; begin <= item.size();) {
    const size_t star = std::min(item.find('*', begin), item.size());
    const std::string name = Trim(item.substr(begin, star - begin));
    if (!IsName(name)) {
      return Rejected({"W0311", "", "names of dimensions on both sides of \"*\"", Quote(item),
                       "a product such as heads*head_dim"});
    }
    const auto known = table.find(name);
    if (known == table.end()) return UnknownDim(name, table);
    if (begin == 0) {
      product = known->second;
      product.name = known->first;
    } else {
      if (known->second.size > 0 &&
          product.size > std::numeric_limits<int64_t>::max() / known->second.size) {
        return Rejected({"W0313", "", absl::StrCat("a size below 2^63 of ", Quote(item)),
                         "a larger product", ""});
      }
      product.size *= known->second.size;
      product.unit *= known->second.size;
    }
    begin = star + 1;
  }
  return product;
}

absl::StatusOr<sbp::TensorDim> ParseItem(const std::string& raw, const DimTable& table) {
  std::string item = Trim(raw);
  size_t equals = item.find('=');
  if (equals == std::string::npos && item.find('*') != std::string::npos)
    return ParseProduct(item, table);
  sbp::TensorDim dim;
  dim.name = Trim(item.substr(0, equals));
  if (!IsName(dim.name)) {
    return Rejected({"W0311", "", "a dimension as name, name*name, name=size or name=size/unit",
                     Quote(item), "a name of letters, digits, '_' and '.', such as head_dim=16"});
  }
  auto known = table.find(dim.name);
  if (equals == std::string::npos) {
    if (known == table.end()) return UnknownDim(dim.name, table);
    dim = known->second;
    dim.name = known->first;
  } else {
    std::string numbers = item.substr(equals + 1);
    size_t slash = numbers.find('/');
    WEIR_ASSIGN_OR_RETURN(dim.size, ParseCount(Trim(numbers.substr(0, slash)), item, "size"));
    dim.unit = known == table.end() ? 1 : known->second.unit;
    if (slash != std::string::npos) {
      WEIR_ASSIGN_OR_RETURN(dim.unit, ParseCount(Trim(numbers.substr(slash + 1)), item, "unit"));
    }
  }
  if (dim.size < 1 || dim.unit < 1 || dim.size % dim.unit != 0) {
    return Rejected(
        {"W0314", "",
         absl::StrCat("a size of \"", dim.name, "\" that is a multiple of its unit ", dim.unit),
         absl::StrCat(dim.size), absl::StrCat(dim.name, "=", dim.size, "/1")});
  }
  return dim;
}

absl::StatusOr<DeclaredRange> ParseRange(const std::string& text, const DimTable& table) {
  constexpr int64_t kBelowMax = int64_t{1} << 31;  // the values are i32
  DeclaredRange range{0, text};
  auto known = table.find(text);
  if (known != table.end()) {
    range.below = known->second.size;
  } else if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0]))) {
    WEIR_ASSIGN_OR_RETURN(range.below, ParseCount(text, absl::StrCat("<", text, ">"), "range"));
  } else {
    std::vector<std::string> names;
    for (const auto& [name, unused] : table) names.push_back(name);
    std::string nearest = Nearest(text, names);
    return Rejected({"W0901", "",
                     absl::StrCat("a range that is a number or a dimension of the table (",
                                  TableText(table), ")"),
                     Quote(text),
                     nearest.empty() ? "i32<256>[...]" : absl::StrCat("i32<", nearest, ">[...]")});
  }
  if (range.below > kBelowMax) {
    return Rejected({"W0901", "", "a range of at most 2^31, since the values are i32",
                     absl::StrCat(range.below), ""});
  }
  return range;
}

absl::Status CheckCountable(const std::vector<sbp::TensorDim>& dims, const std::string& text) {
  sbp::TensorType type{DType::kF32, dims};
  int64_t elements = NumElements(type.shape());
  if (elements < 0 || elements > std::numeric_limits<int64_t>::max() / 8) {
    return Rejected(
        {"W0313", "", "a tensor whose bytes can be counted in 63 bits", Quote(text), ""});
  }
  return absl::OkStatus();
}

// Parses a type without its range. `range` is as in MeantType.
absl::StatusOr<sbp::TensorType> ParseWithoutRange(const std::string& text, const std::string& range,
                                                  const DimTable& table) {
  std::string all = Trim(text);
  if (all.empty())
    return Rejected({"W0311", "",
                     "a type: an element type (f32, bf16, f16, i32, bool) and dimensions", "none",
                     "type: \"f32[rows, columns]\", with names of `dim`"});
  size_t open = all.find('[');
  std::string name = Trim(all.substr(0, open));
  auto dtype = DTypeFromName(name);
  if (!dtype) {
    return Rejected({"W0311", "", "an element type (f32, bf16, f16, i32, bool) and dimensions",
                     Quote(all), MeantType(all, range)});
  }
  if (open == std::string::npos) return sbp::TensorType{*dtype, {}};
  if (all.back() != ']') {
    return Rejected({"W0311", "", "a type that ends in \"]\"", Quote(all), absl::StrCat(all, "]")});
  }
  WEIR_ASSIGN_OR_RETURN(auto dims, ParseDims(all.substr(open + 1, all.size() - open - 2), table));
  return sbp::TensorType{*dtype, std::move(dims)};
}

}  // namespace

absl::StatusOr<std::vector<sbp::TensorDim>> ParseDims(const std::string& text,
                                                      const DimTable& table) {
  std::vector<sbp::TensorDim> dims;
  if (Trim(text).empty()) return dims;
  for (size_t begin = 0; begin <= text.size();) {
    size_t comma = std::min(text.find(',', begin), text.size());
    WEIR_ASSIGN_OR_RETURN(sbp::TensorDim dim, ParseItem(text.substr(begin, comma - begin), table));
    dims.push_back(dim);
    begin = comma + 1;
  }
  WEIR_RETURN_IF_ERROR(CheckCountable(dims, text));
  return dims;
}

absl::StatusOr<sbp::TensorType> ParseType(const std::string& text, const DimTable& table) {
  return ParseWithoutRange(text, "", table);
}

absl::StatusOr<DeclaredType> ParseDeclaredType(const std::string& text, const DimTable& table) {
  DeclaredType declared;
  const size_t open = text.find('<'), close = text.find('>');
  if (open == std::string::npos || open > text.find('[')) {
    WEIR_ASSIGN_OR_RETURN(declared.type, ParseType(text, table));
    return declared;
  }
  if (close == std::string::npos || close < open) {
    return Rejected({"W0311", "", "a type whose range ends in \">\"", Quote(text),
                     "i32<vocab>[batch, sequence]"});
  }
  WEIR_ASSIGN_OR_RETURN(declared.type,
                        ParseWithoutRange(text.substr(0, open) + text.substr(close + 1),
                                          text.substr(open, close + 1 - open), table));
  if (declared.type.dtype != DType::kI32) {
    return Rejected({"W0900", "", "a range on integers (i32) only", Quote(text),
                     text.substr(0, open) + text.substr(close + 1)});
  }
  WEIR_ASSIGN_OR_RETURN(declared.range,
                        ParseRange(Trim(text.substr(open + 1, close - open - 1)), table));
  return declared;
}

std::string DimsText(const std::vector<sbp::TensorDim>& dims) {
  std::string text;
  for (const sbp::TensorDim& dim : dims) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", dim.name, "=", dim.size, "/", dim.unit);
  }
  return text;
}

}  // namespace weir::ops
