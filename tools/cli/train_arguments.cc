#include "tools/cli/train_arguments.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/job/check_training.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/checkpoint/find_whole.h"
#include "tools/cli/cli_checks.h"
#include "tools/job/data_paths.h"
#include "tools/job/fewer_replicas.h"
#include "tools/launch/placement.h"
#include "tools/sim/product_ways.h"
#include "tools/train/output_paths.h"
#include "tools/train/prepare_training.h"
#include "tools/train/run_folder.h"
#include "tools/weights/averages.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

// Reads the text of --checkpoint-every, which IsCountOrTime has checked.
void ReadCheckpointEvery(const std::string& text, train::TrainOptions* options) {
  if (text.empty()) return;
  const size_t digits = text.find_first_not_of("0123456789");
  const int64_t count = std::stoll(text.substr(0, digits));
  if (digits == std::string::npos) {
    options->checkpoint_every = count;
    return;
  }
  const int64_t seconds = text[digits] == 'h' ? 3600 : text[digits] == 'm' ? 60 : 1;
  options->checkpoint_every_seconds = static_cast<double>(count * seconds);
}

}  // namespace

void AddHostOptions(CLI::App* verb, hosts::HostsRequest* hosts) {
  const auto host_option = [&](const char* name, std::string* value, const char* type,
                               const char* about) {
    return verb->add_option(name, *value, about)->type_name(type)->group("Hosts");
  };
  verb->add_option("--backend", hosts->backend,
                   "How to reach the hosts: auto, local, ssh, index, pmix, pmi or slurm")
      ->type_name("HOW")
      ->check(CLI::IsMember({"auto", "local", "ssh", "index", "pmix", "pmi", "slurm"}))
      ->capture_default_str()
      ->group("Hosts");
  CLI::Option* const list =
      host_option("--hosts", &hosts->list, "LIST",
                  "Use these hosts: a,b:2,n[1-4], where :2 gives two slots [those of WEIR_HOSTS]");
  host_option("--hostfile", &hosts->file, "PATH",
              "The same from a file: a host on each line, perhaps with slots=N")
      ->excludes(list);
  host_option("--ssh", &hosts->ssh, "COMMAND", "The program that reaches a host, with options")
      ->capture_default_str();
  verb->add_option("--fan-out", hosts->fan_out,
                   "Reach N hosts by ssh from here, and further ones through these, N each")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group("Hosts");
  host_option("--weir", &hosts->program, "PATH",
              "The program of Weir on the hosts [the path of this one]");
  host_option("--addr", &hosts->address, "ADDRESS",
              "The address of this machine at which hosts reach it [found by trying]");
  host_option("--secret-file", &hosts->secret_file, "PATH",
              "A file with the same secret for all tasks (backend index)")
      ->envname("WEIR_SECRET_FILE");
  verb->add_option("--meet-within", hosts->meeting_limit_s,
                   "How long the tasks of a scheduler wait for each other at the start")
      ->type_name("SECONDS")
      ->check(IsSeconds(1))
      ->capture_default_str()
      ->group("Hosts");
  verb->add_option("--port", hosts->port,
                   "The port at which the first task listens (backend index)")
      ->type_name("N")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str()
      ->envname("WEIR_PORT")
      ->group("Hosts");
}

void AddInterfaceOption(CLI::App* verb, std::string* interface) {
  verb->add_option("--iface", *interface,
                   "The interface of every host for tensors [the one on the way to this machine]")
      ->type_name("NAME")
      ->group("Hosts");
}

