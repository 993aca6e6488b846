// weir sim and weir calibrate: a job on machines that need not exist here.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/build_id.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/whole_file.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/planned_job.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet_runner.h"
#include "tools/hosts/doctor.h"
#include "tools/hosts/find_hosts.h"
#include "tools/hosts/hosts_supervisor.h"
#include "tools/job/data_paths.h"
#include "tools/launch/log_directory.h"
#include "tools/plan/place_axes.h"
#include "tools/sim/calibrate.h"
#include "tools/sim/cluster_file.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/product_ways.h"
#include "tools/sim/simulate.h"
#include "tools/train/output_paths.h"

namespace weir::cli {
namespace {

constexpr int kProcessesMeasured = 2;
constexpr char kGpus[] = "cuda";
constexpr char kEmulatedGpus[] = "cuda-emulated";
constexpr int64_t kProbeMs = 1'000;

struct SimArguments : PlannedJobArguments {
  std::string symmetry = "auto";
  bool json = false;
  sim::SimulateOptions options;
};

absl::Status Sim(SimArguments arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("--trace", arguments.options.trace,
                                                   {arguments.job.path, arguments.cluster}));
  WEIR_ASSIGN_OR_RETURN(JobWithCosts read, arguments.ReadWithCosts());
  using Symmetry = sim::SimulateOptions::Symmetry;
  arguments.options.symmetry = arguments.symmetry == "on"    ? Symmetry::kOn
                               : arguments.symmetry == "off" ? Symmetry::kOff
                                                             : Symmetry::kAuto;
  sandbox::SandboxRules rules;
  if (!arguments.options.trace.empty())
    rules.write_folders = {
        std::filesystem::absolute(arguments.options.trace).parent_path().string()};
  context->Confine(rules, sandbox::CpuTime::kUnlimited);
  WEIR_ASSIGN_OR_RETURN(const PlannedJob planned, PlanJob(arguments.place, {}, &read));
  if (!read.products.empty()) *context->err << read.products << "\n";
  if (planned.settled.has_value()) *context->err << search::SettledText(*planned.settled) << "\n";
  if (!planned.collectives.text.empty()) *context->err << planned.collectives.text << "\n";
  if (const std::string line = plan::PlacedText(planned.placed, read.job); !line.empty())
    *context->err << line << "\n";
  WEIR_ASSIGN_OR_RETURN(
      sim::SimulateReport report,
      sim::SimulatePlan(*planned.plan, read.costs.ClusterFor(planned.plan->places.num_ranks()),
                        arguments.options));
  report.costs = read.costs.Text();
  *context->out << (arguments.json ? sim::ToJson(report) : ToText(report));
  *context->err << absl::StrFormat(
      "simulated %d step%s, %d acts and %d events, in %.1f s, after %.1f s of compiling\n",
      report.steps, report.steps == 1 ? "" : "s", report.acts, report.events,
      report.simulate_seconds, report.compile_seconds);
  return absl::OkStatus();
}

struct CalibrateArguments {
  JobArguments job;
  hosts::HostsRequest hosts;
  std::string out;
  bool keep = false;
  bool products = false;  // nothing but the ways of products
  std::string transport;  // between processes; empty: one process
  std::string logs = launch::kLogBaseDefault;
  std::vector<std::string> also;
  sim::CalibrateOptions options;
};

// Returns the job in another layout: "dp=2,tp=2 training.zero_stage=1" is a mesh and other
// settings, in any order. A word without "=" is the file of another job, with the same model
// written in another way.
absl::StatusOr<proto::Job> InLayout(JobArguments job, const std::string& layout) {
  for (absl::string_view word : absl::StrSplit(layout, ' ', absl::SkipWhitespace())) {
    if (!absl::StrContains(word, '=')) {
      job.path = std::string(word);
    } else if (absl::StrContains(word.substr(0, word.find('=')), '.')) {
      job.set.emplace_back(word);
    } else {
      job.mesh = std::string(word);
      job.has_mesh = true;
    }
  }
  return job.Read();
}

// Times the steps of a job in processes that run only for this measurement.
absl::StatusOr<std::vector<int64_t>> TimeInProcesses(const fleet::FleetOptions& options,
                                                     const proto::Job& job, int threads_per_device,
                                                     int64_t rounds, int64_t steps) {
  std::unique_ptr<fleet::Fleet> fleet;
  const auto timed = [&]() -> absl::StatusOr<std::vector<int64_t>> {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<train::JobRunner> runner,
                          fleet::FleetRunner::Open(options, job, {threads_per_device, 0}, &fleet));
    return sim::TimeRounds(runner.get(), rounds, steps);
  };
  absl::StatusOr<std::vector<int64_t>> samples = timed();
  if (fleet != nullptr) {
    if (const launch::FailureReport report = fleet->Finish(samples.status()); !report.text.empty())
      return absl::UnavailableError(report.text);
  }
  return samples;
}

