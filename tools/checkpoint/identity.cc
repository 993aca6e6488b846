#include "tools/checkpoint/identity.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/safetensors.h"

namespace weir::checkpoint {
namespace {

constexpr char kAnother[] = "W0967";

std::string TextOf(const Identity& identity) {
  std::string text = absl::StrCat("the checkpoint of step ", identity.step);
  if (!identity.run.empty()) absl::StrAppend(&text, " of run ", identity.run);
  absl::StrAppend(&text, " with the checksum ", absl::Hex(identity.sum, absl::kZeroPad8));
  return text;
}

}  // namespace

absl::StatusOr<Identity> IdentityOf(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsReader> file,
                        store::SafetensorsReader::Open(path));
  const store::CheckpointShards* const shards = file->shards();
  const store::CheckpointFacts facts = store::FactsOf(file->metadata());
  return Identity{facts.job_id, facts.step,
                  shards != nullptr ? shards->index().sum : file->header_sum()};
}

absl::Status CheckIdentity(const std::string& path, const Identity& expected) {
  WEIR_ASSIGN_OR_RETURN(const Identity found, IdentityOf(path));
  if (found.run == expected.run && found.step == expected.step && found.sum == expected.sum)
    return absl::OkStatus();
  return Damaged({kAnother, path, TextOf(expected), TextOf(found),
                  "a copy of the expected one at its path, or --resume with the one that is there; "
                  "the expected one was replaced after this run began with it, or wrote it"});
}

bool IsOfAnother(const absl::Status& status) {
  const std::optional<Problem> problem = ProblemOf(status);
  return problem.has_value() && problem->code == kAnother;
}

}  // namespace weir::checkpoint
