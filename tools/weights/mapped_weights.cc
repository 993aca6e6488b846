#include "tools/weights/mapped_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/store/weight_index.h"
#include "tools/weights/adapter_names.h"

namespace weir::weights {
namespace {

constexpr size_t kNamesShown = 5;

// Returns "a, b, c and 4 more". A file may have very many names.
template <typename List, typename TextOf>
std::string SomeOf(const List& list, TextOf&& text_of) {
  std::vector<std::string> shown;
  for (const auto& entry : list) {
    if (shown.size() == kNamesShown) break;
    shown.push_back(text_of(entry));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (list.size() > shown.size())
    absl::StrAppend(&text, " and ", list.size() - shown.size(), " more");
  return text;
}

// States of a checkpoint that are no weights have names with a slash.
bool MayBeWeight(const std::string& name) { return !absl::StrContains(name, "/"); }

}  // namespace

bool MappedWeights::IsConstant(const std::string& weight) const {
  return constants_ != nullptr && map_->IsConstant(weight) &&
         constants_->tensors().count(weight) > 0;
}

bool MappedWeights::HasSources(const std::string& weight) const {
  const std::optional<SourcesOfWeight> sources = map_->SourcesOf(weight);
  return sources.has_value() &&
         std::all_of(sources->from.begin(), sources->from.end(),
                     [&](const TensorSource& source) { return NameInFile(source).has_value(); });
}

bool MappedWeights::IsFreshByMap(const std::string& weight) const {
  return map_ != nullptr && map_->IsFresh(weight) && !HasSources(weight);
}

bool MappedWeights::IsAbsentAdapter(const std::string& weight) const {
  return AdaptedWeight(weight).has_value() && file_->tensors().count(weight) == 0 &&
         (map_ == nullptr || !HasSources(weight));
}

bool MappedWeights::IsByOwnName(const std::string& weight) const {
  return map_ == nullptr ||
         (AdaptedWeight(weight).has_value() && file_->tensors().count(weight) > 0);
}

bool MappedWeights::IsFresh(const std::string& weight) const {
  return IsFreshByMap(weight) || IsAbsentAdapter(weight);
}

int64_t MappedWeights::CountFreshAdapters(const WeightTypes& weights) const {
  return std::count_if(weights.begin(), weights.end(), [&](const auto& entry) {
    return IsAdapter(entry.first, weights) && IsFresh(entry.first);
  });
}

std::optional<std::string> MappedWeights::NameInFile(const TensorSource& source) const {
  for (const std::string& tensor : source.tensors) {
    for (std::string& name : map_->NamesInFile(tensor)) {
      if (file_->tensors().count(name) > 0) return std::move(name);
    }
  }
  return std::nullopt;
}

Misfit MappedWeights::Compare(const WeightTypes& weights) const {
  Misfit misfit;
  std::set<std::string> used;
  const bool may_lack_adapters = std::all_of(
      weights.begin(), weights.end(),
      [&](const auto& entry) { return !IsAdapter(entry.first, weights) || IsFresh(entry.first); });
  for (const auto& [weight, type] : weights) {
    if (may_lack_adapters && IsAdapter(weight, weights)) continue;
    if (IsByOwnName(weight)) {
      used.insert(weight);
      if (file_->tensors().count(weight) == 0) misfit.missing.push_back({weight, weight});
      continue;
    }
    if (IsConstant(weight) || IsFreshByMap(weight)) continue;
    const std::optional<SourcesOfWeight> sources = map_->SourcesOf(weight);
    if (!sources.has_value()) {
      misfit.missing.push_back({weight, ""});
      continue;
    }
    for (const TensorSource& source : sources->from) {
      std::optional<std::string> name = NameInFile(source);
      if (name.has_value()) {
        used.insert(*std::move(name));
      } else {
        misfit.missing.push_back({weight, source.tensors[0]});
        break;
      }
    }
  }
  for (const auto& [name, tensor] : file_->tensors()) {
    if (used.count(name) > 0) continue;
    if (map_ == nullptr ? !MayBeWeight(name)
                        : map_->IsIgnored(name) || map_->SameAs(name).has_value())
      continue;
    misfit.unused.push_back(name);
  }
  return misfit;
}

absl::Status MappedWeights::MisfitError(const Misfit& misfit, size_t num_weights) const {
  std::string found;
  const std::string one_of = store::OneOfSeveralText(file_->path());
  const auto with_files = [&](const std::string& text) {
    return one_of.empty() ? text : absl::StrCat(text, "; the file is ", one_of);
  };
  const auto or_index = [&](const std::string& advice) {
    return one_of.empty() ? advice
                          : absl::StrCat(store::IndexOfShard(file_->path()), ", or ", advice);
  };
  if (map_ == nullptr) {
    if (!misfit.missing.empty())
      found =
          absl::StrCat("no ", SomeOf(misfit.missing, [](const auto& lack) { return lack.weight; }));
    if (!misfit.unused.empty())
      absl::StrAppend(&found, found.empty() ? "" : "; ", "unknown to the model: ",
                      SomeOf(misfit.unused, [](const std::string& name) { return name; }));
    const bool has_adapters =
        std::any_of(misfit.unused.begin(), misfit.unused.end(),
                    [](const std::string& name) { return AdaptedWeight(name).has_value(); });
    return Rejected(
        {"W0071", file_->path(), absl::StrCat("exactly the ", num_weights, " tensors of the model"),
         with_files(found),
         or_index(has_adapters
                      ? "the job with these adapters, or the file that `weir lora merge` makes"
                      : "weights saved from the same model, or a map of weights for a public file "
                        "(docs/reference/weight_maps.md)")});
  }
  if (!misfit.missing.empty()) {
    found = SomeOf(misfit.missing, [](const Misfit::Lack& lack) {
      return lack.tensor.empty()
                 ? absl::StrCat("no rule for weight ", lack.weight)
                 : absl::StrCat("no tensor ", lack.tensor, " for weight ", lack.weight);
    });
  }
  if (!misfit.unused.empty())
    absl::StrAppend(&found, found.empty() ? "" : "; ", "no weight that uses tensor ",
                    SomeOf(misfit.unused, [](const std::string& name) { return name; }));
  return Rejected(
      {"W0071", file_->path(),
       absl::StrCat("a source for each of the ", num_weights,
                    " weights of the job, and a use for each tensor, by the map ", map_->name()),
       with_files(found),
       or_index("`weir weights check JOB FILE --list`, which lists all of them")});
}

absl::StatusOr<MappedWeights::Located> MappedWeights::Locate(const std::string& weight,
                                                             const Shape& shape) const {
  const std::optional<SourcesOfWeight> sources = map_->SourcesOf(weight);
  if (!sources.has_value()) return MisfitError({{{weight, ""}}, {}}, 1);
  Located located;
  std::vector<Shape> shapes;
  for (const TensorSource& source : sources->from) {
    std::optional<std::string> name = NameInFile(source);
    if (!name.has_value()) return MisfitError({{{weight, source.tensors[0]}}, {}}, 1);
    shapes.push_back(file_->tensors().at(*name).shape);
    located.tensors.push_back(*std::move(name));
  }
  absl::StatusOr<WeightLayout> layout = WeightLayout::Make(*sources, shapes, shape);
  if (!layout.ok()) {
    const std::string from = SomeOf(located.tensors, [&](const std::string& name) {
      return absl::StrCat(name, " ", ToText(file_->tensors().at(name).shape));
    });
    return Rejected(
        {"W0044", absl::StrCat(file_->path(), ", weight ", weight),
         absl::StrCat("shape ", ToText(shape)),
         absl::StrCat(layout.status().message(), " from ", from, " by the map ", map_->name()),
         "a job of the same sizes as the file"});
  }
  located.layout = *std::move(layout);
  return located;
}

absl::Status MappedWeights::CheckAliases(const std::set<std::string>& used) const {
  if (map_ == nullptr) return absl::OkStatus();
  for (const auto& [name, tensor] : file_->tensors()) {
    const std::optional<std::string> same_as = map_->SameAs(name);
    if (!same_as.has_value() || used.count(name) > 0) continue;
    for (const std::string& other : map_->NamesInFile(*same_as)) {
      if (other == name || file_->tensors().count(other) == 0) continue;
      WEIR_ASSIGN_OR_RETURN(const bool is_same, file_->SameBytes(name, other));
      if (is_same) break;
      return Rejected({"W0071", absl::StrCat(file_->path(), ", tensor ", name),
                       absl::StrCat("the values of ", other, ", with which the job ties it (map ",
                                    map_->name(), ")"),
                       "other values", "a job with a weight of its own for that tensor"});
    }
  }
  return absl::OkStatus();
}

absl::Status MappedWeights::Check(const WeightTypes& weights) const {
  if (const Misfit misfit = Compare(weights); !misfit.empty())
    return MisfitError(misfit, weights.size());
  // An alias that a weight of its own uses may have values of its own.
  std::set<std::string> used;
  for (const auto& [weight, type] : weights) {
    if (IsFresh(weight)) continue;
    if (IsByOwnName(weight) || IsConstant(weight)) {
      // A read of nothing checks shape and element type.
      const store::SafetensorsReader& from = IsByOwnName(weight) ? *file_ : *constants_;
      const TensorSlice nothing{type.dtype, Shape(type.shape.size(), 0),
                                Shape(type.shape.size(), 0), type.shape};
      char scalar[8];
      WEIR_RETURN_IF_ERROR(type.shape.empty()
                               ? from.Read(weight, TensorSlice::Whole(type.dtype, {}), scalar)
                               : from.Read(weight, nothing, nullptr));
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(const Located located, Locate(weight, type.shape));
    for (const std::string& tensor : located.tensors) {
      WEIR_RETURN_IF_ERROR(file_->ElementsOf(tensor, type.dtype).status());
      used.insert(tensor);
    }
  }
  return CheckAliases(used);
}

std::string MappedWeights::SourceText(const std::string& weight) const {
  if (IsFresh(weight)) return "its first values in the job";
  if (IsByOwnName(weight)) return weight;
  if (IsConstant(weight)) return absl::StrCat(weight, " in ", constants_->path());
  const std::optional<SourcesOfWeight> sources = map_->SourcesOf(weight);
  if (!sources.has_value()) return "nothing";
  std::vector<std::string> texts;
  for (const TensorSource& source : sources->from) {
    const std::string name = NameInFile(source).value_or(source.tensors[0]);
    const auto tensor = file_->tensors().find(name);
    std::string text = name;
    if (tensor != file_->tensors().end()) absl::StrAppend(&text, " ", ToText(tensor->second.shape));
    if (!source.view.empty()) absl::StrAppend(&text, ", seen as ", ToText(source.view));
    if (!source.transpose.empty())
      absl::StrAppend(&text, ", transposed [", absl::StrJoin(source.transpose, ", "), "]");
    if (source.cut == TensorSource::Cut::kPart)
      absl::StrAppend(&text, ", part ", source.begin + 1, " of ", source.size, " along axis ",
                      source.cut_axis);
    if (source.cut == TensorSource::Cut::kRange)
      absl::StrAppend(&text, ", from ", source.begin, " on along axis ", source.cut_axis);
    texts.push_back(std::move(text));
  }
  return absl::StrCat(absl::StrJoin(texts, " and "), sources->reshape ? ", in another shape" : "");
}

absl::Status MappedWeights::Read(const std::string& weight, const TensorSlice& slice,
                                 void* out) const {
  if (IsByOwnName(weight)) return file_->Read(weight, slice, out);
  if (IsConstant(weight)) return constants_->Read(weight, slice, out);
  WEIR_ASSIGN_OR_RETURN(const Located located, Locate(weight, slice.global_shape));
  std::vector<store::StoredElements> elements;
  for (const std::string& tensor : located.tensors) {
    WEIR_ASSIGN_OR_RETURN(store::StoredElements of_tensor, file_->ElementsOf(tensor, slice.dtype));
    elements.push_back(of_tensor);
  }
  const int64_t width = SizeOf(slice.dtype);
  absl::Status status;
  located.layout.ForEachElementRun(slice, [&](size_t source, int64_t first, int64_t stride,
                                              int64_t count, int64_t local) {
    if (!status.ok()) return;
    status = elements[source].Copy(first, stride, count, static_cast<char*>(out) + local * width);
  });
  return status;
}

}  // namespace weir::weights
