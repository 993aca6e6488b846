#include "tools/weights/weight_map.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "tools/job/message_text.h"

namespace weir::weights {
namespace {

constexpr int64_t kMapBytesMax = 16 << 20;
constexpr int kRulesMax = 20'000;
constexpr size_t kPatternRulesMax = 1'000;
constexpr int kListMax = 1'000;  // of ignored tensors, aliases, fresh weights
constexpr int kSourcesMax = 1'000;
constexpr int kNamesMax = 16;
constexpr int kAxesMax = 16;
constexpr char kHint[] = "docs/reference/weight_maps.md";

absl::Status WrongMap(const std::string& where, const std::string& expected,
                      const std::string& found) {
  return Rejected({"W0048", where, expected, found, kHint});
}

bool AnyFits(const std::vector<NamePattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const NamePattern& pattern) { return pattern.Match(name).has_value(); });
}

// Makes the parts of a map, and keeps the place for errors.
class MapMaker {
 public:
  explicit MapMaker(std::string where) : where_(std::move(where)) {}

  absl::StatusOr<NamePattern> Pattern(const std::string& text, const std::string& what) const {
    absl::StatusOr<NamePattern> pattern = NamePattern::Parse(text);
    if (pattern.ok()) return pattern;
    return WrongMap(absl::StrCat(where_, ", ", what, " \"", text, "\""),
                    "a name with placeholders such as {i}",
                    std::string(pattern.status().message()));
  }

  // Makes a pattern whose placeholders are among those of `of`.
  absl::StatusOr<NamePattern> PatternOf(const std::string& text, const std::string& what,
                                        const NamePattern& of) const {
    WEIR_ASSIGN_OR_RETURN(NamePattern pattern, Pattern(text, what));
    for (const std::string& word : pattern.words()) {
      if (std::count(of.words().begin(), of.words().end(), word) > 0) continue;
      return WrongMap(absl::StrCat(where_, ", ", what, " \"", text, "\""),
                      absl::StrCat("placeholders of \"", of.text(), "\""),
                      absl::StrCat("{", word, "}"));
    }
    return pattern;
  }

  absl::StatusOr<std::vector<NamePattern>> Patterns(
      const google::protobuf::RepeatedPtrField<std::string>& texts, const std::string& what) const {
    WEIR_RETURN_IF_ERROR(Count(what, texts.size(), 0, kListMax));
    std::vector<NamePattern> patterns;
    for (const std::string& text : texts) {
      WEIR_ASSIGN_OR_RETURN(NamePattern pattern, Pattern(text, what));
      patterns.push_back(std::move(pattern));
    }
    return patterns;
  }

  absl::Status Count(const std::string& what, int64_t found, int64_t least, int64_t most) const {
    if (found >= least && found <= most) return absl::OkStatus();
    return WrongMap(absl::StrCat(where_, ", ", what),
                    absl::StrCat("a number from ", least, " to ", most), absl::StrCat(found));
  }

  absl::StatusOr<Shape> ShapeOf(const google::protobuf::RepeatedField<int64_t>& sizes,
                                const std::string& what) const {
    WEIR_RETURN_IF_ERROR(Count(absl::StrCat("axes of ", what), sizes.size(), 0, kAxesMax));
    Shape shape(sizes.begin(), sizes.end());
    if (NumElements(shape) < 0)
      return WrongMap(absl::StrCat(where_, ", ", what), "a shape of possible size", ToText(shape));
    return shape;
  }

