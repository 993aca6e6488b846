#include "runtime/store/dataset.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

bool Fits(const FeedType& feed, DType dtype, const Shape& shape) {
  const bool dtype_fits =
      std::any_of(feed.forms.begin(), feed.forms.end(),
                  [dtype](const FeedForm& form) { return form.dtype == dtype; });
  if (!dtype_fits || shape.empty()) return false;
  switch (feed.sample) {
    case FeedType::Sample::kOne: return shape.size() == 1;
    case FeedType::Sample::kWindow: return shape.size() == 2 && shape[1] == feed.elements;
    case FeedType::Sample::kElements:
      return NumElements(Shape(shape.begin() + 1, shape.end())) == feed.elements;
    case FeedType::Sample::kShape: return Shape(shape.begin() + 1, shape.end()) == feed.shape;
    case FeedType::Sample::kAny: return true;
  }
  return false;
}

absl::Status WrongType(const std::string& where, const FeedType& feed, DType dtype,
                       const Shape& shape) {
  return Rejected({"W0056", where, absl::StrCat(ToText(feed), ", as feed ", feed.name, " delivers"),
                   absl::StrCat(Name(dtype), weir::ToText(shape)),
                   "change the type of the input, or bind it to another feed with data.feed"});
}

// Returns the error of UnknownFeed, which offers one of the feeds `fitting`.
absl::Status NoFeed(const std::string& input, const std::string& from,
                    const std::vector<FeedType>& known, const std::vector<FeedType>& fitting) {
  std::vector<std::string> names, choices, types;
  for (const FeedType& feed : known) {
    names.push_back(feed.name);
    types.push_back(absl::StrCat(feed.name, " ", ToText(feed)));
  }
  for (const FeedType& feed : fitting) choices.push_back(feed.name);
  const std::string nearest = Nearest(from, choices);
  const std::string hint =
      choices.empty()
          ? absl::StrCat("give the input the type of a feed: ", absl::StrJoin(types, ", "))
          : absl::StrCat("data { feed { input: \"", input, "\" from: \"",
                         nearest.empty() ? choices[0] : nearest, "\" } }");
  return Rejected({"W0055", absl::StrCat("input ", input, " of main"),
                   absl::StrCat("one of the feeds of the data: ", absl::StrJoin(names, ", ")), from,
                   hint});
}

}  // namespace

std::string ToText(const FeedType& feed) {
  std::vector<std::string> forms;
  for (const FeedForm& form : feed.forms) {
    std::string text = absl::StrCat(Name(form.dtype), "[samples");
    switch (feed.sample) {
      case FeedType::Sample::kOne: absl::StrAppend(&text, "]"); break;
      case FeedType::Sample::kWindow: absl::StrAppend(&text, ", ", feed.elements, "]"); break;
      case FeedType::Sample::kElements:
        absl::StrAppend(&text, ", ...] with ", feed.elements, " elements a sample");
        break;
      case FeedType::Sample::kShape:
        for (int64_t size : feed.shape) absl::StrAppend(&text, ", ", size);
        absl::StrAppend(&text, "]");
        break;
      case FeedType::Sample::kAny: absl::StrAppend(&text, ", ...]"); break;
    }
    forms.push_back(std::move(text));
  }
  return absl::StrJoin(forms, " or ");
}

absl::Status Dataset::CheckType(const FeedRequest& request) const {
  for (const FeedType& feed : feeds()) {
    if (feed.name != request.feed || Fits(feed, request.dtype, request.shape)) continue;
    return WrongType(absl::StrCat("input ", request.input, " of main"), feed, request.dtype,
                     request.shape);
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const Dataset& dataset, const FeedRequest& request) {
  const std::vector<FeedType> feeds = dataset.feeds();
  for (const FeedType& feed : feeds) {
    if (feed.name != request.feed) continue;
    WEIR_RETURN_IF_ERROR(dataset.CheckType(request));
    return dataset.CheckValues(request);
  }
  std::vector<FeedType> fitting;
  for (const FeedType& feed : feeds) {
    if (Fits(feed, request.dtype, request.shape)) fitting.push_back(feed);
  }
  return NoFeed(request.input, request.feed, feeds, fitting);
}

absl::Status UnknownFeed(const std::string& input, const std::string& from,
                         const std::vector<FeedType>& known) {
  return NoFeed(input, from, known, known);
}

absl::Status WrongFeedType(const FeedType& feed, const TensorSlice& slice) {
  return WrongType(absl::StrCat("feed ", feed.name), feed, slice.dtype, slice.global_shape);
}

}  // namespace weir::store