// Makes the folders above the path of a file that --keep writes.
absl::Status MakeFolderOf(const std::string& path) {
  if (path.empty())
    return Missing({"W0942", "--keep", "a folder of the user's ($HOME)", "none",
                    "-o PATH, and --cluster PATH with other verbs"});
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    return Missing({"W0942", "--keep " + path, "a folder that can be made", error.message(),
                    "$WEIR_CLUSTER or $WEIR_PRODUCTS, which name other places"});
  return absl::OkStatus();
}

// Returns the path where --keep writes the costs, and makes the folders above it.
absl::StatusOr<std::string> MakeKeptPlace(const CalibrateArguments& arguments,
                                          const proto::Job& job) {
  const std::string& device = job.runtime().device();
  if (device == kEmulatedGpus)
    return Rejected({"W0964", "weir calibrate --keep", "a device whose costs plans may go by",
                     device, "-o PATH: the times of an emulated GPU serve tests"});
  if (!arguments.out.empty())
    return Rejected({"W0942", "-o and --keep", "one of them", "both",
                     "--keep alone: other verbs then find the costs"});
  const std::string path = device == kGpus ? sim::KeptGpuClusterPath() : sim::KeptClusterPath();
  WEIR_RETURN_IF_ERROR(MakeFolderOf(path));
  return path;
}

// Measures the ways between the hosts that the user lists, and writes the links and the hosts into
// the cluster: as many equal hosts, each with the devices that its slots give it.
absl::Status MeasureHosts(const hosts::FoundHosts& found, console::Console* console,
                          proto::Cluster* cluster) {
  console::ConsoleLines lines(console);
  console->Say(absl::StrCat("measuring ", found.line));
  hosts::HostsSupervisorOptions options;
  options.workers.console = &lines;
  options.build_id = BuildId();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<hosts::HostsSupervisor> supervisor,
                        hosts::HostsSupervisor::Reach(found.agents, options));
  const IdVector<HostId, std::string> names = hosts::NamesOf(found.agents);
  const hosts::Examination examination = hosts::Examine(supervisor.get(), names, {}, kProbeMs);
  supervisor->TellEnd(0);
  const std::optional<hosts::LinkSpeed> speed = hosts::MedianSpeed(examination);
  if (!speed.has_value()) {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0885", "the hosts", "two or more that reach each other",
                    absl::StrCat(names.size(), names.size() == 1 ? " host" : " hosts",
                                 ", no way between which could be measured"),
                    "`weir doctor` with the same hosts says what to mend"});
  }
  proto::HostGroup* const host = cluster->mutable_host(0);
  host->set_count(static_cast<int32_t>(found.agents.size()));
  host->set_name("a host");
  if (found.listed.front().slots > 0) host->set_devices(found.listed.front().slots);
  proto::Link* const between = cluster->mutable_between_hosts();
  *between = cluster->within_host();  // what devices do for their messages is the same
  between->set_latency_ns(std::round(static_cast<double>(speed->round_trip_ns) / 2));
  between->set_bytes_per_second(std::round(speed->bytes_per_second));
  between->set_shared(proto::Link::HOST);
  return absl::OkStatus();
}

