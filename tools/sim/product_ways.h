// The ways in which the CPU of this machine computes matrix products best (runtime/base/product.h),
// measured once and kept in a file for each machine and processor. The process that starts a job
// writes the kept ways into the job (runtime.product), so the plans of all ranks have them and no
// rank chooses for itself. A job that names ways itself keeps its own. Without a file every kernel
// does as shape and processor decide.
// Thread rule: one thread; pure but for files and the environment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"
#include "proto/product.pb.h"

namespace weir::sim {

// Measures the ways of every class of products that the jobs have on any rank, on one thread. The
// ways of a class take turns, and the time is that of the processor, so other programs disturb
// little. A way is chosen if its median is at least 3 % below that of "automatic" and a quarter of
// the measurements of "automatic" at most is as short as the longest quarter of its own. `say`
// reports the class that is being measured; may be null. Errors: W0554 for a job that is not on a
// CPU, and those of compiling a job.
absl::StatusOr<proto::MeasuredProducts> MeasureProducts(
    const std::vector<proto::Job>& jobs, const std::function<void(const std::string&)>& say);

// Returns the choice for a class that was measured. Precondition: the first time is "automatic".
proto::ProductWayChoice ChoiceOf(
    const proto::ProductClass& of,
    const google::protobuf::RepeatedPtrField<proto::MeasuredProducts::Time>& times);

// Returns the path of the file for this machine and its processor: $WEIR_PRODUCTS, else
// products-HOST-PROCESSOR.textproto beside the kept costs (KeptClusterPath). Empty if there is no
// such folder.
std::string KeptProductsPath();

// Reads such a file. kNotFound: there is none. kInvalidArgument (W0845): it is another file; W0843:
// it has a way or a class that does not exist.
absl::StatusOr<proto::MeasuredProducts> ReadProducts(const std::string& path);
// Adds what `measured` has to the file at `path`: rows of the same classes give way. A file of
// other kernels or of another machine, and one that cannot be read, gives way as a whole.
// kNotFound (W0845): the file cannot be written, and is as it was.
absl::Status KeepProducts(const proto::MeasuredProducts& measured, const std::string& path);

// Writes the kept ways into a job for CPUs that names none, unless all are "automatic". Returns a
// line for people; empty: there is no such file, or the job does not look at it. Errors: those of
// ReadProducts.
absl::StatusOr<std::string> SettleProducts(proto::Job* job);
// The same with the ways of `measured`.
void UseProducts(const proto::MeasuredProducts& measured, proto::Job* job);

// Returns the section of `weir plan`: the classes of products that the first rank of each stage
// has, the number of their calls, their ways, and why.
absl::StatusOr<std::string> ProductsSection(const compiler::LogicalPlan& plan);

// Returns a table: for each class the ways with their GFLOP/s and spread, and the choice.
std::string ProductsText(const proto::MeasuredProducts& measured);

}  // namespace weir::sim
