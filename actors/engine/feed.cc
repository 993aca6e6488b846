#include "actors/engine/feed.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

// Tells whether all values but those equal to `ignored` are from 0 to below `below`. The loop has
// no branch per element, so it costs next to nothing.
bool AllBelow(const int32_t* values, int64_t count, int64_t below, int32_t ignored) {
  // Converted to unsigned, a negative value is larger than any allowed value.
  const uint32_t most = static_cast<uint32_t>(std::min<int64_t>(below, int64_t{1} << 31) - 1);
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t value = values[i] == ignored ? 0 : static_cast<uint32_t>(values[i]);
    largest = std::max(largest, value);
  }
  return largest <= most;
}

// Returns the position of local element `element` of the slice in the whole tensor.
Shape PositionOf(const TensorSlice& slice, int64_t element) {
  Shape position(slice.shape.size());
  for (size_t axis = slice.shape.size(); axis-- > 0;) {
    position[axis] = slice.offset[axis] + element % slice.shape[axis];
    element /= slice.shape[axis];
  }
  return position;
}

}  // namespace

std::string DataFeed::SampleText(const std::string&, int64_t step, int64_t micro_batch,
                                 int64_t row) const {
  return absl::StrCat("step ", step + 1, ", micro-batch ", micro_batch, ", row ", row);
}

absl::Status CheckFed(const DataFeed& feed, const PlanActor& actor, int64_t step,
                      int64_t micro_batch, const void* memory) {
  if (actor.feed_below == 0) return absl::OkStatus();
  const int32_t* values = static_cast<const int32_t*>(memory);
  const int64_t count = actor.feed_slice.num_elements();
  // Without an ignored value, 0 stands for it, which is in every range.
  const int32_t ignored = static_cast<int32_t>(actor.feed_ignored.value_or(0));
  if (AllBelow(values, count, actor.feed_below, ignored)) return absl::OkStatus();
  int64_t at = 0;
  while (values[at] == ignored || (values[at] >= 0 && values[at] < actor.feed_below)) ++at;
  const Shape position = PositionOf(actor.feed_slice, at);
  const int64_t row = position.empty() ? 0 : position[0];
  const Shape in_sample(position.empty() ? position.begin() : position.begin() + 1, position.end());
  return Rejected(
      {"W0906",
       absl::StrCat("input ", actor.feed, " of the model, ",
                    feed.SampleText(actor.feed, step, micro_batch, row),
                    in_sample.empty() ? "" : absl::StrCat(", position ", ToText(in_sample))),
       absl::StrCat("a value from 0 to ", actor.feed_below - 1,
                    actor.feed_ignored.has_value()
                        ? absl::StrCat(" or the ignored value ", *actor.feed_ignored)
                        : "",
                    ", ", actor.feed_reader),
       absl::StrCat(values[at]), "correct the data, or give that dimension a larger size"});
}

}  // namespace weir::actors
