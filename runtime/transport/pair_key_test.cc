#include "runtime/transport/pair_key.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace weir::transport {
namespace {

TEST(PairKeyTest, BothSidesHaveTheSameSecretAndAThirdHasAnother) {
  const PairKey a = *PairKey::Make(), b = *PairKey::Make(), c = *PairKey::Make();
  EXPECT_EQ(a.public_key().size(), kPublicKeyBytes);
  EXPECT_NE(a.public_key(), b.public_key());
  const std::string secret = *a.SecretWith(b.public_key());
  EXPECT_EQ(*b.SecretWith(a.public_key()), secret);
  EXPECT_NE(*c.SecretWith(a.public_key()), secret);
  EXPECT_NE(*c.SecretWith(b.public_key()), secret);
}

TEST(PairKeyTest, TagsTellSendersReceiversAndDirectionsApart) {
  const std::string secret(32, 's'), other(32, 't');
  const std::set<uint64_t> tags = {
      PairTag(secret, RankId(0), RankId(1)),  PairTag(secret, RankId(1), RankId(0)),
      PairTag(secret, RankId(0), RankId(2)),  PairTag(secret, RankId(11), RankId(0)),
      PairTag(secret, RankId(1), RankId(10)), PairTag(other, RankId(0), RankId(1))};
  EXPECT_EQ(tags.size(), 6);
}

TEST(PairKeyTest, BytesThatAreNoPublicKeyAreRefused) {
  const PairKey key = *PairKey::Make();
  for (const std::string& bytes :
       {std::string(), std::string(31, 'k'), std::string(33, 'k'), std::string(32, '\0')}) {
    const absl::Status status = key.SecretWith(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bytes.size() << ": " << status;
  }
}

}  // namespace
}  // namespace weir::transport