// kInvalidArgument (W0926): an output is a file that the command reads, or the other output, or an
// output or the logs lie in a checkpoint.
absl::Status CheckOutputs(const CalibrateArguments& arguments, const proto::Job& job) {
  std::vector<std::string> inputs = job::DataFilesOf(job);
  inputs.push_back(arguments.job.path);
  for (const std::string& layout : arguments.also) {
    for (absl::string_view word : absl::StrSplit(layout, ' ', absl::SkipWhitespace())) {
      if (!absl::StrContains(word, '=')) inputs.emplace_back(word);
    }
  }
  if (!arguments.transport.empty())
    WEIR_RETURN_IF_ERROR(train::CheckOutsideOfCheckpoints("--logs", arguments.logs));
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.out, inputs));
  inputs.push_back(arguments.out);
  return train::CheckOutputIsNoInput("--trace", arguments.options.trace, inputs);
}

std::string CoresText(const std::string& path, const proto::Cluster& cluster) {
  const proto::DeviceModel& device = cluster.device(0);
  return absl::StrFormat(
      "%s: %d kernels on a device of %d thread%s; acts cost %.0f ns, waking %.0f ns; %d cores",
      path, device.kernel_size(), device.cores(), device.cores() == 1 ? "" : "s", device.act_ns(),
      device.wake_ns(), cluster.host(0).cores());
}

// Returns "gpu.textproto: 61 kernels on NVIDIA H100; products reach 612.3 TFLOP/s bf16; memory 2.90
// TB/s".
std::string GpuText(const std::string& path, const proto::DeviceModel& device) {
  std::string text =
      absl::StrFormat("%s: %d kernels on %s", path, device.kernel_size(), device.name());
  for (const proto::Peak& peak : device.peak())
    absl::StrAppendFormat(
        &text, "; products reach %.1f TFLOP/s %s",
        peak.flops_per_second() * (peak.efficiency() > 0 ? peak.efficiency() : 1) * 1e-12,
        peak.dtype());
  absl::StrAppendFormat(&text, "; memory %.2f TB/s", device.bytes_per_second() * 1e-12);
  return text;
}

// Measures the ways of the products of the jobs, keeps them if the user asks for it, and lets the
// jobs have them.
absl::Status MeasureAndUseProducts(const CalibrateArguments& arguments, CliContext* context,
                                   proto::Job* job, std::vector<proto::Job>* layouts) {
  std::vector<proto::Job> jobs{*job};
  jobs.insert(jobs.end(), layouts->begin(), layouts->end());
  WEIR_ASSIGN_OR_RETURN(const proto::MeasuredProducts measured,
                        sim::MeasureProducts(jobs, arguments.options.say));
  if (arguments.products) *context->out << sim::ProductsText(measured);
  if (arguments.keep) {
    const std::string path = sim::KeptProductsPath();
    WEIR_RETURN_IF_ERROR(sim::KeepProducts(measured, path));
    *context->out << path << ": " << measured.row_size()
                  << (measured.row_size() == 1 ? " class" : " classes") << " of products\n";
  }
  sim::UseProducts(measured, job);
  for (proto::Job& layout : *layouts) sim::UseProducts(measured, &layout);
  return absl::OkStatus();
}

