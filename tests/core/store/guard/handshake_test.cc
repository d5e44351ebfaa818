#include "core/store/guard/handshake.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::handshake_test {
namespace {

const Nonces kNonces = {std::string(kNonceBytes, 's'),
                        std::string(kNonceBytes, 'c')};

TEST(HandshakeTest, AProofShowsTheSecret) {
  const std::string proof = ClientProof("secret", kNonces);
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(IsClientProof("secret", kNonces.server, proof));
  EXPECT_EQ(ServerProof("secret", kNonces).size(), kCodeBytes);
  EXPECT_EQ(Greeting(kNonces.server).size(), kGreetingBytes);
}

TEST(HandshakeTest, AnythingElseDoesNot) {
  const std::string proof = ClientProof("secret", kNonces);
  EXPECT_FALSE(IsClientProof("Secret", kNonces.server, proof));
  EXPECT_FALSE(IsClientProof("secret", std::string(kNonceBytes, 'S'), proof));
  EXPECT_FALSE(IsClientProof("secret", kNonces.server, ""));
  EXPECT_FALSE(IsClientProof("secret", kNonces.server, proof + "x"));
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string other = proof;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(IsClientProof("secret", kNonces.server, other)) << i;
  }
  // The server's own answer, sent back to it.
  EXPECT_FALSE(IsClientProof(
      "secret", kNonces.server,
      absl::StrCat(kNonces.client, ServerProof("secret", kNonces))));
}

TEST(HandshakeTest, KeysAreOfTheSideTheConnectionAndTheSecret) {
  const Nonces other = {kNonces.server, std::string(kNonceBytes, 'd')};
  std::set<std::string> keys;
  for (const SessionKeys& each :
       {DeriveKeys("secret", kNonces), DeriveKeys("secret", other),
        DeriveKeys("Secret", kNonces)}) {
    keys.insert(each.client);
    keys.insert(each.server);
  }
  EXPECT_EQ(keys.size(), 6);
  EXPECT_EQ(DeriveKeys("secret", kNonces).client,
            DeriveKeys("secret", kNonces).client);
}

}  // namespace
}  // namespace tandem::handshake_test
