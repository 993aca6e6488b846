// A RunBundle is a run in the form that the page of `weir view` reads: one JSON object with names
// and the report, and columns of numbers that become typed arrays without being parsed.
//
//   "WEIRVIEW"   8 bytes
//   N            32-bit number: the bytes of the object
//   version      32-bit number
//   the object, filled with spaces up to a multiple of 8 bytes after its begin
//   the columns, each filled with zeros up to a multiple of 8 bytes
//
// Numbers are little-endian. object.columns lists {name, type, offset, count}; offsets count from
// the end of the object. The object also has:
//
//   title, report     the report is the object of `weir trace report --json`
//   strings           names; columns hold places in this list
//   ranks, queues     [{rank, name}], [{rank: place in ranks, name}]; those of ranks that the trace
//                     lacks come last, have `missing`, and have no acts. A rank that stands for
//                     others has stands_for: {ranks: how many, itself included, text: which}
//   steps             [{step (from 1 on, as in the report), begin_ns, end_ns, first_of_run}]; empty
//                     if no step is whole
//   open_acts         of a run that did not end whole (tools/trace/last_state.h), what each rank
//                     had not done: [{queue, since_ns, waits, text}]
//   failures          of such a run, as its trace marks them: [{at_ns, text, queue}]; queue is the
//                     first of the rank that failed, and absent for the job as a whole
//
// All times are in ns from the first event of the trace. Columns, by the thing that they describe:
//
//   queue_first_act       places of acts; the acts of a queue follow one another by their begin
//   act_*                 begin, ns (its length), actor, step (from 1 on), micro_batch, chunk, wait
//                         (0 none, 1 input, 2 credit), wait_ns before the act, waited_register,
//                         cause (the act that ended the wait); -1: none
//   actor_*               name, function, phase, rank, queue, planned_ns
//   register_*            name, family, bytes (of a slot), slots, producer, crosses_ranks,
//                         other_rank (the number of the rank at the other end, as the reader knows
//                         it; -1: unknown or none), most, full_ns, waited_input_ns,
//                         waited_credit_ns (of all queues)
//   register_first_consumer, consumer_actor        the consumers of a register
//   register_first_change, change_at, change_in_use    slots in use over time (register_fill.h)
//
//   path_first_segment    of the paths of single steps, in the order of step_paths in the report
//   path_first_group      the same for the groups of a path
//   group_longest_segment by group, in the order of the report
//   segment_*             begin, end, cause (StepPartKind of tools/trace/step_parts.h), act (that
//                         ran, or was held up), rank, sender, register; -1: none
//   planned_*             of the acts that a pipeline hands from stage to stage, in a step as the
//                         plan expects it: begin (0: of the first of them), ns, actor, micro_batch
//
// A bundle of two runs has all of this of the first, and diff, which is the object of `weir trace
// diff --json`.
//
// The bundle of a plan has plan, which is the object of `weir plan --json` with the ranks that
// stand for all, and the simulated run of that plan. Without a simulation it has no report, no run
// and no columns, and no_run says why.
//
// A bundle may come in two parts. The first is the bundle of the run with `pending`, a report that
// has only what its head says, and neither diff nor the columns of paths, of the planned step and
// of the slots in use (register_most, register_full_ns, register_first_change, change_*). The
// second, the analysis, has the whole report, diff and these columns, and nothing else.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tools/trace/trace_reader.h"

namespace weir::view {

inline constexpr uint32_t kRunBundleVersion = 1;

// `title` is what people call the run, such as the name of its file. A trace may lack ranks and
// whole steps: the report then says why it has no causes. kFailedPrecondition if the trace has no
// facts of the plans, or impossible ones; the message says which.
absl::StatusOr<std::string> MakeRunBundle(const trace::TraceReader& reader,
                                          absl::string_view title);
// The same with the difference from the first run to the second.
absl::StatusOr<std::string> MakeRunBundle(const trace::TraceReader& reader, absl::string_view title,
                                          const trace::TraceReader& other,
                                          absl::string_view other_title);

// A BundleTaker gets a bundle in parts.
struct BundleTaker {
  std::function<void(std::string bundle)> run;         // the first part, as soon as it is made
  std::function<void(const std::string& doing)> tell;  // what goes on meanwhile
};
// Gives the first part of the bundle to `taker`, and returns the second. `other` is null, or the
// run to compare with.
absl::StatusOr<std::string> MakeRunBundleInParts(const trace::TraceReader& reader,
                                                 absl::string_view title,
                                                 const trace::TraceReader* other,
                                                 absl::string_view other_title,
                                                 const BundleTaker& taker);

// `plan` is the object of `weir plan --json`, and `simulated` the trace of its simulation.
absl::StatusOr<std::string> MakePlanBundle(const nlohmann::ordered_json& plan,
                                           const trace::TraceReader& simulated,
                                           absl::string_view title);
// The same without a simulation. `no_run` is a sentence on why there is none.
std::string MakePlanBundle(const nlohmann::ordered_json& plan, absl::string_view no_run,
                           absl::string_view title);

}  // namespace weir::view
