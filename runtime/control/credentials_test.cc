#include "runtime/control/credentials.h"

#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::control {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(CredentialsTest, IdentitiesNameJobWorkerAndEpoch) {
  EXPECT_EQ(CoordinatorIdentity("0f"), "coordinator.0f");
  EXPECT_EQ(WorkerIdentity("0f", WorkerId(3), 1), "worker-3.epoch-1.0f");
}

TEST(CredentialsTest, JobIdsAreSixteenHexadecimalDigitsAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.insert(MakeJobId());
    EXPECT_THAT(*ids.begin(), MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(ids.begin()->size(), 16u);
  }
  EXPECT_EQ(ids.size(), 1000u);
}

TEST(CredentialsTest, AllOfAJobShareItsAuthorityAndKeyAndNothingElse) {
  const auto authority = JobAuthority::Create("0f");
  ASSERT_TRUE(authority.ok()) << authority.status();
  const auto one = authority->Issue(WorkerIdentity("0f", WorkerId(0), 1));
  const auto two = authority->Issue(WorkerIdentity("0f", WorkerId(1), 1));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->authority_pem, two->authority_pem);
  EXPECT_EQ(one->job_key, two->job_key);
  EXPECT_EQ(one->job_key.size(), 32u);
  EXPECT_NE(one->certificate_pem, two->certificate_pem);
  EXPECT_NE(one->key_pem, two->key_pem);
  EXPECT_THAT(one->key_pem, HasSubstr("PRIVATE KEY"));
  const auto other = JobAuthority::Create("0f");
  EXPECT_NE(other->Issue("coordinator.0f")->job_key, one->job_key);
}

TEST(CredentialsTest, ACertificateAndItsKeyArePairedAndOthersAreNot) {
  const auto authority = JobAuthority::Create("0f");
  Credentials one = *authority->Issue("worker-0.epoch-1.0f");
  EXPECT_TRUE(IsKeyPair(one));
  one.key_pem = authority->Issue("worker-1.epoch-1.0f")->key_pem;
  EXPECT_FALSE(IsKeyPair(one));
  EXPECT_FALSE(IsKeyPair(Credentials()));
}

TEST(CredentialsTest, AnIdentityThatCertificatesCannotHoldIsRefused) {
  const auto authority = JobAuthority::Create("0f");
  for (const std::string& identity : {std::string(), std::string("a,DNS:b"), std::string("a b"),
                                      std::string("A"), std::string(300, 'a')}) {
    EXPECT_EQ(authority->Issue(identity).status().code(), absl::StatusCode::kInvalidArgument)
        << identity;
  }
}

TEST(CredentialsTest, CodesAreThoseOfHmacSha256) {
  // RFC 4231, cases 1, 2 and 6.
  EXPECT_EQ(absl::BytesToHexString(Authenticate(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(absl::BytesToHexString(Authenticate("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      absl::BytesToHexString(Authenticate(
          std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(CredentialsTest, NoOtherCodeIsAuthentic) {
  const std::string key(32, 'k');
  const std::string code = Authenticate(key, "message");
  EXPECT_TRUE(IsAuthentic(key, "message", code));
  EXPECT_FALSE(IsAuthentic(key, "massage", code));
  EXPECT_FALSE(IsAuthentic(std::string(32, 'l'), "message", code));
  EXPECT_FALSE(IsAuthentic(key, "message", ""));
  for (size_t length = 0; length < code.size(); ++length)
    EXPECT_FALSE(IsAuthentic(key, "message", code.substr(0, length)));
  for (size_t bit = 0; bit < 8 * code.size(); ++bit) {
    std::string flipped = code;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(IsAuthentic(key, "message", flipped));
  }
}

}  // namespace
}  // namespace weir::control
