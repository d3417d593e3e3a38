#include <algorithm>
#include <stdexcept>
#include <utility>

#include "catch.h"
#include "model/distributed.h"
#include "model/operation.h"
#include "support/scan_problem.h"

using namespace ssmbench;

TEST_CASE("what ranks take is the parts of tensors and the workspaces of all of them") {
  const Problem whole = test::scan_problem({{"batch", test::size(4)}, {"seqlen", test::size(256)}});
  std::size_t tensors = 0;
  std::size_t shared = 0;  // what batches share
  for (const auto& spec : whole.tensors()) {
    tensors += spec.bytes();
    if (spec.axes.find('b') == std::string::npos) shared += spec.bytes();
  }
  const auto* batch = distributed_implementation("selective_scan_fwd", "cpu-batch");
  const auto* rerun = distributed_implementation("selective_scan_fwd", "cpu-rerun");
  REQUIRE(batch != nullptr);
  REQUIRE(rerun != nullptr);
  CHECK(batch->workspace_bytes(whole, 0, 2) == 0);
  CHECK(bytes_of_ranks(*batch, whole, 2) == tensors + shared);
  CHECK(bytes_of_ranks(*batch, whole, 4) == tensors + 3 * shared);
  CHECK(bytes_of_ranks(*rerun, whole, 2) >=
        tensors + rerun->workspace_bytes(whole, 0, 2) + rerun->workspace_bytes(whole, 1, 2));
  CHECK(distributed_implementation("selective_scan_fwd", "cpu-simd") == nullptr);
}

TEST_CASE("a team's implementations say for a number of ranks what theirs say") {
  const Problem whole = test::scan_problem({{"batch", test::size(2)}, {"seqlen", test::size(256)}});
  for (const int ranks : {2, 3, 5})
    for (const auto& one : team_implementations(ranks)) {
      if (one.op != whole.op().name) continue;
      INFO(one.name << " " << ranks);
      const auto& distributed = *distributed_implementation(one.op, one.name);
      CHECK(one.unsupported(whole) == distributed.unsupported(whole, ranks));
      if (one.unsupported(whole)) continue;
      std::size_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank)
        largest = std::max(largest, distributed.workspace_bytes(whole, rank, ranks));
      CHECK(one.workspace_bytes(whole) == largest);
    }
}

TEST_CASE("the registry of distributed implementations is ordered, and every entry says who it is") {
  const auto& all = distributed_implementations();
  // Scan and SSD: six ways forward, four of gradients.
  CHECK(std::ranges::count(all, DeviceKind::cpu, &DistributedImplementation::device) == 20);
  const auto on_gpus = std::ranges::count(all, DeviceKind::cuda, &DistributedImplementation::device);
  CHECK((on_gpus == 20 || on_gpus == 0));  // 0: a build without CUDA
  CHECK(std::ranges::is_sorted(all, {},
                               [](const DistributedImplementation& i) { return std::pair(i.op, i.name); }));
  for (const auto& implementation : all) {
    INFO(implementation.name);
    CHECK(find_op(implementation.op) != nullptr);
    CHECK_FALSE(implementation.summary.empty());
    CHECK(implementation.name.starts_with(implementation.device == DeviceKind::cpu ? "cpu-" : "nccl-"));
  }
  const DistributedImplementation copy = all.front();
  CHECK_THROWS_AS(DistributedRegistration(copy), std::logic_error);
}
