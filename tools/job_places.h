// Finds the line of a job's text that an error is about. Errors of the compiler name their element,
// "W0407 at function block, node q: ..."; the compiler sees no files. Here the name leads back to
// the line that the element begins in.
//
//   function NAME, node | call | parameter | input | output NAME    graph, dim NAME    rule DIM ->
//   AXIS mesh axis NAME    layout of "FUNCTION/TENSOR"    training.schedule.decay,
//   runtime.recompute of NAME, data, ...
//
// An element that the text lacks (a field with its default, a tensor that the compiler made) has
// the line of the nearest element around it. What --set or --mesh gave has that flag for its place.
// The text is parsed a second time, with locations, so this is for the path of an error only.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir {

// Texts beyond this have no places: locations take many times the memory of the text.
inline constexpr size_t kPlacedJobBytesMax = 4 << 20;

// A job's text and how the command line changed it.
struct JobSource {
  std::string name;  // the path, or "standard input"
  std::string text;
  std::vector<std::string> set;  // assignments of --set, in their order
  bool has_mesh = false;         // whether --mesh replaced the mesh
  std::string mesh;
};

// "gpt.textproto:57", "--set training.steps=0", or "" if `element` names nothing in the job.
std::string PlaceOf(const JobSource& source, const std::string& element);

// `status` with the place of the element that it names, "W0407 at gpt.textproto:57, function block,
// node q: ...". As it was if it names none, or has a place in the text already.
absl::Status WithPlace(const JobSource& source, const absl::Status& status);

}  // namespace weir
