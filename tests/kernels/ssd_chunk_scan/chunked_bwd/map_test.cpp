#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"

#include <vector>

#include "catch.h"
#include "model/implementation.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

using namespace ssmbench;

namespace {

struct Sizes {
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups;
  int skip_sums;
  std::size_t element_bytes;
  bool scaled_states = false;
  int side = 64;
  int step_rows = 4;
};

ChunkedBwdPlan plan_of(const Sizes& s) {
  return plan_chunked_bwd(s.batch, s.seqlen, s.nheads, s.headdim, s.dstate, s.groups, s.skip_sums,
                          {s.side, s.step_rows, s.element_bytes, s.scaled_states});
}

const std::vector<Sizes> kSizes{
    {1, 1, 1, 1, 1, 1, 0, 4},                   // the least of everything
    {2, 64, 3, 64, 64, 3, 1, 2, true},          // whole tiles, groups of one head
    {2, 65, 6, 65, 65, 2, 65, 2, true},         // one more than a tile
    {1, 4096, 24, 64, 128, 1, 1, 2},            // a model, batch 1: several slices
    {8, 4096, 32, 64, 128, 1, 64, 2},           // batch 8: one slice
    {1, 200, 5, 256, 256, 1, 256, 4},           // five slices of one head
    {3, 1000, 7 * 13, 33, 17, 7, 33, 4},        // nothing even
    {2, 33, 3, 33, 64, 1, 0, 4, false, 32, 5},  // small tiles, one more of each than one holds
};

}  // namespace

TEST_CASE("chunked SSD gradients: the parts of the workspace follow each other") {
  for (const Sizes& s : kSizes) {
    const ChunkedBwdPlan plan = plan_of(s);
    CAPTURE(s.seqlen, s.nheads, s.headdim, s.dstate);
    const std::int64_t side = s.side;
    const std::size_t elements = static_cast<std::size_t>(side * side);
    CHECK(plan.chunks * side >= s.seqlen);
    CHECK((plan.chunks - 1) * side < s.seqlen);
    CHECK(plan.rows == s.batch * plan.chunks * s.nheads);
    const auto tiles = static_cast<std::size_t>(plan.rows * ((s.headdim + side - 1) / side) *
                                                ((s.dstate + side - 1) / side));
    const auto steps = static_cast<std::size_t>(plan.rows * side) * sizeof(float);
    CHECK(plan.states >= plan.steps + steps * static_cast<std::size_t>(s.step_rows));
    CHECK(plan.dstates >= plan.states + tiles * elements * s.element_bytes);
    CHECK(plan.unscales >= plan.dstates + tiles * elements * s.element_bytes);
    CHECK(plan.flows >= plan.unscales + (s.scaled_states ? tiles * 16 : 0));
    if (!s.scaled_states) CHECK(plan.flows == plan.unscales);
    CHECK(plan.head_sums >= plan.flows + steps * 3);
    CHECK(plan.projections >=
          plan.head_sums + static_cast<std::size_t>(plan.rows * (2 + s.skip_sums)) * sizeof(float));
    const auto projections =
        static_cast<std::size_t>(plan.slices * 2 * s.batch * s.seqlen * s.groups * s.dstate) * sizeof(float);
    CHECK(plan.bytes >= plan.projections + (plan.slices > 1 ? projections : 0));
    // Asynchronous copies take 16 bytes.
    for (const std::size_t offset :
         {plan.steps, plan.states, plan.dstates, plan.unscales, plan.flows, plan.head_sums, plan.projections})
      CHECK(offset % 16 == 0);
    // The last tile of the last row is the last one.
    CHECK(plan.state_tile(plan.row(s.batch - 1, plan.chunks - 1, s.nheads - 1, s.nheads),
                          plan.headdim_tiles - 1,
                          plan.dstate_tiles - 1) == static_cast<std::int64_t>(tiles) - 1);
  }
}

TEST_CASE("chunked SSD gradients: slices cover a group's heads once, and none is empty") {
  for (const Sizes& s : kSizes) {
    const ChunkedBwdPlan plan = plan_of(s);
    const std::int64_t heads = s.nheads / s.groups;
    CAPTURE(heads);
    CHECK(plan.slices * plan.per_slice >= heads);
    CHECK((plan.slices - 1) * plan.per_slice < heads);
  }
  CHECK(plan_of({8, 4096, 32, 64, 128, 1, 1, 2}).slices == 1);   // 512 chunks are blocks enough
  CHECK(plan_of({1, 2048, 24, 64, 128, 1, 1, 2}).slices == 12);  // 32 chunks are not
  CHECK(plan_of({1, 64, 24, 64, 128, 1, 1, 2}).slices == 24);    // a head each at most
}

TEST_CASE("chunked SSD gradients: workspace of at most twice the tensors' bytes on a model's shape") {
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const bool z : {false, true}) {
      const Problem problem(ssd_chunk_scan_bwd(), {{"dtype", dtype},
                                                   {"batch", std::int64_t{8}},
                                                   {"seqlen", std::int64_t{4096}},
                                                   {"nheads", std::int64_t{32}},
                                                   {"headdim", std::int64_t{64}},
                                                   {"dstate", std::int64_t{128}},
                                                   {"z", z}});
      const ChunkedBwdPlan plan =
          plan_of({8, 4096, 32, 64, 128, 1, 1, problem.dtype() == DType::f32 ? 4U : 2U,
                   problem.dtype() == DType::f16});
      CHECK(static_cast<double>(plan.bytes) <= 2 * tensor_bytes(problem));
    }
}
