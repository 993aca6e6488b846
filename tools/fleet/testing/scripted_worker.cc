#include "tools/fleet/testing/scripted_worker.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"
#include "runtime/base/build_id.h"
#include "runtime/base/problem.h"
#include "runtime/control/outcome.h"
#include "runtime/control/worker_link.h"
#include "runtime/transport/rank_card.h"
#include "tools/launch/failure_report.h"

namespace weir::fleet {
namespace {

absl::StatusOr<std::string> Answer(const proto::WorkerBundle& bundle, Script script,
                                   control::WorkerLink* link) {
  proto::WorkerAnswer answer;
  switch (script) {
    case Script::kAnswers: answer.set_plan_id(absl::StrCat("worker ", bundle.worker())); break;
    case Script::kRefuses:
      return Rejected({"W0001", absl::StrCat("worker ", bundle.worker()), "a sound command", "none",
                       "another one"});
    case Script::kExits: std::exit(3);
    case Script::kIsKilled: ::raise(SIGKILL); break;
    case Script::kStops: ::raise(SIGSTOP); break;
    case Script::kWaits: ::sleep(60); break;
    case Script::kTells: {
      proto::WorkerTrouble trouble;
      *trouble.mutable_outcome() = control::ToOutcome(
          ErrorOf(absl::StatusCode::kUnavailable, {.code = "W0522",
                                                   .where = "the connection",
                                                   .found = "it broke",
                                                   .hint = "a network that holds"}));
      trouble.set_epoch(bundle.epoch());
      link->Send(trouble.SerializeAsString());
      ::sleep(60);
      break;
    }
    case Script::kAnswersNonsense: return std::string("\xff\xff\xff");
    case Script::kForges:
      WEIR_RETURN_IF_ERROR(
          link->Publish(transport::CardSubject(bundle.epoch(), /*role=*/0, RankId(0)), "forged"));
      break;
  }
  return answer.SerializeAsString();
}

}  // namespace

int RunScriptedWorker() {
  proto::WorkerBundle bundle;
  const std::string bytes((std::istreambuf_iterator<char>(std::cin)), {});
  if (!bundle.ParseFromString(bytes)) return 1;
  control::WorkerLinkOptions options;
  options.coordinator_address = bundle.coordinator_address();
  options.job_id = bundle.job_id();
  options.epoch = bundle.epoch();
  options.worker = WorkerId(bundle.worker());
  options.credentials = {bundle.authority_pem(), bundle.certificate_pem(), bundle.key_pem(),
                         bundle.job_key()};
  options.build_id = BuildId();
  options.heartbeat_ms = bundle.heartbeat_ms();
  options.on_abort = [](const absl::Status&) { ::_exit(launch::kExitFollowing); };
  absl::StatusOr<std::unique_ptr<control::WorkerLink>> link =
      control::WorkerLink::Connect(std::move(options));
  if (!link.ok()) {
    std::cerr << link.status().message() << "\n";
    return 2;
  }
  const absl::Status end = (*link)->Serve([&](const std::string& text) {
    proto::WorkerCommand command;
    if (!command.ParseFromString(text)) std::exit(4);
    return Answer(bundle, static_cast<Script>(command.run().steps()), link->get());
  });
  return end.ok() ? 0 : launch::kExitFollowing;
}

}  // namespace weir::fleet