void FleetArguments::AddTo(CLI::App* verb) {
  const auto seconds = [&](const char* name, double* value, const char* about,
                           double least = 0.01) {
    CLI::Option* const option = verb->add_option(name, *value, about)
                                    ->type_name("SECONDS")
                                    ->check(IsSeconds(least))
                                    ->group("Processes");
    if (*value > 0) option->capture_default_str();
  };
  verb->add_option(
          "--processes", processes,
          "Spread the devices over N processes [all in this one; with --hosts, one for each "
          "slot]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->group("Processes");
  AddHostOptions(verb, &hosts);
  verb->add_flag("--ship", ship,
                 "Send the data of the job, --init and --resume to the hosts, which need no copy")
      ->group("Hosts");
  AddInterfaceOption(verb, &interface);
  verb->add_option("--transport", transport,
                   "How tensors travel between processes: auto, shm or tcp")
      ->type_name("HOW")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str()
      ->group("Processes");
  verb->add_option("--checksums", checksums, "CRC32C of every tensor between processes: on or off")
      ->type_name("SWITCH")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group("Processes");
  verb->add_option("--logs", logs, "Folder of the processes' logs; a folder per run is made in it")
      ->type_name("DIR")
      ->capture_default_str()
      ->group("Processes");
  verb->add_option("--ranks", ranks,
                   "Show only what these ranks print, such as 0,3-5; logs have all [all]")
      ->type_name("LIST")
      ->group("Processes");
  seconds("--heartbeat", &heartbeat_seconds,
          "How often a process says that it is alive [1, or 0.004 for each process]");
  seconds("--dead-after", &dead_after_seconds,
          "A process that is silent for longer counts as dead, and the job ends [4, or four "
          "heartbeats]");
  seconds("--stuck-after", &stuck_after_seconds,
          "End the job if no actor acts for longer, and say what each waits for", 0.1);
  seconds("--grace", &grace_seconds, "Between asking a process to end and killing it");
}

absl::StatusOr<fleet::FleetOptions> FleetArguments::Options(const proto::Job& job,
                                                            const hosts::FoundHosts& found,
                                                            console::Console* console) const {
  WEIR_RETURN_IF_ERROR(train::CheckOutsideOfCheckpoints("--logs", logs));
  fleet::FleetOptions options;
  options.run_began_ns = MonotonicClock().NowNs();
  options.processes = processes;
  options.lanes = transport == "shm"   ? proto::OpenCommand::SHARED_MEMORY
                  : transport == "tcp" ? proto::OpenCommand::TCP
                                       : proto::OpenCommand::AUTOMATIC;
  options.checksums = checksums == "on" ? fleet::FleetOptions::Checksums::kOn
                                        : fleet::FleetOptions::Checksums::kOff;
  options.log_base = logs;
  options.listed_hosts = found.listed;
  options.hosts = found.agents;
  options.is_scheduled = hosts::IsScheduler(found.backend);
  options.address = hosts.address;
  options.interface = interface;
  options.ships_inputs = ship;
  options.spares = spares;
  for (const job::DataPath& data : job::DataPathsOf(job)) {
    std::error_code ignored;
    if (!ship || !std::filesystem::is_directory(data.path, ignored)) continue;
    return Rejected(
        {"W0795", data.field, "files, which --ship copies to the hosts",
         absl::StrCat("the folder ", data.path),
         "data { arrays { array { name: \"x\" path: \"FOLDER/x.npy\" } } }, or an .npz"});
  }
  for (std::string& file : job::DataFilesOf(job)) options.input_files.push_back(std::move(file));
  if (!ranks.empty()) {
    // The number of ranks does not depend on rules, which a search may still have to find.
    proto::Job with_written_rules = job;
    with_written_rules.clear_rules();
    compiler::CompileOptions compile;
    compile.mode = compiler::ModeOf(job);
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<compiler::LogicalPlan> plan,
                          train::CompileConfined(with_written_rules, compile));
    WEIR_ASSIGN_OR_RETURN(options.ranks_shown,
                          launch::ParseRanks(ranks, static_cast<int>(plan->places.num_ranks())));
  }
  const auto ms = [](double seconds) { return std::max<int64_t>(1, std::llround(seconds * 1e3)); };
  if (heartbeat_seconds > 0) options.heartbeat_ms = ms(heartbeat_seconds);
  if (dead_after_seconds > 0) options.dead_after_ms = ms(dead_after_seconds);
  options.stuck_after_ms = ms(stuck_after_seconds);
  options.grace_ms = ms(grace_seconds);
  options.console = console;
  if (options.dead_after_ms > 0 && options.heartbeat_ms * 2 > options.dead_after_ms) {
    return Rejected({"W0074", "--dead-after",
                     absl::StrCat("at least twice --heartbeat ", heartbeat_seconds, " s"),
                     absl::StrCat(dead_after_seconds, " s"), "a smaller --heartbeat"});
  }
  return options;
}

