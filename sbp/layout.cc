#include "sbp/layout.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace weir::sbp {
namespace {

constexpr char kKinds[] = "S(i), S(i, at=0:..:size), B, P(sum) or P(max)";

std::string Strip(absl::string_view text) { return std::string(absl::StripAsciiWhitespace(text)); }

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

std::string AxisNames(const Mesh& mesh) {
  if (mesh.num_axes() == 0) return "no axes";
  return absl::StrJoin(mesh.axes(), ", ",
                       [](std::string* out, const MeshAxis& axis) { out->append(axis.name); });
}

// Splits at commas outside parentheses.
std::vector<std::string> SplitItems(const std::string& text) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (char c : text) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      items.emplace_back();
    } else {
      items.back().push_back(c);
    }
  }
  return items;
}

// A non-negative decimal number without sign.
bool ParseNumber(const std::string& text, int64_t* value) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(text, value);
}

absl::Status ParseOffsets(const std::string& text, const std::string& where, int64_t parts,
                          Sbp* sbp) {
  const std::string expected = absl::StrCat("at= followed by ", parts + 1,
                                            " offsets from 0 on, not falling, between colons");
  if (text.rfind("at=", 0) != 0)
    return Rejected({"W0206", where, expected, Quoted(text), "S(0, at=0:2:3)"});
  for (absl::string_view item : absl::StrSplit(text.substr(3), ':')) {
    int64_t offset = 0;
    if (!ParseNumber(Strip(item), &offset)) {
      return Rejected({"W0206", where, expected, Quoted(text), "whole numbers"});
    }
    sbp->offsets.push_back(offset);
  }
  if (static_cast<int64_t>(sbp->offsets.size()) != parts + 1) {
    return Rejected({"W0206", where, expected, absl::StrCat(sbp->offsets.size(), " offsets"),
                     "one offset more than the mesh axis has ranks"});
  }
  if (sbp->offsets[0] != 0 || !std::is_sorted(sbp->offsets.begin(), sbp->offsets.end())) {
    return Rejected(
        {"W0206", where, expected, Quoted(text), "offsets that start at 0 and never fall"});
  }
  return absl::OkStatus();
}

absl::StatusOr<Sbp> ParseSbp(const std::string& text, const std::string& where, int64_t parts) {
  if (text == "B") return Sbp::B();
  if (text.size() < 3 || text[1] != '(' || text.back() != ')' ||
      (text[0] != 'S' && text[0] != 'P')) {
    std::string hint = Nearest(text, std::vector<std::string>{"S(0)", "B", "P(sum)", "P(max)"});
    return Rejected(
        {"W0203", where, kKinds, Quoted(text), hint.empty() ? "S(0), B or P(sum)" : hint});
  }
  const std::string inside = text.substr(2, text.size() - 3);
  if (text[0] == 'P') {
    for (Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
      if (Strip(inside) == Name(combiner)) return Sbp::P(combiner);
    }
    std::string hint = Nearest(inside, std::vector<std::string>{"sum", "max"});
    return Rejected({"W0205", where, "the combiner sum or max", Quoted(inside),
                     absl::StrCat("P(", hint.empty() ? "sum" : hint, ")")});
  }
  std::vector<std::string> parts_text = absl::StrSplit(inside, absl::MaxSplits(',', 1));
  int64_t axis = 0;
  if (!ParseNumber(Strip(parts_text[0]), &axis) || axis > 1000) {
    return Rejected(
        {"W0206", where, "the number of a tensor axis, from 0 on", Quoted(parts_text[0]), "S(0)"});
  }
  Sbp sbp = Sbp::S(static_cast<int>(axis));
  if (parts_text.size() == 2)
    WEIR_RETURN_IF_ERROR(ParseOffsets(Strip(parts_text[1]), where, parts, &sbp));
  return sbp;
}

absl::Status UnknownAxis(const std::string& name, const std::string& where, const Mesh& mesh) {
  if (name == kPipelineAxis) {
    return Rejected({"W0202", where, absl::StrCat("an axis of the stage mesh: ", AxisNames(mesh)),
                     absl::StrCat("the pipeline axis ", Quoted(name)), "a layout without it"});
  }
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  std::string hint = Nearest(name, names);
  if (hint.empty() && !names.empty()) hint = names[0];
  return Rejected(
      {"W0202", where, absl::StrCat("an axis of the mesh: ", AxisNames(mesh)), Quoted(name), hint});
}