  absl::StatusOr<TensorSource> Source(const proto::TensorSource& in) const {
    TensorSource source;
    WEIR_ASSIGN_OR_RETURN(source.view, ShapeOf(in.view(), "view"));
    WEIR_ASSIGN_OR_RETURN(source.shape, ShapeOf(in.shape(), "shape"));
    std::vector<int> sorted(in.transpose().begin(), in.transpose().end());
    WEIR_RETURN_IF_ERROR(
        Count("axes of transpose", static_cast<int64_t>(sorted.size()), 0, kAxesMax));
    source.transpose = sorted;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] != static_cast<int>(i))
        return WrongMap(absl::StrCat(where_, ", transpose"), "each axis from 0 on, once",
                        absl::StrCat("axis ", sorted[i]));
    }
    if (in.has_part()) {
      source.cut = TensorSource::Cut::kPart;
      source.cut_axis = in.part().axis();
      source.begin = in.part().index();
      source.size = in.part().of();
      WEIR_RETURN_IF_ERROR(Count("part.of", source.size, 1, INT64_MAX));
      WEIR_RETURN_IF_ERROR(Count("part.index", source.begin, 0, source.size - 1));
    } else if (in.has_range()) {
      source.cut = TensorSource::Cut::kRange;
      source.cut_axis = in.range().axis();
      source.begin = in.range().begin();
      source.size = in.range().size();
      WEIR_RETURN_IF_ERROR(Count("range.begin", source.begin, 0, INT64_MAX));
      WEIR_RETURN_IF_ERROR(Count("range.size", source.size, 0, INT64_MAX - source.begin));
    }
    WEIR_RETURN_IF_ERROR(Count("axis of a cut", source.cut_axis, 0, kAxesMax - 1));
    return source;
  }

 private:
  const std::string where_;
};

}  // namespace

absl::StatusOr<WeightMap> WeightMap::Make(const proto::WeightMap& message,
                                          const std::string& name) {
  WeightMap map;
  map.name_ = name;
  map.message_ = message;
  const std::string where = absl::StrCat("map ", name);
  const MapMaker whole(where);
  WEIR_RETURN_IF_ERROR(whole.Count("rules", message.rule_size(), 1, kRulesMax));
  WEIR_RETURN_IF_ERROR(
      whole.Count("optional_prefix", message.optional_prefix_size(), 0, kNamesMax));
  if (message.constants_file().find('/') != std::string::npos || message.constants_file() == "..")
    return WrongMap(where + ", constants_file", "the name of a file in the folder of the job",
                    absl::StrCat("\"", message.constants_file(), "\""));
  for (const proto::WeightRule& in : message.rule()) {
    const MapMaker maker(absl::StrCat(where, ", rule of \"", in.weight(), "\""));
    Rule rule;
    WEIR_ASSIGN_OR_RETURN(rule.weight, maker.Pattern(in.weight(), "weight"));
    WEIR_RETURN_IF_ERROR(maker.Count("sources", in.from_size(), 1, kSourcesMax));
    WEIR_RETURN_IF_ERROR(maker.Count("axis", in.axis(), 0, kAxesMax - 1));
    rule.axis = in.axis();
    rule.reshape = in.reshape();
    for (const proto::TensorSource& from : in.from()) {
      WEIR_ASSIGN_OR_RETURN(TensorSource source, maker.Source(from));
      WEIR_RETURN_IF_ERROR(maker.Count("tensors of a source", from.tensor_size(), 1, kNamesMax));
      std::vector<NamePattern> names;
      for (const std::string& text : from.tensor()) {
        WEIR_ASSIGN_OR_RETURN(NamePattern tensor, maker.PatternOf(text, "tensor", rule.weight));
        names.push_back(std::move(tensor));
      }
      rule.from.push_back(std::move(source));
      rule.tensors.push_back(std::move(names));
    }
    if (rule.weight.has_placeholders()) {
      map.patterns_.push_back(map.rules_.size());
    } else {
      map.exact_.emplace(rule.weight.text(), map.rules_.size());
    }
    map.rules_.push_back(std::move(rule));
  }
  WEIR_RETURN_IF_ERROR(whole.Count("rules with placeholders",
                                   static_cast<int64_t>(map.patterns_.size()), 0,
                                   static_cast<int64_t>(kPatternRulesMax)));
  WEIR_ASSIGN_OR_RETURN(map.ignore_, whole.Patterns(message.ignore(), "ignore"));
  WEIR_ASSIGN_OR_RETURN(map.fresh_, whole.Patterns(message.fresh(), "fresh"));
  WEIR_ASSIGN_OR_RETURN(map.constants_, whole.Patterns(message.constant(), "constant"));
  WEIR_RETURN_IF_ERROR(whole.Count("aliases", message.alias_size(), 0, kListMax));
  for (const proto::TensorAlias& in : message.alias()) {
    Alias alias;
    WEIR_ASSIGN_OR_RETURN(alias.tensor, whole.Pattern(in.tensor(), "alias"));
    WEIR_ASSIGN_OR_RETURN(alias.same_as, whole.PatternOf(in.same_as(), "same_as", alias.tensor));
    map.aliases_.push_back(std::move(alias));
  }
  return map;
}