void TrainArguments::AddTo(CLI::App* verb, CliContext* context) {
  PlannedJobArguments::AddTo(verb, context, JobArguments::Data::kOpened);
  job.AddRulesFlag(verb);
  verb->add_option(
          "--steps", steps,
          "Step to end at, instead of the job's; the schedule of learning rates stays the job's")
      ->type_name("N")
      ->check(IsCount());
  verb->add_option("--seed", seed, "Seed, instead of the job's")->type_name("N")->check(IsCount());
  verb->add_option("--init", options.init,
                   "Start from these weights: safetensors, an index of them, or a folder")
      ->type_name("PATH")
      ->check(IsPath());
  verb->add_flag("--average", averages,
                 "With --init: in place of each weight its average, which a run with "
                 "training.average has");
  verb->add_option(
          "--resume", options.resume,
          "Resume from this checkpoint, on any mesh; of a folder, from the one that `latest` "
          "names, or the newest before it that is whole. If it is the folder of --checkpoint and "
          "has none yet, the run begins at step 0")
      ->type_name("PATH")
      ->check(IsPath());
  verb->add_option("--save", options.save, "Write the weights at the end (safetensors)")
      ->type_name("PATH")
      ->check(IsPath());
  verb->add_option(
          "--checkpoint", options.checkpoint,
          "Write weights, optimiser states and the step: into one file, or into a folder of "
          "checkpoints if the path ends in / or a folder is there")
      ->type_name("PATH")
      ->check(IsPath());
  verb->add_option("--checkpoint-every", checkpoint_every,
                   "Also write it every N steps, or at the first update after a time such as 60s, "
                   "10m or 1h")
      ->type_name("N|TIME")
      ->check(IsCountOrTime());
  verb->add_option("--keep", options.keep, "In a folder of checkpoints keep the newest N [all]")
      ->type_name("N")
      ->check(IsCount(1));
  verb->add_option("--keep-every", options.keep_every,
                   "Keep also those whose step is a multiple of N, whatever their age")
      ->type_name("N")
      ->check(IsCount(1));
  verb->add_option("--checkpoint-bandwidth", options.checkpoint_bandwidth,
                   "Write at most so many bytes in a second beside the steps, such as 200MB; the "
                   "last checkpoint, for which the run waits, has no limit [none]")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(true))
      ->check(IsCount(1));
  verb->add_option("--metrics", options.metrics, "Write a line of JSON per step")
      ->type_name("PATH")
      ->check(IsPath());
  verb->add_option("--tensorboard", options.tensorboard,
                   "Write the same values as event files of TensorBoard into this folder")
      ->type_name("DIR")
      ->check(IsPath());
  verb->add_option("--trace", options.trace,
                   "Write a Perfetto trace of the last acts, also if the job fails")
      ->type_name("PATH")
      ->check(IsPath());
  CLI::Option* shows = verb->add_flag(
      "--view", view,
      "Serve a page that shows the run as it goes on, to browsers of this machine; the "
      "address is printed. weir top and weir view --attach watch any run without it");
  verb->add_option("--view-port", view_port, "Port of the page of --view [any free one]")
      ->type_name("N")
      ->needs(shows)
      ->check(CLI::Range(1, 65535));
  verb->add_option("--on-nonfinite", on_nonfinite,
                   "When the loss or the gradients are NaN or infinite: stop (exit code 3; the "
                   "last finite state is kept in PATH.stopped "
                   "files), skip (leave that update out) or continue")
      ->type_name("HOW")
      ->check(CLI::IsMember({"stop", "skip", "continue"}))
      ->capture_default_str();
  verb->add_option("--on-failure", on_failure,
                   "When a process of the job ends, hangs or is lost: stop, restart all processes "
                   "from the last checkpoint of the run, or elastic: start that process anew, and "
                   "let the others live on with their states")
      ->type_name("HOW")
      ->check(CLI::IsMember({"stop", "restart", "elastic"}))
      ->capture_default_str();
  verb->add_option("--buddy-every", buddy_every,
                   "With elastic: every N steps copy the states that no other process holds, or no "
                   "other host, into the memory of another process, on another host where there is "
                   "one; 0: never [runtime.buddy_every of the job]")
      ->type_name("N")
      ->check(IsCount());
  verb->add_option(
          "--on-slow", on_slow,
          "When a rank stays slower than its peers: warn, which names the rank, or "
          "replace, which also ends its process and starts it anew (--on-failure elastic), "
          "at most one within --restart-window")
      ->type_name("HOW")
      ->check(CLI::IsMember({"warn", "replace"}))
      ->capture_default_str();
  verb->add_option("--max-restarts", max_restarts,
                   "Failures within --restart-window after which the job ends")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_option("--restart-window", restart_window_seconds,
                   "Earlier failures do not count for --max-restarts")
      ->type_name("SECONDS")
      ->check(IsSeconds(1))
      ->capture_default_str();
  verb->add_option("--check-replicas", options.check_replicas,
                   "Compare the replicas of weights every N steps and before each checkpoint, and "
                   "end the job if they differ; 0: never")
      ->type_name("N")
      ->check(IsCount())
      ->capture_default_str();
  verb->add_option("--threads", options.threads_per_device, "Threads per device [cores / devices]")
      ->type_name("N")
      ->check(IsCount(1));
  fleet.AddTo(verb);
  verb->add_option("--spares", fleet.spares,
                   "Hold the last N of the hosts in reserve: they take the place of hosts that are "
                   "lost (with --on-failure restart or elastic)")
      ->type_name("N")
      ->check(CLI::Range(0, hosts::kHostsMax))
      ->capture_default_str()
      ->group("Hosts");
  verb->add_option("--min-devices", min_devices,
                   "If a lost process does not come back, go on with fewer replicas (axis dp) and "
                   "more micro-batches, on N devices at least [the mesh stays]")
      ->type_name("N")
      ->check(IsCount(1))
      ->group("Hosts");
  verb->add_option(
          "--grow-after", grow_after_seconds,
          "With elastic, a mesh that has become smaller grows again when lost processes can "
          "start again: try after so long, then each time after twice as long; 0: never")
      ->type_name("SECONDS")
      ->needs("--min-devices")
      ->check(IsSeconds(0))
      ->default_str(absl::StrCat(launch::GrowthLimits().after_ms / 1000))
      ->group("Hosts");
}