absl::Status RunCalibrate(CalibrateArguments arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, arguments.job.Read());
  WEIR_RETURN_IF_ERROR(CheckOutputs(arguments, job));
  if (arguments.products && !arguments.out.empty())
    return Rejected({"W0942", "-o and --products", "one of them", "both",
                     "--keep keeps the ways of products where jobs look for them"});
  WEIR_RETURN_IF_ERROR(SettleRulesConfined(&job));
  const bool on_gpu = job.runtime().device() == kGpus || job.runtime().device() == kEmulatedGpus;
  if (arguments.keep && !arguments.products) {
    WEIR_ASSIGN_OR_RETURN(arguments.out, MakeKeptPlace(arguments, job));
  }
  if (arguments.keep && !on_gpu) WEIR_RETURN_IF_ERROR(MakeFolderOf(sim::KeptProductsPath()));
  for (const std::string& layout : arguments.also) {
    WEIR_ASSIGN_OR_RETURN(proto::Job other, InLayout(arguments.job, layout));
    WEIR_RETURN_IF_ERROR(SettleRulesConfined(&other));
    arguments.options.layouts.push_back(std::move(other));
  }
  arguments.options.say = [context](const std::string& line) {
    *context->err << "measuring " << line << std::endl;
  };
  if (arguments.products || (arguments.keep && !on_gpu)) {
    WEIR_RETURN_IF_ERROR(
        MeasureAndUseProducts(arguments, context, &job, &arguments.options.layouts));
    if (arguments.products) return absl::OkStatus();
  } else {
    WEIR_ASSIGN_OR_RETURN(const std::string line, sim::SettleProducts(&job));
    if (!line.empty()) *context->err << line << "\n";
    for (proto::Job& layout : arguments.options.layouts)
      WEIR_RETURN_IF_ERROR(sim::SettleProducts(&layout).status());
  }
  console::Console console(console::Console::Style::kPlain, context->raw_err);
  if (!arguments.transport.empty()) {
    fleet::FleetOptions fleet;
    fleet.processes = kProcessesMeasured;
    fleet.lanes = arguments.transport == "shm"   ? proto::OpenCommand::SHARED_MEMORY
                  : arguments.transport == "tcp" ? proto::OpenCommand::TCP
                                                 : proto::OpenCommand::AUTOMATIC;
    fleet.log_base = arguments.logs;
    fleet.console = &console;
    arguments.options.in_processes = [fleet](const proto::Job& measured, int threads,
                                             int64_t rounds, int64_t steps) {
      return TimeInProcesses(fleet, measured, threads, rounds, steps);
    };
  }
  console::ConsoleLines agent_lines(&console);
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found, hosts::FindHosts(arguments.hosts, &agent_lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (job.runtime().device() == kEmulatedGpus)
    *context->err
        << "WARNING: an emulated GPU has the times of its emulation on this processor, not "
           "those of a GPU\n";
  WEIR_ASSIGN_OR_RETURN(proto::Cluster cluster, sim::Calibrate(job, arguments.options));
  if (!found.agents.empty()) WEIR_RETURN_IF_ERROR(MeasureHosts(found, &console, &cluster));
  const std::string text = sim::ClusterText(cluster);
  if (arguments.out.empty()) {
    *context->out << text;
    return absl::OkStatus();
  }
  if (arguments.keep) {
    // Other verbs may read the kept file meanwhile, and a full disk must leave the earlier costs.
    WEIR_RETURN_IF_ERROR(store::WriteWholeText(arguments.out, text));
  } else if (std::ofstream file(arguments.out, std::ios::trunc); !(file << text << std::flush)) {
    return Missing({"W0706", "-o " + arguments.out, "a file that can be written", "none",
                    "check that the folder exists"});
  }
  *context->out << (on_gpu ? GpuText(arguments.out, cluster.device(0))
                           : CoresText(arguments.out, cluster));
  if (!arguments.transport.empty()) {
    const double per_second = cluster.within_host().send_bytes_per_second();
    *context->out << (per_second > 0
                          ? absl::StrFormat("; sender and receiver each work through %.1f GB/s",
                                            per_second * 1e-9)
                          : std::string(
                                "; bytes between processes cost nothing that could be measured"));
  }
  if (!found.agents.empty()) {
    *context->out << absl::StrFormat("; %d hosts, %.0f us and %.2f GB/s between them",
                                     cluster.host(0).count(),
                                     cluster.between_hosts().latency_ns() * 1e-3,
                                     cluster.between_hosts().bytes_per_second() * 1e-9);
  }
  *context->out << "\n";
  return absl::OkStatus();
}

