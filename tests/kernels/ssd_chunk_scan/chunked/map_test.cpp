#include "kernels/ssd_chunk_scan/chunked/map.h"

#include <set>
#include <vector>

#include "catch.h"

using namespace ssmbench;

template <int kParts>
void check_tiles() {
  std::vector<int> parts(std::size_t{kSlabs} * kParts);
  std::vector<int> squares(4 * 4);
  for (int warp = 0; warp < kSlabs * kParts; ++warp) {
    const WarpTile<kParts> tile(warp);
    ++parts.at(static_cast<std::size_t>(tile.slab * kParts + tile.part));
    CHECK(tile.squares() <= kSlabs / kParts);
    for (int j = 0; j < tile.squares(); ++j)
      ++squares.at(static_cast<std::size_t>(tile.slab * 4 + tile.square_column(j)));
  }
  CHECK(parts == std::vector<int>(parts.size(), 1));
  // Those on and below the diagonal, and no others.
  CHECK(squares == std::vector<int>{1, 0, 0, 0,  //
                                    1, 1, 0, 0,  //
                                    1, 1, 1, 0,  //
                                    1, 1, 1, 1});
}

TEST_CASE("chunked: warps share every product without overlap") {
  check_tiles<2>();
  check_tiles<4>();
}

TEST_CASE("chunked: every (batch, head, rows, chunk) belongs to one block, in either pass") {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t nheads : {1, 5, 70})
      for (const std::int64_t headdim : {1, 64, 65, 256})
        for (const std::int64_t seqlen : {1, 64, 65, 255, 256, 512, 4096, 5000}) {
          INFO(batch << " " << nheads << " " << headdim << " " << seqlen);
          const ChunkedPlan plan = plan_chunked(batch, nheads, headdim, seqlen);
          REQUIRE(plan.segments >= 1);
          // No more blocks than wanted where time is cut.
          const std::int64_t heads = batch * nheads * plan.row_tiles;
          CHECK((plan.segments == 1 || heads * plan.segments <= kWantedBlocks));
          const std::int64_t chunks = ceil_div(seqlen, kChunkSteps);
          std::vector<int> visits(static_cast<std::size_t>(heads * chunks));
          std::set<std::vector<std::int64_t>> ends;
          for (std::int64_t i = 0; i < heads * plan.segments; ++i) {
            const ChunkedBlock block = chunked_block(plan, i, nheads, plan.segments);
            const ChunkRange range = plan.chunks_of(block.segment, seqlen);
            CHECK(range.first < range.end);
            const std::int64_t tile =
                (block.sequence * nheads + block.h) * plan.row_tiles + block.row / kChunkRows;
            for (auto chunk = range.first; chunk < range.end; ++chunk)
              ++visits.at(static_cast<std::size_t>(tile * chunks + chunk));
          }
          CHECK(visits == std::vector<int>(visits.size(), 1));
          for (std::int64_t i = 0; i < heads * (plan.segments - 1); ++i) {
            const ChunkedBlock block = chunked_block(plan, i, nheads, plan.segments - 1);
            CHECK(block.segment + 1 < plan.segments);
            ends.insert({block.sequence, block.h, block.row, block.segment});
          }
          CHECK(static_cast<std::int64_t>(ends.size()) == heads * (plan.segments - 1));
        }
}

TEST_CASE("chunked: segments of packed sequences take every chunk of every length, and may be empty") {
  const ChunkedPlan plan{.row_tiles = 1, .segments = 5};
  for (const std::int64_t steps : {0, 1, 64, 65, 320, 321, 1000, 4096}) {
    std::int64_t next = 0;
    for (std::int64_t segment = 0; segment < plan.segments; ++segment) {
      const ChunkRange range = plan.chunks_of(segment, steps);
      CHECK(range.first == next);
      CHECK(range.end >= range.first);
      next = range.end;
    }
    CHECK(next == ceil_div(steps, kChunkSteps));
  }
}

TEST_CASE("chunked: one long sequence is cut, many heads are not") {
  CHECK(plan_chunked(8, 32, 64, 4096).segments == 1);
  CHECK(plan_chunked(1, 32, 64, 4096).segments == 8);
  CHECK(plan_chunked(1, 32, 64, 4096).chunks_of(1, 4096).first == 8);
  CHECK(plan_chunked(1, 1, 64, 255).segments == 1);
  CHECK(plan_chunked(1, 1, 64, 65536).segments == 256);
}

TEST_CASE("chunked: tiles of a block lie apart and aligned, two blocks fit where the kernel counts on it") {
  const auto check = []<int kBytes, int kStates>() {
    using Layout = ChunkedLayout<kBytes, kStates>;
    CHECK(Layout::kStage % 16 == 0);
    CHECK(Layout::kC == Layout::kB + kChunkSteps * kStates * kBytes);
    CHECK(Layout::kX == Layout::kC + kChunkSteps * kStates * kBytes);
    CHECK(Layout::kScalars == Layout::kX + kChunkSteps * kChunkRows * kBytes);
    CHECK(Layout::kSquare >= Layout::kState + kChunkSteps * kStates * kBytes);
    CHECK(Layout::kBytes <= kSharedBytesPerBlock);
  };
  check.operator()<2, 64>();
  check.operator()<2, 128>();
  check.operator()<2, 256>();
  check.operator()<4, 64>();
  check.operator()<4, 128>();
  check.operator()<4, 256>();
  CHECK(ChunkedLayout<2, 128>::kBlocksPerSm == 2);
  CHECK(ChunkedLayout<4, 128>::kStages == 2);
  CHECK(ChunkedLayout<4, 256>::kStages == 1);
}

TEST_CASE("chunked: states are padded to a kernel that has room for them") {
  CHECK(padded_states(1) == 64);
  CHECK(padded_states(64) == 64);
  CHECK(padded_states(65) == 128);
  CHECK(padded_states(128) == 128);
  CHECK(padded_states(129) == 256);
  CHECK(padded_states(256) == 256);
}
