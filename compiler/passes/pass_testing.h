// Runs passes on hand-made models, for tests. Thread rule: one thread.
#pragma once

#include "compiler/passes/pass.h"
#include "compiler/testing/small_model.h"
#include "gtest/gtest.h"

namespace weir::compiler {

// Returns the facts of passes over TestDims, with rules {dimension, axis} and explicit layouts
// {"function/tensor", layout}.
inline PassContext ContextOf(const std::string& mesh, const Pairs& rules = {},
                             const Pairs& layouts = {}) {
  PassContext context;
  context.stage_mesh = MeshOf(mesh);
  context.rules = RulesOf(context.stage_mesh, rules, layouts);
  context.dims = TestDims();
  return context;
}

// Runs the pass and expects what every pass promises: the module can be verified, and a second run
// changes nothing.
template <typename PassFunction>
void Apply(const PassFunction& pass, const PassContext& context, Module* module) {
  const absl::Status status = pass(context, module);
  ASSERT_TRUE(status.ok()) << status;
  for (const Function& function : module->functions) {
    const absl::Status sound = VerifyFunction(function, context);
    EXPECT_TRUE(sound.ok()) << sound;
  }
  const std::string once = EverythingOf(*module, context.stage_mesh);
  const absl::Status again = pass(context, module);
  ASSERT_TRUE(again.ok()) << "second run: " << again;
  EXPECT_EQ(EverythingOf(*module, context.stage_mesh), once) << "changed by a second run";
}

}  // namespace weir::compiler
