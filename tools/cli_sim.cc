// weir sim and weir calibrate: a job on machines that need not be here.
#include <fstream>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "tools/cli_verbs.h"
#include "tools/sim/cluster_file.h"
#include "tools/sim/simulate.h"

namespace weir {
namespace {

struct SimArguments {
  JobArguments job;
  std::string cluster;
  std::string symmetry = "auto";
  bool json = false;
  SimulateOptions options;
};

absl::Status Sim(SimArguments arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(Cluster cluster, ReadClusterFile(arguments.cluster));
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  using Symmetry = SimulateOptions::Symmetry;
  arguments.options.symmetry = arguments.symmetry == "on" ? Symmetry::kOn : arguments.symmetry == "off" ? Symmetry::kOff : Symmetry::kAuto;
  WEIR_ASSIGN_OR_RETURN(SimulateReport report, Simulate(job, cluster, arguments.options));
  *context->out << (arguments.json ? ToJson(report) : ToText(report));
  *context->err << absl::StrFormat("simulated %d step%s, %d acts and %d events, in %.1f s, after %.1f s of compiling\n", report.steps,
                                   report.steps == 1 ? "" : "s", report.acts, report.events, report.simulate_seconds,
                                   report.compile_seconds);
  return absl::OkStatus();
}

}  // namespace

void AddSimVerbs(CLI::App* app, CliContext* context) {
  auto sim = std::make_shared<SimArguments>();
  CLI::App* verb = AddVerb(app, context, "sim", "Predict a step of a job on a cluster that need not exist",
                           "  weir sim gpt.textproto --cluster docs/examples/two_hosts.textproto --mesh dp=2,tp=4\n"
                           "  weir sim gpt.textproto --cluster c.textproto --mesh pp=4,dp=2 --trace sim.pftrace\n"
                           "  weir trace report sim.pftrace                      as of a real run\n"
                           "  weir sim gpt.textproto --cluster c.textproto --json | jq .step_seconds\n"
                           "Costs are those of the cluster file (proto/cluster.proto); `weir calibrate` measures this machine.",
                           [sim, context] { return Sim(*sim, context); });
  sim->job.AddTo(verb);
  verb->add_option("--cluster", sim->cluster, "Description of the machines (protobuf text)")->type_name("PATH")->required();
  verb->add_option("--steps", sim->options.steps, "Steps to simulate; figures are of those after the first [2, of very large jobs 1]")
      ->type_name("N")->check(CLI::Range(1, 1000));
  verb->add_option("--seed", sim->options.seed, "Seed of jitter, if the cluster has any")->type_name("N")->capture_default_str();
  verb->add_option("--trace", sim->options.trace, "Write a Perfetto trace, as weir train does")->type_name("PATH");
  verb->add_option("--symmetry", sim->symmetry, "One rank of each stage stands for all of it: auto (beyond 1,024 ranks), on or off")
      ->type_name("SWITCH")->check(CLI::IsMember({"auto", "on", "off"}))->capture_default_str();
  verb->add_flag("--json", sim->json, "Print figures of every device as JSON");
}

}  // namespace weir
