#include "core/launch/settings_claims.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/launch/dist_url.h"

namespace tandem {
namespace {

std::optional<Claim<int>> FlagClaim(absl::string_view name,
                                    std::optional<int> value) {
  if (!value.has_value()) return std::nullopt;
  return Claim<int>{*value, absl::StrCat("--", name, "=", *value)};
}

// --dist_url as claims about the master or the store's file.
absl::StatusOr<LaunchClaims> ClaimsOfDistUrl(
    const std::optional<std::string>& text) {
  LaunchClaims claims;
  if (!text.has_value()) return claims;
  TANDEM_ASSIGN_OR_RETURN(const DistUrl url, ParseDistUrl(*text));
  const std::string source = absl::StrCat("--dist_url=", *text);
  if (url.kind == DistUrl::Kind::kTcp) {
    claims.master_addr = Claim<std::string>{url.host, source};
    if (url.port != 0) claims.master_port = Claim<int>{url.port, source};
  } else if (url.kind == DistUrl::Kind::kFile) {
    claims.store_file = Claim<std::string>{url.path, source};
  }
  return claims;
}

}  // namespace

absl::StatusOr<LaunchClaims> ClaimsOfFlags(const LaunchSettings& flags) {
  LaunchClaims claims;
  if (flags.rank.has_value()) claims.launcher = "flags";
  claims.world_size = FlagClaim("world_size", flags.world_size);
  claims.rank = FlagClaim("rank", flags.rank);
  claims.local_rank = FlagClaim("local_rank", flags.local_rank);
  claims.local_world_size = FlagClaim("nproc_per_node", flags.nproc_per_node);
  claims.nnodes = FlagClaim("nnodes", flags.nnodes);
  claims.node_rank = FlagClaim("node_rank", flags.node_rank);
  if (flags.master_port.value_or(0) != 0) {
    claims.master_port = FlagClaim("master_port", flags.master_port);
  }
  if (flags.master_addr.has_value()) {
    claims.master_addr =
        Claim<std::string>{std::string(WithoutBrackets(*flags.master_addr)),
                           absl::StrCat("--master_addr=", *flags.master_addr)};
  }
  TANDEM_ASSIGN_OR_RETURN(const LaunchClaims url,
                          ClaimsOfDistUrl(flags.dist_url));
  return MergeClaims(claims, url);
}

}  // namespace tandem
