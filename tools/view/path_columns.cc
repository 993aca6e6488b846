#include "tools/view/path_columns.h"

#include <vector>

namespace weir::view {
namespace {

using trace::PathSegment;

int32_t NumberOf(trace::RecordedRankId rank) { return rank.has_value() ? rank.value() : -1; }

// Returns the place of the first segment with the same begin and end.
uint32_t PlaceOf(const PathSegment& segment, const std::vector<PathSegment>& segments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].begin == segment.begin && segments[i].end == segment.end)
      return static_cast<uint32_t>(i);
  }
  return 0;
}

}  // namespace

void AddPathColumns(const trace::RecordedRun& run, const trace::StepPaths& paths, int64_t begin_ns,
                    const std::function<int32_t(const trace::RecordedAct*)>& index_of,
                    BundleWriter* writer) {
  std::vector<uint32_t> first_segment = {0}, first_group = {0}, group_longest;
  std::vector<double> begin, end;
  std::vector<uint8_t> kind;
  std::vector<int32_t> act, rank, sender, register_index;
  for (const trace::StepPath& path : paths.steps) {
    for (const trace::PathGroup& group : path.groups)
      group_longest.push_back(first_segment.back() + PlaceOf(group.longest, path.segments));
    first_group.push_back(static_cast<uint32_t>(group_longest.size()));
    for (const PathSegment& segment : path.segments) {
      begin.push_back(static_cast<double>(segment.begin - begin_ns));
      end.push_back(static_cast<double>(segment.end - begin_ns));
      kind.push_back(static_cast<uint8_t>(trace::CauseOf(run, segment)));
      act.push_back(segment.act < 0 ? -1
                                    : index_of(&run.ranks[segment.rank_index].acts[segment.act]));
      rank.push_back(NumberOf(segment.rank_index));
      sender.push_back(NumberOf(segment.sender));
      register_index.push_back(segment.register_index.has_value() ? segment.register_index.value()
                                                                  : -1);
    }
    first_segment.push_back(static_cast<uint32_t>(begin.size()));
  }
  writer->Add("path_first_segment", first_segment);
  writer->Add("path_first_group", first_group);
  writer->Add("group_longest_segment", group_longest);
  writer->Add("segment_begin", begin);
  writer->Add("segment_end", end);
  writer->Add("segment_cause", kind);
  writer->Add("segment_act", act);
  writer->Add("segment_rank", rank);
  writer->Add("segment_sender", sender);
  writer->Add("segment_register", register_index);
}

}  // namespace weir::view