void AddCalibrate(CLI::App* app, CliContext* context) {
  auto calibrate = std::make_shared<CalibrateArguments>();
  CLI::App* verb = AddVerb(
      app, context, "calibrate", "Measure what a job's kernels take on this machine, for weir sim",
      "  weir calibrate gpt.textproto --keep               for plan and sim of jobs like this one\n"
      "  weir calibrate gpt.textproto --products             the ways of its matrix products\n"
      "  weir calibrate gpt.textproto -o here.textproto\n"
      "  weir calibrate gpt.textproto --device cuda --keep  of this machine's GPU\n"
      "  weir calibrate gpt.textproto --also dp=2 --also 'dp=2 training.zero_stage=3' -o "
      "here.textproto\n"
      "  weir sim gpt.textproto --cluster here.textproto --mesh dp=2\n"
      "  weir calibrate gpt.textproto --also dp=2 --between-processes auto -o processes.textproto\n"
      "  weir calibrate gpt.textproto --mesh pp=4 -o here.textproto --trace measured.pftrace\n"
      "  weir calibrate gpt.textproto --hosts a,b --between-processes tcp -o lab.textproto\n"
      "Let nothing else run meanwhile.",
      [calibrate, context] { return RunCalibrate(*calibrate, context); });
  calibrate->job.AddTo(verb, context, JobArguments::Data::kOpened);
  verb->add_option("-o,--out", calibrate->out, "Where to write the cluster [standard output]")
      ->type_name("PATH");
  verb->add_flag(
      "--keep", calibrate->keep,
      "Write it where plan and sim look for the costs of this machine ($WEIR_CLUSTER, "
      "~/.config/weir/here.textproto; of a GPU $WEIR_GPU_CLUSTER, ~/.config/weir/gpu.textproto), "
      "and beside it the fastest ways of matrix products ($WEIR_PRODUCTS), which jobs then take");
  verb->add_flag("--products", calibrate->products,
                 "Measure the ways of matrix products alone, and print them");
  verb->add_option("--also", calibrate->also,
                   "Measure kernels as this layout has them, too: a mesh, what --set takes, "
                   "another job file; repeatable")
      ->type_name("LAYOUT")
      ->allow_extra_args(false);
  verb->add_option("--between-processes", calibrate->transport,
                   "Describe devices that are processes (weir train --processes), with tensors "
                   "between them by auto, shm or tcp [one process]")
      ->type_name("HOW")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}));
  AddHostOptions(verb, &calibrate->hosts);
  verb->add_option("--logs", calibrate->logs, "Folder for the logs of processes")
      ->type_name("DIR")
      ->capture_default_str();
  verb->add_option("--threads", calibrate->options.threads_per_device, "Threads of a device")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--steps", calibrate->options.steps, "Steps to measure, of each layout")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_option("--trace", calibrate->options.trace,
                   "Write a Perfetto trace of the job's own mesh: acts as measured, one at a time, "
                   "as if each device had a core of its own")
      ->type_name("PATH");
}

}  // namespace

void AddSimVerbs(CLI::App* app, CliContext* context) {
  auto sim = std::make_shared<SimArguments>();
  CLI::App* verb = AddVerb(
      app, context, "sim", "Predict a step of a job on a cluster that need not exist",
      "  weir sim gpt.textproto --cluster docs/examples/two_hosts.textproto --mesh dp=2,tp=4\n"
      "  weir sim gpt.textproto --cluster c.textproto --mesh pp=4,dp=2 --trace sim.pftrace\n"
      "  weir trace report sim.pftrace                      as of a real run\n"
      "  weir sim gpt.textproto --cluster c.textproto --json | jq .step_seconds\n"
      "Costs are those of --cluster (proto/cluster.proto), else those of this machine that `weir "
      "calibrate --keep` measured,\n"
      "else the defaults of a server's core. `weir plan` predicts the same step.",
      [sim, context] { return Sim(*sim, context); });
  sim->AddTo(verb, context, JobArguments::Data::kNotOpened);
  sim->job.AddRulesFlag(verb);
  verb->add_option("--steps", sim->options.steps,
                   "Steps to simulate; figures are of those after the first that updates [up to "
                   "the second update, of very large jobs the first]")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--seed", sim->options.seed, "Seed of jitter, if the cluster has any")
      ->type_name("N")
      ->check(IsCount())
      ->capture_default_str();
  verb->add_option("--trace", sim->options.trace, "Write a Perfetto trace, as weir train does")
      ->type_name("PATH");
  verb->add_option(
          "--symmetry", sim->symmetry,
          "One rank of each stage stands for all of it: auto (beyond 256 ranks), on or off")
      ->type_name("SWITCH")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  verb->add_flag("--json", sim->json, "Print figures of every device as JSON");
  AddCalibrate(app, context);
}

}  // namespace weir::cli
