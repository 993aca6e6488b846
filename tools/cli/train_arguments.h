// The command-line arguments of `weir train`. `weir check` accepts the same arguments, so a user
// checks a run by writing check instead of train. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/cli/planned_job.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/loss_outlook.h"
#include "tools/hosts/find_hosts.h"
#include "tools/launch/growth_policy.h"
#include "tools/launch/log_directory.h"
#include "tools/sim/job_costs.h"
#include "tools/train/trainer.h"

namespace weir::cli {

// Adds the options that say which hosts a verb uses and how it reaches them.
void AddHostOptions(CLI::App* verb, hosts::HostsRequest* hosts);
// Adds --iface.
void AddInterfaceOption(CLI::App* verb, std::string* interface);

// The spread of a job over processes.
struct FleetArguments {
  int processes = 0;  // 0: all ranks in this one, or as many as the hosts have slots
  hosts::HostsRequest hosts;
  std::string interface;
  std::string transport = "auto";
  std::string checksums = "on";
  std::string logs = launch::kLogBaseDefault;
  std::string ranks;
  double heartbeat_seconds = 0;   // 0: as many workers need
  double dead_after_seconds = 0;  // likewise
  double stuck_after_seconds = 60;
  double grace_seconds = 5;
  bool ship = false;  // the inputs of the job to the hosts
  int spares = 0;     // hosts at the end of the list that begin without processes

  void AddTo(CLI::App* verb);
  // `found`: the hosts of the job (hosts::FindHosts), which must be agents' own for a run.
  absl::StatusOr<fleet::FleetOptions> Options(const proto::Job& job, const hosts::FoundHosts& found,
                                              console::Console* console) const;
};

// A job with the changes of a run. --steps makes the run shorter or longer than training.steps and
// does not change the job's schedule of learning rates, so that a run may be made in pieces.
struct JobToTrain {
  proto::Job job;
  // A sentence on learning rates, if --steps differs from the job; may be empty.
  std::string note;
  std::string products;  // a line on the ways of products, for people; may be empty
  sim::JobCosts costs;   // for which the plans are made
  // The costs of `weir plan`, of a job on GPUs, with `rules: AUTO` or with collectives AUTO. What
  // these leave open is decided by these costs, and they know the memory of a GPU's driver.
  sim::JobCosts rule_costs;
};

// ResumeNews is for people: what a run with --resume says of the checkpoint from which it goes on.
struct ResumeNews {
  std::string note;  // that there is no checkpoint yet; may be empty
  std::vector<std::string> warnings;
};

struct TrainArguments : PlannedJobArguments {
  train::TrainOptions options;
  bool averages = false;         // of --init
  int64_t steps = -1;            // below 0: the job's
  int64_t seed = -1;             // below 0: the job's
  std::string checkpoint_every;  // steps, or a time with its unit; empty: neither
  std::string on_nonfinite = "stop";
  std::string on_failure = "stop";
  int64_t buddy_every = -1;  // below 0: the job's
  std::string on_slow = "warn";
  int max_restarts = 3;
  double restart_window_seconds = 3600;
  int64_t min_devices = 0;                   // to which the mesh may become smaller; 0: it stays
  std::optional<double> grow_after_seconds;  // none: as launch::GrowthLimits
  FleetArguments fleet;
  bool view = false;  // serve the page of the run
  int view_port = 0;  // 0: any free one

  void AddTo(CLI::App* verb, CliContext* context);
  // kInvalidArgument: the processes of the run cannot start again on the hosts found, but are asked
  // to (W0756), hosts are held in reserve that cannot take over (W0726), --buddy-every comes
  // without --on-failure elastic (W0733), or a slow process is to be replaced although the others
  // do not live on (W0742), or --grow-after comes without --on-failure elastic (W0992).
  absl::Status CheckRestarts(const hosts::FoundHosts& found) const;
  // Returns what the options say of the cost of a lost process.
  fleet::LossFacts Loss() const;
  // Returns when a mesh that has become smaller grows again.
  launch::GrowthLimits Growth() const;
  // kInvalidArgument (W0729): --min-devices, and a job without replicas, or with fewer devices.
  absl::Status CheckReplicas(const proto::Job& trained) const;
  // Sets options.job_file, too, so that no output replaces the job.
  absl::StatusOr<JobToTrain> Read();
  // Decides from which checkpoint a run with --resume goes on, which options.resume names then. If
  // --resume names the folder of a run whose last checkpoint is damaged, this is the newest one
  // that is whole, and the result says so, in warnings. If --resume names the folder of
  // --checkpoint, and no checkpoint was ever committed in it, then options.resume becomes empty:
  // the run begins at its beginning, as the note says. kDataLoss, kNotFound: --resume names a
  // damaged checkpoint, or a folder without any that is whole. Call before the run writes
  // checkpoints: it may replace `latest`.
  absl::StatusOr<ResumeNews> ChooseResume();
};

}  // namespace weir::cli