namespace {

// Rejects an option for lost hosts where no host can be lost, or the loss ends the job (W0726).
absl::Status CheckHostsOfLoss(const std::string& option, const std::string& on_failure,
                              const hosts::FoundHosts& found) {
  if (found.listed.empty() || hosts::IsScheduler(found.backend)) {
    return Rejected(
        {"W0726", option, "hosts over ssh",
         hosts::IsScheduler(found.backend) ? "tasks of a scheduler" : "a job on this machine alone",
         "--hosts a,b,c"});
  }
  if (on_failure != "stop") return absl::OkStatus();
  return Rejected({"W0726", option, "a job that goes on after a failure", "--on-failure stop",
                   "--on-failure elastic"});
}

// Rejects --min-devices without hosts, if no process of this machine lives on after a failure
// (W0726).
absl::Status CheckProcessesOfLoss(const std::string& option, int processes,
                                  const std::string& on_failure) {
  const bool is_elastic = on_failure == "elastic";
  if (processes > 0 && is_elastic) return absl::OkStatus();
  return Rejected(
      {"W0726", option, "processes of this machine that live on after a failure, or hosts over ssh",
       processes > 0 ? "--on-failure " + on_failure : "a job in one process",
       absl::StrCat(processes > 0 ? "" : "--processes 2", processes > 0 || is_elastic ? "" : " ",
                    is_elastic ? "" : "--on-failure elastic")});
}

}  // namespace

