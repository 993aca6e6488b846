// A pass is one named transformation of the module. The PassPipeline runs passes in order, verifies
// the module after each pass unless it is told not to, measures the time, dumps the module on
// request and leaves out passes that are disabled by name. A second run of a pass changes nothing.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/layout_rules.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/pass_progress.h"
#include "runtime/base/status.h"

namespace weir::compiler {

// The facts that passes may use besides the module.
struct PassContext {
  sbp::Mesh stage_mesh;
  LayoutRules rules;
  std::map<std::string, sbp::TensorDim> dims;
  int64_t micro_batches = 1;             // of a step
  int64_t micro_batches_per_update = 1;  // one update takes the mean of their gradients
  DType precision = DType::kF32;
  std::optional<LossScaleSettings> loss_scale;
};

struct Pass {
  std::string name;  // a verb phrase: "split-backward"
  std::string doc;
  bool required = true;  // optional passes may be disabled without changing results
  std::function<absl::Status(const PassContext&, Module*)> run;
  // Returns the pass's result as stable text. Null: the result is the module.
  std::function<std::string()> dump = nullptr;
};

struct PassPipelineOptions {
  std::string dump_after;
  std::set<std::string> disabled;
  std::ostream* dump_to = nullptr;
  // For tests. If set, every pass runs twice, and Run returns kInternal with the name of the pass
  // if the second run changes this text of the module, or the pass's own result.
  std::function<std::string(const Module&)> text_for_second_run = nullptr;
  std::function<void(const PassProgress&)> on_pass = nullptr;  // told before each pass
  enum class Verification : uint8_t { kAfterEachPass, kNone };
  Verification verification = Verification::kAfterEachPass;
};

class PassPipeline {
 public:
  explicit PassPipeline(PassPipelineOptions options) : options_(std::move(options)) {}
  void Add(Pass pass) { passes_.push_back(std::move(pass)); }
  // kInvalidArgument: a required pass is disabled, or a name is unknown.
  absl::Status Run(const PassContext& context, Module* module);
  const std::vector<PassTiming>& timings() const { return timings_; }

 private:
  PassPipelineOptions options_;
  std::vector<Pass> passes_;
  std::vector<PassTiming> timings_;
};

// Returns the functions of the module, and its program if there is one, as stable text.
std::string ToText(const Module& module, const sbp::Mesh& stage_mesh);

// Checks structure and types: operands are defined before use, every node's op is known, and
// inferred types equal the stored types. Once layouts exist, the operands of every node must form a
// legal signature. An error is the compiler's own fault (kInternal) and names the pass.
absl::Status VerifyFunction(const Function& function, const PassContext& context);

}  // namespace weir::compiler
