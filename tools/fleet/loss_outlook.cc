#include "tools/fleet/loss_outlook.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/unit_text.h"
#include "tools/launch/placement.h"

namespace weir::fleet {
namespace {

bool HasCheckpointsOnTheWay(const LossFacts& facts) {
  return facts.has_checkpoints &&
         (facts.checkpoint_every > 0 || facts.checkpoint_every_seconds > 0);
}

// Returns "the last checkpoint, of which there is one every 100 steps".
std::string LastCheckpoint(const LossFacts& facts) {
  return absl::StrCat("the last checkpoint, of which there is one every ",
                      facts.checkpoint_every > 0 ? Plural(facts.checkpoint_every, "step")
                                                 : DurationText(facts.checkpoint_every_seconds));
}

// Returns what a loss costs whose states memory does not have.
std::string FromFiles(const LossFacts& facts) {
  if (HasCheckpointsOnTheWay(facts)) return absl::StrCat("the steps since ", LastCheckpoint(facts));
  return absl::StrCat("all steps of the run, which writes no checkpoints on the way (",
                      facts.has_checkpoints ? "" : "--checkpoint, ", "--checkpoint-every)");
}

std::string WithoutRecovery(const LossFacts& facts) {
  return absl::StrCat("a lost process ends the job (--on-failure stop), and ",
                      HasCheckpointsOnTheWay(facts)
                          ? absl::StrCat("--resume goes on from ", LastCheckpoint(facts))
                          : absl::StrCat("costs ", FromFiles(facts)));
}

// Returns what a loss costs whose states memory has.
std::string FromMemory(const LossFacts& facts) {
  return facts.buddy_every > 0
             ? absl::StrCat("about ", Plural(facts.buddy_every, "step"), " at most (--buddy-every)")
             : "the steps since the last copies in memory, which take at most 1 % of the time";
}

std::string Elastic(const LossFacts& facts) {
  if (!facts.keeps_states) {
    return absl::StrCat("a lost process costs ", FromFiles(facts),
                        ": with gradient_delay no states are kept in memory");
  }
  constexpr char kAdvice[] = " (--buddy-every N lets another process keep them)";
  if (facts.all_end_with_process) {
    return absl::StrCat("a lost process costs ", FromFiles(facts),
                        ": no other process has its states",
                        facts.has_other_process ? kAdvice : "");
  }
  const std::string from_memory = absl::StrCat("a lost process costs ", FromMemory(facts));
  if (!facts.end_with_process.empty()) {
    return absl::StrCat(from_memory, "; one of ", launch::RankLabel(facts.end_with_process),
                        ", whose states no other process has, costs ", FromFiles(facts), kAdvice);
  }
  if (!facts.end_with_host.empty()) {
    return absl::StrCat(from_memory, "; a lost host with ", launch::RankLabel(facts.end_with_host),
                        ", whose states no other host has, costs ", FromFiles(facts), kAdvice);
  }
  return absl::StrCat(from_memory, "; if all copies of a state are lost at once, that costs ",
                      FromFiles(facts));
}

}  // namespace

std::string LossOutlook(const LossFacts& facts) {
  switch (facts.on_failure) {
    case LossFacts::OnFailure::kStop: return WithoutRecovery(facts);
    case LossFacts::OnFailure::kRestart:
      return absl::StrCat("a lost process costs ", FromFiles(facts),
                          ": all processes start again (--on-failure restart)");
    case LossFacts::OnFailure::kElastic: return Elastic(facts);
  }
  return "";
}

}  // namespace weir::fleet
