// A pass: one named transformation of the module. The PassPipeline runs them in
// order, verifies the module after each, takes the time, dumps on request and
// leaves out those disabled by name.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir.h"
#include "compiler/layout_rules.h"
#include "runtime/base/status.h"

namespace weir::compiler {

// What passes may know besides the module.
struct PassContext {
  Mesh stage_mesh;
  LayoutRules rules;
  std::map<std::string, TensorDim> dims;
  int64_t micro_batches_per_update = 1;  // whose gradients one update is the mean of
  DType precision = DType::kF32;
};

struct Pass {
  std::string name;  // a verb phrase: "insert-boxing"
  std::string doc;
  bool required = true;  // optional passes may be disabled without changing results
  std::function<absl::Status(const PassContext&, Module*)> run;
};

struct PassTiming {
  std::string name;
  double microseconds = 0;
  int nodes = 0;  // in the module after the pass
};

struct PassPipelineOptions {
  std::string dump_after;
  std::set<std::string> disabled;
  std::ostream* dump_to = nullptr;
};

class PassPipeline {
 public:
  explicit PassPipeline(PassPipelineOptions options) : options_(std::move(options)) {}
  void Add(Pass pass) { passes_.push_back(std::move(pass)); }
  // kInvalidArgument if a required pass is disabled or a name is unknown.
  absl::Status Run(const PassContext& context, Module* module);
  const std::vector<PassTiming>& timings() const { return timings_; }

 private:
  PassPipelineOptions options_;
  std::vector<Pass> passes_;
  std::vector<PassTiming> timings_;
};

// Structure and types: operands defined before use, every node's op known, inferred
// types equal to the stored ones; after layouts exist, that every node's operands form
// a legal signature. An error is our own fault (kInternal) and names the pass.
absl::Status VerifyFunction(const Function& function, const PassContext& context);

}  // namespace weir::compiler
