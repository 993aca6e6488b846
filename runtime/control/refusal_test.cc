// Tests which workers are refused, and that a refusal harms no other worker.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control/control_testing.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/credentials.h"
#include "runtime/control/worker_link.h"

namespace weir::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the answer to a worker that asks to join with the options of a good worker, modified by
// `change`.
absl::Status Knock(TestJob* job, const std::function<void(WorkerLinkOptions*)>& change) {
  WorkerLinkOptions options = job->WorkerOptions(0);
  change(&options);
  return WorkerLink::Connect(std::move(options)).status();
}

absl::StatusOr<std::string> Done(int worker, const std::string& command) {
  return absl::StrCat(worker);
}

// Expects that, after all refusals, an honest worker is still served and no worker counts as lost.
void ExpectServes(TestJob* job) {
  TestWorkers workers(job, 1, Done);
  EXPECT_TRUE((*job)->WaitForWorkers(kPatienceMs).ok());
  EXPECT_TRUE((*job)->CallAll("work", kPatienceMs).ok());
  (*job)->Shutdown(kPatienceMs);
  workers.Join();
  EXPECT_TRUE(workers.ended(0).ok()) << workers.ended(0);
  EXPECT_TRUE(job->lost().empty());
}

TEST(RefusalTest, CredentialsOfAnotherJobAreRefusedByBothSides) {
  TestJob job(1);
  auto stranger = JobAuthority::Create(job.job_id());
  ASSERT_TRUE(stranger.ok());
  const Credentials own = *stranger->Issue(WorkerIdentity(job.job_id(), WorkerId(0), 1));
  const absl::Status by_worker =
      Knock(&job, [&](WorkerLinkOptions* options) { options->credentials = own; });
  EXPECT_EQ(by_worker.code(), absl::StatusCode::kPermissionDenied) << by_worker;
  // This worker trusts the coordinator, but is not trusted.
  const absl::Status by_coordinator = Knock(&job, [&](WorkerLinkOptions* options) {
    options->credentials.certificate_pem = own.certificate_pem;
    options->credentials.key_pem = own.key_pem;
  });
  EXPECT_EQ(by_coordinator.code(), absl::StatusCode::kPermissionDenied) << by_coordinator;
  ExpectServes(&job);
}

TEST(RefusalTest, APartyWithoutACertificateIsRefused) {
  TestJob job(1);
  const absl::Status status = Knock(&job, [](WorkerLinkOptions* options) {
    options->credentials.certificate_pem.clear();
    options->credentials.key_pem.clear();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  ExpectServes(&job);
}

TEST(RefusalTest, ACertificateSpeaksForItsWorkerOnly) {
  TestJob job(2);
  const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
    options->credentials = *job.authority().Issue(WorkerIdentity(job.job_id(), WorkerId(1), 1));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0606"), HasSubstr(WorkerIdentity(job.job_id(), WorkerId(0), 1)),
                    HasSubstr(WorkerIdentity(job.job_id(), WorkerId(1), 1))));
}

TEST(RefusalTest, TheCoordinatorsCertificateIsNoWorkers) {
  TestJob job(1);
  const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
    options->credentials = *job.authority().Issue(CoordinatorIdentity(job.job_id()));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  ExpectServes(&job);
}

TEST(RefusalTest, AWorkerDoesNotTakeAnotherWorkerForTheCoordinator) {
  TestJob job(1);
  TestJob impostor(1, [&](CoordinatorOptions* options) {
    options->job_id = job.job_id();
    options->credentials = *job.authority().Issue(WorkerIdentity(job.job_id(), WorkerId(1), 1));
  });
  const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
    options->coordinator_address = impostor->address();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
}

