#include <chrono>
#include <iostream>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/passes/pass.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::Status Verify(const PassContext& context, const Module& module, const std::string& pass) {
  for (const Function& function : module.functions) {
    absl::Status status = VerifyFunction(function, context);
    if (!status.ok())
      return absl::InternalError(absl::StrCat("after pass ", pass, ": ", status.message()));
  }
  return absl::OkStatus();
}

// Runs a pass that has run, and expects that nothing changes.
absl::Status RunAgain(const Pass& pass, const PassPipelineOptions& options,
                      const PassContext& context, Module* module) {
  const auto result = [&] {
    return absl::StrCat(options.text_for_second_run(*module), pass.dump ? pass.dump() : "");
  };
  const std::string once = result();
  WEIR_RETURN_IF_ERROR(pass.run(context, module));
  if (result() == once) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a second run of pass ", pass.name, " changes a result"));
}

}  // namespace

std::string ToText(const Module& module, const sbp::Mesh& stage_mesh) {
  std::string text;
  for (const Function& function : module.functions)
    absl::StrAppend(&text, ToText(function, stage_mesh), "\n");
  return text + ProgramText(module, stage_mesh);
}

absl::Status PassPipeline::Run(const PassContext& context, Module* module) {
  std::vector<std::string> optional;
  for (const Pass& pass : passes_) {
    if (!pass.required) optional.push_back(pass.name);
  }
  for (const std::string& name : options_.disabled) {
    auto found = std::find_if(passes_.begin(), passes_.end(),
                              [&](const Pass& pass) { return pass.name == name; });
    if (found == passes_.end()) {
      return Rejected({"W0490", "--disable", absl::StrCat("one of ", absl::StrJoin(optional, ", ")),
                       absl::StrCat("\"", name, "\""), Nearest(name, optional)});
    }
    if (found->required) {
      return Rejected({"W0491", "--disable", "a pass that may be left out",
                       absl::StrCat("\"", name, "\", which is required"), ""});
    }
  }
  std::regex dump;
  if (!options_.dump_after.empty()) {
    try {
      dump = std::regex(options_.dump_after);
    } catch (const std::regex_error& error) {
      return Rejected(
          {"W0492", "--dump-after", "a regular expression", options_.dump_after, error.what()});
    }
  }
  const int num_passes = static_cast<int>(passes_.size() - options_.disabled.size());
  for (const Pass& pass : passes_) {
    if (options_.disabled.count(pass.name) > 0) continue;
    if (options_.on_pass != nullptr) {
      options_.on_pass({pass.name, static_cast<int>(timings_.size()), num_passes,
                        static_cast<int>(module->functions.size())});
    }
    auto begin = std::chrono::steady_clock::now();
    WEIR_RETURN_IF_ERROR(pass.run(context, module));
    auto end = std::chrono::steady_clock::now();
    if (options_.verification == PassPipelineOptions::Verification::kAfterEachPass)
      WEIR_RETURN_IF_ERROR(Verify(context, *module, pass.name));
    if (options_.text_for_second_run != nullptr)
      WEIR_RETURN_IF_ERROR(RunAgain(pass, options_, context, module));
    PassTiming timing{pass.name, std::chrono::duration<double, std::micro>(end - begin).count(), 0};
    for (const Function& function : module->functions)
      timing.nodes += static_cast<int>(function.nodes.size());
    timings_.push_back(timing);
    if (!options_.dump_after.empty() && std::regex_search(pass.name, dump)) {
      std::ostream& out = options_.dump_to ? *options_.dump_to : std::cerr;
      out << "# after " << pass.name << "\n"
          << (pass.dump ? pass.dump() : ToText(*module, context.stage_mesh));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