absl::Status TrainArguments::CheckRestarts(const hosts::FoundHosts& found) const {
  if (buddy_every > 0 && on_failure != "elastic") {
    return Rejected({"W0733", "--buddy-every", "--on-failure elastic, which uses these copies",
                     "--on-failure " + on_failure, "--on-failure elastic"});
  }
  if (grow_after_seconds.has_value() && on_failure != "elastic") {
    return Rejected(
        {"W0992", "--grow-after",
         "--on-failure elastic, with which the mesh becomes smaller while processes live",
         "--on-failure " + on_failure, "--on-failure elastic"});
  }
  if (min_devices > 0) {
    const std::string option = absl::StrCat("--min-devices ", min_devices);
    const bool is_here = found.listed.empty() && !hosts::IsScheduler(found.backend);
    WEIR_RETURN_IF_ERROR(is_here ? CheckProcessesOfLoss(option, fleet.processes, on_failure)
                                 : CheckHostsOfLoss(option, on_failure, found));
  }
  if (fleet.spares > 0) {
    const std::string spares = absl::StrCat("--spares ", fleet.spares);
    WEIR_RETURN_IF_ERROR(CheckHostsOfLoss(spares, on_failure, found));
    const int num_hosts = found.listed.next_id().value();
    if (fleet.spares >= num_hosts) {
      return Rejected({"W0726", spares, "fewer hosts in reserve than there are",
                       absl::StrCat(num_hosts, num_hosts == 1 ? " host" : " hosts"),
                       "more hosts in --hosts, or a smaller --spares"});
    }
  }
  if (on_slow == "replace" && on_failure != "elastic") {
    return Rejected({"W0742", "--on-slow replace",
                     "--on-failure elastic, with which the other "
                     "processes live on",
                     "--on-failure " + on_failure, "--on-failure elastic, or --on-slow warn"});
  }
  if (on_failure == "stop") return absl::OkStatus();
  const std::string option = "--on-failure " + on_failure;
  // A task of a scheduler serves one start, and the scheduler counts its end as that of the job.
  if (hosts::IsScheduler(found.backend)) {
    return Rejected(
        {"W0756", option, "processes on this machine, or hosts over ssh",
         absl::StrCat("tasks of ", hosts::kBackendNames[static_cast<size_t>(found.backend)]),
         "--on-failure stop, and --resume with the last checkpoint"});
  }
  if (fleet.processes > 0 || !found.agents.empty()) return absl::OkStatus();
  return Rejected({"W0756", option, "processes that can start again",
                   "a job in one process, which ends with a failure", "--processes 1 or more"});
}

fleet::LossFacts TrainArguments::Loss() const {
  fleet::LossFacts facts;
  if (on_failure == "restart") facts.on_failure = fleet::LossFacts::OnFailure::kRestart;
  if (on_failure == "elastic") facts.on_failure = fleet::LossFacts::OnFailure::kElastic;
  facts.has_checkpoints = !options.checkpoint.empty();
  facts.checkpoint_every = options.checkpoint_every;
  facts.checkpoint_every_seconds = options.checkpoint_every_seconds;
  return facts;
}

launch::GrowthLimits TrainArguments::Growth() const {
  launch::GrowthLimits limits;
  if (grow_after_seconds.has_value()) limits.after_ms = std::llround(*grow_after_seconds * 1e3);
  limits.lost_again_max = max_restarts;
  limits.window_ms = std::llround(restart_window_seconds * 1e3);
  return limits;
}

absl::Status TrainArguments::CheckReplicas(const proto::Job& trained) const {
  if (min_devices == 0) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(compiler::CheckEqualStages(trained,
                                                  absl::StrCat("--min-devices ", min_devices),
                                                  "no --min-devices: then the mesh stays"));
  std::vector<std::string> axes;
  for (const proto::MeshAxisSpec& axis : trained.mesh().axis())
    axes.push_back(absl::StrCat(axis.name(), "=", axis.size()));
  if (job::HasReplicas(trained)) {
    const int64_t devices = compiler::NumDevices(trained, std::numeric_limits<int64_t>::max());
    if (min_devices <= devices) return absl::OkStatus();
    return Rejected({"W0729", absl::StrCat("--min-devices ", min_devices),
                     absl::StrCat("at most the ", devices, " devices of the mesh (",
                                  absl::StrJoin(axes, ","), ")"),
                     absl::StrCat(min_devices),
                     "a smaller --min-devices, or none: then the mesh stays"});
  }
  return Rejected({"W0729", absl::StrCat("--min-devices ", min_devices),
                   "a mesh with an axis dp of more than one device",
                   axes.empty() ? "no mesh" : absl::StrJoin(axes, ","),
                   "--mesh dp=2, or no --min-devices: then the mesh stays"});
}