TEST(RefusalTest, AnotherBuildIsRefusedWithBothIdsAndEndsTheWaiting) {
  TestJob job(2);
  const absl::Status status =
      Knock(&job, [](WorkerLinkOptions* options) { options->build_id = "build-2"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0604"), HasSubstr("build-1"), HasSubstr("build-2")));
  const absl::Status waited = job->WaitForWorkers(kPatienceMs);
  EXPECT_EQ(waited.code(), absl::StatusCode::kFailedPrecondition) << waited;
  EXPECT_THAT(std::string(waited.message()),
              AllOf(HasSubstr("build-1"), HasSubstr("build-2"), HasSubstr("worker 0")));
}

TEST(RefusalTest, AnotherBuildDoesNotEndTheWaitingOfTheNextEpoch) {
  TestJob job(2);
  EXPECT_FALSE(Knock(&job, [](WorkerLinkOptions* options) { options->build_id = "build-2"; }).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(job->WaitForWorkers(kPatienceMs)));
  job->BeginEpoch(2, {WorkerId(0)}, absl::UnavailableError("worker 0 was lost"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(job->WaitForWorkers(10)));
}

TEST(RefusalTest, AWorkerOfAnotherEpochIsRefusedWithBoth) {
  TestJob job(1, [](CoordinatorOptions* options) { options->epoch = 7; });
  const absl::Status status = Knock(&job, [](WorkerLinkOptions* options) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0605"), HasSubstr("epoch 1"), HasSubstr("epoch 7")));
}

TEST(RefusalTest, AWorkerCannotClaimAnEpochThatItsCertificateLacks) {
  TestJob job(1);
  const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
    options->credentials = *job.authority().Issue(WorkerIdentity(job.job_id(), WorkerId(0), 2));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  ExpectServes(&job);
}

TEST(RefusalTest, AWorkerOfAnotherJobIsRefusedWithBoth) {
  TestJob job(1);
  const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
    // This job's authority has signed the worker's certificate all the same; the coordinator passes
    // for the other job's coordinator too.
    options->job_id = "otherjob";
    options->credentials = *job.authority().Issue(WorkerIdentity("otherjob", WorkerId(0), 1));
  });
  // The worker looks for the coordinator of its own job and does not take this coordinator for it.
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("otherjob"));
  ExpectServes(&job);
}

TEST(RefusalTest, ANumberBeyondTheJobIsRefused) {
  TestJob job(1);
  for (int number : {1, -1, 1 << 30}) {
    const absl::Status status = Knock(&job, [&](WorkerLinkOptions* options) {
      options->worker = WorkerId(number);
      options->credentials =
          *job.authority().Issue(WorkerIdentity(job.job_id(), WorkerId(number), 1));
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("W0607"));
  }
  ExpectServes(&job);
}

TEST(RefusalTest, TheSecondWorkerOfANumberIsRefusedAndTheFirstUnhurt) {
  TestJob job(1);
  TestWorkers workers(&job, 1, Done);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  for (int attempt = 0; attempt < 20; ++attempt) {
    const absl::Status status = Knock(&job, [](WorkerLinkOptions* options) {});
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("W0607"), HasSubstr("worker 0")));
    EXPECT_TRUE(job->CallAll("still there?", kPatienceMs).ok());
  }
  job->Shutdown(kPatienceMs);
  workers.Join();
  EXPECT_TRUE(workers.ended(0).ok()) << workers.ended(0);
  EXPECT_TRUE(job.lost().empty());
}

TEST(RefusalTest, NobodyIsLetInAfterTheEnd) {
  TestJob ended(1);
  ended->Shutdown(0);
  EXPECT_EQ(Knock(&ended, [](WorkerLinkOptions*) {}).code(), absl::StatusCode::kCancelled);
  TestJob aborted(1);
  aborted->Abort(absl::DataLossError("a page was torn"));
  const absl::Status status = Knock(&aborted, [](WorkerLinkOptions*) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a page was torn"));
}

TEST(RefusalTest, WithoutACoordinatorAWorkerGivesUpAtItsLimit) {
  TestJob job(1);
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.connect_limit_ms = 100;
  job.DestroyCoordinator();
  const absl::Status status = WorkerLink::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0608"), HasSubstr(options.coordinator_address)));
}

}  // namespace
}  // namespace weir::control
