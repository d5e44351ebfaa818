// Jobs on the hosts of a test: ranks of //tools:train as several launchers
// start them, and what they end with. For tests.

#ifndef TANDEM_TESTS_E2E_NETWORK_HOSTS_HOST_JOBS_H_
#define TANDEM_TESTS_E2E_NETWORK_HOSTS_HOST_JOBS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/network_hosts/network_hosts.h"
#include "tests/e2e/train/runs.h"

namespace tandem {

using Programs = std::vector<std::unique_ptr<Program>>;

// tandem's own launcher, once on each of `nnodes` hosts, with as many ranks
// each; host 0 serves the store.
Programs StartLaunchers(const NetworkHosts& hosts, int ranks_of_each,
                        const Flags& flags);

// Each rank as torchrun starts it, on two hosts, without a store of the
// agent's.
Programs StartAsTorchrun(const NetworkHosts& hosts, int ranks_of_each,
                         const Flags& flags);
// The same as srun does, by the hosts' names.
Programs StartAsSlurm(const NetworkHosts& hosts, int ranks_of_each,
                      const Flags& flags);

// Waits for all; expects each to end well.
void ExpectAllEndWell(const Programs& programs);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_NETWORK_HOSTS_HOST_JOBS_H_
