// The verbs of the command line: each function adds one or a few to the parser. A
// verb does its work in its callback and leaves the outcome in the context.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

struct CliContext {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  absl::Status status;  // of the verb that ran
  int exit_code = 0;    // if status is ok
};

// Where a job comes from and how the command line changes it.
struct JobArguments {
  std::string path;
  std::string mesh;
  bool has_mesh = false;
  std::vector<std::string> set;

  // Adds the positional JOB, --mesh and --set.
  void AddTo(CLI::App* verb);
  absl::StatusOr<Job> Read() const;
};

// A verb with a description, examples and the work to do.
CLI::App* AddVerb(CLI::App* app, CliContext* context, const std::string& name, const std::string& about,
                  const std::string& examples, std::function<absl::Status()> work);

void AddJobVerbs(CLI::App* app, CliContext* context);    // check, plan
void AddTrainVerbs(CLI::App* app, CliContext* context);  // train, eval, generate
void AddZooVerbs(CLI::App* app, CliContext* context);    // zoo gpt | llama | mlp
void AddOpsVerb(CLI::App* app, CliContext* context);     // ops
void AddSimVerbs(CLI::App* app, CliContext* context);    // sim, calibrate
void AddTraceVerbs(CLI::App* app, CliContext* context);  // trace report

}  // namespace weir
