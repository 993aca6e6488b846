// The columns of the critical paths of single steps (tools/trace/step_paths.h) in a RunBundle.
// run_bundle.h says what they hold. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>

#include "tools/trace/step_paths.h"
#include "tools/view/bundle_writer.h"

namespace weir::view {

// `begin_ns` is the moment from which the bundle counts; `index_of` numbers the acts of the bundle.
void AddPathColumns(const trace::RecordedRun& run, const trace::StepPaths& paths, int64_t begin_ns,
                    const std::function<int32_t(const trace::RecordedAct*)>& index_of,
                    BundleWriter* writer);

}  // namespace weir::view