absl::StatusOr<ResumeNews> TrainArguments::ChooseResume() {
  if (options.resume.empty()) return ResumeNews();
  const std::string directory = store::WithoutSlashes(options.resume);
  const bool is_own_folder = train::IsFolderPath(options.checkpoint) &&
                             directory == store::WithoutSlashes(options.checkpoint);
  // A scheduler may start one command again and again. The first start has no checkpoint, and may
  // be killed before it has one.
  if (is_own_folder && checkpoint::HasNoSteps(directory)) {
    options.resume.clear();
    return ResumeNews{directory + "/ has no checkpoint yet: the run begins at step 0", {}};
  }
  // A path that ends in a slash names a folder, also if nothing is there.
  if (!train::IsFolderPath(options.resume)) return ResumeNews();
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(options.resume) / store::kIndexFile, error)) {
    WEIR_RETURN_IF_ERROR(checkpoint::CheckNamed(options.resume));
    return ResumeNews();
  }
  WEIR_ASSIGN_OR_RETURN(checkpoint::WholeCheckpoint whole, checkpoint::FindWhole(options.resume));
  options.resume = std::move(whole.path);
  return ResumeNews{"", std::move(whole.warnings)};
}

absl::StatusOr<JobToTrain> TrainArguments::Read() {
  JobToTrain read;
  WEIR_ASSIGN_OR_RETURN(read.job, job.Read());
  options.job_file = job.path == "-" ? "" : job.path;
  ReadCheckpointEvery(checkpoint_every, &options);
  WEIR_RETURN_IF_ERROR(train::CheckOptions(options));
  if (averages && options.init.empty()) {
    return Rejected({"W0074", "--average", "--init, the averages of the weights", "no --init",
                     "--init run/; a run that --resume takes up has its averages"});
  }
  options.init_values = weights::ValuesOf(averages);
  if (!options.init.empty()) {
    WEIR_ASSIGN_OR_RETURN(options.init, weights::WeightFileOf(options.init));
  }
  // The run may replace `latest` of the folder, and goes on from the checkpoint that it names now.
  if (store::IsCheckpointFolder(options.init)) {
    WEIR_ASSIGN_OR_RETURN(options.init, store::ResolveCheckpoint(options.init));
  }
  if (cluster != sim::kDefaultCosts) {
    WEIR_ASSIGN_OR_RETURN(read.products, sim::SettleProducts(&read.job));
  }
  WEIR_ASSIGN_OR_RETURN(read.costs, sim::JobCosts::Choose(cluster));
  if (read.job.rules() == proto::Job::AUTO || read.job.runtime().device() == "cuda" ||
      read.job.runtime().collectives() == proto::Runtime::AUTO) {
    WEIR_ASSIGN_OR_RETURN(read.rule_costs, sim::JobCosts::Choose(cluster, read.job));
  }
  proto::Training* training = read.job.mutable_training();
  if (buddy_every >= 0) read.job.mutable_runtime()->set_buddy_every(buddy_every);
  if (seed >= 0) training->set_seed(static_cast<uint64_t>(seed));
  const int64_t planned = training->steps();
  if (steps < 0 || steps == planned) return read;
  const bool follows_steps = training->schedule().decay() != proto::Schedule::CONSTANT &&
                             training->schedule().decay_steps() == 0;
  if (planned > 0 && follows_steps) {
    training->mutable_schedule()->set_decay_steps(compiler::LearningRatesOf(*training).decay_steps);
    read.note =
        absl::StrCat("learning rates follow the job's ", planned, planned == 1 ? " step" : " steps",
                     " (training.steps), ",
                     steps < planned ? absl::StrCat("and this run ends at step ", steps)
                                     : absl::StrCat("and later steps have min_learning_rate ",
                                                    training->schedule().min_learning_rate()));
  }
  training->set_steps(steps);
  return read;
}

}  // namespace weir::cli
