#include "sbp/mesh.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace weir::sbp {
namespace {

// Ranks are 32-bit (RankId).
constexpr int64_t kMaxRanks = std::numeric_limits<int32_t>::max();

bool IsAxisName(const std::string& name) {
  if (name.empty() || !(absl::ascii_isalpha(name[0]) || name[0] == '_')) return false;
  for (char c : name) {
    if (!(absl::ascii_isalnum(c) || c == '_')) return false;
  }
  return true;
}

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

}  // namespace

absl::StatusOr<Mesh> Mesh::Parse(const std::string& text) {
  const std::string where = absl::StrCat("mesh ", Quoted(text));
  std::vector<MeshAxis> axes;
  if (!absl::StripAsciiWhitespace(text).empty()) {
    for (absl::string_view item : absl::StrSplit(text, ',')) {
      std::vector<std::string> parts = absl::StrSplit(item, '=');
      if (parts.size() != 2) {
        return Rejected({"W0101", where, "items name=size between commas",
                         Quoted(std::string(item)), "dp=2,tp=2"});
      }
      MeshAxis axis;
      axis.name = std::string(absl::StripAsciiWhitespace(parts[0]));
      std::string size(absl::StripAsciiWhitespace(parts[1]));
      bool digits = !size.empty() && size.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || !absl::SimpleAtoi(size, &axis.size)) {
        return Rejected(
            {"W0103", where,
             absl::StrCat("a size from 1 to ", kMaxRanks, " for axis ", Quoted(axis.name)),
             Quoted(size), absl::StrCat(axis.name, "=1")});
      }
      axes.push_back(std::move(axis));
    }
  }
  Mesh mesh(std::move(axes));
  WEIR_RETURN_IF_ERROR(mesh.Validate());
  return mesh;
}

absl::Status Mesh::Validate() const {
  const std::string where = absl::StrCat("mesh ", Quoted(ToText()));
  std::set<std::string> names;
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes_) {
    if (!IsAxisName(axis.name)) {
      return Rejected({"W0102", where,
                       "an axis name of letters, digits and _, not starting with a digit",
                       Quoted(axis.name), "dp"});
    }
    if (!names.insert(axis.name).second) {
      return Rejected({"W0104", where, "each axis name once",
                       absl::StrCat(Quoted(axis.name), " twice"), "another name for one of them"});
    }
    if (axis.size < 1) {
      return Rejected(
          {"W0103", where,
           absl::StrCat("a size from 1 to ", kMaxRanks, " for axis ", Quoted(axis.name)),
           absl::StrCat(axis.size), absl::StrCat(axis.name, "=1")});
    }
    if (axis.size > kMaxRanks || ranks > kMaxRanks / axis.size) {
      return Rejected({"W0105", where, absl::StrCat("at most ", kMaxRanks, " ranks in all"),
                       absl::StrCat("more, from axis ", Quoted(axis.name), " on"), "smaller axes"});
    }
    ranks *= axis.size;
  }
  return absl::OkStatus();
}

int Mesh::AxisIndex(const std::string& name) const {
  for (int i = 0; i < num_axes(); ++i) {
    if (axes_[i].name == name) return i;
  }
  return -1;
}

int64_t Mesh::num_ranks() const {
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes_) ranks *= axis.size;
  return ranks;
}

Coords Mesh::CoordsOf(int64_t rank) const {
  Coords coords(axes_.size());
  for (int i = num_axes() - 1; i >= 0; --i) {
    coords[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return coords;
}

int64_t Mesh::RankOf(const Coords& coords) const {
  int64_t rank = 0;
  for (int i = 0; i < num_axes(); ++i) rank = rank * axes_[i].size + coords[i];
  return rank;
}

absl::StatusOr<std::vector<int>> Mesh::OrderOf(const std::vector<std::string>& names,
                                               const std::string& where) const {
  const auto name_of = [](std::string* out, const MeshAxis& axis) { out->append(axis.name); };
  const std::string all = absl::StrJoin(axes_, ",", name_of);
  const auto flaw = [&](const std::string& found) {
    return Rejected({"W0106", where,
                     absl::StrCat("each axis of the mesh ", ToText(), " once, slowest first"),
                     found, all});
  };
  if (axes_.empty())
    return Rejected({"W0106", where, "no axes, because the mesh has one device",
                     Quoted(absl::StrJoin(names, ",")), "no order"});
  std::vector<int> order;
  for (const std::string& name : names) {
    const int axis = AxisIndex(name);
    if (axis < 0) return flaw(absl::StrCat(Quoted(name), ", which the mesh lacks"));
    if (std::find(order.begin(), order.end(), axis) != order.end())
      return flaw(absl::StrCat(Quoted(name), " twice"));
    order.push_back(axis);
  }
  for (int axis = 0; axis < num_axes(); ++axis) {
    if (std::find(order.begin(), order.end(), axis) == order.end())
      return flaw(absl::StrCat(Quoted(absl::StrJoin(names, ",")), ", which lacks ",
                               Quoted(axes_[axis].name)));
  }
  return order;
}

std::string Mesh::ToText() const {
  return absl::StrJoin(axes_, ",", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name, "=", axis.size);
  });
}

}  // namespace weir::sbp
