// Finds the line of a job's text that an error is about. The compiler sees no files, so its errors
// name their element: "W0407 at function block, node q: ...". This file maps the name of an element
// to the line where the element begins. The names are
//
//   function NAME, node | call | parameter | input | output NAME
//   graph, dim NAME
//   rule DIM -> AXIS
//   mesh axis NAME
//   layout of "FUNCTION/TENSOR"
//   training.schedule.decay, runtime.recompute of NAME, data, ...
//
// A path of the data ("book.txt") stands for its field. An element that the text lacks (a field
// with its default, a tensor that the compiler made) gets the line of the nearest element around
// it. An element that --set or --mesh gave has that flag as its place. The search parses the text a
// second time, with locations, so it is only for errors. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::job {

// Longer texts have no places, because locations take many times the memory of the text.
inline constexpr size_t kPlacedJobBytesMax = 4 << 20;

// A job's text, and the changes that the command line made to the job.
struct JobSource {
  std::string name;  // the path, or "standard input"
  std::string text;
  std::vector<std::string> set;  // assignments of --set, in their order
  bool has_mesh = false;         // whether --mesh replaced the mesh
  std::string mesh;
};

// Returns "gpt.textproto:57", "--set training.steps=0", or "gpt.textproto" for a section that the
// text lacks. Returns "" if `element` names nothing in the job.
std::string PlaceOf(const JobSource& source, const std::string& element);

// Adds to `status` the place of the element that it names: "W0407 at gpt.textproto:57, function
// block, node q: ...". Returns `status` unchanged if it names no element or already has a place in
// the text.
absl::Status WithPlace(const JobSource& source, const absl::Status& status);

}  // namespace weir::job