absl::StatusOr<WeightMap> WeightMap::Parse(const std::string& text, const std::string& name) {
  proto::WeightMap message;
  WEIR_RETURN_IF_ERROR(job::ParseMessageText(
      text, {name, "W0048", "a map of weights in protobuf text form (proto/weights.proto)", kHint},
      &message));
  return Make(message, name);
}

absl::StatusOr<WeightMap> WeightMap::Read(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const auto file, store::MappedFile::Open(path, "map of weights"));
  if (file->size() > kMapBytesMax)
    return WrongMap(path, absl::StrCat("at most ", kMapBytesMax, " bytes"),
                    absl::StrCat(file->size()));
  return Parse(std::string(file->text()), path);
}

std::optional<SourcesOfWeight> WeightMap::SourcesOf(const std::string& weight) const {
  size_t chosen = rules_.size();
  Captures captures;
  if (const auto exact = exact_.find(weight); exact != exact_.end()) chosen = exact->second;
  for (const size_t i : patterns_) {
    if (i > chosen) break;
    std::optional<Captures> found = rules_[i].weight.Match(weight);
    if (!found.has_value()) continue;
    captures = *std::move(found);
    chosen = i;
    break;
  }
  if (chosen == rules_.size()) return std::nullopt;
  const Rule& rule = rules_[chosen];
  SourcesOfWeight sources{rule.from, rule.axis, rule.reshape};
  for (size_t k = 0; k < sources.from.size(); ++k) {
    for (const NamePattern& tensor : rule.tensors[k])
      sources.from[k].tensors.push_back(tensor.Fill(captures));
  }
  return sources;
}

bool WeightMap::IsFresh(const std::string& weight) const { return AnyFits(fresh_, weight); }

bool WeightMap::IsConstant(const std::string& weight) const {
  return AnyFits(constants_, weight) && !SourcesOf(weight).has_value();
}

std::vector<std::string> WeightMap::NamesInFile(const std::string& tensor) const {
  std::vector<std::string> names = {tensor};
  for (const std::string& prefix : message_.optional_prefix()) {
    if (!prefix.empty() && tensor.size() > prefix.size() && absl::StartsWith(tensor, prefix))
      names.push_back(tensor.substr(prefix.size()));
  }
  return names;
}

std::vector<std::string> WeightMap::FullNames(const std::string& name_in_file) const {
  std::vector<std::string> names = {name_in_file};
  for (const std::string& prefix : message_.optional_prefix())
    names.push_back(absl::StrCat(prefix, name_in_file));
  return names;
}

bool WeightMap::IsIgnored(const std::string& name_in_file) const {
  for (const std::string& name : FullNames(name_in_file)) {
    if (AnyFits(ignore_, name)) return true;
  }
  return false;
}

std::optional<std::string> WeightMap::SameAs(const std::string& name_in_file) const {
  for (const std::string& name : FullNames(name_in_file)) {
    for (const Alias& alias : aliases_) {
      const std::optional<Captures> captures = alias.tensor.Match(name);
      if (captures.has_value()) return alias.same_as.Fill(*captures);
    }
  }
  return std::nullopt;
}

}  // namespace weir::weights