absl::Status ValidateType(const TensorType& type, const std::string& where) {
  for (const TensorDim& dim : type.dims) {
    if (dim.size < 0 || dim.unit < 1 || dim.size % dim.unit != 0) {
      return Rejected(
          {"W0215", where, "sizes from 0 on, divided by units from 1 on",
           absl::StrCat("dimension ", dim.name, " of size ", dim.size, " and unit ", dim.unit),
           "unit 1"});
    }
  }
  int64_t elements = type.num_elements();
  if (elements < 0 || elements > INT64_MAX / SizeOf(type.dtype)) {
    return Rejected({"W0215", where, "fewer than 2^63 bytes", ToText(type), "smaller dimensions"});
  }
  return absl::OkStatus();
}

absl::Status ValidateSplit(const Sbp& sbp, const TensorType& type, int64_t parts,
                           const std::string& where) {
  const int rank = static_cast<int>(type.dims.size());
  if (sbp.axis < 0 || sbp.axis >= rank) {
    return Rejected({"W0211", where,
                     rank == 0 ? std::string("no split, for a scalar")
                               : absl::StrCat("a tensor axis from 0 to ", rank - 1),
                     ToText(sbp), rank == 0 ? "B" : absl::StrCat("S(", rank - 1, ")")});
  }
  if (sbp.offsets.empty()) return absl::OkStatus();
  const TensorDim& dim = type.dims[sbp.axis];
  const std::string expected =
      absl::StrCat(parts + 1, " offsets from 0 to ", dim.size,
                   dim.unit == 1 ? "" : absl::StrCat(", all multiples of ", dim.unit));
  bool fits = static_cast<int64_t>(sbp.offsets.size()) == parts + 1 && sbp.offsets.front() == 0 &&
              sbp.offsets.back() == dim.size &&
              std::is_sorted(sbp.offsets.begin(), sbp.offsets.end());
  for (int64_t offset : sbp.offsets) fits = fits && offset % dim.unit == 0;
  if (!fits) {
    return Rejected({"W0212", where, expected, ToText(sbp),
                     absl::StrCat("S(", sbp.axis, "), the balanced split")});
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToText(const Sbp& sbp) {
  switch (sbp.kind) {
    case SbpKind::kBroadcast: return "B";
    case SbpKind::kPartial: return absl::StrCat("P(", Name(sbp.combiner), ")");
    case SbpKind::kSplit:
      if (sbp.offsets.empty()) return absl::StrCat("S(", sbp.axis, ")");
      return absl::StrCat("S(", sbp.axis, ", at=", absl::StrJoin(sbp.offsets, ":"), ")");
  }
  return "?";
}

Shape TensorType::shape() const {
  Shape shape;
  shape.reserve(dims.size());
  for (const TensorDim& dim : dims) shape.push_back(dim.size);
  return shape;
}

std::string ToText(const TensorType& type) {
  return absl::StrCat(Name(type.dtype), "[",
                      absl::StrJoin(type.dims, ", ",
                                    [](std::string* out, const TensorDim& dim) {
                                      absl::StrAppend(out, dim.name, "=", dim.size);
                                      if (dim.unit != 1) absl::StrAppend(out, "/", dim.unit);
                                    }),
                      "]");
}

Layout Broadcast(const Mesh& mesh) { return Layout(mesh.num_axes()); }

std::string ToText(const Layout& layout, const Mesh& mesh) {
  std::string text = "[";
  for (size_t i = 0; i < layout.size(); ++i) {
    std::string name = i < mesh.axes().size() ? mesh.axes()[i].name : "?";
    absl::StrAppend(&text, i == 0 ? "" : ", ", name, ": ", ToText(layout[i]));
  }
  return text + "]";
}

absl::StatusOr<Layout> ParseLayout(const std::string& text, const Mesh& mesh) {
  const std::string where = absl::StrCat("layout ", Quoted(text));
  const std::string stripped = Strip(text);
  const std::string example = ToText(Broadcast(mesh), mesh);
  if (stripped.size() < 2 || stripped.front() != '[' || stripped.back() != ']') {
    return Rejected({"W0201", where, "a list in brackets", Quoted(text), example});
  }
  Layout layout = Broadcast(mesh);
  const std::string inside = stripped.substr(1, stripped.size() - 2);
  if (Strip(inside).empty()) return layout;
  int last = -1;
  for (const std::string& item : SplitItems(inside)) {
    size_t colon = item.find(':');
    if (colon == std::string::npos) {
      return Rejected(
          {"W0201", where, "items axis: kind between commas", Quoted(Strip(item)), example});
    }
    const std::string name = Strip(item.substr(0, colon));
    const int axis = mesh.AxisIndex(name);
    if (axis < 0 || name == kPipelineAxis) return UnknownAxis(name, where, mesh);
    if (axis <= last) {
      return Rejected(
          {"W0204", where, absl::StrCat("each axis at most once, in mesh order: ", AxisNames(mesh)),
           absl::StrCat(Quoted(name), " after ", Quoted(mesh.axes()[last].name)), example});
    }
    last = axis;
    WEIR_ASSIGN_OR_RETURN(layout[axis],
                          ParseSbp(Strip(item.substr(colon + 1)), where, mesh.size(axis)));
  }
  return layout;
}

absl::Status ValidateLayout(const Layout& layout, const TensorType& type, const Mesh& mesh) {
  const std::string where = absl::StrCat("layout ", ToText(layout, mesh), " of ", ToText(type));
  WEIR_RETURN_IF_ERROR(ValidateType(type, where));
  if (static_cast<int>(layout.size()) != mesh.num_axes()) {
    return Rejected({"W0210", where, absl::StrCat(mesh.num_axes(), " entries, one per mesh axis"),
                     absl::StrCat(layout.size()), ToText(Broadcast(mesh), mesh)});
  }
  const Sbp* partial = nullptr;
  for (int i = 0; i < mesh.num_axes(); ++i) {
    const Sbp& sbp = layout[i];
    if (sbp.is_split()) WEIR_RETURN_IF_ERROR(ValidateSplit(sbp, type, mesh.size(i), where));
    if (!sbp.is_partial()) continue;
    if (!IsReal(type.dtype)) {
      return Rejected({"W0213", where, "partial values of f32, bf16 or f16 only",
                       absl::StrCat(ToText(sbp), " of ", Name(type.dtype)), "B or S(i)"});
    }
    if (partial != nullptr && partial->combiner != sbp.combiner) {
      return Rejected({"W0214", where, "one combiner on all partial axes of a layout",
                       absl::StrCat(ToText(*partial), " and ", ToText(sbp)),
                       "B on one of the axes"});
    }
    partial = &sbp;
  }
  return absl::OkStatus();
}

Range PartOf(const Range& parent, const Sbp& sbp, int64_t unit, int64_t parts, int64_t index) {
  if (!sbp.offsets.empty()) {
    Range part{std::max(parent.begin, sbp.offsets[index]),
               std::min(parent.end, sbp.offsets[index + 1])};
    // Empty parts stay inside the parent, so that local coordinates are never negative.
    part.begin = std::min(part.begin, parent.end);
    part.end = std::max(part.begin, part.end);
    return part;
  }
  const int64_t units = (parent.length() + unit - 1) / unit;
  const int64_t each = units / parts, longer = units % parts;
  auto cut = [&](int64_t i) {
    return std::min(parent.begin + (each * i + std::min(i, longer)) * unit, parent.end);
  };
  return Range{cut(index), cut(index + 1)};
}

Rect ShardRect(const TensorType& type, const Layout& layout, const Mesh& mesh,
               const Coords& coords) {
  Rect rect{Shape(type.dims.size(), 0), type.shape()};
  for (int i = 0; i < mesh.num_axes(); ++i) {
    const Sbp& sbp = layout[i];
    if (!sbp.is_split()) continue;
    Range part = PartOf(Range{rect.begin[sbp.axis], rect.end[sbp.axis]}, sbp,
                        type.dims[sbp.axis].unit, mesh.size(i), coords[i]);
    rect.begin[sbp.axis] = part.begin;
    rect.end[sbp.axis] = part.end;
  }
  return rect;
}

TensorSlice LocalSlice(const TensorType& type, const Layout& layout, const Mesh& mesh,
                       const Coords& coords) {
  Rect rect = ShardRect(type, layout, mesh, coords);
  return TensorSlice{type.dtype, rect.shape(), rect.begin, type.shape()};
}

}  // namespace weir::sbp
